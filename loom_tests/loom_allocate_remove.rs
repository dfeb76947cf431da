//! Every interleaving of recording a resource, removing, transferring, pinning and forgetting a tracker.
//!
//! Checks `src/session/tracker_gate.rs` and `src/session/ledger.rs`, through the shipped public interface: a session
//! with one dylib, one manager that keeps a [`Ledger`], and the responsibility of a unit at work. Each model ends with
//! plain data (what was accepted, what was given back, what stands in the ledger) and asserts that it is one of the
//! allowed outcomes: a resource is recorded and given back exactly once, or refused and left with its maker; it is never
//! both, never lost, never under a dead key.
//!
//! Seeded bug: `--cfg mutant="record_outside_gate"` must make this file fail. Commands: `loom_tests/README.md`.

#![cfg(loom)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::Name;
use jittison::error::Result;
use jittison::session::*;
use loom::thread;

/// The manager: one resource, number 1, may pass through it.
#[derive(Default)]
struct Bank {
    ledger: Ledger<u32>,
    /// Not loom's: it is only read at the end, and one more lock would multiply the schedules.
    given_back: Mutex<Vec<u32>>,
}

impl ResourceManager for Bank {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        let taken = self.ledger.take(key);
        self.given_back.lock().unwrap().extend(taken);
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.ledger.transfer(destination, source);
    }
}

type Slot = Arc<Mutex<Option<MaterializationResponsibility>>>;

/// One symbol; hands its responsibility out.
struct Unit([(Name, SymbolFlags); 1], Slot);

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        "unit"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.0
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        *self.1.lock().unwrap() = Some(responsibility);
    }
}

/// What every model starts from: a tracker whose unit is at work.
struct Scene {
    session: ExecutionSession,
    main: JitDylib,
    bank: Arc<Bank>,
    tracker: ResourceTracker,
    responsibility: MaterializationResponsibility,
}

impl Scene {
    fn new() -> Scene {
        let session = ExecutionSession::new();
        let bank = Arc::new(Bank::default());
        session.register_manager(bank.clone());
        let main = session.create_dylib("main").unwrap();
        let tracker = main.create_tracker().unwrap();
        let slot = Slot::default();
        tracker.define(Unit([(Name::new("f"), SymbolFlags::EXPORTED)], slot.clone())).unwrap();
        let order = [(main.clone(), Visibility::All)];
        session.lookup_then(&order, &[SymbolRequest::required("f")], RequiredState::Ready, drop);
        let responsibility = slot.lock().unwrap().take().unwrap();
        Scene { session, main, bank, tracker, responsibility }
    }

    /// As `new`, with the resource recorded and the symbol ready. The spent responsibility is gone.
    fn loaded() -> (ExecutionSession, JitDylib, Arc<Bank>, ResourceTracker) {
        let Scene { session, main, bank, tracker, responsibility } = Scene::new();
        assert!(allocate(&responsibility, &bank));
        responsibility.notify_resolved(|_| Some(jittison::base::ExecutorAddr::new(1))).unwrap();
        responsibility.notify_emitted(Vec::new()).unwrap();
        (session, main, bank, tracker)
    }
}

/// What a linker does with the memory it has got: whether the session took it.
fn allocate(responsibility: &MaterializationResponsibility, bank: &Bank) -> bool {
    responsibility.with_resource_key(|key| bank.ledger.record(key, 1)).is_ok()
}

/// `(times given back, keys that still own something)`.
fn books(bank: &Bank) -> (usize, usize) {
    (bank.given_back.lock().unwrap().len(), bank.ledger.key_count())
}

/// Runs `model` under every schedule, or every one with `bound` preemptions (`LOOM_MAX_PREEMPTIONS` goes deeper).
fn explore(name: &str, bound: Option<usize>, at_least: usize, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound.map(|bound| builder.preemption_bound.unwrap_or(bound));
    builder.max_branches = 20_000;
    let counting = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    };
    // Only `loom::model` writes the trace that LOOM_LOG asks for; it takes its bounds from the environment.
    match std::env::var_os("LOOM_LOG") {
        Some(_) => loom::model(counting),
        None => builder.check(counting),
    }
    let executions = executions.load(Ordering::Relaxed);
    println!("{name}: executions: {executions}");
    assert!(executions >= at_least, "{name} explored {executions} schedules only, expected {at_least}");
}

// Each model drops everything before it asserts: a panic must not run destructors inside loom.

#[test]
fn allocate_versus_remove() {
    explore("allocate_versus_remove", None, 4, || {
        let Scene { session, main, bank, tracker, responsibility } = Scene::new();
        let remover = thread::spawn(move || tracker.remove().unwrap().is_complete());
        let accepted = allocate(&responsibility, &bank);
        let complete = remover.join().unwrap();
        let outcome = (accepted, books(&bank));
        drop((responsibility, main, session));
        assert!(complete);
        assert!(matches!(outcome, (true, (1, 0)) | (false, (0, 0))), "{outcome:?}");
    });
}

#[test]
fn allocate_versus_transfer() {
    explore("allocate_versus_transfer", None, 4, || {
        let Scene { session, main, bank, tracker, responsibility } = Scene::new();
        let destination = main.create_tracker().unwrap();
        let into = destination.clone();
        let transferrer = thread::spawn(move || {
            tracker.transfer_to(&into).unwrap();
            tracker.key()
        });
        let accepted = allocate(&responsibility, &bank);
        let dead_key = transferrer.join().unwrap();
        let under = [destination.key(), dead_key].map(|key| bank.ledger.inspect(key, |held| held.len()));
        let complete = destination.remove().unwrap().is_complete();
        let end = books(&bank);
        drop((responsibility, destination, main, session));
        assert!(accepted && complete);
        assert_eq!(under, [1, 0], "under the destination, not under the source");
        assert_eq!(end, (1, 0));
    });
}

#[test]
fn remove_versus_remove() {
    explore("remove_versus_remove", None, 2, || {
        let (session, main, bank, tracker) = Scene::loaded();
        let other = tracker.clone();
        let remover = thread::spawn(move || other.remove().unwrap());
        let here = tracker.remove().unwrap();
        here.wait().unwrap();
        let there = remover.join().unwrap();
        let outcome = (books(&bank), there.is_complete());
        drop((here, there, tracker, main, session));
        assert_eq!(outcome, ((1, 0), true));
    });
}

#[test]
fn remove_versus_transfer() {
    explore("remove_versus_transfer", None, 2, || {
        let (session, main, bank, tracker) = Scene::loaded();
        let destination = main.create_tracker().unwrap();
        let (source, into) = (tracker.clone(), destination.clone());
        let transferrer = thread::spawn(move || source.transfer_to(&into).is_ok());
        let removed = tracker.remove().is_ok();
        let transferred = transferrer.join().unwrap();
        let between = books(&bank);
        let heir_is_live = !destination.is_defunct();
        destination.remove().unwrap();
        let outcome = (removed, transferred, between, books(&bank));
        drop((tracker, destination, main, session));
        assert!(heir_is_live);
        let allowed = matches!(outcome, (true, false, (1, 0), (1, 0)) | (false, true, (0, 1), (1, 0)));
        assert!(allowed, "{outcome:?}");
    });
}

#[test]
fn allocate_versus_remove_versus_transfer() {
    explore("allocate_versus_remove_versus_transfer", Some(2), 20, || {
        let Scene { session, main, bank, tracker, responsibility } = Scene::new();
        let destination = main.create_tracker().unwrap();
        let (source, into) = (tracker.clone(), destination.clone());
        let transferrer = thread::spawn(move || source.transfer_to(&into).is_ok());
        let remover = thread::spawn(move || tracker.remove().is_ok());
        let accepted = allocate(&responsibility, &bank);
        let transferred = transferrer.join().unwrap();
        let removed = remover.join().unwrap();
        let between = books(&bank);
        destination.remove().unwrap();
        let end = books(&bank);
        drop((responsibility, destination, main, session));
        assert_ne!(removed, transferred, "exactly one of the two moves a tracker");
        let allowed = match (accepted, removed) {
            (true, true) => between == (1, 0) && end == (1, 0),
            (true, false) => between == (0, 1) && end == (1, 0),
            (false, true) => between == (0, 0) && end == (0, 0),
            // Nothing was removed, so nothing may be refused.
            (false, false) => false,
        };
        assert!(allowed, "accepted {accepted}, removed {removed}: {between:?}, then {end:?}");
    });
}

#[test]
fn dropping_the_last_pin_versus_remove() {
    explore("dropping_the_last_pin_versus_remove", None, 2, || {
        let (session, main, bank, tracker) = Scene::loaded();
        let (_, pin) = main.pin("f").unwrap();
        let holder = thread::spawn(move || drop(pin));
        let removal = tracker.remove().unwrap();
        removal.wait().unwrap();
        holder.join().unwrap();
        let end = books(&bank);
        drop((removal, tracker, main, session));
        assert_eq!(end, (1, 0), "one of the two gives it back, and only one");
    });
}

#[test]
fn forgetting_versus_removing_the_default_tracker() {
    explore("forgetting_versus_removing_the_default_tracker", None, 4, || {
        let (session, main, bank, tracker) = Scene::loaded();
        let default = main.default_tracker().unwrap();
        let key = tracker.key();
        let forgetter = thread::spawn(move || drop(tracker));
        default.remove().unwrap();
        forgetter.join().unwrap();
        let (given_back, kept) = books(&bank);
        let under_dead = bank.ledger.inspect(key, |held| held.len());
        main.default_tracker().unwrap().remove().unwrap();
        let end = books(&bank);
        drop((default, main, session));
        assert_eq!((given_back + kept, under_dead), (1, 0), "nobody could remove what a handleless tracker owns");
        assert_eq!(end, (1, 0));
    });
}

#[test]
fn forgetting_versus_asking_the_work_for_its_tracker() {
    explore("forgetting_versus_asking_the_work_for_its_tracker", None, 4, || {
        let Scene { session, main, bank, tracker, responsibility } = Scene::new();
        let forgetter = thread::spawn(move || drop(tracker));
        let found = responsibility.tracker();
        forgetter.join().unwrap();
        let is_live = !found.is_defunct();
        let same_key = responsibility.with_resource_key(|key| key == found.key()).unwrap();
        drop((found, responsibility, bank, main, session));
        assert!(is_live && same_key, "the handle is one to the tracker that the work belongs to");
    });
}

#[test]
fn claiming_a_symbol_versus_transfer() {
    explore("claiming_a_symbol_versus_transfer", None, 2, || {
        let Scene { session, main, bank, tracker, mut responsibility } = Scene::new();
        let destination = main.create_tracker().unwrap();
        let into = destination.clone();
        let transferrer = thread::spawn(move || tracker.transfer_to(&into).unwrap());
        let claimed = responsibility.define_materializing(&[(Name::new("g"), SymbolFlags::EXPORTED)]);
        transferrer.join().unwrap();
        let owned = main.symbol_count_of(destination.key());
        let outcome = claimed.map_err(|error| error.to_string());
        drop((responsibility, destination, bank, main, session));
        assert_eq!(outcome, Ok(vec![true]), "the work goes on wherever its tracker went");
        assert_eq!(owned, 2);
    });
}

#[test]
fn creating_a_dylib_versus_ending_the_session() {
    explore("creating_a_dylib_versus_ending_the_session", None, 2, || {
        let session = ExecutionSession::new();
        let other = session.clone();
        let ender = thread::spawn(move || other.end().unwrap());
        let created = session.create_dylib("late").ok();
        ender.join().unwrap();
        let left_open = created.is_some_and(|dylib| !dylib.is_defunct());
        let listed = session.dylibs().len();
        drop(session);
        assert!(!left_open, "an ended session has no open dylib");
        assert_eq!(listed, 0);
    });
}
