//! Two copies of the crate in one process: the copy of the test, and one in a shared library that is opened and closed.
//!
//! Each test runs itself in a process of its own, and checks the numbers that the process prints. A child cargo builds the library
//! from `library.rs`, with the dependencies that are already present.

mod debugger;

use jittison_test_support as support;

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

use jittison::{Jit, ResourceTracker};

use crate::support::*;

const CHILD: &str = "JITTISON_TEST_COPY";

extern "C" fn say(event: i64) {
    // A line of its own, after any earlier output.
    let line = format!("\n{event}\n");
    // SAFETY: the pointer and the length are those of `line`.
    unsafe { libc::write(1, line.as_ptr().cast(), line.len()) };
}

/// An object that prints when it is initialised and finalised. It throws, and it catches what `helper` throws.
fn object(base: i64) -> Option<Vec<u8>> {
    cpp(&format!(
        "#include <stdexcept>
         extern \"C\" void say(long); extern \"C\" long helper(long);
         struct Noted {{ long n; explicit Noted(long n) : n({base} + n) {{ say({base} + n); }} ~Noted() {{ say(-n); }} }};
         static Noted one(1);
         struct Local {{ long n = {base}; ~Local() {{ say({base} + 5); }} }};
         static thread_local Local local;
         __attribute__((destructor)) static void gone() {{ say({base} + 9); }}
         extern \"C\" long throws(long n) {{ if (n) throw std::runtime_error(\"thrown\"); return one.n; }}
         extern \"C\" long catches(long n) {{
             try {{ return helper(n); }} catch (const std::exception &e) {{ return {base} + e.what()[0]; }}
         }}
         extern \"C\" long touch(long n) {{ return local.n += n; }}"
    ))
}

/// Builds the library.
fn build_library() -> Option<PathBuf> {
    // `<target directory>/<profile>/deps/<this program>`
    let program = std::env::current_exe().unwrap();
    let profile = program.ancestors().nth(2).unwrap();
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--offline", "--example", "two_copies_library", "--target-dir"]);
    command.arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        command.arg("--release");
    }
    if cfg!(feature = "cli") {
        command.arg("--all-features");
    }
    let run = command.output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    Some(profile.join("examples/libtwo_copies_library.so"))
}

/// The opened library.
struct Copy(*mut c_void);

type Call = extern "C-unwind" fn(i64) -> i64;

impl Copy {
    fn open() -> Copy {
        let path = CString::new(std::env::var(CHILD).unwrap()).unwrap();
        // SAFETY: the library was built for this test.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null());
        Copy(handle)
    }

    fn symbol(&self, name: &str) -> usize {
        let name = CString::new(name).unwrap();
        // SAFETY: the handle is open.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!found.is_null());
        found as usize
    }

    fn begin(&self, object: &[u8], helper: Call) {
        type Begin = unsafe extern "C" fn(*const u8, usize, *const c_void, *const c_void);
        // SAFETY: the signature in `library.rs`, with the bytes of the object.
        unsafe {
            let begin: Begin = std::mem::transmute(self.symbol("copy_begin"));
            begin(object.as_ptr(), object.len(), say as *const c_void, helper as *const c_void);
        }
    }

    fn find(&self, name: &str) -> Call {
        type Find = unsafe extern "C" fn(*const u8, usize) -> usize;
        // SAFETY: the signature in `library.rs`. The tests look up existing functions of this signature.
        unsafe {
            let find: Find = std::mem::transmute(self.symbol("copy_find"));
            let found = find(name.as_ptr(), name.len());
            assert_ne!(found, 0);
            std::mem::transmute::<usize, Call>(found)
        }
    }

    fn end(&self) -> bool {
        // SAFETY: the signature in `library.rs`.
        unsafe { std::mem::transmute::<usize, extern "C" fn() -> bool>(self.symbol("copy_end"))() }
    }

    /// Closes the handle. The library may stay loaded.
    fn close(self) {
        // SAFETY: the handle was opened once and is closed once.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// A session of the copy of the test, with an object.
fn own_session(base: i64, helper: Call) -> (Jit, ResourceTracker) {
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "say", say as *const () as u64);
    define_absolute(jit.main_dylib(), "helper", helper as *const () as u64);
    let tracker = add(&jit, jit.main_dylib(), "own.o", &object(base).unwrap());
    (jit, tracker)
}

fn own_function(jit: &Jit, name: &str) -> Call {
    // SAFETY: the function is not called after its tracker was removed.
    unsafe { function::<Call>(jit, name).as_ptr() }
}

extern "C-unwind" fn returns_zero(_: i64) -> i64 {
    0
}

/// The library, built once. `None` in the process of a rerun, and if there is no compiler.
fn built_library() -> Option<&'static Path> {
    if is_child() {
        return None;
    }
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    object(0)?;
    LIBRARY.get_or_init(build_library).as_deref()
}

/// The numbers that a test prints in its own process. `None` in that process, and if there is no compiler.
fn printed_by_rerun(test: &str) -> Option<Vec<i64>> {
    printed_by_rerun_with(test, &[])
}

/// Like `printed_by_rerun`, in an environment with `variables`.
fn printed_by_rerun_with(test: &str, variables: &[(&str, &str)]) -> Option<Vec<i64>> {
    let library = built_library()?;
    let run = rerun(test).env(CHILD, library).envs(variables.iter().copied()).output().unwrap();
    let output = assert_passed(test, &run);
    Some(output.lines().filter_map(|line| line.parse().ok()).collect())
}

/// Whether the library is loaded.
fn is_loaded() -> bool {
    mappings().iter().any(|mapping| mapping.name.ends_with("libtwo_copies_library.so"))
}

/// Whether this is the process of a rerun.
fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

static THROWS: OnceLock<usize> = OnceLock::new();

/// Calls code of the other copy.
extern "C-unwind" fn calls_the_other(n: i64) -> i64 {
    // SAFETY: the test stores a function of this signature.
    let throws = unsafe { std::mem::transmute::<usize, Call>(*THROWS.get().unwrap()) };
    throws(n)
}

#[test]
fn exceptions_are_thrown_and_caught_within_and_between_two_copies() {
    if let Some(printed) = printed_by_rerun(this_test!()) {
        assert_eq!(printed, [201, 101, -101, 109, -201, 209]);
    }
    if !is_child() {
        return;
    }
    let copy = Copy::open();
    let (jit, tracker) = own_session(200, calls_the_other);
    let own_throws = own_function(&jit, "throws");
    copy.begin(&object(100).unwrap(), own_throws);
    THROWS.set(copy.find("throws") as usize).unwrap();
    let (own_catches, library_catches) = (own_function(&jit, "catches"), copy.find("catches"));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    assert_eq!((own_catches(0), library_catches(0)), (101, 201));
                    assert_eq!(
                        own_catches(1),
                        200 + i64::from(b't'),
                        "thrown by the library's code, caught by our own"
                    );
                    assert_eq!(
                        library_catches(1),
                        100 + i64::from(b't'),
                        "thrown by our own code, caught by the library's"
                    );
                }
            });
        }
    });
    assert!(copy.end());
    assert!(tracker.remove().unwrap().is_complete());
    copy.close();
}

#[test]
fn closing_a_library_after_its_sessions_ended_causes_no_later_calls() {
    if let Some(printed) = printed_by_rerun(this_test!()) {
        assert_eq!(printed, [101, 105, -101, 109, 101, 105, -101, 109, 201, -201, 209]);
    }
    if !is_child() {
        return;
    }
    for _ in 0..2 {
        let copy = Copy::open();
        let closed = Arc::new(Barrier::new(2));
        let (used, is_closed) = (Arc::new(Barrier::new(2)), closed.clone());
        let ended = used.clone();
        let address = copy.0 as usize;
        // Only two other threads run code of the library. One has ended when the library is closed. The other has used it and
        // ends after that.
        let user = thread::spawn(move || {
            ended.wait();
            assert_eq!(Copy(address as *mut c_void).find("throws")(0), 101);
            ended.wait();
            is_closed.wait();
        });
        let main = thread::spawn(move || {
            let copy = Copy(address as *mut c_void);
            copy.begin(&object(100).unwrap(), returns_zero);
            let touch = copy.find("touch");
            assert_eq!(thread::spawn(move || touch(1)).join().unwrap(), 101);
            used.wait();
            used.wait();
            assert!(copy.end());
        });
        main.join().unwrap();
        copy.close();
        assert!(is_loaded(), "the loader and other threads still refer to the library");
        closed.wait();
        user.join().unwrap();
    }
    // No thread has pending destructors. What remains serves the ends of threads and of the process.
    Copy::open().close();
    assert!(is_loaded(), "the loader still refers to the library");
    // A fork runs all registered handlers, and this copy still works.
    // SAFETY: the child ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends this process without handlers.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: waits for the child from above.
    assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0));
    let (jit, tracker) = own_session(200, returns_zero);
    assert_eq!(own_function(&jit, "throws")(0), 201);
    assert!(tracker.remove().unwrap().is_complete());
}

#[test]
fn a_library_closed_with_a_live_session_runs_its_handlers_at_process_end() {
    if let Some(printed) = printed_by_rerun(this_test!()) {
        // Each copy runs its own handlers once. The copy that registered last comes first.
        assert_eq!(printed, [201, 101, 7, -101, 109, -201, 209]);
    }
    if !is_child() {
        return;
    }
    static LIVE: OnceLock<(Jit, ResourceTracker)> = OnceLock::new();
    let (jit, tracker) = own_session(200, returns_zero);
    own_function(&jit, "throws")(0);
    assert!(LIVE.set((jit, tracker)).is_ok());
    let copy = Copy::open();
    let address = copy.0 as usize;
    // On a thread that ends, so that no thread-local destructor keeps the library loaded.
    let loaded = thread::spawn(move || {
        let copy = Copy(address as *mut c_void);
        copy.begin(&object(100).unwrap(), returns_zero);
        (copy.find("throws"), copy.find("catches"))
    });
    let (throws, catches) = loaded.join().unwrap();
    copy.close();
    assert_eq!((throws(0), catches(0)), (101, 0), "live code still works");
    say(7);
    let (started, address) = (Arc::new(Barrier::new(2)), throws as usize);
    let start = started.clone();
    thread::spawn(move || {
        start.wait();
        loop {
            // SAFETY: the function was found above and is never removed.
            assert_eq!(unsafe { std::mem::transmute::<usize, Call>(address) }(0), 101);
        }
    });
    started.wait();
}
