//! Where nobody listens, nothing is put together to be told: a link with a listener allocates more.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use jittison::base::ExecutorAddr;
use jittison::{Event, Jit};

use crate::support::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator, with a count beside it that allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// Allocations of one warm link, redirect and removal, each.
fn of_each_step(jit: &Jit, object: &[u8]) -> [u64; 3] {
    let mut least = [u64::MAX; 3];
    for _ in 0..20 {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let link = allocations(|| {
            jit.add_object(&tracker, "module.o", object).unwrap();
            jit.address_of(jit.main_dylib(), "test").unwrap();
        });
        jit.create_stub(&tracker, "stub", ExecutorAddr::new(0x1000)).unwrap();
        // SAFETY: nobody calls it.
        let redirect = || unsafe { jit.redirect_stub(jit.main_dylib(), "stub", ExecutorAddr::new(0x2000)) }.unwrap();
        let redirect = allocations(redirect);
        let remove = allocations(|| drop(tracker.remove().unwrap()));
        for (least, now) in least.iter_mut().zip([link, redirect, remove]) {
            *least = now.min(*least);
        }
    }
    least
}

#[test]
fn nothing_is_allocated_for_an_event_that_nobody_hears() {
    let Some(object) = c("long test(void) { return 1; } long other(void) { return 2; }") else { return };
    let quiet = of_each_step(&Jit::new().unwrap(), &object);
    let heard = Jit::builder().observer(Arc::new(|_: &Event<'_>| ())).build().unwrap();
    let heard = of_each_step(&heard, &object);
    // What a listener costs: the list of published symbols and that of their names; for a removal, what its batch held.
    assert!(quiet[0] + 2 <= heard[0] && quiet[2] < heard[2], "{quiet:?} {heard:?}");
    assert_eq!(quiet[1], heard[1], "a redirect is told without allocating");
}
