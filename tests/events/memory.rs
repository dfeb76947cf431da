//! Memory events: they add up to the memory statistics.

use std::sync::{Arc, Mutex};

use jittison::Jit;
use jittison::base::{MemoryEvent, SegmentKind};
use jittison::memory::{
    InFlight, LargeRequest, MemoryManager, MemoryObserver, OnFull, SegmentPlan, SegmentRequest, SlabPool,
    SlabPoolOptions, SystemMapper, WindowLayout,
};

use crate::recorder::{Recorded, Recorder};
use crate::support::*;

const MIB: u64 = 1 << 20;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<MemoryEvent>>>);

/// Sums of bytes and windows over all events.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    windows: i64,
    large: i64,
    opened: u64,
    returned: u64,
}

impl Log {
    fn observer(&self) -> MemoryObserver {
        let log = self.0.clone();
        Arc::new(move |event| log.lock().unwrap().push(event))
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for event in &*self.0.lock().unwrap() {
            match *event {
                MemoryEvent::WindowMapped { .. } => sums.windows += 1,
                MemoryEvent::WindowUnmapped { .. } => sums.windows -= 1,
                MemoryEvent::LargeSectionMapped { bytes, .. } => sums.large += bytes as i64,
                MemoryEvent::LargeSectionUnmapped { bytes, .. } => sums.large -= bytes as i64,
                MemoryEvent::SlabOpened { bytes, .. } => sums.opened += bytes,
                MemoryEvent::SlabClosed { bytes, .. } => sums.opened -= bytes,
                MemoryEvent::Returned { bytes, .. } => sums.returned += bytes,
                other => panic!("an unknown event: {other}"),
            }
        }
        sums
    }
}

fn pool(log: &Log, options: SlabPoolOptions) -> SlabPool {
    let options = SlabPoolOptions { returns_memory: false, trap_freed_code: false, ..options };
    SlabPool::observed(SystemMapper::default(), options, log.observer()).unwrap()
}

fn data(size: u64) -> SegmentPlan {
    let mut plan = SegmentPlan::default();
    plan.segments[SegmentKind::Data.index()] = SegmentRequest { size, align: 16, zero_fill: 0 };
    plan
}

/// Fills the memory, so that there are pages to return.
fn written(memory: &SlabPool, size: u64) -> Box<dyn InFlight> {
    let mut allocation = memory.allocate(&data(size)).unwrap();
    allocation.working(SegmentKind::Data).fill(1);
    allocation
}

#[test]
fn events_of_windows_slabs_and_returned_pages_add_up_to_the_statistics() {
    let log = Log::default();
    let memory = pool(&log, SlabPoolOptions { window_size: 256 * MIB, ..Default::default() });
    let window = memory.window();
    let is_it = |event: &MemoryEvent| matches!(event, MemoryEvent::WindowMapped { address, bytes, .. } if (*address, *bytes) == window);
    assert!(matches!(log.0.lock().unwrap().as_slice(), [event] if is_it(event)));
    let checked_sums = || {
        let statistics = memory.statistics();
        let sums = log.sums();
        assert_eq!((sums.opened, sums.returned), (statistics.opened_bytes, statistics.returned_bytes));
        sums
    };
    let small = written(&memory, 1000);
    let large = written(&memory, 5 * MIB);
    assert!(checked_sums().opened >= 6 * MIB);
    drop(large);
    memory.release_free();
    let after = checked_sums();
    assert!(after.returned >= 4 * MIB && after.opened <= 4 * MIB, "{after:?}");
    drop(small);
    memory.release_free();
    let released = checked_sums();
    assert_eq!(released.opened, 0);
    memory.release_free();
    assert_eq!(checked_sums(), released, "pages that are already returned are not reported again");
    drop(memory);
    assert_eq!(log.sums().windows, 0);
}

#[test]
fn further_windows_are_reported_and_none_is_mapped_for_a_request_that_exceeds_any_window() {
    let log = Log::default();
    let memory = pool(&log, SlabPoolOptions { window_size: 0, on_full: OnFull::OpenAnother, ..Default::default() });
    let capacity = WindowLayout::divide(32 * MIB).unwrap().pool(SegmentKind::Data).size;
    assert!(memory.allocate(&data(capacity + MIB)).is_err());
    assert_eq!(log.0.lock().unwrap().len(), 1, "no window is large enough");
    let live: Vec<_> = (0..3).map(|_| memory.allocate(&data(capacity - MIB)).unwrap()).collect();
    assert_eq!((log.sums().windows, memory.statistics().windows), (3, 3));
    assert_eq!(log.sums().opened, memory.statistics().opened_bytes);
    drop(live);
    memory.release_free();
    assert_eq!((log.sums().windows, memory.statistics().windows), (1, 1));
}

#[test]
fn windows_of_single_allocations_and_large_sections_are_reported() {
    let log = Log::default();
    let memory = pool(&log, SlabPoolOptions { window_size: 0, is_pooled: false, ..Default::default() });
    let large_sections = vec![LargeRequest { size: 10_000, align: 0, is_read_only: true }];
    let one = memory.allocate(&SegmentPlan { large_sections, ..data(1000) }).unwrap();
    assert_eq!((log.sums().windows, log.sums().large), (2, 12288));
    drop(one.finalize(Vec::new()).unwrap());
    assert_eq!((log.sums().windows, log.sums().large), (1, 0));
}

#[test]
fn a_memory_observer_may_use_the_pool_and_may_panic() {
    let state = Arc::new(Mutex::new((0, None::<Arc<SlabPool>>)));
    let inner = state.clone();
    let observer: MemoryObserver = Arc::new(move |event| {
        let pool = {
            let mut inner = inner.lock().unwrap();
            inner.0 += 1;
            inner.1.clone()
        };
        let Some(pool) = pool else { return };
        // This allocation causes events, too, until the slab of the smallest size exists.
        drop(pool.allocate(&data(16)).unwrap());
        pool.statistics();
        panic!("the observer panics at {event}");
    });
    let options = SlabPoolOptions { window_size: 256 * MIB, returns_memory: false, ..Default::default() };
    let memory = Arc::new(SlabPool::observed(SystemMapper::default(), options, observer).unwrap());
    state.lock().unwrap().1 = Some(memory.clone());
    let live: Vec<_> = (0..4).map(|_| memory.allocate(&data(2 * MIB)).unwrap()).collect();
    drop(live);
    memory.release_free();
    assert!(state.lock().unwrap().0 >= 5);
    assert_eq!(memory.statistics().allocations, 0);
    state.lock().unwrap().1 = None;
}

#[test]
fn memory_returned_in_the_background_is_reported() {
    let log = Log::default();
    let options = SlabPoolOptions { window_size: 256 * MIB, trap_freed_code: false, ..Default::default() };
    let memory = SlabPool::observed(SystemMapper::default(), options, log.observer()).unwrap();
    drop(written(&memory, 32 * MIB));
    wait_until(|| log.sums().returned >= 24 * MIB);
}

#[test]
fn session_observers_get_the_events_of_the_default_memory() {
    let Some(object) = c("long test(void) { return 1; }") else { return };
    let recorder = Arc::new(Recorder::default());
    let jit = Jit::builder().observer(recorder.clone()).build().unwrap();
    let _tracker = add(&jit, jit.main_dylib(), "module.o", &object);
    assert_eq!(long(&jit, "test"), 1);
    let recorded = recorder.take();
    assert!(matches!(recorded[0], Recorded::Memory(MemoryEvent::WindowMapped { .. })), "{recorded:?}");
    let opened = |recorded: &Recorded| match recorded {
        Recorded::Memory(MemoryEvent::SlabOpened { bytes, .. }) => *bytes,
        _ => 0,
    };
    // The total of the statistics also contains the slots of the frame table.
    let pools = jit.memory_statistics().pools;
    assert_eq!(recorded.iter().map(opened).sum::<u64>(), pools.iter().map(|pool| pool.opened).sum());
}
