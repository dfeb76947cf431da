//! Removal at every stage of a materialisation (ORC fails in four of them): with and without a waiting query, by the thread
//! that materialises and by another thread, in turn and at the same time.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;

use jittison::error::Error;
use jittison::session::*;

use crate::support::*;

/// The stage of the unit `foo` when its tracker is removed. Queued units that do not run yet have separate tests below.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
enum Stage {
    NeverSearched,
    Running,
    Recorded,
    Resolved,
    EmittedAndWaiting,
    Ready,
}

const STAGES: [Stage; 6] =
    [Stage::NeverSearched, Stage::Running, Stage::Recorded, Stage::Resolved, Stage::EmittedAndWaiting, Stage::Ready];

/// Whether a query waits for `foo`.
const QUERIED: [bool; 2] = [true, false];

struct Progress {
    fixture: Fixture,
    tracker: ResourceTracker,
    unit: HeldResponsibility,
    responsibility: Option<MaterializationResponsibility>,
    /// The work of another symbol, which `foo` can wait for.
    base: Option<MaterializationResponsibility>,
    base_reference: SymbolRef,
    answer: Option<Answer>,
}

/// Brings `foo`, which has resource 7, to `stage`.
fn progress_to(stage: Stage, is_queried: bool) -> Progress {
    let fixture = Fixture::new();
    let (base, base_link) = fixture.claim(&["base"], RequiredState::Resolved);
    base.notify_resolved(|_| Some(address(2))).unwrap();
    let base_reference = base_link.results()[0].symbol.clone().unwrap();

    let tracker = fixture.tracker();
    let unit = define_held_under(&tracker, &["foo"]);
    let mut progress =
        Progress { fixture, tracker, unit, responsibility: None, base: Some(base), base_reference, answer: None };
    if stage > Stage::NeverSearched {
        progress.start_foo(is_queried);
        progress.responsibility = Some(progress.unit.take());
    }
    // `EmittedAndWaiting` and `Ready` exclude each other.
    for step in [Stage::Recorded, Stage::Resolved].into_iter().filter(|step| *step < stage).chain([stage]) {
        progress.step_to(step).expect("the tracker is live");
    }
    progress
}

impl Progress {
    /// Starts `foo` by a query that waits for it, or by one that has already failed.
    fn start_foo(&mut self, is_queried: bool) {
        if is_queried {
            self.answer = Some(self.fixture.look_up(&["foo"], RequiredState::Ready));
            return;
        }
        self.fixture.main.define(Unit::exported(&["bad"], |r| r.fail(Error::other("bad")))).unwrap();
        assert_eq!(failed_symbols(&self.fixture.look_up(&["bad", "foo"], RequiredState::Ready).error()), ["bad"]);
    }

    /// Does the step that leads to a stage from the one before. The first two stages need no step.
    fn step_to(&mut self, stage: Stage) -> Result<(), Error> {
        let Some(r) = &self.responsibility else { return Ok(()) };
        match stage {
            Stage::NeverSearched | Stage::Running => Ok(()),
            Stage::Recorded => r.with_resource_key(|key| self.fixture.manager.ledger.record(key, 7)),
            Stage::Resolved => r.notify_resolved(|_| Some(address(1))),
            Stage::EmittedAndWaiting => self.emit(vec![self.base_reference.clone()]),
            Stage::Ready => self.emit(Vec::new()),
        }
    }

    fn emit(&mut self, dependencies: Vec<SymbolRef>) -> Result<(), Error> {
        self.responsibility.take().expect("there is work").notify_emitted(dependencies)
    }

    /// Continues from `stage` until `foo` is ready or a step is refused. Returns whether the resource was recorded.
    fn finish_from(&mut self, stage: Stage, is_queried: bool) -> bool {
        if stage == Stage::NeverSearched {
            self.answer = is_queried.then(|| self.fixture.look_up(&["foo"], RequiredState::Ready));
            self.responsibility = self.unit.try_take();
        }
        let mut is_recorded = stage >= Stage::Recorded;
        if !is_recorded && self.responsibility.is_some() {
            is_recorded = self.step_to(Stage::Recorded).is_ok();
        }
        if stage < Stage::Resolved {
            let _ = self.step_to(Stage::Resolved);
        }
        let _ = self.step_to(Stage::EmittedAndWaiting);
        self.base.take().expect("not emitted yet").notify_emitted(Vec::new()).unwrap();
        is_recorded
    }
}

/// Removes the tracker, on this thread or on another.
fn remove(tracker: &ResourceTracker, on_another_thread: bool) -> Removal {
    match on_another_thread {
        true => thread::scope(|scope| scope.spawn(|| tracker.remove().unwrap()).join().unwrap()),
        false => tracker.remove().unwrap(),
    }
}

#[test]
fn removal_at_any_stage_completes_and_leaves_nothing() {
    for (stage, is_queried, on_another_thread) in cases() {
        let case = format!("{stage:?}, queried: {is_queried}, on another thread: {on_another_thread}");
        let progress = progress_to(stage, is_queried);
        let removal = remove(&progress.tracker, on_another_thread);
        assert!(removal.is_complete(), "{case}");
        let expected: &[u64] = if stage >= Stage::Recorded { &[7] } else { &[] };
        assert_eq!(progress.fixture.manager.take_freed(), expected, "{case}");
        assert_eq!(progress.fixture.manager.ledger.key_count(), 0, "{case}");
        assert_eq!(progress.fixture.main.symbol_count(), 1, "{case}: only `base` remains");
        assert_not_found(progress.fixture.find("foo"));
        match progress.answer {
            Some(answer) if stage == Stage::Ready => assert_eq!(answer.addresses(), [1]),
            Some(answer) => assert_eq!(failed_symbols(&answer.error()), ["foo"], "{case}"),
            None => {}
        }
    }
}

fn cases() -> impl Iterator<Item = (Stage, bool, bool)> {
    let threads = |stage, is_queried| [false, true].map(|other| (stage, is_queried, other));
    STAGES.into_iter().flat_map(move |stage| QUERIED.into_iter().flat_map(move |queried| threads(stage, queried)))
}

#[test]
fn after_removal_at_any_stage_the_name_can_be_defined_and_used_again() {
    for (stage, is_queried, on_another_thread) in cases() {
        let progress = progress_to(stage, is_queried);
        remove(&progress.tracker, on_another_thread);
        let again = progress.fixture.loaded("foo", 8);
        // The work of the first definition must not affect the second.
        drop(progress.responsibility);
        drop(progress.base);
        assert_eq!(progress.fixture.find("foo").unwrap(), 8, "{stage:?}");
        again.remove().unwrap();
        assert_eq!(progress.fixture.main.symbol_count(), 0, "{stage:?}");
    }
}

#[test]
fn removal_that_races_with_the_work_from_any_stage_loses_nothing() {
    const ROUNDS: u64 = sized(100, 2);
    for stage in &STAGES[..5] {
        for is_queried in QUERIED {
            for _ in 0..ROUNDS {
                race(*stage, is_queried);
            }
        }
    }
}

/// The work continues from `stage` while another thread removes its tracker.
fn race(stage: Stage, is_queried: bool) {
    let mut progress = progress_to(stage, is_queried);
    let (tracker, manager) = (progress.tracker.clone(), progress.fixture.manager.clone());
    let start = Barrier::new(2);
    let is_recorded = thread::scope(|scope| {
        let remover = scope.spawn(|| {
            start.wait();
            assert!(tracker.remove().unwrap().is_complete());
        });
        start.wait();
        let is_recorded = progress.finish_from(stage, is_queried);
        remover.join().unwrap();
        is_recorded
    });
    let expected: &[u64] = if is_recorded { &[7] } else { &[] };
    assert_eq!(manager.take_freed(), expected, "{stage:?}: freed once if it was recorded");
    assert_eq!(manager.ledger.key_count(), 0, "{stage:?}: a resource stays under a dead key");
    assert_eq!(progress.fixture.main.symbol_count(), 1, "{stage:?}: only `base` remains");
    if let Some(answer) = &progress.answer {
        assert!(!answer.is_pending(), "{stage:?}");
        match answer.outcome() {
            Ok(found) => assert_eq!(found[0].address, address(1), "{stage:?}"),
            Err(error) => assert!(error.to_string().contains("`foo`"), "{stage:?}: {error}"),
        }
    }
    assert_not_found(progress.fixture.find("foo"));
}

#[test]
fn a_unit_queued_for_a_worker_can_be_removed_by_any_thread() {
    for (is_queried, on_another_thread) in [(true, false), (true, true), (false, false), (false, true)] {
        let options = SessionOptions { worker_threads: 1, ..SessionOptions::default() };
        let session = ExecutionSession::with_options(options);
        let main = session.create_dylib("main").unwrap();
        let tracker = main.create_tracker().unwrap();
        let ((started, is_started), (release, is_released)) = (channel(), channel());
        // Occupies the only worker. Its outcome decides whether the query still waits for `foo`.
        let plug = Unit::exported(&["plug"], move |r| {
            if is_queried {
                finish(r, 1)
            } else {
                r.fail(Error::other("plug"))
            }
            started.send(()).unwrap();
            is_released.recv().unwrap();
        });
        main.define(plug).unwrap();
        let (send, receive) = channel();
        tracker.define(Unit::exported(&["foo"], move |r| send.send(r).unwrap())).unwrap();
        let answer = Answer::of(&session, &main, &["plug", "foo"], RequiredState::Ready);
        is_started.recv().unwrap();
        assert_eq!(main.symbol_state("foo"), Some(SymbolState::Materializing));

        assert!(remove(&tracker, on_another_thread).is_complete());

        assert_eq!(answer.is_pending(), !is_queried, "the removal answers it, or the failed unit has answered it");
        assert_eq!(main.symbol_flags("foo"), None);
        release.send(()).unwrap();
        let r = receive.recv().expect("the unit still runs");
        assert_eq!(failed_symbols(&answer.error()), [if is_queried { "foo" } else { "plug" }]);
        assert_tracker_defunct(r.with_resource_key(|_| panic!("the body must not run")));
        assert_tracker_defunct(r.notify_resolved(|_| Some(address(1))));
    }
}

#[test]
fn work_whose_tracker_was_removed_is_refused_at_its_next_step() {
    let steps: [fn(MaterializationResponsibility); 6] = [
        |r| assert_tracker_defunct(r.with_resource_key(|_| panic!("the body must not run"))),
        |r| assert_tracker_defunct(r.notify_resolved(|_| Some(address(1)))),
        |r| assert_tracker_defunct(r.notify_emitted(Vec::new())),
        |mut r| assert_tracker_defunct(r.define_materializing(&[("bar".into(), EXPORTED)])),
        |r| r.fail(Error::other("late")),
        drop,
    ];
    for stage in [Stage::Running, Stage::Recorded, Stage::Resolved] {
        for step in steps {
            for is_queried in QUERIED {
                let mut progress = progress_to(stage, is_queried);
                progress.tracker.remove().unwrap();
                step(progress.responsibility.take().expect("the work is in progress"));
                let failed = progress.answer.map(|answer| failed_symbols(&answer.error()));
                assert_eq!(failed, is_queried.then(|| vec!["foo".to_string()]));
                assert_eq!(progress.fixture.main.symbol_count(), 1, "only `base` remains");
            }
        }
    }
}

#[test]
fn a_unit_that_removes_its_own_tracker_is_safe_before_and_after_each_step() {
    for stage in [Stage::Running, Stage::Recorded, Stage::Resolved] {
        let fixture = Fixture::new();
        let tracker = fixture.tracker();
        let (manager, own) = (fixture.manager.clone(), tracker.clone());
        let unit = Unit::exported(&["foo"], move |r| {
            if stage >= Stage::Recorded {
                r.with_resource_key(|key| manager.ledger.record(key, 7)).unwrap();
            }
            if stage >= Stage::Resolved {
                r.notify_resolved(|_| Some(address(1))).unwrap();
            }
            assert!(own.remove().unwrap().is_complete());
            assert_tracker_defunct(r.notify_emitted(Vec::new()));
        });
        tracker.define(unit).unwrap();
        assert_eq!(failed_symbols(&fixture.find("foo").unwrap_err()), ["foo"]);
        assert_eq!(fixture.manager.ledger.key_count(), 0);
        assert_eq!(fixture.main.symbol_count(), 0);
    }
}

#[test]
fn a_queued_unit_whose_tracker_was_removed_is_refused_at_its_first_step() {
    // The unit of `bar` is queued on this thread behind the unit of `foo`, which removes the tracker of `bar`.
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let victim = tracker.clone();
    fixture
        .main
        .define(Unit::exported(&["foo"], move |r| {
            victim.remove().unwrap();
            finish(r, 1);
        }))
        .unwrap();
    tracker.define(Unit::exported(&["bar"], |r| assert_tracker_defunct(r.with_resource_key(|_| ())))).unwrap();
    let answer = fixture.look_up(&["foo", "bar"], RequiredState::Ready);
    assert_eq!(failed_symbols(&answer.error()), ["bar"]);
    assert_eq!(fixture.find("foo").unwrap(), 1);
}

#[test]
fn the_waiting_query_is_answered_before_the_managers_are_called() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let _held = define_held_under(&tracker, &["foo"]);
    let log = fixture.log.clone();
    let order = [(fixture.main.clone(), Visibility::All)];
    let requests = [SymbolRequest::required("foo")];
    fixture.session.lookup_then(&order, &requests, RequiredState::Ready, move |outcome| {
        assert!(outcome.is_err());
        log.push("query answered");
    });
    tracker.remove().unwrap();
    assert_eq!(fixture.log.take(), ["query answered", "manager removes []"]);
}

#[test]
fn removing_while_another_thread_materialises_has_only_two_outcomes() {
    for round in 0..sized(200, 4) {
        let fixture = Fixture::new();
        let tracker = fixture.tracker();
        tracker
            .define(Unit::exported(&["foo"], {
                let manager = fixture.manager.clone();
                move |r| {
                    // If it is refused, the resource stays with the unit.
                    let _ = r.with_resource_key(|key| manager.ledger.record(key, round));
                    let _ = r.notify_resolved(|_| Some(address(1)));
                    let _ = r.notify_emitted(Vec::new());
                }
            }))
            .unwrap();
        let start = Barrier::new(2);
        thread::scope(|scope| {
            let remover = scope.spawn(|| {
                start.wait();
                tracker.remove().unwrap().wait().unwrap();
            });
            start.wait();
            let _ = fixture.find("foo");
            remover.join().unwrap();
        });
        assert_eq!(fixture.manager.ledger.key_count(), 0, "a resource stays under a dead key");
        assert!(matches!(fixture.manager.take_freed()[..], [] | [_]));
        assert_not_found(fixture.find("foo"));
    }
}
