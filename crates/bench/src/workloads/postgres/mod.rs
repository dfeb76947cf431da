//! Workload a: each module has its own tracker, each query has one to three modules, and all of them are removed when
//! the query ends.
//!
//! The sizes are those of PostgreSQL's modules by class, as its llvmjit makes them. The mix and the rates are
//! assumptions. Time is simulated: events happen in order, and no thread sleeps. The number of open queries of a
//! session is limited, like a client's cursors. At the limit, the oldest query ends early.

mod classes;
mod client;
mod lifetimes;
mod replay;

pub use replay::scenarios;
