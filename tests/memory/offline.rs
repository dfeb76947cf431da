//! [`OfflineMemory`], the memory for links that are inspected and never run: statistics, requests that are too large, and calls
//! that would run its code.

use std::sync::Arc;

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::memory::{LargeRequest, MemoryManager, OfflineMemory};
use jittison::{Error, Jit, Program};

use crate::environments::{limit, mapped_bytes};
use crate::slab::plan;
use crate::support::*;

#[test]
fn offline_statistics_count_an_allocation_and_its_large_sections_until_its_drop() {
    let memory = OfflineMemory::new(ExecutorAddr::new(0x1000));
    let counts = || (memory.statistics().allocations, memory.statistics().live_bytes);
    let mut with_large = plan(100, 0, (0, 0));
    with_large.large_sections = [10, 20].map(|size| LargeRequest { size, align: 1, is_read_only: false }).to_vec();
    let first = memory.allocate(&with_large).unwrap();
    assert_eq!(counts(), (1, 130));
    let second = memory.allocate(&plan(0, 0, (7, 0))).unwrap();
    assert_eq!(counts(), (2, 137));
    drop(first);
    assert_eq!(counts(), (1, 7));
    drop(second);
    assert_eq!(counts(), (0, 0));
}

#[test]
fn an_object_that_asks_for_too_much_offline_memory_is_refused() {
    let sizes = [(3u64 << 30, "a link in offline memory gets at most 1 GiB"), (1 << 40, "section larger than 4 GiB")];
    for (size, problem) in sizes {
        let Some(object) = asm(&format!(".bss\n.globl big\nbig: .zero {size}\n")) else { return };
        let memory = Arc::new(OfflineMemory::new(ExecutorAddr::new(0x1000)));
        let jit = Jit::builder().memory_manager(memory.clone()).build().unwrap();
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let error = jit.link_object(&tracker, "big.o", object).unwrap_err();
        assert_says(&error, &[problem]);
        assert_eq!(memory.statistics().allocations, 0);
    }
}

/// The size is that of an object, so a refusal of the system must not end the process.
#[test]
fn offline_memory_that_the_system_refuses_is_an_error() {
    own_process!();
    let memory = OfflineMemory::new(ExecutorAddr::new(0x1000));
    let mut with_large = plan(64, 16, (16, 0));
    with_large.large_sections = vec![LargeRequest { size: 1 << 30, align: 1, is_read_only: false }];
    let plans = [plan(64, 16, ((1 << 30) - 4096, 0)), with_large];
    limit(libc::RLIMIT_AS, mapped_bytes() + (256 << 20));
    let refused =
        plans.iter().all(|plan| memory.allocate(plan).is_err_and(|error| error.to_string().contains("memory")));
    limit(libc::RLIMIT_AS, libc::RLIM_INFINITY);
    assert!(refused);
    assert_eq!((memory.statistics().allocations, memory.statistics().live_bytes), (0, 0));
    let mut later = memory.allocate(&plans[0]).unwrap();
    let bytes = later.working(SegmentKind::Data);
    assert_eq!((bytes.len(), bytes[0], bytes[bytes.len() - 1]), ((1 << 30) - 4096, 0, 0));
}

/// Asserts that the call was refused because the memory runs no code.
#[track_caller]
fn assert_never_runs<T>(called: Result<T, Error>) {
    let error = called.err().expect("a call that would run linked code");
    assert_says(&error, &["never run", "nothing was run"]);
}

#[test]
fn a_call_that_would_run_code_in_offline_memory_is_an_error() {
    own_process!();
    let Some(object) = c("int test(void) { return 1; } int main(void) { return 2; }") else { return };
    let memory = Arc::new(OfflineMemory::new(ExecutorAddr::new(0x1_0000)));
    let jit = Jit::builder().memory_manager(memory).build().unwrap();
    let (dylib, tracker) = (jit.main_dylib(), add(&jit, jit.main_dylib(), "offline.o", &object));
    let guard = jit.guard();
    // SAFETY: no call runs the code.
    unsafe {
        assert_never_runs(jit.lookup::<extern "C" fn() -> i32>("test"));
        assert_never_runs(jit.symbol::<extern "C" fn() -> i32>(&guard, dylib, "test"));
        assert_never_runs(jit.initialize(dylib));
        let patchable = jit.patchable(&jit.create_dylib("patched").unwrap(), &["test"]).unwrap();
        assert_never_runs(patchable.replace("offline.o", object.clone()));
        assert_never_runs(jit.add_rebindable(&jit.create_dylib("rebindable").unwrap(), "offline.o", object.clone()));
        let program = Program::new(&jit, &tracker).unwrap();
        assert_never_runs(program.run("main", &[c"program".to_owned()], |event| panic!("{event:?}")));
    }
    let address = jit.address_of(dylib, "test").expect("the link can be inspected");
    assert!(address.value() >= 0x1_0000);
}
