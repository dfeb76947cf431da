//! [`LazyFailureHandler`]: decides what happens if a lazy function is called and cannot be linked.
//!
//! The caller is linked code, or the owner of a handle. It has called a function and expects a value of the function's return
//! type, so no error can be returned. The embedder's handler supplies another function to call instead, or ends the process.
//! Without a handler the process aborts.

use std::fmt;
use std::io::{self, Write as _};

use crate::base::{ExecutorAddr, catch};
use crate::error::Error;
use crate::sync::Arc;

/// Why a lazy function could not be called.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LazyFailure<'a> {
    /// The dylib that the lazy function was defined in.
    pub dylib: &'a str,
    /// The lazy function's name in `dylib`.
    pub symbol: &'a str,
    /// The dylib that should supply the function.
    pub source: &'a str,
    /// The function's name in `source`.
    pub aliasee: &'a str,
    /// The error of the lookup: the session has ended, the name was removed, or the link failed. See [`Error::root_cause`].
    pub error: &'a Error,
}

/// Supplies another function for the call of a lazy function that cannot be linked (ORC: the error handler address of a
/// `LazyCallThroughManager`).
///
/// The handler runs on the calling thread, before the call continues. No lock is held, so it may call the session. The lazy
/// function stays unbound, and its next call tries to link it again.
///
/// The [default](LazyFailureHandler::default) writes the name of the function and the error to the standard error, and aborts
/// the process.
///
/// ```
/// use jittison::base::ExecutorAddr;
/// use jittison::host::LazyFailureHandler;
///
/// extern "C" fn minus_one() -> i64 { -1 }
///
/// // SAFETY: H1 - all lazy functions of this program are called as `extern "C" fn() -> i64`, which `minus_one` is.
/// let handler = unsafe {
///     LazyFailureHandler::new(|failure| {
///         eprintln!("{failure}");
///         Some(ExecutorAddr::new(minus_one as *const () as u64))
///     })
/// };
/// let jit = jittison::Jit::builder().lazy_failure_handler(handler).build()?;
/// # Ok::<(), jittison::Error>(())
/// ```
#[derive(Clone)]
pub struct LazyFailureHandler(Arc<Handler>);

type Handler = dyn Fn(&LazyFailure<'_>) -> Option<ExecutorAddr> + Send + Sync;

impl LazyFailureHandler {
    /// A handler that returns the address of the function to call instead. `None` aborts the process, as the default does. The
    /// handler need not return: it may end the process, or wait for ever. If it panics, the process aborts.
    ///
    /// # Safety
    /// For each address that `handler` returns:
    /// - It is the address of a function with the signature and ABI with which the lazy function is called.
    /// - Its code stays in memory until that call has returned.
    pub unsafe fn new(
        handler: impl Fn(&LazyFailure<'_>) -> Option<ExecutorAddr> + Send + Sync + 'static,
    ) -> LazyFailureHandler {
        LazyFailureHandler(Arc::new(handler))
    }

    /// The address at which the call continues. The text with which the process aborts, if the handler supplies none.
    pub(super) fn redirect(&self, failure: &LazyFailure<'_>) -> Result<ExecutorAddr, String> {
        match catch(|| (self.0)(failure)) {
            Ok(Some(address)) if !address.is_null() => Ok(address),
            Ok(_) => Err(failure.to_string()),
            Err(panic) => Err(format!("{failure}; the lazy failure handler panicked: {panic}")),
        }
    }
}

impl Default for LazyFailureHandler {
    fn default() -> LazyFailureHandler {
        LazyFailureHandler(Arc::new(|_| None))
    }
}

/// Writes the problem to the standard error, ignoring failures, and ends the process by `SIGABRT`.
pub(super) fn abort(problem: &str) -> ! {
    let _ = writeln!(io::stderr(), "jittison: {problem}");
    std::process::abort()
}

impl fmt::Display for LazyFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LazyFailure { dylib, symbol, source, aliasee, error } = self;
        write!(f, "the lazy function `{symbol}` of `{dylib}` cannot be called, because `{aliasee}` of `{source}` ")?;
        write!(f, "cannot be linked: {error}")
    }
}

impl fmt::Debug for LazyFailureHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LazyFailureHandler")
    }
}
