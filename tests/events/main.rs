//! The promises of observers: each thing that happens is told once, in order, under no lock; an observer may do what it likes;
//! and where nobody listens nothing is paid. One file per theme.

#[path = "../support/allocations.rs"]
mod allocations;
mod memory;
mod modules;
mod quiet;
mod recorder;
mod reentry;
mod refusals;
mod stubs;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "tracing")]
mod tracing;
