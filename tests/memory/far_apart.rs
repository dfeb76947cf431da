//! A memory manager that places code and constants more than 2 GiB apart. Stubs cannot reach their slots there.

use std::sync::Arc;

use jittison::base::{ExecutorAddr, Name, SegmentKind};
use jittison::error::{ErrorKind, LinkFault};
use jittison::memory::{
    Finalized, Frame, InFlight, MemoryManager, MemoryStatistics, MemoryUsage, OfflineMemory, SegmentPlan,
};
use jittison::session::{Alias, SymbolFlags};
use jittison::{Error, Jit};

use crate::support::*;

/// Offline memory whose constants and data are `distance` after the place that is next to the code.
struct FarApart {
    memory: OfflineMemory,
    distance: u64,
}

struct FarAllocation<T: ?Sized> {
    distance: u64,
    memory: Box<T>,
}

impl<T: ?Sized> FarAllocation<T> {
    fn moved(&self, address: ExecutorAddr, pool: SegmentKind) -> ExecutorAddr {
        if pool == SegmentKind::Code { address } else { address.offset(self.distance) }
    }
}

// SAFETY: memory for links that are never run; the addresses are numbers.
unsafe impl MemoryManager for FarApart {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>, Error> {
        Ok(Box::new(FarAllocation { distance: self.distance, memory: self.memory.allocate(plan)? }))
    }

    fn can_run(&self) -> bool {
        false
    }

    fn statistics(&self) -> MemoryStatistics {
        self.memory.statistics()
    }
}

impl InFlight for FarAllocation<dyn InFlight> {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.moved(self.memory.address(pool), pool)
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        self.memory.working(pool)
    }

    fn finalize(self: Box<Self>, frames: Vec<Frame>) -> Result<Box<dyn Finalized>, Error> {
        let FarAllocation { distance, memory } = *self;
        Ok(Box::new(FarAllocation { distance, memory: memory.finalize(frames)? }))
    }
}

impl Finalized for FarAllocation<dyn Finalized> {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        self.moved(self.memory.address(pool), pool)
    }

    fn usage(&self) -> MemoryUsage {
        self.memory.usage()
    }

    fn word(&self, _offset: u64) -> Option<&std::sync::atomic::AtomicU64> {
        None
    }
}

fn jit_with(distance: u64) -> Jit {
    let memory = FarApart { memory: OfflineMemory::new(ExecutorAddr::new(0x1000_0000)), distance };
    Jit::builder().memory_manager(Arc::new(memory)).build().unwrap()
}

#[track_caller]
fn assert_out_of_range<T>(outcome: Result<T, Error>, symbol: &str) {
    let error = outcome.err().expect("a stub that cannot reach its slot");
    let ErrorKind::Link { fault: LinkFault::OutOfRange { symbol: found, value, .. }, .. } = error.root_cause().kind()
    else {
        panic!("not out of range: {error}");
    };
    assert_eq!((found.as_str(), *value > i128::from(i32::MAX)), (symbol, true), "{error}");
}

#[test]
fn a_stub_that_cannot_reach_its_slot_is_out_of_range() {
    let Some(object) = asm(".globl test\ntest: jmp imported@PLT") else { return };
    for distance in [1 << 31, 1 << 32, 3 << 32] {
        let jit = jit_with(distance);
        let (dylib, tracker) = (jit.main_dylib(), jit.main_dylib().create_tracker().unwrap());
        define_absolute(dylib, "imported", 0x7000_0000_0000);
        jit.add_object(&tracker, "far.o", &object[..]).unwrap();
        assert_out_of_range(jit.address_of(dylib, "test"), "imported");
        assert_out_of_range(jit.create_stub(&tracker, "stub", ExecutorAddr::new(0x1000)), "stub");
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        let alias = Alias { name: Name::new("lazy"), aliasee: Name::new("imported"), flags };
        assert_out_of_range(jit.lazy_reexport(&tracker, dylib, &[alias]), "lazy");
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(held(&jit).0, 0, "nothing is left");
    }
}

#[test]
fn a_stub_that_reaches_its_slot_is_made_whatever_the_manager() {
    let Some(object) = asm(".globl test\ntest: jmp imported@PLT") else { return };
    let jit = jit_with((1 << 31) - (1 << 20));
    let tracker = jit.main_dylib().create_tracker().unwrap();
    define_absolute(jit.main_dylib(), "imported", 0x7000_0000_0000);
    jit.add_object(&tracker, "far.o", &object[..]).unwrap();
    jit.address_of(jit.main_dylib(), "test").unwrap();
    jit.create_stub(&tracker, "stub", ExecutorAddr::new(0x1000)).unwrap();
}
