//! Where nobody listens, nothing is put together to be told: a link with a listener allocates more.

use std::sync::Arc;

use jittison::base::ExecutorAddr;
use jittison::{Event, Jit};

use crate::allocations::allocations;
use crate::support::*;

fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = allocations();
    work();
    allocations() - before
}

/// Allocations of one warm link, redirect and removal, each.
fn of_each_step(jit: &Jit, object: &[u8]) -> [u64; 3] {
    let mut least = [u64::MAX; 3];
    for _ in 0..20 {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let link = allocations_of(|| {
            jit.add_object(&tracker, "module.o", object).unwrap();
            jit.address_of(jit.main_dylib(), "test").unwrap();
        });
        jit.create_stub(&tracker, "stub", ExecutorAddr::new(0x1000)).unwrap();
        // SAFETY: nobody calls it.
        let redirect = || unsafe { jit.redirect_stub(jit.main_dylib(), "stub", ExecutorAddr::new(0x2000)) }.unwrap();
        let redirect = allocations_of(redirect);
        let remove = allocations_of(|| drop(tracker.remove().unwrap()));
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
