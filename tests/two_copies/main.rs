//! Two copies of the crate in one process: the test's own, and one inside a shared library that is opened and closed.
//!
//! Each scene runs in a process of its own, whose output says what was called. The library is built by a child cargo,
//! from `library.rs`, with the dependencies that are there already.

mod debugger;
#[path = "../support/debuggers.rs"]
mod debuggers;
#[path = "../support/mod.rs"]
mod support;

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

use jittison::{Jit, ResourceTracker};

use crate::support::*;

const CHILD: &str = "JITTISON_TEST_COPY";

extern "C" fn say(event: i64) {
    // On a line of its own, whatever was printed before.
    let line = format!("\n{event}\n");
    // SAFETY: the line is that long.
    unsafe { libc::write(1, line.as_ptr().cast(), line.len()) };
}

/// Says when it comes and goes; throws, and catches what `helper` throws.
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

/// The library, built; `None` where that is not possible.
fn library() -> Option<PathBuf> {
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

/// The library, opened.
struct Copy(*mut c_void);

type Call = extern "C-unwind" fn(i64) -> i64;

impl Copy {
    fn open() -> Copy {
        let path = CString::new(std::env::var(CHILD).unwrap()).unwrap();
        // SAFETY: a library that was built for this.
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
        // SAFETY: as `library.rs` declares it, with the object's bytes.
        unsafe {
            let begin: Begin = std::mem::transmute(self.symbol("copy_begin"));
            begin(object.as_ptr(), object.len(), say as *const c_void, helper as *const c_void);
        }
    }

    fn find(&self, name: &str) -> Call {
        type Find = unsafe extern "C" fn(*const u8, usize) -> usize;
        // SAFETY: as `library.rs` declares it; the tests look for functions of this signature that are there.
        unsafe {
            let find: Find = std::mem::transmute(self.symbol("copy_find"));
            let found = find(name.as_ptr(), name.len());
            assert_ne!(found, 0);
            std::mem::transmute::<usize, Call>(found)
        }
    }

    fn end(&self) -> bool {
        // SAFETY: as `library.rs` declares it.
        unsafe { std::mem::transmute::<usize, extern "C" fn() -> bool>(self.symbol("copy_end"))() }
    }

    /// Whether the library is still there is the loader's and its own business.
    fn close(self) {
        // SAFETY: opened once, closed once.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// The test's own copy, with an object.
fn own(base: i64, helper: Call) -> (Jit, ResourceTracker) {
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "say", say as *const () as u64);
    define_absolute(jit.main_dylib(), "helper", helper as *const () as u64);
    let tracker = add(&jit, jit.main_dylib(), "own.o", &object(base).unwrap());
    (jit, tracker)
}

fn own_function(jit: &Jit, name: &str) -> Call {
    // SAFETY: nobody calls it after its tracker was removed.
    unsafe { function::<Call>(jit, name).as_ptr() }
}

extern "C-unwind" fn helps_nobody(_: i64) -> i64 {
    0
}

/// The library, built once; `None` in a scene's own process, and where nothing can be built.
fn built_library() -> Option<&'static Path> {
    if is_child() {
        return None;
    }
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    object(0)?;
    LIBRARY.get_or_init(library).as_deref()
}

/// What a scene said in a process of its own; `None` in that process, and where nothing can be built.
fn said_alone(test: &str) -> Option<Vec<i64>> {
    said_alone_with(test, &[])
}

/// As `said_alone`, in an environment with `variables`.
fn said_alone_with(test: &str, variables: &[(&str, &str)]) -> Option<Vec<i64>> {
    let library = built_library()?;
    let run = rerun(test).env(CHILD, library).envs(variables.iter().copied()).output().unwrap();
    let said = assert_passed(test, &run);
    Some(said.lines().filter_map(|line| line.parse().ok()).collect())
}

/// Whether the library is in memory.
fn is_loaded() -> bool {
    mappings().iter().any(|mapping| mapping.name.ends_with("libtwo_copies_library.so"))
}

/// Whether this is the scene's own process.
fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

static THROWS: OnceLock<usize> = OnceLock::new();

/// Calls the other copy's code.
extern "C-unwind" fn calls_the_other(n: i64) -> i64 {
    // SAFETY: set by the test, to a function of this signature.
    let throws = unsafe { std::mem::transmute::<usize, Call>(*THROWS.get().unwrap()) };
    throws(n)
}

#[test]
fn exceptions_are_thrown_and_caught_within_and_between_two_copies() {
    if let Some(said) = said_alone(this_test!()) {
        assert_eq!(said, [201, 101, -101, 109, -201, 209]);
    }
    if !is_child() {
        return;
    }
    let copy = Copy::open();
    let (jit, tracker) = own(200, calls_the_other);
    let own_throws = own_function(&jit, "throws");
    copy.begin(&object(100).unwrap(), own_throws);
    THROWS.set(copy.find("throws") as usize).unwrap();
    let (own_catches, its_catches) = (own_function(&jit, "catches"), copy.find("catches"));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    assert_eq!((own_catches(0), its_catches(0)), (101, 201));
                    assert_eq!(own_catches(1), 200 + i64::from(b't'), "thrown in the library's, caught in our own");
                    assert_eq!(its_catches(1), 100 + i64::from(b't'), "and the other way round");
                }
            });
        }
    });
    assert!(copy.end());
    assert!(tracker.remove().unwrap().is_complete());
    copy.close();
}

#[test]
fn a_library_that_is_closed_when_its_sessions_have_ended_leaves_nothing_that_is_called() {
    if let Some(said) = said_alone(this_test!()) {
        assert_eq!(said, [101, 105, -101, 109, 101, 105, -101, 109, 201, -201, 209]);
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
        // The library's code runs on threads of its own only: one that has ended when the library is closed, and one
        // that has used it, and ends then.
        let user = thread::spawn(move || {
            ended.wait();
            assert_eq!(Copy(address as *mut c_void).find("throws")(0), 101);
            ended.wait();
            is_closed.wait();
        });
        let main = thread::spawn(move || {
            let copy = Copy(address as *mut c_void);
            copy.begin(&object(100).unwrap(), helps_nobody);
            let touch = copy.find("touch");
            assert_eq!(thread::spawn(move || touch(1)).join().unwrap(), 101);
            used.wait();
            used.wait();
            assert!(copy.end());
        });
        main.join().unwrap();
        copy.close();
        assert!(is_loaded(), "what sessions leave behind is with the loader and with other threads");
        closed.wait();
        user.join().unwrap();
    }
    // No thread owes it anything any more: what stays does so for the ends of threads and of the process.
    Copy::open().close();
    assert!(is_loaded(), "what sessions leave behind is with the loader");
    // A fork asks everybody who wants to know of it; this copy works on.
    // SAFETY: the child ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends this process, running nothing.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made just now.
    assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0));
    let (jit, tracker) = own(200, helps_nobody);
    assert_eq!(own_function(&jit, "throws")(0), 201);
    assert!(tracker.remove().unwrap().is_complete());
}

#[test]
fn a_library_that_is_closed_with_a_live_session_runs_what_it_owes_at_the_process_s_end() {
    if let Some(said) = said_alone(this_test!()) {
        // Each copy its own, once; the one that the C library heard of last comes first.
        assert_eq!(said, [201, 101, 7, -101, 109, -201, 209]);
    }
    if !is_child() {
        return;
    }
    static KEPT: OnceLock<(Jit, ResourceTracker)> = OnceLock::new();
    let (jit, tracker) = own(200, helps_nobody);
    own_function(&jit, "throws")(0);
    assert!(KEPT.set((jit, tracker)).is_ok());
    let copy = Copy::open();
    let address = copy.0 as usize;
    // On a thread that ends, so that the C library has nothing of a thread's to keep the library for.
    let began = thread::spawn(move || {
        let copy = Copy(address as *mut c_void);
        copy.begin(&object(100).unwrap(), helps_nobody);
        (copy.find("throws"), copy.find("catches"))
    });
    let (throws, catches) = began.join().unwrap();
    copy.close();
    assert_eq!((throws(0), catches(0)), (101, 0), "live code goes on");
    say(7);
    let (started, stays) = (Arc::new(Barrier::new(2)), throws as usize);
    let start = started.clone();
    thread::spawn(move || {
        start.wait();
        loop {
            // SAFETY: found above, and never removed.
            assert_eq!(unsafe { std::mem::transmute::<usize, Call>(stays) }(0), 101);
        }
    });
    started.wait();
}
