//! The failures of a [`SymbolTable`]: which removed symbols are recorded as failed, and searches for their causes.

use super::{FailedSymbol, RemovedSymbol, SymbolTable, TableTypes};
use crate::base::Name;
use crate::error::Error;
use crate::session::types::failure_count::FailureNumber;
use crate::session::types::request::Visibility;
use crate::session::types::symbol::SymbolId;

impl<E: TableTypes> SymbolTable<E> {
    /// Records that `removed` symbols of this table have failed because of `cause`.
    pub(in crate::session) fn record_failures<'a>(
        &mut self,
        removed: impl Iterator<Item = &'a RemovedSymbol<E>>,
        cause: &Error,
        number: FailureNumber,
    ) where
        E: 'a,
    {
        let record = |symbol: &'a RemovedSymbol<E>| FailedSymbol {
            id: symbol.id,
            hash: symbol.hash,
            name: symbol.name.clone(),
            flags: symbol.flags,
            cause: cause.clone(),
            number,
        };
        self.failed.record(removed.map(record), self.names.capacity());
    }

    /// Whether the last definition of a name failed after `since`.
    pub(in crate::session) fn has_failed_since(&self, since: FailureNumber, name: &str) -> bool {
        self.failed.has_failed_since(since, name)
    }

    /// Why the last definition of a name failed, if it did and a search with this visibility would have found it.
    pub(crate) fn failure_of_name(&self, name: &str, visibility: Visibility) -> Option<&Error> {
        self.failed.of_name(name, visibility)
    }

    /// Why a definition that has left the table failed, if it did.
    pub(crate) fn failure_of_definition(&self, id: SymbolId, name: &Name) -> Option<&Error> {
        self.failed.of_definition(id, name)
    }

    /// Whether a failure was recorded.
    pub(crate) fn has_failures(&self) -> bool {
        self.failed.has_any()
    }

    /// Forgets all failures.
    pub(crate) fn clear_failures(&mut self) {
        self.failed.clear();
    }
}
