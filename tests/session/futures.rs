//! `LookupFuture`, polled by hand.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use jittison::error::{Error, Result};
use jittison::session::*;

use crate::support::*;

/// Counts its wakes, and unparks the thread that made it.
struct WakeCounter {
    woken: AtomicUsize,
    thread: Thread,
}

impl WakeCounter {
    fn new() -> Arc<WakeCounter> {
        Arc::new(WakeCounter { woken: AtomicUsize::new(0), thread: thread::current() })
    }

    /// Polls a future with a waker of this counter.
    fn poll<F: Future>(self: &Arc<Self>, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&Waker::from(self.clone())))
    }

    fn woken(&self) -> usize {
        self.woken.load(Ordering::SeqCst)
    }
}

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

fn start_lookup(fixture: &Fixture, name: &str) -> LookupFuture {
    let order = [(fixture.main.clone(), Visibility::All)];
    fixture.session.lookup_async(&order, &[SymbolRequest::required(name)], RequiredState::Ready)
}

fn addresses(outcome: Poll<Result<Vec<LookupResult>>>) -> Vec<u64> {
    match outcome {
        Poll::Ready(found) => found.unwrap().iter().map(|result| result.address.value()).collect(),
        Poll::Pending => panic!("still pending"),
    }
}

#[test]
fn a_complete_lookup_is_ready_at_the_first_poll_without_a_wake() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let counter = WakeCounter::new();
    let future = pin!(start_lookup(&fixture, "foo"));
    assert_eq!(addresses(counter.poll(future)), [1]);
    assert_eq!(counter.woken(), 0);
    let missing = pin!(start_lookup(&fixture, "missing"));
    match counter.poll(missing) {
        Poll::Ready(outcome) => assert_not_found(outcome),
        Poll::Pending => panic!("still pending"),
    }
}

#[test]
fn a_pending_lookup_is_woken_once_by_the_thread_that_completes_it() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let counter = WakeCounter::new();
    let mut future = pin!(start_lookup(&fixture, "foo"));
    assert!(counter.poll(future.as_mut()).is_pending());
    assert!(counter.poll(future.as_mut()).is_pending());
    assert_eq!(counter.woken(), 0);
    thread::scope(|scope| {
        scope.spawn(|| finish(held.take(), 1));
        while counter.woken() == 0 {
            thread::park();
        }
        assert_eq!(addresses(counter.poll(future)), [1]);
    });
    assert_eq!(counter.woken(), 1);
}

#[test]
fn only_the_waker_of_the_last_poll_is_woken() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let (first, last) = (WakeCounter::new(), WakeCounter::new());
    let mut future = pin!(start_lookup(&fixture, "foo"));
    for counter in [&first, &last] {
        assert!(counter.poll(future.as_mut()).is_pending());
    }
    held.take().fail(Error::other("no foo"));
    assert_eq!((first.woken(), last.woken()), (0, 1));
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => assert!(outcome.unwrap_err().to_string().contains("no foo")),
        Poll::Pending => panic!("still pending"),
    }
}

#[test]
fn a_future_dropped_early_drops_its_waker_and_the_lookup_continues() {
    // Symptom: the waker, and with it a task, was kept until the lookup ended.
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let counter = WakeCounter::new();
    {
        let mut future = pin!(start_lookup(&fixture, "foo"));
        assert!(counter.poll(future.as_mut()).is_pending());
    }
    assert_eq!(Arc::strong_count(&counter), 1);
    finish(held.take(), 1);
    assert_eq!(counter.woken(), 0);
    assert_eq!(fixture.find("foo").unwrap(), 1);
}

#[test]
fn a_waker_may_call_the_session_when_it_is_woken_and_when_it_is_dropped() {
    // Symptom: the waker was dropped under the answer's lock, where no code of the embedder may run.
    struct CallsSession(JitDylib, Mutex<usize>);
    impl Wake for CallsSession {
        fn wake(self: Arc<Self>) {
            *self.1.lock().unwrap() += self.0.symbol_count();
        }
    }
    impl Drop for CallsSession {
        fn drop(&mut self) {
            assert_eq!(self.0.symbol_count(), 1);
        }
    }
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let mut future = pin!(start_lookup(&fixture, "foo"));
    let make = || Arc::new(CallsSession(fixture.main.clone(), Mutex::new(0)));
    assert!(future.as_mut().poll(&mut Context::from_waker(&Waker::from(make()))).is_pending());
    let last = make();
    assert!(future.as_mut().poll(&mut Context::from_waker(&Waker::from(last.clone()))).is_pending());
    finish(held.take(), 1);
    assert_eq!(*last.1.lock().unwrap(), 1);
}

#[test]
fn futures_are_completed_by_worker_threads() {
    let session = ExecutionSession::with_options(SessionOptions { worker_threads: 2, ..SessionOptions::default() });
    let main = session.create_dylib("main").unwrap();
    let names: Vec<String> = (0..100).map(|i| format!("f{i}")).collect();
    let order = [(main.clone(), Visibility::All)];
    let futures: Vec<_> = (1..)
        .zip(&names)
        .map(|(value, name)| {
            main.define(Unit::ready(&[name], value)).unwrap();
            session.lookup_async(&order, &[SymbolRequest::required(name)], RequiredState::Ready)
        })
        .collect();
    let counter = WakeCounter::new();
    for (value, future) in (1..).zip(futures) {
        let mut future = pin!(future);
        let outcome = loop {
            match counter.poll(future.as_mut()) {
                Poll::Pending => thread::park(),
                ready => break ready,
            }
        };
        assert_eq!(addresses(outcome), [value]);
    }
}
