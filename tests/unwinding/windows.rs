//! Unwinding across several windows. To an unwinder each window is a library.

use std::sync::atomic::{AtomicBool, Ordering};

use jittison::Jit;

use crate::host::*;
use crate::support::*;

/// A session that opens a window for each allocation.
fn scattered() -> Jit {
    Jit::builder().library("libstdc++.so.6").trap_freed_code(true).pooled(false).window_size(0).build().unwrap()
}

const OUTER: &str = "
    extern \"C\" long thrower(long);
    struct Guard { long &n; ~Guard() { n++; } };
    static long guarded;
    extern \"C\" long outer(long x) { Guard guard{guarded}; return thrower(x); }";

#[test]
fn an_exception_crosses_from_window_to_window() {
    let (Some(crossing), Some(object)) = (crossing(), cpp(OUTER)) else { return };
    let jit = scattered();
    install(jit.main_dylib());
    let windows = jit.memory_statistics().windows;
    let trackers =
        [("crossing.o", crossing), ("outer.o", &object)].map(|(name, bytes)| add(&jit, jit.main_dylib(), name, bytes));
    passes_through_linked(&jit, jit.main_dylib(), "two windows");
    assert!(jit.memory_statistics().windows >= windows + 2, "{:?}", jit.memory_statistics());
    let [outer, thrower] = ["outer", "thrower"].map(|name| jit.address_of(jit.main_dylib(), name).unwrap().value());
    assert!(outer.abs_diff(thrower) > 16 << 20, "each is in its own window: {outer:x}, {thrower:x}");
    assert!(trackers[0].remove().unwrap().is_complete() | trackers[1].remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn threads_throw_across_windows_while_others_are_opened_and_closed() {
    let (Some(crossing), Some(object)) = (crossing(), cpp(OUTER)) else { return };
    let load = |jit: &Jit, name: &str| {
        let dylib = jit.create_dylib(name).unwrap();
        install(&dylib);
        let trackers = [crossing, &object].map(|bytes| add(jit, &dylib, "module.o", bytes));
        (dylib, trackers)
    };
    let (jit, stop) = (scattered(), AtomicBool::new(false));
    let (resident, _trackers) = load(&jit, "resident");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    passes_through_linked(&jit, &resident, "resident");
                }
            });
        }
        for round in 0..60 {
            let (dylib, trackers) = load(&jit, "passing");
            passes_through_linked(&jit, &dylib, "passing");
            let removals = trackers.map(|tracker| tracker.remove().unwrap().is_complete());
            assert!(removals.contains(&true), "round {round}");
            jit.release_free();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(held(&jit).0, 2);
}
