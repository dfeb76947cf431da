//! [`LazyReexports`]: functions that are linked when they are first called.
//!
//! ```text
//!   caller ─► stub: jmp *slot ─► entry (first call only) ─► call-through: look the function up, redirect the slot
//!                       └──────── from then on ──────────────────────────────► the function
//! ```
//!
//! Stubs, entries and bindings are put under the key of the tracker under which the names are defined, before anybody can call a
//! stub, and go with that tracker. Whoever can call a stub holds the tracker: a handle, a guard, or code that refers to the
//! stub. Once a name is bound, the tracker keeps the function's tracker, as any code that refers to it does: also if it has been
//! removed, and is held. A binding writes its own stub's slot, whoever has taken the name since.
//!
//! | the first call comes | what it does |
//! |---|---|
//! | while the tracker lives, or is removed and held | binds: links the function, keeps its tracker, redirects the stub |
//! | from a finaliser that runs at the tracker's reclaim | the same; the function's tracker is kept by a pin until the entries go |
//! | when the session has ended, the name is gone, or its link fails | the embedder's handler says where it goes on (`lazy_failure.rs`) |
//!
//! Two first callers bind to the same function. A redirect by the embedder stays: a binding replaces the entry's address only.
//! Model: `loom_tests/loom_lazy_stub.rs`.

use std::fmt;

use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::{Error, ErrorKind, Result};
use crate::host::{self, CallThrough, LazyFailure, LazyFailureHandler, LazyTarget};
use crate::layer::{HasMemory, MemoryLedger};
use crate::memory::{Finalized, MemoryManager, MemoryUsage, SegmentPlan, SegmentRequest, Tenant, Word};
use crate::platform::stubs::{self, StubManager};
use crate::session::{
    Alias, JitDylib, Pin, RequiredState, ResourceKey, ResourceManager, ResourceTracker, SymbolRef, SymbolRequest,
    SymbolWatch, TrackerWatch, Watched,
};
use crate::sync::{Arc, Mutex, seeded_bug};

/// Makes lazy re-exports (ORC: `lazyReexports`). Register it with the session as a [`ResourceManager`], before the
/// stub manager that it uses.
pub struct LazyReexports {
    memory: Arc<dyn MemoryManager>,
    stubs: Arc<StubManager>,
    on_failure: LazyFailureHandler,
    held: MemoryLedger<Entries>,
}

/// Dropped when no stub leads here any more: the bindings, then the code that asks for them.
struct Entries {
    call_throughs: Vec<CallThrough>,
    memory: Box<dyn Finalized>,
}

impl HasMemory for Entries {
    fn memory(&self) -> &dyn Finalized {
        &*self.memory
    }

    fn name(&self) -> Arc<str> {
        Arc::from(format!("entries of {} lazy functions", self.call_throughs.len()))
    }
}

/// One name to bind.
struct Binding {
    dylib: JitDylib,
    source: JitDylib,
    alias: Alias,
    /// Of the name.
    tracker: TrackerWatch,
    on_failure: LazyFailureHandler,
    /// Whether it was made before the session's first version of a patched function: then its callers may not be entered.
    precedes_versions: bool,
    stub: Mutex<Stub>,
}

/// A binding's stub, once it is there.
#[derive(Default)]
struct Stub {
    slot: Option<Arc<Word>>,
    /// Where it leads until the name is bound.
    entry: ExecutorAddr,
    /// Of functions that were bound while the stub's tracker was being reclaimed.
    pins: Vec<Pin>,
}

impl LazyReexports {
    /// Lazy re-exports by stubs of `stubs`, with entries in `memory`. A call that cannot be bound ends the process.
    pub fn new(memory: Arc<dyn MemoryManager>, stubs: Arc<StubManager>) -> Arc<LazyReexports> {
        LazyReexports::with_handler(memory, stubs, LazyFailureHandler::default())
    }

    /// The same, with a handler that says where calls go on that cannot be bound.
    pub fn with_handler(
        memory: Arc<dyn MemoryManager>,
        stubs: Arc<StubManager>,
        on_failure: LazyFailureHandler,
    ) -> Arc<LazyReexports> {
        Arc::new(LazyReexports { memory, stubs, on_failure, held: MemoryLedger::new() })
    }

    /// Defines names under a tracker that stand for functions of `source`, hidden ones included. The functions are
    /// looked up when they are first called. Where a call goes on whose function is not found, or cannot be linked, the
    /// [handler](LazyFailureHandler) says.
    ///
    /// # Errors
    /// A name that is defined already, a defunct tracker, no memory; nothing is defined then.
    pub fn define(self: &Arc<Self>, tracker: &ResourceTracker, source: &JitDylib, aliases: &[Alias]) -> Result<()> {
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
                precedes_versions: !tracker.dylib().are_calls_entered(),
                stub: Mutex::new(Stub::default()),
            })
        };
        let bindings: Vec<_> = aliases.iter().map(bind).collect();
        let entries = self.make_entries(&bindings)?;
        let start = entries.memory.address(SegmentKind::Code);
        let entry_of = move |index: usize| start.offset((index * host::ENTRY_SIZE) as u64);
        let names: Vec<_> =
            aliases.iter().enumerate().map(|(index, alias)| (alias.name.as_str(), entry_of(index))).collect();
        let (lazy, dylib) = (self.clone(), tracker.dylib());
        self.stubs.create_with(tracker, &names, move |key, stubs| {
            for (index, binding) in bindings.iter().enumerate() {
                let slot = stubs.slot(index).map(Arc::new);
                *binding.stub.lock() = Stub { slot, entry: entry_of(index), pins: Vec::new() };
            }
            lazy.held.record(&dylib, key, entries);
        })
    }

    /// What the entries under a key hold, in constant time.
    pub fn usage(&self, key: ResourceKey) -> MemoryUsage {
        self.held.usage(key)
    }

    /// What the entries of a dylib hold, in constant time.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        self.held.usage_of_dylib(dylib)
    }

    /// Where entries are, for a picture of the memory.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.held.tenants()
    }

    fn make_entries(&self, bindings: &[Arc<Binding>]) -> Result<Entries> {
        let mut plan = SegmentPlan::default();
        let code = (bindings.len() * host::ENTRY_SIZE) as u64;
        plan.segments[SegmentKind::Code.index()] = SegmentRequest { size: code, align: 16, zero_fill: 0 };
        plan.segments[SegmentKind::ReadOnly.index()] = SegmentRequest { size: 8, align: 8, zero_fill: 0 };
        let mut memory = self.memory.allocate(&plan)?;
        let slot = memory.address(SegmentKind::ReadOnly);
        let start = memory.address(SegmentKind::Code);
        memory.working(SegmentKind::ReadOnly).copy_from_slice(&host::call_through_address().value().to_le_bytes());
        let call_through = |binding: &Arc<Binding>| CallThrough::new(binding.clone());
        let call_throughs: Vec<CallThrough> = bindings.iter().map(call_through).collect();
        let code = memory.working(SegmentKind::Code).chunks_exact_mut(host::ENTRY_SIZE);
        for (index, (call_through, entry)) in call_throughs.iter().zip(code).enumerate() {
            let end = start.offset(((index + 1) * host::ENTRY_SIZE) as u64);
            // One window: any of its addresses reaches any other.
            entry.copy_from_slice(&call_through.entry(slot.distance_from(end) as i32));
        }
        Ok(Entries { call_throughs, memory: memory.finalize(Vec::new())? })
    }
}

impl LazyTarget for Binding {
    /// Called by the first caller, and by those that come before it is done: each binds to the same function.
    fn find(&self) -> Result<ExecutorAddr> {
        self.bind().or_else(|error| {
            let (slot, entry) = self.slot();
            // Another caller has bound it meanwhile, or the embedder redirected it: one that came now would go there.
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
            let found = self.source.lookup(&requests, RequiredState::Ready)?.pop();
            let found = found.ok_or_else(|| Error::other("a lookup lost its only result"))?;
            if seeded_bug!("stub_bound_ahead_of_the_dependency") {
                self.redirect(found.address);
            }
            if let Some(symbol) = &found.symbol
                && let Err(error) = self.keep(symbol)
            {
                // Removed since it was found: it may have been defined again.
                if SymbolWatch::of(symbol).is_gone() {
                    continue;
                }
                return Err(error);
            }
            if self.precedes_versions && self.dylib.are_calls_entered() {
                // Before the call goes on: it may come into a version.
                self.dylib.note_late_binding(self.tracker.clone());
            }
            self.redirect(found.address);
            return Ok(found.address);
        }
    }

    fn redirect(&self, target: ExecutorAddr) {
        let (slot, entry) = self.slot();
        if let Some(slot) = slot {
            stubs::bind(&slot, &self.dylib, &self.alias.name, entry, target);
        }
    }

    /// The stub's slot, and what stands there before the name is bound.
    fn slot(&self) -> (Option<Arc<Word>>, ExecutorAddr) {
        let stub = self.stub.lock();
        (stub.slot.clone(), stub.entry)
    }

    /// Has the function stay as long as the stub does.
    fn keep(&self, function: &SymbolRef) -> Result<()> {
        if let Some(pin) = self.tracker.pin() {
            return pin.add_dependency(function);
        }
        // A finaliser calls: the tracker is being reclaimed, and takes no dependency any more.
        match SymbolWatch::of(function).pin() {
            Watched::Ready(pin) => self.stub.lock().pins.push(pin),
            Watched::Unready | Watched::Gone => return Err(Error::other("the function was removed")),
        }
        Ok(())
    }
}

impl ResourceManager for LazyReexports {
    fn remove_resources(&self, _dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        drop(self.held.take(key));
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn transfer_resources(&self, _dylib: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.held.transfer(destination, source);
    }

    fn held_bytes(&self, key: ResourceKey) -> u64 {
        self.usage(key).total()
    }
}

impl fmt::Debug for LazyReexports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lazy re-exports under {} keys", self.held.key_count())
    }
}
