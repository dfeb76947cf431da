//! [`ErrorReporter`]: the embedder's callback for errors that no caller receives.
//!
//! An error normally goes to the caller: a lookup returns the cause of its failure, a removal returns the errors of the
//! managers. These errors have no caller:
//!
//! - a unit fails and no lookup waits for it;
//! - a manager fails while the drop of a pin completes a removal;
//! - a callback of a lookup panics, or a waker of a lookup's future;
//! - anything fails while the last handle of a session is dropped.
//!
//! They go to the reporter. Without a reporter they are dropped and not printed: a library must not write to the standard error
//! of its process. ORC prints such errors by default.

use crate::base::catch;
use crate::error::Error;
use crate::sync::Arc;

/// A callback for errors that no caller receives (ORC: `ErrorReporter`). It may own data.
///
/// It is called with no lock held, on any thread, on several threads at once, and also while a thread unwinds. It may call the
/// session. The reporter lives as long as the dylibs of the session. A session handle in it prevents the session from ending.
pub type ErrorReporter = Arc<dyn Fn(Error) + Send + Sync>;

/// The error reporter of a session, if it has one.
#[derive(Clone)]
pub(crate) struct ReporterHandle(Option<ErrorReporter>);

impl ReporterHandle {
    pub(crate) fn new(reporter: Option<ErrorReporter>) -> ReporterHandle {
        ReporterHandle(reporter)
    }

    /// Calls the reporter. The caller must hold no lock (S5).
    pub(crate) fn report(&self, error: Error) {
        if let Some(reporter) = &self.0 {
            // Destructors and unfinished removals report errors. A panic must not leave this function.
            let _ = catch(|| reporter(error));
        }
    }
}
