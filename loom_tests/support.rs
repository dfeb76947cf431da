//! What the models share: a manager with books, units, a session to start from, and the exploration itself.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name};
use jittison::error::{ErrorKind, Result};
use jittison::session::*;
use loom::cell::UnsafeCell;

/// A manager of numbered resources.
#[derive(Default)]
pub struct Bank {
    pub ledger: Ledger<u32>,
    /// Not loom's: one more lock would multiply the schedules, and no model reads it while another thread may write.
    given_back: Mutex<Vec<u32>>,
}

impl Bank {
    /// What was given back, in order.
    pub fn given_back(&self) -> Vec<u32> {
        self.given_back.lock().unwrap().clone()
    }

    /// `(resources given back, keys that still own something)`.
    pub fn books(&self) -> (usize, usize) {
        (self.given_back.lock().unwrap().len(), self.ledger.key_count())
    }

    /// What a linker does with the memory it has got: whether the session took it.
    pub fn record(&self, responsibility: &MaterializationResponsibility, resource: u32) -> bool {
        responsibility.with_resource_key(|key| self.ledger.record(key, resource)).is_ok()
    }
}

impl ResourceManager for Bank {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        let taken = self.ledger.take(key);
        self.given_back.lock().unwrap().extend(taken);
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn transfer_resources(&self, _: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.ledger.transfer(destination, source);
    }
}

/// A manager of one piece of code. loom reports code that is used while it is freed, or afterwards, or without anything that
/// orders the two.
pub struct Code(UnsafeCell<bool>);

impl Code {
    pub fn managed_in(session: &ExecutionSession) -> Arc<Code> {
        let code = Arc::new(Code(UnsafeCell::new(false)));
        session.register_manager(code.clone());
        code
    }

    pub fn is_freed(&self) -> bool {
        // SAFETY: loom checks that nobody writes meanwhile, which is what the models are for.
        self.0.with(|freed| unsafe { *freed })
    }
}

// SAFETY: as above; the cell is shared on purpose.
unsafe impl Sync for Code {}

impl ResourceManager for Code {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
        // SAFETY: loom checks that nobody else has access.
        self.0.with_mut(|freed| unsafe { *freed = true });
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

/// Counts how often it is told of a key, and of a tracker that was removed.
#[derive(Default)]
pub struct Told {
    removed: AtomicUsize,
    retired: AtomicUsize,
    /// Written where others may come in.
    step: loom::sync::atomic::AtomicUsize,
}

impl Told {
    pub fn of(session: &ExecutionSession) -> Arc<Told> {
        let told = Arc::new(Told::default());
        session.register_manager(told.clone());
        told
    }

    pub fn count(&self) -> usize {
        self.removed.load(Ordering::Relaxed)
    }

    pub fn retired(&self) -> usize {
        self.retired.load(Ordering::Relaxed)
    }
}

impl ResourceManager for Told {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
        self.step.fetch_add(1, Ordering::Relaxed);
        self.removed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

impl Observer for Told {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Retired { .. }) {
            self.retired.fetch_add(1, Ordering::Relaxed);
        }
    }
}

type Work = Box<dyn FnOnce(MaterializationResponsibility) + Send>;

/// One exported symbol, and what is done to make it real.
pub struct Unit([(Name, SymbolFlags); 1], Work);

impl Unit {
    pub fn new(name: &str, work: impl FnOnce(MaterializationResponsibility) + Send + 'static) -> Unit {
        Unit([(Name::new(name), SymbolFlags::EXPORTED)], Box::new(work))
    }

    pub fn weak(name: &str, work: impl FnOnce(MaterializationResponsibility) + Send + 'static) -> Unit {
        Unit([(Name::new(name), SymbolFlags::EXPORTED | SymbolFlags::WEAK)], Box::new(work))
    }
}

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        "unit"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.0
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        (self.1)(responsibility);
    }
}

/// A session with one dylib and one manager.
pub struct Scene {
    pub session: ExecutionSession,
    pub main: JitDylib,
    pub bank: Arc<Bank>,
}

impl Scene {
    pub fn new() -> Scene {
        Scene::with_options(SessionOptions::default())
    }

    pub fn with_options(options: SessionOptions) -> Scene {
        let session = ExecutionSession::with_options(options);
        let bank = Arc::new(Bank::default());
        session.register_manager(bank.clone());
        let main = session.create_dylib("main").unwrap();
        Scene { session, main, bank }
    }

    /// A tracker with a unit for `name` that somebody has looked for; the unit's work is left to the model.
    pub fn at_work(&self, name: &str) -> (ResourceTracker, MaterializationResponsibility) {
        let tracker = self.main.create_tracker().unwrap();
        let slot = Arc::new(Mutex::new(None));
        let filled = slot.clone();
        tracker.define(Unit::new(name, move |r| *filled.lock().unwrap() = Some(r))).unwrap();
        self.session.lookup_then(&self.order(), &[SymbolRequest::required(name)], RequiredState::Ready, drop);
        let responsibility = slot.lock().unwrap().take().unwrap();
        (tracker, responsibility)
    }

    /// A tracker whose `name` is ready and has `resource` on the books.
    pub fn loaded(&self, name: &str, resource: u32) -> ResourceTracker {
        let (tracker, responsibility) = self.at_work(name);
        assert!(self.bank.record(&responsibility, resource));
        resolve(&responsibility).unwrap();
        responsibility.notify_emitted(Vec::new()).unwrap();
        tracker
    }

    /// The definition behind a name that is resolved at least.
    pub fn reference(&self, name: &str) -> SymbolRef {
        let found = self.main.lookup(&[SymbolRequest::required(name)], RequiredState::Resolved).unwrap();
        found[0].symbol.clone().unwrap()
    }

    pub fn order(&self) -> [(JitDylib, Visibility); 1] {
        [(self.main.clone(), Visibility::All)]
    }
}

pub fn resolve(responsibility: &MaterializationResponsibility) -> Result<()> {
    responsibility.notify_resolved(|_| Some(ExecutorAddr::new(1)))
}

/// How a lookup of one name ended, in a word.
pub fn find(main: &JitDylib, name: &str) -> &'static str {
    match main.lookup(&[SymbolRequest::required(name)], RequiredState::Ready) {
        Ok(_) => "ready",
        Err(error) => word(error.kind()),
    }
}

pub fn word(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::SymbolsNotFound { .. } => "not found",
        ErrorKind::FailedToMaterialize { .. } => "failed",
        ErrorKind::TrackerDefunct { .. } => "tracker defunct",
        ErrorKind::DylibDefunct { .. } => "dylib defunct",
        ErrorKind::InUse { .. } => "in use",
        ErrorKind::SessionEnded => "session ended",
        ErrorKind::SymbolsCouldNotBeRemoved { .. } => "could not be removed",
        ErrorKind::DuplicateDefinition { .. } => "duplicate",
        ErrorKind::DependencyRemoved { .. } => "dependency removed",
        ErrorKind::InterfaceMismatch { .. } => "no address",
        ErrorKind::LookupAbandoned { .. } => "abandoned",
        _ => "another error",
    }
}

/// An outcome in a word.
pub fn said<T>(outcome: Result<T>) -> &'static str {
    outcome.map_or_else(|error| word(error.kind()), |_| "ok")
}

/// Runs `model` under every schedule, or every one with `bound` preemptions (`LOOM_MAX_PREEMPTIONS` goes deeper). What
/// it returns, after it has dropped everything, must be one of `allowed`, and each of those must come about. Where
/// [`QUICK`] says how many preemptions there are to be at most, some outcomes need not.
pub fn explore<O: Ord + Debug + Send + Sync + 'static>(
    name: &str,
    bound: Option<usize>,
    at_least: usize,
    allowed: impl IntoIterator<Item = O>,
    model: impl Fn() -> O + Send + Sync + 'static,
) {
    let executions = Arc::new(AtomicUsize::new(0));
    let reached: BTreeMap<O, usize> = allowed.into_iter().map(|outcome| (outcome, 0)).collect();
    let reached = Arc::new(Mutex::new(reached));
    let (counted, tally) = (executions.clone(), reached.clone());
    let mut builder = loom::model::Builder::new();
    let quick = std::env::var(QUICK).ok().map(|most| most.parse::<usize>().expect("a number of preemptions"));
    let bound = bound.map(|bound| builder.preemption_bound.unwrap_or(bound));
    builder.preemption_bound = bound.into_iter().chain(quick).min();
    builder.max_branches = 50_000;
    let counting = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let outcome = model();
        let mut tally = tally.lock().unwrap();
        match tally.get_mut(&outcome) {
            Some(count) => *count += 1,
            None => panic!("not an allowed outcome: {outcome:?}; allowed: {:?}", tally.keys()),
        }
    };
    // Only `loom::model` writes the trace that LOOM_LOG asks for; it takes its bounds from the environment.
    match std::env::var_os("LOOM_LOG") {
        Some(_) => loom::model(counting),
        None => builder.check(counting),
    }
    let executions = executions.load(Ordering::Relaxed);
    let reached = reached.lock().unwrap();
    println!("{name}: executions: {executions}, outcomes: {reached:?}");
    if quick.is_some() {
        return;
    }
    assert!(executions >= at_least, "{name} explored {executions} schedules only, expected {at_least}");
    let missed: Vec<_> = reached.iter().filter(|(_, count)| **count == 0).map(|(outcome, _)| outcome).collect();
    assert!(missed.is_empty(), "{name} has never come to {missed:?}");
}

/// The variable of the environment that has models try schedules with few preemptions only: what a seeded bug needs.
const QUICK: &str = "MODEL_PREEMPTIONS_AT_MOST";
