//! Random operations on entire sessions. On one thread, each step is compared with a simple model (`sequential.rs`,
//! `model.rs`). On several threads, the final state is checked (`threads.rs`). `pin_graph.rs` has few trackers and many references
//! between them.
//!
//! Each run has a seed. The default seeds make a million operations in a debug build, and four million in a release build.
//! `JITTISON_SEED=<seed>` runs that seed alone. A failure prints the seed and the command that repeats it.
#![cfg(not(loom))]

mod model;
mod pin_graph;
mod sequential;
mod threads;
mod unit;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

const SCALE: u64 = if cfg!(debug_assertions) { 1 } else { 4 };

/// Steps of one seed, over all of its sessions and threads. Few under Miri.
const STEPS: usize = if cfg!(miri) { 60 } else { 10_000 };

/// xorshift: a small seeded generator.
struct Choices(u64);

impl Choices {
    fn new(seed: u64) -> Choices {
        // Neighbouring seeds start differently, and the state is not zero, the only fixed point of xorshift.
        Choices((seed.wrapping_add(1)).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// Runs every seed, or the seed of `JITTISON_SEED`.
fn for_each_seed(test: &str, seeds: u64, run: impl Fn(u64)) {
    let selected = std::env::var("JITTISON_SEED").ok().map(|seed| seed.parse().expect("JITTISON_SEED is a number"));
    for seed in selected.map_or(0..if cfg!(miri) { 1 } else { seeds }, |seed| seed..seed + 1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("seed {seed} fails; to repeat: JITTISON_SEED={seed} cargo test --test session_random {test}");
            resume_unwind(panic);
        }
    }
}

#[test]
fn a_session_on_one_thread_agrees_with_the_model() {
    for_each_seed("a_session_on_one_thread", 30 * SCALE, sequential::run);
}

#[test]
fn another_session_on_one_thread_agrees_with_the_model() {
    // Other seeds, on another thread of the test harness.
    for_each_seed("another_session_on_one_thread", 30 * SCALE, |seed| sequential::run(seed + 1_000_000));
}

#[test]
fn a_tracker_is_reclaimed_exactly_when_nothing_leads_to_it() {
    let in_rings = std::cell::Cell::new(0);
    for_each_seed("a_tracker_is_reclaimed_exactly", 30 * SCALE, |seed| {
        in_rings.set(in_rings.get() + pin_graph::run(seed))
    });
    assert!(cfg!(miri) || in_rings.get() > 0, "the random references form rings");
}

#[test]
fn sessions_on_several_threads_free_every_resource_exactly_once() {
    for_each_seed("sessions_on_several_threads", 40 * SCALE, threads::run);
}
