//! [`enter_namespaces`]: what this process does not see of its machine from now on.
//!
//! | namespace | what the process sees in it |
//! |---|---|
//! | user | its own user and group; it has no capability in any namespace |
//! | network | no interface but a loopback that is down, no socket of others, abstract names of UNIX sockets of its own |
//! | IPC | no object of System V, no queue of POSIX |
//! | UTS | [`HOST_NAME`] |
//! | control groups | the root, whatever group it is in |
//!
//! Descriptors that are open stay as they are, so sockets of a controller go on. There is no mount namespace: Landlock decides which
//! files are opened. There is no process namespace: only a child would be in it.

use std::io;

use rustix::process::{getgid, getuid};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities, unshare_unsafe};

/// The name of the machine.
const HOST_NAME: &[u8] = b"jittison";

/// Moves this process into namespaces of its own. It has one thread.
///
/// # Errors
/// The kernel refuses a namespace, or what makes it usable. The process may be in some of them then.
pub(super) fn enter_namespaces() -> Result<(), String> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    let flags = UnshareFlags::NEWUSER
        | UnshareFlags::NEWNET
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWCGROUP;
    // SAFETY: O9 - takes no pointer. The flags leave memory and descriptors as they are.
    unsafe { unshare_unsafe(flags) }.map_err(|error| refused(error.into()))?;
    // Without these, files that it creates belong to nobody as it sees them. Groups are given up first: the kernel asks for it.
    for (file, line) in [
        ("setgroups", "deny".to_string()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ] {
        std::fs::write(format!("/proc/self/{file}"), line).map_err(refused)?;
    }
    rustix::system::sethostname(HOST_NAME).map_err(|error| refused(error.into()))?;
    rustix::system::setdomainname(b"").map_err(|error| refused(error.into()))?;
    // A new user namespace comes with all capabilities over the other ones.
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(|error| format!("its capabilities: {error}"))
}

fn refused(error: io::Error) -> String {
    format!(
        "the kernel refuses them to this user: {error}; allow user namespaces (`sysctl user.max_user_namespaces`, \
         `kernel.unprivileged_userns_clone`, `kernel.apparmor_restrict_unprivileged_userns`, the seccomp rules of a \
         container), or start without `Sandbox::namespaces`"
    )
}
