//! Memory outside the planned segments: large sections, which have mappings of their own, and scratch memory, which lives until
//! the link is finalized.

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::memory::{InFlight, LargeRequest, MemoryManager, SegmentPlan, SegmentRequest, SlabPool, SlabPoolOptions};

use crate::slab::{held, plan, small_pool};
use crate::support::*;

/// A plan with large sections. Each is `(size, alignment, is read-only)`.
fn with_large_sections(sections: &[(u64, u64, bool)]) -> SegmentPlan {
    let request = |&(size, align, is_read_only): &_| LargeRequest { size, align, is_read_only };
    SegmentPlan { large_sections: sections.iter().map(request).collect(), ..plan(64, 16, (16, 0)) }
}

fn with_scratch(size: u64, zero_fill: u64) -> SegmentPlan {
    SegmentPlan { scratch: SegmentRequest { size, align: 64, zero_fill }, ..plan(64, 16, (16, 0)) }
}

#[test]
fn large_sections_have_the_planned_size_and_are_zero_and_writable_until_sealed() {
    let memory = small_pool();
    let mut one = memory.allocate(&with_large_sections(&[(10_000, 0, true), (5, 1 << 20, false)])).unwrap();
    let addresses = [one.large_section_address(0), one.large_section_address(1)];
    assert!(addresses[1].value().is_multiple_of(1 << 20));
    for (index, length) in [(0, 10_000), (1, 5)] {
        assert_eq!(one.large_section(index).len(), length);
        assert!(one.large_section(index).iter().all(|byte| *byte == 0));
        one.large_section(index).fill(7);
    }
    assert!(one.large_section(2).is_empty() && one.large_section_address(2) == ExecutorAddr::NULL);
    assert_eq!(held(&memory), (1, 96 + 10_005, 72 + 32 + 10_000_u64.next_multiple_of(page_size()) + page_size()));
    let one = one.finalize(Vec::new()).unwrap();
    assert_eq!([one.large_section_address(0), one.large_section_address(1)], addresses);
    assert_eq!(read(addresses[0].value(), 10_000), [7; 10_000]);
    let usage = one.usage();
    assert_eq!((usage.code, usage.read_only, usage.data), (64, 10_016, 21));
    assert_eq!(held(&memory), (1, usage.requested(), usage.reserved));
    drop(one);
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn an_impossible_large_section_is_refused_and_leaves_nothing_in_the_pools() {
    let memory = small_pool();
    let refused = |request, parts: &[&str]| {
        assert_says(&memory.allocate(&with_large_sections(&[(4096, 0, true), request])).err().unwrap(), parts);
        assert_eq!(held(&memory), (0, 0, 0));
    };
    refused((0, 0, true), &["0 bytes", "large-section", "the section is empty"]);
    refused((8, 48, true), &["not a power of two"]);
    refused((8, 1 << 40, true), &["greater than 2 MiB"]);
    refused((u64::MAX, 0, true), &["larger than the address space"]);
    refused((1 << 62, 0, false), &["mapping a large section of", "KiB was refused", "the operation was undone"]);
}

#[test]
fn an_allocation_without_large_sections_and_scratch_memory_has_a_smaller_record() {
    let memory = small_pool();
    let type_of = |plan: &SegmentPlan| {
        let one = memory.allocate(plan).unwrap();
        let any: &dyn std::any::Any = &*one;
        any.type_id()
    };
    assert_ne!(type_of(&plan(64, 16, (16, 0))), type_of(&with_scratch(100, 0)));
    let plain = memory.allocate(&plan(64, 16, (16, 0))).unwrap().finalize(Vec::new()).unwrap();
    let large = memory.allocate(&with_large_sections(&[(4096, 0, true)])).unwrap().finalize(Vec::new()).unwrap();
    let scratch = memory.allocate(&with_scratch(100, 0)).unwrap().finalize(Vec::new()).unwrap();
    assert!(plain.usage().metadata < large.usage().metadata);
    assert_eq!(plain.usage(), scratch.usage(), "finalize frees the scratch memory");
}

#[test]
fn scratch_memory_lives_until_the_link_is_finalized() {
    let memory = small_pool();
    let mut one = memory.allocate(&with_scratch(5000, 1000)).unwrap();
    let address = one.scratch_address();
    assert!(address.value().is_multiple_of(64));
    assert_eq!(one.scratch().len(), 5000);
    assert!(one.scratch()[4000..].iter().all(|byte| *byte == 0));
    one.scratch().fill(0x77);
    one.working(SegmentKind::Data).fill(1);
    assert!(one.scratch().iter().all(|byte| *byte == 0x77), "no segment overlaps the scratch memory");
    assert!(held(&memory).1 >= 5096, "scratch memory counts until finalize");
    let one = one.finalize(Vec::new()).unwrap();
    assert_eq!(held(&memory), (1, 96, one.usage().reserved));
    assert_eq!(read(one.address(SegmentKind::Data).value(), 16), [1; 16]);
    // The memory is reused, and the zero fill is zero.
    let mut next = memory.allocate(&with_scratch(5000, 5000)).unwrap();
    assert_eq!(next.scratch_address(), address);
    assert!(next.scratch().iter().all(|byte| *byte == 0));
    drop(next);
    assert_eq!(held(&memory).0, 1);
}

#[test]
fn an_abandoned_or_refused_link_leaves_no_scratch_memory() {
    let memory = small_pool();
    drop(memory.allocate(&with_scratch(5000, 0)).unwrap());
    assert_eq!(held(&memory), (0, 0, 0));
    let mut bad = with_scratch(1 << 30, 0);
    assert_says(&memory.allocate(&bad).err().unwrap(), &["data pool is exhausted"]);
    bad.scratch = SegmentRequest { size: 64, align: 3, zero_fill: 0 };
    assert!(memory.allocate(&bad).is_err());
    let mut both = with_scratch(5000, 0);
    both.large_sections = vec![LargeRequest::default()];
    assert!(memory.allocate(&both).is_err());
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn the_budget_counts_large_sections_and_scratch_memory_until_they_are_freed() {
    let options = SlabPoolOptions { window_size: 64 << 20, budget: Some(100_000), ..Default::default() };
    let memory = SlabPool::new(options).unwrap();
    for _ in 0..50 {
        let one = memory.allocate(&with_large_sections(&[(90_000, 0, true)])).unwrap();
        assert_says(&memory.allocate(&with_large_sections(&[(12_288, 0, true)])).err().unwrap(), &["budget of 100000"]);
        drop(one.finalize(Vec::new()).unwrap());
        let one = memory.allocate(&with_scratch(90_000, 0)).unwrap();
        assert!(memory.allocate(&with_scratch(90_000, 0)).is_err());
        drop(one.finalize(Vec::new()).unwrap());
    }
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn large_sections_and_scratch_memory_are_empty_unless_planned() {
    let memory = small_pool();
    let mut one: Box<dyn InFlight> = memory.allocate(&plan(64, 16, (16, 0))).unwrap();
    assert!(one.scratch().is_empty() && one.large_section(0).is_empty());
    assert_eq!((one.scratch_address(), one.large_section_address(0)), (ExecutorAddr::NULL, ExecutorAddr::NULL));
}
