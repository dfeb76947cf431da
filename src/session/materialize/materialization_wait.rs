//! [`MaterializationWait`]: the end of a materialisation, for who began it and stays until it is over.
//!
//! What a lookup sets off is told to the lookup. What somebody begins himself mostly ends before he could wait; if it does not,
//! because it needs what others are at, he waits for the first of its symbols: they become ready, or fail, together.

use crate::error::Result;
use crate::session::core::execution_session::SessionInner;
use crate::session::core::query::{Query, Waiter};
use crate::session::lookup::blocking::RequiredState;
use crate::session::materialize::responsibility::{ClaimedSymbol, MaterializationResponsibility};
use crate::session::work::dispatch;
use crate::sync::Arc;

/// Something to wait for.
#[must_use = "who does not wait is not told"]
pub(crate) struct MaterializationWait {
    query: Arc<Query>,
    session: Arc<SessionInner>,
}

impl MaterializationWait {
    /// Waits until the symbols are ready, or have failed: with the cause then.
    pub(crate) fn wait(self) -> Result<()> {
        self.wait_after(|| {})
    }

    /// The same, after `begin` has set going what it is for: that is run meanwhile.
    pub(crate) fn wait_after(self, begin: impl FnOnce()) -> Result<()> {
        let older = dispatch::queued();
        begin();
        self.session.dispatcher.wait(&self.query, older).map(drop)
    }
}

impl MaterializationResponsibility {
    /// What to wait for until the owed symbols are ready, if somebody [is to be told](Self::awaited).
    ///
    /// # Errors
    /// When they are gone.
    pub(crate) fn await_end(&self, own: &[ClaimedSymbol]) -> Result<Option<MaterializationWait>> {
        let Some(first) = own.first().filter(|_| self.is_awaited) else { return Ok(None) };
        let query = Query::waking_with_address(RequiredState::Ready);
        let waiter = Waiter { query: query.clone(), index: 0, dylib: None };
        let mut state = self.core.dylib().state.lock();
        state.table.symbol(first.id).ok_or_else(|| self.core.defunct())?;
        state.table.add_waiter(first.id, waiter);
        Ok(Some(MaterializationWait { query, session: self.session().clone() }))
    }
}
