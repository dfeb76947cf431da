//! [`LookupFuture`]: a lookup as a future, for any executor.
//!
//! The lookup starts when the future is created, not when it is polled. Dropping the future does not stop the lookup;
//! its outcome is dropped.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::error::Result;
use crate::session::core::execution_session::{ExecutionSession, SessionInner};
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::query::Query;
use crate::session::core::symbol_ref::LookupResults;
use crate::session::lookup::begin;
use crate::session::lookup::origin::Origin;
use crate::session::types::request::{RequiredState, SymbolRequest, Visibility};
use crate::sync::{Arc, Mutex};

/// The outcome of a lookup in progress.
#[must_use = "the lookup runs without the future, but only awaiting the future returns its result"]
pub struct LookupFuture {
    shared: Arc<Mutex<Shared>>,
}

/// What the future and the callback of its query share.
#[derive(Default)]
struct Shared {
    outcome: Option<Result<LookupResults>>,
    waker: Option<Waker>,
}

impl ExecutionSession {
    /// As [`lookup`](Self::lookup), as a future. Without worker threads, this call itself runs the materialisation that
    /// the lookup starts. A panic of a waker goes to the session's [error
    /// reporter](crate::session::SessionOptions::error_reporter).
    pub fn lookup_async(
        &self,
        order: &[(JitDylib, Visibility)],
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
    ) -> LookupFuture {
        LookupFuture::start(self.inner(), order, requests, required)
    }
}

impl LookupFuture {
    fn start(
        session: &Arc<SessionInner>,
        order: &[(JitDylib, Visibility)],
        requests: &[SymbolRequest<'_>],
        required: RequiredState,
    ) -> LookupFuture {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let for_callback = shared.clone();
        let query = Query::with_callback(required, move |outcome| {
            let waker = {
                let mut shared = for_callback.lock();
                shared.outcome = Some(outcome);
                shared.waker.take()
            };
            // S5: a waker is the embedder's, so it is called after the lock is released.
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        begin::start(session, order, requests, Origin::of_embedder(session), query);
        LookupFuture { shared }
    }
}

impl Future for LookupFuture {
    type Output = Result<LookupResults>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // S5: a waker is the embedder's, so it is cloned and dropped with the lock released.
        let waker = context.waker().clone();
        let (outcome, _replaced) = {
            let mut shared = self.shared.lock();
            match shared.outcome.take() {
                Some(outcome) => (Poll::Ready(outcome), Some(waker)),
                None => (Poll::Pending, shared.waker.replace(waker)),
            }
        };
        outcome
    }
}

impl Drop for LookupFuture {
    fn drop(&mut self) {
        // The waker keeps its task alive; it must not do so until the lookup ends.
        let waker = self.shared.lock().waker.take();
        drop(waker);
    }
}

impl fmt::Debug for LookupFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lookup {}", if self.shared.lock().outcome.is_some() { "with its answer" } else { "under way" })
    }
}
