//! [`Sandbox`]: what the process of an executor may do beside running code.

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::os::Restrictions;
use crate::wire::SandboxRules;

/// What the process of an executor may do beside running code
/// ([`ExecutorProcess::start_sandboxed`](super::ExecutorProcess::start_sandboxed)).
///
/// A new sandbox allows memory, threads, time, and what comes with the descriptors that the process has: standard input, output and error,
/// and the sockets of its controller. Files cannot be opened, and everything else fails, too: sockets, processes, signals to other processes,
/// and access to their memory. The methods allow more, or limit what is allowed.
///
/// The executor restricts itself before any code is linked, by Landlock, seccomp, `no_new_privs` and resource limits. Calls that
/// are not allowed fail with `EPERM` or `EACCES`. [`namespaces`](Self::namespaces) adds a second wall where the kernel allows it. `docs/executor.md` has the table of what is promised.
///
/// ```no_run
/// # fn main() -> Result<(), jittison::Error> {
/// use jittison::executor::{ExecutorProcess, Sandbox};
///
/// let sandbox = Sandbox::new().read_libraries().read("data").memory(1 << 30);
/// let program = "jittison-executor";
/// let executor = ExecutorProcess::start_sandboxed(std::process::Command::new(program), &sandbox)?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    restrictions: Restrictions,
}

impl Sandbox {
    /// A sandbox that allows no file.
    pub fn new() -> Sandbox {
        Sandbox::default()
    }

    /// Lets code read a file, or all files beneath a directory. The path exists when the executor starts.
    pub fn read(mut self, path: impl AsRef<Path>) -> Sandbox {
        self.restrictions.readable.push(path.as_ref().to_path_buf());
        self
    }

    /// Lets code read, write, create, rename and remove all files beneath a directory, or read and write one file. The path exists when
    /// the executor starts. Owners, permissions and times of files cannot be changed.
    pub fn write(mut self, path: impl AsRef<Path>) -> Sandbox {
        self.restrictions.writable.push(path.as_ref().to_path_buf());
        self
    }

    /// Lets code read the directories of shared libraries and the index of the loader, so that libraries can be opened after the
    /// start ([`JitBuilder::library`](crate::JitBuilder::library), `dlopen`).
    pub fn read_libraries(mut self) -> Sandbox {
        let places = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"];
        self.restrictions.readable.extend(places.into_iter().map(PathBuf::from).filter(|place| place.exists()));
        self
    }

    /// Limits the private writable memory of the process, in bytes (`RLIMIT_DATA`). Linked code and its data do not count. Beyond the limit,
    /// allocations of code fail.
    pub fn memory(mut self, bytes: u64) -> Sandbox {
        self.restrictions.memory = Some(bytes);
        self
    }

    /// Limits the processor time of the process, rounded up to seconds (`RLIMIT_CPU`). Beyond the limit, a signal ends the executor.
    pub fn processor_time(mut self, limit: Duration) -> Sandbox {
        self.restrictions.processor_time = Some(limit.as_secs() + u64::from(limit.subsec_nanos() > 0));
        self
    }

    /// Limits the number of open descriptors (`RLIMIT_NOFILE`). The executor needs about ten, and two for each thread that calls.
    pub fn open_files(mut self, count: u64) -> Sandbox {
        self.restrictions.open_files = Some(count);
        self
    }

    /// Gives the process namespaces of its own: user, network, IPC, UTS, control groups. Code there sees no network interface but a
    /// loopback that is down, no socket and no System V or POSIX object of others, the host name `jittison`, and no control group; it has no
    /// capabilities, also if the user is root. So it sees less, and a fault in the other rules opens less.
    ///
    /// The kernel must allow user namespaces to this user. Where it refuses, the executor does not start, and the error says so. The process
    /// keeps its number: there is no process namespace. Files of other users that root may read are not read.
    pub fn namespaces(mut self) -> Sandbox {
        self.restrictions.namespaces = true;
        self
    }

    /// As a message has it.
    pub(super) fn rules(&self) -> SandboxRules {
        let Restrictions { readable, writable, memory, processor_time, open_files, namespaces } = &self.restrictions;
        let bytes = |paths: &[PathBuf]| paths.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect();
        SandboxRules {
            readable: bytes(readable),
            writable: bytes(writable),
            memory: *memory,
            processor_time: *processor_time,
            open_files: *open_files,
            namespaces: *namespaces,
        }
    }
}

/// What the rules of a message restrict.
pub(super) fn restrictions_of(rules: SandboxRules) -> Restrictions {
    let SandboxRules { readable, writable, memory, processor_time, open_files, namespaces } = rules;
    let paths =
        |paths: Vec<Vec<u8>>| paths.into_iter().map(|path| PathBuf::from(std::ffi::OsString::from_vec(path))).collect();
    Restrictions {
        readable: paths(readable),
        writable: paths(writable),
        memory,
        processor_time,
        open_files,
        namespaces,
    }
}
