//! Without an observer, no event is built: a link with an observer allocates more.

use std::sync::Arc;

use jittison::base::ExecutorAddr;
use jittison::{Event, Jit};

use crate::support::*;

fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = allocations();
    work();
    allocations() - before
}

/// The allocations of a link, of a redirect and of a removal: the smallest number of 20 rounds for each.
fn allocations_of_steps(jit: &Jit, object: &[u8]) -> [u64; 3] {
    let mut least = [u64::MAX; 3];
    for _ in 0..20 {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let link = allocations_of(|| {
            jit.add_object(&tracker, "module.o", object).unwrap();
            jit.address_of(jit.main_dylib(), "test").unwrap();
        });
        jit.create_stub(&tracker, "stub", ExecutorAddr::new(0x1000)).unwrap();
        // SAFETY: no thread calls the stub.
        let redirect = || unsafe { jit.redirect_stub(jit.main_dylib(), "stub", ExecutorAddr::new(0x2000)) }.unwrap();
        let redirect = allocations_of(redirect);
        let remove = allocations_of(|| drop(tracker.remove().unwrap()));
        for (least, count) in least.iter_mut().zip([link, redirect, remove]) {
            *least = count.min(*least);
        }
    }
    least
}

#[test]
fn nothing_is_allocated_for_events_without_an_observer() {
    let Some(object) = c("long test(void) { return 1; } long other(void) { return 2; }") else { return };
    let quiet = allocations_of_steps(&Jit::new().unwrap(), &object);
    let observed = Jit::builder().observer(Arc::new(|_: &Event<'_>| ())).build().unwrap();
    let observed = allocations_of_steps(&observed, &object);
    // An observer costs the list of published symbols and the list of their names, and for a removal the contents of its batch.
    assert!(quiet[0] + 2 <= observed[0] && quiet[2] < observed[2], "{quiet:?} {observed:?}");
    assert_eq!(quiet[1], observed[1], "a redirect event needs no allocation");
}
