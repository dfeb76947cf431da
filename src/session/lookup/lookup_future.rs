//! [`LookupFuture`]: a lookup to be awaited, on whatever executor.
//!
//! The lookup is under way when the future is made; polling only asks for the answer. Dropping the future lets the
//! lookup go on and its answer fall.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::error::Result;
use crate::session::core::execution_session::{ExecutionSession, SessionInner};
use crate::session::core::jit_dylib::{JitDylib, Visibility};
use crate::session::core::query::Query;
use crate::session::lookup::blocking::{self, LookupResults, RequiredState, SymbolRequest};
use crate::sync::{Arc, Mutex};

/// The answer of a lookup, to come.
#[must_use = "a future does nothing visible unless it is awaited"]
pub struct LookupFuture {
    answer: Arc<Mutex<Answer>>,
}

#[derive(Default)]
struct Answer {
    outcome: Option<Result<LookupResults>>,
    waker: Option<Waker>,
}

impl ExecutionSession {
    /// As [`lookup`](Self::lookup), to be awaited. Materialisation that is not dispatched to worker threads is done by
    /// this call itself.
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
        let answer = Arc::new(Mutex::new(Answer::default()));
        let told = answer.clone();
        let query = Query::calling(required, move |outcome| {
            let waker = {
                let mut answer = told.lock();
                answer.outcome = Some(outcome);
                answer.waker.take()
            };
            // Outside the lock: a waker is foreign code.
            if let Some(waker) = waker {
                waker.wake();
            }
        });
        blocking::start(session, order, requests, None, query);
        LookupFuture { answer }
    }
}

impl Future for LookupFuture {
    type Output = Result<LookupResults>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A waker is foreign code: it is cloned and dropped outside the lock.
        let waker = context.waker().clone();
        let (outcome, _replaced) = {
            let mut answer = self.answer.lock();
            match answer.outcome.take() {
                Some(outcome) => (Poll::Ready(outcome), Some(waker)),
                None => (Poll::Pending, answer.waker.replace(waker)),
            }
        };
        outcome
    }
}

impl Drop for LookupFuture {
    fn drop(&mut self) {
        // The task behind it need not live as long as the lookup.
        let waker = self.answer.lock().waker.take();
        drop(waker);
    }
}

impl fmt::Debug for LookupFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lookup {}", if self.answer.lock().outcome.is_some() { "with its answer" } else { "under way" })
    }
}
