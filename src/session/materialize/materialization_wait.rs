//! [`MaterializationWait`]: waits for a materialisation that the calling thread began itself.
//!
//! A lookup waits for the materialisation that it starts. A caller that begins one itself (`begin_materializing`)
//! usually finishes it before it has to wait. If a symbol is not ready then, because its dependencies are not, the
//! caller waits for the first of its symbols. The symbols of one responsibility become ready, or fail, together.

use crate::error::Result;
use crate::session::core::execution_session::SessionInner;
use crate::session::core::materialization::Materialization;
use crate::session::core::query::{Query, Waiter};
use crate::session::core::responsibility::{ClaimedSymbol, MaterializationResponsibility};
use crate::session::types::request::RequiredState;
use crate::session::work::dispatch::queued_count;
use crate::sync::Arc;

/// A wait that has not begun.
#[must_use = "the outcome reaches the caller only if it waits"]
pub(crate) struct MaterializationWait {
    query: Arc<Query>,
    session: Arc<SessionInner>,
}

impl MaterializationWait {
    /// Waits until the symbols are ready. An error is the cause of their failure.
    pub(crate) fn wait(self) -> Result<()> {
        self.wait_after(|| {})
    }

    /// As [`wait`](Self::wait), after `begin` has dispatched tasks that the symbols need. This thread runs those tasks.
    pub(crate) fn wait_after(self, begin: impl FnOnce()) -> Result<()> {
        let older = queued_count::<Materialization>();
        begin();
        self.session.dispatcher.wait(&*self.query, older).map(drop)
    }
}

impl MaterializationResponsibility {
    /// A wait for the symbols `own`, if the caller [gets the outcome](Self::with_outcome_to_caller).
    ///
    /// # Errors
    /// The tracker's error when the symbols are gone.
    pub(crate) fn prepare_wait(&self, own: &[ClaimedSymbol]) -> Result<Option<MaterializationWait>> {
        let Some(first) = own.first().filter(|_| self.caller_gets_outcome) else { return Ok(None) };
        let query = Query::blocking_for_address(RequiredState::Ready);
        let waiter = Waiter { query: query.clone(), index: 0, dylib: None };
        let mut state = self.core.dylib().state.lock();
        if state.table.symbol(first.id).is_none() {
            drop(state);
            return Err(self.with_cause_of(own, self.core.defunct()));
        }
        state.table.add_waiter(first.id, waiter);
        Ok(Some(MaterializationWait { query, session: self.session().clone() }))
    }
}
