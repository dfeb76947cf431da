//! Systems that refuse system calls, files or memory: each refusal leads to the next mapping mode or to an error that says
//! what to do. Also: processes and threads that end while code is live.

use std::ffi::CStr;

use jittison::Jit;
use jittison::memory::{
    DualMapper, ForkPolicy, MemoryMapper, Placement, PlainDualMapper, SingleMapper, SlabPool, SlabPoolOptions,
    SystemMapper, WindowLayout,
};

use crate::fork::Child;
use crate::mapping_modes::{assert_throws_and_catches, jit_of, throwing, writable_and_executable};
use crate::support::*;

/// Maps the smallest window and returns its description, or the text of the error.
fn describe(mapper: &dyn MemoryMapper) -> Result<&'static str, String> {
    let layout = WindowLayout::divide(32 << 20).unwrap();
    mapper
        .map_window(&layout, Placement::Anywhere)
        .map(|window| window.description())
        .map_err(|fault| fault.to_string())
}

/// Sets the soft limit of a resource.
pub fn limit(resource: libc::__rlimit_resource_t, bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: lowers a limit of this process, which is this test's own.
    assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0);
}

/// Bytes of address space that the process has mapped.
pub fn mapped_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().next().unwrap().parse::<u64>().unwrap() * page_size()
}

/// Throws and catches three times, and checks that nothing stays allocated and no page is writable and executable.
fn assert_works(jit: &Jit, objects: &[Vec<u8>; 2]) {
    for _ in 0..3 {
        assert_throws_and_catches(jit, objects);
    }
    assert_eq!(held(jit), (0, 0, 0));
    assert!(writable_and_executable().is_empty());
}

#[test]
fn with_little_address_space_the_window_is_smaller_or_its_creation_fails() {
    own_process!();
    let Some(objects) = throwing() else { return };
    // This session opens the C++ runtime before the limit is set.
    let first = jit_of(&DualMapper { fork_policy: ForkPolicy::Snapshot });
    assert_works(&first, &objects);
    let mut sizes = Vec::new();
    for spare in [5000u64, 3000, 1000, 300, 120, 10] {
        limit(libc::RLIMIT_AS, mapped_bytes() + (spare << 20));
        match SlabPool::with_mapper(SystemMapper::default(), SlabPoolOptions::default()) {
            Ok(pool) => {
                sizes.push(pool.window().1);
                let jit = Jit::builder().memory_manager(std::sync::Arc::new(pool)).build().unwrap();
                assert_works(&jit, &objects);
            }
            Err(error) => {
                assert_eq!(spare, 10, "{error}");
                assert_says(
                    &error,
                    &["every way of mapping code memory was refused", "RLIMIT_AS", "read-only", "single"],
                );
            }
        }
        limit(libc::RLIMIT_AS, libc::RLIM_INFINITY);
    }
    assert!(sizes.is_sorted_by(|before, after| before > after) && sizes.len() == 5, "{sizes:x?}");
    // Without the limit, new sessions work again.
    assert_works(&jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot }), &objects);
    assert_works(&first, &objects);
}

#[test]
fn a_file_size_limit_leads_to_a_single_mapping_and_not_to_a_signal() {
    own_process!();
    let Some(objects) = throwing() else { return };
    limit(libc::RLIMIT_FSIZE, 1 << 20);
    let description = describe(&SystemMapper { fork_policy: ForkPolicy::Snapshot }).unwrap();
    assert!(description.starts_with("mapped once"), "{description}");
    assert!(description.contains("RLIMIT_FSIZE allows files of 1048576 bytes only"), "{description}");
    assert_works(&jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot }), &objects);
    for refused in [
        describe(&DualMapper { fork_policy: ForkPolicy::Snapshot }),
        describe(&PlainDualMapper { fork_policy: ForkPolicy::Snapshot }),
    ] {
        assert!(refused.unwrap_err().contains("RLIMIT_FSIZE"));
    }
}

#[test]
fn without_any_file_code_runs_and_the_report_says_exceptions_cannot_cross_it() {
    own_process!();
    let Some(object) = c("long test(void) { return 7; }") else { return };
    limit(libc::RLIMIT_FSIZE, 0);
    let description = describe(&SystemMapper { fork_policy: ForkPolicy::Snapshot }).unwrap();
    assert!(
        description.contains("no exception can cross its code, because the loader did not open it"),
        "{description}"
    );
    assert!(description.contains("/dev/shm: RLIMIT_FSIZE allows files of 0 bytes only"), "{description}");
    let jit = jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot });
    let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
    assert_eq!(long(&jit, "test"), 7);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

/// One window without descriptors made the process map all later windows in a worse mode.
#[test]
fn a_shortage_of_descriptors_downgrades_only_the_windows_that_are_mapped_meanwhile() {
    own_process!();
    let Some(objects) = throwing() else { return };
    let mapper = SystemMapper { fork_policy: ForkPolicy::Snapshot };
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes to `limits` only.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits) }, 0);
    let set_descriptors = |count| {
        let changed = libc::rlimit { rlim_cur: count, ..limits };
        // SAFETY: changes a limit of this process, which is this test's own.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &changed) }, 0);
    };
    set_descriptors(0);
    let meanwhile = describe(&mapper).unwrap();
    set_descriptors(limits.rlim_cur);
    assert!(meanwhile.starts_with("mapped once") && meanwhile.contains("Too many open files"), "{meanwhile}");
    let later = describe(&mapper).unwrap();
    assert_eq!(later, "mapped twice, the running view from a read-only descriptor");
    assert_works(&jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot }), &objects);
}

/// Forbids this process to make writable pages executable later (`PR_SET_MDWE`, Linux 6.3). Returns false and skips the test if
/// the kernel does not support that.
fn deny_write_execute() -> bool {
    // SAFETY: reduces the rights of this process, which is this test's own.
    let denied =
        unsafe { libc::prctl(libc::PR_SET_MDWE, libc::PR_MDWE_REFUSE_EXEC_GAIN as libc::c_ulong, 0, 0, 0) } == 0;
    require_that(denied, "a kernel with PR_SET_MDWE")
}

#[test]
fn if_the_kernel_denies_write_then_execute_code_is_mapped_twice() {
    own_process!();
    let Some(objects) = throwing() else { return };
    if !deny_write_execute() {
        return;
    }
    assert_works(&jit_of(&DualMapper { fork_policy: ForkPolicy::Snapshot }), &objects);
    assert_works(&jit_of(&PlainDualMapper { fork_policy: ForkPolicy::Snapshot }), &objects);
    assert_works(&jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot }), &objects);
    let refusal = describe(&SingleMapper).unwrap_err();
    assert!(refusal.contains("protecting the code pool after writing was refused"), "{refusal}");
    assert!(refusal.contains("PR_SET_MDWE"), "{refusal}");
}

/// Installs a seccomp filter: `call` fails with `EPERM` in this thread and in the threads that it starts.
pub fn deny(call: libc::c_long) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        // The number of the system call is the first word of the filter's data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter { jt: 0, jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32) },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the filter. The filter reduces the rights of this process, which is this test's own.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
    }
}

#[test]
fn without_memfd_code_is_mapped_once_and_throws() {
    own_process!();
    let Some(objects) = throwing() else { return };
    deny(libc::SYS_memfd_create);
    let description = describe(&SystemMapper { fork_policy: ForkPolicy::Snapshot }).unwrap();
    assert!(
        description.starts_with("mapped once, pages alternate between writable and executable; the system refused"),
        "{description}"
    );
    assert!(description.contains("memfd_create of the window: Operation not permitted"), "{description}");
    assert!(!description.contains("no exception"), "{description}");
    assert_works(&jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot }), &objects);
}

#[test]
fn if_every_mapping_mode_is_refused_one_error_lists_causes_and_remedies() {
    own_process!();
    if !deny_write_execute() {
        return;
    }
    deny(libc::SYS_memfd_create);
    let Some(object) = c("int one(void) { return 1; }") else { return };
    let jit = Jit::new().expect("a session that links nothing has no code memory");
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let refused = [(); 2].map(|()| jit.link_object(&tracker, "one.o", object.clone()).expect_err("refused"));
    assert_eq!(refused[0].to_string(), refused[1].to_string(), "the session works on");
    assert_eq!(held(&jit), (0, 0, 0));
    assert_says(
        &refused[0],
        &[
            "every way of mapping code memory was refused",
            "a running view from a read-only descriptor: memfd_create of the window: Operation not permitted",
            "a running view from a writable descriptor: memfd_create",
            "a single mapping: protecting the code pool after writing: Permission denied",
            "Allow memfd_create",
            "vm.max_map_count",
            "the operation was undone",
        ],
    );
}

/// Runs `body` in a child process that sees empty, read-only directories in place of `hidden`.
fn without(hidden: &[&CStr], body: impl FnOnce()) {
    const NO_NAMESPACES: i32 = 77;
    // SAFETY: system calls in a process with one thread, which ends after `body`.
    let status = Child::start(|| unsafe {
        let user = libc::getuid();
        if libc::unshare(libc::CLONE_NEWNS) != 0 {
            if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) != 0 {
                libc::_exit(NO_NAMESPACES);
            }
            let _ = std::fs::write("/proc/self/setgroups", "deny");
            let _ = std::fs::write("/proc/self/uid_map", format!("0 {user} 1"));
        }
        let none = std::ptr::null();
        libc::mount(c"none".as_ptr(), c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast());
        for dir in hidden {
            let mounted = libc::mount(c"none".as_ptr(), dir.as_ptr(), c"tmpfs".as_ptr(), libc::MS_RDONLY, none.cast());
            if mounted != 0 {
                libc::_exit(NO_NAMESPACES);
            }
        }
        body();
    })
    .status();
    if require_that(status != NO_NAMESPACES, "the right to make mount namespaces") {
        assert_eq!(status, 0);
    }
}

#[test]
fn without_proc_code_is_mapped_twice_and_throws() {
    own_process!();
    let Some(objects) = throwing() else { return };
    without(&[c"/proc"], || {
        let description = describe(&SystemMapper { fork_policy: ForkPolicy::Snapshot }).unwrap();
        assert!(
            description.starts_with("mapped twice, the running view from a writable descriptor; the system refused")
        );
        assert!(description.contains("reopening the window read-only: No such file"), "{description}");
        assert!(!description.contains("no exception"), "{description}");
        let jit = jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot });
        assert_throws_and_catches(&jit, &objects);
        assert_eq!(held(&jit), (0, 0, 0));
        // A forked child gets its copy of the code without /proc, too.
        Child::start(|| assert_throws_and_catches(&jit, &objects)).succeeds();
    });
}

#[test]
fn without_proc_and_temporary_directories_code_runs_and_the_report_says_what_is_missing() {
    own_process!();
    let Some(object) = c("long test(void) { return 7; }") else { return };
    without(&[c"/proc", c"/dev/shm", c"/tmp", c"/var/tmp"], || {
        let description = describe(&SystemMapper { fork_policy: ForkPolicy::Snapshot }).unwrap();
        assert!(description.contains("no exception can cross its code"), "{description}");
        assert!(description.contains("/tmp: Read-only file system"), "{description}");
        for mapper in
            [&PlainDualMapper { fork_policy: ForkPolicy::Snapshot } as &'static dyn MemoryMapper, &SingleMapper]
        {
            let jit = jit_of(mapper);
            let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
            assert_eq!(long(&jit, "test"), 7);
            assert!(tracker.remove().unwrap().is_complete());
        }
    });
}

/// Maps single pages until the kernel refuses more mappings.
fn use_up_mappings() -> Vec<usize> {
    let mut pages = Vec::with_capacity(200_000);
    loop {
        // The kernel does not merge neighbours with different rights.
        let rights = if pages.len() % 2 == 0 { libc::PROT_READ } else { libc::PROT_NONE };
        // SAFETY: a new mapping, which nothing uses.
        let page = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page_size() as usize,
                rights,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return pages;
        }
        pages.push(page as usize);
    }
}

#[test]
fn with_few_mappings_left_sessions_continue_and_new_ones_work_or_fail_clearly() {
    own_process!();
    // An emulator cannot start a compiler without mappings.
    let (Some(objects), Some(one)) = (throwing(), c("int one(void) { return 1; }")) else { return };
    let max_map_count: usize = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
    if !require_that(max_map_count <= 300_000, "vm.max_map_count of at most 300000") {
        return;
    }
    let sessions = [
        jit_of(&DualMapper { fork_policy: ForkPolicy::Snapshot }),
        jit_of(&PlainDualMapper { fork_policy: ForkPolicy::Snapshot }),
    ];
    let single = jit_of(&SingleMapper);
    for jit in sessions.iter().chain([&single]) {
        assert_throws_and_catches(jit, &objects);
    }
    let mut pages = use_up_mappings();
    for jit in &sessions {
        for _ in 0..20 {
            assert_throws_and_catches(jit, &objects);
        }
        assert_eq!(held(jit), (0, 0, 0));
    }
    // With a single mapping each link needs mappings, and the error says so.
    let tracker = add(&single, single.main_dylib(), "throwing.o", &objects[0]);
    if let Err(error) = single.address_of(single.main_dylib(), "thrower") {
        assert_says(&error, &["writable", "Cannot allocate memory"]);
    }
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&single), (0, 0, 0));
    let link_one = |jit: &Jit| jit.link_object(&jit.main_dylib().create_tracker()?, "one.o", one.clone());
    let error = link_one(&Jit::new().unwrap()).expect_err("no mapping is left");
    assert_says(&error, &["was refused", "vm.max_map_count"]);
    // Unmap every other page, so that each call frees one mapping.
    for freed in [4, 8, 16, 32] {
        for page in pages.split_off(pages.len() - freed * 2).into_iter().step_by(2) {
            // SAFETY: mapped above.
            unsafe { libc::munmap(page as *mut _, page_size() as usize) };
        }
        let jit = Jit::builder().library("libstdc++.so.6").build().unwrap();
        match link_one(&jit) {
            Ok(()) => assert_throws_and_catches(&jit, &objects),
            Err(error) => {
                assert!(freed < 32, "{error}");
                assert_says(&error, &["was refused"]);
            }
        }
    }
    for jit in sessions.iter().chain([&single]) {
        assert_throws_and_catches(jit, &objects);
    }
}

#[test]
fn a_started_program_inherits_no_descriptor_of_code_memory() {
    own_process!();
    let Some(object) = c("long test(void) { return 7; }") else { return };
    for mapper in [
        &DualMapper { fork_policy: ForkPolicy::Snapshot } as &'static dyn MemoryMapper,
        &PlainDualMapper { fork_policy: ForkPolicy::Snapshot },
        &SingleMapper,
    ] {
        let jit = jit_of(mapper);
        let _tracker = add(&jit, jit.main_dylib(), "object.o", &object);
        assert_eq!(long(&jit, "test"), 7);
        let Some(mut ls) = require("ls") else { return };
        let list = ls.args(["-l", "/proc/self/fd"]).output().unwrap();
        let text = String::from_utf8_lossy(&list.stdout);
        assert!(list.status.success() && !text.contains("jittison"), "{text}");
    }
}

#[test]
fn a_process_with_live_code_can_exec_another_program() {
    own_process!();
    let Some(object) = c("long test(void) { return 7; }") else { return };
    let jit = jit_of(&SystemMapper { fork_policy: ForkPolicy::Snapshot });
    let _tracker = add(&jit, jit.main_dylib(), "object.o", &object);
    let test = function::<extern "C" fn() -> i64>(&jit, "test");
    let child = Child::start(|| {
        assert_eq!(test.call(), 7);
        let arguments = [c"sh".as_ptr(), c"-c".as_ptr(), c"exit 23".as_ptr(), std::ptr::null()];
        // SAFETY: C strings, and an array that ends with null. The call does not return if it succeeds.
        unsafe { libc::execv(c"/bin/sh".as_ptr(), arguments.as_ptr()) };
    });
    assert_eq!(child.status(), 23);
}

#[test]
fn code_outlives_the_thread_that_linked_it() {
    let Some(objects) = throwing() else { return };
    for mapper in [&DualMapper { fork_policy: ForkPolicy::Snapshot } as &'static dyn MemoryMapper, &SingleMapper] {
        let jit = jit_of(mapper);
        let linked = std::thread::scope(|scope| {
            let link = || {
                let trackers = objects.each_ref().map(|object| add(&jit, jit.main_dylib(), "throwing.o", object));
                (function::<extern "C" fn() -> i64>(&jit, "catcher"), trackers)
            };
            scope.spawn(link).join().unwrap()
        });
        let (catcher, trackers) = linked;
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..4).map(|_| scope.spawn(|| catcher.call())).collect();
            assert!(calls.into_iter().all(|call| call.join().unwrap() == 42));
        });
        drop(catcher);
        for tracker in trackers.iter().rev() {
            assert!(tracker.remove().unwrap().is_complete());
        }
        assert_eq!(held(&jit), (0, 0, 0));
    }
}

#[test]
fn a_process_exits_normally_while_linked_code_is_live_and_running() {
    let Some(object) = c("long test(volatile long *flag) { while (!*flag); return 7; }") else { return };
    let test = this_test!();
    if !is_rerun(test) {
        let run = rerun(test).output().unwrap();
        assert_eq!(run.status.code(), Some(41), "{run:?}");
        return;
    }
    for mapper in [
        &DualMapper { fork_policy: ForkPolicy::Snapshot } as &'static dyn MemoryMapper,
        &PlainDualMapper { fork_policy: ForkPolicy::Snapshot },
        &SingleMapper,
    ] {
        let jit = jit_of(mapper);
        let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
        let test = function::<extern "C" fn(*const i64) -> i64>(&jit, "test");
        std::thread::spawn(move || test.call(&0));
        std::mem::forget((jit, tracker));
    }
    std::thread::sleep(std::time::Duration::from_millis(30));
    std::process::exit(41);
}

#[test]
fn dlopen_and_dlsym_work_while_other_threads_open_and_close_windows() {
    // On each `dlopen` and `dlsym` the loader reads the dynamic section of every library. Each window is such a library.
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    let name = c"no such library, nor symbol";
                    // SAFETY: a C string. Nothing has that name, so nothing is opened.
                    unsafe {
                        assert!(libc::dlopen(name.as_ptr(), libc::RTLD_LAZY).is_null());
                        assert!(libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null());
                    }
                }
            });
        }
        let _end = SetOnDrop(&is_done);
        for _ in 0..rounds(2_000) {
            drop(SlabPool::new(SlabPoolOptions { window_size: 32 << 20, ..SlabPoolOptions::default() }).unwrap());
        }
    });
}
