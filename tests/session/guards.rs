//! Guards: code that a thread finds under a guard stays mapped until the guard is dropped, even if another thread removes it.
//! A guard defers only removals that start while it is entered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use jittison::session::*;

use crate::support::*;

/// A thread that is inside a guard until `leave` is called.
struct Inside {
    leave: Sender<()>,
    thread: JoinHandle<()>,
}

impl Inside {
    fn enter(session: &ExecutionSession, name: &str) -> Inside {
        let (leave, is_leaving): (_, Receiver<()>) = channel();
        let (entered, is_entered) = channel();
        let session = session.clone();
        let body = move || {
            let guard = session.guard();
            entered.send(()).unwrap();
            is_leaving.recv().unwrap();
            drop(guard);
        };
        let thread = thread::Builder::new().name(name.to_string()).spawn(body).unwrap();
        is_entered.recv().unwrap();
        Inside { leave, thread }
    }

    fn leave(self) {
        self.leave.send(()).unwrap();
        self.thread.join().unwrap();
    }
}

#[test]
fn a_tracker_removed_under_a_guard_is_freed_when_the_guard_is_dropped() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let guard = fixture.session.guard();
    let removal = tracker.remove().unwrap();
    assert_not_found(fixture.find("foo"));
    assert_eq!((removal.is_complete(), removal.blockers()), (false, (0, 0)));
    assert_eq!(fixture.log.take(), [""; 0]);
    drop(guard);
    assert!(removal.is_complete());
    assert_eq!(fixture.log.take(), ["manager removes [7]"]);
}

#[test]
fn a_guard_that_is_entered_after_a_removal_does_not_hold_it() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.loaded("foo", 1), fixture.loaded("bar", 2));
    let inside = Inside::enter(&fixture.session, "early");
    let held = first.remove().unwrap();
    let late = fixture.session.guard();
    inside.leave();
    assert!(held.is_complete(), "only the early guard defers it");
    let held = second.remove().unwrap();
    assert!(!held.is_complete());
    drop(late);
    assert!(held.is_complete());
}

#[test]
fn guards_of_several_threads_hold_until_the_last_is_dropped_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("foo", 7);
        let mut inside: Vec<_> =
            ["a", "b", "c"].iter().map(|name| Some(Inside::enter(&fixture.session, name))).collect();
        let removal = tracker.remove().unwrap();
        assert_eq!(removal.guards().len(), 3);
        for (ended, thread) in order.into_iter().enumerate() {
            assert!(!removal.is_complete());
            assert!(removal.guards().len() >= 3 - ended);
            inside[thread].take().unwrap().leave();
        }
        assert!(removal.is_complete());
        assert_eq!(fixture.manager.take_freed(), [7]);
    }
}

#[test]
fn a_nested_guard_releases_nothing_before_the_outer_guard() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let outer = fixture.session.guard();
    let mut inner = fixture.session.guard();
    let removal = tracker.remove().unwrap();
    inner.refresh();
    drop(inner);
    assert!(!removal.is_complete());
    drop(outer);
    assert!(removal.is_complete());
}

#[test]
fn guards_may_be_dropped_in_any_order() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let first = fixture.session.guard();
    let second = fixture.session.guard();
    drop(first);
    let removal = tracker.remove().unwrap();
    assert!(!removal.is_complete());
    drop(second);
    assert!(removal.is_complete());
}

#[test]
fn a_refreshed_guard_releases_earlier_removals() {
    let fixture = Fixture::new();
    let (first, second) = (fixture.loaded("foo", 1), fixture.loaded("bar", 2));
    let mut guard = fixture.session.guard();
    let before = first.remove().unwrap();
    guard.refresh();
    assert!(before.is_complete());
    let after = second.remove().unwrap();
    assert!(!after.is_complete());
    drop(guard);
    assert!(after.is_complete());
}

#[test]
fn a_guard_of_one_session_holds_nothing_of_another() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let tracker = fixture.loaded("foo", 7);
    let guard = other.session.guard();
    assert!(guard.is_of(&other.session) && !guard.is_of(&fixture.session));
    assert!(tracker.remove().unwrap().is_complete());
}

#[test]
fn a_ticket_names_the_threads_of_blocking_guards_and_since_when() {
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let inside = Inside::enter(&fixture.session, "slow-query");
    let removal = tracker.remove().unwrap();
    thread::sleep(Duration::from_millis(20));
    let guards = removal.guards();
    let [guard] = &guards[..] else { panic!("{guards:?}") };
    assert!(guard.thread.contains("`slow-query`"), "{guard}");
    assert!(guard.blocking_for >= Duration::from_millis(20), "{guard}");
    let [obstacle] = &removal.obstacles()[..] else { panic!("{:?}", removal.obstacles()) };
    assert!(obstacle.starts_with("a guard of thread ") && obstacle.contains("`slow-query`"), "{obstacle}");
    assert!(removal.age().unwrap() >= Duration::from_millis(20));
    inside.leave();
    assert!(removal.is_complete() && removal.guards().is_empty() && removal.obstacles().is_empty());
}

#[test]
fn a_session_lists_pending_removals_including_those_of_removed_dylibs() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    let in_other = other.create_tracker().unwrap();
    in_other.define(Unit::recording(&["bar"], &fixture.manager, 2)).unwrap();
    find_in(&fixture.session, &[&other], "bar").unwrap();
    let tracker = fixture.loaded("foo", 1);
    assert_eq!(fixture.session.pending_removals().len(), 0);
    let guard = fixture.session.guard();
    tracker.remove().unwrap();
    fixture.session.remove_dylib(&other).unwrap();
    let pending = fixture.session.pending_removals();
    let which: Vec<_> = pending.iter().map(|removal| (removal.dylib().name().to_string(), removal.key())).collect();
    assert_eq!(which, [("main".to_string(), tracker.key()), ("other".to_string(), in_other.key())]);
    drop(guard);
    assert_eq!(fixture.session.pending_removals().len(), 0);
}

#[test]
fn code_held_by_a_guard_holds_its_dependencies() {
    let fixture = Fixture::new();
    let base = fixture.loaded("base", 1);
    let user = fixture.linked("user", &["base"], 2);
    let of_base = base.remove().unwrap();
    let guard = fixture.session.guard();
    let of_user = user.remove().unwrap();
    assert!(!of_base.is_complete() && !of_user.is_complete());
    drop(guard);
    assert!(of_base.is_complete() && of_user.is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
}

#[test]
fn a_guard_and_a_pin_hold_until_both_are_dropped_in_any_order() {
    for is_guard_first in [true, false] {
        let fixture = Fixture::new();
        let tracker = fixture.loaded("foo", 7);
        let (_, pin) = fixture.main.pin("foo").unwrap();
        let guard = fixture.session.guard();
        let removal = tracker.remove().unwrap();
        if is_guard_first {
            drop(guard);
            assert!(!removal.is_complete());
            drop(pin);
        } else {
            drop(pin);
            assert!(!removal.is_complete());
            drop(guard);
        }
        assert!(removal.is_complete());
        assert_eq!(fixture.manager.take_freed(), [7]);
    }
}

#[test]
fn a_ring_waits_for_a_guard_and_is_freed_as_one_batch() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.tracker(), fixture.tracker());
    a.define(Unit::depending("a", &["b"], &fixture.manager, 1)).unwrap();
    b.define(Unit::depending("b", &["a"], &fixture.manager, 2)).unwrap();
    fixture.find("a").unwrap();
    let of_a = a.remove().unwrap();
    let guard = fixture.session.guard();
    let of_b = b.remove().unwrap();
    assert!(!of_a.is_complete() && !of_b.is_complete());
    drop(guard);
    assert!(of_a.is_complete() && of_b.is_complete());
    assert_eq!(fixture.manager.take_freed(), [2, 1]);
}

#[test]
fn a_cleared_dylib_waits_for_a_guard_and_is_freed_as_one_batch() {
    let fixture = Fixture::new();
    let late = LedgerManager::new("late", &fixture.log);
    fixture.session.register_manager(late);
    let _trackers = [fixture.loaded("foo", 1), fixture.loaded("bar", 2)];
    let guard = fixture.session.guard();
    assert_eq!(fixture.main.clear().unwrap().len(), 2);
    assert_eq!(fixture.log.take(), [""; 0]);
    drop(guard);
    let events = fixture.log.take();
    assert_eq!(events, ["late removes []", "late removes []", "manager removes [2]", "manager removes [1]"]);
}

#[test]
fn under_the_explicit_policy_dropping_the_last_guard_only_queues() {
    let fixture = Fixture::with_policy(ReclaimPolicy::Explicit);
    let tracker = fixture.loaded("foo", 7);
    let guard = fixture.session.guard();
    let removal = tracker.remove().unwrap();
    assert_eq!(fixture.session.reclaim(), 0);
    drop(guard);
    assert!(!removal.is_complete());
    let pending: Vec<_> = fixture.session.pending_removals().iter().map(Removal::key).collect();
    assert_eq!((pending, removal.obstacles()), (vec![tracker.key()], Vec::new()), "it waits only for `reclaim`");
    assert_eq!(fixture.session.reclaim(), 1);
    assert!(removal.is_complete());
    assert_eq!(fixture.session.pending_removals().len(), 0);
}

#[test]
fn under_the_background_policy_the_reclaim_thread_frees_deferred_removals() {
    let fixture = Fixture::with_policy(ReclaimPolicy::Background);
    for round in 0..20 {
        let tracker = fixture.loaded("foo", round);
        let guard = fixture.session.guard();
        let removal = tracker.remove().unwrap();
        let (send, receive) = channel();
        removal.on_complete(move |_| send.send(thread::current().name().map(str::to_string)).unwrap());
        drop(guard);
        assert_eq!(receive.recv().unwrap().as_deref(), Some("jittison-reclaim"));
        assert!(removal.wait_until(Instant::now() + Duration::from_secs(60)).unwrap());
        assert_eq!(fixture.manager.take_freed(), [round]);
    }
}

#[test]
fn under_the_background_policy_dropping_a_guard_or_pin_frees_after_the_session_has_ended() {
    let fixture = Fixture::with_policy(ReclaimPolicy::Background);
    let _first = fixture.loaded("foo", 1);
    let (_, pin) = fixture.main.pin("foo").unwrap();
    let _second = fixture.loaded("bar", 2);
    let guard = fixture.session.guard();
    fixture.session.end().unwrap();
    assert_eq!(fixture.manager.take_freed(), [0; 0]);
    drop(guard);
    assert_eq!(fixture.manager.take_freed(), [2]);
    drop(pin);
    assert_eq!(fixture.manager.take_freed(), [1]);
}

#[test]
fn the_record_of_an_ended_thread_is_reused() {
    let fixture = Fixture::new();
    for round in 0..sized(100, 5) {
        let inside = Inside::enter(&fixture.session, "short-lived");
        let removal = fixture.loaded("foo", round).remove().unwrap();
        assert_eq!(removal.guards().len(), 1);
        inside.leave();
        assert!(removal.is_complete());
    }
}

#[test]
fn records_of_ended_sessions_are_reused_and_hold_nothing() {
    for round in 0..sized(200, 5) {
        let (first, second) = (Fixture::new(), Fixture::new());
        let guard = first.session.guard();
        let other = Inside::enter(&second.session, "in the second");
        let (of_first, of_second) = (first.loaded("foo", round), second.loaded("foo", round));
        let of_first = of_first.remove().unwrap();
        let of_second = of_second.remove().unwrap();
        assert_eq!((of_first.guards().len(), of_second.guards().len()), (1, 1));
        drop(guard);
        assert!(of_first.is_complete() && !of_second.is_complete());
        other.leave();
        assert!(of_second.is_complete());
    }
}

#[test]
fn a_leaked_guard_of_an_ended_session_does_not_affect_other_sessions() {
    for round in 0..sized(50, 2) {
        let fixture = Fixture::new();
        std::mem::forget(fixture.session.guard());
        assert!(!fixture.loaded("foo", round).remove().unwrap().is_complete());
        drop(fixture);
        let fixture = Fixture::new();
        let guard = fixture.session.guard();
        let removal = fixture.loaded("foo", round).remove().unwrap();
        assert_eq!(removal.guards().len(), 1);
        drop(guard);
        assert!(removal.is_complete());
    }
}

#[test]
fn a_guard_may_be_entered_at_thread_exit() {
    struct AtTheEnd(ExecutionSession, ResourceTracker, Sender<bool>);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let guard = self.0.guard();
            let removal = self.1.remove().unwrap();
            let was_held = !removal.is_complete();
            drop(guard);
            self.2.send(was_held && removal.is_complete()).unwrap();
        }
    }
    thread_local! {
        static AT_END: std::cell::RefCell<Vec<AtTheEnd>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let fixture = Fixture::new();
    for is_registered_first in [true, false] {
        let (session, tracker, (send, receive)) = (fixture.session.clone(), fixture.loaded("foo", 7), channel());
        let body = move || {
            let register = || {
                AT_END.with(|values| values.borrow_mut().push(AtTheEnd(session.clone(), tracker.clone(), send.clone())))
            };
            // The C library drops them in the opposite order.
            if is_registered_first {
                register();
            }
            drop(session.guard());
            if !is_registered_first {
                register();
            }
        };
        thread::spawn(body).join().unwrap();
        assert!(receive.recv().unwrap());
    }
    assert_eq!(fixture.loaded("bar", 8).remove().unwrap().guards().len(), 0);
}

#[test]
fn a_leaked_guard_defers_later_removals_and_other_guards_still_work() {
    let fixture = Fixture::new();
    let session = fixture.session.clone();
    thread::spawn(move || std::mem::forget(session.guard())).join().unwrap();
    let removal = fixture.loaded("foo", 7).remove().unwrap();
    assert!(!removal.is_complete());
    // Guards of other threads still work.
    drop(fixture.session.guard());
    assert!(!removal.is_complete());
    assert_eq!(removal.guards().len(), 1);
    assert_eq!(fixture.session.pending_removals().len(), 1);
}

#[test]
fn a_finaliser_and_a_callback_may_enter_guards_and_remove() {
    struct Reenters(ExecutionSession, JitDylib);
    impl ResourceManager for Reenters {
        fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> jittison::error::Result<()> {
            let _guard = self.0.guard();
            let tracker = self.1.create_tracker()?;
            drop(tracker.remove()?);
            Ok(())
        }
        fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
    }
    let fixture = Fixture::new();
    let tracker = fixture.loaded("foo", 7);
    let other = Fixture::new();
    fixture.session.register_manager(Arc::new(Reenters(other.session.clone(), other.main.clone())));
    let guard = fixture.session.guard();
    let removal = tracker.remove().unwrap();
    let (session, is_called) = (fixture.session.clone(), Arc::new(AtomicBool::new(false)));
    let called = is_called.clone();
    removal.on_complete(move |outcome| {
        outcome.unwrap();
        let _guard = session.guard();
        called.store(true, Ordering::Relaxed);
    });
    drop(guard);
    assert!(is_called.load(Ordering::Relaxed) && removal.is_complete());
    assert_eq!(other.session.pending_removals().len(), 0);
}

#[test]
fn threads_that_enter_guards_again_and_again_never_find_freed_code() {
    let fixture = Arc::new(Fixture::new());
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (fixture, stop) = (fixture.clone(), stop.clone());
            thread::spawn(move || {
                let mut seen = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let _guard = fixture.session.guard();
                    if let Ok(value) = fixture.find("foo") {
                        seen += 1;
                        assert!(
                            !fixture.manager.freed.lock().unwrap().contains(&value),
                            "{value} was freed under the guard"
                        );
                    }
                }
                seen
            })
        })
        .collect();
    let rounds = sized(3_000, 3);
    let end = jittison_test_tools::SetOnDrop(&stop);
    for round in 0..rounds {
        let tracker = fixture.tracker();
        tracker.define(Unit::recording(&["foo"], &fixture.manager, round)).unwrap();
        fixture.find("foo").unwrap();
        tracker.remove().unwrap();
    }
    drop(end);
    let seen: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    assert!(seen > 0);
    assert_eq!(fixture.session.pending_removals().len(), 0);
    assert_eq!(fixture.manager.freed.lock().unwrap().len() as u64, rounds);
}

/// Runs its function when the thread-locals of its thread are destroyed.
#[derive(Default)]
struct AtThreadEnd(std::cell::RefCell<Option<Box<dyn FnOnce()>>>);

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        if let Some(body) = self.0.take() {
            body();
        }
    }
}

thread_local! {
    static AT_THREAD_END: AtThreadEnd = AtThreadEnd::default();
}

/// A thread that ends, and runs a function after its guard records are destroyed.
struct Ending(JoinHandle<()>, Receiver<thread::Result<()>>);

impl Ending {
    /// `early` runs first and enters at least one guard. Its value is passed to `late`.
    fn start<T: 'static>(early: impl FnOnce() -> T + Send + 'static, late: impl FnOnce(T) + Send + 'static) -> Ending {
        let (send, receive) = channel();
        let thread = thread::spawn(move || {
            let value = std::rc::Rc::new(std::cell::Cell::new(None));
            let early_value = value.clone();
            // A panic in a destructor would abort the process.
            let body = move || {
                let late = move || late(value.take().expect("`early` has set it"));
                let _ = send.send(std::panic::catch_unwind(std::panic::AssertUnwindSafe(late)));
            };
            // Registered before the thread-locals of the crate, and so destroyed after them.
            AT_THREAD_END.with(|end| *end.0.borrow_mut() = Some(Box::new(body)));
            early_value.set(Some(early()));
        });
        Ending(thread, receive)
    }

    /// `early` enters a guard of `session`, and `late` gets the session.
    fn in_session(session: &ExecutionSession, late: impl FnOnce(&ExecutionSession) + Send + 'static) -> Ending {
        let (early, late_session) = (session.clone(), session.clone());
        Ending::start(move || drop(early.guard()), move |()| late(&late_session))
    }

    fn join(self) {
        self.0.join().unwrap();
        if let Err(panic) = self.1.recv().unwrap() {
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn a_guard_refreshed_at_thread_exit_does_not_share_a_record() {
    let fixture = Fixture::new();
    let (refreshed, is_refreshed) = channel();
    let (leave, is_leaving): (_, Receiver<()>) = channel();
    let ending = Ending::in_session(&fixture.session, move |session| {
        let mut guard = session.guard();
        guard.refresh();
        refreshed.send(()).unwrap();
        is_leaving.recv().unwrap();
        guard.refresh();
        drop(guard);
    });
    is_refreshed.recv().unwrap();
    let other = Inside::enter(&fixture.session, "other");
    let removal = fixture.loaded("foo", 7).remove().unwrap();
    assert_eq!(removal.guards().len(), 2, "{:?}", removal.guards());
    leave.send(()).unwrap();
    ending.join();
    assert!(!removal.is_complete());
    let [remaining] = &removal.guards()[..] else { panic!("{:?}", removal.guards()) };
    assert!(remaining.thread.contains("`other`"), "{remaining}");
    other.leave();
    assert!(removal.is_complete());
}

#[test]
fn code_found_under_a_guard_stays_although_the_guard_is_refreshed_at_thread_exit() {
    // The freed resources are recorded. A resource that a guard has found must not be among them.
    let fixture = Fixture::new();
    for round in 0..sized(300, 3) {
        let tracker = fixture.loaded("foo", round);
        let start = Arc::new(std::sync::Barrier::new(3));
        let reader = |fixture: &Fixture| {
            let (main, manager, start) = (fixture.main.clone(), fixture.manager.clone(), start.clone());
            move |session: &ExecutionSession| {
                start.wait();
                let mut guard = session.guard();
                for _ in 0..20 {
                    guard.refresh();
                    let request = [SymbolRequest::required("foo")];
                    if main.lookup(&request, RequiredState::Ready).is_ok() {
                        assert!(!manager.freed.lock().unwrap().contains(&round), "freed under a guard");
                    }
                }
            }
        };
        let late = Ending::in_session(&fixture.session, reader(&fixture));
        let (session, read) = (fixture.session.clone(), reader(&fixture));
        let early = thread::spawn(move || read(&session));
        start.wait();
        let removal = tracker.remove().unwrap();
        late.join();
        early.join().unwrap();
        assert!(removal.is_complete(), "{:?}", removal.obstacles());
        assert_eq!(fixture.manager.take_freed(), [round]);
    }
}

#[test]
fn nested_guards_and_guards_of_two_sessions_work_at_thread_exit() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let (first, second) = (fixture.loaded("foo", 1), other.loaded("foo", 2));
    let second_session = other.session.clone();
    Ending::in_session(&fixture.session, move |session| {
        let outer = session.guard();
        let of_other = second_session.guard();
        let mut inner = session.guard();
        let (first, second) = (first.remove().unwrap(), second.remove().unwrap());
        inner.refresh();
        drop(inner);
        assert!(!first.is_complete() && !second.is_complete());
        drop(outer);
        assert!(first.is_complete() && !second.is_complete());
        drop(of_other);
        assert!(second.is_complete());
    })
    .join();
    for fixture in [&fixture, &other] {
        assert!(fixture.loaded("bar", 3).remove().unwrap().is_complete());
    }
}

#[test]
fn guards_that_outlive_their_threads_record_hold_until_the_last_is_dropped() {
    let fixture = Fixture::new();
    // Leaked, so that a thread-local can hold a guard.
    let session: &'static ExecutionSession = Box::leak(Box::new(fixture.session.clone()));
    for round in 0..50 {
        let tracker = fixture.loaded("foo", round);
        let late = move |mut guards: [Option<Guard<'static>>; 2]| {
            let removal = tracker.remove().unwrap();
            assert_eq!(removal.guards().len(), 1, "two guards of one thread are one record");
            guards[1] = None;
            assert!(!removal.is_complete());
            guards[0].as_mut().unwrap().refresh();
            assert!(removal.is_complete());
        };
        Ending::start(move || [Some(session.guard()), Some(session.guard())], late).join();
        assert!(fixture.loaded("bar", round).remove().unwrap().is_complete());
    }
}

#[test]
fn a_guard_leaked_at_thread_exit_defers_removals_and_other_guards_still_work() {
    let fixture = Fixture::new();
    Ending::in_session(&fixture.session, |session| {
        let mut guard = session.guard();
        guard.refresh();
        std::mem::forget(guard);
    })
    .join();
    let removal = fixture.loaded("foo", 7).remove().unwrap();
    drop(fixture.session.guard());
    assert!(!removal.is_complete());
    assert_eq!(removal.guards().len(), 1);
}
