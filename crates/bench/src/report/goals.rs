//! The goals of jittison, each with the peer's figure at the time when the goal was set. A goal in nanoseconds holds
//! only for one machine. Each goal is therefore judged twice: as an absolute figure, and as a multiple of the peer's
//! figure in the same run.

use crate::measure::competitor::{ORC_AS_LLJIT, ORC_AT_ITS_BEST, ORC_WITH_JEMALLOC};
use crate::measure::rows::{self, Row};
use crate::measure::scenario::Key;

pub struct Goal {
    row: Row,
    /// `None`: the goal holds for all places on the axis.
    at: Option<u64>,
    pub limit: Limit,
    /// The best peer when the goal was set, and its figure.
    peer: Option<(&'static str, f64)>,
}

#[derive(Clone, Copy)]
pub enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// The result of comparing a figure with its goal.
pub struct Verdict {
    pub is_met: bool,
    pub beside_peer: Option<Factor>,
}

/// How many times better than the peer.
pub struct Factor {
    pub goal: f64,
    pub found: f64,
}

impl Factor {
    pub fn is_met(&self) -> bool {
        self.found >= self.goal
    }
}

const GOALS: &[Goal] = &[
    at_most(rows::LINK_SMALL, 2_500.0, Some((ORC_AT_ITS_BEST, 32_000.0))),
    at_most(rows::LINK_SMALL_COLD, 3_200.0, Some((ORC_AT_ITS_BEST, 41_000.0))),
    at_most(rows::LINK_MEDIUM, 100_000.0, Some((ORC_AT_ITS_BEST, 460_000.0))),
    at_most(rows::MEDIUM_AGAIN, 100_000.0, Some((ORC_AT_ITS_BEST, 460_000.0))),
    at_most(rows::SQLITE_FIRST, 1_200_000.0, Some((ORC_AT_ITS_BEST, 2_670_000.0))),
    at_most(rows::SQLITE_AGAIN, 700_000.0, Some((ORC_AT_ITS_BEST, 1_390_000.0))),
    // Ten, and one for the tracker.
    at_most(rows::ALLOCATIONS, 11.0, Some((ORC_AT_ITS_BEST, 250.0))),
    // The goal is none. A table that grows once per thousands of modules makes a few calls.
    at_most(rows::LINK_CALLS, 0.01, None),
    at_most(rows::REMOVE_CALLS, 0.01, None),
    at_most(rows::REMOVE, 700.0, Some((ORC_AT_ITS_BEST, 8_700.0))).at(5_000),
    at_most(rows::REMOVE_GROWTH, 1.5, None),
    at_least(rows::CHURN_RATE, 250_000.0, Some((ORC_AT_ITS_BEST, 32_000.0))).at(100),
    at_least(rows::CHURN_RATE, 250_000.0, Some((ORC_AT_ITS_BEST, 29_000.0))).at(1_000),
    at_least(rows::CHURN_RATE, 250_000.0, Some((ORC_AT_ITS_BEST, 19_000.0))).at(10_000),
    at_least(rows::THREADS, 1.8, None),
    at_least(rows::SHARED_DYLIB, 1.9, None),
    at_most(rows::LOOKUP, 120.0, Some((ORC_AT_ITS_BEST, 856.0))).at(100_000),
    at_most(rows::LOOKUP, 25.0, Some((ORC_AT_ITS_BEST, 620.0))),
    at_least(rows::LOOKUP_THREADS, 1.9, None),
    at_most(rows::HANDLE, 40.0, Some((ORC_AS_LLJIT, 657.0))).at(100),
    at_most(rows::HANDLE, 40.0, Some((ORC_AS_LLJIT, 668.0))).at(1_000),
    at_least(rows::HANDLE_THREADS, 1.9, None),
    at_most(rows::REDIRECT, 30.0, None),
    at_most(rows::REDIRECT_HANDLE, 5.0, None),
    at_most(rows::GUARD, 8.0, None),
    // The goal is none. The limit is the resolution of the clock.
    at_most(rows::CALL_OVERHEAD, 0.1, None),
    at_most(rows::SWAP, 4_000.0, Some((ORC_AS_LLJIT, 46_000.0))),
    at_most(rows::DYLIB, 4_000.0, Some((ORC_AT_ITS_BEST, 38_000.0))),
    at_most(rows::RESIDENT, 2_800.0, Some((ORC_AT_ITS_BEST, 13_700.0))),
    at_most(rows::LEFTOVER, 4_194_304.0, None),
    at_most(rows::RELEASED, 4_194_304.0, None),
    at_most(rows::NEW, 100_000.0, None),
    at_most(rows::NEW_LATER, 50_000.0, None),
    at_most(rows::SESSION, 150_000.0, None),
    // The goal is none. The limit allows for pages that are touched for the first time.
    at_most(rows::GROWTH, 1.0, None),
    // The goal is none. Thousands of modules share the mappings of a slab.
    at_most(rows::MAPPINGS, 0.01, None),
    at_most(rows::MANAGER, 300.0, Some((ORC_AS_LLJIT, 5_000.0))),
];

const fn at_most(row: Row, limit: f64, peer: Option<(&'static str, f64)>) -> Goal {
    Goal { row, at: None, limit: Limit::AtMost(limit), peer }
}

const fn at_least(row: Row, limit: f64, peer: Option<(&'static str, f64)>) -> Goal {
    Goal { row, at: None, limit: Limit::AtLeast(limit), peer }
}

impl Goal {
    const fn at(self, at: u64) -> Goal {
        Goal { at: Some(at), ..self }
    }

    /// The goal of a row, for all competitors.
    pub fn of(key: &Key) -> Option<&'static Goal> {
        let is_of = |goal: &&Goal| {
            (goal.row.group, goal.row.what) == (key.group, key.what.as_str())
                && (goal.at.is_none() || goal.at == key.at)
        };
        GOALS.iter().find(is_of)
    }

    /// Judges jittison's figure; `figure_of` returns a peer's figure in the same row.
    pub fn judge(&self, ours: f64, figure_of: impl Fn(&str) -> Option<f64>) -> Verdict {
        let (is_met, limit) = match self.limit {
            Limit::AtMost(limit) => (ours <= limit, limit),
            Limit::AtLeast(limit) => (ours >= limit, limit),
        };
        let better = |ours: f64, peers: f64| match self.limit {
            Limit::AtMost(_) => peers / ours,
            Limit::AtLeast(_) => ours / peers,
        };
        let beside_peer = self.peer.and_then(|(competitor, then)| {
            let with_jemalloc = figure_of(ORC_WITH_JEMALLOC).filter(|_| competitor == ORC_AT_ITS_BEST);
            let factors = [figure_of(competitor), with_jemalloc].into_iter().flatten().map(|now| better(ours, now));
            let found = factors.min_by(f64::total_cmp)?;
            Some(Factor { goal: better(limit, then), found })
        });
        Verdict { is_met, beside_peer }
    }
}
