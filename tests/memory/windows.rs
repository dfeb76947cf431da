//! Several windows: another one is opened if the first is full and `OnFull::OpenAnother` is set, for allocations that must lie
//! below 2 GiB, and for each allocation without pooling.

use std::sync::{Arc, OnceLock};

use jittison::Jit;
use jittison::base::SegmentKind;
use jittison::error::{ErrorKind, MemoryFault};
use jittison::memory::{
    Finalized, MappedWindow, MemoryManager, MemoryMapper, OnFull, Placement, Released, SegmentPlan, SlabPool,
    SlabPoolOptions, SystemMapper, WindowLayout,
};

use crate::intercepting_mapper::{Call, InterceptingMapper, Interceptor, Range};
use crate::mapping_modes::{assert_throws_and_catches, jit_over, throwing};
use crate::slab::{held, make, plan};
use crate::support::*;

const MIB: u64 = 1 << 20;

/// A pool that opens further windows of the smallest size, and the code capacity of such a window in bytes.
fn opening() -> (SlabPool, u64) {
    let options = SlabPoolOptions {
        window_size: 0,
        on_full: OnFull::OpenAnother,
        returns_memory: false,
        trap_freed_code: false,
        ..Default::default()
    };
    (SlabPool::new(options).unwrap(), WindowLayout::divide(32 * MIB).unwrap().pool(SegmentKind::Code).size)
}

fn of_group(group: u64, code: u64) -> SegmentPlan {
    SegmentPlan { group, ..plan(code, 16, (16, 0)) }
}

/// The number of the window in which an allocation lies. Allocations at a distance of less than 32 MiB are in one window.
fn window_of(one: &dyn Finalized, starts: &mut Vec<u64>) -> usize {
    let at = one.address(SegmentKind::Code).value();
    starts.iter().position(|start| at.abs_diff(*start) < 32 * MIB).unwrap_or_else(|| {
        starts.push(at);
        starts.len() - 1
    })
}

#[test]
fn a_full_window_fails_or_opens_another_by_policy() {
    let refusing = SlabPool::new(SlabPoolOptions { window_size: 0, ..Default::default() }).unwrap();
    let (opening, capacity) = opening();
    let both = [&refusing, &opening].map(|memory| {
        let first = make(memory, &plan(capacity - MIB, 16, (16, 0)));
        (first, memory.allocate(&plan(2 * MIB, 16, (16, 0))))
    });
    let [(_, refused), (_, second)] = both;
    let error = refused.err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Memory(MemoryFault::PoolExhausted { .. })), "{error}");
    let second = second.unwrap();
    assert_eq!((opening.statistics().windows, opening.statistics().allocations), (2, 2));
    assert_eq!((refusing.statistics().windows, refusing.statistics().allocations), (1, 1));
    drop(second);
}

/// Refuses every window that is larger than the smallest one.
struct SmallestOnly;

impl MemoryMapper for SmallestOnly {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        if layout.size() > 32 * MIB {
            return Err(MemoryFault::Refused { step: "the test".to_string(), problem: "too large".to_string() });
        }
        SystemMapper::default().map_window(layout, placement)
    }
}

/// The default size is not 32 MiB times a power of two, so halving it alone skips 32 MiB.
#[test]
fn a_pool_tries_smaller_windows_down_to_32_mib() {
    let smallest = WindowLayout::divide(32 * MIB).unwrap().size();
    for window_size in [SlabPoolOptions::default().window_size, 48 * MIB, 33 * MIB] {
        let options = SlabPoolOptions { window_size, ..Default::default() };
        let memory = SlabPool::with_mapper(SmallestOnly, options).unwrap();
        assert_eq!(memory.window().1, smallest);
    }
}

#[test]
fn an_allocation_that_fits_no_window_is_refused_and_opens_none() {
    let (memory, capacity) = opening();
    for _ in 0..3 {
        assert!(memory.allocate(&plan(capacity + MIB, 0, (0, 0))).is_err());
        assert_eq!(memory.statistics().windows, 1);
    }
}

#[test]
fn a_window_for_one_allocation_is_as_large_as_the_allocation_needs() {
    // Larger than the smallest window and than the first low window.
    let large = plan(80 * MIB, 16, (16, 0));
    let unpooled = SlabPool::new(SlabPoolOptions { is_pooled: false, ..Default::default() }).unwrap();
    assert_eq!(make(&unpooled, &large).usage().code, 80 * MIB);
    let pooled = SlabPool::new(SlabPoolOptions::default()).unwrap();
    let low = make(&pooled, &SegmentPlan { low: true, ..large });
    assert!(low.address(SegmentKind::Code).value() + 80 * MIB < 1 << 31);
}

/// Each frame has a slot of the frame table, so many tiny functions need more code granules than their bytes.
#[test]
fn a_window_for_many_tiny_functions_has_a_slot_for_each_frame() {
    let many = |frame_count| SegmentPlan { frame_count, ..plan(64, 16, (16, 0)) };
    let unpooled = SlabPool::new(SlabPoolOptions { is_pooled: false, ..Default::default() }).unwrap();
    drop(make(&unpooled, &many(300_000)));
    let pooled = SlabPool::new(SlabPoolOptions::default()).unwrap();
    drop(make(&pooled, &SegmentPlan { low: true, ..many(600_000) }));
}

#[test]
fn a_group_stays_in_its_window_until_all_its_allocations_are_freed() {
    let (memory, capacity) = opening();
    let mut windows = Vec::new();
    let filler = make(&memory, &plan(capacity - MIB, 16, (16, 0)));
    assert_eq!(window_of(&*filler, &mut windows), 0);
    let (first, second) = (make(&memory, &of_group(5, 2 * MIB)), make(&memory, &of_group(5, 64)));
    assert_eq!([&first, &second].map(|one| window_of(&**one, &mut windows)), [1, 1]);
    // Now the first window has free space as well.
    drop((filler, first));
    let third = make(&memory, &of_group(5, 64));
    assert_eq!(window_of(&*third, &mut windows), 1, "in the window of the second");
    drop((second, third));
    assert_eq!(window_of(&*make(&memory, &of_group(5, 64)), &mut windows), 0);
}

#[test]
fn a_group_stays_in_one_window_while_the_window_has_space() {
    let (memory, capacity) = opening();
    let mut windows = Vec::new();
    let quarter = capacity / 4;
    // The first group fills most of the first window, the second begins another.
    let mut live: Vec<_> = (0..3).map(|_| make(&memory, &of_group(1, quarter))).collect();
    live.extend((0..2).map(|_| make(&memory, &of_group(2, quarter + MIB))));
    let of = |live: &[Box<dyn Finalized>], windows: &mut Vec<u64>| -> Vec<usize> {
        live.iter().map(|one| window_of(&**one, windows)).collect()
    };
    assert_eq!(of(&live, &mut windows), [0, 0, 0, 1, 1]);
    // The first window has space, too, but the group has allocations in the second.
    live.push(make(&memory, &of_group(2, 64)));
    live.push(make(&memory, &of_group(1, 64)));
    live.push(make(&memory, &of_group(3, 64)));
    assert_eq!(of(&live, &mut windows), [0, 0, 0, 1, 1, 1, 0, 0]);
    // A group that does not fit its window continues in another.
    live.push(make(&memory, &of_group(1, capacity / 2)));
    assert_eq!(of(&live, &mut windows)[8..], [2]);
    // After the last allocation of a group is freed, the group has no window.
    live.truncate(3);
    live.push(make(&memory, &of_group(2, 64)));
    assert_eq!(of(&live, &mut windows), [0, 0, 0, 0]);
}

#[test]
fn a_group_of_two_further_windows_goes_into_the_one_that_has_space() {
    let (memory, capacity) = opening();
    let mut windows = Vec::new();
    let filler = make(&memory, &plan(capacity - MIB, 16, (16, 0)));
    let large = make(&memory, &of_group(2, capacity - MIB));
    let small = make(&memory, &of_group(2, 2 * MIB));
    assert_eq!([&filler, &large, &small].map(|one| window_of(&**one, &mut windows)), [0, 1, 2]);
    // Now the first window has space as well, and the first window with the group is full.
    drop(filler);
    assert_eq!(window_of(&*make(&memory, &of_group(2, 2 * MIB)), &mut windows), 2);
}

#[test]
fn a_group_that_outgrew_the_first_window_stays_in_the_window_where_it_continues() {
    let (memory, capacity) = opening();
    let mut windows = Vec::new();
    let first = make(&memory, &of_group(1, capacity - MIB));
    let other = make(&memory, &of_group(2, capacity - 4 * MIB));
    let continued = make(&memory, &of_group(1, 6 * MIB));
    assert_eq!([&first, &other, &continued].map(|one| window_of(&**one, &mut windows)), [0, 1, 2]);
    // The second window has space, too.
    assert_eq!(window_of(&*make(&memory, &of_group(1, 2 * MIB)), &mut windows), 2);
}

#[test]
fn a_closed_window_still_counts_in_the_bytes_returned_so_far() {
    let (memory, capacity) = opening();
    let written = |code| {
        let mut one = memory.allocate(&plan(code, 16, (16, 0))).unwrap();
        one.working(SegmentKind::Code).fill(0xc3);
        one.finalize(Vec::new()).unwrap()
    };
    let (first, second) = (written(capacity - MIB), written(2 * MIB));
    drop((first, second));
    let returned = memory.release_free().bytes;
    assert!(returned >= capacity + MIB, "{returned}");
    assert_eq!((memory.statistics().windows, memory.statistics().returned_bytes), (1, returned));
}

#[test]
fn release_free_unmaps_further_windows_that_are_empty() {
    let (memory, capacity) = opening();
    let first = make(&memory, &plan(capacity, 16, (16, 0)));
    let (second, third) = (make(&memory, &plan(capacity, 16, (16, 0))), make(&memory, &plan(capacity, 16, (16, 0))));
    assert_eq!(memory.statistics().windows, 3);
    drop(second);
    memory.release_free();
    assert_eq!((memory.statistics().windows, memory.statistics().allocations), (2, 2));
    drop((first, third));
    memory.release_free();
    assert_eq!((memory.statistics().windows, held(&memory)), (1, (0, 0, 0)));
    drop(make(&memory, &plan(capacity, 16, (16, 0))));
}

#[test]
fn modules_of_one_dylib_are_linked_into_the_same_window() {
    let Some(large) = c("char data[2 << 20] = { 1 }; char *large(void) { return data; }") else { return };
    let Some(small) = c("long small(void) { return 1; }") else { return };
    let jit = Jit::builder().window_size(0).on_full(OnFull::OpenAnother).build().unwrap();
    let [grown, other] = ["grown", "other"].map(|name| jit.create_dylib(name).unwrap());
    let mut trackers = Vec::new();
    let at = loop {
        trackers.push(add(&jit, &grown, "large.o", &large));
        let at = jit.address_of(&grown, "large").unwrap().value();
        grown.remove_symbols(&["large", "data"]).unwrap();
        if jit.memory_statistics().windows == 2 {
            break at;
        }
    };
    // The rest of the dylib lies in the second window, and the first window has space again.
    let last = trackers.pop().unwrap();
    for tracker in trackers.drain(..) {
        assert!(tracker.remove().unwrap().is_complete());
    }
    let address_of_small = |dylib| {
        let _tracker = add(&jit, dylib, "small.o", &small);
        jit.address_of(dylib, "small").unwrap().value()
    };
    assert!(address_of_small(&grown).abs_diff(at) < 32 * MIB, "in the window of its dylib");
    assert!(address_of_small(&other).abs_diff(at) > 32 * MIB, "the other dylib is in the window that has space");
    drop(last);
}

#[test]
fn dylibs_in_several_windows_call_throw_and_are_removed() {
    let options = SlabPoolOptions { window_size: 0, on_full: OnFull::OpenAnother, ..Default::default() };
    let memory = Arc::new(SlabPool::new(options).unwrap());
    let jit = jit_over(memory.clone());
    let Some(objects) = throwing() else { return };
    let Some(large) = c("char data[3 << 20] = { 1 }; long test(void) { return data[0]; }") else { return };
    let mut trackers = Vec::new();
    for index in 0..12 {
        let dylib = jit.create_dylib(&format!("dylib {index}")).unwrap();
        trackers.push(add(&jit, &dylib, "large.o", &large));
        assert_eq!(long_in(&jit, &dylib, "test"), 1);
    }
    assert!(memory.statistics().windows > 1, "{:?}", memory.statistics());
    assert_throws_and_catches(&jit, &objects);
    for tracker in trackers {
        assert!(tracker.remove().unwrap().is_complete());
    }
    jit.release_free();
    assert_eq!(memory.statistics().windows, 1);
}

#[test]
fn low_allocations_lie_below_2_gib_beside_a_high_window() {
    let memory = SlabPool::new(SlabPoolOptions { window_size: 64 * MIB, ..Default::default() }).unwrap();
    let high = make(&memory, &plan(64, 16, (16, 0)));
    let low: Vec<_> = (0..3).map(|_| make(&memory, &SegmentPlan { low: true, ..plan(64, 16, (16, 0)) })).collect();
    for pool in SegmentKind::ALL {
        assert!(high.address(pool).value() >= 1 << 31);
        assert!(low.iter().all(|one| one.address(pool).value() < 1 << 31));
    }
    // All of a group lies low if one allocation must. Another group, or none, is not affected.
    let of_group = |low, group| make(&memory, &SegmentPlan { low, group, ..plan(64, 16, (16, 0)) });
    let together = [of_group(true, 5), of_group(false, 5)];
    let others = [of_group(false, 7), of_group(false, 0), of_group(false, 7)];
    assert!(together.iter().all(|one| one.address(SegmentKind::Code).value() < 1 << 31));
    assert!(others.iter().all(|one| one.address(SegmentKind::Code).value() >= 1 << 31));
    drop((together, others));
    assert_eq!(memory.statistics().windows, 2);
    drop(low);
    memory.release_free();
    assert_eq!(memory.statistics().windows, 1);
    // If the first window is low, no further window is needed.
    let options = SlabPoolOptions { window_size: 64 * MIB, placement: Placement::Low2GiB, ..Default::default() };
    let memory = SlabPool::new(options).unwrap();
    drop(make(&memory, &SegmentPlan { low: true, ..plan(64, 16, (16, 0)) }));
    assert_eq!(memory.statistics().windows, 1);
}

/// Whether an allocation of a group that does not ask for low memory lies there.
fn is_low(memory: &SlabPool, group: u64) -> bool {
    make(memory, &of_group(group, 64)).address(SegmentKind::Code).value() < 1 << 31
}

#[test]
fn a_group_no_longer_lies_low_once_its_low_allocations_are_freed() {
    for on_full in [OnFull::Refuse, OnFull::OpenAnother] {
        let options = SlabPoolOptions { window_size: 64 * MIB, on_full, ..Default::default() };
        let memory = SlabPool::new(options).unwrap();
        let _high = make(&memory, &of_group(5, 64));
        let low = || make(&memory, &SegmentPlan { low: true, ..of_group(5, 64) });
        let two = [low(), low()];
        assert!(is_low(&memory, 5) && !is_low(&memory, 6));
        let [one, other] = two;
        drop(one);
        memory.release_free();
        assert!(is_low(&memory, 5), "one is left");
        drop(other);
        assert!(!is_low(&memory, 5), "{on_full:?}");
    }
}

/// Code below 2 GiB may refer to the rest of its group by 32-bit addresses, also without pooling.
#[test]
fn without_pooling_a_group_lies_low_as_long_as_it_has_a_low_allocation() {
    for on_full in [OnFull::Refuse, OnFull::OpenAnother] {
        let memory = SlabPool::new(SlabPoolOptions { is_pooled: false, on_full, ..Default::default() }).unwrap();
        let low = make(&memory, &SegmentPlan { low: true, ..of_group(5, 64) });
        assert!(is_low(&memory, 5) && !is_low(&memory, 6) && !is_low(&memory, 0));
        drop(low);
        assert!(!is_low(&memory, 5), "{on_full:?}");
        assert!(memory.allocate(&SegmentPlan { low: true, ..of_group(5, 1 << 40) }).is_err());
        assert!(!is_low(&memory, 5), "a refused allocation does not count");
    }
}

#[test]
fn without_pooling_a_32_bit_address_reaches_the_other_objects_of_its_dylib() {
    let user = ".globl test\ntest: movl at(%rip), %eax\nret\n.data\nat: .long number\n";
    let [Some(user), Some(number)] = [asm(user), c("long number = 1;")] else { return };
    let jit = Jit::builder().pooled(false).build().unwrap();
    // The lookup links the user first, and then what it refers to.
    let _trackers =
        [("user.o", &user), ("number.o", &number)].map(|(name, bytes)| add(&jit, jit.main_dylib(), name, bytes));
    assert_eq!(long(&jit, "test") as u64, jit.address_of(jit.main_dylib(), "number").unwrap().value());
}

#[test]
fn a_refused_low_allocation_leaves_its_group_where_it_is() {
    let memory = SlabPool::new(SlabPoolOptions { window_size: 64 * MIB, ..Default::default() }).unwrap();
    let too_large = SegmentPlan { low: true, ..of_group(5, 1 << 40) };
    assert!(memory.allocate(&too_large).is_err());
    assert!(!is_low(&memory, 5));
}

/// Releases the free memory of its pool before a low window is mapped, and asks where the group of the allocation lies.
#[derive(Default)]
struct ReleasesBeforeMapping {
    pool: OnceLock<Arc<SlabPool>>,
    released: std::sync::atomic::AtomicUsize,
}

impl Interceptor for ReleasesBeforeMapping {
    fn before_call(&self, call: Call, _: Option<Range>) -> Result<(), MemoryFault> {
        let (Call::Map, Some(pool)) = (call, self.pool.get()) else { return Ok(()) };
        if self.released.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            pool.release_free();
            assert!(is_low(pool, 5), "the group is low from the request on");
        }
        Ok(())
    }
}

/// A release at that moment made the group forget that its allocations must lie low.
#[test]
fn a_group_stays_low_if_memory_is_released_while_its_low_window_is_mapped() {
    let options = SlabPoolOptions { window_size: 64 * MIB, on_full: OnFull::OpenAnother, ..Default::default() };
    let interceptor = Arc::new(ReleasesBeforeMapping::default());
    let mapper = InterceptingMapper { inner: SystemMapper::default(), interceptor: interceptor.clone() };
    let pool = Arc::new(SlabPool::with_mapper(mapper, options).unwrap());
    assert!(interceptor.pool.set(pool.clone()).is_ok());
    let low = make(&pool, &SegmentPlan { low: true, ..of_group(5, 64) });
    assert!(interceptor.released.load(std::sync::atomic::Ordering::Relaxed) > 0);
    assert!(is_low(&pool, 5));
    drop(low);
    assert!(!is_low(&pool, 5));
}

#[test]
fn without_pooling_every_allocation_has_its_own_window_and_leaves_nothing() {
    own_process!();
    let Some(object) = c("static long state = 3; long zero[50000]; long test(void) { return state++ + zero[7]; }")
    else {
        return;
    };
    let Some(objects) = throwing() else { return };
    let options = SlabPoolOptions { is_pooled: false, ..Default::default() };
    let memory = Arc::new(SlabPool::new(options).unwrap());
    let jit: Jit = jit_over(memory.clone());
    let windows = || mappings().iter().filter(|mapping| mapping.name.contains("memfd:jittison")).count();
    let before = windows();
    let mut trackers = Vec::new();
    for _ in 0..20 {
        let dylib = jit.create_dylib("module").unwrap();
        trackers.push(add(&jit, &dylib, "module.o", &object));
        assert_eq!(long_in(&jit, &dylib, "test"), 3);
    }
    assert_eq!((memory.statistics().windows, memory.statistics().allocations), (21, 20));
    assert_eq!((jit.release_free_slabs(), jit.release_free()), (0, Released::default()));
    assert_throws_and_catches(&jit, &objects);
    for tracker in trackers.drain(1..) {
        assert!(tracker.remove().unwrap().is_complete());
    }
    assert!(memory.statistics().windows < 10);
    assert!(trackers.pop().unwrap().remove().unwrap().is_complete());
    for dylib in jit.session().dylibs() {
        dylib.clear().unwrap();
    }
    assert_eq!((memory.statistics().windows, windows()), (1, before));
}

#[test]
fn without_pooling_distant_objects_still_call_each_other() {
    let objects = [
        c("extern long other(void); extern long shared; long test(void) { return other() + shared; }"),
        c("long shared = 30; long other(void) { return 12; }"),
    ];
    let [Some(caller), Some(callee)] = objects else { return };
    for is_pooled in [true, false] {
        let jit = Jit::builder().pooled(is_pooled).build().unwrap();
        let _trackers = [("callee.o", &callee), ("caller.o", &caller)]
            .map(|(name, bytes)| add(&jit, jit.main_dylib(), name, bytes));
        assert_eq!(long(&jit, "test"), 42);
        let at = |name| jit.address_of(jit.main_dylib(), name).unwrap().value();
        assert_eq!(at("test").abs_diff(at("other")) < 2 * MIB, is_pooled);
    }
}

/// Uses its pool whenever a window of the pool is mapped, as a fork handler of the program may while the mapping waits for it.
#[derive(Default)]
struct PoolUser {
    pool: OnceLock<Arc<SlabPool>>,
    mapped: std::sync::atomic::AtomicUsize,
}

impl Interceptor for PoolUser {
    fn before_call(&self, call: Call, _: Option<Range>) -> Result<(), MemoryFault> {
        if let (Call::Map, Some(pool)) = (call, self.pool.get()) {
            self.mapped.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            assert!(pool.statistics().windows > 0);
            drop(make(pool, &of_group(7, 64)));
        }
        Ok(())
    }
}

#[test]
fn no_lock_is_held_while_a_further_window_is_mapped() {
    let options = SlabPoolOptions { window_size: 0, on_full: OnFull::OpenAnother, ..Default::default() };
    let user = Arc::new(PoolUser::default());
    let mapper = InterceptingMapper { inner: SystemMapper::default(), interceptor: user.clone() };
    let pool = Arc::new(SlabPool::with_mapper(mapper, options).unwrap());
    let code = WindowLayout::divide(32 * MIB).unwrap().pool(SegmentKind::Code).size;
    let _first = make(&pool, &plan(code - MIB, 16, (16, 0)));
    assert!(user.pool.set(pool.clone()).is_ok());
    let _second = make(&pool, &plan(2 * MIB, 16, (16, 0)));
    assert_eq!((user.mapped.load(std::sync::atomic::Ordering::Relaxed), pool.statistics().windows), (1, 2));
}
