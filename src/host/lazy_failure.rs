//! [`LazyFailureHandler`]: where the call of a lazy function goes on that cannot be linked.
//!
//! The caller is linked code or whoever holds a handle. It has called a function and gets a value of that function's type, so
//! there is no error to return. The embedder decides: another function, or an end of its own. Without a handler the process ends.

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
    /// The lazy function's name there.
    pub symbol: &'a str,
    /// The dylib that was to supply the function.
    pub source: &'a str,
    /// The function's name there.
    pub aliasee: &'a str,
    /// What its lookup said: the session has ended, the name is gone, the link has failed. See [`Error::root_cause`].
    pub error: &'a Error,
}

/// Decides where the call of a lazy function goes on that cannot be linked (ORC: the error handler address of a
/// `LazyCallThroughManager`).
///
/// It is called on the thread that made the call, in the middle of it, with no lock held, and may call back into the session. The
/// lazy function stays unbound: its next call tries again.
///
/// The [default](LazyFailureHandler::default) says on the standard error which function it was, and why, and aborts the process.
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
    /// A handler that returns the address of the function that is called instead; `None` ends the process as the default does. It
    /// may as well not return: end the process in its own way, or wait for ever. If it panics, the process ends.
    ///
    /// # Safety
    /// An address that `handler` returns
    /// - is that of a function of the signature and ABI with which the lazy function is called,
    /// - and its code stays in memory until that call has returned.
    pub unsafe fn new(
        handler: impl Fn(&LazyFailure<'_>) -> Option<ExecutorAddr> + Send + Sync + 'static,
    ) -> LazyFailureHandler {
        LazyFailureHandler(Arc::new(handler))
    }

    /// Where the call goes on. Does not return if nowhere.
    pub(super) fn redirect(&self, failure: &LazyFailure<'_>) -> ExecutorAddr {
        match catch(|| (self.0)(failure)) {
            Ok(Some(address)) if !address.is_null() => address,
            Ok(_) => abort(&failure.to_string()),
            Err(panic) => abort(&format!("{failure}; and the handler of such failures panicked: {panic}")),
        }
    }
}

impl Default for LazyFailureHandler {
    fn default() -> LazyFailureHandler {
        LazyFailureHandler(Arc::new(|_| None))
    }
}

/// Says why, as far as anybody listens, and ends the process by `SIGABRT`.
pub(super) fn abort(problem: &str) -> ! {
    let _ = writeln!(io::stderr(), "jittison: {problem}");
    std::process::abort()
}

impl fmt::Display for LazyFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LazyFailure { dylib, symbol, source, aliasee, error } = self;
        write!(f, "the lazy function `{symbol}` of `{dylib}` cannot be called, as `{aliasee}` of `{source}` ")?;
        write!(f, "cannot be linked: {error}")
    }
}

impl fmt::Debug for LazyFailureHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LazyFailureHandler")
    }
}
