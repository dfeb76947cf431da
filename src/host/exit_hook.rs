//! [`ExitHook`]: what happens when linked code, or the process, calls `exit`.
//!
//! The C library knows nothing of the handlers that linked code registered (`exit_handlers.rs`), so its `exit` alone
//! would end the process without them. Two ways lead here instead:
//!
//! | who calls `exit` | way |
//! |---|---|
//! | linked code | its `exit` is [`exit_address`]: hooks, then the C library's `exit` with the same status |
//! | anybody else: `err(3)`, the last thread's end | a handler that is registered with the C library's `atexit` |
//!
//! Hooks are called newest first. The C library's handler is registered when there is first something to be called
//! ([`ExitHook::tell_the_c_library`]), and not when the hook is made: so it comes behind the libraries that linking has
//! opened by then, and is called before theirs. Whoever else has a copy of this crate in the process has hooks and a
//! handler of its own.
//!
//! A handler that calls `exit` again comes by either way once more: the inner call goes on with the handlers that are
//! left, and its status counts, as the C library has it. So hooks must be able to start over at any point, and the C
//! library, which calls each handler once, is given ours anew as long as there is something left. `_exit`,
//! `quick_exit` and `abort` are the C library's own, and run nothing of this.

use std::ffi::c_int;

use crate::base::ExecutorAddr;
use crate::os;
use crate::sync::{Arc, StaticMutex};

type Hook = Arc<dyn Fn(Option<c_int>) + Send + Sync>;

struct Hooks {
    next_number: u64,
    registered: Vec<(u64, Hook)>,
    /// Whether the C library knows of us.
    is_known: bool,
    /// Whether the C library's call of them has come to its end.
    are_done: bool,
}

static HOOKS: StaticMutex<Hooks> =
    StaticMutex::new(Hooks { next_number: 0, registered: Vec::new(), is_known: false, are_done: false });

/// Something to be called when the process exits; forgotten when dropped.
#[derive(Debug)]
pub(crate) struct ExitHook {
    number: u64,
}

impl ExitHook {
    /// Has `hook` called with the status, where it is known.
    pub(crate) fn new(hook: impl Fn(Option<c_int>) + Send + Sync + 'static) -> ExitHook {
        // The C library and other threads come back here whatever the holder of the library thinks.
        os::stay_loaded();
        let mut hooks = HOOKS.lock();
        let number = hooks.next_number;
        hooks.next_number += 1;
        hooks.registered.push((number, Arc::new(hook)));
        ExitHook { number }
    }

    /// Has the hooks called before those of the C library's handlers that are registered so far.
    pub(crate) fn tell_the_c_library(&self) {
        let mut hooks = HOOKS.lock();
        // Without room for one more handler, exits that linked code calls itself are still seen.
        hooks.is_known = hooks.is_known || os::at_exit(at_process_exit);
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

/// The address of the `exit` for linked code.
pub(crate) fn exit_address() -> ExecutorAddr {
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
    // For an `exit` from inside. Without room, such a call leaves out what is left.
    let _ = os::at_exit(at_process_exit);
    run_hooks(None);
    HOOKS.lock().are_done = true;
}

/// The newest first. No lock is held meanwhile, and nothing on this stack is needed again if one never returns.
fn run_hooks(status: Option<c_int>) {
    let hooks: Vec<Hook> = HOOKS.lock().registered.iter().rev().map(|(_, hook)| hook.clone()).collect();
    for hook in hooks {
        hook(status);
    }
}
