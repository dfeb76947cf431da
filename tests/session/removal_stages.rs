//! Removal at every stage of a materialisation (ORC loses track in four of these), with and without a waiting query.

use jittison::session::*;

use crate::support::*;

/// How far the unit `foo` of the tracker has come when the tracker is removed.
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

struct Progress {
    world: World,
    tracker: ResourceTracker,
    responsibility: Option<MaterializationResponsibility>,
    /// Somebody else's symbol, for `foo` to wait for.
    base: MaterializationResponsibility,
}

/// Brings `foo`, with a resource 7, to `stage`.
fn progress_to(stage: Stage) -> (Progress, Option<Answer>) {
    let world = World::new();
    let (base_unit, held_base) = Unit::held(&["base"]);
    world.main.define(base_unit).unwrap();
    let base_link = world.ask(&["base"], RequiredState::Resolved);
    let base = held_base.take();
    base.notify_resolved(|_| Some(address(2))).unwrap();
    let base_reference = base_link.results()[0].symbol.clone().unwrap();

    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo"]);
    tracker.define(unit).unwrap();
    let mut progress = Progress { world, tracker, responsibility: None, base };
    if stage == Stage::NeverSearched {
        return (progress, None);
    }
    let answer = progress.world.ask(&["foo"], RequiredState::Ready);
    let r = held.take();
    if stage >= Stage::Recorded {
        r.with_resource_key(|key| progress.world.books.ledger.record(key, 7)).unwrap();
    }
    if stage >= Stage::Resolved {
        r.notify_resolved(|_| Some(address(1))).unwrap();
    }
    match stage {
        Stage::EmittedAndWaiting => r.notify_emitted(vec![base_reference]).unwrap(),
        Stage::Ready => r.notify_emitted(Vec::new()).unwrap(),
        _ => progress.responsibility = Some(r),
    }
    (progress, Some(answer))
}

#[test]
fn removal_at_any_stage_completes_and_leaves_nothing() {
    for stage in STAGES {
        let (progress, answer) = progress_to(stage);
        let removal = progress.tracker.remove().unwrap();
        assert!(removal.is_complete(), "{stage:?}");
        let expected: &[u64] = if stage >= Stage::Recorded { &[7] } else { &[] };
        assert_eq!(progress.world.books.take_given_back(), expected, "{stage:?}");
        assert_eq!(progress.world.books.ledger.key_count(), 0, "{stage:?}");
        assert_not_found(progress.world.find("foo"));
        match answer {
            Some(answer) if stage == Stage::Ready => assert_eq!(answer.addresses(), [1]),
            Some(answer) => assert_eq!(failed_symbols(&answer.error()), ["foo"], "{stage:?}"),
            None => {}
        }
    }
}

#[test]
fn after_removal_at_any_stage_the_name_can_be_defined_and_used_again() {
    for stage in STAGES {
        let (progress, _) = progress_to(stage);
        progress.tracker.remove().unwrap();
        let again = progress.world.loaded("foo", 8);
        // What is left of the first definition must not touch the second.
        drop(progress.responsibility);
        drop(progress.base);
        assert_eq!(progress.world.find("foo").unwrap(), 8, "{stage:?}");
        again.remove().unwrap();
        assert_eq!(progress.world.main.symbol_count(), 0, "{stage:?}");
    }
}

#[test]
fn work_whose_tracker_was_removed_learns_of_it_at_its_next_step_whatever_that_is() {
    let steps: [fn(MaterializationResponsibility); 6] = [
        |r| assert_tracker_defunct(r.with_resource_key(|_| panic!("the body must not run"))),
        |r| assert_tracker_defunct(r.notify_resolved(|_| Some(address(1)))),
        |r| assert_tracker_defunct(r.notify_emitted(Vec::new())),
        |mut r| assert_tracker_defunct(r.define_materializing(&[("bar".into(), EXPORTED)])),
        |r| r.fail(jittison::error::Error::other("late")),
        drop,
    ];
    for stage in [Stage::Running, Stage::Recorded, Stage::Resolved] {
        for step in steps {
            let (mut progress, answer) = progress_to(stage);
            progress.tracker.remove().unwrap();
            step(progress.responsibility.take().expect("the work is not done"));
            assert_eq!(failed_symbols(&answer.unwrap().error()), ["foo"]);
            assert_eq!(progress.world.main.symbol_count(), 1, "only `base` is left");
        }
    }
}

#[test]
fn a_unit_that_removes_its_own_tracker_is_safe_before_and_after_each_step() {
    for stage in [Stage::Running, Stage::Recorded, Stage::Resolved] {
        let world = World::new();
        let tracker = world.tracker();
        let (books, own) = (world.books.clone(), tracker.clone());
        let unit = Unit::exported(&["foo"], move |r| {
            if stage >= Stage::Recorded {
                r.with_resource_key(|key| books.ledger.record(key, 7)).unwrap();
            }
            if stage >= Stage::Resolved {
                r.notify_resolved(|_| Some(address(1))).unwrap();
            }
            assert!(own.remove().unwrap().is_complete());
            assert_tracker_defunct(r.notify_emitted(Vec::new()));
        });
        tracker.define(unit).unwrap();
        assert_eq!(failed_symbols(&world.find("foo").unwrap_err()), ["foo"]);
        assert_eq!(world.books.ledger.key_count(), 0);
        assert_eq!(world.main.symbol_count(), 0);
    }
}

#[test]
fn a_unit_that_is_queued_but_not_running_is_told_by_its_first_step() {
    // `bar`'s unit is queued on this thread behind `foo`'s, which removes `bar`'s tracker.
    let world = World::new();
    let tracker = world.tracker();
    let victim = tracker.clone();
    world
        .main
        .define(Unit::exported(&["foo"], move |r| {
            victim.remove().unwrap();
            finish(r, 1);
        }))
        .unwrap();
    tracker.define(Unit::exported(&["bar"], |r| assert_tracker_defunct(r.with_resource_key(|_| ())))).unwrap();
    let answer = world.ask(&["foo", "bar"], RequiredState::Ready);
    assert_eq!(failed_symbols(&answer.error()), ["bar"]);
    assert_eq!(world.find("foo").unwrap(), 1);
}

#[test]
fn the_waiting_query_is_told_before_the_managers_are() {
    let world = World::new();
    let tracker = world.tracker();
    let (unit, _held) = Unit::held(&["foo"]);
    tracker.define(unit).unwrap();
    let log = world.log.clone();
    let order = [(world.main.clone(), Visibility::All)];
    let requests = [SymbolRequest::required("foo")];
    world.session.lookup_then(&order, &requests, RequiredState::Ready, move |outcome| {
        assert!(outcome.is_err());
        log.push("query told");
    });
    tracker.remove().unwrap();
    assert_eq!(world.log.take(), ["query told", "books removes []"]);
}

#[test]
fn removing_on_one_thread_while_another_materialises_has_two_outcomes_only() {
    for round in 0..200 {
        let world = World::new();
        let tracker = world.tracker();
        tracker
            .define(Unit::exported(&["foo"], {
                let books = world.books.clone();
                move |r| {
                    // Refused: the resource stays here, and goes nowhere.
                    let _ = r.with_resource_key(|key| books.ledger.record(key, round));
                    let _ = r.notify_resolved(|_| Some(address(1)));
                    let _ = r.notify_emitted(Vec::new());
                }
            }))
            .unwrap();
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let remover = scope.spawn(|| {
                start.wait();
                tracker.remove().unwrap().wait().unwrap();
            });
            start.wait();
            let _ = world.find("foo");
            remover.join().unwrap();
        });
        assert_eq!(world.books.ledger.key_count(), 0, "nothing stands under a dead key");
        assert!(matches!(world.books.take_given_back()[..], [] | [_]));
        assert_not_found(world.find("foo"));
    }
}
