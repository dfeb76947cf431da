//! Executors that are reached by a network: code and data are copied to them.

use std::ffi::OsStr;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use jittison::base::Name;
use jittison::executor::ExecutorProcess;
use jittison::session::{Alias, SymbolFlags};
use jittison::{ErrorKind, Jit, Program};
use jittison_test_tools::{PrivateDir, emulated};

use crate::{Remote, c, cpp};

pub const TOKEN: &str = "0123456789abcdef";

/// An executor that listens on the loopback interface. It is killed when this is dropped, if it has not ended.
pub struct Listening {
    /// Where it listens.
    pub address: SocketAddr,
    /// The executor.
    pub child: Child,
}

impl Listening {
    pub fn start() -> Listening {
        Listening::start_with(&[], Stdio::inherit())
    }

    /// With further arguments.
    pub fn start_with(arguments: &[&OsStr], stdout: Stdio) -> Listening {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut command = emulated(Path::new(env!("CARGO_BIN_EXE_jittison-executor")));
        command.args(["--listen", "stdin"]).args(arguments).env("JITTISON_EXECUTOR_TOKEN", TOKEN);
        command.stdin(OwnedFd::from(listener)).stdout(stdout);
        Listening { address, child: command.spawn().unwrap() }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It fails only if the process has ended.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

/// A session, and the executor behind it. The fields drop in this order.
struct Far {
    remote: Remote,
    listening: Listening,
}

impl Far {
    fn start() -> Far {
        let listening = Listening::start();
        let executor = ExecutorProcess::connect(listening.address, TOKEN).unwrap();
        assert_eq!(executor.id(), listening.child.id());
        let jit = Jit::builder().executor(&executor).library("libstdc++.so.6").build().unwrap();
        Far { remote: Remote { executor, jit }, listening }
    }
}

/// A function of the main dylib.
macro_rules! find {
    ($far:expr, $name:literal, fn($($argument:ty),*) $(-> $result:ty)?) => {
        // SAFETY: the function has this signature.
        unsafe { $far.remote.jit.lookup::<extern "C" fn($($argument),*) $(-> $result)?>($name) }.unwrap()
    };
}

#[test]
fn code_and_data_are_copied_and_removed() {
    let source = "static long zero[5000]; static long set[3] = {1, 2, 3}; const char *const text = \"text\"; \
                  long sum(long n) { zero[4000] += n; set[1]++; return zero[4000] + zero[1] + set[0] + set[1] + set[2]; } \
                  const char *get(void) { return text; } unsigned long strlen(const char *); long size(const char *s) { return strlen(s); }";
    let Some(object) = c(source) else { return };
    let far = Far::start();
    for round in 0..3 {
        // The memory of the second round is that of the first one, which code there has written.
        let tracker = far.remote.add(&format!("sum{round}.o"), &object);
        let sum = find!(far, "sum", fn(i64) -> i64);
        assert_eq!([sum.call(10), sum.call(10), sum.call(1)], [17, 28, 30], "{round}");
        assert_eq!(find!(far, "size", fn(*const u8) -> i64).call(find!(far, "get", fn() -> *const u8).call()), 4);
        drop(sum);
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(far.remote.jit.memory_statistics().live_bytes, 0);
    }
}

#[test]
fn a_session_that_ends_takes_nothing_from_another_one_of_the_same_executor() {
    let Some(object) = c("static long n = 40; long next(void) { return ++n; }") else { return };
    let far = Far::start();
    let ending = Jit::builder().executor(&far.remote.executor).build().unwrap();
    let tracker = ending.main_dylib().create_tracker().unwrap();
    ending.link_object(&tracker, "next.o", &object[..]).unwrap();
    // What the end of the session has changed in its window was not sent yet.
    drop((tracker, ending));
    let _tracker = far.remote.add("next.o", &object);
    let next = find!(far, "next", fn() -> i64);
    assert_eq!([next.try_call().unwrap(), next.try_call().unwrap()], [41, 42]);
}

#[test]
fn what_code_has_written_stays_when_other_code_is_linked_and_removed() {
    let module = |number: u32| {
        c(&format!("static long calls{number} = {number}; long next{number}(void) {{ return ++calls{number}; }}"))
    };
    let (Some(first), Some(second), Some(third)) = (module(100), module(200), module(300)) else { return };
    let far = Far::start();
    let _first = far.remote.add("first.o", &first);
    let next = find!(far, "next100", fn() -> i64);
    assert_eq!((next.call(), next.call()), (101, 102));
    let second = far.remote.add("second.o", &second);
    assert_eq!(find!(far, "next200", fn() -> i64).call(), 201);
    assert_eq!(next.call(), 103);
    drop(second.remove().unwrap());
    let _third = far.remote.add("third.o", &third);
    assert_eq!((find!(far, "next300", fn() -> i64).call(), next.call()), (301, 104));
}

#[test]
fn exceptions_thread_locals_and_initialisers_work_far_away() {
    let source = "#include <stdexcept>
        #include <thread>
        static thread_local long own = 3; struct Set { long n; Set() : n(4) {} ~Set() {} } set;
        extern \"C\" long lazy(long);
        extern \"C\" long test(long n) { try { if (n) throw std::runtime_error(\"x\"); } catch (const std::exception &) { return ++own + set.n; } return 0; }
        extern \"C\" long threaded(long n) { long r = 0; std::thread([&] { r = lazy(n) + own; }).join(); return r; }";
    let (Some(object), Some(body)) = (cpp(source), c("long body(long n) { return n * 2; }")) else { return };
    let far = Far::start();
    let jit = &far.remote.jit;
    let _body = far.remote.add("body.o", &body);
    let lazy = jit.main_dylib().create_tracker().unwrap();
    let alias = Alias { name: Name::new("lazy"), aliasee: Name::new("body"), flags: SymbolFlags::EXPORTED };
    jit.lazy_reexport(&lazy, jit.main_dylib(), &[alias]).unwrap();
    for _ in 0..2 {
        let tracker = far.remote.add("cpp.o", &object);
        let test = find!(far, "test", fn(i64) -> i64);
        assert_eq!([test.call(1), test.call(0), test.call(1)], [8, 0, 9]);
        // From a thread that the session does not know: the controller opens a lane for it.
        assert_eq!(find!(far, "threaded", fn(i64) -> i64).call(30), 63);
        drop(test);
        assert!(tracker.remove().unwrap().is_complete());
    }
}

#[test]
fn a_function_is_replaced_while_threads_call_it_far_away() {
    let version = |number: i64| c(&format!("long version(void) {{ return {number} * 1000 + {number}; }}"));
    let versions: Vec<_> = (1..=5).filter_map(version).collect();
    if versions.is_empty() {
        return;
    }
    let far = Far::start();
    let jit = &far.remote.jit;
    let kernels =
        jit.patchable_builder(jit.main_dylib(), &["version"]).history(0).max_versions(usize::MAX).build().unwrap();
    let commit = |object: &[u8]| {
        let mut patch = kernels.patch();
        patch.add_object("version.o", object).unwrap();
        // SAFETY: the object may run, and every version has this signature.
        drop(unsafe { patch.link() }.unwrap().commit().unwrap());
    };
    commit(&versions[0]);
    let version = find!(far, "version", fn() -> i64);
    let (is_over, calls) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let value = version.call();
                assert!((1..=5).contains(&(value / 1000)) && value / 1000 == value % 1000, "{value}");
                calls.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 1..60 {
            commit(&versions[round % 5]);
            assert_eq!(version.call(), (round as i64 % 5 + 1) * 1001, "after the commit");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(calls.load(Ordering::Relaxed) > 0);
}

extern "C" fn double(n: i64) -> i64 {
    2 * n
}

#[test]
fn functions_of_this_process_are_called_from_far_away() {
    let Some(object) = c("long twice(long); long run(long n) { return twice(n) + 1; }") else { return };
    let far = Far::start();
    let tracker = far.remote.add("run.o", &object);
    // SAFETY: the function takes any number.
    unsafe { far.remote.jit.define_function(&tracker, "twice", double as extern "C" fn(i64) -> i64) }.unwrap();
    assert_eq!(find!(far, "run", fn(i64) -> i64).call(20), 41);
}

#[test]
fn a_program_far_away_returns_its_status() {
    let source = "#include <stdlib.h>\n#include <string.h>\nint main(int argc, char **argv) { if (argc > 2) exit(strlen(argv[2])); return argc; }";
    let Some(object) = c(source) else { return };
    for (arguments, status) in [(&["one"][..], 2), (&["one", "seven77"], 7)] {
        let far = Far::start();
        let tracker = far.remote.add("main.o", &object);
        let program = Program::new(&far.remote.jit, &tracker).unwrap();
        let arguments = std::iter::once("program")
            .chain(arguments.iter().copied())
            .map(|text| std::ffi::CString::new(text).unwrap());
        // SAFETY: the program may run.
        let ran = unsafe { program.run("main", &arguments.collect::<Vec<_>>(), |_| {}) };
        assert_eq!(ran.unwrap(), status);
    }
}

#[test]
fn a_wrong_token_a_second_controller_and_nobody_are_errors() {
    let far = Far::start();
    let refused = |token| ExecutorProcess::connect(far.listening.address, token).unwrap_err().to_string();
    let error = refused("0123456789abcdeF");
    assert!(error.contains("no executor was reached") && error.contains("the token is another one"), "{error}");
    let error = refused(&TOKEN[..15]);
    assert!(error.contains("the token is another one"), "{error}");
    let error = refused(TOKEN);
    assert!(error.contains("has a controller"), "{error}");
    // The first controller is served as before.
    let Some(object) = c("long one(void) { return 1; }") else { return };
    let _tracker = far.remote.add("one.o", &object);
    assert_eq!(far.remote.call("one", &[]), 1);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = ExecutorProcess::connect(closed, TOKEN).unwrap_err().to_string();
    assert!(error.contains("no executor was reached") && error.contains(&closed.to_string()), "{error}");
}

/// How many threads a process has.
fn threads(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/task")).unwrap().count()
}

#[test]
fn strangers_take_few_threads_and_keep_no_controller_out() {
    let listening = Listening::start();
    let mut most = 0;
    let strangers: Vec<TcpStream> = (0..500)
        .map(|_| {
            most = most.max(threads(listening.child.id()));
            TcpStream::connect(listening.address).unwrap()
        })
        .collect();
    // A connection that the executor has accepted gets its greeting.
    let mut last = strangers.last().unwrap();
    last.read_exact(&mut [0; 4]).unwrap();
    most = most.max(threads(listening.child.id()));
    assert!((60..=70).contains(&most), "{most} threads");
    let executor = ExecutorProcess::connect(listening.address, TOKEN).unwrap();
    // Lanes are accepted, too, while strangers go on.
    let jit = Jit::builder().executor(&executor).build().unwrap();
    let Some(object) = c("long one(void) { return 1; }") else { return };
    let remote = Remote { executor, jit };
    let _tracker = remote.add("one.o", &object);
    let more: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(listening.address).unwrap()).collect();
    std::thread::scope(|scope| {
        (0..4).for_each(|_| drop(scope.spawn(|| assert_eq!(remote.call("one", &[]), 1))));
    });
    drop((strangers, more));
}

#[test]
fn an_executor_without_a_good_token_does_not_listen() {
    for (token, problem) in [(None, "`JITTISON_EXECUTOR_TOKEN` is not set"), (Some("short"), "a token of 5 bytes")] {
        let mut command = emulated(Path::new(env!("CARGO_BIN_EXE_jittison-executor")));
        command.args(["--listen", "127.0.0.1:0"]).env_remove("JITTISON_EXECUTOR_TOKEN").stderr(Stdio::piped());
        if let Some(token) = token {
            command.env("JITTISON_EXECUTOR_TOKEN", token);
        }
        let output = command.output().unwrap();
        assert!(!output.status.success());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn a_far_executor_that_is_killed_or_hangs_is_an_error_and_leaves_nothing() {
    let Some(object) = c("long one(void) { return 1; } void hang(void) { for (;;); }") else { return };
    let mut far = Far::start();
    let tracker = far.remote.add("one.o", &object);
    let one = find!(far, "one", fn() -> i64);
    assert_eq!(one.call(), 1);
    far.listening.child.kill().unwrap();
    let error = one.try_call().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ExecutorEnded { .. }), "{error}");
    assert!(error.to_string().contains("has closed its connections while it called the function"), "{error}");
    drop(one);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(far.remote.jit.memory_statistics().live_bytes, 0);

    let far = Far::start();
    let _tracker = far.remote.add("one.o", &object);
    far.remote.executor.set_time_to_answer(Some(std::time::Duration::from_millis(200)));
    let error = find!(far, "hang", fn()).try_call().unwrap_err();
    assert!(error.to_string().contains("did not answer in the time"), "{error}");
}

#[test]
fn a_crash_far_away_is_reported_as_one_here() {
    use std::os::unix::process::ExitStatusExt as _;
    let source = "#include <stdlib.h>\n#include <pthread.h>\n\
        __attribute__((noinline)) long deeper(void) { return *(volatile long *)16; } long crash(void) { return deeper() + 1; } \
        long null(void) { return ((long (*)(void))0)() + 1; } void give_up(void) { abort(); } \
        __attribute__((noinline)) long overflow(long n) { volatile long pad[99]; pad[0] = n; return overflow(n + 1) + pad[0]; } \
        static void *body(void *p) { crash(); return p; } \
        void threaded(void) { pthread_t t; pthread_create(&t, 0, body, 0); pthread_join(t, 0); }";
    let Some(object) = c(source) else { return };
    for (name, signal, place) in [
        ("crash", "11 (SIGSEGV)", " at the address 0x10 in deeper+0x0 in crash.o of dylib `main`, called by crash+"),
        ("null", "11 (SIGSEGV)", " at the address 0x0 in null+"),
        ("give_up", "6 (SIGABRT)", " in give_up+"),
        ("overflow", "11 (SIGSEGV)", " in overflow+"),
        ("threaded", "11 (SIGSEGV)", " at the address 0x10 in deeper+0x0 in crash.o of dylib `main`, called by crash+"),
    ] {
        let mut far = Far::start();
        let tracker = far.remote.add("crash.o", &object);
        let function = far.remote.jit.remote_function(far.remote.jit.main_dylib(), name).unwrap();
        let error = function.call(&[]).unwrap_err();
        let how = format!("was ended by signal {signal} while it called the function at {}", function.address());
        assert!(error.to_string().contains(&how) && error.to_string().contains(place), "{error}, {how}, {place}");
        let ErrorKind::ExecutorEnded { crash: Some(crash), .. } = error.kind() else { panic!("{error}") };
        assert!(crash.backtrace().len() > 2 && crash.located().len() == crash.backtrace().len(), "{crash:?}");
        // Later requests say the same, and nothing is left.
        assert_eq!(function.call(&[]).unwrap_err().to_string(), error.to_string());
        drop(function);
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(far.remote.jit.memory_statistics().live_bytes, 0);
        let status = far.listening.child.wait().unwrap();
        assert_eq!(status.signal(), Some(if name == "give_up" { libc::SIGABRT } else { libc::SIGSEGV }));
    }
}

#[test]
fn a_crash_of_a_program_far_away_is_reported() {
    let Some(object) = c("int main(int n, char **a) { return *(volatile int *)(8L * n); }") else { return };
    let far = Far::start();
    let tracker = far.remote.add("main.o", &object);
    let program = Program::new(&far.remote.jit, &tracker).unwrap();
    // SAFETY: the program may run.
    let error = unsafe { program.run("main", &[c"program".into()], |_| {}) }.unwrap_err().to_string();
    let how = "was ended by signal 11 (SIGSEGV) while it ran `main` at ";
    assert!(error.contains(how) && error.contains(" at the address 0x8 in main+"), "{error}");
}

#[test]
fn an_exit_far_away_names_its_status() {
    let Some(object) = c("#include <stdlib.h>\nvoid leave(long status) { exit(status); }") else { return };
    let mut far = Far::start();
    let _tracker = far.remote.add("leave.o", &object);
    let error = find!(far, "leave", fn(i64)).try_call(3).unwrap_err().to_string();
    assert!(error.contains("ended with status 3 while it called the function"), "{error}");
    assert_eq!(far.listening.child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_far_executor_ends_with_its_last_handle() {
    let Far { remote, mut listening } = Far::start();
    drop(remote);
    assert!(listening.child.wait().unwrap().success());
}

#[test]
fn the_command_line_runs_a_program_far_away() {
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nstatic void bye(void) { printf(\"bye %d\\n\", getpid()); fflush(stdout); } \
                  int main(int argc, char **argv) { atexit(bye); printf(\"%d %s\\n\", argc, argv[1]); return 5; }";
    let Some(object) = c(source) else { return };
    let directory = PrivateDir::new();
    let path = directory.write("program.o", object);
    let mut listening = Listening::start_with(&[], Stdio::piped());
    let run = |token: Option<&str>| {
        let mut command = emulated(Path::new(env!("CARGO_BIN_EXE_jittison")));
        command.args(["run", &format!("--executor=tcp:{}", listening.address)]).arg(&path).args(["--", "word"]);
        command.env_remove("JITTISON_EXECUTOR_TOKEN");
        token.map(|token| command.env("JITTISON_EXECUTOR_TOKEN", token));
        command.output().unwrap()
    };
    let refused = run(None);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("`JITTISON_EXECUTOR_TOKEN` is not set"), "{refused:?}");
    let ran = run(Some(TOKEN));
    assert_eq!(ran.status.code(), Some(5), "{ran:?}");
    // Its output is that of the command, also what the C library writes at the end of the process.
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), format!("2 word\nbye {}\n", listening.child.id()));
    let mut there = String::new();
    listening.child.stdout.take().unwrap().read_to_string(&mut there).unwrap();
    assert_eq!(there, "");
}
