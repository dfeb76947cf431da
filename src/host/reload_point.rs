//! `jittison_reload_point`, by which linked code passes a reload point.
//!
//! What a reload point is, and which code was replaced, is known to the room above: it installs [`ReloadHooks`]. Native code of
//! each architecture adds the return address, because the answer depends on the caller.

use std::ffi::c_int;

use crate::arch;
use crate::base::ExecutorAddr;
use crate::host::linked_threads::KeepFn;
use crate::host::{linked_threads, stack_end};
use crate::os;
use crate::sync::StaticCell;

/// What the functions of this file ask the room above.
#[derive(Clone, Copy)]
pub(crate) struct ReloadHooks {
    /// Passes a reload point. Says whether the code at this address has been replaced.
    pub(crate) pass: fn(ExecutorAddr, WalkFn) -> bool,
    /// Keeps the code at this address in memory until the result is dropped. `None` if it is not the code of a version.
    pub(crate) keep: KeepFn,
}

/// Finds addresses inside the calls that the frames of the calling thread wait for. `None` if not all of them are known.
pub(crate) type WalkFn = fn() -> Option<Vec<ExecutorAddr>>;

static HOOKS: StaticCell<ReloadHooks> = StaticCell::new();

/// Installs the hooks, and returns the functions that linked code gets: the one of this file, and those that start threads. Later
/// calls install nothing.
pub(super) fn reload_functions(hooks: ReloadHooks) -> Vec<(&'static str, ExecutorAddr)> {
    HOOKS.get_or_init(|| hooks);
    let mut functions = linked_threads::thread_functions(hooks.keep);
    functions.push(("jittison_reload_point", ExecutorAddr::new(reload_point as *const () as u64)));
    functions
}

/// See [`WalkFn`].
fn return_addresses() -> Option<Vec<ExecutorAddr>> {
    let mut addresses = os::return_addresses()?;
    addresses.extend(stack_end::addresses_below()?);
    Some(addresses.into_iter().map(ExecutorAddr::new).collect())
}

/// `int jittison_reload_point(void)`, with the address to which it returns.
extern "C" fn pass_reload_point(return_address: u64) -> c_int {
    let inside = ExecutorAddr::new(return_address.wrapping_sub(1));
    HOOKS.get().is_some_and(|hooks| (hooks.pass)(inside, return_addresses)).into()
}

/// The name has the crate version, because a program may contain two versions of this crate.
macro_rules! symbol {
    () => {
        concat!("\"jittison_reload_point_", env!("CARGO_PKG_VERSION"), "\"")
    };
}

unsafe extern "C" {
    /// Calls [`pass_reload_point`] with its return address.
    #[link_name = concat!("jittison_reload_point_", env!("CARGO_PKG_VERSION"))]
    fn reload_point() -> c_int;
}

arch::define_with_caller!({ symbol!() }, pass_reload_point);
