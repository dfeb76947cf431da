//! What the models share: managers, units, a session to start from, and [`explore`].

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
pub struct LedgerManager {
    pub ledger: Ledger<u32>,
    /// A `std` lock: a loom lock would multiply the schedules. No model reads it while another thread may write.
    freed: Mutex<Vec<u32>>,
}

impl LedgerManager {
    /// The freed resources, in order.
    pub fn freed(&self) -> Vec<u32> {
        self.freed.lock().unwrap().clone()
    }

    /// `(freed resources, keys that still own a resource)`.
    pub fn counts(&self) -> (usize, usize) {
        (self.freed.lock().unwrap().len(), self.ledger.key_count())
    }

    /// Records a resource as a linker does. Returns whether the session accepted it.
    pub fn record(&self, responsibility: &MaterializationResponsibility, resource: u32) -> bool {
        responsibility.with_resource_key(|key| self.ledger.record(key, resource)).is_ok()
    }
}

impl ResourceManager for LedgerManager {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        let taken = self.ledger.take(key);
        self.freed.lock().unwrap().extend(taken);
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn transfer_resources(&self, _: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.ledger.transfer(destination, source);
    }
}

/// A manager of one piece of code. Loom reports a use that is not ordered before the release.
pub struct Code(UnsafeCell<bool>);

impl Code {
    pub fn managed_in(session: &ExecutionSession) -> Arc<Code> {
        let code = Arc::new(Code(UnsafeCell::new(false)));
        session.register_manager(code.clone());
        code
    }

    pub fn is_freed(&self) -> bool {
        // SAFETY: loom checks that no thread writes meanwhile. The models exist to check this.
        self.0.with(|freed| unsafe { *freed })
    }
}

// SAFETY: as above. The cell is shared on purpose.
unsafe impl Sync for Code {}

impl ResourceManager for Code {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
        // SAFETY: loom checks that no other thread has access.
        self.0.with_mut(|freed| unsafe { *freed = true });
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

/// Counts its `remove_resources` calls and its `Retired` events.
#[derive(Default)]
pub struct CallCounter {
    removed: AtomicUsize,
    retired: AtomicUsize,
    /// A loom access, at which another thread may run.
    step: loom::sync::atomic::AtomicUsize,
}

impl CallCounter {
    pub fn registered_in(session: &ExecutionSession) -> Arc<CallCounter> {
        let counter = Arc::new(CallCounter::default());
        session.register_manager(counter.clone());
        counter
    }

    pub fn count(&self) -> usize {
        self.removed.load(Ordering::Relaxed)
    }

    pub fn retired(&self) -> usize {
        self.retired.load(Ordering::Relaxed)
    }
}

impl ResourceManager for CallCounter {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
        self.step.fetch_add(1, Ordering::Relaxed);
        self.removed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}

impl Observer for CallCounter {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Retired { .. }) {
            self.retired.fetch_add(1, Ordering::Relaxed);
        }
    }
}

type Work = Box<dyn FnOnce(MaterializationResponsibility) + Send>;

/// One exported symbol, and the work that materializes it.
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
pub struct Fixture {
    pub session: ExecutionSession,
    pub main: JitDylib,
    pub manager: Arc<LedgerManager>,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with_options(SessionOptions::default())
    }

    pub fn with_options(options: SessionOptions) -> Fixture {
        let session = ExecutionSession::with_options(options);
        let manager = Arc::new(LedgerManager::default());
        session.register_manager(manager.clone());
        let main = session.create_dylib("main").unwrap();
        Fixture { session, main, manager }
    }

    /// A tracker with a unit for `name`, which a lookup has started. The model gets the unit's responsibility.
    pub fn materializing(&self, name: &str) -> (ResourceTracker, MaterializationResponsibility) {
        let tracker = self.main.create_tracker().unwrap();
        let slot = Arc::new(Mutex::new(None));
        let filled = slot.clone();
        tracker.define(Unit::new(name, move |r| *filled.lock().unwrap() = Some(r))).unwrap();
        self.session.lookup_then(&self.search_order(), &[SymbolRequest::required(name)], RequiredState::Ready, drop);
        let responsibility = slot.lock().unwrap().take().unwrap();
        (tracker, responsibility)
    }

    /// A tracker whose `name` is ready and has `resource` recorded.
    pub fn loaded(&self, name: &str, resource: u32) -> ResourceTracker {
        let (tracker, responsibility) = self.materializing(name);
        assert!(self.manager.record(&responsibility, resource));
        resolve(&responsibility).unwrap();
        responsibility.notify_emitted(Vec::new()).unwrap();
        tracker
    }

    /// The definition of a name that is at least resolved.
    pub fn reference(&self, name: &str) -> SymbolRef {
        let found = self.main.lookup(&[SymbolRequest::required(name)], RequiredState::Resolved).unwrap();
        found[0].symbol.clone().unwrap()
    }

    pub fn search_order(&self) -> [(JitDylib, Visibility); 1] {
        [(self.main.clone(), Visibility::All)]
    }
}

pub fn resolve(responsibility: &MaterializationResponsibility) -> Result<()> {
    responsibility.notify_resolved(|_| Some(ExecutorAddr::new(1)))
}

/// The outcome of a lookup of one name.
pub fn find(main: &JitDylib, name: &str) -> &'static str {
    match main.lookup(&[SymbolRequest::required(name)], RequiredState::Ready) {
        Ok(_) => "ready",
        Err(error) => describe_kind(error.kind()),
    }
}

pub fn describe_kind(kind: &ErrorKind) -> &'static str {
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

/// A short text for an outcome.
pub fn describe<T>(outcome: Result<T>) -> &'static str {
    outcome.map_or_else(|error| describe_kind(error.kind()), |_| "ok")
}

/// Runs `model` under every schedule, or under every schedule with at most `bound` preemptions (`LOOM_MAX_PREEMPTIONS` raises
/// the bound). The model drops everything and returns its outcome. Each outcome must be in `allowed`, and each allowed outcome
/// must occur in some schedule, unless [`QUICK`] limits the preemptions.
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
    let quick = std::env::var(QUICK).ok().map(|limit| limit.parse::<usize>().expect("a number of preemptions"));
    let bound = bound.map(|bound| builder.preemption_bound.unwrap_or(bound));
    builder.preemption_bound = bound.into_iter().chain(quick).min();
    builder.max_branches = 50_000;
    let counting = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let outcome = model();
        let mut tally = tally.lock().unwrap();
        match tally.get_mut(&outcome) {
            Some(count) => *count += 1,
            None => panic!("{outcome:?} is not an allowed outcome; allowed: {:?}", tally.keys()),
        }
    };
    // Only `loom::model` writes the trace that `LOOM_LOG` requests. It reads its bounds from the environment.
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
    assert!(executions >= at_least, "{name} explored only {executions} schedules, expected at least {at_least}");
    let unreached: Vec<_> = reached.iter().filter(|(_, count)| **count == 0).map(|(outcome, _)| outcome).collect();
    assert!(unreached.is_empty(), "{name} never reached {unreached:?}");
}

/// The environment variable that limits the preemptions of every model. Seeded bugs need few.
const QUICK: &str = "MODEL_PREEMPTIONS_AT_MOST";
