//! Code is never writable, freed code traps, and the unwinder finds live functions and no others.

use fastrand::Rng;
use std::ffi::c_void;

use jittison::Jit;
use jittison::base::SegmentKind;
use jittison::memory::{MemoryManager, SlabPool, SlabPoolOptions, WindowLayout};

use crate::slab::plan;
use crate::support::frame_of;
use crate::support::*;

#[test]
fn no_mapping_is_writable_and_executable_and_code_cannot_be_made_writable() {
    own_process!();
    let Some(object) =
        c("static const long constant[3] = { 5 }; static long data; long test(void) { return constant[0] + data++; }
                          const void *constant_at(void) { return constant; } void *data_at(void) { return &data; }")
    else {
        return;
    };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 5);
    let code = jit.address_of(jit.main_dylib(), "test").unwrap().value();
    let mappings = mappings();
    let is_both = |mapping: &&Mapping| mapping.protection.contains('w') && mapping.protection.contains('x');
    assert!(mappings.iter().find(is_both).is_none(), "{:?}", mappings.iter().find(is_both));
    let protection = |address: u64| {
        let contains = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        mappings.iter().find(contains).unwrap().protection.clone()
    };
    assert_eq!(protection(code), "r-xs");
    assert_eq!(protection(long(&jit, "constant_at") as u64), "r--s");
    assert_eq!(protection(long(&jit, "data_at") as u64), "rw-p");

    for (address, wanted) in [
        (code, libc::PROT_READ | libc::PROT_WRITE),
        (code, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC),
        (long(&jit, "constant_at") as u64, libc::PROT_READ | libc::PROT_WRITE),
    ] {
        let page = address & !(page_size() - 1);
        // SAFETY: requests more rights to a page of this test's own session. Only this test depends on the page being
        // read-only.
        let changed = unsafe { libc::mprotect(page as *mut c_void, page_size() as usize, wanted) };
        assert_eq!(changed, -1, "the kernel must refuse");
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EACCES));
    }
    // A debugger writes through `/proc/self/mem`, which ignores the protection of private pages. The kernel refuses that, too.
    let memory = std::fs::OpenOptions::new().write(true).open("/proc/self/mem").unwrap();
    for address in [code, long(&jit, "constant_at") as u64] {
        use std::os::unix::fs::FileExt as _;
        let byte = read(address, 1);
        assert!(memory.write_at(&[!byte[0]], address).is_err(), "the kernel must refuse");
        assert_eq!(read(address, 1), byte);
    }
    assert_eq!(long(&jit, "test"), 6);
}

#[test]
fn the_writable_view_of_code_has_another_address_and_is_never_executable() {
    own_process!();
    let Some(object) = c("long test(void) { return 0x1122334455667788; }") else { return };
    let (jit, _trackers) = linked(&[&object]);
    let code = jit.address_of(jit.main_dylib(), "test").unwrap().value();
    let views: Vec<_> = mappings().into_iter().filter(|mapping| mapping.name.contains("memfd:jittison")).collect();
    let writable: Vec<_> = views.iter().filter(|view| view.protection.contains('w')).collect();
    assert!(!writable.is_empty(), "{views:#?}");
    for view in writable {
        assert!(!view.protection.contains('x') && !(view.start..view.end).contains(&code), "{view:?}");
    }
}

/// The open descriptor of a window's file is read-only and closed on exec. An ordinary user cannot reopen it for writing.
#[test]
fn a_window_descriptor_is_read_only_and_cannot_be_reopened_for_writing() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some(object) = c("long test(void) { return 7; }") else { return };
    own_process!();
    // SAFETY: changes the user of this process, which is this test's own. For an ordinary user the call fails and changes nothing.
    unsafe { libc::setresuid(65534, 65534, 65534) };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 7);
    let mut found = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let path = entry.path();
        let leads_to_window = |to: std::path::PathBuf| to.to_string_lossy().contains("memfd:jittison");
        if !std::fs::read_link(&path).is_ok_and(leads_to_window) {
            continue;
        }
        found += 1;
        let number: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: reads the flags of a descriptor.
        let (status, flags) = unsafe { (libc::fcntl(number, libc::F_GETFL), libc::fcntl(number, libc::F_GETFD)) };
        assert_eq!(status & libc::O_ACCMODE, libc::O_RDONLY);
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
        for reads in [false, true] {
            let refused = std::fs::OpenOptions::new().read(reads).write(true).open(&path).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{refused}");
        }
    }
    assert_eq!(found, 1, "one descriptor for one window");
}

#[test]
fn freed_code_is_filled_with_traps_if_the_option_is_set() {
    let Some(object) = c("long test(void) { return 4; }") else { return };
    for trap in [true, false] {
        let jit = Jit::builder().trap_freed_code(trap).build().unwrap();
        let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
        let code = jit.address_of(jit.main_dylib(), "test").unwrap().value();
        let live = read(code, 6);
        assert_ne!(live, [machine_code::TRAP; 6]);
        let handle = function::<extern "C" fn() -> i64>(&jit, "test");
        tracker.remove().unwrap();
        assert_eq!(read(code, 6), live, "a handle keeps the code");
        drop(handle);
        let freed = read(code, 64);
        assert_eq!(freed.iter().all(|byte| *byte == machine_code::TRAP), trap);
        assert_eq!(freed[..6] == live[..], !trap);
    }
}

#[test]
fn the_bytes_before_the_first_function_are_readable() {
    for (mapper, _) in crate::mapping_modes::mapping_modes() {
        let options = SlabPoolOptions { window_size: 32 << 20, ..SlabPoolOptions::default() };
        let memory = SlabPool::with_mapper(mapper, options).unwrap();
        let mut live = Vec::new();
        while let Ok(allocation) = memory.allocate(&plan(64 << 10, 0, (0, 0))) {
            live.push(allocation.finalize(Vec::new()).unwrap());
        }
        // The lowest allocation is at the start of the pool.
        let lowest = live.iter().map(|allocation| allocation.address(SegmentKind::Code).value()).min().unwrap();
        let (base, size) = memory.window();
        let layout = WindowLayout::divide(size).unwrap();
        assert_eq!(lowest, layout.pool_start(base, SegmentKind::Code).value());
        assert_eq!(read(lowest - 8, 8), [0; 8]);
    }
}

#[test]
fn the_unwinder_finds_live_functions_and_no_removed_ones() {
    let Some(object) = c(
        "long first(void) { return 1; } long second(long x) { return x; } static long pad[3]; void *p(void) { return pad; }",
    ) else {
        return;
    };
    let jit = new_jit();
    let keep = jit.create_dylib("kept").unwrap();
    let _kept = add(&jit, &keep, "kept.o", &object);
    let kept = jit.address_of(&keep, "second").unwrap().value();
    for round in 0..50 {
        let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
        let address = |name| jit.address_of(jit.main_dylib(), name).unwrap().value();
        let (first, second) = (address("first"), address("second"));
        assert_eq!(frame_of(first), Some(first), "round {round}");
        assert_eq!(frame_of(first + 2), Some(first));
        assert_eq!(frame_of(second), Some(second));
        assert!(tracker.remove().unwrap().is_complete());
        for removed in [first, first + 2, second, second + 1] {
            assert_eq!(frame_of(removed), None, "round {round}");
        }
        assert_eq!(frame_of(kept), Some(kept));
        assert_eq!(frame_of(kept + 1), Some(kept));
    }
}

#[test]
fn the_unwinder_finds_every_live_function_among_thousands_of_removed_ones() {
    let Some(object) = c("long f(long x) { return x * 3; } long g(long x) { return x + 4; }") else { return };
    let jit = new_jit();
    let mut modules: Vec<_> = (0..2000)
        .map(|index| {
            let dylib = jit.create_dylib(&format!("module {index}")).unwrap();
            let tracker = add(&jit, &dylib, "object.o", &object);
            let addresses = ["f", "g"].map(|name| jit.address_of(&dylib, name).unwrap().value());
            (tracker, addresses)
        })
        .collect();
    let mut random = Rng::with_seed(7);
    let mut removed = Vec::new();
    for _ in 0..1000 {
        let (tracker, addresses) = modules.swap_remove(random.usize(..modules.len()));
        assert!(tracker.remove().unwrap().is_complete());
        removed.extend(addresses);
    }
    for address in modules.iter().flat_map(|(_, addresses)| addresses) {
        assert_eq!(frame_of(*address), Some(*address));
    }
    for address in removed {
        assert_eq!(frame_of(address), None);
    }
}

#[test]
fn code_without_unwind_tables_runs_and_the_unwinder_does_not_find_it() {
    let Some(object) = gcc(
        &["-O2", "-fPIC", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
        "long test(void) { return 3; }",
    ) else {
        return;
    };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 3);
    assert_eq!(frame_of(jit.address_of(jit.main_dylib(), "test").unwrap().value()), None);
}
