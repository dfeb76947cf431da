//! Model: allocations that share one budget race with each other and with a free.
//!
//! Runs `src/memory/budget.rs` and its caller `src/memory/window.rs`. The memory in use never exceeds the budget. A
//! refused or freed allocation leaves nothing counted.
//!
//! Seeded bugs: `budget_looked_at_before_it_is_taken`, `refused_bytes_left_counted`,
//! `budget_given_back_before_the_memory`.

#![cfg(loom)]

mod plain_memory;
mod support;

use std::sync::Arc;

use jittison::base::SegmentKind;
use jittison::error::{Error, ErrorKind, MemoryFault};
use jittison::memory::*;
use loom::thread;
use plain_memory::{Cells, PlainMapper};
use support::explore;

fn pool_with(budget: u64) -> Arc<SlabPool> {
    let options = SlabPoolOptions {
        window_size: 0,
        budget: Some(budget),
        returns_memory: false,
        trap_freed_code: false,
        ..Default::default()
    };
    Arc::new(SlabPool::with_mapper(PlainMapper(Cells::new()), options).unwrap())
}

/// Asks for bytes of one pool, without an alignment.
fn plan(pool: SegmentKind, size: u64) -> SegmentPlan {
    let mut plan = SegmentPlan::default();
    plan.segments[pool.index()] = SegmentRequest { size, align: 1, zero_fill: 0 };
    plan
}

type Outcome = Result<Box<dyn InFlight>, Error>;

fn describe(outcome: &Outcome) -> &'static str {
    match outcome.as_ref().map_err(Error::kind) {
        Ok(_) => "allocated",
        Err(ErrorKind::Memory(MemoryFault::BudgetExceeded { .. })) => "beyond the budget",
        Err(ErrorKind::Memory(MemoryFault::PoolExhausted { .. })) => "pool full",
        Err(_) => "another error",
    }
}

/// The allocations have `bytes` in total, exactly these count against the budget, and the budget is enforced.
fn assert_counted(memory: &SlabPool, bytes: u64, budget: u64) {
    assert_eq!(memory.statistics().reserved_bytes, bytes);
    let rest = memory.allocate(&plan(SegmentKind::ReadOnly, budget - bytes));
    assert_eq!(describe(&rest), "allocated", "a refused or freed allocation is still counted");
    assert_eq!(describe(&memory.allocate(&plan(SegmentKind::ReadOnly, 64))), "beyond the budget");
}

#[test]
fn two_allocations_versus_one_budget() {
    let outcomes = [("allocated", "beyond the budget"), ("beyond the budget", "allocated")];
    explore("two_allocations_versus_one_budget", None, 4, outcomes, || {
        let memory = pool_with(PAGE + PAGE / 2);
        let other = memory.clone();
        let there = thread::spawn(move || other.allocate(&plan(SegmentKind::Data, PAGE)));
        let here = memory.allocate(&plan(SegmentKind::Data, PAGE));
        let there = there.join().unwrap();
        let outcome = (describe(&here), describe(&there));
        assert_eq!(memory.statistics().reserved_bytes, PAGE);
        drop((here, there));
        assert_counted(&memory, 0, PAGE + PAGE / 2);
        outcome
    });
}

#[test]
fn freeing_versus_allocating_at_the_limit() {
    let outcomes = ["allocated", "beyond the budget"];
    explore("freeing_versus_allocating_at_the_limit", None, 4, outcomes, || {
        let memory = pool_with(PAGE);
        let held = memory.allocate(&plan(SegmentKind::Data, PAGE)).unwrap();
        let freeing = thread::spawn(move || drop(held));
        let here = memory.allocate(&plan(SegmentKind::Data, PAGE));
        assert!(memory.statistics().reserved_bytes <= PAGE, "more memory is in use than the budget allows");
        freeing.join().unwrap();
        let outcome = describe(&here);
        drop(here);
        assert_counted(&memory, 0, PAGE);
        outcome
    });
}

#[test]
fn refusal_by_a_full_pool_versus_allocating() {
    // One page of data is free, and two pages of the budget. The allocations ask for three pages. The refused allocation may
    // occupy the budget of the other until it is refused.
    let outcomes = [("pool full", "allocated"), ("beyond the budget", "allocated"), ("pool full", "beyond the budget")];
    explore("refusal_by_a_full_pool_versus_allocating", None, 4, outcomes, || {
        let data = WindowLayout::divide(32 << 20).unwrap().pool(SegmentKind::Data).size;
        let budget = data + PAGE;
        let memory = pool_with(budget);
        let _filling = memory.allocate(&plan(SegmentKind::Data, data - PAGE)).unwrap();
        let other = memory.clone();
        let there = thread::spawn(move || other.allocate(&plan(SegmentKind::Data, PAGE)));
        let here = memory.allocate(&plan(SegmentKind::Data, 2 * PAGE));
        let there = there.join().unwrap();
        let outcome = (describe(&here), describe(&there));
        drop((here, there));
        assert_counted(&memory, data - PAGE, budget);
        outcome
    });
}

const PAGE: u64 = 4096;
