//! Statistics of [`OfflineMemory`], the memory for links that are inspected and never run.

use jittison::base::ExecutorAddr;
use jittison::memory::{LargeRequest, MemoryManager, OfflineMemory};

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
