//! [`ExitHook`]: a function that runs when linked code or the process calls `exit`.
//!
//! The C library does not know the exit handlers of linked code (`exit_handlers.rs`), so its `exit` would not run them. Hooks
//! run them. Two paths lead to the hooks:
//!
//! | caller of `exit` | path |
//! |---|---|
//! | linked code | its `exit` is [`exit_address`]: runs the hooks, then calls the C library's `exit` with the same status |
//! | any other code: `err(3)`, the return of `main` | a handler that is registered with the C library's `atexit` |
//!
//! # Order
//! Hooks run newest first. The handler at the C library is registered when something first needs to run at exit
//! ([`ExitHook::register_at_libc`]), not when the hook is made. By then, linking has opened its libraries. So the
//! handler is newer than the handlers of those libraries and runs before them. Each copy of this crate in the process
//! has its own hooks and its own handler.
//!
//! # A handler that calls `exit`
//! The inner call of `exit` takes one of the two paths again. It runs the handlers that have not run yet, and its
//! status counts, as in the C library. So a hook must be able to start again at any point. The C library calls each
//! handler once. So [`at_process_exit`] registers itself again before it runs the hooks, until one run has completed.
//!
//! `_exit`, `quick_exit` and `abort` are those of the C library and run no hook.

use std::ffi::c_int;

use crate::base::ExecutorAddr;
use crate::os;
use crate::sync::{Arc, StaticMutex};

/// Gets the exit status if linked code called `exit`, else `None`.
pub(crate) type ExitHookFn = dyn Fn(Option<c_int>) + Send + Sync;

struct Hooks {
    next_number: u64,
    registered: Vec<(u64, Arc<ExitHookFn>)>,
    /// Whether the C library has [`at_process_exit`].
    is_at_libc: bool,
    /// Whether `at_process_exit` has run all hooks.
    are_done: bool,
}

static HOOKS: StaticMutex<Hooks> =
    StaticMutex::new(Hooks { next_number: 0, registered: Vec::new(), is_at_libc: false, are_done: false });

/// A registered hook. Dropping it deregisters the hook.
#[derive(Debug)]
pub(super) struct ExitHook {
    number: u64,
}

impl ExitHook {
    /// Registers `hook`.
    pub(super) fn new(hook: Arc<ExitHookFn>) -> ExitHook {
        // The C library and other threads may call this code at any time, even after `dlclose` of the library that
        // contains it.
        os::prevent_unload();
        let mut hooks = HOOKS.lock();
        let number = hooks.next_number;
        hooks.next_number += 1;
        hooks.registered.push((number, hook));
        ExitHook { number }
    }

    /// Registers all hooks with the C library, so that they run before all handlers that it has at this time.
    pub(super) fn register_at_libc(&self) {
        let mut hooks = HOOKS.lock();
        // If the C library has no memory for one more handler, hooks still run when linked code itself calls `exit`.
        hooks.is_at_libc = hooks.is_at_libc || os::at_exit(at_process_exit);
    }
}

impl Drop for ExitHook {
    fn drop(&mut self) {
        let mut hooks = HOOKS.lock();
        let position = hooks.registered.iter().position(|(number, _)| *number == self.number);
        let hook = position.map(|position| hooks.registered.remove(position));
        drop(hooks);
        drop(hook);
    }
}

/// The address of `exit` for linked code.
pub(super) fn exit_address() -> ExecutorAddr {
    ExecutorAddr::new(exit_from_linked_code as *const () as u64)
}

/// `void exit(int status)`.
extern "C-unwind" fn exit_from_linked_code(status: c_int) -> ! {
    run_hooks(Some(status));
    os::exit_process(status)
}

extern "C-unwind" fn at_process_exit() {
    if HOOKS.lock().are_done {
        return;
    }
    // For a hook that calls `exit`. If the C library has no memory for one more handler, that call does not run the
    // remaining handlers of linked code.
    let _ = os::at_exit(at_process_exit);
    run_hooks(None);
    HOOKS.lock().are_done = true;
}

/// Runs the hooks, newest first, without a lock. A hook that calls `exit` never returns. No other code depends on the
/// values on this stack.
fn run_hooks(status: Option<c_int>) {
    let hooks: Vec<Arc<ExitHookFn>> = HOOKS.lock().registered.iter().rev().map(|(_, hook)| hook.clone()).collect();
    for hook in hooks {
        hook(status);
    }
}
