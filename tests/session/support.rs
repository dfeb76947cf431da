//! Test doubles for the session: a scripted unit, a manager with a ledger, and a lookup whose answer a test can inspect.
//!
//! The doubles write events into a shared [`Log`], so that a test can assert their order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name};
use jittison::error::{Error, ErrorKind, Result};
use jittison::session::*;

pub(crate) use jittison_test_support::{own_process, resident_bytes};

/// `usual`, or `under_miri` if Miri interprets the test.
pub const fn sized(usual: u64, under_miri: u64) -> u64 {
    if cfg!(miri) { under_miri } else { usual }
}

pub const RESOLVED: Option<SymbolState> = Some(SymbolState::Resolved);
pub const EMITTED: Option<SymbolState> = Some(SymbolState::Emitted);
pub const READY: Option<SymbolState> = Some(SymbolState::Ready);

pub const EXPORTED: SymbolFlags = SymbolFlags::EXPORTED;

pub fn weak() -> SymbolFlags {
    SymbolFlags::EXPORTED | SymbolFlags::WEAK
}

pub fn address(value: u64) -> ExecutorAddr {
    ExecutorAddr::new(value)
}

/// The names that a generator is asked for.
pub fn names_of<'a>(missing: &[SymbolRequest<'a>]) -> Vec<&'a str> {
    missing.iter().map(|request| request.name).collect()
}

/// Events, in order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn push(&self, event: impl Into<String>) {
        self.0.lock().unwrap().push(event.into());
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

type Work = Box<dyn FnOnce(MaterializationResponsibility) + Send>;

/// A unit that runs the work of its test, and logs `run`, `discard` and `drop`.
pub struct Unit {
    name: String,
    symbols: Vec<(Name, SymbolFlags)>,
    work: Option<Work>,
    log: Log,
}

impl Unit {
    /// A unit named after its first symbol.
    pub fn new(
        symbols: &[(&str, SymbolFlags)],
        work: impl FnOnce(MaterializationResponsibility) + Send + 'static,
    ) -> Unit {
        Unit {
            name: format!("unit of {}", symbols.first().map_or("nothing", |(name, _)| name)),
            symbols: symbols.iter().map(|(name, flags)| (Name::new(name), *flags)).collect(),
            work: Some(Box::new(work)),
            log: Log::default(),
        }
    }

    pub fn exported(names: &[&str], work: impl FnOnce(MaterializationResponsibility) + Send + 'static) -> Unit {
        let symbols: Vec<_> = names.iter().map(|name| (*name, EXPORTED)).collect();
        Unit::new(&symbols, work)
    }

    /// A unit that becomes ready when it runs, with all symbols at `value`.
    pub fn ready(names: &[&str], value: u64) -> Unit {
        Unit::exported(names, move |r| finish(r, value))
    }

    /// A unit that must not run.
    pub fn never(names: &[&str]) -> Unit {
        Unit::exported(names, |r| panic!("{} was run", r.unit_name()))
    }

    /// A unit that passes its responsibility to the test.
    pub fn held(names: &[&str]) -> (Unit, HeldResponsibility) {
        let symbols: Vec<_> = names.iter().map(|name| (*name, EXPORTED)).collect();
        Unit::held_with(&symbols)
    }

    pub fn held_with(symbols: &[(&str, SymbolFlags)]) -> (Unit, HeldResponsibility) {
        let held = HeldResponsibility::default();
        let slot = held.clone();
        (Unit::new(symbols, move |r| *slot.0.lock().unwrap() = Some(r)), held)
    }

    /// A unit that records `resource` under its key and then becomes ready.
    pub fn recording(names: &[&str], manager: &Arc<LedgerManager>, resource: u64) -> Unit {
        let manager = manager.clone();
        Unit::exported(names, move |r| {
            r.with_resource_key(|key| manager.ledger.record(key, resource)).expect("the tracker is live");
            finish(r, resource);
        })
    }

    /// A unit that records `resource`, resolves, and emits with a dependency on each of `dependencies`.
    pub fn depending(name: &str, dependencies: &[&str], manager: &Arc<LedgerManager>, resource: u64) -> Unit {
        let manager = manager.clone();
        let dependencies: Vec<String> = dependencies.iter().map(|name| name.to_string()).collect();
        Unit::exported(&[name], move |r| {
            r.with_resource_key(|key| manager.ledger.record(key, resource)).expect("the tracker is live");
            r.notify_resolved(|_| Some(address(resource))).expect("the tracker is live");
            let requests: Vec<_> = dependencies.iter().map(|name| SymbolRequest::required(name)).collect();
            r.lookup(&requests, RequiredState::Resolved, |r, found| match found {
                Ok(found) => drop(r.notify_emitted(found.into_iter().filter_map(|result| result.symbol).collect())),
                Err(error) => r.fail(error),
            });
        })
    }

    /// Makes the unit write its events into `log`, where the test can read them.
    pub fn logging(mut self, log: &Log) -> Unit {
        self.log = log.clone();
        self
    }
}

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        &self.name
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn materialize(mut self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.log.push(format!("run {}", self.name));
        let work = self.work.take().expect("a unit runs once");
        drop(self);
        work(responsibility);
    }

    fn discard(&mut self, name: &str) {
        self.log.push(format!("discard {name}"));
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.log.push(format!("drop {}", self.name));
    }
}

/// The responsibility of a unit that has run, for the test to take.
#[derive(Clone, Default)]
pub struct HeldResponsibility(Arc<Mutex<Option<MaterializationResponsibility>>>);

impl HeldResponsibility {
    pub fn take(&self) -> MaterializationResponsibility {
        self.try_take().expect("the unit has run and its responsibility is not taken")
    }

    pub fn try_take(&self) -> Option<MaterializationResponsibility> {
        self.0.lock().unwrap().take()
    }
}

/// Resolves all symbols to `value` and emits them without dependencies.
pub fn finish(responsibility: MaterializationResponsibility, value: u64) {
    responsibility.notify_resolved(|_| Some(address(value))).expect("the tracker is live");
    responsibility.notify_emitted(Vec::new()).expect("the tracker is live");
}

/// A manager that records numbers by key.
#[derive(Default)]
pub struct LedgerManager {
    name: String,
    pub ledger: Ledger<u64>,
    pub log: Log,
    pub freed: Mutex<Vec<u64>>,
    pub fails: AtomicBool,
}

impl LedgerManager {
    pub fn new(name: &str, log: &Log) -> Arc<LedgerManager> {
        Arc::new(LedgerManager { name: name.to_string(), log: log.clone(), ..LedgerManager::default() })
    }

    /// The resources that were freed since the last call, in order.
    pub fn take_freed(&self) -> Vec<u64> {
        std::mem::take(&mut self.freed.lock().unwrap())
    }

    /// The resources that are recorded under a key.
    pub fn recorded_under(&self, key: ResourceKey) -> Vec<u64> {
        self.ledger.inspect(key, |resources| resources.to_vec())
    }
}

impl ResourceManager for LedgerManager {
    fn remove_resources(&self, _dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        let taken = self.ledger.take(key);
        self.log.push(format!("{} removes {taken:?}", self.name));
        self.freed.lock().unwrap().extend(taken);
        match self.fails.load(Ordering::Relaxed) {
            true => Err(Error::other(format!("{} failed", self.name))),
            false => Ok(()),
        }
    }

    fn transfer_resources(&self, _dylib: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.log.push(format!("{} transfers", self.name));
        self.ledger.transfer(destination, source);
    }
}

/// A session with one dylib and one manager.
pub struct Fixture {
    pub session: ExecutionSession,
    pub main: JitDylib,
    pub manager: Arc<LedgerManager>,
    pub log: Log,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture::with_policy(ReclaimPolicy::OnDrop)
    }

    pub fn with_policy(policy: ReclaimPolicy) -> Fixture {
        Fixture::with_options(SessionOptions { reclaim: policy, ..SessionOptions::default() })
    }

    pub fn with_options(options: SessionOptions) -> Fixture {
        let session = ExecutionSession::with_options(options);
        let main = session.create_dylib("main").unwrap();
        let log = Log::default();
        let manager = LedgerManager::new("manager", &log);
        session.register_manager(manager.clone());
        Fixture { session, main, manager, log }
    }

    pub fn tracker(&self) -> ResourceTracker {
        self.main.create_tracker().unwrap()
    }

    /// A tracker whose `name` is ready and has `resource` recorded.
    pub fn loaded(&self, name: &str, resource: u64) -> ResourceTracker {
        let tracker = self.tracker();
        tracker.define(Unit::recording(&[name], &self.manager, resource)).unwrap();
        self.find(name).unwrap();
        tracker
    }

    /// A tracker whose `name` is emitted with dependencies and has `resource` recorded.
    pub fn linked(&self, name: &str, dependencies: &[&str], resource: u64) -> ResourceTracker {
        let tracker = self.tracker();
        tracker.define(Unit::depending(name, dependencies, &self.manager, resource)).unwrap();
        self.find(name).unwrap();
        tracker
    }

    /// Defines a unit with these names in `main`. The test takes its responsibility when a lookup has started it.
    pub fn define_held(&self, names: &[&str]) -> HeldResponsibility {
        let (unit, held) = Unit::held(names);
        self.main.define(unit).unwrap();
        held
    }

    /// Defines a unit with these names in `main` and looks all of them up. Returns its responsibility and the answer.
    pub fn claim(&self, names: &[&str], required: RequiredState) -> (MaterializationResponsibility, Answer) {
        let held = self.define_held(names);
        let answer = self.look_up(names, required);
        (held.take(), answer)
    }

    /// Like [`claim`](Self::claim), under a tracker of `main`.
    pub fn claim_under(
        &self,
        tracker: &ResourceTracker,
        names: &[&str],
        required: RequiredState,
    ) -> (MaterializationResponsibility, Answer) {
        let held = define_held_under(tracker, names);
        let answer = self.look_up(names, required);
        (held.take(), answer)
    }

    /// Claims each name by itself and resolves the first to 1, the next to 2, and so on. Returns the responsibilities and the
    /// answers of lookups that wait until the names are ready.
    pub fn resolved(&self, names: &[&str]) -> (Vec<MaterializationResponsibility>, Vec<Answer>) {
        let claim = |(value, name): (u64, &&str)| {
            let (r, answer) = self.claim(&[name], RequiredState::Ready);
            r.notify_resolved(|_| Some(address(value))).unwrap();
            (r, answer)
        };
        (1..).zip(names).map(claim).unzip()
    }

    /// The states of symbols of `main`.
    pub fn states(&self, names: &[&str]) -> Vec<Option<SymbolState>> {
        names.iter().map(|name| self.main.symbol_state(name)).collect()
    }

    /// Looks up one exported name in `main` and waits until it is ready.
    pub fn find(&self, name: &str) -> Result<u64> {
        find_in(&self.session, &[&self.main], name)
    }

    /// Starts a lookup in `main`, which also finds hidden symbols, and does not wait for it.
    pub fn look_up(&self, names: &[&str], required: RequiredState) -> Answer {
        Answer::of(&self.session, &self.main, names, required)
    }

    /// The definitions of names that are at least resolved.
    pub fn references(&self, names: &[&str]) -> Vec<SymbolRef> {
        let answer = self.look_up(names, RequiredState::Resolved);
        answer.results().into_iter().map(|result| result.symbol.expect("not absolute")).collect()
    }
}

/// Defines a unit with these names under a tracker. The test takes its responsibility when a lookup has started it.
pub fn define_held_under(tracker: &ResourceTracker, names: &[&str]) -> HeldResponsibility {
    let (unit, held) = Unit::held(names);
    tracker.define(unit).unwrap();
    held
}

/// Looks up one exported name in these dylibs, in order, and waits until it is ready.
pub fn find_in(session: &ExecutionSession, dylibs: &[&JitDylib], name: &str) -> Result<u64> {
    let order: Vec<_> = dylibs.iter().map(|dylib| ((*dylib).clone(), Visibility::ExportedOnly)).collect();
    let found = session.lookup(&order, &[SymbolRequest::required(name)], RequiredState::Ready)?;
    Ok(found[0].address.value())
}

/// The answer of a lookup, once there is one. Panics if the lookup answers twice.
#[derive(Clone, Default)]
pub struct Answer(Arc<Mutex<Option<Result<Vec<LookupResult>>>>>);

impl Answer {
    pub fn of(session: &ExecutionSession, dylib: &JitDylib, names: &[&str], required: RequiredState) -> Answer {
        let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(name)).collect();
        let answer = Answer::default();
        session.lookup_then(&[(dylib.clone(), Visibility::All)], &requests, required, answer.callback());
        answer
    }

    pub fn callback(&self) -> impl FnOnce(Result<Vec<LookupResult>>) + Send + 'static {
        let answer = self.0.clone();
        move |outcome| assert!(answer.lock().unwrap().replace(outcome).is_none(), "a query is answered once")
    }

    pub fn is_pending(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }

    pub fn outcome(&self) -> Result<Vec<LookupResult>> {
        self.0.lock().unwrap().clone().expect("the query is answered")
    }

    pub fn results(&self) -> Vec<LookupResult> {
        self.outcome().expect("the lookup succeeds")
    }

    pub fn addresses(&self) -> Vec<u64> {
        self.results().iter().map(|result| result.address.value()).collect()
    }

    pub fn error(&self) -> Error {
        self.outcome().expect_err("the lookup fails")
    }
}

/// The names that a `FailedToMaterialize` error lists, sorted.
pub fn failed_symbols(error: &Error) -> Vec<String> {
    match error.kind() {
        ErrorKind::FailedToMaterialize { symbols, .. } => {
            let mut symbols = symbols.clone();
            symbols.sort();
            symbols
        }
        other => panic!("FailedToMaterialize expected, not: {other}"),
    }
}

#[track_caller]
pub fn assert_tracker_defunct<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = outcome.expect_err("the tracker is defunct");
    assert!(matches!(error.kind(), ErrorKind::TrackerDefunct { .. }), "{error}");
}

#[track_caller]
pub fn assert_not_found<T: std::fmt::Debug>(outcome: Result<T>) {
    let error = outcome.expect_err("the symbol is absent");
    assert!(matches!(error.kind(), ErrorKind::SymbolsNotFound { .. }), "{error}");
}
