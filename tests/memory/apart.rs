//! Memory beside the pools: sections that live apart, and scratch memory for the time of a link.

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::memory::{InFlight, LargeRequest, MemoryManager, SegmentPlan, SegmentRequest, SlabPool, SlabPoolOptions};

use crate::slab::{held, plan, small_pool};
use crate::support::*;

fn with_apart(apart: &[(u64, u64, bool)]) -> SegmentPlan {
    let request = |&(size, align, is_read_only): &_| LargeRequest { size, align, is_read_only };
    SegmentPlan { apart: apart.iter().map(request).collect(), ..plan(64, 16, (16, 0)) }
}

fn with_scratch(size: u64, zero_fill: u64) -> SegmentPlan {
    SegmentPlan { scratch: SegmentRequest { size, align: 64, zero_fill }, ..plan(64, 16, (16, 0)) }
}

#[test]
fn sections_apart_are_as_long_as_planned_zero_and_writable_until_they_are_sealed() {
    let memory = small_pool();
    let mut one = memory.allocate(&with_apart(&[(10_000, 0, true), (5, 1 << 20, false)])).unwrap();
    let places = [one.apart_address(0), one.apart_address(1)];
    assert!(places[1].value().is_multiple_of(1 << 20));
    for (index, length) in [(0, 10_000), (1, 5)] {
        assert_eq!(one.apart(index).len(), length);
        assert!(one.apart(index).iter().all(|byte| *byte == 0));
        one.apart(index).fill(7);
    }
    assert!(one.apart(2).is_empty() && one.apart_address(2) == ExecutorAddr::NULL);
    assert_eq!(held(&memory), (1, 96 + 10_005, 72 + 32 + 3 * 4096 + 4096));
    let one = one.finalize(Vec::new()).unwrap();
    assert_eq!([one.apart_address(0), one.apart_address(1)], places);
    assert_eq!(read(places[0].value(), 10_000), [7; 10_000]);
    let usage = one.usage();
    assert_eq!((usage.code, usage.read_only, usage.data), (64, 10_016, 21));
    assert_eq!(held(&memory), (1, usage.requested(), usage.reserved));
    drop(one);
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn a_section_apart_that_nobody_can_give_is_refused_and_the_pools_keep_nothing() {
    let memory = small_pool();
    let refused = |request, parts: &[&str]| {
        assert_says(&memory.allocate(&with_apart(&[(4096, 0, true), request])).err().unwrap(), parts);
        assert_eq!(held(&memory), (0, 0, 0));
    };
    refused((0, 0, true), &["0 bytes", "apart", "empty"]);
    refused((8, 48, true), &["no power of two"]);
    refused((8, 1 << 40, true), &["nothing is aligned to that"]);
    refused((u64::MAX, 0, true), &["an address space"]);
    refused((1 << 62, 0, false), &["mapping a section of", "apart was refused", "nothing was kept"]);
}

#[test]
fn what_asks_for_nothing_beside_the_pools_is_handed_on_as_it_is_and_has_no_larger_record() {
    let memory = small_pool();
    let kind = |plan: &SegmentPlan| {
        let one = memory.allocate(plan).unwrap();
        let any: &dyn std::any::Any = &*one;
        any.type_id()
    };
    assert_ne!(kind(&plan(64, 16, (16, 0))), kind(&with_scratch(100, 0)));
    let plain = memory.allocate(&plan(64, 16, (16, 0))).unwrap().finalize(Vec::new()).unwrap();
    let apart = memory.allocate(&with_apart(&[(4096, 0, true)])).unwrap().finalize(Vec::new()).unwrap();
    let scratch = memory.allocate(&with_scratch(100, 0)).unwrap().finalize(Vec::new()).unwrap();
    assert!(plain.usage().metadata < apart.usage().metadata);
    assert_eq!(plain.usage(), scratch.usage(), "nothing is left of scratch memory");
}

#[test]
fn scratch_memory_is_there_until_the_link_is_finalized() {
    let memory = small_pool();
    let mut one = memory.allocate(&with_scratch(5000, 1000)).unwrap();
    let place = one.scratch_address();
    assert!(place.value().is_multiple_of(64));
    assert_eq!(one.scratch().len(), 5000);
    assert!(one.scratch()[4000..].iter().all(|byte| *byte == 0));
    one.scratch().fill(0x77);
    one.working(SegmentKind::Data).fill(1);
    assert!(one.scratch().iter().all(|byte| *byte == 0x77), "it is nobody else's");
    assert!(held(&memory).1 >= 5096, "counted while it is there");
    let one = one.finalize(Vec::new()).unwrap();
    assert_eq!(held(&memory), (1, 96, one.usage().reserved));
    assert_eq!(read(one.address(SegmentKind::Data).value(), 16), [1; 16]);
    // The place is given out again, zero where zero is asked for.
    let mut next = memory.allocate(&with_scratch(5000, 5000)).unwrap();
    assert_eq!(next.scratch_address(), place);
    assert!(next.scratch().iter().all(|byte| *byte == 0));
    drop(next);
    assert_eq!(held(&memory).0, 1);
}

#[test]
fn an_abandoned_or_refused_link_leaves_no_scratch_memory() {
    let memory = small_pool();
    drop(memory.allocate(&with_scratch(5000, 0)).unwrap());
    assert_eq!(held(&memory), (0, 0, 0));
    let mut too_much = with_scratch(1 << 30, 0);
    assert_says(&memory.allocate(&too_much).err().unwrap(), &["data pool is exhausted"]);
    too_much.scratch = SegmentRequest { size: 64, align: 3, zero_fill: 0 };
    assert!(memory.allocate(&too_much).is_err());
    let mut both = with_scratch(5000, 0);
    both.apart = vec![LargeRequest::default()];
    assert!(memory.allocate(&both).is_err());
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn the_budget_counts_what_is_beside_the_pools_and_takes_it_back() {
    let options = SlabPoolOptions { window_size: 64 << 20, budget: Some(100_000), ..Default::default() };
    let memory = SlabPool::new(options).unwrap();
    for _ in 0..50 {
        let one = memory.allocate(&with_apart(&[(90_000, 0, true)])).unwrap();
        assert_says(&memory.allocate(&with_apart(&[(12_288, 0, true)])).err().unwrap(), &["budget of 100000"]);
        drop(one.finalize(Vec::new()).unwrap());
        let one = memory.allocate(&with_scratch(90_000, 0)).unwrap();
        assert!(memory.allocate(&with_scratch(90_000, 0)).is_err());
        drop(one.finalize(Vec::new()).unwrap());
    }
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn allocations_that_came_without_more_say_so() {
    let memory = small_pool();
    let mut one: Box<dyn InFlight> = memory.allocate(&plan(64, 16, (16, 0))).unwrap();
    assert!(one.scratch().is_empty() && one.apart(0).is_empty());
    assert_eq!((one.scratch_address(), one.apart_address(0)), (ExecutorAddr::NULL, ExecutorAddr::NULL));
}
