//! Many allocations finalized as one batch: either all succeed or none does, with one `seal` call per run of adjacent ranges.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::error::MemoryFault;
use jittison::memory::{
    DualMapper, Frame, InFlight, LargeRequest, MemoryManager, MemoryMapper, SegmentPlan, SingleMapper, SlabPool,
    SlabPoolOptions, WindowLayout,
};

use crate::intercepting_mapper::{Call, InterceptingMapper, Interceptor, Range};
use crate::mapping_modes::mapping_modes;
use crate::slab::{held, plan};
use crate::support::*;

/// Records the sealed ranges.
#[derive(Default)]
struct Seals {
    done: Mutex<Vec<Range>>,
    /// The number of calls that may still succeed. `None`: every call succeeds.
    allowed: Mutex<Option<usize>>,
}

impl Interceptor for Seals {
    fn before_call(&self, call: Call, range: Option<Range>) -> Result<(), MemoryFault> {
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

fn pool_with_seals(inner: &'static dyn MemoryMapper) -> (SlabPool, Arc<Seals>) {
    let seals = Arc::new(Seals::default());
    let options =
        SlabPoolOptions { window_size: 64 << 20, trap_freed_code: false, shards: 1, ..SlabPoolOptions::default() };
    (SlabPool::with_mapper(InterceptingMapper { inner, interceptor: seals.clone() }, options).unwrap(), seals)
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
fn batch_members_are_finalized_as_they_would_be_alone_in_every_mapping_mode() {
    for (mapper, _) in mapping_modes() {
        let (memory, _) = pool_with_seals(mapper);
        let batch = batch(&memory, 10);
        let places: Vec<_> = batch.iter().map(|(one, _)| SegmentKind::ALL.map(|pool| one.address(pool))).collect();
        let sealed = memory.finalize_all(batch).unwrap();
        assert_eq!(held(&memory).0, 10);
        for (index, (one, place)) in sealed.iter().zip(places).enumerate() {
            assert_eq!(SegmentKind::ALL.map(|pool| one.address(pool)), place);
            one.word(8).expect("a sealed allocation gives access to its words").store(77, Ordering::Relaxed);
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
fn adjacent_ranges_of_a_batch_are_sealed_by_one_call() {
    let (memory, seals) = pool_with_seals(&SingleMapper);
    let separate = batch(&memory, 12);
    drop(separate.into_iter().map(|(one, frames)| one.finalize(frames).unwrap()).collect::<Vec<_>>());
    assert_eq!(std::mem::take(&mut *seals.done.lock().unwrap()).len(), 3 * 12, "one by one");

    let mut together = batch(&memory, 12);
    // The order of the members does not matter. One allocation stays unfinalized: no seal may cross this gap.
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
fn if_one_seal_of_a_batch_fails_the_entire_batch_is_freed() {
    for (mapper, _) in mapping_modes() {
        for allowed in 0..3 {
            let (memory, seals) = pool_with_seals(mapper);
            let batch = batch(&memory, 6);
            let kept = memory.allocate(&plan(64, 64, (64, 0))).unwrap();
            *seals.allowed.lock().unwrap() = Some(allowed);
            let error = memory.finalize_all(batch).err().unwrap();
            assert_says(&error, &["sealing was refused: not this one"]);
            *seals.allowed.lock().unwrap() = None;
            assert_eq!(held(&memory).0, 1, "the allocation outside the batch stays");
            drop(kept.finalize(Vec::new()).unwrap());
            assert_eq!(held(&memory), (0, 0, 0));
            let again = self::batch(&memory, 6);
            drop(memory.finalize_all(again).unwrap());
        }
    }
}

#[test]
fn one_member_with_too_many_frames_fails_the_batch() {
    let (memory, _) = pool_with_seals(&DualMapper { fork_policy: jittison::memory::ForkPolicy::Snapshot });
    let mut batch = batch(&memory, 4);
    let (code, table) = (batch[2].0.address(SegmentKind::Code), batch[2].0.address(SegmentKind::ReadOnly));
    batch[2].1 = (0..1000).map(|index| Frame { start: code.offset(index), fde: table }).collect();
    assert_says(&memory.finalize_all(batch).err().unwrap(), &["more frames than were planned"]);
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn members_with_large_sections_and_scratch_memory_are_sealed_with_the_others() {
    let (memory, seals) = pool_with_seals(&SingleMapper);
    let mut batch = batch(&memory, 2);
    let large_sections = vec![LargeRequest { size: 5000, align: 0, is_read_only: true }];
    let more = SegmentPlan { large_sections, scratch: plan(0, 0, (500, 0)).segments[2], ..plan(100, 100, (100, 0)) };
    let mut one = memory.allocate(&more).unwrap();
    one.large_section(0).fill(9);
    batch.push((one, Vec::new()));
    let sealed = memory.finalize_all(batch).unwrap();
    assert_eq!(read(sealed[2].large_section_address(0).value(), 5000), [9; 5000]);
    sealed[2].word(0).unwrap().store(5, Ordering::Relaxed);
    let code = seals.done.lock().unwrap().iter().filter(|(pool, ..)| *pool == SegmentKind::Code).count();
    assert_eq!((code, held(&memory).0), (1, 3));
    drop(sealed);
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn a_custom_memory_manager_finalizes_batches_by_the_same_rule() {
    struct Plain(SlabPool);
    // SAFETY: the pool makes all allocations.
    unsafe impl MemoryManager for Plain {
        fn allocate(&self, plan: &SegmentPlan) -> jittison::error::Result<Box<dyn InFlight>> {
            self.0.allocate(plan)
        }
        fn statistics(&self) -> jittison::MemoryStatistics {
            self.0.statistics()
        }
    }
    let (memory, seals) = pool_with_seals(&SingleMapper);
    let memory = Plain(memory);
    assert_eq!(memory.finalize_all(batch(&memory.0, 3)).unwrap().len(), 3);
    *seals.allowed.lock().unwrap() = Some(4);
    assert!(memory.finalize_all(batch(&memory.0, 3)).is_err());
    *seals.allowed.lock().unwrap() = None;
    assert_eq!(held(&memory.0), (0, 0, 0));
    // Allocations of another manager are finalized by their own `finalize`.
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
