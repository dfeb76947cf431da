//! Memory for links that are looked at and never run: what its books say.

use jittison::base::ExecutorAddr;
use jittison::memory::{LargeRequest, MemoryManager, OfflineMemory};

use crate::slab::plan;

#[test]
fn what_an_allocation_holds_is_counted_with_what_stands_apart_until_it_goes() {
    let memory = OfflineMemory::new(ExecutorAddr::new(0x1000));
    let counts = || (memory.statistics().allocations, memory.statistics().live_bytes);
    let mut with_apart = plan(100, 0, (0, 0));
    with_apart.apart = [10, 20].map(|size| LargeRequest { size, align: 1, is_read_only: false }).to_vec();
    let first = memory.allocate(&with_apart).unwrap();
    assert_eq!(counts(), (1, 130));
    let second = memory.allocate(&plan(0, 0, (7, 0))).unwrap();
    assert_eq!(counts(), (2, 137));
    drop(first);
    assert_eq!(counts(), (1, 7));
    drop(second);
    assert_eq!(counts(), (0, 0));
}
