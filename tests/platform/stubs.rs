//! Redirectable stubs: functions whose target can change while they are called.

use std::sync::atomic::{AtomicBool, Ordering};

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::error::{ErrorKind, MemoryFault};
use jittison::memory::{Finalized, Frame, InFlight, MemoryManager, MemoryUsage, SegmentPlan, SlabPool};
use jittison::platform::StubManager;
use jittison::{Error, Jit, JitDylib, MemoryStatistics};

use crate::support::*;

extern "C" fn forty_two() -> i64 {
    42
}
extern "C" fn thirteen() -> i64 {
    13
}
extern "C" fn fifty_three() -> i64 {
    53
}

fn address(jit: &Jit, function: extern "C" fn() -> i64) -> ExecutorAddr {
    function_address(jit, function)
}

fn redirect(jit: &Jit, dylib: &JitDylib, function: extern "C" fn() -> i64) -> Result<(), Error> {
    redirect_in(jit, dylib, "stub", function)
}

fn redirect_in_main(jit: &Jit, stub: &str, function: extern "C" fn() -> i64) -> Result<(), Error> {
    redirect_in(jit, jit.main_dylib(), stub, function)
}

fn redirect_in(jit: &Jit, dylib: &JitDylib, stub: &str, function: extern "C" fn() -> i64) -> Result<(), Error> {
    // SAFETY: functions of this program, with the signature that the stub's callers use.
    unsafe { jit.redirect_stub(dylib, stub, address(jit, function)) }
}

fn is_no_stub(result: Result<(), Error>) -> bool {
    matches!(result.unwrap_err().kind(), ErrorKind::NoSuchStub { .. })
}

#[test]
fn callers_of_a_stub_reach_its_current_target() {
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.create_stub(&tracker, "stub", address(&jit, forty_two)).unwrap();
    let stub = function::<extern "C" fn() -> i64>(&jit, "stub");
    assert_eq!(stub.call(), 42);
    redirect(&jit, jit.main_dylib(), thirteen).unwrap();
    assert_eq!(stub.call(), 13);
    redirect(&jit, jit.main_dylib(), fifty_three).unwrap();
    assert_eq!(stub.call(), 53);
    assert_ne!(stub.address(), address(&jit, fifty_three));
}

#[test]
fn linked_code_calls_a_stub_by_name_and_follows_its_redirects() {
    let (Some(caller), Some(target)) = (
        c(
            "extern long stub(void); long (*const pointer)(void) = stub; long test(void) { return stub() * 100 + pointer(); }",
        ),
        c("long first(void) { return 1; } long second(void) { return 2; }"),
    ) else {
        return;
    };
    let jit = new_jit();
    let targets = add(&jit, jit.main_dylib(), "targets.o", &target);
    let at = |name| jit.address_of(jit.main_dylib(), name).unwrap();
    let stubs = jit.main_dylib().create_tracker().unwrap();
    jit.create_stub(&stubs, "stub", at("first")).unwrap();
    let calling = add(&jit, jit.main_dylib(), "caller.o", &caller);
    assert_eq!(long(&jit, "test"), 101);
    // SAFETY: a function with the same signature, which its tracker keeps.
    unsafe { jit.redirect_stub(jit.main_dylib(), "stub", at("second")) }.unwrap();
    assert_eq!(long(&jit, "test"), 202);
    // The caller's code refers to the stub, so it keeps the stub.
    let removal = stubs.remove().unwrap();
    assert_eq!(removal.blockers(), (0, 1));
    assert!(calling.remove().unwrap().is_complete());
    assert!(removal.is_complete());
    assert!(targets.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn stubs_are_removed_with_their_tracker_and_can_be_created_again() {
    let jit = new_jit();
    for round in 0..100 {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        jit.create_stub(&tracker, "stub", address(&jit, if round % 2 == 0 { forty_two } else { thirteen })).unwrap();
        assert_eq!(long(&jit, "stub"), if round % 2 == 0 { 42 } else { 13 });
        redirect(&jit, jit.main_dylib(), fifty_three).unwrap();
        assert_eq!(long(&jit, "stub"), 53);
        assert_eq!(held(&jit).0, 1);
        assert!(tracker.remove().unwrap().is_complete());
        assert!(is_no_stub(redirect(&jit, jit.main_dylib(), thirteen)));
        assert!(jit.address_of(jit.main_dylib(), "stub").is_err());
        assert_eq!((held(&jit), jit.main_dylib().symbol_count()), ((0, 0, 0), 0));
    }
}

#[test]
fn a_stub_belongs_to_one_dylib_and_moves_with_its_tracker() {
    let jit = new_jit();
    let [a, b] = ["a", "b"].map(|name| jit.create_dylib(name).unwrap());
    let (first, second) = (a.create_tracker().unwrap(), a.create_tracker().unwrap());
    let other = b.create_tracker().unwrap();
    jit.create_stub(&first, "stub", address(&jit, forty_two)).unwrap();
    jit.create_stub(&other, "stub", address(&jit, forty_two)).unwrap();
    redirect(&jit, &a, thirteen).unwrap();
    assert_eq!((long_in(&jit, &a, "stub"), long_in(&jit, &b, "stub")), (13, 42));
    first.transfer_to(&second).unwrap();
    redirect(&jit, &a, fifty_three).unwrap();
    assert_eq!(long_in(&jit, &a, "stub"), 53);
    assert!(second.remove().unwrap().is_complete());
    assert!(is_no_stub(redirect(&jit, &a, forty_two)));
    redirect(&jit, &b, thirteen).unwrap();
    assert_eq!(long_in(&jit, &b, "stub"), 13);
}

#[test]
fn a_stub_with_a_duplicate_name_is_refused_and_changes_nothing() {
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.create_stub(&tracker, "stub", address(&jit, forty_two)).unwrap();
    let again = jit.main_dylib().create_tracker().unwrap();
    let error = jit.create_stub(&again, "stub", address(&jit, thirteen)).unwrap_err();
    assert_says(&error, &["duplicate definition of `stub`", "redirectable stubs"]);
    assert_eq!((long(&jit, "stub"), held(&jit).0), (42, 1));
    assert!(tracker.remove().unwrap().is_complete());
    assert!(jit.create_stub(&tracker, "stub", address(&jit, forty_two)).is_err(), "a defunct tracker");
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn redirecting_a_symbol_that_is_no_stub_is_an_error() {
    let Some(object) = c("long stub(void) { return 1; }") else { return };
    let jit = new_jit();
    assert!(is_no_stub(redirect(&jit, jit.main_dylib(), thirteen)));
    let _tracker = add(&jit, jit.main_dylib(), "object.o", &object);
    assert!(is_no_stub(redirect(&jit, jit.main_dylib(), thirteen)));
    assert_eq!(long(&jit, "stub"), 1);
}

#[test]
fn many_stubs_of_one_tracker_are_redirected_independently() {
    let jit = new_jit();
    let manager = StubManager::new(jit.layer().memory().clone());
    manager.register(jit.session());
    let names: Vec<String> = (0..500).map(|i| format!("stub{i}")).collect();
    let targets = [forty_two as extern "C" fn() -> i64, thirteen, fifty_three];
    let stubs: Vec<_> = names.iter().enumerate().map(|(i, name)| (&name[..], address(&jit, targets[i % 3]))).collect();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    manager.create(&tracker, &stubs).unwrap();
    assert_eq!((manager.stub_count(), held(&jit).0), (500, 1));
    manager.redirect(jit.main_dylib(), "stub250", address(&jit, forty_two)).unwrap();
    for (i, name) in names.iter().enumerate() {
        let expected = if i == 250 { 42 } else { [42, 13, 53][i % 3] };
        assert_eq!(long(&jit, name), expected);
    }
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!((manager.stub_count(), held(&jit)), (0, (0, 0, 0)));
}

#[test]
fn stubs_created_together_take_no_more_than_their_instructions_and_8_bytes_of_data_each() {
    let stub = if cfg!(target_arch = "x86_64") { 16 } else { 24 };
    let jit = new_jit();
    let names: Vec<String> = (0..512).map(|i| format!("stub{i}")).collect();
    let stubs: Vec<_> = names.iter().map(|name| (&name[..], address(&jit, forty_two))).collect();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.create_stubs(&tracker, &stubs).unwrap();
    let usage = jit.usage(&tracker);
    assert_eq!((usage.allocations, usage.code, usage.data), (1, 512 * stub, 512 * 8));
    // In addition the frame table has an 8-byte slot for each 64 bytes of code.
    assert_eq!(usage.reserved, 512 * (stub + 8) + 512 * stub / 8);
    let at = |name: &str| jit.address_of(jit.main_dylib(), name).unwrap().value();
    let start = at("stub0");
    names.iter().enumerate().for_each(|(i, name)| assert_eq!(at(name), start + stub * i as u64));
    // A single stub shares its page, too: it takes one granule of code and one of data.
    let single = jit.main_dylib().create_tracker().unwrap();
    jit.create_stub(&single, "single", address(&jit, thirteen)).unwrap();
    assert_eq!(jit.usage(&single).reserved, 64 + 16 + 8);
    assert_eq!((long(&jit, "single"), long(&jit, "stub511")), (13, 42));
}

#[test]
fn the_memory_of_removed_stubs_is_reused() {
    let jit = new_jit();
    let kept = jit.main_dylib().create_tracker().unwrap();
    jit.create_stub(&kept, "kept", address(&jit, forty_two)).unwrap();
    let thirteen = address(&jit, thirteen);
    let make = |round: u64| {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let names: Vec<String> = (0..1 + round % 20).map(|i| format!("stub{i}")).collect();
        let stubs: Vec<_> = names.iter().map(|name| (&name[..], thirteen)).collect();
        jit.create_stubs(&tracker, &stubs).unwrap();
        (tracker, jit.address_of(jit.main_dylib(), "stub0").unwrap())
    };
    let mut addresses = std::collections::BTreeSet::new();
    for round in 0..10_000 {
        let (tracker, address) = make(round);
        addresses.insert(address);
        redirect_in_main(&jit, "stub0", fifty_three).unwrap();
        assert!(tracker.remove().unwrap().is_complete());
    }
    assert!(addresses.len() < 40, "{} addresses", addresses.len());
    let statistics = jit.memory_statistics();
    assert_eq!((held(&jit).0, long(&jit, "kept")), (1, 42));
    let opened = statistics.pools[SegmentKind::Code.index()].opened;
    assert!(opened <= 2 << 20, "one slab is enough: {opened} bytes");
}

#[test]
fn a_stub_can_be_redirected_while_threads_call_it() {
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.create_stub(&tracker, "stub", address(&jit, forty_two)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let stub = function::<extern "C" fn() -> i64>(&jit, "stub");
                let stop = &stop;
                scope.spawn(move || {
                    let mut calls = 0u64;
                    while !stop.load(Ordering::Relaxed) || calls < 10_000 {
                        assert!([42, 13, 53].contains(&stub.call()));
                        calls += 1;
                    }
                    stub.call()
                })
            })
            .collect();
        for round in 0..100_000 {
            redirect(&jit, jit.main_dylib(), [thirteen, fifty_three, forty_two][round % 3]).unwrap();
        }
        redirect(&jit, jit.main_dylib(), fifty_three).unwrap();
        stop.store(true, Ordering::Release);
        for caller in callers {
            assert!([42, 13, 53].contains(&caller.join().unwrap()));
        }
    });
    assert_eq!(long(&jit, "stub"), 53);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_stub_handle_redirects_without_a_name_and_pins_its_tracker() {
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.create_stubs(&tracker, &[("other", address(&jit, fifty_three)), ("stub", address(&jit, forty_two))]).unwrap();
    let callers = function::<extern "C" fn() -> i64>(&jit, "stub");
    let stub = jit.stub(jit.main_dylib(), "stub").unwrap();
    // SAFETY: a function of this program, with the signature that the stub's callers use.
    unsafe { stub.redirect(address(&jit, thirteen)) };
    assert_eq!(callers.call(), 13);
    assert_eq!(function::<extern "C" fn() -> i64>(&jit, "other").call(), 53, "the other stub does not change");
    let removal = tracker.remove().unwrap();
    drop(callers);
    assert_eq!(removal.blockers(), (1, 0));
    // SAFETY: as above.
    unsafe { stub.redirect(address(&jit, forty_two)) };
    assert!(matches!(jit.stub(jit.main_dylib(), "stub").unwrap_err().kind(), ErrorKind::NoSuchStub { .. }));
    drop(stub);
    assert!(removal.is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

/// Gives no words of its memory, against the contract of `MemoryManager`.
struct Wordless(SlabPool);
struct WordlessInFlight(Box<dyn InFlight>);
struct WordlessFinalized(Box<dyn Finalized>);

// SAFETY: the pool makes all allocations. Without words, this crate refuses stubs, so nothing relies on them.
unsafe impl MemoryManager for Wordless {
    fn allocate(&self, plan: &SegmentPlan) -> jittison::error::Result<Box<dyn InFlight>> {
        Ok(Box::new(WordlessInFlight(self.0.allocate(plan)?)))
    }
    fn statistics(&self) -> MemoryStatistics {
        self.0.statistics()
    }
}

impl InFlight for WordlessInFlight {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.0.address(pool)
    }
    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        self.0.working(pool)
    }
    fn finalize(self: Box<Self>, frames: Vec<Frame>) -> jittison::error::Result<Box<dyn Finalized>> {
        Ok(Box::new(WordlessFinalized(self.0.finalize(frames)?)))
    }
}

impl Finalized for WordlessFinalized {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.0.address(pool)
    }
    fn usage(&self) -> MemoryUsage {
        self.0.usage()
    }
    fn word(&self, _: u64) -> Option<&std::sync::atomic::AtomicU64> {
        None
    }
}

/// A redirect of such a stub did nothing and returned no error.
#[test]
fn a_stub_that_could_not_be_redirected_is_refused() {
    let memory = std::sync::Arc::new(Wordless(SlabPool::new(Default::default()).unwrap()));
    let jit = Jit::builder().memory_manager(memory.clone()).build().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.create_stub(&tracker, "stub", address(&jit, forty_two)).unwrap_err();
    assert!(matches!(error.root_cause().kind(), ErrorKind::Memory(MemoryFault::BadPlan { .. })), "{error}");
    assert_says(&error, &["cannot be redirected"]);
    assert!(is_no_stub(redirect_in_main(&jit, "stub", thirteen)));
    assert_eq!(memory.statistics().allocations, 0, "the refused stub is freed");
}
