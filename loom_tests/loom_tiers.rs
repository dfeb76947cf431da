//! Model: the count of a tier is used up while the thread that compiled that tier notes its commit, and two threads ask for the
//! next tier at once.
//!
//! Runs `src/jit/compiling/tier_state.rs`. A used up count leads to the next tier, and one thread compiles it.
//!
//! Seeded bugs: `used_up_count_forgotten`, `compilation_begun_under_a_later_lock`.

#![cfg(loom)]

mod support;

use std::sync::Arc;

use jittison::TierState;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use support::explore;

/// Compiles tiers as a background thread does, and counts those that are compiled.
fn compile(state: &TierState, begun: Option<u32>, compiled: &AtomicUsize, committed: impl Fn(u32)) {
    let mut next = begun;
    while let Some(tier) = next {
        compiled.fetch_add(1, Ordering::Relaxed);
        committed(tier);
        next = state.end(Some(tier));
    }
}

fn in_tier_one() -> Arc<TierState> {
    let state = Arc::new(TierState::new());
    assert_eq!(state.end(Some(1)), None);
    state
}

#[test]
fn used_up_count_versus_the_end_of_the_compilation() {
    // Whether the caller was in the second tier; the last tier, and the number of tiers that were compiled.
    let allowed = [(false, 2, 1), (true, 3, 2)];
    explore("used_up_count_versus_the_end_of_the_compilation", None, 4, allowed, || {
        let (state, compiled) = (in_tier_one(), Arc::new(AtomicUsize::new(0)));
        let is_committed = Arc::new(AtomicBool::new(false));
        let background = {
            let (state, compiled, is_committed) = (state.clone(), compiled.clone(), is_committed.clone());
            thread::spawn(move || {
                let begun = state.begin_after(1);
                compile(&state, begun, &compiled, |_| is_committed.store(true, Ordering::Release));
            })
        };
        let is_caller_in_second = is_committed.load(Ordering::Acquire);
        if is_caller_in_second {
            compile(&state, state.begin_after(2), &compiled, |_| {});
        }
        background.join().unwrap();
        (is_caller_in_second, state.tier(), compiled.load(Ordering::Relaxed))
    });
}

#[test]
fn two_threads_that_ask_for_the_next_tier() {
    explore("two_threads_that_ask_for_the_next_tier", None, 2, [(2, 1)], || {
        let (state, compiled) = (in_tier_one(), Arc::new(AtomicUsize::new(0)));
        let other = {
            let (state, compiled) = (state.clone(), compiled.clone());
            thread::spawn(move || compile(&state, state.begin_after(1), &compiled, |_| {}))
        };
        compile(&state, state.begin_after(1), &compiled, |_| {});
        other.join().unwrap();
        (state.tier(), compiled.load(Ordering::Relaxed))
    });
}
