//! Shards: threads that link at the same time allocate from slabs of their own. Before an allocation fails, the free memory of
//! every shard is tried.

use std::sync::{Barrier, Mutex};

use jittison::base::SegmentKind;
use jittison::memory::{Finalized, MemoryManager, SlabPool, SlabPoolOptions};

use crate::slab::{held, make, plan};
use crate::support::own_process;

fn sharded(shards: usize) -> SlabPool {
    SlabPool::new(SlabPoolOptions { window_size: 64 << 20, shards, returns_memory: false, ..Default::default() })
        .unwrap()
}

/// Runs `work` on `threads` threads at once.
fn together<R: Send>(threads: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        let run = |thread| {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(thread)
            })
        };
        let threads: Vec<_> = (0..threads).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn slab_of(one: &dyn Finalized) -> u64 {
    one.address(SegmentKind::Data).value() >> 21
}

#[test]
fn concurrent_threads_allocate_from_slabs_of_their_own() {
    // The process numbers its threads, and the number selects the shard.
    own_process!();
    // The window is large enough for one slab per pool and shard.
    let options = SlabPoolOptions { window_size: 256 << 20, shards: 8, returns_memory: false, ..Default::default() };
    let memory = SlabPool::new(options).unwrap();
    let all_have_allocated = Barrier::new(8);
    // One thread after the other: a thread whose shard is locked allocates from another shard.
    let allocation = Mutex::new(());
    let slabs = together(8, |_| {
        let one = {
            let _one_at_a_time = allocation.lock().unwrap();
            make(&memory, &plan(64, 16, (16, 0)))
        };
        all_have_allocated.wait();
        slab_of(&*one)
    });
    let distinct: std::collections::BTreeSet<_> = slabs.iter().collect();
    assert_eq!(distinct.len(), 8, "{slabs:?}");
}

#[test]
fn with_one_shard_all_threads_use_one_slab() {
    let memory = sharded(1);
    let slabs = together(4, |_| slab_of(&*make(&memory, &plan(64, 16, (16, 0)))));
    assert!(slabs.windows(2).all(|pair| pair[0] == pair[1]), "{slabs:?}");
}

#[test]
fn every_thread_can_allocate_the_entire_capacity() {
    for shards in [1, 2, 8] {
        let memory = sharded(shards);
        let fill = |_| {
            let mut held = Vec::new();
            while let Ok(one) = memory.allocate(&plan(0, 0, (64 << 10, 0))) {
                held.push(one.finalize(Vec::new()).unwrap());
            }
            held
        };
        let of_one_thread = together(1, fill).remove(0);
        let capacity = of_one_thread.len();
        drop(of_one_thread);
        let by_four: usize = together(4, fill).iter().map(Vec::len).sum();
        assert_eq!(by_four, capacity, "with {shards} shards");
        // Each slab belongs to the shard that opened it, and the other shards can allocate from it.
        assert_eq!(together(1, fill).remove(0).len(), capacity, "with {shards} shards");
        assert_eq!(held(&memory), (0, 0, 0));
    }
}

#[test]
fn allocations_of_many_threads_never_overlap_and_are_all_freed() {
    let memory = sharded(3);
    together(4, |thread| {
        let mut live = Vec::new();
        for round in 0..3_000usize {
            if live.len() > 60 || round % 3 == 2 && !live.is_empty() {
                let (mut one, mark): (Box<dyn jittison::memory::InFlight>, u8) =
                    live.swap_remove(round * 7 % live.len());
                for pool in SegmentKind::ALL {
                    assert!(one.working(pool).iter().all(|byte| *byte == mark), "another thread wrote here");
                }
                continue;
            }
            let size = (round * 37 % 5_000) as u64;
            let mut one = memory.allocate(&plan(size, size / 2, (size / 3, 0))).unwrap();
            let mark = (thread * 61 + round) as u8;
            for pool in SegmentKind::ALL {
                one.working(pool).fill(mark);
            }
            live.push((one, mark));
        }
    });
    assert_eq!(held(&memory), (0, 0, 0));
}
