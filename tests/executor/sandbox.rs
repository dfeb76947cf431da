//! What code of a sandboxed executor may do, and what is refused.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use jittison::executor::{ExecutorProcess, Sandbox};
use jittison::{ErrorKind, Jit};
use jittison_test_tools::{PrivateDir, emulated, is_rerun, require, require_that, rerun, this_test};

use crate::{Remote, c};

fn command() -> Command {
    emulated(Path::new(env!("CARGO_BIN_EXE_jittison-executor")))
}

/// Calls that return 0, or the number of the error.
const ATTEMPTS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#define ATTEMPT(call) ((call) < 0 ? errno : 0)
static char path[4096];
void set(long at, long c) { path[at] = c; path[at + 1] = 0; }
int read_file(void) { int f = open(path, O_RDONLY); if (f >= 0) close(f); return ATTEMPT(f); }
int write_file(void) { int f = open(path, O_WRONLY | O_CREAT, 0600); if (f >= 0) { if (write(f, "x", 1) != 1) return -1; close(f); } return ATTEMPT(f); }
int remove_file(void) { return ATTEMPT(unlink(path)); }
int truncate_file(void) { return ATTEMPT(truncate(path, 0)); }
int make_directory(void) { return ATTEMPT(mkdir(path, 0700)); }
int change_mode(void) { return ATTEMPT(chmod(path, 0777)); }
int open_socket(void) { return ATTEMPT(socket(AF_INET, SOCK_STREAM, 0)); }
int open_local_socket(void) { return ATTEMPT(socket(AF_UNIX, SOCK_STREAM, 0)); }
int new_process(void) { pid_t p = fork(); if (p == 0) _exit(0); if (p > 0) waitpid(p, 0, 0); return ATTEMPT(p); }
int new_process_by_clone(void) { long p = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); if (p == 0) _exit(0); return ATTEMPT(p); }
int new_process_by_clone3(void) { char a[88] = {0}; long p = syscall(SYS_clone3, a, sizeof a); if (p == 0) _exit(0); return ATTEMPT(p); }
int new_program(void) { char *const none[] = {0}; return ATTEMPT(execve("/bin/true", none, none)); }
int send_signal(long process) { return ATTEMPT(kill(process, 0)); }
int send_signal_to_thread(long process) { return ATTEMPT(syscall(SYS_tgkill, process, process, 0)); }
int send_signal_to_itself(void) { return ATTEMPT(kill(getpid(), 0)); }
int trace(long process) { return ATTEMPT(ptrace(PTRACE_ATTACH, process, 0, 0)); }
int write_memory(long process, long address) {
  char byte = 1; struct iovec here = { &byte, 1 }, there = { (void *)address, 1 };
  return ATTEMPT(process_vm_writev(process, &here, 1, &there, 1, 0)); }
int read_memory(long process, long address) {
  char byte = 1; struct iovec here = { &byte, 1 }, there = { (void *)address, 1 };
  return ATTEMPT(process_vm_readv(process, &here, 1, &there, 1, 0)); }
int new_namespace(void) { return ATTEMPT(syscall(SYS_unshare, CLONE_NEWUSER)); }
int new_ring(void) { return ATTEMPT(syscall(425, 1, 0)); }
int more_limits(void) { return ATTEMPT(syscall(SYS_prlimit64, 1, 7, 0, 0)); }
static void *body(void *n) { return (char *)n + 1; }
long new_thread(long n) { pthread_t t; void *r; if (pthread_create(&t, 0, body, (void *)n)) return -1; pthread_join(t, &r); return (long)r; }
long allocate(long bytes) { char *p = malloc(bytes); if (!p) return 0; memset(p, 1, bytes); free(p); return bytes; }
void spin(void) { for (volatile long i = 0; ; i++); }
"#;

/// Whether the kernel can restrict files. If not, the test is skipped.
fn has_landlock() -> bool {
    let started = ExecutorProcess::start_sandboxed(command(), &Sandbox::new());
    let is_missing = started.is_err_and(|error| error.to_string().contains("Landlock"));
    require_that(!is_missing, "Linux 6.2 with Landlock")
}

/// The object of [`ATTEMPTS`].
fn attempts() -> Option<Vec<u8>> {
    c(ATTEMPTS).filter(|_| has_landlock())
}

/// A sandboxed executor with the functions of [`ATTEMPTS`].
struct Sandboxed(Remote);

impl Sandboxed {
    fn start(sandbox: &Sandbox, object: &[u8]) -> Sandboxed {
        let executor = ExecutorProcess::start_sandboxed(command(), sandbox).unwrap();
        let jit = Jit::builder().executor(&executor).build().unwrap();
        let remote = Remote { executor, jit };
        drop(remote.add("attempts.o", object));
        Sandboxed(remote)
    }

    /// The number of the error of an attempt, or 0.
    fn attempt(&self, name: &str, arguments: &[u64]) -> i32 {
        self.0.call(name, arguments) as i32
    }

    /// The same, for a path.
    fn attempt_at(&self, name: &str, path: &Path) -> i32 {
        for (at, byte) in path.as_os_str().as_encoded_bytes().iter().enumerate() {
            self.0.call("set", &[at as u64, u64::from(*byte)]);
        }
        self.attempt(name, &[])
    }
}

/// The files of messages between both processes.
pub fn is_message(file: &str) -> bool {
    ["memfd:jittison lane ", "memfd:jittison crash "].iter().any(|name| file.contains(name))
}

/// The files without a name that both processes map: device, inode and name.
pub fn shared_files(executor: &ExecutorProcess) -> Vec<String> {
    let mapped = |process: u32| -> BTreeSet<String> {
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
        let file = |line: &str| line.splitn(4, ' ').nth(3).unwrap().to_string();
        maps.lines().map(file).filter(|file| file.contains("/memfd:")).collect()
    };
    mapped(executor.id()).intersection(&mapped(std::process::id())).cloned().collect()
}

#[test]
fn a_sandboxed_executor_shares_no_memory_with_a_link() {
    let Some(object) = attempts() else { return };
    let sandboxed = Sandboxed::start(&Sandbox::new(), &object);
    assert_eq!(sandboxed.attempt("send_signal", &[0]), libc::EPERM);
    let shared = shared_files(&sandboxed.0.executor);
    assert!(!shared.is_empty() && shared.iter().all(|file| is_message(file)), "{shared:?}");
    // Else it does, and so this sees it.
    let remote = Remote::start();
    drop(remote.add("attempts.o", &object));
    assert_eq!(remote.call("more_limits", &[]), 0);
    let shared = shared_files(&remote.executor);
    assert_eq!(shared.iter().filter(|file| !is_message(file)).count(), 2, "code and data: {shared:?}");
}

#[test]
fn a_sandbox_refuses_files_sockets_processes_and_other_processes() {
    let Some(object) = attempts() else { return };
    let folder = PrivateDir::new();
    let file = folder.path("file");
    std::fs::write(&file, "text").unwrap();
    let sandboxed = Sandboxed::start(&Sandbox::new(), &object);
    let own = u64::from(std::process::id());
    let memory = std::ptr::from_ref(&own).addr() as u64;
    for attempt in ["read_file", "write_file", "remove_file", "truncate_file", "change_mode"] {
        let refused = sandboxed.attempt_at(attempt, &file);
        assert!([libc::EACCES, libc::EPERM].contains(&refused), "{attempt}: {refused}");
    }
    assert_eq!(sandboxed.attempt_at("write_file", &folder.path("new")), libc::EACCES);
    assert_eq!(sandboxed.attempt_at("make_directory", &folder.path("directory")), libc::EACCES);
    assert_eq!(sandboxed.attempt_at("read_file", Path::new("/etc/passwd")), libc::EACCES);
    let memory_file = format!("/proc/{own}/mem");
    assert_eq!(sandboxed.attempt_at("write_file", Path::new(&memory_file)), libc::EACCES);
    for attempt in [
        "open_socket",
        "open_local_socket",
        "new_process",
        "new_process_by_clone",
        "new_program",
        "new_namespace",
        "new_ring",
        "more_limits",
    ] {
        assert_eq!(sandboxed.attempt(attempt, &[]), libc::EPERM, "{attempt}");
    }
    assert_eq!(sandboxed.attempt("new_process_by_clone3", &[]), libc::ENOSYS);
    for attempt in ["send_signal", "send_signal_to_thread", "trace", "write_memory", "read_memory"] {
        assert_eq!(sandboxed.attempt(attempt, &[own, memory]), libc::EPERM, "{attempt}");
    }
    assert_eq!(own, u64::from(std::process::id()));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
    assert_eq!(std::fs::read_dir(&*folder).unwrap().count(), 1);
    // The same attempts succeed without a sandbox, so that the refusals are those of the sandbox.
    let remote = Remote::start();
    drop(remote.add("attempts.o", &object));
    let free = Sandboxed(remote);
    for attempt in ["open_socket", "open_local_socket", "new_process", "new_process_by_clone"] {
        assert_eq!(free.attempt(attempt, &[]), 0, "{attempt}");
    }
    assert_eq!(free.attempt("send_signal", &[own, memory]), 0);
    for attempt in ["read_file", "write_file", "change_mode", "remove_file"] {
        assert_eq!(free.attempt_at(attempt, &file), 0, "{attempt}");
    }
}

#[test]
fn code_in_a_sandbox_has_memory_threads_and_its_own_signals() {
    let Some(object) = attempts() else { return };
    let sandboxed = Sandboxed::start(&Sandbox::new(), &object);
    assert_eq!(sandboxed.0.call("new_thread", &[41]), 42);
    assert_eq!(sandboxed.0.call("allocate", &[64 << 20]), 64 << 20);
    assert_eq!(sandboxed.attempt("send_signal_to_itself", &[]), 0);
    // Other threads of this process have threads there.
    std::thread::scope(|scope| {
        for n in 0..3 {
            let sandboxed = &sandboxed;
            scope.spawn(move || assert_eq!(sandboxed.0.call("new_thread", &[n]), n + 1));
        }
    });
}

#[test]
fn thread_local_variables_exceptions_and_lazy_functions_work_in_a_sandbox() {
    let source = "#include <stdexcept>
        static thread_local long own = 3; struct Set { long n; Set() : n(4) {} } set;
        extern \"C\" long test(long n) { try { if (n) throw std::runtime_error(\"x\"); } catch (const std::exception &) { return ++own + set.n; } return 0; }";
    let (Some(object), true) = (crate::cpp(source), has_landlock()) else { return };
    let executor = ExecutorProcess::start_sandboxed(command(), &Sandbox::new().read_libraries()).unwrap();
    let jit = Jit::builder().executor(&executor).library("libstdc++.so.6").build().unwrap();
    let remote = Remote { executor, jit };
    let tracker = remote.add("cpp.o", &object);
    assert_eq!([remote.call("test", &[1]), remote.call("test", &[0]), remote.call("test", &[1])], [8, 0, 9]);
    assert!(tracker.remove().unwrap().is_complete());
}

#[test]
fn paths_that_a_sandbox_names_are_read_and_written_and_no_others() {
    let Some(object) = attempts() else { return };
    let folder = PrivateDir::new();
    let at = |name: &str| folder.path(name);
    ["read", "write", "other"].iter().for_each(|name| std::fs::create_dir(at(name)).unwrap());
    ["read/file", "write/file", "other/file", "one"].iter().for_each(|name| std::fs::write(at(name), "text").unwrap());
    let sandbox = Sandbox::new().read(at("read")).write(at("write")).read(at("one"));
    let sandboxed = Sandboxed::start(&sandbox, &object);
    let attempt = |what: &str, name: &str| sandboxed.attempt_at(what, &at(name));
    for readable in ["read/file", "write/file", "one"] {
        assert_eq!(attempt("read_file", readable), 0, "{readable}");
    }
    for refused in ["read/file", "one", "other/file", "read/new", "other/new"] {
        assert_eq!(attempt("write_file", refused), libc::EACCES, "{refused}");
    }
    assert_eq!(attempt("read_file", "other/file"), libc::EACCES);
    for (what, name) in [
        ("write_file", "write/new"),
        ("truncate_file", "write/file"),
        ("remove_file", "write/file"),
        ("make_directory", "write/directory"),
    ] {
        assert_eq!(attempt(what, name), 0, "{what} {name}");
    }
    assert_eq!(attempt("change_mode", "write/new"), libc::EPERM);
}

#[test]
fn memory_and_processor_time_of_a_sandbox_are_limited() {
    let Some(object) = attempts() else { return };
    let sandboxed = Sandboxed::start(&Sandbox::new().memory(64 << 20), &object);
    assert_eq!(sandboxed.0.call("allocate", &[8 << 20]), 8 << 20);
    assert_eq!(sandboxed.0.call("allocate", &[256 << 20]), 0);
    assert_eq!(sandboxed.0.call("new_thread", &[1]), 2);
    let sandboxed = Sandboxed::start(&Sandbox::new().processor_time(Duration::from_millis(500)), &object);
    let spin = sandboxed.0.jit.remote_function(sandboxed.0.jit.main_dylib(), "spin").unwrap();
    let error = spin.call(&[]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ExecutorEnded { .. }), "{error}");
    assert!(error.to_string().contains("signal 9 (SIGKILL)") || error.to_string().contains("(SIGXCPU)"), "{error}");
}

#[test]
fn a_sandbox_that_cannot_be_made_starts_nothing() {
    let test = this_test!();
    if is_rerun(test) {
        // The harness has a thread beside that of this test.
        let Err(error) = jittison::executor::serve_standard_input();
        panic!("{error}");
    }
    if !has_landlock() {
        return;
    }
    let refused =
        |command, sandbox: &Sandbox| ExecutorProcess::start_sandboxed(command, sandbox).unwrap_err().to_string();
    let error = refused(command(), &Sandbox::new().read("/no such directory"));
    assert!(error.contains("cannot restrict itself") && error.contains("/no such directory"), "{error}");
    let mut command = rerun(test);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let error = refused(command, &Sandbox::new());
    assert!(error.contains("cannot restrict itself: the process has 2 threads"), "{error}");
}

/// What differs between a process with namespaces of its own and this one.
const NAMESPACES: [&str; 5] = ["user", "net", "ipc", "uts", "cgroup"];

/// Calls that say what is seen of the machine.
const SEEN: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>
static char text[1 << 16];
/* The lines of a file, or -1. */
static long lines(const char *path) {
  int f = open(path, O_RDONLY); if (f < 0) return -1;
  long count = 0, got; while ((got = read(f, text, sizeof text)) > 0) for (long i = 0; i < got; i++) count += text[i] == '\n';
  close(f); return count; }
long tcp_sockets(void) { return lines("/proc/self/net/tcp") - 1; }
long unix_sockets(void) { return lines("/proc/self/net/unix") - 1; }
long has_name(void) { struct utsname u; return uname(&u) == 0 && !strcmp(u.nodename, "jittison"); }
long user(void) { return getuid(); }
long capabilities(void) {
  FILE *f = fopen("/proc/self/status", "r"); unsigned long long set, all = 0; char name[8];
  while (fgets(text, sizeof text, f)) if (sscanf(text, "Cap%3s: %llx", name, &set) == 2 && strcmp(name, "Bnd")) all |= set;
  fclose(f); return all != 0; }
long one(void) { return 1; }
"#;

#[test]
fn a_sandbox_with_namespaces_sees_no_network_no_host_name_and_has_no_capability() {
    // Shares the process: what is read is that of the executor's process.
    let Some(object) = c(SEEN).filter(|_| has_landlock()) else { return };
    let started = ExecutorProcess::start_sandboxed(command(), &Sandbox::new().namespaces());
    let is_refused = started.as_ref().is_err_and(|error| error.to_string().contains("namespaces"));
    if !require_that(!is_refused, "user namespaces") {
        return;
    }
    drop(started.unwrap());
    // The machine has a socket of this process, which is in its list.
    let _listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = Sandboxed::start(&Sandbox::new(), &object).0;
    let own = Sandboxed::start(&Sandbox::new().namespaces(), &object).0;
    let namespace = |process: u32, name| std::fs::read_link(format!("/proc/{process}/ns/{name}")).unwrap();
    for name in NAMESPACES {
        let here = namespace(std::process::id(), name);
        assert_eq!(namespace(plain.executor.id(), name), here, "{name}");
        assert_ne!(namespace(own.executor.id(), name), here, "{name}");
    }
    for name in ["tcp_sockets", "unix_sockets"] {
        assert!(plain.call(name, &[]) as i64 > 0, "{name}");
    }
    for (name, value) in [("tcp_sockets", 0), ("unix_sockets", 0), ("has_name", 1), ("capabilities", 0)] {
        assert_eq!(own.call(name, &[]) as i64, value, "{name}");
    }
    assert_eq!(plain.call("has_name", &[]), 0);
    assert_eq!(own.call("user", &[]), plain.call("user", &[]));
    // Further threads are in the same namespaces, and work.
    std::thread::scope(|scope| scope.spawn(|| assert_eq!(own.call("has_name", &[]), 1)).join().unwrap());
}

#[test]
fn files_that_a_sandbox_with_namespaces_writes_belong_to_its_user() {
    use std::os::unix::fs::MetadataExt as _;
    let Some(object) = attempts() else { return };
    let folder = PrivateDir::new();
    let sandbox = Sandbox::new().namespaces().write(&*folder);
    let started = ExecutorProcess::start_sandboxed(command(), &sandbox);
    let is_refused = started.is_err_and(|error| error.to_string().contains("namespaces"));
    if !require_that(!is_refused, "user namespaces") {
        return;
    }
    let sandboxed = Sandboxed::start(&sandbox, &object);
    assert_eq!(sandboxed.attempt_at("write_file", &folder.path("new")), 0);
    let owner = |path: &Path| std::fs::metadata(path).map(|file| (file.uid(), file.gid())).unwrap();
    assert_eq!(owner(&folder.path("new")), owner(&folder));
    for attempt in ["open_socket", "new_process", "new_namespace"] {
        assert_eq!(sandboxed.attempt(attempt, &[]), libc::EPERM, "{attempt}");
    }
}

#[test]
fn nothing_starts_without_the_namespaces_that_are_asked_for() {
    let Some(mut outer) = require("unshare") else { return };
    if !has_landlock() {
        return;
    }
    // A user namespace in which no further one can be made.
    let limit = "echo 0 > /proc/sys/user/max_user_namespaces";
    let run = outer.args(["--user", "--map-root-user", "sh", "-c", limit]).output().unwrap();
    if !require_that(run.status.success(), "user namespaces") {
        return;
    }
    let start = |sandbox: &Sandbox| {
        let mut command = require("unshare").unwrap();
        command.args(["--user", "--map-root-user", "sh", "-c", &format!("{limit}; exec \"$0\"")]);
        command.arg(env!("CARGO_BIN_EXE_jittison-executor"));
        ExecutorProcess::start_sandboxed(command, sandbox)
    };
    let error = start(&Sandbox::new().namespaces()).unwrap_err().to_string();
    assert!(error.contains("cannot restrict itself: namespaces: the kernel refuses them"), "{error}");
    assert!(error.contains("user.max_user_namespaces") && error.contains("`Sandbox::namespaces`"), "{error}");
    start(&Sandbox::new()).unwrap();
}
