//! Accounting: the usage of trackers adds up to the session's totals, and a link that is abandoned in any phase frees all its
//! memory.

use fastrand::Rng;
use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::link::{FoundExternal, ObjectBuffer, PlannedLink};
use jittison::memory::{Frame, MemoryManager, MemoryUsage};
use std::sync::atomic::Ordering;

use crate::slab::{held as pool_held, make, plan, small_pool};
use crate::support::*;

#[test]
fn usage_reports_requested_and_reserved_bytes() {
    let memory = small_pool();
    let one = make(&memory, &plan(100, 33, (17, 0)));
    let usage = one.usage();
    assert_eq!((usage.code, usage.read_only, usage.data), (100, 33, 17));
    // Two cache lines of code with a slot each, and three and two granules of 16 bytes.
    assert_eq!(usage.reserved, 2 * (64 + 8) + 48 + 32);
    assert_eq!(usage.requested(), 150);
    assert_eq!(pool_held(&memory), (1, usage.requested(), usage.reserved));
    assert!(usage.total() > usage.reserved, "the record of the allocation counts");
}

#[test]
fn the_sum_over_trackers_is_the_session_s_total() {
    let sources = [
        "long f0(void) { return 1; }",
        "long f1[500] = { 2 }; static const char text[999] = \"x\"; const char *f1b(void) { return text; }",
        "static char zero[5000]; char *f2(void) { return zero; }",
    ];
    let objects: Vec<_> = sources.iter().filter_map(|source| c(source)).collect();
    if objects.len() < sources.len() {
        return;
    }
    let jit = new_jit();
    let dylibs = [jit.create_dylib("a").unwrap(), jit.create_dylib("b").unwrap()];
    let mut trackers = Vec::new();
    for dylib in &dylibs {
        for (index, object) in objects.iter().enumerate() {
            trackers.push(add(&jit, dylib, "object.o", object));
            jit.address_of(dylib, &format!("f{index}")).unwrap();
        }
    }
    let total_of = |trackers: &[jittison::ResourceTracker]| -> MemoryUsage {
        trackers.iter().map(|tracker| jit.usage(tracker)).sum()
    };
    while let Some(tracker) = trackers.pop() {
        let sum = [total_of(&trackers), jit.usage(&tracker)].into_iter().sum::<MemoryUsage>();
        assert_eq!(held(&jit), (trackers.len() + 1, sum.requested(), sum.reserved));
        if trackers.len() == 4 {
            // A transfer moves the usage.
            let before = total_of(&trackers[..2]);
            trackers[0].transfer_to(&trackers[1]).unwrap();
            assert_eq!(jit.usage(&trackers[1]), before);
            assert_eq!(jit.usage(&trackers[0]), MemoryUsage::default());
            let sum = [total_of(&trackers[1..]), jit.usage(&tracker)].into_iter().sum::<MemoryUsage>();
            assert_eq!(held(&jit), (5, sum.requested(), sum.reserved));
            break;
        }
        assert!(tracker.remove().unwrap().is_complete());
    }
    for dylib in &dylibs {
        assert!(dylib.clear().unwrap().is_empty());
    }
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn opened_bytes_are_reserved_bytes_plus_free_bytes() {
    let memory = small_pool();
    let check = || {
        let statistics = memory.statistics();
        assert_eq!(statistics.opened_bytes, statistics.reserved_bytes + statistics.free_bytes);
    };
    check();
    let held: Vec<_> = (1..200).map(|i| make(&memory, &plan(i * 7, i * 5, (i * 3, i)))).collect();
    check();
    drop(held);
    check();
    assert_eq!(memory.statistics().reserved_bytes, 0);
}

#[test]
fn a_link_abandoned_at_any_phase_frees_all_its_memory() {
    let Some(object) = c("extern long other; static long own[9] = { 1 }; long test(void) { return other + own[0]++; }")
    else {
        return;
    };
    let memory = small_pool();
    let plan = || PlannedLink::plan("a.o".into(), ObjectBuffer::new(object.clone()), |_| true, |_| Ok(())).unwrap();
    // Dropped after planning.
    let planned = plan();
    assert!(planned.segment_plan().segment(SegmentKind::Code).size > 0);
    drop(planned);
    assert_eq!(pool_held(&memory), (0, 0, 0));
    // Dropped after the allocation.
    let placed = plan().allocate(&memory).unwrap();
    assert_eq!(pool_held(&memory).0, 1);
    let external = placed.externals().next().unwrap();
    assert_eq!((external.name, external.required), ("other", true));
    assert!(placed.definitions().any(|(name, _)| name == "test"));
    drop(placed);
    assert_eq!(pool_held(&memory), (0, 0, 0));
    // Dropped after fix-up and sealing.
    let found = FoundExternal { address: ExecutorAddr::new(8), ..FoundExternal::default() };
    let (linked, sealed) = plan().allocate(&memory).unwrap().finish(&[found], None).unwrap();
    assert_eq!(&*linked.name, "a.o");
    assert_eq!(pool_held(&memory).0, 1);
    drop(sealed);
    assert_eq!(pool_held(&memory), (0, 0, 0));
}

#[test]
fn a_failed_fix_up_frees_all_its_memory() {
    let Some(object) = asm(".data\n.globl test\ntest: .long far - .\n.section .note.GNU-stack\n") else {
        return;
    };
    let memory = small_pool();
    let placed = PlannedLink::plan("a.o".into(), ObjectBuffer::new(object), |_| true, |_| Ok(())).unwrap();
    let placed = placed.allocate(&memory).unwrap();
    let found = FoundExternal { address: ExecutorAddr::new(8), ..FoundExternal::default() };
    assert!(placed.finish(&[found], None).is_err());
    assert_eq!(pool_held(&memory), (0, 0, 0));
}

#[test]
fn finalizing_more_frames_than_planned_fails_and_frees_all_memory() {
    let memory = small_pool();
    let in_flight = memory.allocate(&plan(64, 64, (0, 0))).unwrap();
    let (code, table) = (in_flight.address(SegmentKind::Code), in_flight.address(SegmentKind::ReadOnly));
    let frame = |offset: u64| Frame { start: code.offset(offset), fde: table };
    let error = in_flight.finalize(vec![frame(0), frame(8)]).err().unwrap();
    assert_says(&error, &["more frames than were planned"]);
    assert_eq!(pool_held(&memory), (0, 0, 0));
    // Frames outside the code of the allocation are ignored.
    let in_flight = memory.allocate(&plan(64, 64, (0, 0))).unwrap();
    let code = in_flight.address(SegmentKind::Code);
    let frame_at = |value| Frame { start: ExecutorAddr::new(value), fde: table };
    let frames = vec![frame_at(0), frame_at(code.value() + 64), frame_at(u64::MAX), Frame { start: code, fde: table }];
    drop(in_flight.finalize(frames).unwrap());
    assert_eq!(pool_held(&memory), (0, 0, 0));
}

#[test]
fn only_aligned_words_inside_the_data_segment_are_accessible() {
    let memory = small_pool();
    let one = make(&memory, &plan(0, 0, (24, 24)));
    let start = one.address(SegmentKind::Data).value();
    one.word(8).unwrap().store(0x1234_5678_9abc_def0, Ordering::Relaxed);
    assert_eq!(read(start + 8, 8), 0x1234_5678_9abc_def0u64.to_le_bytes());
    one.word(16).unwrap().store(u64::MAX, Ordering::Relaxed);
    for offset in [1, 4, 17, 24, 32, 1 << 40, u64::MAX, u64::MAX - 7] {
        assert!(one.word(offset).is_none(), "{offset}");
    }
    assert_eq!(read(start, 8), [0; 8]);
}

#[test]
fn repeated_loads_and_removals_reuse_the_same_memory() {
    let Some(object) =
        c("static long state = 5; static long zero[64]; long test(void) { return state++ + zero[5]++; }")
    else {
        return;
    };
    let jit = jittison::Jit::builder().window_size(16 << 20).trap_freed_code(true).build().unwrap();
    let mut opened = 0;
    for round in 0..32 {
        let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
        assert_eq!(long(&jit, "test"), 5);
        assert!(tracker.remove().unwrap().is_complete());
        if round == 0 {
            opened = jit.memory_statistics().opened_bytes;
        }
        assert_eq!(jit.memory_statistics().opened_bytes, opened);
    }
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn modules_are_removed_and_loaded_again_while_their_siblings_run() {
    let source = |i: i64| {
        format!("long value = {i}; static char spread[40000]; long test(void) {{ return value + spread[9]; }}")
    };
    let objects: Vec<_> = (0..16).filter_map(|i| c(&source(i))).collect();
    if objects.len() < 16 {
        return;
    }
    let jit = new_jit();
    let dylibs: Vec<_> = (0..16).map(|i| jit.create_dylib(&format!("module {i}")).unwrap()).collect();
    let load = |i: usize| {
        let tracker = add(&jit, &dylibs[i], "module.o", &objects[i]);
        assert_eq!(long_in(&jit, &dylibs[i], "test"), i as i64);
        Some(tracker)
    };
    let mut trackers: Vec<_> = (0..16).map(load).collect();
    let mut random = Rng::with_seed(42);
    for _ in 0..200 {
        let which = random.usize(..16);
        trackers[which] = match trackers[which].take() {
            Some(tracker) => {
                assert!(tracker.remove().unwrap().is_complete());
                None
            }
            None => load(which),
        };
        for (i, _) in trackers.iter().enumerate().filter(|(_, tracker)| tracker.is_some()) {
            assert_eq!(long_in(&jit, &dylibs[i], "test"), i as i64);
        }
    }
    for tracker in trackers.into_iter().rev().flatten() {
        assert!(tracker.remove().unwrap().is_complete());
    }
    assert_eq!(held(&jit), (0, 0, 0));
}
