//! Functions of reload points for linked code.
//!
//! | function of linked code | what it does |
//! |---|---|
//! | `jittison_reload_point` | passes a reload point, and says whether the caller was replaced |
//! | `jittison_is_replaced` | says whether the caller was replaced |
//!
//! What a reload point is, and which code was replaced, is known to the room above: it installs [`ReloadHooks`]. Native code of
//! each architecture adds the return address, because the answer depends on the caller.

use std::ffi::c_int;

use crate::arch;
use crate::base::ExecutorAddr;
use crate::host::linked_threads::ThreadHooks;
use crate::host::{linked_threads, stack_end};
use crate::os;
use crate::sync::StaticCell;

/// What the functions of this file ask the room above.
#[derive(Clone, Copy)]
pub(crate) struct ReloadHooks {
    /// Passes a reload point. Says whether the code at this address has been replaced.
    pub(crate) pass: fn(ExecutorAddr, WalkFn) -> bool,
    /// Says whether the code at this address has been replaced.
    pub(crate) is_replaced: fn(ExecutorAddr) -> bool,
    pub(crate) threads: ThreadHooks,
}

/// Finds addresses inside the calls that the frames of the calling thread wait for. `None` if not all of them are known.
pub(crate) type WalkFn = fn() -> Option<Vec<ExecutorAddr>>;

static HOOKS: StaticCell<ReloadHooks> = StaticCell::new();

/// The functions that linked code gets from the first reloader on.
#[derive(Default)]
pub(crate) struct ReloadFunctions {
    /// New ones.
    pub(crate) added: Vec<(&'static str, ExecutorAddr)>,
    /// In place of those of the process and its libraries, where they have them.
    pub(crate) in_place: Vec<(&'static str, ExecutorAddr)>,
}

/// Installs the hooks, and returns the functions of this file, and those that start threads. Later calls install nothing.
pub(super) fn reload_functions(hooks: ReloadHooks) -> ReloadFunctions {
    HOOKS.get_or_init(|| hooks);
    let function = |name, function: *const ()| (name, ExecutorAddr::new(function as u64));
    ReloadFunctions {
        added: vec![
            function("jittison_reload_point", reload_point as *const ()),
            function("jittison_is_replaced", is_replaced as *const ()),
        ],
        in_place: linked_threads::thread_functions(hooks.threads),
    }
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

/// Passes a reload point in code that is not linked, which no version replaces.
#[cfg(feature = "unstable")]
pub(super) fn pass_natively() {
    pass_reload_point(0);
}

/// `int jittison_is_replaced(void)`, with the address to which it returns.
extern "C" fn ask_is_replaced(return_address: u64) -> c_int {
    let inside = ExecutorAddr::new(return_address.wrapping_sub(1));
    HOOKS.get().is_some_and(|hooks| (hooks.is_replaced)(inside)).into()
}

/// The name has the crate version, because a program may contain two versions of this crate.
macro_rules! symbol {
    ($name:literal) => {
        concat!("\"jittison_", $name, "_", env!("CARGO_PKG_VERSION"), "\"")
    };
}

unsafe extern "C" {
    /// Calls [`pass_reload_point`] with its return address.
    #[link_name = concat!("jittison_reload_point_", env!("CARGO_PKG_VERSION"))]
    fn reload_point() -> c_int;

    /// Calls [`ask_is_replaced`] with its return address.
    #[link_name = concat!("jittison_is_replaced_", env!("CARGO_PKG_VERSION"))]
    fn is_replaced() -> c_int;
}

arch::define_with_caller!({ symbol!("reload_point") }, pass_reload_point);
arch::define_with_caller!({ symbol!("is_replaced") }, ask_is_replaced);
