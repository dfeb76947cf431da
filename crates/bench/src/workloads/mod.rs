//! Four workloads of JIT users, replayed with prebuilt objects, so that no compiler limits the linker.
//!
//! | group | user | difficulty |
//! |---|---|---|
//! | `workload a` | PostgreSQL: modules of a query, removed with it | lifetimes from milliseconds to days, cancelled statements |
//! | `workload b` | ClickHouse: a cache of compiled expressions | evictions of entries that readers hold |
//! | `workload c` | an autotuner that replaces functions under load | thousands of redirects per second |
//! | `workload d` | a long-lived cache: EVM nodes, PyMC, notebooks | thousands added at once and removed at once, for ever |
//!
//! The random numbers are the same in every run; the interleaving of threads is not. Every result is compared with
//! the value that is known without linking. A wrong result or a leak ends the scenario with an error.

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

use crate::measure::scenario::Scenario;

/// All workloads; with `quick` each takes a few seconds.
pub fn scenarios(quick: bool) -> Vec<Box<dyn Scenario>> {
    [postgres::scenarios(quick), lru::scenarios(quick), autotuner::scenarios(quick), resident::scenarios(quick)]
        .into_iter()
        .flatten()
        .collect()
}

/// The number of processors: the number of a workload's threads. A workload with a measuring thread leaves one for
/// it.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
