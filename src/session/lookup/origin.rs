//! [`Origin`]: on whose behalf a search runs.

use crate::session::core::execution_session::SessionInner;
use crate::session::types::failure_count::FailureNumber;

/// Who looks names up, and since when.
#[derive(Clone, Copy)]
pub(in crate::session) struct Origin<'a> {
    /// The unit that is materialised, for errors. `None` for a lookup of the embedder.
    pub(in crate::session) needed_by: Option<&'a str>,
    /// Definitions that have failed since then have failed for this search: no generator is asked for them again.
    pub(in crate::session) since: FailureNumber,
}

impl Origin<'_> {
    /// A lookup of the embedder that begins now.
    #[inline]
    pub(in crate::session) fn of_embedder(session: &SessionInner) -> Origin<'static> {
        Origin { needed_by: None, since: session.failures.now() }
    }
}
