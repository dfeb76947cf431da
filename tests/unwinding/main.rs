//! The promises of unwinding: whatever compilers and people write for an unwinder is found by every unwinder, without any
//! module ever being registered, while others come and go. One file per theme; `host.rs` is what the code is linked with.
//!
//! That exceptions and panics land where they should, with destructors run, is `tests/platform`'s; that they do so at every
//! rung of mapping, in forked children and in every placement, `tests/memory`'s.

mod forms;
#[path = "../support/frames.rs"]
mod frames;
mod host;
mod many;
mod producers;
mod static_programs;
mod stress;
#[path = "../support/mod.rs"]
mod support;
mod walkers;
mod windows;
