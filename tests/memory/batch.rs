//! Many allocations finalised as one batch: all or none of them, and with as few changes of protection as there can be.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::error::MemoryFault;
use jittison::memory::{
    DualMapper, Frame, InFlight, LargeRequest, MemoryManager, MemoryMapper, SegmentPlan, SingleMapper, SlabPool,
    SlabPoolOptions, WindowLayout,
};

use crate::ladder::rungs;
use crate::overheard::{Call, Listener, Overheard, Range};
use crate::slab::{held, plan};
use crate::support::*;

/// What was sealed.
#[derive(Default)]
struct Seals {
    done: Mutex<Vec<Range>>,
    /// How many are still allowed; none is refused while it is `None`.
    allowed: Mutex<Option<usize>>,
}

impl Listener for Seals {
    fn hear(&self, call: Call, range: Option<Range>) -> Result<(), MemoryFault> {
        let (Call::Seal, Some(sealed)) = (call, range) else { return Ok(()) };
        if let Some(allowed) = &mut *self.allowed.lock().unwrap() {
            if *allowed == 0 {
                return Err(MemoryFault::Refused { step: "sealing".into(), problem: "not this one".into() });
            }
            *allowed -= 1;
        }
        self.done.lock().unwrap().push(sealed);
        Ok(())
    }
}

fn watched(inner: &'static dyn MemoryMapper) -> (SlabPool, Arc<Seals>) {
    let seals = Arc::new(Seals::default());
    let options =
        SlabPoolOptions { window_size: 64 << 20, trap_freed_code: false, shards: 1, ..SlabPoolOptions::default() };
    (SlabPool::with_mapper(Overheard { inner, listener: seals.clone() }, options).unwrap(), seals)
}

fn batch(memory: &SlabPool, count: usize) -> Vec<(Box<dyn InFlight>, Vec<Frame>)> {
    let one = |index: usize| {
        let mut one = memory.allocate(&plan(100 + index as u64 * 3000, 100, (100, 0))).unwrap();
        for pool in SegmentKind::ALL {
            one.working(pool).fill(index as u8);
        }
        (one, Vec::new())
    };
    (0..count).map(one).collect()
}

#[test]
fn a_batch_is_what_its_members_would_be_alone_at_every_rung() {
    for (mapper, _) in rungs() {
        let (memory, _) = watched(mapper);
        let batch = batch(&memory, 10);
        let places: Vec<_> = batch.iter().map(|(one, _)| SegmentKind::ALL.map(|pool| one.address(pool))).collect();
        let sealed = memory.finalize_all(batch).unwrap();
        assert_eq!(held(&memory).0, 10);
        for (index, (one, place)) in sealed.iter().zip(places).enumerate() {
            assert_eq!(SegmentKind::ALL.map(|pool| one.address(pool)), place);
            one.word(8).expect("it knows that it is sealed").store(77, Ordering::Relaxed);
            assert_eq!(one.usage().code, 100 + index as u64 * 3000);
            for pool in [SegmentKind::Code, SegmentKind::ReadOnly] {
                assert_eq!(read(one.address(pool).value(), 100), [index as u8; 100]);
            }
        }
        drop(sealed);
        assert_eq!(held(&memory), (0, 0, 0));
        assert!(memory.finalize_all(Vec::new()).unwrap().is_empty());
    }
}

#[test]
fn ranges_of_a_batch_that_touch_are_sealed_by_one_call() {
    let (memory, seals) = watched(&SingleMapper);
    let alone = batch(&memory, 12);
    drop(alone.into_iter().map(|(one, frames)| one.finalize(frames).unwrap()).collect::<Vec<_>>());
    assert_eq!(std::mem::take(&mut *seals.done.lock().unwrap()).len(), 3 * 12, "one by one");

    let mut together = batch(&memory, 12);
    // In any order; and one that stays in flight leaves a gap, across which nothing may be sealed.
    together.reverse();
    let (gap, _) = together.remove(5);
    let gaps = SegmentKind::ALL.map(|pool| gap.address(pool));
    let sealed = memory.finalize_all(together).unwrap();
    let done = std::mem::take(&mut *seals.done.lock().unwrap());
    assert_eq!(done.len(), 3 * 2, "{done:?}");
    let (base, size) = memory.window();
    let layout = WindowLayout::divide(size).unwrap();
    for (pool, offset, size) in done {
        let start = layout.pool_start(base, pool).value() + offset;
        assert!(!(start..start + size).contains(&gaps[pool.index()].value()), "{}", pool.name());
    }
    drop((sealed, gap));
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn a_batch_that_cannot_be_sealed_whole_is_given_back_whole() {
    for (mapper, _) in rungs() {
        for allowed in 0..3 {
            let (memory, seals) = watched(mapper);
            let batch = batch(&memory, 6);
            let kept = memory.allocate(&plan(64, 64, (64, 0))).unwrap();
            *seals.allowed.lock().unwrap() = Some(allowed);
            let error = memory.finalize_all(batch).err().unwrap();
            assert_says(&error, &["sealing was refused: not this one"]);
            *seals.allowed.lock().unwrap() = None;
            assert_eq!(held(&memory).0, 1, "what is not of the batch stays");
            drop(kept.finalize(Vec::new()).unwrap());
            assert_eq!(held(&memory), (0, 0, 0));
            let again = self::batch(&memory, 6);
            drop(memory.finalize_all(again).unwrap());
        }
    }
}

#[test]
fn one_member_with_too_many_frames_fails_the_batch() {
    let (memory, _) = watched(&DualMapper { fork_policy: jittison::memory::ForkPolicy::Snapshot });
    let mut batch = batch(&memory, 4);
    let (code, table) = (batch[2].0.address(SegmentKind::Code), batch[2].0.address(SegmentKind::ReadOnly));
    batch[2].1 = (0..1000).map(|index| Frame { start: code.offset(index), fde: table }).collect();
    assert_says(&memory.finalize_all(batch).err().unwrap(), &["more frames than were planned"]);
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn members_with_sections_apart_and_scratch_memory_are_sealed_with_the_others() {
    let (memory, seals) = watched(&SingleMapper);
    let mut batch = batch(&memory, 2);
    let apart = vec![LargeRequest { size: 5000, align: 0, is_read_only: true }];
    let more = SegmentPlan { apart, scratch: plan(0, 0, (500, 0)).segments[2], ..plan(100, 100, (100, 0)) };
    let mut one = memory.allocate(&more).unwrap();
    one.apart(0).fill(9);
    batch.push((one, Vec::new()));
    let sealed = memory.finalize_all(batch).unwrap();
    assert_eq!(read(sealed[2].apart_address(0).value(), 5000), [9; 5000]);
    sealed[2].word(0).unwrap().store(5, Ordering::Relaxed);
    let code = seals.done.lock().unwrap().iter().filter(|(pool, ..)| *pool == SegmentKind::Code).count();
    assert_eq!((code, held(&memory).0), (1, 3));
    drop(sealed);
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn a_manager_of_another_kind_seals_its_batches_by_the_same_rule() {
    struct Plain(SlabPool);
    impl MemoryManager for Plain {
        fn allocate(&self, plan: &SegmentPlan) -> jittison::error::Result<Box<dyn InFlight>> {
            self.0.allocate(plan)
        }
        fn statistics(&self) -> jittison::MemoryStatistics {
            self.0.statistics()
        }
    }
    let (memory, seals) = watched(&SingleMapper);
    let memory = Plain(memory);
    assert_eq!(memory.finalize_all(batch(&memory.0, 3)).unwrap().len(), 3);
    *seals.allowed.lock().unwrap() = Some(4);
    assert!(memory.finalize_all(batch(&memory.0, 3)).is_err());
    *seals.allowed.lock().unwrap() = None;
    assert_eq!(held(&memory.0), (0, 0, 0));
    // And what is not its own is sealed by whoever made it.
    struct Wrapped(Box<dyn InFlight>);
    impl InFlight for Wrapped {
        fn address(&self, pool: SegmentKind) -> ExecutorAddr {
            self.0.address(pool)
        }
        fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
            self.0.working(pool)
        }
        fn finalize(
            self: Box<Self>,
            frames: Vec<Frame>,
        ) -> jittison::error::Result<Box<dyn jittison::memory::Finalized>> {
            self.0.finalize(frames)
        }
    }
    let wrapped = batch(&memory.0, 3).into_iter().map(|(one, frames)| (Box::new(Wrapped(one)) as _, frames)).collect();
    assert_eq!(memory.0.finalize_all(wrapped).unwrap().len(), 3);
}
