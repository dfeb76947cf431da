//! [`OfflineMemory`], the memory for links that are inspected and never run: statistics, and requests that are too large.

use std::sync::Arc;

use jittison::Jit;
use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::memory::{LargeRequest, MemoryManager, OfflineMemory};

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
