//! Tests of unwinding: every unwinder finds the unwind tables of linked code, whoever wrote them. No module is ever registered
//! with an unwinder, and other modules may be linked and removed at the same time. One file per theme. `host.rs` is the code
//! that throws and catches.
//!
//! `tests/platform` checks that exceptions and panics are caught by the right handler and run destructors. `tests/memory` checks
//! that they do so in every mapping mode, in forked children and in every placement.

mod forms;
mod host;
mod many;
mod producers;
mod static_programs;
mod stress;
mod walkers;
mod windows;

use jittison_test_support as support;
