//! Materialisation: definitions that enter a table, the operations of a responsibility (resolve, emit, fail, delegate,
//! replace), and aliases.
//!
//! Imports all other sub-rooms. No other sub-room imports it: a lookup reaches it through a task
//! (`core/materialization.rs`).

pub(in crate::session) mod aliases;
pub(in crate::session) mod define;
pub(in crate::session) mod emission;
pub(in crate::session) mod materialization_wait;
pub(in crate::session) mod responsibility;
mod staged;
