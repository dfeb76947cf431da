//! Tests of observers. Each event is delivered once, in order and without a lock. An observer may call any function of the crate.
//! Without an observer, events cost nothing. One file per theme.

mod memory;
mod modules;
mod quiet;
mod recorder;
mod reentry;
mod refusals;
mod stubs;
#[cfg(feature = "tracing")]
mod tracing;

use jittison_test_support as support;

#[global_allocator]
static ALLOCATOR: support::CountingAllocator = support::CountingAllocator;
