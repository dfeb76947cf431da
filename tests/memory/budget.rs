//! A memory budget is exact to the byte, and removal works when the budget is used up.

use jittison::Jit;
use jittison::error::{ErrorKind, MemoryFault};
use jittison::memory::{MemoryManager, SlabPool, SlabPoolOptions};

use crate::slab::{held, make, plan};
use crate::support::*;

fn budgeted(budget: u64) -> SlabPool {
    SlabPool::new(SlabPoolOptions { window_size: 64 << 20, budget: Some(budget), ..Default::default() }).unwrap()
}

#[test]
fn an_exact_fit_of_the_budget_is_allocated_and_the_next_byte_is_refused() {
    // Per allocation: two granules of code with their slots, three granules of constants and two of data.
    let memory = budgeted(2 * (2 * (64 + 8) + 48 + 32));
    let first = make(&memory, &plan(100, 33, (17, 0)));
    let second = make(&memory, &plan(100, 33, (17, 0)));
    let error = memory.allocate(&plan(0, 0, (1, 0))).err().unwrap();
    let ErrorKind::Memory(MemoryFault::BudgetExceeded { requested, held, limit }) = *error.kind() else {
        panic!("{error}");
    };
    assert_eq!((requested, held, limit), (16, 448, 448));
    drop(first);
    let third = make(&memory, &plan(100, 33, (17, 0)));
    drop((second, third));
}

#[test]
fn refused_allocations_take_nothing_from_the_budget() {
    let memory = budgeted(40 << 20);
    for _ in 0..100 {
        assert!(memory.allocate(&plan(64, 0, (41 << 20, 0))).is_err());
        let mut bad = plan(64, 64, (64, 0));
        bad.segments[0].align = 3;
        assert!(memory.allocate(&bad).is_err());
        assert!(memory.allocate(&plan(39 << 20, 0, (0, 0))).is_err(), "larger than the code pool");
        drop(memory.allocate(&plan(1 << 20, 1 << 20, (1 << 20, 0))).unwrap());
    }
    assert_eq!(held(&memory), (0, 0, 0));
    // The entire budget is still available.
    drop(make(&memory, &plan(10 << 20, 8 << 20, (8 << 20, 0))));
}

#[test]
fn a_session_at_its_budget_can_remove_and_link_again() {
    let Some(object) = c("long data[1000] = { 5 }; long test(void) { return data[0]; }") else { return };
    let jit = Jit::builder().memory_budget(100_000).build().unwrap();
    let mut trackers = Vec::new();
    let refused = loop {
        let dylib = jit.create_dylib("module").unwrap();
        let tracker = add(&jit, &dylib, "module.o", &object);
        match try_function::<extern "C" fn() -> i64>(&jit, &dylib, "test") {
            Ok(test) => assert_eq!(test.call(), 5),
            Err(error) => break error,
        }
        trackers.push(tracker);
    };
    assert!(trackers.len() >= 8, "{}", trackers.len());
    assert!(refused.is_retriable(), "the failed lookup keeps the property of its cause");
    assert_says(&refused, &["budget of 100000 bytes", "remove code and retry"]);
    assert!(trackers.pop().unwrap().remove().unwrap().is_complete());
    let dylib = jit.create_dylib("after").unwrap();
    let _tracker = add(&jit, &dylib, "module.o", &object);
    assert_eq!(long_in(&jit, &dylib, "test"), 5);
}
