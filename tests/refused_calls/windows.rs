//! Refused calls while a window is mapped, and while its pages are returned to the kernel.

use std::sync::Arc;

use jittison::Jit;
use jittison::base::SegmentKind;
use jittison::memory::{
    DualMapper, MemoryManager, MemoryMapper, PlainDualMapper, Released, SingleMapper, SlabPool, SlabPoolOptions,
    SystemMapper,
};

use crate::calls::{Call, refusing};
use crate::support::*;

const MIB: u64 = 1 << 20;

pub fn mappers() -> [&'static dyn MemoryMapper; 4] {
    use jittison::memory::ForkPolicy::Snapshot;
    [
        &SystemMapper { fork_policy: Snapshot },
        &DualMapper { fork_policy: Snapshot },
        &PlainDualMapper { fork_policy: Snapshot },
        &SingleMapper,
    ]
}

pub fn pool_of(mapper: &'static dyn MemoryMapper) -> Result<Arc<SlabPool>, jittison::Error> {
    let options =
        SlabPoolOptions { window_size: 128 * MIB, returns_memory: false, shards: 1, ..SlabPoolOptions::default() };
    Ok(Arc::new(SlabPool::with_mapper(mapper, options)?))
}

/// Descriptors, window mappings, and MiB of address space of this process.
fn process_resources() -> (usize, usize, u64) {
    let is_window = |mapping: &Mapping| mapping.name.contains("jittison-") || mapping.name.contains("memfd:");
    let all = mappings();
    let bytes: u64 = all.iter().map(|mapping| mapping.end - mapping.start).sum();
    (
        std::fs::read_dir("/proc/self/fd").unwrap().count(),
        all.iter().filter(|mapping| is_window(mapping)).count(),
        bytes / MIB,
    )
}

/// Maps a window repeatedly, and refuses the n-th call of a kind for every n. Returns the number of such calls.
fn refuse_each(mapper: &'static dyn MemoryMapper, call: Call) -> usize {
    for after in 0..1000 {
        let before = process_resources();
        let (pool, was_refused) = refusing(call, after, || pool_of(mapper));
        match pool {
            Ok(pool) => links_on(&Jit::builder().memory_manager(pool).build().unwrap()),
            Err(error) => assert_says(&error, &["code memory", "refused", "the operation was undone"]),
        }
        let current = process_resources();
        assert_eq!((current.0, current.1), (before.0, before.1), "{call:?} after {after}");
        // The heap grows by less than this, and the smallest window is larger.
        assert!(current.2.abs_diff(before.2) < 16, "{call:?} after {after}: {} -> {} MiB", before.2, current.2);
        if !was_refused {
            return after;
        }
    }
    panic!("{call:?} is called endlessly");
}

#[test]
fn a_refused_call_gives_another_window_mapping_or_a_clear_error() {
    own_process!();
    links_on(
        &Jit::builder()
            .memory_manager(pool_of(&SystemMapper { fork_policy: jittison::memory::ForkPolicy::Snapshot }).unwrap())
            .build()
            .unwrap(),
    );
    let mut summary = String::new();
    for (mode, mapper) in mappers().into_iter().enumerate() {
        let calls = [Call::Reserve, Call::Map, Call::Protect, Call::Advise, Call::Truncate, Call::Memfd, Call::Open];
        let counts = calls.map(|call| refuse_each(mapper, call));
        summary += &format!("{counts:?} ");
        let [reserved, mapped, protected, advised, truncated, files, opened] = counts;
        assert!(reserved > 0 && mapped >= 3, "{counts:?}");
        let is_single = mode == 3;
        assert_eq!(protected > 0, is_single);
        assert_eq!(advised > 0 && truncated > 0 && files > 0, !is_single);
        assert!(opened > 0 || mode == 2, "{counts:?}");
    }
    println!("{summary}");
    // An earlier refusal does not disable a mapping mode that works.
    let description =
        pool_of(&SystemMapper { fork_policy: jittison::memory::ForkPolicy::Snapshot }).unwrap().description();
    assert_eq!(description, "mapped twice, the running view from a read-only descriptor");
}

#[test]
fn code_is_dual_mapped_when_executable_memfds_are_refused() {
    own_process!();
    let pool = || pool_of(&SystemMapper { fork_policy: jittison::memory::ForkPolicy::Snapshot }).unwrap();
    let (memory, _) = refusing(Call::ExecutableMemfd, 0, pool);
    assert_eq!(memory.description(), "mapped twice, the running view from a read-only descriptor");
    links_on(&Jit::builder().memory_manager(memory).build().unwrap());
}

#[test]
fn pages_that_the_kernel_refuses_are_returned_on_the_next_call() {
    for mapper in mappers() {
        for after in 0..8 {
            let options = SlabPoolOptions {
                window_size: 128 * MIB,
                returns_memory: false,
                trap_freed_code: false,
                ..SlabPoolOptions::default()
            };
            let memory = SlabPool::with_mapper(mapper, options).unwrap();
            let mut plan = jittison::memory::SegmentPlan::default();
            plan.segments.iter_mut().for_each(|segment| segment.size = 4 * MIB);
            let mut allocation = memory.allocate(&plan).unwrap();
            SegmentKind::ALL.into_iter().for_each(|pool| allocation.working(pool).fill(0xee));
            drop(allocation.finalize(Vec::new()).unwrap());
            let resident = memory.statistics().resident_bytes;
            let (first, was_refused) = refusing(Call::Advise, after, || memory.release_free());
            let second = memory.release_free();
            assert_eq!(first.bytes + second.bytes, resident);
            // The first calls are for the pools, one each.
            assert!(after >= 3 || second.bytes >= 4 * MIB, "refused pages are not counted as returned");
            assert_eq!(memory.release_free(), Released::default());
            let statistics = memory.statistics();
            assert_eq!((statistics.allocations, statistics.resident_bytes), (0, 0));
            if !was_refused {
                assert!(after >= 3, "each pool needs one call");
                break;
            }
        }
    }
}
