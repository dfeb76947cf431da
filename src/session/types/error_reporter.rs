//! Errors that no caller receives, and who hears of them.
//!
//! An error goes to whoever asked: a lookup gets the root cause of its failure, a removal what managers said. Some have
//! nobody who asked: a unit that fails when no lookup waits for it, a manager that fails when a dropped pin completes
//! a removal, anything that fails when the last session handle is dropped. Those come here.
//!
//! Without a reporter they are dropped, not printed: the standard error of a process is not a library's to write to, and
//! every failure that somebody waits for is an `Err` there. (ORC prints unless told otherwise.)

use crate::base::catch;
use crate::error::Error;
use crate::sync::Arc;

/// Hears of errors that no caller receives (ORC: `ErrorReporter`). It may own whatever it needs.
///
/// Called with no lock held, on any thread, possibly on several at once and while one unwinds; may call back into the
/// session. It lives as long as the session's dylibs: a session handle in it would keep the session from ever ending.
pub type ErrorReporter = Arc<dyn Fn(Error) + Send + Sync>;

/// Where a session's unheard errors go.
pub(crate) struct ReporterHandle(Option<ErrorReporter>);

impl ReporterHandle {
    pub(crate) fn new(reporter: Option<ErrorReporter>) -> ReporterHandle {
        ReporterHandle(reporter)
    }

    /// Called with no lock held (S5).
    pub(crate) fn report(&self, error: Error) {
        if let Some(reporter) = &self.0 {
            // Reports come out of drops too, and from the middle of removals: neither can take a panic.
            let _ = catch(|| reporter(error));
        }
    }
}
