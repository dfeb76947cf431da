//! The eight acceptance cases of ORC's slab memory manager, and cases of packing, growth, coalescing and exhaustion.
//!
//! Other files use the helpers [`plan`], [`make`], [`held`] and [`small_pool`].

use fastrand::Rng;
use jittison::base::SegmentKind;
use jittison::error::{Error, ErrorKind, MemoryFault};
use jittison::memory::{
    Finalized, InFlight, MemoryManager, SegmentPlan, SegmentRequest, SlabPool, SlabPoolOptions, WindowLayout,
};

use crate::support::read;

const SMALL_WINDOW: u64 = 64 << 20;

/// The size in bytes of the code pool of [`small_pool`].
fn code_capacity() -> u64 {
    WindowLayout::divide(SMALL_WINDOW).unwrap().pool(SegmentKind::Code).size
}

pub fn small_pool() -> SlabPool {
    let options = SlabPoolOptions { window_size: SMALL_WINDOW, trap_freed_code: true, ..SlabPoolOptions::default() };
    SlabPool::new(options).unwrap()
}

/// A plan with these sizes in bytes. `data` is `(size, zero fill)`.
pub fn plan(code: u64, read_only: u64, data: (u64, u64)) -> SegmentPlan {
    let request = |size, zero_fill| SegmentRequest { size, align: 16, zero_fill };
    SegmentPlan {
        segments: [request(code, 0), request(read_only, 0), request(data.0, data.1)],
        ..SegmentPlan::default()
    }
}

pub fn make(memory: &SlabPool, plan: &SegmentPlan) -> Box<dyn Finalized> {
    memory.allocate(plan).unwrap().finalize(Vec::new()).unwrap()
}

/// `(allocations, live bytes, reserved bytes)`.
pub fn held(memory: &SlabPool) -> (usize, u64, u64) {
    let statistics = memory.statistics();
    (statistics.allocations, statistics.live_bytes, statistics.reserved_bytes)
}

fn at(allocation: &dyn Finalized, pool: SegmentKind) -> u64 {
    allocation.address(pool).value()
}

fn exhausted(error: &Error) -> (u64, u64, u64, u64) {
    match error.kind() {
        ErrorKind::Memory(MemoryFault::PoolExhausted { requested, available, capacity, largest, .. }) => {
            (*requested, *available, *capacity, *largest)
        }
        other => panic!("not exhausted: {other}"),
    }
}

#[test]
fn pools_of_different_protection_share_no_page() {
    let memory = small_pool();
    let held: Vec<_> = (0..200).map(|i| make(&memory, &plan(1 + i, 1 + i * 3, (1 + i * 5, 0)))).collect();
    let pages = |pool| held.iter().map(move |one| at(&**one, pool) >> 12).collect::<std::collections::BTreeSet<_>>();
    let [code, constants, data] = SegmentKind::ALL.map(pages);
    assert!(code.is_disjoint(&constants) && code.is_disjoint(&data) && constants.is_disjoint(&data));
}

#[test]
fn code_is_packed_from_the_start_of_the_pool_on_cache_lines() {
    let memory = small_pool();
    let held: Vec<_> = (0..100).map(|_| make(&memory, &plan(40, 8, (8, 0)))).collect();
    let first = at(&*held[0], SegmentKind::Code);
    for (index, one) in held.iter().enumerate() {
        assert_eq!(at(&**one, SegmentKind::Code), first + index as u64 * 64);
        assert_eq!(at(&**one, SegmentKind::ReadOnly), at(&*held[0], SegmentKind::ReadOnly) + index as u64 * 16);
    }
    // A hundred objects fit on two pages of code.
    assert!(at(&*held[99], SegmentKind::Code) - first < 2 * 4096);
    // A hole is filled before the pool opens more memory.
    let mut held = held;
    let freed = at(&*held.remove(10), SegmentKind::Code);
    assert_eq!(at(&*make(&memory, &plan(64, 8, (8, 0))), SegmentKind::Code), freed);
}

#[test]
fn the_segments_of_one_allocation_are_within_32_bits_of_each_other() {
    for window_size in [16 << 20, 256 << 20, u64::MAX] {
        let memory = SlabPool::new(SlabPoolOptions { window_size, ..SlabPoolOptions::default() }).unwrap();
        let (base, size) = memory.window();
        let one = make(&memory, &plan(100, 100, (100, 50)));
        for a in SegmentKind::ALL {
            assert!((base.value()..base.value() + size).contains(&at(&*one, a)));
            for b in SegmentKind::ALL {
                assert!(i32::try_from(one.address(a).distance_from(one.address(b))).is_ok());
            }
        }
    }
}

#[test]
fn freed_memory_is_reused_and_zeroed() {
    let memory = small_pool();
    let mut first = memory.allocate(&plan(64, 64, (4096, 4096))).unwrap();
    let place = first.address(SegmentKind::Data);
    assert!(first.working(SegmentKind::Data).iter().all(|byte| *byte == 0));
    first.working(SegmentKind::Data).fill(0xaa);
    drop(first.finalize(Vec::new()).unwrap());
    let mut again = memory.allocate(&plan(64, 64, (4096, 4000))).unwrap();
    assert_eq!(again.address(SegmentKind::Data), place);
    assert!(again.working(SegmentKind::Data)[96..].iter().all(|byte| *byte == 0), "the zero fill of the plan is zero");
}

#[test]
fn finalizing_changes_no_address_no_byte_and_no_total() {
    let memory = small_pool();
    let mut one = memory.allocate(&plan(100, 200, (300, 100))).unwrap();
    let before = held(&memory);
    let addresses = SegmentKind::ALL.map(|pool| one.address(pool));
    one.working(SegmentKind::Code).fill(0xc3);
    one.working(SegmentKind::ReadOnly).fill(7);
    let one = one.finalize(Vec::new()).unwrap();
    assert_eq!(held(&memory), before);
    assert_eq!(SegmentKind::ALL.map(|pool| one.address(pool)), addresses);
    assert_eq!(read(at(&*one, SegmentKind::Code), 100), [0xc3; 100], "the bytes are at the executable address");
    assert_eq!(read(at(&*one, SegmentKind::ReadOnly), 200), [7; 200]);
    drop(one);
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn an_abandoned_allocation_frees_its_memory_and_its_address() {
    let memory = small_pool();
    let abandoned = memory.allocate(&plan(1000, 1000, (1000, 0))).unwrap();
    let addresses = SegmentKind::ALL.map(|pool| abandoned.address(pool));
    drop(abandoned);
    assert_eq!(held(&memory), (0, 0, 0));
    let next = memory.allocate(&plan(1000, 1000, (1000, 0))).unwrap();
    assert_eq!(SegmentKind::ALL.map(|pool| next.address(pool)), addresses);
}

#[test]
fn a_plan_larger_than_a_slab_is_contiguous_and_opens_only_what_it_needs() {
    let memory = SlabPool::new(SlabPoolOptions { window_size: 256 << 20, ..SlabPoolOptions::default() }).unwrap();
    let small = make(&memory, &plan(64, 16, (16, 0)));
    let opened = memory.statistics().opened_bytes;
    let large = make(&memory, &plan(9 << 20, 5 << 20, (7 << 20, 7 << 20)));
    let grown = memory.statistics().opened_bytes - opened;
    // Slabs that were already open reduce the growth. The slots of the frame table add to it.
    assert!(((9 + 5 + 7 - 6) << 20..(9 + 5 + 7 + 8) << 20).contains(&grown), "{grown}");
    let place = at(&*large, SegmentKind::Code);
    drop(large);
    // Another allocation can use the opened memory.
    let again = make(&memory, &plan(8 << 20, 0, (0, 0)));
    assert!((place..place + (2 << 20)).contains(&at(&*again, SegmentKind::Code)));
    assert_eq!(memory.statistics().opened_bytes - opened, grown);
    drop((small, again));
    assert_eq!(held(&memory), (0, 0, 0));
}

#[test]
fn random_allocations_never_overlap_and_their_zero_fill_is_zero() {
    let memory = small_pool();
    let mut random = Rng::with_seed(88172645463325252);
    let mut live: Vec<(Box<dyn InFlight>, SegmentPlan, u8)> = Vec::new();
    for round in 0..512u32 {
        if live.len() > 40 || (random.usize(..3) == 0 && !live.is_empty()) {
            let (mut freed, plan, mark) = live.swap_remove(random.usize(..live.len()));
            for pool in SegmentKind::ALL {
                assert_eq!(freed.working(pool).len() as u64, plan.segment(pool).size);
                assert!(freed.working(pool).iter().all(|byte| *byte == mark), "another allocation wrote here");
            }
            drop(freed);
            continue;
        }
        let data = random.usize(..9000) as u64;
        let mut plan = plan(
            random.usize(..9000) as u64,
            random.usize(..9000) as u64,
            (data, random.usize(..data as usize + 1) as u64),
        );
        for segment in &mut plan.segments {
            segment.align = 1 << random.usize(..10);
        }
        let mut one = memory.allocate(&plan).unwrap();
        let zero_from = (plan.segment(SegmentKind::Data).size - plan.segment(SegmentKind::Data).zero_fill) as usize;
        assert!(one.working(SegmentKind::Data)[zero_from..].iter().all(|byte| *byte == 0), "round {round}");
        for pool in SegmentKind::ALL {
            assert_eq!(one.address(pool).value() % plan.segment(pool).align, 0);
            one.working(pool).fill(round as u8);
        }
        live.push((one, plan, round as u8));
    }
    drop(live);
    assert_eq!(held(&memory), (0, 0, 0));
    assert_eq!(memory.statistics().free_ranges, 3, "one per pool: all neighbours have merged");
}

#[test]
fn freed_neighbours_merge_and_serve_a_larger_allocation_at_the_same_address() {
    let memory = small_pool();
    let make = |size| make(&memory, &plan(size, size, (size, 0)));
    let mut row: Vec<_> = (0..5).map(|_| make(4096)).collect();
    let place = SegmentKind::ALL.map(|pool| row[1].address(pool));
    for index in [3, 1, 1] {
        drop(row.remove(index)); // 3, 1, then 2, which merges with both
    }
    let large = make(3 * 4096);
    assert_eq!(SegmentKind::ALL.map(|pool| large.address(pool)), place);
    let statistics = memory.statistics();
    assert_eq!(statistics.free_ranges, 3, "only the end of each pool is free");
}

#[test]
fn a_full_pool_reports_numbers_and_works_again_after_a_removal() {
    let memory = small_pool();
    let mut live = Vec::new();
    let error = loop {
        match memory.allocate(&plan(1 << 20, 0, (0, 0))) {
            Ok(one) => live.push(one),
            Err(error) => break error,
        }
    };
    let (requested, available, capacity, largest) = exhausted(&error);
    assert_eq!((requested, capacity), (1 << 20, code_capacity()));
    assert!(error.is_retriable());
    assert_eq!(live.len() as u64, capacity / (1 << 20));
    assert_eq!((available, largest), (0, 0));
    assert!(error.to_string().contains("1048576 bytes were requested"), "{error}");
    let before = held(&memory);
    assert!(memory.allocate(&plan(64, 100, (100, 0))).is_err());
    assert_eq!(held(&memory), before, "the parts from other pools were freed");
    drop(live.swap_remove(3));
    drop(memory.allocate(&plan(1 << 20, 100, (100, 0))).unwrap());
    // Two free ranges that are not adjacent do not serve a larger request. The error reports both sums.
    drop((live.swap_remove(0), live.pop()));
    let error = memory.allocate(&plan(4 << 20, 0, (0, 0))).err().unwrap();
    let (_, available, _, largest) = exhausted(&error);
    assert_eq!(available, 3 << 20);
    assert!(largest < 4 << 20);
}

#[test]
fn an_impossible_plan_is_refused_at_once() {
    let memory = small_pool();
    let allocate = |change: fn(&mut SegmentPlan)| {
        let mut plan = plan(64, 64, (64, 0));
        change(&mut plan);
        let error = memory.allocate(&plan).err().expect("refused");
        assert_eq!(held(&memory), (0, 0, 0));
        error.to_string()
    };
    assert!(allocate(|plan| plan.segments[0].size = 64 << 20).contains("the code pool is exhausted: 67108864"));
    assert!(allocate(|plan| plan.segments[2].size = u64::MAX).contains("the data pool is exhausted"));
    assert!(allocate(|plan| plan.segments[1].align = 48).contains("not a power of two"));
    let never = SegmentPlan { segments: [SegmentRequest { size: 1, align: 3, zero_fill: 0 }; 3], ..Default::default() };
    assert!(!memory.allocate(&never).err().unwrap().is_retriable());
    assert!(allocate(|plan| plan.segments[1].align = 1 << 40).contains("aligned to 1099511627776"));
    assert!(allocate(|plan| plan.segments[2].zero_fill = 65).contains("more zero-fill bytes than the segment has"));
    assert!(allocate(|plan| plan.frame_count = u64::MAX).contains("the code pool is exhausted"));
}
