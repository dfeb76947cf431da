//! Free memory returns to the kernel: at once by `release_free`, and automatically after a delay if much of it is free. Live
//! allocations keep their bytes. Purged pages read as zero when they are reused.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use jittison::base::SegmentKind;
use jittison::error::MemoryFault;
use jittison::memory::*;

use crate::intercepting_mapper::{Call, InterceptingMapper, Interceptor, Range};
use crate::slab::{make, plan};
use crate::support::*;

const MIB: u64 = 1 << 20;

fn pool(options: SlabPoolOptions) -> SlabPool {
    SlabPool::new(SlabPoolOptions { trap_freed_code: false, ..options }).unwrap()
}

/// A pool that returns memory only in `release_free` and `release_free_slabs`.
fn pool_without_automatic_purge() -> SlabPool {
    pool(SlabPoolOptions { window_size: 256 * MIB, returns_memory: false, shards: 1, ..Default::default() })
}

/// An allocation in which every byte is written. `sizes` are those of code, constants and data.
fn written(memory: &SlabPool, sizes: [u64; 3]) -> Box<dyn Finalized> {
    let [code, read_only, data] = sizes;
    let mut allocation = memory.allocate(&plan(code, read_only, (data, 0))).unwrap();
    for pool in SegmentKind::ALL {
        allocation.working(pool).fill(0xc3);
    }
    allocation.finalize(Vec::new()).unwrap()
}

#[test]
fn a_fresh_pool_and_a_pool_with_a_live_module_have_no_slab_to_release() {
    let memory = pool_without_automatic_purge();
    assert_eq!(memory.release_free_slabs(), 0);
    let live = written(&memory, [100, 100, 100]);
    assert_eq!(memory.release_free_slabs(), 0);
    assert_eq!(memory.release_free(), Released::default());
    drop(live);
}

#[test]
fn empty_slabs_are_released_once() {
    let memory = pool_without_automatic_purge();
    let large = written(&memory, [100, 100, 12 * MIB]);
    drop(large);
    assert!(memory.release_free_slabs() >= 5);
    assert_eq!(memory.release_free_slabs(), 0);
}

/// Pools open from the end. The code pool of the default window has an odd number of chunks.
#[test]
fn a_free_slab_of_two_chunks_is_released() {
    let memory = pool(SlabPoolOptions { slab_size: 4 * MIB, returns_memory: false, shards: 1, ..Default::default() });
    drop(written(&memory, [3 * MIB, 0, 0]));
    assert_eq!(memory.release_free_slabs(), 1);
    assert_eq!(memory.release_free_slabs(), 0);
    let live = written(&memory, [3 * MIB, 0, 0]);
    assert_eq!(memory.release_free_slabs(), 0);
    drop(live);
}

/// The lower half of a slab is closed while a live allocation holds the upper half. The next slabs of the pool are entire.
#[test]
fn slabs_that_open_after_a_half_closed_slab_are_released() {
    let memory = pool(SlabPoolOptions { slab_size: 4 * MIB, returns_memory: false, shards: 1, ..Default::default() });
    let lower = written(&memory, [2 * MIB, 0, 0]);
    let upper = written(&memory, [2 * MIB, 0, 0]);
    drop(lower);
    memory.release_free();
    assert_eq!(memory.statistics().pools[SegmentKind::Code.index()].opened, 2 * MIB);
    drop(written(&memory, [4 * MIB, 0, 0]));
    assert_eq!(memory.release_free_slabs(), 1);
    drop(upper);
}

#[test]
fn every_entirely_free_slab_counts_as_released_wherever_the_free_range_begins() {
    let memory = pool_without_automatic_purge();
    drop(written(&memory, [0, 0, 12 * MIB]));
    let live = written(&memory, [0, 0, MIB]);
    // 11 MiB are free, from the middle of the first slab on: more than two batches.
    assert_eq!(memory.release_free(), Released { bytes: 11 * MIB, slabs: 5 });
    drop(live);
}

#[test]
fn releasing_slabs_does_not_change_live_allocations() {
    let memory = pool_without_automatic_purge();
    let freed = written(&memory, [3 * MIB, 3 * MIB, 3 * MIB]);
    let kept = written(&memory, [5 * MIB, 5 * MIB, 5 * MIB]);
    drop(freed);
    assert!(memory.release_free_slabs() >= 3);
    for pool in SegmentKind::ALL {
        let bytes = read(kept.address(pool).value(), 5 << 20);
        assert!(bytes.iter().all(|byte| *byte == 0xc3), "{}", pool.name());
    }
}

#[test]
fn released_pages_are_not_resident_and_read_as_zero_when_reused() {
    own_process!();
    let memory = pool_without_automatic_purge();
    let before = resident_bytes();
    let one = written(&memory, [20 * MIB, 20 * MIB, 20 * MIB]);
    let addresses = SegmentKind::ALL.map(|pool| one.address(pool));
    let full = resident_bytes();
    assert!(full > before + 58 * MIB, "{before} -> {full}");
    drop(one);
    assert!(memory.statistics().resident_bytes >= 60 * MIB);

    let released = memory.release_free();
    assert_eq!(released.bytes, 60 * MIB);
    assert_eq!((memory.statistics().resident_bytes, memory.statistics().returned_bytes), (0, 60 * MIB));
    let after = resident_bytes();
    // The frame table of 20 MiB of code stays resident: 2.5 MiB.
    assert!(after < before + 4 * MIB, "{before} -> {full} -> {after}");

    let again = memory.allocate(&plan(20 * MIB, 20 * MIB, (20 * MIB, 20 * MIB))).unwrap();
    assert_eq!(SegmentKind::ALL.map(|pool| again.address(pool)), addresses);
    let mut again = again;
    for pool in SegmentKind::ALL {
        assert!(again.working(pool).iter().all(|byte| *byte == 0), "{}", pool.name());
    }
}

#[test]
fn a_large_zero_fill_range_is_zero_even_if_some_of_its_pages_were_used() {
    let memory = pool_without_automatic_purge();
    // Some pages of the range are used. The others were never used or were returned.
    let rows: Vec<_> = (0..40).map(|_| written(&memory, [0, 0, 50_000])).collect();
    let (odd, even): (Vec<_>, Vec<_>) = rows.into_iter().enumerate().partition(|(index, _)| index % 2 == 1);
    drop(odd);
    memory.release_free();
    drop(even);
    let mut one = memory.allocate(&plan(0, 0, (3 * MIB, 3 * MIB - 100))).unwrap();
    assert!(one.working(SegmentKind::Data)[100..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_small_survivor_keeps_only_its_own_pages_resident() {
    let memory = pool_without_automatic_purge();
    let mut survivors = Vec::new();
    for _ in 0..16 {
        let tiny = written(&memory, [64, 16, 16]);
        let large = written(&memory, [2 * MIB, 0, 0]);
        survivors.push((tiny, large));
    }
    let survivors: Vec<_> = survivors.into_iter().map(|(tiny, _)| tiny).collect();
    let fragmented = memory.statistics().resident_bytes - memory.statistics().live_bytes;
    assert!(fragmented >= 31 * MIB, "{fragmented}");
    memory.release_free();
    let statistics = memory.statistics();
    // At most one page per survivor and pool. Survivors of one pool may share a page.
    assert!(statistics.resident_bytes <= 16 * 3 * page_size(), "{}", statistics.resident_bytes);
    drop(survivors);
}

#[test]
fn much_free_memory_is_returned_automatically_after_a_delay() {
    let memory = pool(SlabPoolOptions { window_size: 256 * MIB, ..Default::default() });
    for round in 1..=2 {
        if round == 2 {
            // The background thread has nothing to do and ends. This round starts another.
            std::thread::sleep(Duration::from_millis(2500));
        }
        let one = written(&memory, [20 * MIB, 20 * MIB, 20 * MIB]);
        let start = Instant::now();
        drop(one);
        wait_until(|| memory.statistics().returned_bytes >= round * 50 * MIB);
        assert!(
            start.elapsed() > Duration::from_millis(900),
            "memory is returned only after a delay: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn three_mebibytes_that_stay_free_are_returned() {
    let memory = pool(SlabPoolOptions { window_size: 64 * MIB, shards: 1, ..Default::default() });
    drop(written(&memory, [MIB, MIB, MIB + MIB / 2]));
    wait_until(|| memory.statistics().returned_bytes >= 3 * MIB);
}

#[test]
fn a_working_set_that_is_freed_and_allocated_again_is_not_returned() {
    let memory = pool(SlabPoolOptions { window_size: 256 * MIB, shards: 1, ..Default::default() });
    let start = Instant::now();
    // 30 MiB are freed again and again, but they are not free at two consecutive checks.
    while start.elapsed() < Duration::from_millis(3500) {
        let one = written(&memory, [10 * MIB, 10 * MIB, 10 * MIB]);
        std::thread::sleep(Duration::from_millis(1));
        drop(one);
    }
    // If two consecutive checks happen to find the memory free, it is returned, which is correct. That must be rare.
    assert!(memory.statistics().returned_bytes <= 60 * MIB, "{:?}", memory.statistics());
}

#[test]
fn releasing_memory_does_not_disturb_concurrent_links_calls_and_removals() {
    let Some(object) = c("long state = 7; long zero[3000]; long f(long x) { return x + state + zero[x]; }
        long test(void) { zero[2999] = 1; return f(1); }")
    else {
        return;
    };
    let jit = jittison::Jit::builder().trap_freed_code(false).build().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let releaser = scope.spawn(|| {
            let mut released = 0;
            while !done.load(Ordering::Relaxed) {
                released += jit.release_free().bytes + jit.release_free_slabs() as u64;
            }
            released
        });
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                let (jit, object) = (&jit, &object);
                scope.spawn(move || {
                    let dylib = jit.create_dylib(&format!("worker {worker}")).unwrap();
                    let kept = add(jit, &dylib, "kept.o", object);
                    let kept_function = try_function::<extern "C" fn() -> i64>(jit, &dylib, "test").unwrap();
                    let churn = jit.create_dylib(&format!("churn {worker}")).unwrap();
                    for _ in 0..1_500 {
                        let tracker = add(jit, &churn, "churn.o", object);
                        assert_eq!(long_in(jit, &churn, "test"), 8);
                        assert!(tracker.remove().unwrap().is_complete());
                        assert_eq!(kept_function.call(), 8);
                    }
                    drop((kept_function, kept));
                })
            })
            .collect();
        let _done = SetOnDrop(&done);
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(releaser.join().unwrap() > 0, "memory is returned during the links");
    });
}

/// A huge page of 32 MiB would back data that is not open, which no purge returns.
#[test]
fn data_has_no_huge_pages_on_kernels_where_they_are_larger_than_a_slab() {
    own_process!();
    if !require_that(Path::new("/sys/kernel/mm/transparent_hugepage").exists(), "a kernel with huge pages") {
        return;
    }
    let options = SlabPoolOptions { window_size: 256 * MIB, ..Default::default() };
    for memory in [SlabPool::new(options).unwrap(), SlabPool::with_mapper(SingleMapper, options).unwrap()] {
        let one = written(&memory, [100, 100, 100]);
        let data = one.address(SegmentKind::Data).value();
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mapping = mappings().into_iter().find(|mapping| (mapping.start..mapping.end).contains(&data)).unwrap();
        let (_, lines) = smaps.split_once(&format!("{:x}-{:x} ", mapping.start, mapping.end)).unwrap();
        let flags = lines.lines().find(|line| line.starts_with("VmFlags:")).unwrap();
        assert_eq!(flags.split_whitespace().any(|flag| flag == "nh"), page_size() > 4096, "{flags}");
    }
}

#[test]
fn released_code_pages_still_trap_if_the_option_is_set() {
    let options =
        SlabPoolOptions { window_size: 64 * MIB, trap_freed_code: true, returns_memory: false, ..Default::default() };
    let memory = SlabPool::new(options).unwrap();
    let one = written(&memory, [8192, 8192, 8192]);
    let code = one.address(SegmentKind::Code).value();
    drop(one);
    assert!(memory.release_free().bytes > 0);
    assert_eq!(read(code, 8192), vec![machine_code::TRAP; 8192]);
    drop(make(&memory, &plan(64, 16, (16, 0))));
}

/// Records the statistics of a pool while its pages are being purged.
#[derive(Default)]
struct StatisticsDuringPurge {
    pool: OnceLock<Weak<SlabPool>>,
    recorded: Mutex<Vec<MemoryStatistics>>,
}

impl Interceptor for StatisticsDuringPurge {
    fn before_call(&self, call: Call, _: Option<Range>) -> Result<(), MemoryFault> {
        let (Call::Purge, Some(pool)) = (call, self.pool.get().and_then(Weak::upgrade)) else { return Ok(()) };
        // On another thread: this thread is inside `release_free`.
        self.recorded.lock().unwrap().push(std::thread::spawn(move || pool.statistics()).join().unwrap());
        Ok(())
    }
}

#[test]
fn pages_that_are_being_purged_count_as_free_and_not_as_reserved() {
    let interceptor = Arc::<StatisticsDuringPurge>::default();
    let options = SlabPoolOptions { returns_memory: false, trap_freed_code: false, ..Default::default() };
    let mapper = InterceptingMapper { inner: SystemMapper::default(), interceptor: interceptor.clone() };
    let memory = Arc::new(SlabPool::with_mapper(mapper, options).unwrap());
    assert!(interceptor.pool.set(Arc::downgrade(&memory)).is_ok());
    drop(written(&memory, [MIB, MIB, MIB]));
    let before = memory.statistics();
    assert!(before.reserved_bytes == 0 && before.free_bytes > 3 * MIB);
    assert!(memory.release_free().bytes >= 3 * MIB);
    let recorded = interceptor.recorded.lock().unwrap();
    assert!(!recorded.is_empty());
    for during in recorded.iter() {
        assert_eq!((during.reserved_bytes, during.free_bytes), (0, before.free_bytes));
        assert_eq!(during.pools.map(|pool| pool.reserved), [0; 3]);
    }
}
