//! [`LazyReexports`]: functions that are linked when they are first called.
//!
//! ```text
//!   caller ─► stub: jmp *slot ─► entry (first call only) ─► call-through: look the function up, redirect the slot
//!                       └──────── after that ──────────────────────────────────► the function
//! ```
//!
//! # Ownership
//! Stubs, entries and bindings are recorded under the key of the tracker that owns the lazy names, before any thread can call a
//! stub. They are freed with that tracker. Another service may make entries that lead to targets of its own, and give them to a
//! tracker ([`record_entry`](LazyReexports::record_entry)). A caller of a stub pins the tracker: it has a handle or a guard, or it is code that
//! refers to the stub. A bound name adds a dependency: its tracker pins the function's tracker, as if its code referred to the
//! function. This also works after the tracker was removed, while it is still pinned. A binding writes to its own stub's slot,
//! even if another definition has the name by then.
//!
//! # First call
//!
//! | the first call comes | what it does |
//! |---|---|
//! | while the tracker is live, or removed and pinned | links the function, adds the dependency, redirects the stub |
//! | from a finaliser, while the tracker is reclaimed | the same; but a pin keeps the function until the entries are freed |
//! | when the object of the function waits for its initialisers | runs them before it redirects the stub, as a lookup does |
//! | when the session has ended, the name was removed, or the link fails | asks the embedder's handler (`lazy_failure.rs`) |
//!
//! Two threads that make the first call at the same time bind to the same function. A redirect by the embedder wins: a binding
//! replaces only the address of the entry. Model: `loom_tests/loom_lazy_stub.rs`.

use std::fmt;

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "executor")]
use crate::host::CallbackTarget;
use crate::host::{Executor, InProcess, LazyEntries, LazyFailure, LazyFailureHandler, LazyFunction, LazyTarget};
use crate::layer::{HasMemory, MemoryLedger};
use crate::memory::{Finalized, MemoryManager, MemoryUsage, SegmentPlan, SegmentRequest, Tenant, Word};
use crate::platform::init_fini::InitFiniRegistry;
use crate::platform::stubs::{self, StubManager};
use crate::session::{
    Alias, ExecutionSession, JitDylib, ManagerRank, Pin, RequiredState, ResourceKey, ResourceManager, ResourceTracker,
    SymbolRef, SymbolRequest, SymbolWatch, TrackerWatch, Watched,
};
use crate::sync::{Arc, Mutex, seeded_bug};

/// Makes lazy re-exports (ORC: `lazyReexports`). [Register](Self::register) it with the session, and also the stub manager
/// that it uses.
pub struct LazyReexports {
    memory: Arc<dyn MemoryManager>,
    stubs: Arc<StubManager>,
    on_failure: LazyFailureHandler,
    executor: Arc<dyn Executor>,
    /// `None`: a first call runs no initialisers.
    initializers: Option<Arc<InitFiniRegistry>>,
    entries: Arc<EntryLedger>,
}

/// The entries by key. It is the manager, so that only the session can call it: `remove_resources` frees code.
struct EntryLedger(MemoryLedger<EntryBlock>);

/// The entries of names that were defined together. Dropped when no stub leads to them any more. Field order matters: the
/// bindings are dropped before the code of the entries.
struct EntryBlock {
    entries: Box<dyn LazyEntries>,
    memory: Box<dyn Finalized>,
}

impl HasMemory for EntryBlock {
    fn memory(&self) -> &dyn Finalized {
        &*self.memory
    }

    fn name(&self) -> Arc<str> {
        Arc::from(format!("entries of {} lazy functions", self.entries.count()))
    }
}

/// One lazy name, and the function that it is bound to at its first call.
struct Binding {
    dylib: JitDylib,
    source: JitDylib,
    alias: Alias,
    /// Tracker of the lazy name.
    tracker: TrackerWatch,
    on_failure: LazyFailureHandler,
    initializers: Option<Arc<InitFiniRegistry>>,
    /// Whether the binding is older than the session's first version of a patched function. Then a caller may have entered no
    /// record.
    precedes_versions: bool,
    stub: Mutex<StubState>,
}

/// The stub of a binding. Empty until the stub is made.
#[derive(Default)]
struct StubState {
    slot: Option<Arc<Word>>,
    /// The target of the stub until the name is bound.
    entry: ExecutorAddr,
    /// Pins of functions that were bound while the stub's tracker was being reclaimed.
    pins: Vec<Pin>,
}

impl LazyReexports {
    /// Makes lazy re-exports with stubs of `stubs` and entries in `memory`. A call that cannot be bound aborts the process. A
    /// first call runs no initialisers, because it knows no registry of them. First calls in a [`Jit`](crate::Jit) run
    /// them.
    #[cfg_attr(not(feature = "unstable"), allow(dead_code))]
    pub fn new(memory: Arc<dyn MemoryManager>, stubs: Arc<StubManager>) -> Arc<LazyReexports> {
        LazyReexports::with_handler(memory, stubs, LazyFailureHandler::default())
    }

    /// As [`new`](Self::new), with a handler for calls that cannot be bound.
    pub fn with_handler(
        memory: Arc<dyn MemoryManager>,
        stubs: Arc<StubManager>,
        on_failure: LazyFailureHandler,
    ) -> Arc<LazyReexports> {
        LazyReexports::with_executor(memory, stubs, on_failure, Arc::new(InProcess), None)
    }

    /// As [`with_handler`](Self::with_handler), for code that runs in the process behind `executor`. A first call runs the
    /// initialisers that wait in `initializers`.
    pub(crate) fn with_executor(
        memory: Arc<dyn MemoryManager>,
        stubs: Arc<StubManager>,
        on_failure: LazyFailureHandler,
        executor: Arc<dyn Executor>,
        initializers: Option<Arc<InitFiniRegistry>>,
    ) -> Arc<LazyReexports> {
        let entries = Arc::new(EntryLedger(MemoryLedger::new()));
        Arc::new(LazyReexports { memory, stubs, on_failure, executor, initializers, entries })
    }

    /// Registers these lazy re-exports with a session. From now on the session frees the entries of a tracker when it reclaims
    /// the tracker, after the stubs that lead to them. A second call does nothing.
    pub fn register(&self, session: &ExecutionSession) {
        session.register_ranked(ManagerRank::LazyEntries, self.entries.clone());
    }

    /// Defines names under a tracker for functions of `source`, including hidden ones. Each function is looked up at the first
    /// call of its name. If it is not found or cannot be linked, the [handler](LazyFailureHandler) decides where the call goes.
    ///
    /// # Errors
    /// A name is already defined, the tracker is defunct, `source` is of another session, or there is not enough memory. In
    /// these cases nothing is defined.
    pub fn define(self: &Arc<Self>, tracker: &ResourceTracker, source: &JitDylib, aliases: &[Alias]) -> Result<()> {
        source.check_same_session(&tracker.dylib())?;
        if aliases.is_empty() {
            return Ok(());
        }
        let bind = |alias: &Alias| {
            Arc::new(Binding {
                dylib: tracker.dylib(),
                source: source.clone(),
                alias: alias.clone(),
                tracker: tracker.watch(),
                on_failure: self.on_failure.clone(),
                initializers: self.initializers.clone(),
                precedes_versions: !tracker.dylib().is_call_entry_enabled(),
                stub: Mutex::new(StubState::default()),
            })
        };
        let bindings: Vec<_> = aliases.iter().map(bind).collect();
        let target = |binding: &Arc<Binding>| -> Arc<dyn LazyTarget> { binding.clone() };
        let entries = self.make_entries(bindings.iter().map(target).collect(), |index| &aliases[index].name)?;
        let start = entries.memory.address(SegmentKind::Code);
        let size = self.executor.arch().lazy_entry_size();
        let entry_of = move |index: usize| start.offset((index * size) as u64);
        let names: Vec<_> =
            aliases.iter().enumerate().map(|(index, alias)| (alias.name.as_str(), entry_of(index))).collect();
        let (ledger, dylib) = (self.entries.clone(), tracker.dylib());
        self.stubs.create_with(tracker, &names, move |key, stubs| {
            for (index, binding) in bindings.iter().enumerate() {
                let slot = stubs.slot(index).map(Arc::new);
                *binding.stub.lock() = StubState { slot, entry: entry_of(index), pins: Vec::new() };
            }
            ledger.0.record(&dylib, key, entries);
        })
    }

    /// Defines a name under a tracker for a function of this process, which code of another process calls through an entry.
    ///
    /// # Errors
    /// The name is already defined, the tracker is defunct, or there is not enough memory. In these cases nothing is defined.
    #[cfg(feature = "executor")]
    pub(crate) fn define_callback(
        &self,
        tracker: &ResourceTracker,
        name: &str,
        target: Arc<dyn CallbackTarget>,
    ) -> Result<()> {
        let address = self.executor.callback_address();
        let entries = self.make_block(1, address, || self.executor.register_callback(target), |_| name)?;
        let names = [(name, entries.memory.address(SegmentKind::Code))];
        let (ledger, dylib) = (self.entries.clone(), tracker.dylib());
        self.stubs.create_with(tracker, &names, move |key, _| ledger.0.record(&dylib, key, entries))
    }

    /// Memory of the entries under a key, in constant time.
    pub fn usage(&self, key: ResourceKey) -> MemoryUsage {
        self.entries.0.usage(key)
    }

    /// Memory of the entries of a dylib, in constant time.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        self.entries.0.usage_of_dylib(dylib)
    }

    /// Where the entries are, for a map of the memory.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.entries.0.tenants()
    }

    /// Makes an entry that leads to a target of another service. The entry is a function that calls
    /// [`find`](LazyTarget::find), and goes on at the address that it returns. `name` is its name in errors.
    pub(crate) fn make_entry(&self, target: Arc<dyn LazyTarget>, name: &str) -> Result<LazyEntry> {
        self.make_entries(vec![target], |_| name).map(LazyEntry)
    }

    /// Gives an entry to a tracker, which frees it before its code.
    ///
    /// # Errors
    /// The tracker is defunct. Then the entry is freed.
    pub(crate) fn record_entry(&self, tracker: &ResourceTracker, entry: LazyEntry) -> Result<()> {
        let dylib = tracker.dylib();
        tracker.with_resource_key(|key| self.entries.0.record(&dylib, key, entry.0))
    }

    fn make_entries<'a>(
        &self,
        targets: Vec<Arc<dyn LazyTarget>>,
        name_of: impl Fn(usize) -> &'a str,
    ) -> Result<EntryBlock> {
        let call_through = self.executor.call_through_address();
        self.make_block(targets.len(), call_through, || self.executor.register_lazy_targets(targets), name_of)
    }

    /// Allocates `count` entries, and the slot that all entries jump through.
    fn make_block<'a>(
        &self,
        count: usize,
        slot_target: ExecutorAddr,
        register: impl FnOnce() -> Box<dyn LazyEntries>,
        name_of: impl Fn(usize) -> &'a str,
    ) -> Result<EntryBlock> {
        let mut plan = SegmentPlan::default();
        let arch = self.executor.arch();
        let size = arch.lazy_entry_size();
        let code = (count * size) as u64;
        plan.segments[SegmentKind::Code.index()] = SegmentRequest { size: code, align: 16, zero_fill: 0 };
        plan.segments[SegmentKind::ReadOnly.index()] = SegmentRequest { size: 8, align: 8, zero_fill: 0 };
        let mut memory = self.memory.allocate(&plan)?;
        let slot = memory.address(SegmentKind::ReadOnly);
        let start = memory.address(SegmentKind::Code);
        memory.working(SegmentKind::ReadOnly).copy_from_slice(&slot_target.value().to_le_bytes());
        let entries = register();
        for (index, entry) in memory.working(SegmentKind::Code).chunks_exact_mut(size).enumerate() {
            let offset = (index * size) as u64;
            let place = start.offset(offset);
            let distance = arch.slot_distance(place, slot);
            let out_of_range = || stubs::out_of_range("lazy functions", place, slot, offset, name_of(index));
            arch.write_lazy_entry(entries.number(index), distance.ok_or_else(out_of_range)?, entry);
        }
        Ok(EntryBlock { entries, memory: memory.finalize(Vec::new())? })
    }
}

/// An entry that belongs to no tracker yet. No thread may run it any more when this is dropped.
pub(crate) struct LazyEntry(EntryBlock);

impl LazyEntry {
    pub(crate) fn address(&self) -> ExecutorAddr {
        self.0.memory.address(SegmentKind::Code)
    }
}

impl LazyFunction for Binding {
    /// Called for the first call, and for calls that start before the first one has bound the name. All of them bind to
    /// the same function.
    fn find(&self) -> Result<ExecutorAddr> {
        self.bind().or_else(|error| {
            let (slot, entry) = self.slot();
            // Another call has bound the stub meanwhile, or the embedder has redirected it. Continue there, as a new call would.
            if let Some(target) = slot.map(|slot| slot.load()).filter(|target| *target != entry.value()) {
                return Ok(ExecutorAddr::new(target));
            }
            let is_closed = matches!(error.kind(), ErrorKind::DylibDefunct { .. });
            let has_ended = is_closed && self.source.inner().session.has_ended();
            Err(if has_ended { ErrorKind::SessionEnded.into() } else { error })
        })
    }

    fn failure<'a>(&'a self, error: &'a Error) -> LazyFailure<'a> {
        LazyFailure {
            dylib: self.dylib.name(),
            symbol: &self.alias.name,
            source: self.source.name(),
            aliasee: &self.alias.aliasee,
            error,
        }
    }

    fn handler(&self) -> &LazyFailureHandler {
        &self.on_failure
    }
}

impl Binding {
    fn bind(&self) -> Result<ExecutorAddr> {
        let requests = [SymbolRequest::required(&self.alias.aliasee)];
        loop {
            // Read before the search, so that a failure on another thread during it counts as well.
            let failures = self.initializers.as_ref().map(|initializers| initializers.failures());
            let found = self.source.lookup(&requests, RequiredState::Ready)?.pop();
            let found = found.ok_or_else(|| Error::other("a lookup lost its only result"))?;
            if seeded_bug!("stub_bound_ahead_of_the_dependency") {
                self.redirect(found.address);
            }
            if let Some(symbol) = &found.symbol
                && let Err(error) = self.keep_in_memory(symbol)
            {
                // The function was removed after the lookup. The name may be defined again, so look it up again.
                if SymbolWatch::of(symbol).is_gone() {
                    continue;
                }
                return Err(error);
            }
            // Before the redirect, because after it other threads call the function.
            if let Some(symbol) = &found.symbol
                && !self.initialize(symbol, failures)?
            {
                continue;
            }
            if self.precedes_versions && self.dylib.is_call_entry_enabled() {
                // Before the call continues, because it may reach a version.
                self.dylib.note_late_binding(self.tracker.clone());
            }
            self.redirect(found.address);
            return Ok(found.address);
        }
    }

    /// Runs the initialisers that wait in the source and in what it links against, as a lookup of the function does. Returns
    /// false if the function was removed meanwhile.
    fn initialize(&self, function: &SymbolRef, failures: Option<usize>) -> Result<bool> {
        let Some(initializers) = self.initializers.as_ref().filter(|initializers| initializers.has_pending()) else {
            return Ok(true);
        };
        initializers.run_pending(&self.source);
        // A removed object may have lost its initialisers before they ran. Its code must not run without them.
        if !SymbolWatch::of(function).is_gone() {
            return Ok(true);
        }
        match failures == Some(initializers.failures()) {
            true => Ok(false),
            false => {
                let (symbol, dylib) = (self.alias.aliasee.to_string(), self.source.name().to_string());
                Err(ErrorKind::InitializerFailed { symbol, dylib }.into())
            }
        }
    }

    /// Points the stub to the function, unless it was redirected already.
    fn redirect(&self, target: ExecutorAddr) {
        let (slot, entry) = self.slot();
        if let Some(slot) = slot {
            stubs::bind(&slot, &self.dylib, &self.alias.name, entry, target);
        }
    }

    /// The stub's slot, and the value of the slot before the name is bound.
    fn slot(&self) -> (Option<Arc<Word>>, ExecutorAddr) {
        let stub = self.stub.lock();
        (stub.slot.clone(), stub.entry)
    }

    /// Keeps the function in memory as long as the stub.
    fn keep_in_memory(&self, function: &SymbolRef) -> Result<()> {
        if let Some(pin) = self.tracker.pin() {
            return pin.add_dependency(function);
        }
        // The caller is a finaliser: the tracker is being reclaimed and accepts no dependency.
        match SymbolWatch::of(function).pin() {
            Watched::Ready(pin) => self.stub.lock().pins.push(pin),
            Watched::Unready | Watched::Gone => return Err(Error::other("the function was removed")),
        }
        Ok(())
    }
}

impl ResourceManager for EntryLedger {
    fn remove_resources(&self, _dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        drop(self.0.take(key));
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn transfer_resources(&self, _dylib: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.0.transfer(destination, source);
    }

    fn held_bytes(&self, key: ResourceKey) -> u64 {
        self.0.usage(key).total()
    }
}

impl fmt::Debug for LazyReexports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lazy re-exports under {} keys", self.entries.0.key_count())
    }
}
