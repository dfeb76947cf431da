//! [`StubManager`]: named functions whose target can change while threads call them.
//!
//! ```text
//!   code:  stub i:  jump to the address in slot i          data:  slot i: address of the target
//! ```
//!
//! A redirect is one atomic store to the slot, or one exchange if there are observers. A caller sees the old target or the new
//! one.
//!
//! Stubs that are made together are one allocation with their slots, recorded under a key. They are freed with their tracker,
//! and their names can be defined again. A stub does not keep the code of its target in memory.
//!
//! A claimed symbol has the index of its stub, and a name is found by its hash. So a stub costs the same in a set of any size.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::arch::Arch;
use crate::base::{ExecutorAddr, Name, SegmentKind, count_step};
use crate::error::{Error, ErrorKind, LinkFault, MemoryFault, Result};
use crate::layer::{HasMemory, MemoryLedger};
use crate::memory::{Finalized, MemoryManager, MemoryUsage, SegmentPlan, SegmentRequest, Tenant, Word};
use crate::session::{
    ClaimedSymbol, Event, ExecutionSession, JitDylib, ManagerRank, MaterializationResponsibility, MaterializationUnit,
    NameSink, Pin, RequiredState, ResourceKey, ResourceManager, ResourceTracker, SymbolFlags, SymbolRequest,
};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering};

/// Makes and redirects stubs (ORC: `JITLinkRedirectableSymbolManager`). [Register](Self::register) it with the session.
pub struct StubManager {
    memory: Arc<dyn MemoryManager>,
    /// That of the process that runs the stubs.
    arch: Arch,
    tables: Arc<StubTables>,
}

/// The stubs by key and by name. It is the manager, so that only the session can call it: `remove_resources` frees stubs.
struct StubTables {
    ledger: MemoryLedger<Arc<StubBlock>>,
    /// A leaf lock: no other lock is taken under it.
    by_name: Mutex<StubsByName>,
    /// Whether the slots are copied to where the code runs ([`Finalized::is_copied`]). Set before a stub has its name. Relaxed: who knows
    /// a stub has its name from under the lock, and sees the flag.
    are_copied: AtomicBool,
}

/// Stubs by dylib, then by name.
#[derive(Default)]
struct StubsByName(FxHashMap<u64, FxHashMap<Name, StubRef>>);

/// A stub: its block and its index there.
type StubRef = (Arc<StubBlock>, u64);

/// Stubs that were made together.
struct StubBlock {
    memory: Arc<dyn Finalized>,
    arch: Arch,
    dylib: u64,
    names: Vec<Name>,
}

impl HasMemory for Arc<StubBlock> {
    fn memory(&self) -> &dyn Finalized {
        &*self.memory
    }

    fn name(&self) -> Arc<str> {
        Arc::from(match &self.names[..] {
            [name] => format!("stub `{name}`"),
            names => format!("{} stubs", names.len()),
        })
    }
}

impl StubManager {
    /// Makes a manager that allocates stubs for this process from `memory`.
    #[cfg(feature = "unstable")]
    pub fn new(memory: Arc<dyn MemoryManager>) -> Arc<StubManager> {
        StubManager::for_arch(memory, Arch::NATIVE)
    }

    /// Makes a manager that allocates stubs for code of an architecture from `memory`.
    pub(crate) fn for_arch(memory: Arc<dyn MemoryManager>, arch: Arch) -> Arc<StubManager> {
        let tables = StubTables {
            ledger: MemoryLedger::new(),
            by_name: Mutex::new(StubsByName::default()),
            are_copied: AtomicBool::new(false),
        };
        Arc::new(StubManager { memory, arch, tables: Arc::new(tables) })
    }

    /// Registers the manager with a session. From now on the session frees the stubs of a tracker when it reclaims the tracker,
    /// after its finalisers have run. A second call does nothing.
    pub fn register(&self, session: &ExecutionSession) {
        session.register_ranked(ManagerRank::Stubs, self.tables.clone());
    }

    /// Defines stubs `(name, target)` under a tracker. They can be called when this returns.
    ///
    /// # Errors
    /// A name is already defined, the tracker is defunct, or there is not enough memory. In these cases no stub is made.
    pub fn create(self: &Arc<Self>, tracker: &ResourceTracker, stubs: &[(&str, ExecutorAddr)]) -> Result<()> {
        self.create_with(tracker, stubs, |_, _| {})
    }

    /// As [`create`](Self::create). `record` gets the key and the new stubs, to record under the same key what the stubs lead
    /// to. It runs before any thread can call the stubs, while the tracker can be neither removed nor transferred. It must only
    /// update tables. If no stub is made, `record` is dropped without a call.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(crate) fn create_with(
        self: &Arc<Self>,
        tracker: &ResourceTracker,
        stubs: &[(&str, ExecutorAddr)],
        record: impl FnOnce(ResourceKey, &NewStubs<'_>) + Send + 'static,
    ) -> Result<()> {
        if stubs.is_empty() {
            return Ok(());
        }
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        tracker.define(StubUnit {
            manager: self.clone(),
            symbols: Name::all_of(stubs.iter().map(|(name, _)| *name)).map(|name| (name, flags)).collect(),
            targets: stubs.iter().map(|(_, target)| *target).collect(),
            record: Some(Box::new(record)),
        })?;
        // The unit makes all its symbols ready in one step.
        let first = SymbolRequest::required(stubs[0].0);
        tracker.dylib_handle().lookup(&[first], RequiredState::Ready).map(drop)
    }

    /// Redirects a stub to `target`. Later calls reach the new target. Running calls stay in the old one.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchStub`].
    pub fn redirect(&self, dylib: &JitDylib, name: &str, target: ExecutorAddr) -> Result<()> {
        if self.tables.store_unobserved(dylib, name, target) {
            return Ok(());
        }
        let stub = self.tables.by_name.lock().get(dylib.id(), name).cloned();
        let (block, index) = stub.ok_or_else(|| no_such_stub(dylib, name))?;
        redirect(block.slot(index).as_ref(), dylib, name, target);
        Ok(())
    }

    /// Finds a stub for repeated redirects. The handle pins the stub's tracker.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchStub`].
    pub(crate) fn find(&self, dylib: &JitDylib, name: &str) -> Result<StubHandle> {
        loop {
            let pinned = dylib.pin(name);
            let stub = self.tables.by_name.lock().get(dylib.id(), name).cloned();
            let (Some((block, index)), Some((address, pin))) = (stub, pinned) else {
                return Err(no_such_stub(dylib, name));
            };
            if block.address(index) == address {
                return Ok(StubHandle {
                    slot: block.slot(index),
                    dylib: dylib.clone(),
                    name: Name::new(name),
                    _pin: pin,
                });
            }
            // The two reads do not match. Either the pinned definition was removed meanwhile and a new stub has the name: try
            // again. Or the table has a removed stub that is still pinned: then the pinned definition is no stub.
            if pin.is_live() {
                return Err(no_such_stub(dylib, name));
            }
        }
    }

    /// For models: returns a function that redirects a stub through its handle.
    #[cfg(loom)]
    #[doc(hidden)]
    pub fn found_for_models(&self, dylib: &JitDylib, name: &str) -> Result<impl Fn(ExecutorAddr) + Send + use<>> {
        let stub = self.find(dylib, name)?;
        Ok(move |target| stub.redirect(target))
    }

    /// Whether a redirect is one store and nothing else, so that it may be made with a lock held: no observer hears of it, and no
    /// message carries it to where the code runs.
    pub(crate) fn redirects_by_store(&self, dylib: &JitDylib) -> bool {
        !dylib.observers().is_active() && !self.tables.are_copied.load(Ordering::Relaxed)
    }

    /// Memory of the stubs under a key, in constant time.
    pub fn usage(&self, key: ResourceKey) -> MemoryUsage {
        self.tables.ledger.usage(key)
    }

    /// Memory of the stubs of a dylib, in constant time.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        self.tables.ledger.usage_of_dylib(dylib)
    }

    /// Where the stubs are, for a map of the memory.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.tables.ledger.tenants()
    }

    /// Number of stubs.
    pub fn stub_count(&self) -> usize {
        self.tables.by_name.lock().len()
    }

    /// Allocates one stub and one slot for each target, and fills them.
    fn allocate(&self, names: &[Name], targets: &[ExecutorAddr]) -> Result<Arc<dyn Finalized>> {
        let mut plan = SegmentPlan::default();
        let (count, stub_size) = (targets.len() as u64, self.arch.redirectable_stub_size());
        let align = 1 << stub_size.trailing_zeros();
        plan.segments[SegmentKind::Code.index()] = SegmentRequest { size: count * stub_size, align, zero_fill: 0 };
        plan.segments[SegmentKind::Data.index()] = SegmentRequest { size: count * SLOT, align: SLOT, zero_fill: 0 };
        let mut memory = self.memory.allocate(&plan)?;
        let (code, data) = (memory.address(SegmentKind::Code), memory.address(SegmentKind::Data));
        let stubs = memory.working(SegmentKind::Code).chunks_exact_mut(stub_size as usize);
        for ((index, stub), name) in (0..).zip(stubs).zip(names) {
            let (place, slot) = (code.offset(index * stub_size), data.offset(index * SLOT));
            let distance = self.arch.slot_distance(place, slot);
            let distance =
                distance.ok_or_else(|| out_of_range("redirectable stubs", place, slot, index * stub_size, name))?;
            self.arch.write_redirectable_stub(stub, place, distance);
        }
        for (slot, target) in memory.working(SegmentKind::Data).chunks_exact_mut(SLOT as usize).zip(targets) {
            slot.copy_from_slice(&target.value().to_le_bytes());
        }
        let memory: Arc<dyn Finalized> = memory.finalize(Vec::new())?.into();
        if memory.is_copied() {
            self.tables.are_copied.store(true, Ordering::Relaxed);
        }
        // Without the word, a redirect would do nothing, and callers would stay in the old target.
        if self.memory.can_run() && memory.word(0).is_none() {
            let problem =
                "the memory manager gives no word of it (`Finalized::word`), so its stubs cannot be redirected";
            let (pool, size) = (SegmentKind::Data.name(), count * SLOT);
            return Err(MemoryFault::BadPlan { pool, size, align: SLOT, problem }.into());
        }
        Ok(memory)
    }
}

impl StubBlock {
    fn address(&self, index: u64) -> ExecutorAddr {
        self.memory.address(SegmentKind::Code).offset(index * self.arch.redirectable_stub_size())
    }

    /// The slot of a stub. `None` in offline memory, whose code never runs.
    fn slot(&self, index: u64) -> Option<Word> {
        Word::new(&self.memory, index * SLOT)
    }
}

/// Stubs that are allocated and not published yet.
pub(crate) struct NewStubs<'a>(&'a StubBlock);

impl NewStubs<'_> {
    /// The slot of the stub at a position. `None` in offline memory, whose code never runs.
    pub(crate) fn slot(&self, index: usize) -> Option<Word> {
        self.0.slot(index as u64)
    }
}

/// One stub, with the pin that keeps it in memory.
pub(crate) struct StubHandle {
    slot: Option<Word>,
    dylib: JitDylib,
    name: Name,
    _pin: Pin,
}

impl StubHandle {
    /// Redirects the stub to `target`.
    #[inline]
    pub(crate) fn redirect(&self, target: ExecutorAddr) {
        redirect(self.slot.as_ref(), &self.dylib, self.name.as_str(), target);
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }
}

/// Redirects the stub of a slot, whether or not the dylib still has its name.
#[inline]
pub(crate) fn redirect(slot: Option<&Word>, dylib: &JitDylib, name: &str, target: ExecutorAddr) {
    let Some(slot) = slot else { return };
    match dylib.observers().is_active() {
        false => slot.store(target.value()),
        true => redirect_observed(slot, dylib, name, target),
    }
}

/// Redirects a stub from its first target to another one. Does nothing if the stub was already redirected.
pub(crate) fn bind(slot: &Word, dylib: &JitDylib, stub: &str, first: ExecutorAddr, target: ExecutorAddr) {
    if slot.replace(first.value(), target.value()) && dylib.observers().is_active() {
        dylib.observers().deliver(&Event::Redirected { dylib, stub, from: first, to: target });
    }
}

/// The error for a stub or a lazy entry at `place` that cannot reach its slot. `owner` and `offset` say where it is.
#[cold]
pub(crate) fn out_of_range(owner: &str, place: ExecutorAddr, slot: ExecutorAddr, offset: u64, symbol: &str) -> Error {
    let fault = LinkFault::slot_out_of_range(place, slot, "code", offset, symbol);
    ErrorKind::Link { object: owner.to_string(), fault }.into()
}

#[cold]
fn no_such_stub(dylib: &JitDylib, name: &str) -> Error {
    ErrorKind::NoSuchStub { dylib: dylib.name().to_string(), symbol: name.to_string() }.into()
}

/// Redirects by an exchange, because the event contains the old target.
#[cold]
fn redirect_observed(slot: &Word, dylib: &JitDylib, stub: &str, to: ExecutorAddr) {
    let from = ExecutorAddr::new(slot.swap(to.value()));
    dylib.observers().deliver(&Event::Redirected { dylib, stub, from, to });
}

impl StubTables {
    /// Redirects a stub if no observer hears of it. The lock keeps the stub's memory meanwhile. Returns whether it did.
    #[inline]
    fn store_unobserved(&self, dylib: &JitDylib, name: &str, target: ExecutorAddr) -> bool {
        if dylib.observers().is_active() {
            return false;
        }
        let by_name = self.by_name.lock();
        let Some((block, index)) = by_name.get(dylib.id(), name) else { return false };
        // What is stored is sent then, and not with a lock held.
        if self.are_copied.load(Ordering::Relaxed) {
            return false;
        }
        block.memory.word(index * SLOT).is_some_and(|slot| {
            // As `Word::store`: pairs with the load of the stub, so code at the new target sees what this thread has written.
            slot.store(target.value(), Ordering::Release);
            true
        })
    }

    /// Calls `edit` for each of `names`. Releases the lock between two batches, so that no other thread waits for long.
    fn edit_names<N>(&self, names: impl Iterator<Item = N>, mut edit: impl FnMut(&mut StubsByName, N)) {
        let mut names = names.peekable();
        while names.peek().is_some() {
            let mut by_name = self.by_name.lock();
            names.by_ref().take(NAME_BATCH).for_each(|name| edit(&mut by_name, name));
        }
    }
}

impl StubsByName {
    #[inline]
    fn get(&self, dylib: u64, name: &str) -> Option<&StubRef> {
        self.0.get(&dylib)?.get(name)
    }

    fn insert(&mut self, name: Name, stub: StubRef) {
        self.0.entry(stub.0.dylib).or_default().insert(name, stub);
    }

    /// Removes a name, unless it is that of another block by now.
    fn remove(&mut self, name: &str, block: &Arc<StubBlock>) {
        let Some(stubs) = self.0.get_mut(&block.dylib) else { return };
        if stubs.get(name).is_some_and(|(found, _)| Arc::ptr_eq(found, block)) {
            stubs.remove(name);
        }
        if stubs.is_empty() {
            self.0.remove(&block.dylib);
        }
    }

    fn len(&self) -> usize {
        self.0.values().map(FxHashMap::len).sum()
    }
}

impl ResourceManager for StubTables {
    fn remove_resources(&self, _dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        for block in self.ledger.take(key) {
            self.edit_names(block.names.iter(), |by_name, name| by_name.remove(name, &block));
        }
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn transfer_resources(&self, _dylib: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.ledger.transfer(destination, source);
    }

    fn held_bytes(&self, key: ResourceKey) -> u64 {
        self.ledger.usage(key).total()
    }
}

impl fmt::Debug for StubManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stub manager with {} stubs", self.stub_count())
    }
}

struct StubUnit {
    manager: Arc<StubManager>,
    symbols: Vec<(Name, SymbolFlags)>,
    targets: Vec<ExecutorAddr>,
    record: Option<RecordFn>,
}

/// Records something else under the key of the stubs.
type RecordFn = Box<dyn FnOnce(ResourceKey, &NewStubs<'_>) + Send>;

impl StubUnit {
    /// Makes the stubs, resolves their symbols and records them.
    fn materialize_stubs(&mut self, responsibility: &MaterializationResponsibility) -> Result<()> {
        let names: Vec<Name> = self.symbols.iter().map(|(name, _)| name.clone()).collect();
        let memory = self.manager.allocate(&names, &self.targets)?;
        let dylib = responsibility.dylib();
        let block = Arc::new(StubBlock { memory, arch: self.manager.arch, dylib: dylib.id(), names });
        responsibility.notify_resolved(|claimed| Some(block.address(index_of(claimed)?)))?;
        let record = self.record.take();
        responsibility.with_resource_key(|key| {
            if let Some(record) = record {
                record(key, &NewStubs(&block));
            }
            self.manager.tables.ledger.record(&dylib, key, block.clone());
            let named = responsibility.symbols().iter().filter_map(|claimed| Some((claimed, index_of(claimed)?)));
            self.manager.tables.edit_names(named, |by_name, (claimed, index)| {
                by_name.insert(claimed.name.clone(), (block.clone(), index));
            });
        })
    }
}

/// The index of the stub of a symbol: its position in the unit.
fn index_of(claimed: &ClaimedSymbol) -> Option<u64> {
    count_step();
    claimed.number.map(u64::from)
}

impl MaterializationUnit for StubUnit {
    fn name(&self) -> &str {
        "redirectable stubs"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn give_names(&mut self, sink: &mut NameSink<'_>) {
        self.symbols.iter().for_each(|(name, _)| sink.push(name.clone()));
    }

    fn materialize(mut self: Box<Self>, responsibility: MaterializationResponsibility) {
        match self.materialize_stubs(&responsibility) {
            Ok(()) => drop(responsibility.notify_emitted(Vec::new())),
            Err(error) => responsibility.fail(error),
        }
    }
}

/// The number of names that are inserted or removed under one lock.
const NAME_BATCH: usize = 128;

/// Size of a slot in bytes.
const SLOT: u64 = 8;
