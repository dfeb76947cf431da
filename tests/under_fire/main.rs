//! Removal under fire: threads call through handles, guards and stubs while another thread links, redirects and removes.
//!
//! Freed code is filled with traps, so a call into freed code ends the process. The tests in `calls.rs` therefore run in their own
//! processes. The same calls also run with `Jit::remove_now`, which does not wait for callers, to show that the test detects calls
//! into freed code.

mod blocked;
mod calls;
#[cfg(not(debug_assertions))]
mod overhead;
mod remove_now;

use jittison_test_support as support;
