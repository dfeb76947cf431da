//! [`StubManager`]: named functions whose target can be changed while threads call them.
//!
//! ```text
//!   code:  stub i:  endbr64; jmp *slot i(%rip)          data:  slot i: address of the target
//! ```
//!
//! `endbr64` marks the stub as a target of indirect calls, for processors that track those.
//!
//! A redirect is one atomic store into the slot (an exchange, where observers are told): a caller sees the old target or the
//! new one. Stubs and slots made together are one allocation, owned by a key; they go with their tracker, and a stub of the
//! same name can be made again. A stub does not keep its target's code alive.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::base::{ExecutorAddr, Name, SegmentKind};
use crate::error::{Error, ErrorKind, Result};
use crate::layer::{HasMemory, MemoryLedger};
use crate::memory::{Finalized, MemoryManager, MemoryUsage, SegmentPlan, SegmentRequest, Tenant, Word};
use crate::session::{
    Event, JitDylib, MaterializationResponsibility, MaterializationUnit, Pin, RequiredState, ResourceKey,
    ResourceManager, ResourceTracker, SymbolFlags, SymbolRequest,
};
use crate::sync::{Arc, Mutex};

/// Makes and redirects stubs (ORC: `JITLinkRedirectableSymbolManager`). Register it with the session as a
/// [`ResourceManager`].
pub struct StubManager {
    memory: Arc<dyn MemoryManager>,
    held: MemoryLedger<Arc<StubBlock>>,
    /// By dylib and name. A leaf lock.
    by_name: Mutex<FxHashMap<(u64, Name), StubPlace>>,
}

/// A stub's block, and its number in it.
type StubPlace = (Arc<StubBlock>, u64);

struct StubBlock {
    memory: Arc<dyn Finalized>,
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
    /// A manager whose stubs live in `memory`.
    pub fn new(memory: Arc<dyn MemoryManager>) -> Arc<StubManager> {
        Arc::new(StubManager { memory, held: MemoryLedger::new(), by_name: Mutex::new(FxHashMap::default()) })
    }

    /// Defines `(name, target)` stubs under a tracker, ready to be called.
    ///
    /// # Errors
    /// A name that is defined already, a defunct tracker, no memory; no stub is made then.
    pub fn create(self: &Arc<Self>, tracker: &ResourceTracker, stubs: &[(&str, ExecutorAddr)]) -> Result<()> {
        self.create_with(tracker, stubs, |_, _| {})
    }

    /// The same. `record` is called with the key, while the tracker can be neither removed nor transferred, and with the new
    /// stubs, which nobody can have called yet: to put what they lead to under the same key. It must only keep books. If no stub is
    /// made it is dropped.
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
            symbols: stubs.iter().map(|(name, _)| (Name::new(name), flags)).collect(),
            targets: stubs.iter().map(|(_, target)| *target).collect(),
            record: Some(Box::new(record)),
        })?;
        let requests: Vec<_> = stubs.iter().map(|(name, _)| SymbolRequest::required(name)).collect();
        tracker.dylib().lookup(&requests, RequiredState::Ready).map(drop)
    }

    /// Sends callers of a stub to `target` from now on. Calls that are in the old target stay there.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchStub`].
    pub fn redirect(&self, dylib: &JitDylib, name: &str, target: ExecutorAddr) -> Result<()> {
        let stub = self.by_name.lock().get(&(dylib.id(), Name::new(name))).cloned();
        let (block, index) = stub.ok_or_else(|| no_such_stub(dylib, name))?;
        redirect(block.slot(index).as_ref(), dylib, name, target);
        Ok(())
    }

    /// A stub, to be redirected often. Its tracker is held.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchStub`].
    pub(crate) fn find(&self, dylib: &JitDylib, name: &str) -> Result<StubHandle> {
        loop {
            let pinned = dylib.pin(name);
            let place = self.by_name.lock().get(&(dylib.id(), Name::new(name))).cloned();
            let (Some((block, index)), Some((address, pin))) = (place, pinned) else {
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
            // The place of a stub that was made since, after the removal of what is pinned. Or of one that was removed, and is
            // held: then the name is no stub's any more.
            if pin.is_live() {
                return Err(no_such_stub(dylib, name));
            }
        }
    }

    /// For models: what a stub's handle does, once it is found.
    #[cfg(loom)]
    #[doc(hidden)]
    pub fn found_for_models(&self, dylib: &JitDylib, name: &str) -> Result<impl Fn(ExecutorAddr) + Send + use<>> {
        let stub = self.find(dylib, name)?;
        Ok(move |target| stub.redirect(target))
    }

    /// What the stubs under a key hold, in constant time.
    pub fn usage(&self, key: ResourceKey) -> MemoryUsage {
        self.held.usage(key)
    }

    /// What the stubs of a dylib hold, in constant time.
    pub fn usage_of_dylib(&self, dylib: &JitDylib) -> MemoryUsage {
        self.held.usage_of_dylib(dylib)
    }

    /// Where stubs are, for a picture of the memory.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.held.tenants()
    }

    /// Number of stubs.
    pub fn stub_count(&self) -> usize {
        self.by_name.lock().len()
    }

    fn allocate(&self, targets: &[ExecutorAddr]) -> Result<Arc<dyn Finalized>> {
        let mut plan = SegmentPlan::default();
        let count = targets.len() as u64;
        plan.segments[SegmentKind::Code.index()] = SegmentRequest { size: count * STUB, align: STUB, zero_fill: 0 };
        plan.segments[SegmentKind::Data.index()] = SegmentRequest { size: count * SLOT, align: SLOT, zero_fill: 0 };
        let mut memory = self.memory.allocate(&plan)?;
        // One window: any of its addresses reaches any other. A slot is half as large as a stub.
        let mut displacement =
            memory.address(SegmentKind::Data).distance_from(memory.address(SegmentKind::Code).offset(JUMP_END)) as i32;
        for stub in memory.working(SegmentKind::Code).chunks_exact_mut(STUB as usize) {
            let [a, b, c, d] = displacement.to_le_bytes();
            let code = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, a, b, c, d, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];
            stub.copy_from_slice(&code);
            displacement = displacement.wrapping_sub((STUB - SLOT) as i32);
        }
        for (slot, target) in memory.working(SegmentKind::Data).chunks_exact_mut(SLOT as usize).zip(targets) {
            slot.copy_from_slice(&target.value().to_le_bytes());
        }
        memory.finalize(Vec::new()).map(Arc::from)
    }
}

impl StubBlock {
    fn address(&self, index: u64) -> ExecutorAddr {
        self.memory.address(SegmentKind::Code).offset(index * STUB)
    }

    /// Where a stub's target stands; `None` in memory whose code nobody runs.
    fn slot(&self, index: u64) -> Option<Word> {
        Word::new(&self.memory, index * SLOT)
    }
}

/// Stubs that are being made.
pub(crate) struct NewStubs<'a>(&'a StubBlock);

impl NewStubs<'_> {
    /// The slot of the stub at a position; `None` in memory whose code nobody runs.
    pub(crate) fn slot(&self, index: usize) -> Option<Word> {
        self.0.slot(index as u64)
    }
}

/// One stub, with the pin that keeps it.
pub(crate) struct StubHandle {
    slot: Option<Word>,
    dylib: JitDylib,
    name: Name,
    _pin: Pin,
}

impl StubHandle {
    /// Sends callers to `target` from now on.
    #[inline]
    pub(crate) fn redirect(&self, target: ExecutorAddr) {
        redirect(self.slot.as_ref(), &self.dylib, self.name.as_str(), target);
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }
}

#[inline]
fn redirect(slot: Option<&Word>, dylib: &JitDylib, name: &str, target: ExecutorAddr) {
    let Some(slot) = slot else { return };
    match dylib.observers().is_heard() {
        false => slot.store(target.value()),
        true => redirect_and_tell(slot, dylib, name, target),
    }
}

/// Sends callers of a stub from its first target to another, unless it was redirected already.
pub(crate) fn bind(slot: &Word, dylib: &JitDylib, stub: &str, first: ExecutorAddr, target: ExecutorAddr) {
    if slot.replace(first.value(), target.value()) && dylib.observers().is_heard() {
        dylib.observers().tell(&Event::Redirected { dylib, stub, from: first, to: target });
    }
}

#[cold]
fn no_such_stub(dylib: &JitDylib, name: &str) -> Error {
    ErrorKind::NoSuchStub { dylib: dylib.name().to_string(), symbol: name.to_string() }.into()
}

/// Exchanges the slot's word, so that observers can be told where the stub led.
#[cold]
fn redirect_and_tell(slot: &Word, dylib: &JitDylib, stub: &str, to: ExecutorAddr) {
    let from = ExecutorAddr::new(slot.swap(to.value()));
    dylib.observers().tell(&Event::Redirected { dylib, stub, from, to });
}

impl ResourceManager for StubManager {
    fn remove_resources(&self, _dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        for block in self.held.take(key) {
            let mut by_name = self.by_name.lock();
            for name in &block.names {
                let name = (block.dylib, name.clone());
                if by_name.get(&name).is_some_and(|(held, _)| Arc::ptr_eq(held, &block)) {
                    by_name.remove(&name);
                }
            }
        }
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

impl fmt::Debug for StubManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stub manager with {} stubs", self.stub_count())
    }
}

struct StubUnit {
    manager: Arc<StubManager>,
    symbols: Vec<(Name, SymbolFlags)>,
    targets: Vec<ExecutorAddr>,
    record: Option<Record>,
}

/// What else goes under the stubs' key.
type Record = Box<dyn FnOnce(ResourceKey, &NewStubs<'_>) + Send>;

impl StubUnit {
    fn make(&mut self, responsibility: &MaterializationResponsibility) -> Result<()> {
        let memory = self.manager.allocate(&self.targets)?;
        let start = memory.address(SegmentKind::Code);
        let names: Vec<Name> = self.symbols.iter().map(|(name, _)| name.clone()).collect();
        let dylib = responsibility.dylib();
        let block = Arc::new(StubBlock { memory, dylib: dylib.id(), names });
        let index_of = |wanted: &Name| block.names.iter().position(|name| name == wanted).map(|index| index as u64);
        responsibility.notify_resolved(|owed| Some(start.offset(index_of(&owed.name)? * STUB)))?;
        let record = self.record.take();
        responsibility.with_resource_key(|key| {
            if let Some(record) = record {
                record(key, &NewStubs(&block));
            }
            self.manager.held.record(&dylib, key, block.clone());
            let mut by_name = self.manager.by_name.lock();
            for owed in responsibility.symbols() {
                if let Some(index) = index_of(&owed.name) {
                    by_name.insert((block.dylib, owed.name.clone()), (block.clone(), index));
                }
            }
        })
    }
}

impl MaterializationUnit for StubUnit {
    fn name(&self) -> &str {
        "redirectable stubs"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn materialize(mut self: Box<Self>, responsibility: MaterializationResponsibility) {
        match self.make(&responsibility) {
            Ok(()) => drop(responsibility.notify_emitted(Vec::new())),
            Err(error) => responsibility.fail(error),
        }
    }
}

/// Bytes of a stub.
const STUB: u64 = 16;
/// Bytes of a slot.
const SLOT: u64 = 8;
/// `jmp *slot(%rip)` counts from its end.
const JUMP_END: u64 = 10;
