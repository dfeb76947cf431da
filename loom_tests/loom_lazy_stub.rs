//! Every interleaving of first calls of a lazy function with removing what it leads to, or the lazy function itself; and of
//! redirecting a stub with removing it and making it again.
//!
//! Checks `src/platform/lazy.rs`, `src/platform/stubs.rs` and `src/host/call_through.rs`: a call comes to the function, which stays as
//! long as the stub is held, or goes where the handler says. The code of stubs and entries is read here, and not run.

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

/// Memory by its addresses, as long as it is held.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<BTreeMap<u64, Arc<Bytes>>>>, Arc<Step>);

/// A moment at which another thread may come in.
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

impl MemoryManager for Memory {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        let base = self.0.lock().unwrap().keys().next_back().map_or(SPAN, |last| last + SPAN);
        // Taken at once, so that no other gets it.
        self.0.lock().unwrap().insert(base, Arc::new(Bytes { code: Vec::new(), data: Vec::new() }));
        let segments = SegmentKind::ALL.map(|pool| vec![0; plan.segments[pool.index()].size as usize]);
        Ok(Box::new(Writing { base, segments, memory: self.clone() }))
    }

    fn statistics(&self) -> MemoryStatistics {
        unreachable!("no model asks for it")
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

    /// Where a call through a stub comes to: what the stub's jump and, if it leads there, the entry's code do.
    fn call(&self, stub: ExecutorAddr) -> u64 {
        let target = self.target(stub);
        self.go_on(target)
    }

    /// Where a stub leads.
    fn target(&self, stub: ExecutorAddr) -> u64 {
        // The slot is no loom word.
        self.1.0.fetch_add(1, Ordering::Relaxed);
        self.at(stub.value()).data[0].load(Ordering::Acquire)
    }

    /// Where a call comes to that a stub has led to a target.
    fn go_on(&self, target: u64) -> u64 {
        if target < SPAN {
            return target;
        }
        let entry = self.at(target);
        // endbr64; movabs $number, %r11
        assert_eq!(entry.code[..6], [0xf3, 0x0f, 0x1e, 0xfa, 0x49, 0xbb], "the entry of a lazy function");
        enter_for_models(u64::from_le_bytes(entry.code[6..14].try_into().unwrap())).value()
    }
}

/// `Any`, as batches have it.
fn _is_any(writing: Writing) -> Box<dyn Any> {
    Box::new(writing)
}

struct Lazy {
    scene: Scene,
    memory: Memory,
    code: ResourceTracker,
    names: ResourceTracker,
}

/// Where calls go that cannot be bound.
const ELSEWHERE: u64 = 77;
/// Where the function is.
const FUNCTION: u64 = 1;

/// `lazy` under `names`, which leads to `f` under `code`, which has 1 on the books.
fn lazy() -> Lazy {
    let scene = Scene::new();
    let memory = Memory::default();
    let stubs = StubManager::new(Arc::new(memory.clone()));
    // SAFETY: nothing is run.
    let handler = unsafe { LazyFailureHandler::new(|_| Some(ExecutorAddr::new(ELSEWHERE))) };
    let lazy = LazyReexports::with_handler(Arc::new(memory.clone()), stubs.clone(), handler);
    scene.session.register_manager(lazy.clone());
    scene.session.register_manager(stubs);
    let code = scene.loaded("f", 1);
    let names = scene.main.create_tracker().unwrap();
    let alias = Alias { name: Name::new("lazy"), aliasee: Name::new("f"), flags: SymbolFlags::EXPORTED };
    lazy.define(&names, &scene.main, &[alias]).unwrap();
    Lazy { scene, memory, code, names }
}

impl Lazy {
    /// A handle to the lazy function: its address, and what holds it.
    fn handle(&self) -> (ExecutorAddr, Pin) {
        self.scene.main.pin("lazy").unwrap()
    }

    /// Everything has gone.
    fn is_over(&self) -> bool {
        self.scene.bank.books() == (1, 0) && self.memory.0.lock().unwrap().is_empty()
    }
}

#[test]
fn first_call_versus_removal_of_its_function() {
    // Where the call came to; whether the function is there as long as the stub is held.
    let allowed = [(FUNCTION, true, true), (ELSEWHERE, false, true)];
    explore("first_call_versus_removal_of_its_function", None, 4, allowed, || {
        let lazy = lazy();
        let (stub, pin) = lazy.handle();
        let (memory, code) = (lazy.memory.clone(), lazy.code.clone());
        let caller = thread::spawn(move || memory.call(stub));
        code.remove().unwrap();
        let came_to = caller.join().unwrap();
        let is_there = lazy.scene.bank.given_back().is_empty();
        drop(pin);
        lazy.names.remove().unwrap();
        (came_to, is_there, lazy.is_over())
    });
}

#[test]
fn first_call_versus_removal_of_the_lazy_function() {
    // Bound before or after: its function is held until the handle goes.
    explore("first_call_versus_removal_of_the_lazy_function", None, 4, [(FUNCTION, true, true)], || {
        let lazy = lazy();
        let (stub, pin) = lazy.handle();
        let (memory, names) = (lazy.memory.clone(), lazy.names.clone());
        let remover = thread::spawn(move || drop(names.remove().unwrap()));
        let came_to = memory.call(stub);
        remover.join().unwrap();
        lazy.code.remove().unwrap();
        let is_there = lazy.scene.bank.given_back().is_empty();
        drop(pin);
        (came_to, is_there, lazy.is_over())
    });
}

#[test]
fn two_first_calls_versus_removal_of_their_function() {
    // A call that comes to the function finds it there. One fails, and the other has the function, if it looks after the
    // removal, and ahead of the other's redirect.
    let allowed = [(FUNCTION, FUNCTION, true), (ELSEWHERE, ELSEWHERE, false), (FUNCTION, ELSEWHERE, true)];
    explore("two_first_calls_versus_removal_of_their_function", Some(2), 20, allowed, || {
        let lazy = lazy();
        let (stub, pin) = lazy.handle();
        let call = || {
            let memory = lazy.memory.clone();
            thread::spawn(move || memory.call(stub))
        };
        let callers = [call(), call()];
        lazy.code.remove().unwrap();
        let mut came_to = callers.map(|caller| caller.join().unwrap());
        came_to.sort_unstable();
        let is_there = lazy.scene.bank.given_back().is_empty();
        drop(pin);
        lazy.names.remove().unwrap();
        assert!(lazy.is_over());
        (came_to[0], came_to[1], is_there)
    });
}

#[test]
fn two_first_calls_one_behind_the_other_versus_removal_of_their_function() {
    // The second has read the slot before the first was bound. It comes to where the first came.
    let allowed = [(FUNCTION, FUNCTION), (ELSEWHERE, ELSEWHERE)];
    explore("two_first_calls_one_behind_the_other_versus_removal_of_their_function", None, 4, allowed, || {
        let lazy = lazy();
        let (stub, _pin) = lazy.handle();
        let entry = lazy.memory.target(stub);
        let code = lazy.code.clone();
        let remover = thread::spawn(move || drop(code.remove().unwrap()));
        let came_to = (lazy.memory.call(stub), lazy.memory.go_on(entry));
        remover.join().unwrap();
        came_to
    });
}

#[test]
fn first_call_versus_the_end_of_the_session() {
    let allowed = [(FUNCTION, true, true), (ELSEWHERE, false, true)];
    explore("first_call_versus_the_end_of_the_session", Some(2), 4, allowed, || {
        let lazy = lazy();
        let (stub, pin) = lazy.handle();
        let memory = lazy.memory.clone();
        let caller = thread::spawn(move || memory.call(stub));
        lazy.scene.session.end().unwrap();
        let came_to = caller.join().unwrap();
        let is_there = lazy.scene.bank.given_back().is_empty();
        drop(pin);
        (came_to, is_there, lazy.is_over())
    });
}

#[test]
fn redirect_versus_removal_and_a_new_stub_of_the_name() {
    // What the redirect said, and where the new stub leads: a redirect that comes after it was made is for it.
    let allowed = [("ok", 5), ("ok", 9), ("another error", 5)];
    explore("redirect_versus_removal_and_a_new_stub_of_the_name", None, 4, allowed, || {
        let scene = Scene::new();
        let memory = Memory::default();
        let stubs = StubManager::new(Arc::new(memory.clone()));
        scene.session.register_manager(stubs.clone());
        let (old, new) = (scene.main.create_tracker().unwrap(), scene.main.create_tracker().unwrap());
        stubs.create(&old, &[("stub", ExecutorAddr::new(3))]).unwrap();
        let (main, redirected) = (scene.main.clone(), stubs.clone());
        let redirecter = thread::spawn(move || said(redirected.redirect(&main, "stub", ExecutorAddr::new(9))));
        assert!(old.remove().unwrap().is_complete());
        stubs.create(&new, &[("stub", ExecutorAddr::new(5))]).unwrap();
        let redirected = redirecter.join().unwrap();
        let leads_to = memory.call(scene.main.lookup_address("stub").unwrap());
        assert!(new.remove().unwrap().is_complete());
        assert!(memory.0.lock().unwrap().is_empty() && stubs.stub_count() == 0);
        (redirected, leads_to)
    });
}

#[test]
fn a_pinned_stub_given_back_versus_a_new_stub_of_the_name() {
    // The old one's end takes nothing of the new one's.
    explore("a_pinned_stub_given_back_versus_a_new_stub_of_the_name", None, 4, [("ok", 9, 1)], || {
        let scene = Scene::new();
        let memory = Memory::default();
        let stubs = StubManager::new(Arc::new(memory.clone()));
        scene.session.register_manager(stubs.clone());
        let (old, new) = (scene.main.create_tracker().unwrap(), scene.main.create_tracker().unwrap());
        stubs.create(&old, &[("stub", ExecutorAddr::new(3))]).unwrap();
        let (_, pin) = scene.main.pin("stub").unwrap();
        old.remove().unwrap();
        let dropper = thread::spawn(move || drop(pin));
        stubs.create(&new, &[("stub", ExecutorAddr::new(5))]).unwrap();
        dropper.join().unwrap();
        let redirected = said(stubs.redirect(&scene.main, "stub", ExecutorAddr::new(9)));
        (redirected, memory.call(scene.main.lookup_address("stub").unwrap()), stubs.stub_count())
    });
}

#[test]
fn making_a_stub_versus_removal_of_its_tracker() {
    // Made and gone, or refused: nothing is left of it.
    let allowed = [("ok", 0, true), ("tracker defunct", 0, true), ("failed", 0, true), ("not found", 0, true)];
    explore("making_a_stub_versus_removal_of_its_tracker", None, 4, allowed, || {
        let scene = Scene::new();
        let memory = Memory::default();
        let stubs = StubManager::new(Arc::new(memory.clone()));
        scene.session.register_manager(stubs.clone());
        let tracker = scene.main.create_tracker().unwrap();
        let removed = tracker.clone();
        let remover = thread::spawn(move || drop(removed.remove().unwrap()));
        let made = said(stubs.create(&tracker, &[("stub", ExecutorAddr::new(3))]));
        remover.join().unwrap();
        let is_given_back = memory.0.lock().unwrap().is_empty();
        (made, stubs.stub_count(), is_given_back)
    });
}

#[test]
fn a_stub_that_is_found_versus_removal_and_a_new_stub_of_the_name() {
    // Whether it was found, whether the old one has gone, where the new one leads: a handle is to the stub that it holds.
    let allowed = [(true, false, 5), (true, true, 9), (false, true, 5)];
    explore("a_stub_that_is_found_versus_removal_and_a_new_stub_of_the_name", None, 4, allowed, || {
        let scene = Scene::new();
        let memory = Memory::default();
        let stubs = StubManager::new(Arc::new(memory.clone()));
        scene.session.register_manager(stubs.clone());
        let (old, new) = (scene.main.create_tracker().unwrap(), scene.main.create_tracker().unwrap());
        stubs.create(&old, &[("stub", ExecutorAddr::new(3))]).unwrap();
        let (main, finder) = (scene.main.clone(), stubs.clone());
        let finding = thread::spawn(move || finder.found_for_models(&main, "stub").ok());
        let removal = old.remove().unwrap();
        stubs.create(&new, &[("stub", ExecutorAddr::new(5))]).unwrap();
        let found = finding.join().unwrap();
        let has_gone = removal.is_complete();
        found.iter().for_each(|redirect| redirect(ExecutorAddr::new(9)));
        (found.is_some(), has_gone, memory.call(scene.main.lookup_address("stub").unwrap()))
    });
}

#[test]
fn first_call_versus_a_look_at_the_late_bindings() {
    // Who finds the stub bound finds the binding noted: its callers are not entered. Bound, noted.
    let allowed = [(false, 0), (false, 1), (true, 1)];
    explore("first_call_versus_a_look_at_the_late_bindings", None, 3, allowed, || {
        let lazy = lazy();
        let (stub, _pin) = lazy.handle();
        lazy.scene.session.create_version_dylib("versions").unwrap();
        let memory = lazy.memory.clone();
        let caller = thread::spawn(move || memory.call(stub));
        let is_bound = lazy.memory.target(stub) == FUNCTION;
        let noted = late_binding_count(&lazy.scene.session);
        assert_eq!(caller.join().unwrap(), FUNCTION);
        (is_bound, noted)
    });
}
