//! Files that are given by path: another process may shorten, extend, replace or withhold them at any time, and then a
//! link fails by name or uses the bytes that were there. It never faults and never waits.
//!
//! Tests that would end the process by SIGBUS if the promise broke run in a process of their own.

#[path = "../linking/archive_bytes.rs"]
#[allow(dead_code)]
mod archive_bytes;
mod changed;
mod kinds;
mod mapped;
mod on_demand;
#[path = "../support/mod.rs"]
mod support;
