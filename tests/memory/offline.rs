//! [`OfflineMemory`], the memory for links that are inspected and never run: its statistics, and calls that would run its code.

use std::sync::Arc;

use jittison::base::ExecutorAddr;
use jittison::memory::{LargeRequest, MemoryManager, OfflineMemory};
use jittison::{Error, Jit, Program};

use crate::support::*;

use crate::slab::plan;

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

/// Asserts that the call was refused because the memory runs no code.
#[track_caller]
fn assert_never_runs<T>(called: Result<T, Error>) {
    let error = called.err().expect("a call that would run linked code");
    assert_says(&error, &["never run", "nothing was run"]);
}

#[test]
fn a_call_that_would_run_code_in_offline_memory_is_an_error() {
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
