//! Refusals while a window is mapped, and while its pages go back.

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

/// Descriptors, mappings of windows, and MiB of address space of this process.
fn holdings() -> (usize, usize, u64) {
    let ours = |mapping: &Mapping| mapping.name.contains("jittison-") || mapping.name.contains("memfd:");
    let all = mappings();
    let bytes: u64 = all.iter().map(|mapping| mapping.end - mapping.start).sum();
    (std::fs::read_dir("/proc/self/fd").unwrap().count(), all.iter().filter(|one| ours(one)).count(), bytes / MIB)
}

/// The n-th call of a kind is refused while a window is mapped, for every n: how many there were.
fn refuse_each(mapper: &'static dyn MemoryMapper, call: Call) -> usize {
    for after in 0..1000 {
        let before = holdings();
        let (pool, was_refused) = refusing(call, after, || pool_of(mapper));
        match pool {
            Ok(pool) => links_on(&Jit::builder().memory_manager(pool).build().unwrap()),
            Err(error) => assert_says(&error, &["code memory", "refused", "nothing was kept"]),
        }
        let now = holdings();
        assert_eq!((now.0, now.1), (before.0, before.1), "{call:?} after {after}");
        // The allocator's own stays below that, and the smallest window does not.
        assert!(now.2.abs_diff(before.2) < 16, "{call:?} after {after}: {} -> {} MiB", before.2, now.2);
        if !was_refused {
            return after;
        }
    }
    panic!("{call:?} is called without end");
}

#[test]
fn a_window_is_mapped_otherwise_or_refused_clearly_whichever_call_fails() {
    own_process!();
    links_on(
        &Jit::builder()
            .memory_manager(pool_of(&SystemMapper { fork_policy: jittison::memory::ForkPolicy::Snapshot }).unwrap())
            .build()
            .unwrap(),
    );
    let mut told = String::new();
    for (rung, mapper) in mappers().into_iter().enumerate() {
        let calls = [Call::Reserve, Call::Map, Call::Protect, Call::Advise, Call::Truncate, Call::Memfd, Call::Open];
        let counts = calls.map(|call| refuse_each(mapper, call));
        told += &format!("{counts:?} ");
        let [reserved, mapped, protected, advised, truncated, files, opened] = counts;
        assert!(reserved > 0 && mapped >= 3, "{counts:?}");
        let is_single = rung == 3;
        assert_eq!(protected > 0, is_single);
        assert_eq!(advised > 0 && truncated > 0 && files > 0, !is_single);
        assert!(opened > 0 || rung == 2, "{counts:?}");
    }
    println!("{told}");
    // What was refused once is not remembered for a rung that works.
    let description =
        pool_of(&SystemMapper { fork_policy: jittison::memory::ForkPolicy::Snapshot }).unwrap().description();
    assert_eq!(description, "mapped twice, the running view from a read-only descriptor");
}

#[test]
fn where_no_file_may_be_executable_code_is_mapped_in_the_best_way_all_the_same() {
    own_process!();
    let pool = || pool_of(&SystemMapper { fork_policy: jittison::memory::ForkPolicy::Snapshot }).unwrap();
    let (memory, _) = refusing(Call::ExecutableMemfd, 0, pool);
    assert_eq!(memory.description(), "mapped twice, the running view from a read-only descriptor");
    links_on(&Jit::builder().memory_manager(memory).build().unwrap());
}

#[test]
fn pages_that_the_kernel_does_not_take_back_are_offered_again() {
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
            let mut one = memory.allocate(&plan).unwrap();
            SegmentKind::ALL.into_iter().for_each(|pool| one.working(pool).fill(0xee));
            drop(one.finalize(Vec::new()).unwrap());
            let resident = memory.statistics().resident_bytes;
            let (first, was_refused) = refusing(Call::Advise, after, || memory.release_free());
            let second = memory.release_free();
            assert_eq!(first.bytes + second.bytes, resident);
            // The pools come first, with a call each.
            assert!(after >= 3 || second.bytes >= 4 * MIB, "what was refused is not counted as gone");
            assert_eq!(memory.release_free(), Released::default());
            let statistics = memory.statistics();
            assert_eq!((statistics.allocations, statistics.resident_bytes), (0, 0));
            if !was_refused {
                assert!(after >= 3, "each pool has a call");
                break;
            }
        }
    }
}
