//! [`restrict`]: what this process may not do from now on.
//!
//! | by | what |
//! |---|---|
//! | Landlock (Linux 6.2) | files are opened beneath the given paths only; memory of processes outside is not read or written; from Linux 6.12, signals do not reach them |
//! | seccomp | system calls that are not in [`ALLOWED`] fail with `EPERM`: no sockets, no processes, no signals to others, no changes of owners or permissions |
//! | namespaces (`namespaces.rs`) | if wanted: no network, no objects of others, another name of the machine, no capabilities |
//! | `no_new_privs` | a program that is run gains no rights; none is run |
//! | resource limits | memory, processor time, open files |
//!
//! Nothing here can be undone, and threads that are started later have the same restrictions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::arch::OLD_SYSTEM_CALLS;
use crate::os::namespaces::enter_namespaces;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

/// What a process may still do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Restrictions {
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) writable: Vec<PathBuf>,
    /// Bytes of private writable memory.
    pub(crate) memory: Option<u64>,
    /// Seconds of processor time.
    pub(crate) processor_time: Option<u64>,
    pub(crate) open_files: Option<u64>,
    /// Whether it gets namespaces of its own.
    pub(crate) namespaces: bool,
}

/// Restricts this process.
///
/// # Errors
/// The process has more than one thread, a path cannot be opened, or the kernel cannot do it. A part may be restricted then.
pub(crate) fn restrict(restrictions: &Restrictions) -> Result<(), String> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(|error| format!("its threads: {error}"))?.count();
    if threads != 1 {
        return Err(format!("the process has {threads} threads, and only its first one can be restricted"));
    }
    let limits = [
        (Resource::Data, restrictions.memory),
        (Resource::Cpu, restrictions.processor_time),
        (Resource::Nofile, restrictions.open_files),
    ];
    for (resource, limit) in limits {
        let Some(limit) = limit else { continue };
        let maximum = getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit));
        let limit = Rlimit { current: Some(maximum), maximum: Some(maximum) };
        setrlimit(resource, limit).map_err(|error| format!("the limit {resource:?}: {error}"))?;
    }
    // First: the files that it needs cannot be written later.
    if restrictions.namespaces {
        enter_namespaces().map_err(|error| format!("namespaces: {error}"))?;
    }
    restrict_files(restrictions).map_err(|error| format!("Landlock: {error}"))?;
    restrict_calls().map_err(|error| format!("seccomp: {error}"))
}

fn restrict_files(restrictions: &Restrictions) -> Result<(), Box<dyn std::error::Error>> {
    let needed = AccessFs::from_all(NEEDED);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(needed)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::IoctlDev)?
        .scope(Scope::from_all(ABI::V6))?
        .create()?
        .set_compatibility(CompatLevel::HardRequirement);
    // The C library and this crate read what is mapped where.
    let own = PathBuf::from("/proc/self");
    let readable = restrictions.readable.iter().chain([&own]).map(|path| (path, AccessFs::from_read(NEEDED)));
    for (path, access) in readable.chain(restrictions.writable.iter().map(|path| (path, needed))) {
        let open = PathFd::new(path)?;
        let is_file = !path.is_dir();
        let access = if is_file { access & AccessFs::from_file(NEEDED) } else { access };
        rules = rules.add_rule(PathBeneath::new(open, access & !AccessFs::Execute))?;
    }
    rules.restrict_self()?;
    Ok(())
}

/// What Landlock must be able to restrict: all of opening, changing, truncating and moving files.
const NEEDED: ABI = ABI::V3;

fn restrict_calls() -> Result<(), Box<dyn std::error::Error>> {
    let architecture = || std::env::consts::ARCH.try_into();
    // The flags of `clone3` are in memory, which no filter reads. The C library falls back to `clone`. This filter comes first,
    // because the other one allows no further filter.
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    install(SeccompFilter::new(rules, SeccompAction::Allow, missing, architecture()?)?)?;

    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    // Of two filters, the one that refuses decides.
    let allowed = ALLOWED.iter().chain(OLD_SYSTEM_CALLS).chain(&[libc::SYS_clone3]);
    rules.extend(allowed.map(|call| (*call, Vec::new())));
    // Threads, and no processes.
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![rule(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
    // Signals to itself.
    let own = u64::from(std::process::id());
    for call in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo] {
        rules.insert(call, vec![rule(0, SeccompCmpOp::Eq, own)?]);
    }
    // Limits of itself.
    rules.insert(libc::SYS_prlimit64, vec![rule(0, SeccompCmpOp::Eq, 0)?]);
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    install(SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture()?)?)
}

/// Compares the lower 32 bits of an argument.
fn rule(argument: u8, operation: SeccompCmpOp, value: u64) -> Result<SeccompRule, Box<dyn std::error::Error>> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

fn install(filter: SeccompFilter) -> Result<(), Box<dyn std::error::Error>> {
    let program: BpfProgram = filter.try_into()?;
    Ok(apply_filter(&program)?)
}

/// The system calls that a restricted process may make with any arguments. Landlock decides which files are opened.
const ALLOWED: &[i64] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    // Threads.
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_gettid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    // Signals of its own.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_signalfd4,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_times,
    libc::SYS_getrusage,
    // Itself and the system.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_umask,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_prctl,
    // Descriptors that it has: files, pipes, and the sockets of its controller.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // Files by name.
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
];
