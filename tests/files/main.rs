//! Files given by path. Another process may truncate, extend, replace or remove them at any time. A link then fails with the
//! name of the file, or uses the original bytes. It never faults and never waits.
//!
//! A test that would end its process by SIGBUS on failure runs in its own process.

mod changed;
mod kinds;
mod mapped;
mod on_demand;

use jittison_test_support as support;
