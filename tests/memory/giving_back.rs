//! Memory that nothing lives in goes back to the kernel: on request at once, by itself late and in large pieces; what
//! lives is not touched, and what comes back is zero.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use jittison::base::SegmentKind;
use jittison::error::MemoryFault;
use jittison::memory::*;

use crate::overheard::{Call, Listener, Overheard, Range};
use crate::slab::{make, plan};
use crate::support::*;

const MIB: u64 = 1 << 20;

fn pool(options: SlabPoolOptions) -> SlabPool {
    let quiet = SlabPoolOptions { trap_freed_code: false, ..options };
    SlabPool::new(quiet).unwrap()
}

fn on_request() -> SlabPool {
    pool(SlabPoolOptions { window_size: 256 * MIB, returns_memory: false, shards: 1, ..Default::default() })
}

/// An allocation whose every byte is written.
fn written(memory: &SlabPool, sizes: [u64; 3]) -> Box<dyn Finalized> {
    let [code, read_only, data] = sizes;
    let mut one = memory.allocate(&plan(code, read_only, (data, 0))).unwrap();
    for pool in SegmentKind::ALL {
        one.working(pool).fill(0xc3);
    }
    one.finalize(Vec::new()).unwrap()
}

/// Kilobytes of this process that the kernel backs with memory.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_fresh_pool_and_one_with_a_live_module_have_no_slab_to_give_back() {
    let memory = on_request();
    assert_eq!(memory.release_free_slabs(), 0);
    let live = written(&memory, [100, 100, 100]);
    assert_eq!(memory.release_free_slabs(), 0);
    assert_eq!(memory.release_free(), Released::default());
    drop(live);
}

#[test]
fn slabs_that_nothing_lives_in_are_given_back_once() {
    let memory = on_request();
    let large = written(&memory, [100, 100, 12 * MIB]);
    drop(large);
    assert!(memory.release_free_slabs() >= 5);
    assert_eq!(memory.release_free_slabs(), 0);
}

#[test]
fn giving_slabs_back_leaves_what_lives_as_it_is() {
    let memory = on_request();
    let gone = written(&memory, [3 * MIB, 3 * MIB, 3 * MIB]);
    let kept = written(&memory, [5 * MIB, 5 * MIB, 5 * MIB]);
    drop(gone);
    assert!(memory.release_free_slabs() >= 3);
    for pool in SegmentKind::ALL {
        let bytes = read(kept.address(pool).value(), 5 << 20);
        assert!(bytes.iter().all(|byte| *byte == 0xc3), "{}", pool.name());
    }
}

#[test]
fn what_was_given_back_is_really_gone_and_reads_as_zero_when_it_comes_again() {
    own_process!();
    let memory = on_request();
    let before = resident_kib();
    let one = written(&memory, [20 * MIB, 20 * MIB, 20 * MIB]);
    let place = SegmentKind::ALL.map(|pool| one.address(pool));
    let full = resident_kib();
    assert!(full > before + (58 << 10), "{before} -> {full}");
    drop(one);
    assert!(memory.statistics().resident_bytes >= 60 * MIB);

    let released = memory.release_free();
    assert_eq!(released.bytes, 60 * MIB);
    assert_eq!((memory.statistics().resident_bytes, memory.statistics().returned_bytes), (0, 60 * MIB));
    let after = resident_kib();
    // The frame table of 20 MiB of text stays: 2.5 MiB.
    assert!(after < before + (4 << 10), "{before} -> {full} -> {after}");

    let again = memory.allocate(&plan(20 * MIB, 20 * MIB, (20 * MIB, 20 * MIB))).unwrap();
    assert_eq!(SegmentKind::ALL.map(|pool| again.address(pool)), place);
    let mut again = again;
    for pool in SegmentKind::ALL {
        assert!(again.working(pool).iter().all(|byte| *byte == 0), "{}", pool.name());
    }
}

#[test]
fn a_large_zero_filled_stretch_is_zero_though_some_of_its_pages_were_used() {
    let memory = on_request();
    // Used pages here and there, the others never or given back.
    let rows: Vec<_> = (0..40).map(|_| written(&memory, [0, 0, 50_000])).collect();
    let (odd, even): (Vec<_>, Vec<_>) = rows.into_iter().enumerate().partition(|(index, _)| index % 2 == 1);
    drop(odd);
    memory.release_free();
    drop(even);
    let mut one = memory.allocate(&plan(0, 0, (3 * MIB, 3 * MIB - 100))).unwrap();
    assert!(one.working(SegmentKind::Data)[100..].iter().all(|byte| *byte == 0));
}

#[test]
fn one_tiny_survivor_in_every_slab_strands_a_page_and_no_more() {
    let memory = on_request();
    let mut survivors = Vec::new();
    for _ in 0..16 {
        let tiny = written(&memory, [64, 16, 16]);
        let large = written(&memory, [2 * MIB, 0, 0]);
        survivors.push((tiny, large));
    }
    let survivors: Vec<_> = survivors.into_iter().map(|(tiny, _)| tiny).collect();
    let stranded = memory.statistics().resident_bytes - memory.statistics().live_bytes;
    assert!(stranded >= 31 * MIB, "{stranded}");
    memory.release_free();
    let statistics = memory.statistics();
    // The tiny ones of one pool may lie on one page.
    assert!(statistics.resident_bytes <= 16 * 3 * 4096, "{}", statistics.resident_bytes);
    drop(survivors);
}

#[test]
fn memory_goes_back_by_itself_when_much_of_it_is_free_for_a_while() {
    let memory = pool(SlabPoolOptions { window_size: 256 * MIB, ..Default::default() });
    for round in 1..=2 {
        let one = written(&memory, [20 * MIB, 20 * MIB, 20 * MIB]);
        let start = Instant::now();
        drop(one);
        wait_until(|| memory.statistics().returned_bytes >= round * 50 * MIB);
        assert!(start.elapsed() > Duration::from_millis(900), "not at once: {:?}", start.elapsed());
        // The thread finds nothing left to do, and ends. Another begins when it is needed.
        std::thread::sleep(Duration::from_millis(2500));
    }
}

#[test]
fn a_working_set_that_comes_and_goes_is_left_alone() {
    let memory = pool(SlabPoolOptions { window_size: 256 * MIB, shards: 1, ..Default::default() });
    let start = Instant::now();
    // 30 MiB are freed again and again, but never for two looks.
    while start.elapsed() < Duration::from_millis(3500) {
        let one = written(&memory, [10 * MIB, 10 * MIB, 10 * MIB]);
        std::thread::sleep(Duration::from_millis(1));
        drop(one);
    }
    // A look that comes upon it free twice gives it back, which is right; more than a few such would be a fault.
    assert!(memory.statistics().returned_bytes <= 60 * MIB, "{:?}", memory.statistics());
}

#[test]
fn giving_back_beside_links_calls_and_removals_harms_none_of_them() {
    let Some(object) = c("long state = 7; long zero[3000]; long f(long x) { return x + state + zero[x]; }
        long test(void) { zero[2999] = 1; return f(1); }")
    else {
        return;
    };
    let jit = jittison::Jit::builder().trap_freed_code(false).build().unwrap();
    let done = AtomicBool::new(false);
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let returner = scope.spawn(|| {
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
                    let keeper = try_function::<extern "C" fn() -> i64>(jit, &dylib, "test").unwrap();
                    let churn = jit.create_dylib(&format!("churn {worker}")).unwrap();
                    for _ in 0..1_500 {
                        let tracker = add(jit, &churn, "churn.o", object);
                        assert_eq!(long_in(jit, &churn, "test"), 8);
                        assert!(tracker.remove().unwrap().is_complete());
                        assert_eq!(keeper.call(), 8);
                    }
                    drop((keeper, kept));
                })
            })
            .collect();
        let _done = Done(&done);
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        assert!(returner.join().unwrap() > 0, "something was given back meanwhile");
    });
}

#[test]
fn freed_code_goes_on_trapping_when_that_is_asked_for() {
    let options =
        SlabPoolOptions { window_size: 64 * MIB, trap_freed_code: true, returns_memory: false, ..Default::default() };
    let memory = SlabPool::new(options).unwrap();
    let one = written(&memory, [8192, 8192, 8192]);
    let code = one.address(SegmentKind::Code).value();
    drop(one);
    assert!(memory.release_free().bytes > 0);
    assert_eq!(read(code, 8192), vec![0xcc; 8192]);
    drop(make(&memory, &plan(64, 16, (16, 0))));
}

/// What a pool tells of itself while pages of it go back.
#[derive(Default)]
struct Meanwhile {
    pool: OnceLock<Weak<SlabPool>>,
    told: Mutex<Vec<MemoryStatistics>>,
}

impl Listener for Meanwhile {
    fn hear(&self, call: Call, _: Option<Range>) -> Result<(), MemoryFault> {
        let (Call::Purge, Some(pool)) = (call, self.pool.get().and_then(Weak::upgrade)) else { return Ok(()) };
        // By another thread, as it would be: this one is giving back.
        self.told.lock().unwrap().push(std::thread::spawn(move || pool.statistics()).join().unwrap());
        Ok(())
    }
}

#[test]
fn what_is_on_its_way_back_counts_as_free_and_as_nobodys() {
    let meanwhile = Arc::<Meanwhile>::default();
    let options = SlabPoolOptions { returns_memory: false, trap_freed_code: false, ..Default::default() };
    let mapper = Overheard { inner: SystemMapper::default(), listener: meanwhile.clone() };
    let memory = Arc::new(SlabPool::with_mapper(mapper, options).unwrap());
    assert!(meanwhile.pool.set(Arc::downgrade(&memory)).is_ok());
    drop(written(&memory, [MIB, MIB, MIB]));
    let before = memory.statistics();
    assert!(before.reserved_bytes == 0 && before.free_bytes > 3 * MIB);
    assert!(memory.release_free().bytes >= 3 * MIB);
    let told = meanwhile.told.lock().unwrap();
    assert!(!told.is_empty());
    for meanwhile in told.iter() {
        assert_eq!((meanwhile.reserved_bytes, meanwhile.free_bytes), (0, before.free_bytes));
        assert_eq!(meanwhile.pools.map(|pool| pool.reserved), [0; 3]);
    }
}
