//! A forked child in a new PID namespace has the process id of its parent, if that is the first process of its namespace.

use std::sync::{Mutex, OnceLock};

use jittison::{Jit, ResourceTracker};

use crate::fork::{Child, module, pthread_atfork, value_of};
use crate::support::*;

/// The session that the fork handler uses, the tracker that it removes, and the object that it links.
static HANDLED: OnceLock<(Jit, Mutex<Option<ResourceTracker>>, Vec<u8>)> = OnceLock::new();

extern "C" fn relink_in_child() {
    let Some((jit, old, object)) = HANDLED.get() else { return };
    let removed = old.lock().unwrap().take().unwrap();
    assert!(removed.remove().unwrap().is_complete());
    *old.lock().unwrap() = Some(add(jit, jit.main_dylib(), "new.o", object));
    assert_eq!(value_of(jit).call(1), 61002);
}

/// The exit status of a process that may not make namespaces.
const NO_NAMESPACES: i32 = 77;

/// Puts the next child of this process into a new namespace of process ids. Ends this process if that is forbidden.
fn unshare(flags: i32) {
    // SAFETY: changes only what later children of this process see, and its rights.
    unsafe {
        if libc::unshare(flags) != 0 {
            libc::_exit(NO_NAMESPACES);
        }
    }
}

#[test]
fn a_child_with_the_process_id_of_its_parent_may_link_and_remove_in_its_fork_handlers() {
    own_process!();
    let (Some(old), Some(new)) = (module(5), module(60)) else { return };
    // A process with several threads may not make a namespace of users.
    let status = Child::start(|| {
        unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID);
        let first_of_namespace = Child::start(|| {
            assert_eq!(std::process::id(), 1);
            // SAFETY: a function of this program that does not unwind: a panic in it aborts.
            assert_eq!(unsafe { pthread_atfork(None, None, Some(relink_in_child)) }, 0);
            let jit = jittison::Jit::new().unwrap();
            let tracker = add(&jit, jit.main_dylib(), "old.o", &old);
            assert_eq!(value_of(&jit).call(1), 6002);
            assert!(HANDLED.set((jit.clone(), Mutex::new(Some(tracker)), new)).is_ok());
            unshare(libc::CLONE_NEWPID);
            Child::start(|| {
                assert_eq!(std::process::id(), 1);
                assert_eq!(value_of(&jit).call(1), 61002);
            })
            .succeeds();
            assert_eq!(value_of(&jit).call(1), 6002);
        });
        // SAFETY: ends this process here.
        unsafe { libc::_exit(first_of_namespace.status().min(255)) }
    })
    .status();
    if require_that(status != NO_NAMESPACES, "namespaces of users and process ids") {
        assert_eq!(status, 0);
    }
}
