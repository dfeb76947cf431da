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
mod host_functions;
mod loader;
mod lru;
mod postgres;
mod registry;
mod resident;
mod rows;
mod times;

pub use registry::scenarios;
