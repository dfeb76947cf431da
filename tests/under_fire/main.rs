//! Removal under fire: threads call through handles, guards and stubs while another links, redirects and removes. Freed code is
//! filled with traps, so a call that comes too late ends the process. The scenes therefore run in processes of their own; and
//! each is run once more with the removal that asks nobody, to show that it would notice.

mod at_once;
mod blocked;
mod calls;
#[cfg(not(debug_assertions))]
mod overhead;
#[path = "../support/mod.rs"]
mod support;
