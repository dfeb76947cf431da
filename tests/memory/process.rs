//! Effects on the entire process: modules add no mappings, dropped sessions leave no mapping and no descriptor, and sessions
//! are independent.

use std::sync::Arc;

use jittison::link::ObjectBuffer;

use crate::support::*;

/// The number of mappings of window files.
fn window_mappings() -> usize {
    mappings().iter().filter(|mapping| mapping.name.contains("memfd:jittison")).count()
}

#[test]
fn the_first_link_of_a_session_maps_its_code_memory() {
    own_process!();
    let Some(object) = c("long test(void) { return 3; }") else { return };
    let jit = new_jit();
    assert_eq!((window_mappings(), jit.memory_statistics().windows), (0, 0));
    let tracker = add(&jit, jit.main_dylib(), "module.o", &object);
    assert_eq!((window_mappings(), jit.memory_statistics().windows), (0, 0), "nothing was linked yet");
    assert_eq!(long_in(&jit, jit.main_dylib(), "test"), 3);
    let mapped = window_mappings();
    assert!(mapped > 0);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!((window_mappings(), jit.memory_statistics().windows), (mapped, 1), "the window stays for later links");
}

#[test]
fn threads_whose_first_links_race_share_one_window() {
    let Some(object) = c("long test(void) { return 3; }") else { return };
    let object = ObjectBuffer::new(Arc::<[u8]>::from(object));
    for _ in 0..50 {
        let jit = new_jit();
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (jit, start, object) = (&jit, &start, &object);
                scope.spawn(move || {
                    let dylib = jit.create_dylib(&format!("dylib {number}")).unwrap();
                    add_object(jit, &dylib, "module.o", object.clone());
                    start.wait();
                    assert_eq!(long_in(jit, &dylib, "test"), 3);
                });
            }
        });
        let statistics = jit.memory_statistics();
        assert_eq!((statistics.windows, statistics.allocations), (1, 4));
    }
}

#[test]
fn the_number_of_mappings_is_the_same_with_ten_thousand_modules_as_with_none() {
    own_process!();
    let Some(object) = c("static long state = 3; static char zero[100]; long test(void) { return state++ + zero[4]; }")
    else {
        return;
    };
    let object = ObjectBuffer::new(Arc::<[u8]>::from(object));
    let jit = new_jit();
    let first = jit.main_dylib().create_tracker().unwrap();
    jit.link_object(&first, "module.o", object.clone()).unwrap();
    assert!(first.remove().unwrap().is_complete());
    let (before, all_before) = ((window_mappings(), held(&jit)), mappings().len());
    let mut trackers = Vec::new();
    for index in 0..10_000 {
        let dylib = jit.create_dylib("module").unwrap();
        let tracker = add_object(&jit, &dylib, "module.o", object.clone());
        assert_eq!(long_in(&jit, &dylib, "test"), 3);
        trackers.push((dylib, tracker));
        if index == 0 || index == 999 || index == 9_999 {
            assert_eq!(window_mappings(), before.0, "with {} modules", index + 1);
            // The heap may add mappings.
            assert!(mappings().len() < all_before + 50, "{all_before} -> {}", mappings().len());
            assert_eq!(held(&jit).0, index + 1);
        }
    }
    for (dylib, tracker) in trackers {
        assert!(tracker.remove().unwrap().is_complete());
        assert!(jit.session().remove_dylib(&dylib).unwrap().is_empty());
    }
    assert_eq!((window_mappings(), held(&jit)), before);
    assert_eq!(jit.session().dylibs().len(), 2);
    drop((jit, first));
    assert_eq!(window_mappings(), 0);
}

#[test]
fn a_hundred_dropped_sessions_leave_no_mapping_and_no_descriptor() {
    own_process!();
    let Some(object) = c("long test(void) { return 5; }") else { return };
    let round = || {
        let (jit, _trackers) = linked(&[&object]);
        assert_eq!(long(&jit, "test"), 5);
    };
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    round();
    let before = (descriptors(), window_mappings(), mappings().len());
    (0..100).for_each(|_| round());
    assert_eq!((descriptors(), window_mappings()), (before.0, before.1));
    assert!(mappings().len() <= before.2 + 3, "{} -> {}", before.2, mappings().len());
}

#[test]
fn many_sessions_at_once_are_independent() {
    let Some(object) = c("long state = 1; long test(void) { return state *= 2; }") else { return };
    let sessions: Vec<_> = (0..20).map(|_| linked(&[&object])).collect();
    for (round, (jit, _)) in sessions.iter().enumerate() {
        for _ in 0..round {
            long(jit, "test");
        }
    }
    for (round, (jit, _)) in sessions.iter().enumerate() {
        assert_eq!(long(jit, "test"), 2 << round);
    }
}

#[test]
fn objects_stay_near_each_other_when_address_space_around_them_is_taken() {
    let (Some(hidden), Some(caller)) = (
        gcc(&["-O2", "-fPIE", "-fvisibility=hidden"], "long callee(void) { return 6; } long datum = 7;"),
        gcc(
            &["-O2", "-fPIE", "-fvisibility=hidden"],
            "
            #pragma GCC visibility push(hidden)
            extern long callee(void); extern long datum;
            #pragma GCC visibility pop
            long test(void) { return callee() * 10 + datum; }",
        ),
    ) else {
        return;
    };
    let jit = new_jit();
    let _hidden = add(&jit, jit.main_dylib(), "hidden.o", &hidden);
    jit.address_of(jit.main_dylib(), "callee").unwrap();
    // Take 3 GiB of address space, at an address that the kernel chooses.
    // SAFETY: a new mapping without access, which nothing uses.
    let blocker = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), 3 << 30, libc::PROT_NONE, flags, -1, 0)
    };
    assert_ne!(blocker, libc::MAP_FAILED);
    let _caller = add(&jit, jit.main_dylib(), "caller.o", &caller);
    assert_eq!(long(&jit, "test"), 67);
    // SAFETY: mapped above. Nothing uses the mapping.
    unsafe { libc::munmap(blocker, 3 << 30) };
}
