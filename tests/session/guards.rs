//! Guards: what a thread finds under one stays until it is left, whoever removes it; nothing else waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use jittison::session::*;

use crate::support::*;

/// A thread that is inside a guard until it is told to leave.
struct Inside {
    leave: Sender<()>,
    thread: JoinHandle<()>,
}

impl Inside {
    fn enter(session: &ExecutionSession, name: &str) -> Inside {
        let (leave, told): (_, Receiver<()>) = channel();
        let (entered, is_entered) = channel();
        let session = session.clone();
        let body = move || {
            let guard = session.guard();
            entered.send(()).unwrap();
            told.recv().unwrap();
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
fn what_is_removed_while_a_guard_is_entered_goes_when_that_is_left() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let guard = world.session.guard();
    let removal = tracker.remove().unwrap();
    assert_not_found(world.find("foo"));
    assert_eq!((removal.is_complete(), removal.blockers()), (false, (0, 0)));
    assert_eq!(world.log.take(), [""; 0]);
    drop(guard);
    assert!(removal.is_complete());
    assert_eq!(world.log.take(), ["books removes [7]"]);
}

#[test]
fn a_guard_that_is_entered_after_a_removal_does_not_hold_it() {
    let world = World::new();
    let (first, second) = (world.loaded("foo", 1), world.loaded("bar", 2));
    let inside = Inside::enter(&world.session, "early");
    let held = first.remove().unwrap();
    let late = world.session.guard();
    inside.leave();
    assert!(held.is_complete(), "only the early guard was in the way");
    let held = second.remove().unwrap();
    assert!(!held.is_complete());
    drop(late);
    assert!(held.is_complete());
}

#[test]
fn guards_of_several_threads_hold_until_the_last_is_left_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let world = World::new();
        let tracker = world.loaded("foo", 7);
        let mut inside: Vec<_> = ["a", "b", "c"].iter().map(|name| Some(Inside::enter(&world.session, name))).collect();
        let removal = tracker.remove().unwrap();
        assert_eq!(removal.guards().len(), 3);
        for (left, thread) in order.into_iter().enumerate() {
            assert!(!removal.is_complete());
            assert!(removal.guards().len() >= 3 - left);
            inside[thread].take().unwrap().leave();
        }
        assert!(removal.is_complete());
        assert_eq!(world.books.take_given_back(), [7]);
    }
}

#[test]
fn a_guard_inside_a_guard_is_part_of_it() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let outer = world.session.guard();
    let mut inner = world.session.guard();
    let removal = tracker.remove().unwrap();
    inner.refresh();
    drop(inner);
    assert!(!removal.is_complete());
    drop(outer);
    assert!(removal.is_complete());
}

#[test]
fn guards_may_be_left_in_any_order() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let first = world.session.guard();
    let second = world.session.guard();
    drop(first);
    let removal = tracker.remove().unwrap();
    assert!(!removal.is_complete());
    drop(second);
    assert!(removal.is_complete());
}

#[test]
fn a_refreshed_guard_lets_go_of_what_was_removed_before() {
    let world = World::new();
    let (first, second) = (world.loaded("foo", 1), world.loaded("bar", 2));
    let mut guard = world.session.guard();
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
    let (world, other) = (World::new(), World::new());
    let tracker = world.loaded("foo", 7);
    let guard = other.session.guard();
    assert!(guard.is_of(&other.session) && !guard.is_of(&world.session));
    assert!(tracker.remove().unwrap().is_complete());
}

#[test]
fn a_ticket_says_which_threads_guards_are_in_the_way_and_since_when() {
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let inside = Inside::enter(&world.session, "slow-query");
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
fn a_session_says_what_is_removed_and_not_given_back_removed_dylibs_included() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let in_other = other.create_tracker().unwrap();
    in_other.define(Unit::recording(&["bar"], &world.books, 2)).unwrap();
    find_in(&world.session, &[&other], "bar").unwrap();
    let tracker = world.loaded("foo", 1);
    assert_eq!(world.session.pending_removals().len(), 0);
    let guard = world.session.guard();
    tracker.remove().unwrap();
    world.session.remove_dylib(&other).unwrap();
    let pending = world.session.pending_removals();
    let which: Vec<_> = pending.iter().map(|removal| (removal.dylib().name().to_string(), removal.key())).collect();
    assert_eq!(which, [("main".to_string(), tracker.key()), ("other".to_string(), in_other.key())]);
    drop(guard);
    assert_eq!(world.session.pending_removals().len(), 0);
}

#[test]
fn what_a_guard_holds_holds_what_its_code_refers_to() {
    let world = World::new();
    let base = world.loaded("base", 1);
    let user = world.linked("user", &["base"], 2);
    let of_base = base.remove().unwrap();
    let guard = world.session.guard();
    let of_user = user.remove().unwrap();
    assert!(!of_base.is_complete() && !of_user.is_complete());
    drop(guard);
    assert!(of_base.is_complete() && of_user.is_complete());
    assert_eq!(world.books.take_given_back(), [2, 1]);
}

#[test]
fn a_guard_and_a_handle_hold_until_both_are_gone_whichever_goes_first() {
    for is_guard_first in [true, false] {
        let world = World::new();
        let tracker = world.loaded("foo", 7);
        let (_, pin) = world.main.pin("foo").unwrap();
        let guard = world.session.guard();
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
        assert_eq!(world.books.take_given_back(), [7]);
    }
}

#[test]
fn a_ring_waits_for_a_guard_as_one_and_goes_as_one_batch() {
    let world = World::new();
    let (a, b) = (world.tracker(), world.tracker());
    a.define(Unit::depending("a", &["b"], &world.books, 1)).unwrap();
    b.define(Unit::depending("b", &["a"], &world.books, 2)).unwrap();
    world.find("a").unwrap();
    let of_a = a.remove().unwrap();
    let guard = world.session.guard();
    let of_b = b.remove().unwrap();
    assert!(!of_a.is_complete() && !of_b.is_complete());
    drop(guard);
    assert!(of_a.is_complete() && of_b.is_complete());
    assert_eq!(world.books.take_given_back(), [2, 1]);
}

#[test]
fn a_cleared_dylib_waits_for_a_guard_as_one_batch() {
    let world = World::new();
    let late = Books::new("late", &world.log);
    world.session.register_manager(late);
    let _trackers = [world.loaded("foo", 1), world.loaded("bar", 2)];
    let guard = world.session.guard();
    assert_eq!(world.main.clear().unwrap().len(), 2);
    assert_eq!(world.log.take(), [""; 0]);
    drop(guard);
    let told = world.log.take();
    assert_eq!(told, ["late removes []", "late removes []", "books removes [2]", "books removes [1]"]);
}

#[test]
fn under_the_explicit_policy_leaving_the_last_guard_only_queues() {
    let world = World::with_policy(ReclaimPolicy::Explicit);
    let tracker = world.loaded("foo", 7);
    let guard = world.session.guard();
    let removal = tracker.remove().unwrap();
    assert_eq!(world.session.reclaim(), 0);
    drop(guard);
    assert!(!removal.is_complete());
    let pending: Vec<_> = world.session.pending_removals().iter().map(Removal::key).collect();
    assert_eq!((pending, removal.obstacles()), (vec![tracker.key()], Vec::new()), "it waits for nobody but `reclaim`");
    assert_eq!(world.session.reclaim(), 1);
    assert!(removal.is_complete());
    assert_eq!(world.session.pending_removals().len(), 0);
}

#[test]
fn under_the_background_policy_a_thread_of_the_session_gives_back_what_was_held() {
    let world = World::with_policy(ReclaimPolicy::Background);
    for round in 0..20 {
        let tracker = world.loaded("foo", round);
        let guard = world.session.guard();
        let removal = tracker.remove().unwrap();
        let (tell, told) = channel();
        removal.on_complete(move |_| tell.send(thread::current().name().map(str::to_string)).unwrap());
        drop(guard);
        assert_eq!(told.recv().unwrap().as_deref(), Some("jittison-reclaim"));
        assert!(removal.wait_until(Instant::now() + Duration::from_secs(60)).unwrap());
        assert_eq!(world.books.take_given_back(), [round]);
    }
}

#[test]
fn under_the_background_policy_what_is_held_past_the_sessions_end_goes_with_the_guard_or_pin() {
    let world = World::with_policy(ReclaimPolicy::Background);
    let _first = world.loaded("foo", 1);
    let (_, pin) = world.main.pin("foo").unwrap();
    let _second = world.loaded("bar", 2);
    let guard = world.session.guard();
    world.session.end().unwrap();
    assert_eq!(world.books.take_given_back(), [0; 0]);
    drop(guard);
    assert_eq!(world.books.take_given_back(), [2]);
    drop(pin);
    assert_eq!(world.books.take_given_back(), [1]);
}

#[test]
fn a_thread_that_ends_leaves_its_post_to_the_next() {
    let world = World::new();
    for round in 0..sized(100, 5) {
        let inside = Inside::enter(&world.session, "short-lived");
        let removal = world.loaded("foo", round).remove().unwrap();
        assert_eq!(removal.guards().len(), 1);
        inside.leave();
        assert!(removal.is_complete());
    }
}

#[test]
fn sessions_that_come_and_go_leave_their_posts_to_the_next_and_old_ones_hold_nothing() {
    for round in 0..sized(200, 5) {
        let (first, second) = (World::new(), World::new());
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
fn a_forgotten_guard_of_a_session_that_is_no_more_harms_no_other() {
    for round in 0..sized(50, 2) {
        let world = World::new();
        std::mem::forget(world.session.guard());
        assert!(!world.loaded("foo", round).remove().unwrap().is_complete());
        drop(world);
        let world = World::new();
        let guard = world.session.guard();
        let removal = world.loaded("foo", round).remove().unwrap();
        assert_eq!(removal.guards().len(), 1);
        drop(guard);
        assert!(removal.is_complete());
    }
}

#[test]
fn a_guard_may_be_entered_while_a_thread_ends() {
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
        static KEPT: std::cell::RefCell<Vec<AtTheEnd>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let world = World::new();
    for is_kept_first in [true, false] {
        let (session, tracker, (tell, told)) = (world.session.clone(), world.loaded("foo", 7), channel());
        let body = move || {
            let keep =
                || KEPT.with(|kept| kept.borrow_mut().push(AtTheEnd(session.clone(), tracker.clone(), tell.clone())));
            // Dropped in the opposite order, by the C library.
            if is_kept_first {
                keep();
            }
            drop(session.guard());
            if !is_kept_first {
                keep();
            }
        };
        thread::spawn(body).join().unwrap();
        assert!(told.recv().unwrap());
    }
    assert_eq!(world.loaded("bar", 8).remove().unwrap().guards().len(), 0);
}

#[test]
fn a_forgotten_guard_holds_what_is_removed_and_harms_nobody() {
    let world = World::new();
    let session = world.session.clone();
    thread::spawn(move || std::mem::forget(session.guard())).join().unwrap();
    let removal = world.loaded("foo", 7).remove().unwrap();
    assert!(!removal.is_complete());
    // Another thread's guards work on.
    drop(world.session.guard());
    assert!(!removal.is_complete());
    assert_eq!(removal.guards().len(), 1);
    assert_eq!(world.session.pending_removals().len(), 1);
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
    let world = World::new();
    let tracker = world.loaded("foo", 7);
    let other = World::new();
    world.session.register_manager(Arc::new(Reenters(other.session.clone(), other.main.clone())));
    let guard = world.session.guard();
    let removal = tracker.remove().unwrap();
    let (session, is_called) = (world.session.clone(), Arc::new(AtomicBool::new(false)));
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
fn threads_that_come_and_go_inside_guards_never_see_what_was_given_back() {
    let world = Arc::new(World::new());
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (world, stop) = (world.clone(), stop.clone());
            thread::spawn(move || {
                let mut seen = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let _guard = world.session.guard();
                    if let Ok(value) = world.find("foo") {
                        seen += 1;
                        assert!(!world.books.given_back.lock().unwrap().contains(&value), "{value} was given back");
                    }
                }
                seen
            })
        })
        .collect();
    let rounds = sized(3_000, 3);
    for round in 0..rounds {
        let tracker = world.tracker();
        tracker.define(Unit::recording(&["foo"], &world.books, round)).unwrap();
        world.find("foo").unwrap();
        tracker.remove().unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let seen: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    assert!(seen > 0);
    assert_eq!(world.session.pending_removals().len(), 0);
    assert_eq!(world.books.given_back.lock().unwrap().len() as u64, rounds);
}

/// Runs what it was given when its thread's variables are destroyed.
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

/// A thread that ends, and does something after its own record of guards is gone.
struct Ending(JoinHandle<()>, Receiver<thread::Result<()>>);

impl Ending {
    /// `early` runs first, and enters a guard at least. Its value goes to `late`.
    fn start<T: 'static>(early: impl FnOnce() -> T + Send + 'static, late: impl FnOnce(T) + Send + 'static) -> Ending {
        let (tell, told) = channel();
        let thread = thread::spawn(move || {
            let value = std::rc::Rc::new(std::cell::Cell::new(None));
            let early_value = value.clone();
            // A panic in a destructor would abort the process.
            let body = move || {
                let late = move || late(value.take().expect("it was put there"));
                let _ = tell.send(std::panic::catch_unwind(std::panic::AssertUnwindSafe(late)));
            };
            // Registered ahead of the crate's own variables, so destroyed after them.
            AT_THREAD_END.with(|end| *end.0.borrow_mut() = Some(Box::new(body)));
            early_value.set(Some(early()));
        });
        Ending(thread, told)
    }

    /// Both in one session, of which `early` enters one guard.
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
fn a_guard_that_is_refreshed_while_its_thread_ends_is_no_other_threads() {
    let world = World::new();
    let (refreshed, is_refreshed) = channel();
    let (leave, told): (_, Receiver<()>) = channel();
    let ending = Ending::in_session(&world.session, move |session| {
        let mut guard = session.guard();
        guard.refresh();
        refreshed.send(()).unwrap();
        told.recv().unwrap();
        guard.refresh();
        drop(guard);
    });
    is_refreshed.recv().unwrap();
    let other = Inside::enter(&world.session, "other");
    let removal = world.loaded("foo", 7).remove().unwrap();
    assert_eq!(removal.guards().len(), 2, "{:?}", removal.guards());
    leave.send(()).unwrap();
    ending.join();
    assert!(!removal.is_complete());
    let [left] = &removal.guards()[..] else { panic!("{:?}", removal.guards()) };
    assert!(left.thread.contains("`other`"), "{left}");
    other.leave();
    assert!(removal.is_complete());
}

#[test]
fn what_a_guard_finds_stays_although_the_guard_is_refreshed_while_its_thread_ends() {
    // What is given back is counted; what a guard has found must not be among it.
    let world = World::new();
    for round in 0..sized(300, 3) {
        let tracker = world.loaded("foo", round);
        let start = Arc::new(std::sync::Barrier::new(3));
        let looks = |world: &World| {
            let (main, books, start) = (world.main.clone(), world.books.clone(), start.clone());
            move |session: &ExecutionSession| {
                start.wait();
                let mut guard = session.guard();
                for _ in 0..20 {
                    guard.refresh();
                    let request = [SymbolRequest::required("foo")];
                    if main.lookup(&request, RequiredState::Ready).is_ok() {
                        assert!(!books.given_back.lock().unwrap().contains(&round), "given back under a guard");
                    }
                }
            }
        };
        let late = Ending::in_session(&world.session, looks(&world));
        let (session, look) = (world.session.clone(), looks(&world));
        let early = thread::spawn(move || look(&session));
        start.wait();
        let removal = tracker.remove().unwrap();
        late.join();
        early.join().unwrap();
        assert!(removal.is_complete(), "{:?}", removal.obstacles());
        assert_eq!(world.books.take_given_back(), [round]);
    }
}

#[test]
fn guards_inside_each_other_and_of_two_sessions_work_while_their_thread_ends() {
    let (world, other) = (World::new(), World::new());
    let (first, second) = (world.loaded("foo", 1), other.loaded("foo", 2));
    let second_session = other.session.clone();
    Ending::in_session(&world.session, move |session| {
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
    for world in [&world, &other] {
        assert!(world.loaded("bar", 3).remove().unwrap().is_complete());
    }
}

#[test]
fn guards_that_outlive_their_threads_record_hold_until_the_last_is_left() {
    let world = World::new();
    // Leaked, so that a guard may stand in a variable of a thread.
    let session: &'static ExecutionSession = Box::leak(Box::new(world.session.clone()));
    for round in 0..50 {
        let tracker = world.loaded("foo", round);
        let late = move |mut guards: [Option<Guard<'static>>; 2]| {
            let removal = tracker.remove().unwrap();
            assert_eq!(removal.guards().len(), 1, "two guards of one thread are one");
            guards[1] = None;
            assert!(!removal.is_complete());
            guards[0].as_mut().unwrap().refresh();
            assert!(removal.is_complete());
        };
        Ending::start(move || [Some(session.guard()), Some(session.guard())], late).join();
        assert!(world.loaded("bar", round).remove().unwrap().is_complete());
    }
}

#[test]
fn a_guard_that_is_forgotten_while_its_thread_ends_holds_what_is_removed_and_harms_nobody() {
    let world = World::new();
    Ending::in_session(&world.session, |session| {
        let mut guard = session.guard();
        guard.refresh();
        std::mem::forget(guard);
    })
    .join();
    let removal = world.loaded("foo", 7).remove().unwrap();
    drop(world.session.guard());
    assert!(!removal.is_complete());
    assert_eq!(removal.guards().len(), 1);
}
