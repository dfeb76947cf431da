//! Four workloads as users of a JIT have them, replayed with prebuilt objects: no compiler stands in the way of the linker.
//!
//! | group | whose | what is hard in it |
//! |---|---|---|
//! | `workload a` | PostgreSQL: modules of a query, gone with it | lifetimes from milliseconds to days, cancelled statements |
//! | `workload b` | ClickHouse: a cache of compiled expressions | evictions under the hands of readers |
//! | `workload c` | an autotuner that replaces functions under load | thousands of redirects a second |
//! | `workload d` | a cache that stays: EVM nodes, PyMC, notebooks | thousands at once, and gone at once, for ever |
//!
//! The dice fall the same on every run; with several threads their interleaving does not. Every result is compared with what
//! is known without linking. A wrong one, or anything left behind, ends the scenario with an error.

mod autotuner;
mod cancel;
mod chance;
mod corpus;
mod dlopen;
mod host;
mod libraries;
mod loader;
mod lru;
mod postgres;
mod resident;
mod rows;
mod times;

use crate::scenario::Scenario;

/// All of them; `quick` ones are over in a few seconds each.
pub fn scenarios(quick: bool) -> Vec<Box<dyn Scenario>> {
    [postgres::scenarios(quick), lru::scenarios(quick), autotuner::scenarios(quick), resident::scenarios(quick)]
        .into_iter()
        .flatten()
        .collect()
}

/// Threads that a workload has, the measuring one not counted where there is one.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
