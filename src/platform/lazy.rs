//! [`LazyReexports`]: functions that are linked when they are first called.
//!
//! ```text
//!   caller ─► stub: jmp *slot ─► entry (first call only) ─► call-through: look the function up, redirect the slot
//!                       └──────── from then on ──────────────────────────────► the function
//! ```
//!
//! Stubs, entries and resolvers belong to the tracker under which the names are defined, and go with it. Once a name is
//! bound, that tracker keeps the function's tracker, as any code that refers to it does.

use std::fmt;

use crate::base::{ExecutorAddr, Pool};
use crate::error::{Error, Result};
use crate::host::{self, CallThrough};
use crate::layer::{MemoryLedger, Occupant};
use crate::memory::{Finalized, MemoryManager, MemoryUsage, SegmentPlan, SegmentRequest, Tenant};
use crate::platform::stubs::StubManager;
use crate::session::{
    Alias, JitDylib, RequiredState, ResourceKey, ResourceManager, ResourceTracker, SymbolRequest, SymbolWatch, Watched,
};
use crate::sync::{Arc, Mutex};

/// Makes lazy re-exports (ORC: `lazyReexports`). Register it with the session as a [`ResourceManager`], before the
/// stub manager that it uses.
pub struct LazyReexports {
    memory: Arc<dyn MemoryManager>,
    stubs: Arc<StubManager>,
    held: MemoryLedger<Entries>,
}

/// Dropped when no stub leads here any more: the resolvers, then their code.
struct Entries {
    resolvers: Vec<CallThrough>,
    memory: Box<dyn Finalized>,
}

impl Occupant for Entries {
    fn memory(&self) -> &dyn Finalized {
        &*self.memory
    }

    fn name(&self) -> Arc<str> {
        Arc::from(format!("entries of {} lazy functions", self.resolvers.len()))
    }
}

/// One name to bind.
struct Binding {
    stubs: Arc<StubManager>,
    dylib: JitDylib,
    source: JitDylib,
    alias: Alias,
    /// Whether it was made before the session's first version of a patched function: then its callers may not be entered.
    precedes_versions: bool,
    /// The stub's own symbol; filled in once the stub is there.
    stub: Mutex<Option<SymbolWatch>>,
}

impl LazyReexports {
    /// Lazy re-exports by stubs of `stubs`, with entries in `memory`.
    pub fn new(memory: Arc<dyn MemoryManager>, stubs: Arc<StubManager>) -> Arc<LazyReexports> {
        Arc::new(LazyReexports { memory, stubs, held: MemoryLedger::new() })
    }

    /// Defines names under a tracker that stand for functions of `source`, hidden ones included. The functions are
    /// looked up when they are first called; what is not found then ends the process.
    ///
    /// # Errors
    /// A name that is defined already, a defunct tracker, no memory; nothing is defined then.
    pub fn define(&self, tracker: &ResourceTracker, source: &JitDylib, aliases: &[Alias]) -> Result<()> {
        let bind = |alias: &Alias| {
            Arc::new(Binding {
                stubs: self.stubs.clone(),
                dylib: tracker.dylib(),
                source: source.clone(),
                alias: alias.clone(),
                precedes_versions: !tracker.dylib().are_calls_entered(),
                stub: Mutex::new(None),
            })
        };
        let bindings: Vec<_> = aliases.iter().map(bind).collect();
        let entries = self.make_entries(&bindings)?;
        let start = entries.memory.address(Pool::Code);
        let entry_of = |index: usize| start.offset((index * host::ENTRY_SIZE) as u64);
        let names: Vec<_> =
            aliases.iter().enumerate().map(|(index, alias)| (alias.name.as_str(), entry_of(index))).collect();
        self.stubs.create(tracker, &names)?;
        let requests: Vec<_> = aliases.iter().map(|alias| SymbolRequest::required(&alias.name)).collect();
        let stubs = tracker.dylib().lookup(&requests, RequiredState::Ready)?;
        for (binding, stub) in bindings.iter().zip(stubs) {
            *binding.stub.lock() = stub.symbol.map(|symbol| symbol.watch());
        }
        let dylib = tracker.dylib();
        tracker.with_resource_key(move |key| self.held.record(&dylib, key, entries))
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
        plan.segments[Pool::Code.index()] = SegmentRequest { size: code, align: 16, zero_fill: 0 };
        plan.segments[Pool::ReadOnly.index()] = SegmentRequest { size: 8, align: 8, zero_fill: 0 };
        let mut memory = self.memory.allocate(&plan)?;
        let slot = memory.address(Pool::ReadOnly);
        let start = memory.address(Pool::Code);
        memory.working(Pool::ReadOnly).copy_from_slice(&host::call_through_address().value().to_le_bytes());
        let resolver = |binding: &Arc<Binding>| {
            let binding = binding.clone();
            CallThrough::new(move || binding.bind())
        };
        let resolvers: Vec<CallThrough> = bindings.iter().map(resolver).collect();
        let code = memory.working(Pool::Code).chunks_exact_mut(host::ENTRY_SIZE);
        for (index, (resolver, entry)) in resolvers.iter().zip(code).enumerate() {
            let end = start.offset(((index + 1) * host::ENTRY_SIZE) as u64);
            // One window: any of its addresses reaches any other.
            entry.copy_from_slice(&resolver.entry(slot.distance_from(end) as i32));
        }
        Ok(Entries { resolvers, memory: memory.finalize(Vec::new())? })
    }
}

impl Binding {
    /// Called by the first caller, and by those that come before it is done: each binds to the same function.
    fn bind(&self) -> Result<ExecutorAddr> {
        let requests = [SymbolRequest::required(&self.alias.aliasee)];
        let found = self.source.lookup(&requests, RequiredState::Ready)?.pop();
        let found = found.ok_or_else(|| Error::other("a lookup lost its only result"))?;
        let stub = self.stub.lock().clone();
        if self.precedes_versions && self.dylib.are_calls_entered() {
            // Before the call goes on: it may come into a version.
            stub.iter().for_each(|stub| self.dylib.note_late_binding(stub.clone()));
        }
        if let (Some(symbol), Some(stub)) = (&found.symbol, stub)
            && let Watched::Ready(pin) = stub.pin()
        {
            pin.add_dependency(symbol)?;
        }
        self.stubs.redirect(&self.dylib, &self.alias.name, found.address)?;
        Ok(found.address)
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
