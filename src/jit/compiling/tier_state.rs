//! [`TierState`]: the tier of a function, and which thread compiles the next one.
//!
//! A count may be used up at any time after its tier is committed: also before the thread that compiled the tier has noted the
//! commit. Such a count is noted, and that thread goes on with the next tier. Several threads may use up one count at once. So no
//! count is forgotten, and one thread compiles a function at a time.
//!
//! | state | event | next |
//! |---|---|---|
//! | tier n | its count is used up | compiling n + 1, by the thread that is told so |
//! | compiling n + 1 | the count of tier n + 1 is used up | compiling n + 1, noted |
//! | compiling n + 1 | it is committed | tier n + 1; compiling n + 2 if noted |
//! | compiling n + 1 | it fails | tier n |
//!
//! Model: `loom_tests/loom_tiers.rs`.

use crate::sync::{Mutex, seeded_bug};

/// The tier of one function. One lock guards it, and nothing is called under the lock.
pub struct TierState(Mutex<State>);

struct State {
    /// The tier that callers reach; zero before the first.
    tier: u32,
    is_compiling: bool,
    /// The highest tier whose count was used up during a compilation.
    used_up: u32,
}

impl TierState {
    /// A function whose first tier is being compiled.
    pub fn new() -> TierState {
        TierState(Mutex::new(State { tier: 0, is_compiling: true, used_up: 0 }))
    }

    /// The tier that callers reach.
    pub fn tier(&self) -> u32 {
        self.0.lock().tier
    }

    /// The count of `tier` is used up, or another tier is asked for. Returns the tier that the caller must compile, if it must.
    pub fn begin_after(&self, tier: u32) -> Option<u32> {
        let mut state = self.0.lock();
        if tier < state.tier {
            return None;
        }
        if state.is_compiling {
            if !seeded_bug!("used_up_count_forgotten") {
                state.used_up = state.used_up.max(tier);
            }
            return None;
        }
        if seeded_bug!("compilation_begun_under_a_later_lock") {
            drop(state);
            state = self.0.lock();
        }
        state.is_compiling = true;
        Some(state.tier + 1)
    }

    /// A compilation has ended: with a committed tier, or without. Returns the tier that the caller must compile now, if it must.
    pub fn end(&self, committed: Option<u32>) -> Option<u32> {
        let mut state = self.0.lock();
        state.tier = committed.unwrap_or(state.tier);
        let is_used_up = committed.is_some() && state.used_up >= state.tier;
        state.is_compiling = is_used_up;
        is_used_up.then(|| state.tier + 1)
    }
}

impl Default for TierState {
    fn default() -> TierState {
        TierState::new()
    }
}
