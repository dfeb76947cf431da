//! Model: first calls of a lazy function race with removal of its target or of the lazy function, and a redirect of a
//! stub races with removal and a new stub of the same name.
//!
//! Runs `src/platform/lazy.rs`, `src/platform/stubs.rs` and `src/host/call_through.rs`. A call reaches the target, which
//! stays as long as the stub is held, or the address that the failure handler returns. The model reads the code of stubs
//! and entries and does not run it.
//!
//! Seeded bug: `stub_bound_ahead_of_the_dependency`.

#![cfg(loom)]

mod support;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name, SegmentKind};
use jittison::error::Result;
use jittison::host::{LazyFailureHandler, enter_for_models};
use jittison::memory::*;
use jittison::platform::{LazyReexports, StubManager};
use jittison::session::*;
use loom::thread;
use support::*;

/// Allocations by their base address, as long as they live.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<BTreeMap<u64, Arc<Bytes>>>>, Arc<Step>);

/// A loom access, at which another thread may run.
struct Step(loom::sync::atomic::AtomicUsize);

impl Default for Step {
    fn default() -> Step {
        Step(loom::sync::atomic::AtomicUsize::new(0))
    }
}

struct Bytes {
    code: Vec<u8>,
    data: Vec<AtomicU64>,
}

struct Writing {
    base: u64,
    segments: [Vec<u8>; 3],
    memory: Memory,
}

struct Written {
    base: u64,
    bytes: Arc<Bytes>,
    memory: Memory,
}

const SPAN: u64 = 0x1_0000;

fn segment(base: u64, pool: SegmentKind) -> ExecutorAddr {
    ExecutorAddr::new(base + pool.index() as u64 * 0x1000)
}

// SAFETY: nothing runs this memory. Each allocation owns its bytes, and no two have the same addresses.
unsafe impl MemoryManager for Memory {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        let base = self.0.lock().unwrap().keys().next_back().map_or(SPAN, |last| last + SPAN);
        // Reserved at once, so that no other allocation gets this base.
        self.0.lock().unwrap().insert(base, Arc::new(Bytes { code: Vec::new(), data: Vec::new() }));
        let segments = SegmentKind::ALL.map(|pool| vec![0; plan.segments[pool.index()].size as usize]);
        Ok(Box::new(Writing { base, segments, memory: self.clone() }))
    }

    fn statistics(&self) -> MemoryStatistics {
        unreachable!("no model reads the statistics")
    }
}

impl InFlight for Writing {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        segment(self.base, pool)
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        &mut self.segments[pool.index()]
    }

    fn finalize(self: Box<Self>, _: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        let Writing { base, mut segments, memory } = *self;
        let word = |bytes: &[u8]| AtomicU64::new(u64::from_le_bytes(bytes.try_into().unwrap()));
        let data = segments[SegmentKind::Data.index()].chunks_exact(8).map(word).collect();
        let bytes = Arc::new(Bytes { code: std::mem::take(&mut segments[SegmentKind::Code.index()]), data });
        memory.0.lock().unwrap().insert(base, bytes.clone());
        Ok(Box::new(Written { base, bytes, memory }))
    }
}

impl Finalized for Written {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        segment(self.base, pool)
    }

    fn usage(&self) -> MemoryUsage {
        MemoryUsage { allocations: 1, ..MemoryUsage::default() }
    }

    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.bytes.data.get(offset as usize / 8)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.memory.0.lock().unwrap().remove(&self.base);
    }
}

impl Memory {
    fn at(&self, address: u64) -> Arc<Bytes> {
        let held = self.0.lock().unwrap();
        let (_, bytes) = held.range(..=address).next_back().filter(|(base, _)| address - *base < SPAN).unwrap();
        bytes.clone()
    }

    /// The address that a call through a stub reaches. Does what the stub's jump does, and the lazy entry if the stub leads there.
    fn call(&self, stub: ExecutorAddr) -> u64 {
        let target = self.target(stub);
        self.follow(target)
    }

    /// The target of a stub.
    fn target(&self, stub: ExecutorAddr) -> u64 {
        // The slot is not a loom atomic. This access lets another thread run before the read.
        self.1.0.fetch_add(1, Ordering::Relaxed);
        self.at(stub.value()).data[0].load(Ordering::Acquire)
    }

    /// The address that a call reaches after a stub has jumped to `target`.
    fn follow(&self, target: u64) -> u64 {
        if target < SPAN {
            return target;
        }
        let entry = self.at(target);
        // endbr64; movabs $number, %r11
        assert_eq!(entry.code[..6], [0xf3, 0x0f, 0x1e, 0xfa, 0x49, 0xbb], "not the entry of a lazy function");
        enter_for_models(u64::from_le_bytes(entry.code[6..14].try_into().unwrap())).value()
    }
}

/// Batches need `Any`.
fn _is_any(writing: Writing) -> Box<dyn Any> {
    Box::new(writing)
}

struct Lazy {
    fixture: Fixture,
    memory: Memory,
    code: ResourceTracker,
    names: ResourceTracker,
}

/// The address that the failure handler returns.
const FALLBACK: u64 = 77;
/// The address of the function.
const FUNCTION: u64 = 1;

/// The lazy function `lazy`, under `names`, leads to `f`, under `code`, which has resource 1.
fn lazy() -> Lazy {
    let fixture = Fixture::new();
    let memory = Memory::default();
    let stubs = StubManager::new(Arc::new(memory.clone()));
    // SAFETY: nothing is run.
    let handler = unsafe { LazyFailureHandler::new(|_| Some(ExecutorAddr::new(FALLBACK))) };
    let lazy = LazyReexports::with_handler(Arc::new(memory.clone()), stubs.clone(), handler);
    lazy.register(&fixture.session);
    stubs.register(&fixture.session);
    let code = fixture.loaded("f", 1);
    let names = fixture.main.create_tracker().unwrap();
    let alias = Alias { name: Name::new("lazy"), aliasee: Name::new("f"), flags: SymbolFlags::EXPORTED };
    lazy.define(&names, &fixture.main, &[alias]).unwrap();
    Lazy { fixture, memory, code, names }
}

impl Lazy {
    /// The address of the lazy function, and a pin that holds it.
    fn handle(&self) -> (ExecutorAddr, Pin) {
        self.fixture.main.pin("lazy").unwrap()
    }

    /// Whether everything is freed.
    fn is_freed(&self) -> bool {
        self.fixture.manager.counts() == (1, 0) && self.memory.0.lock().unwrap().is_empty()
    }
}

#[test]
fn first_call_versus_removal_of_its_function() {
    // The address that the call reached; whether the function stays as long as the stub is held; everything freed at the end.
    let allowed = [(FUNCTION, true, true), (FALLBACK, false, true)];
    explore("first_call_versus_removal_of_its_function", None, 4, allowed, || {
        let lazy = lazy();
        let (stub, pin) = lazy.handle();
        let (memory, code) = (lazy.memory.clone(), lazy.code.clone());
        let caller = thread::spawn(move || memory.call(stub));
        code.remove().unwrap();
        let reached = caller.join().unwrap();
        let is_live = lazy.fixture.manager.freed().is_empty();
        drop(pin);
        lazy.names.remove().unwrap();
        (reached, is_live, lazy.is_freed())
    });
}

#[test]
fn first_call_versus_removal_of_the_lazy_function() {
    // In both orders the function is held until the handle is dropped.
    explore("first_call_versus_removal_of_the_lazy_function", None, 4, [(FUNCTION, true, true)], || {
        let lazy = lazy();
        let (stub, pin) = lazy.handle();
        let (memory, names) = (lazy.memory.clone(), lazy.names.clone());
        let remover = thread::spawn(move || drop(names.remove().unwrap()));
        let reached = memory.call(stub);
        remover.join().unwrap();
        lazy.code.remove().unwrap();
        let is_live = lazy.fixture.manager.freed().is_empty();
        drop(pin);
        (reached, is_live, lazy.is_freed())
    });
}

#[test]
fn two_first_calls_versus_removal_of_their_function() {
    // A call that reaches the function finds it live. One call may fail while the other reaches the function: the failing one
    // looks after the removal and before the other's redirect.
    let allowed = [(FUNCTION, FUNCTION, true), (FALLBACK, FALLBACK, false), (FUNCTION, FALLBACK, true)];
    explore("two_first_calls_versus_removal_of_their_function", Some(2), 20, allowed, || {
        let lazy = lazy();
        let (stub, pin) = lazy.handle();
        let call = || {
            let memory = lazy.memory.clone();
            thread::spawn(move || memory.call(stub))
        };
        let callers = [call(), call()];
        lazy.code.remove().unwrap();
        let mut reached = callers.map(|caller| caller.join().unwrap());
        reached.sort_unstable();
        let is_live = lazy.fixture.manager.freed().is_empty();
        drop(pin);
        lazy.names.remove().unwrap();
        assert!(lazy.is_freed());
        (reached[0], reached[1], is_live)
    });
}

#[test]
fn two_first_calls_in_sequence_versus_removal_of_their_function() {
    // The second call has read the slot before the first was bound. Both reach the same address.
    let allowed = [(FUNCTION, FUNCTION), (FALLBACK, FALLBACK)];
    explore("two_first_calls_in_sequence_versus_removal_of_their_function", None, 4, allowed, || {
        let lazy = lazy();
        let (stub, _pin) = lazy.handle();
        let entry = lazy.memory.target(stub);
        let code = lazy.code.clone();
        let remover = thread::spawn(move || drop(code.remove().unwrap()));
        let reached = (lazy.memory.call(stub), lazy.memory.follow(entry));
        remover.join().unwrap();
        reached
    });
}

#[test]
fn first_call_versus_the_end_of_the_session() {
    let allowed = [(FUNCTION, true, true), (FALLBACK, false, true)];
    explore("first_call_versus_the_end_of_the_session", Some(2), 4, allowed, || {
        let lazy = lazy();
        let (stub, pin) = lazy.handle();
        let memory = lazy.memory.clone();
        let caller = thread::spawn(move || memory.call(stub));
        lazy.fixture.session.end().unwrap();
        let reached = caller.join().unwrap();
        let is_live = lazy.fixture.manager.freed().is_empty();
        drop(pin);
        (reached, is_live, lazy.is_freed())
    });
}

#[test]
fn redirect_versus_removal_and_a_new_stub_of_the_name() {
    // The outcome of the redirect, and the target of the new stub. A redirect after the new stub was made is for that stub.
    let allowed = [("ok", 5), ("ok", 9), ("another error", 5)];
    explore("redirect_versus_removal_and_a_new_stub_of_the_name", None, 4, allowed, || {
        let fixture = Fixture::new();
        let memory = Memory::default();
        let stubs = StubManager::new(Arc::new(memory.clone()));
        stubs.register(&fixture.session);
        let (old, new) = (fixture.main.create_tracker().unwrap(), fixture.main.create_tracker().unwrap());
        stubs.create(&old, &[("stub", ExecutorAddr::new(3))]).unwrap();
        let (main, redirected) = (fixture.main.clone(), stubs.clone());
        let redirecter = thread::spawn(move || describe(redirected.redirect(&main, "stub", ExecutorAddr::new(9))));
        assert!(old.remove().unwrap().is_complete());
        stubs.create(&new, &[("stub", ExecutorAddr::new(5))]).unwrap();
        let redirected = redirecter.join().unwrap();
        let target = memory.call(fixture.main.lookup_address("stub").unwrap());
        assert!(new.remove().unwrap().is_complete());
        assert!(memory.0.lock().unwrap().is_empty() && stubs.stub_count() == 0);
        (redirected, target)
    });
}

#[test]
fn release_of_a_pinned_stub_versus_a_new_stub_of_the_name() {
    // Release of the old stub leaves the new stub.
    explore("release_of_a_pinned_stub_versus_a_new_stub_of_the_name", None, 4, [("ok", 9, 1)], || {
        let fixture = Fixture::new();
        let memory = Memory::default();
        let stubs = StubManager::new(Arc::new(memory.clone()));
        stubs.register(&fixture.session);
        let (old, new) = (fixture.main.create_tracker().unwrap(), fixture.main.create_tracker().unwrap());
        stubs.create(&old, &[("stub", ExecutorAddr::new(3))]).unwrap();
        let (_, pin) = fixture.main.pin("stub").unwrap();
        old.remove().unwrap();
        let dropper = thread::spawn(move || drop(pin));
        stubs.create(&new, &[("stub", ExecutorAddr::new(5))]).unwrap();
        dropper.join().unwrap();
        let redirected = describe(stubs.redirect(&fixture.main, "stub", ExecutorAddr::new(9)));
        (redirected, memory.call(fixture.main.lookup_address("stub").unwrap()), stubs.stub_count())
    });
}

#[test]
fn making_a_stub_versus_removal_of_its_tracker() {
    // Made and freed, or refused. Nothing stays.
    let allowed = [("ok", 0, true), ("tracker defunct", 0, true), ("failed", 0, true), ("not found", 0, true)];
    explore("making_a_stub_versus_removal_of_its_tracker", None, 4, allowed, || {
        let fixture = Fixture::new();
        let memory = Memory::default();
        let stubs = StubManager::new(Arc::new(memory.clone()));
        stubs.register(&fixture.session);
        let tracker = fixture.main.create_tracker().unwrap();
        let removed = tracker.clone();
        let remover = thread::spawn(move || drop(removed.remove().unwrap()));
        let made = describe(stubs.create(&tracker, &[("stub", ExecutorAddr::new(3))]));
        remover.join().unwrap();
        let is_freed = memory.0.lock().unwrap().is_empty();
        (made, stubs.stub_count(), is_freed)
    });
}

#[test]
fn handle_of_a_stub_versus_removal_and_a_new_stub_of_the_name() {
    // Found; the old stub is freed; target of the new stub. A handle redirects the stub that it holds.
    let allowed = [(true, false, 5), (true, true, 9), (false, true, 5)];
    explore("handle_of_a_stub_versus_removal_and_a_new_stub_of_the_name", None, 4, allowed, || {
        let fixture = Fixture::new();
        let memory = Memory::default();
        let stubs = StubManager::new(Arc::new(memory.clone()));
        stubs.register(&fixture.session);
        let (old, new) = (fixture.main.create_tracker().unwrap(), fixture.main.create_tracker().unwrap());
        stubs.create(&old, &[("stub", ExecutorAddr::new(3))]).unwrap();
        let (main, finder) = (fixture.main.clone(), stubs.clone());
        let finding = thread::spawn(move || finder.found_for_models(&main, "stub").ok());
        let removal = old.remove().unwrap();
        stubs.create(&new, &[("stub", ExecutorAddr::new(5))]).unwrap();
        let found = finding.join().unwrap();
        let is_freed = removal.is_complete();
        found.iter().for_each(|redirect| redirect(ExecutorAddr::new(9)));
        (found.is_some(), is_freed, memory.call(fixture.main.lookup_address("stub").unwrap()))
    });
}

#[test]
fn first_call_versus_a_read_of_the_late_bindings() {
    // Whether the stub is bound; number of recorded bindings. A bound stub has its binding recorded, because the
    // callers of the stub enter no call.
    let allowed = [(false, 0), (false, 1), (true, 1)];
    explore("first_call_versus_a_read_of_the_late_bindings", None, 3, allowed, || {
        let lazy = lazy();
        let (stub, _pin) = lazy.handle();
        lazy.fixture.session.create_version_dylib("versions").unwrap();
        let memory = lazy.memory.clone();
        let caller = thread::spawn(move || memory.call(stub));
        let is_bound = lazy.memory.target(stub) == FUNCTION;
        let recorded = late_binding_count(&lazy.fixture.session);
        assert_eq!(caller.join().unwrap(), FUNCTION);
        (is_bound, recorded)
    });
}
