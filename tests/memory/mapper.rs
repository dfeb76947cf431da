//! The interface between pools and [`MemoryMapper`]: refused windows are requested again at half the size, one window serves
//! all links, and a window may be any memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jittison::Jit;
use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::error::{ErrorKind, MemoryFault};
use jittison::memory::{
    DualMapper, MappedWindow, MemoryManager, MemoryMapper, OnFull, Placement, SlabPool, SlabPoolOptions, WindowLayout,
};

use crate::intercepting_mapper::{Call, InterceptingMapper, Interceptor, Range};
use crate::slab::{held, make, plan};
use crate::support::*;

/// Refuses the first windows and records the requested sizes.
struct Refusing {
    refusals: usize,
    requested: std::sync::Mutex<Vec<u64>>,
}

impl MemoryMapper for Refusing {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        let mut requested = self.requested.lock().unwrap();
        requested.push(layout.size());
        if requested.len() <= self.refusals {
            let problem = format!("no, for the {}th time", requested.len());
            return Err(MemoryFault::Refused { step: "mapping".to_string(), problem });
        }
        DualMapper::default().map_window(layout, placement)
    }
}

fn negotiate(refusals: usize, window_size: u64) -> (jittison::error::Result<SlabPool>, Vec<u64>) {
    let mapper = Arc::new(Refusing { refusals, requested: Default::default() });
    let options = SlabPoolOptions { window_size, ..SlabPoolOptions::default() };
    let pool = SlabPool::with_mapper(mapper.clone(), options);
    let requested = mapper.requested.lock().unwrap().clone();
    (pool, requested)
}

#[test]
fn a_refused_window_is_requested_again_at_half_the_size() {
    let (pool, requested) = negotiate(3, 512 << 20);
    let pool = pool.unwrap();
    assert_eq!(requested.len(), 4);
    for (size, expected) in requested.iter().zip([512u64 << 20, 256 << 20, 128 << 20, 64 << 20]) {
        assert!((expected - (8 << 20)..=expected).contains(size), "{size:#x}");
    }
    assert_eq!(pool.window().1, requested[3]);
    let one = make(&pool, &plan(100, 100, (100, 100)));
    assert_eq!(held(&pool).0, 1);
    drop(one);
}

#[test]
fn when_every_window_is_refused_the_last_refusal_is_the_error() {
    let (pool, requested) = negotiate(usize::MAX, 1 << 30);
    assert!((4..8).contains(&requested.len()), "1 GiB, 512 MiB, … {requested:?}");
    assert!(requested.is_sorted_by(|before, after| before > after));
    let last = format!("for the {}th time", requested.len());
    assert_says(&pool.err().unwrap(), &["mapping was refused", &last, "the operation was undone"]);
}

#[test]
fn a_window_size_out_of_bounds_is_clamped() {
    assert_eq!(negotiate(0, 0).1.len(), 1);
    assert!(negotiate(0, 0).0.unwrap().window().1 <= 64 << 20);
    assert!(negotiate(0, u64::MAX).0.unwrap().window().1 < 1 << 31);
}

/// Counts mapped and unmapped windows.
#[derive(Default)]
struct Counts {
    maps: AtomicUsize,
    drops: AtomicUsize,
}

impl Interceptor for Counts {
    fn before_call(&self, call: Call, _: Option<Range>) -> Result<(), MemoryFault> {
        match call {
            Call::Map => self.maps.fetch_add(1, Ordering::Relaxed),
            Call::Unmap => self.drops.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        Ok(())
    }
}

fn counted(counts: &Arc<Counts>) -> SlabPool {
    let mapper = InterceptingMapper { inner: DualMapper::default(), interceptor: counts.clone() };
    SlabPool::with_mapper(mapper, SlabPoolOptions::default()).unwrap()
}

#[test]
fn links_and_removals_map_only_one_window() {
    let Some(object) = c("static char zero[100000]; long test(void) { return zero[5]; }") else { return };
    let counts = Arc::new(Counts::default());
    let pool = counted(&counts);
    let jit = Jit::builder().memory_manager(Arc::new(pool)).build().unwrap();
    let counts_now = || (counts.maps.load(Ordering::Relaxed), counts.drops.load(Ordering::Relaxed));
    let mut trackers = Vec::new();
    for round in 0..300 {
        let dylib = jit.create_dylib("one").unwrap();
        trackers.push(add(&jit, &dylib, "object.o", &object));
        assert_eq!(long_in(&jit, &dylib, "test"), 0);
        if round % 3 == 0 {
            trackers.remove(trackers.len() / 2).remove().unwrap();
        }
        assert_eq!(counts_now(), (1, 0));
    }
    for tracker in trackers {
        assert!(tracker.remove().unwrap().is_complete());
    }
    assert_eq!((counts_now(), crate::support::held(&jit)), ((1, 0), (0, 0, 0)));
    drop(jit);
    assert_eq!(counts_now(), (1, 1), "the window is unmapped with the session");
}

#[test]
fn a_handle_keeps_its_window_mapped_after_the_session_ends() {
    let Some(object) = c("long test(void) { return 77; }") else { return };
    let counts = Arc::new(Counts::default());
    let pool = counted(&counts);
    let jit = Jit::builder().memory_manager(Arc::new(pool)).build().unwrap();
    let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
    let test = function::<extern "C" fn() -> i64>(&jit, "test");
    drop((jit, tracker));
    assert_eq!(counts.drops.load(Ordering::Relaxed), 0);
    assert_eq!(test.call(), 77);
    drop(test);
    assert_eq!(counts.drops.load(Ordering::Relaxed), 1);
}

/// A window of heap memory, which no unwinder finds. Code linked there is inspected and not run.
struct Heap {
    bytes: Vec<u64>,
    layout: WindowLayout,
}

struct HeapMapper;

impl MemoryMapper for HeapMapper {
    fn map_window(&self, layout: &WindowLayout, _placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        Ok(Arc::new(Heap { bytes: vec![0; layout.size() as usize / 8], layout: *layout }))
    }
}

// SAFETY: the vector is as long as the layout, is never resized, and nothing else writes it.
unsafe impl MappedWindow for Heap {
    fn layout(&self) -> &WindowLayout {
        &self.layout
    }
    fn base(&self) -> ExecutorAddr {
        // The alignment of the pools.
        ExecutorAddr::new((self.bytes.as_ptr() as u64).next_multiple_of(16))
    }
    fn working_view(&self, pool: SegmentKind) -> *mut u8 {
        (self.bytes.as_ptr() as *mut u8).wrapping_add(self.layout.pool(pool).offset as usize)
    }
    fn frame_header(&self) -> Option<*mut u8> {
        None
    }
    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        assert!(offset + size <= self.layout.pool(pool).size);
        // SAFETY: the range is inside the pool, as checked above. By contract nothing uses it.
        unsafe { self.working_view(pool).add(offset as usize).write_bytes(0, size as usize) };
        Ok(())
    }
}

/// Returns one window again and again.
struct Repeating(Arc<dyn MappedWindow>);

impl MemoryMapper for Repeating {
    fn map_window(&self, _: &WindowLayout, _: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        Ok(self.0.clone())
    }
}

/// Returns windows of half the requested size.
struct Halving;

impl MemoryMapper for Halving {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        HeapMapper.map_window(&WindowLayout::divide(layout.size() / 2).unwrap(), placement)
    }
}

/// Two pools of one window would hand out the same bytes twice.
#[test]
fn a_pool_refuses_a_window_that_has_another_handle() {
    let layout = WindowLayout::divide(32 << 20).unwrap();
    let options = SlabPoolOptions { window_size: 32 << 20, ..Default::default() };
    let mapper = Repeating(HeapMapper.map_window(&layout, Placement::Anywhere).unwrap());
    let fault = SlabPool::with_mapper(mapper, options).err().unwrap();
    assert!(matches!(fault.kind(), ErrorKind::Memory(MemoryFault::BadWindow { .. })), "{fault}");
    assert_says(&fault, &["it has another handle", "defect of the mapper"]);
}

/// Ranges are checked against the requested layout, so allocations would lie outside a smaller window.
#[test]
fn a_pool_refuses_a_window_of_another_layout() {
    let options = SlabPoolOptions { window_size: 64 << 20, ..Default::default() };
    let fault = SlabPool::with_mapper(Halving, options).err().unwrap();
    assert!(matches!(fault.kind(), ErrorKind::Memory(MemoryFault::BadWindow { .. })), "{fault}");
    assert_says(&fault, &["its layout is not the requested one"]);
}

#[test]
fn an_invalid_plan_requests_no_further_window() {
    let mapper = Arc::new(Refusing { refusals: 0, requested: Default::default() });
    let options = SlabPoolOptions { window_size: 64 << 20, on_full: OnFull::OpenAnother, ..Default::default() };
    let pool = SlabPool::with_mapper(mapper.clone(), options).unwrap();
    let mut misaligned = plan(64, 16, (16, 0));
    misaligned.segments[0].align = 3;
    let refused = pool.allocate(&misaligned).err().unwrap();
    assert!(matches!(refused.kind(), ErrorKind::Memory(MemoryFault::BadPlan { .. })), "{refused}");
    assert_eq!(mapper.requested.lock().unwrap().len(), 1);
}

#[test]
fn heap_memory_unknown_to_unwinders_can_be_a_window() {
    let Some(object) = c("static const char text[] = \"in the heap\"; const char *test(void) { return text; }") else {
        return;
    };
    let pool = SlabPool::with_mapper(HeapMapper, SlabPoolOptions { window_size: 16 << 20, ..Default::default() });
    let pool = Arc::new(pool.unwrap());
    let (base, size) = pool.window();
    let jit = Jit::builder().memory_manager(pool.clone()).build().unwrap();
    let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
    let code = jit.address_of(jit.main_dylib(), "test").unwrap().value();
    assert!((base.value()..base.value() + size).contains(&code));
    assert_eq!(jit.memory_statistics(), pool.statistics());
    assert_eq!(pool.description(), "custom");
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&pool), (0, 0, 0));
}

#[test]
fn a_manager_that_refuses_fails_the_link_and_leaves_the_session_usable() {
    struct NotToday(SlabPool, AtomicUsize);
    // SAFETY: the pool makes all allocations.
    unsafe impl MemoryManager for NotToday {
        fn allocate(
            &self,
            plan: &jittison::memory::SegmentPlan,
        ) -> jittison::error::Result<Box<dyn jittison::memory::InFlight>> {
            // Refuses the link of the lookup and then `link_object`.
            if self.1.fetch_add(1, Ordering::Relaxed) < 2 {
                return Err(jittison::Error::other("not today"));
            }
            self.0.allocate(plan)
        }
        fn statistics(&self) -> jittison::MemoryStatistics {
            self.0.statistics()
        }
    }
    let Some(object) = c("long test(void) { return 1; }") else { return };
    let pool = SlabPool::new(SlabPoolOptions { window_size: 16 << 20, ..Default::default() }).unwrap();
    let jit = Jit::builder().memory_manager(Arc::new(NotToday(pool, AtomicUsize::new(0)))).build().unwrap();
    let error = refused_in(&jit, &object, "test");
    assert_eq!(error.root_cause().to_string(), "not today");
}
