//! What happens when an executor crashes, is killed, or is none.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jittison::base::Name;
use jittison::executor::ExecutorProcess;
use jittison::session::{Alias, ReexportsGenerator, SymbolFlags};
use jittison::{ErrorKind, Jit};

use jittison_test_tools::{is_rerun, require, rerun, rounds, this_test};

use crate::{Remote, c, cpp, start, tools};

/// Sends a signal to an executor.
fn signal(remote: &Remote, signal: i32) {
    // SAFETY: it takes no pointer, and the process is a child of this one that was not waited for.
    assert_eq!(unsafe { libc::kill(remote.executor.id() as i32, signal) }, 0);
}

const CRASHING: &str = "__attribute__((noinline)) long deeper(void) { return *(volatile long *)16; } \
    long crash(void) { return deeper() + 1; } long one(void) { return 1; }";

#[test]
fn a_crash_is_an_error_of_the_call_and_the_session_can_be_cleared() {
    let Some(object) = c(CRASHING) else { return };
    let remote = Remote::start();
    let tracker = remote.add("crash.o", &object);
    let one = remote.jit.remote_function(remote.jit.main_dylib(), "one").unwrap();
    let crash = remote.jit.remote_function(remote.jit.main_dylib(), "crash").unwrap();
    assert_eq!(one.call(&[]).unwrap(), 1);
    let error = crash.call(&[]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ExecutorEnded { .. }), "{error}");
    let how = format!(
        "was ended by signal 11 (SIGSEGV) while it called the function at {} at the address 0x10 in deeper+0x0 in crash.o of \
         dylib `main`, called by crash+",
        crash.address()
    );
    assert!(error.to_string().contains(&how), "{error}, {how}");
    let ErrorKind::ExecutorEnded { crash: Some(found), .. } = error.kind() else { panic!("{error}") };
    assert_eq!(found.address().value(), 16);
    assert_eq!(found.located().len(), found.backtrace().len());
    assert!(found.located().iter().any(Option::is_none), "functions of the executor itself have no name here");
    // Later calls and lookups say the same.
    assert_eq!(one.call(&[]).unwrap_err().to_string(), error.to_string());
    let missing = remote.jit.remote_function(remote.jit.main_dylib(), "missing").unwrap_err();
    assert!(missing.to_string().contains("was ended by signal 11 (SIGSEGV)"), "{missing}");
    drop((one, crash));
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
    // Another executor goes on.
    let other = Remote::start();
    let _tracker = other.add("crash.o", &object);
    assert_eq!(other.call("one", &[]), 1);
}

#[test]
fn a_thread_that_runs_linked_code_has_a_signal_stack_for_an_unwinder() {
    let source =
        "#include <signal.h>\nlong size(void) { stack_t own; return sigaltstack(0, &own) ? -1 : (long)own.ss_size; }";
    let Some(object) = c(source) else { return };
    let remote = Remote::start();
    let _tracker = remote.add("size.o", &object);
    // The kernel takes 11 KiB of it at most, with the registers of today's processors.
    assert!(remote.call("size", &[]) >= 64 << 10);
}

#[test]
fn an_exception_that_nobody_catches_and_an_illegal_instruction_are_located() {
    let Some(object) =
        cpp("extern \"C\" long thrower() { throw 1; } extern \"C\" long illegal() { __builtin_trap(); }")
    else {
        return;
    };
    for (name, signal, place) in [("thrower", "SIGABRT", "thrower+"), ("illegal", "SIGILL", "illegal+")] {
        let remote = Remote::start();
        let _tracker = remote.add("crashes.o", &object);
        let function = remote.jit.remote_function(remote.jit.main_dylib(), name).unwrap();
        let error = function.call(&[]).unwrap_err().to_string();
        assert!(error.contains(signal) && error.contains(place), "{error}");
    }
}

#[test]
fn a_call_of_an_address_without_code_names_its_callers() {
    // A null pointer, an address that nothing is mapped at, data, and a call that is the last instruction of its function.
    let source = "typedef long function(void); static long data[2] = {1, 2}; \
        __attribute__((noinline)) long through(function *f, long n) { volatile long pad[9]; pad[n] = n; return f() + pad[n]; } \
        long null(void) { return through(0, 1) + 1; } long low(void) { return through((function *)64, 2) + 1; } \
        long no_code(void) { return through((function *)data, 3) + 1; } \
        __attribute__((noinline)) void last(void (*f)(void) __attribute__((noreturn))) { f(); } \
        long never(void) { last((void *)64); return 1; }";
    let Some(object) = c(source) else { return };
    for (name, inner, address) in [
        ("null", "through+", Some(0)),
        ("low", "through+", Some(64)),
        ("no_code", "through+", None),
        ("never", "last+", Some(64)),
    ] {
        let remote = Remote::start();
        let _tracker = remote.add("calls.o", &object);
        let error = remote.jit.remote_function(remote.jit.main_dylib(), name).unwrap().call(&[]).unwrap_err();
        let ErrorKind::ExecutorEnded { crash: Some(crash), .. } = error.kind() else { panic!("{error}") };
        assert!(address.is_none_or(|address| crash.address().value() == address), "{error}");
        assert_eq!(crash.backtrace()[0], crash.address(), "the instruction that is not there");
        let text = error.to_string();
        let place = format!(" at the address {} in {inner}", crash.address());
        assert!(text.contains("signal 11 (SIGSEGV)") && text.contains(&place), "{text}");
        assert!(
            text.contains("in calls.o of dylib `main`, called by ") && text.contains(&format!("called by {name}+")),
            "{text}"
        );
        assert!(crash.backtrace().len() > 4, "the functions of the executor follow: {crash:?}");
    }
}

#[test]
fn a_wild_jump_with_a_wild_stack_is_an_error_without_callers() {
    // The stack pointer has no memory, and then some without a return address.
    let source = "static long words[64]; \
        long lost(void) { __asm__ volatile (\"mov $4096, %%rsp; jmp *%0\" :: \"r\"(64L)); return 1; } \
        long empty(void) { __asm__ volatile (\"mov %0, %%rsp; jmp *%1\" :: \"r\"(words + 32), \"r\"(64L)); return 1; }";
    let Some(object) = c(source) else { return };
    for name in ["lost", "empty"] {
        let remote = Remote::start();
        let _tracker = remote.add("calls.o", &object);
        let error = remote.jit.remote_function(remote.jit.main_dylib(), name).unwrap().call(&[]).unwrap_err();
        assert!(error.to_string().contains("(SIGSEGV)"), "{error}");
        let ErrorKind::ExecutorEnded { crash: Some(crash), .. } = error.kind() else { panic!("{error}") };
        assert_eq!(crash.backtrace(), [crash.address()], "{error}");
    }
}

#[test]
fn threads_that_wait_for_an_executor_learn_that_it_was_killed() {
    let Some(object) = c("int pause(void); long wait(void) { for (;;) pause(); }") else { return };
    let remote = Remote::start();
    let _tracker = remote.add("wait.o", &object);
    let wait = remote.jit.remote_function(remote.jit.main_dylib(), "wait").unwrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| wait.call(&[]).unwrap_err().to_string())).collect();
        std::thread::sleep(Duration::from_millis(50));
        signal(&remote, libc::SIGKILL);
        for thread in waiting {
            let error = thread.join().unwrap();
            assert!(error.contains("was ended by signal 9 (SIGKILL)"), "{error}");
        }
    });
}

#[test]
fn a_stopped_executor_can_be_killed_while_a_thread_waits_for_it() {
    let Some(object) = c("long one(void) { return 1; }") else { return };
    let remote = Remote::start();
    let _tracker = remote.add("one.o", &object);
    let one = remote.jit.remote_function(remote.jit.main_dylib(), "one").unwrap();
    signal(&remote, libc::SIGSTOP);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| one.call(&[]).unwrap_err().to_string());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        remote.executor.kill().unwrap();
        let error = waiting.join().unwrap();
        assert!(error.contains("was ended by signal 9 (SIGKILL)"), "{error}");
    });
    assert!(remote.executor.kill().is_err());
}

#[test]
fn an_executor_that_does_not_answer_in_time_is_killed_and_the_request_fails() {
    let Some(object) = c("int pause(void); long wait(void) { for (;;) pause(); } long one(void) { return 1; }") else {
        return;
    };
    // Code that hangs, and a process that does not run. The latter neither opens a lane nor searches a symbol.
    for (is_stopped, name) in [(false, "wait"), (true, "one")] {
        let remote = Remote::start();
        let tracker = remote.add("wait.o", &object);
        let function = remote.jit.remote_function(remote.jit.main_dylib(), name).unwrap();
        if is_stopped {
            signal(&remote, libc::SIGSTOP);
        }
        remote.executor.set_time_to_answer(Some(Duration::from_millis(20)));
        let error = function.call(&[]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::ExecutorEnded { .. }), "{error}");
        let how = format!(
            "was ended by signal 9 (SIGKILL) while it called the function at {} and did not answer in the time of \
             `ExecutorProcess::set_time_to_answer`",
            function.address()
        );
        assert!(error.to_string().contains(&how), "{error}, {how}");
        drop(function);
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
    }
}

#[test]
fn a_stopped_executor_that_is_asked_for_a_new_thread_is_killed_in_time() {
    let remote = Remote::start();
    signal(&remote, libc::SIGSTOP);
    remote.executor.set_time_to_answer(Some(Duration::from_millis(20)));
    let error = std::thread::scope(|scope| {
        let other = scope.spawn(|| remote.jit.remote_function(remote.jit.process_dylib(), "getpid").unwrap_err());
        other.join().unwrap()
    });
    assert!(error.to_string().contains("did not answer in the time of"), "{error}");
}

#[test]
fn only_the_time_for_which_a_thread_waits_counts_against_the_limit() {
    let source = "int usleep(unsigned); long lazy(void); long one(void) { return 1; } long run(void) { return lazy() + 1; } \
        long slow(void) { usleep(2200000); return 2; }";
    let (Some(object), Some(callee)) =
        (c(source), c("int usleep(unsigned); long body(void) { usleep(100000); return 3; }"))
    else {
        return;
    };
    let remote = Remote::start();
    let main = remote.jit.main_dylib();
    let _tracker = remote.add("calls.o", &object);
    let limit = Duration::from_secs(2);
    remote.executor.set_time_to_answer(Some(limit));
    let other = remote.jit.create_dylib("other").unwrap();
    let callee_tracker = other.create_tracker().unwrap();
    remote.jit.add_object(&callee_tracker, "callee.o", &callee[..]).unwrap();
    let (waits, slow) = (Arc::new(AtomicUsize::new(0)), limit + Duration::from_millis(100));
    let generate = {
        let waits = waits.clone();
        move |name: &str| {
            if name == "body" && waits.fetch_add(1, Ordering::Relaxed) == 0 {
                std::thread::sleep(slow);
            }
            name == "body"
        }
    };
    main.add_generator(Arc::new(ReexportsGenerator::new(&other, generate)));
    let lazy = main.create_tracker().unwrap();
    let alias = Alias { name: Name::new("lazy"), aliasee: Name::new("body"), flags: SymbolFlags::EXPORTED };
    remote.jit.lazy_reexport(&lazy, main, &[alias]).unwrap();
    assert_eq!(remote.call("one", &[]), 1);
    std::thread::sleep(limit + Duration::from_millis(100));
    assert_eq!(remote.call("one", &[]), 1, "nobody waited meanwhile");
    let run = remote.jit.remote_function(main, "run").unwrap();
    assert_eq!(waits.load(Ordering::Relaxed), 0, "the first call searches");
    // The executor asks for the address of the lazy function, and this process takes its time.
    assert_eq!(run.call(&[]).unwrap(), 4);
    assert_eq!(waits.load(Ordering::Relaxed), 1);
    // Without a limit, a call may take longer than the one before.
    remote.executor.set_time_to_answer(None);
    assert_eq!(remote.call("slow", &[]), 2);
}

#[test]
fn a_forked_child_of_the_controller_sends_nothing_and_links_nothing() {
    jittison_test_tools::own_process!();
    let Some(object) = c("long one(void) { return 1; }") else { return };
    let remote = Remote::start();
    let _tracker = remote.add("one.o", &object);
    let one = remote.jit.remote_function(remote.jit.main_dylib(), "one").unwrap();
    assert_eq!(one.call(&[]).unwrap(), 1);
    // SAFETY: the child only uses what this test made, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = one.call(&[]).is_err_and(|error| error.to_string().contains("belongs to the parent"));
        let dylib = remote.jit.create_dylib("child").unwrap();
        let tracker = dylib.create_tracker().unwrap();
        remote.jit.add_object(&tracker, "one.o", &object[..]).unwrap();
        let unlinked = remote.jit.address_of(&dylib, "one").is_err();
        drop((one, dylib, tracker));
        drop(remote);
        // SAFETY: it has no precondition.
        unsafe { libc::_exit(if refused && unlinked { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(one.call(&[]).unwrap(), 1, "the executor still serves its controller");
}

fn is_no_executor(program: &str, reason: &str) {
    let error = ExecutorProcess::start(program).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::File { .. }), "{error}");
    assert!(error.to_string().contains(program) && error.to_string().contains(reason), "{error}");
}

#[test]
fn a_program_that_is_missing_is_no_executor() {
    is_no_executor("/no/such/program", "cannot be started");
}

#[test]
fn a_program_that_does_not_serve_is_no_executor() {
    is_no_executor("true", "closed the connection");
    let Some(mut echo) = require("sh") else { return };
    echo.args(["-c", "cat <&0 >&0"]);
    let error = ExecutorProcess::start_command(echo).unwrap_err();
    assert!(error.to_string().contains("does not serve"), "{error}");
}

#[test]
fn an_executor_that_nobody_started_says_how_it_is_started() {
    let output = Command::new(env!("CARGO_BIN_EXE_jittison-executor")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("the standard input is no socket") && text.contains("jittison run --executor"), "{text}");
}

#[test]
fn an_executor_ends_with_its_last_handle_and_by_request() {
    let executor = start();
    let process = executor.id();
    let exists = || std::path::Path::new(&format!("/proc/{process}")).exists();
    let jit = Jit::builder().executor(&executor).build().unwrap();
    drop(executor);
    assert!(exists());
    drop(jit);
    assert!(!exists());

    let executor = start();
    executor.end().unwrap();
    let error = executor.end().unwrap_err();
    assert!(error.to_string().contains("ended with status 0"), "{error}");
    let error = Jit::builder().executor(&executor).build().unwrap_err();
    assert!(error.to_string().contains("ended with status 0"), "{error}");
}

#[test]
fn an_executor_ends_when_its_controller_is_killed() {
    // The controller is `jittison run`, whose program prints the process id and waits.
    let Some(object) = c(
        "#include <stdio.h>\n#include <unistd.h>\nint main(void) { printf(\"%d\\n\", getpid()); fflush(stdout); for (;;) pause(); }",
    ) else {
        return;
    };
    use std::io::BufRead as _;
    let directory = tools::PrivateDir::new();
    let path = directory.write("program.o", object);
    let mut tool = Command::new(env!("CARGO_BIN_EXE_jittison"));
    tool.arg("run").arg(format!("--executor={}", env!("CARGO_BIN_EXE_jittison-executor"))).arg(path);
    let mut controller = tool.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(controller.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let process: u32 = line.trim().parse().unwrap();
    assert_ne!(process, controller.id());
    controller.kill().unwrap();
    controller.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while std::path::Path::new(&format!("/proc/{process}")).exists() {
        assert!(Instant::now() < end, "the executor still runs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_executor_that_answers_nonsense_is_an_error_and_never_a_panic_or_a_wait() {
    let test = this_test!();
    if is_rerun(test) {
        return answer_nonsense();
    }
    for seed in 0..rounds(200) {
        let mut command = rerun(test);
        command.env("SEED", seed.to_string()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        // A random answer to the greeting is a set of facts now and then. Then the next answer does not fit.
        let built =
            ExecutorProcess::start_command(command).and_then(|executor| Jit::builder().executor(&executor).build());
        assert!(built.is_err());
    }
}

/// Greets as an executor, then answers each message with a frame of random bytes.
fn answer_nonsense() {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut socket = std::os::unix::net::UnixStream::from(socket);
    let mut random = fastrand::Rng::with_seed(std::env::var("SEED").unwrap().parse().unwrap());
    let mut is_first = true;
    let mut length = [0; 4];
    while socket.read_exact(&mut length).is_ok() {
        let mut frame = vec![0; u32::from_le_bytes(length) as usize];
        socket.read_exact(&mut frame).unwrap();
        let mut answers = Vec::new();
        if std::mem::replace(&mut is_first, false) {
            answers.push(String::from_utf8(frame).unwrap().replace("controller", "executor").into_bytes());
        }
        // `Answer` of `ToController`, and then any answer, or that with facts.
        let kind = if random.bool() { 2 } else { random.u8(..20) };
        answers.push([vec![1, kind], (0..random.usize(..120)).map(|_| random.u8(..=127)).collect()].concat());
        for answer in answers {
            let sent = socket.write_all(&[&(answer.len() as u32).to_le_bytes(), &answer[..]].concat());
            if sent.is_err() {
                return;
            }
        }
    }
}

#[test]
fn code_that_a_thread_of_a_killed_executor_held_can_be_removed() {
    let Some(object) =
        cpp("struct Local { long value = 1; ~Local() { value = 0; } }; static thread_local Local local; \
         extern \"C\" long touch() { return local.value++; }")
    else {
        return;
    };
    let remote = Remote::start();
    let tracker = remote.add("local.o", &object);
    assert_eq!(remote.call("touch", &[]), 1);
    remote.executor.kill().unwrap();
    let removal = tracker.remove().unwrap();
    assert!(removal.is_complete(), "{:?}", removal.obstacles());
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
}

#[test]
fn a_trap_and_a_signal_that_a_process_sends_itself_end_it_too() {
    let Some(object) = c("#include <signal.h>\nlong trap(void) { __asm__ volatile (\"int3\"); return 5; } \
         long raised(void) { raise(SIGFPE); return 5; }")
    else {
        return;
    };
    for (name, signal) in [("trap", "SIGTRAP"), ("raised", "SIGFPE")] {
        let remote = Remote::start();
        let _tracker = remote.add("traps.o", &object);
        let error = remote.jit.remote_function(remote.jit.main_dylib(), name).unwrap().call(&[]).unwrap_err();
        assert!(error.to_string().contains(signal) && error.to_string().contains(&format!("{name}+")), "{error}");
    }
}

#[test]
fn a_crash_of_an_initialiser_or_a_finaliser_is_an_error_of_the_call_that_ran_it() {
    let (Some(initialiser), Some(finaliser)) = (
        c(
            "__attribute__((constructor)) static void begin(void) { *(volatile int *)8 = 1; } long one(void) { return 1; }",
        ),
        c("__attribute__((destructor)) static void end(void) { *(volatile int *)8 = 1; } long one(void) { return 1; }"),
    ) else {
        return;
    };
    let assert_crash = |error: jittison::Error| {
        let how = "was ended by signal 11 (SIGSEGV) while it ran the initialiser or finaliser at ";
        assert!(error.to_string().contains(how) && error.to_string().contains("code of crash.o+"), "{error}");
    };
    let remote = Remote::start();
    let _tracker = remote.add("crash.o", &initialiser);
    assert_crash(remote.jit.remote_function(remote.jit.main_dylib(), "one").unwrap_err());

    let remote = Remote::start();
    let _tracker = remote.add("crash.o", &initialiser);
    // SAFETY: the object may run.
    assert_crash(unsafe { remote.jit.initialize(remote.jit.main_dylib()) }.unwrap_err());

    let remote = Remote::start();
    let _tracker = remote.add("crash.o", &finaliser);
    // SAFETY: the object may run, and nothing uses it afterwards.
    unsafe { remote.jit.initialize(remote.jit.main_dylib()) }.unwrap();
    // SAFETY: as above.
    assert_crash(unsafe { remote.jit.deinitialize(remote.jit.main_dylib()) }.unwrap_err());
}

#[test]
fn a_version_whose_initialiser_ends_the_executor_is_refused_and_removed() {
    let source = "__attribute__((constructor)) static void begin(void) { *(volatile long *)8 = 1; } long one(void) { return 1; }";
    let (Some(good), Some(bad)) = (c("long one(void) { return 1; }"), c(source)) else { return };
    let remote = Remote::start();
    let patchable = remote.jit.patchable_builder(remote.jit.main_dylib(), &["one"]).history(0).build().unwrap();
    let link = |object: &[u8]| {
        let mut patch = patchable.patch();
        patch.add_object("one.o", object).unwrap();
        // SAFETY: the code may run, and every version has this signature.
        unsafe { patch.link() }
    };
    drop(link(&good).unwrap().commit().unwrap());
    let before = remote.jit.memory_statistics().live_bytes;
    let error = link(&bad).unwrap_err();
    assert!(matches!(error.root_cause().kind(), ErrorKind::ExecutorEnded { .. }), "{error}");
    assert!(error.root_cause().to_string().contains("(SIGSEGV)"), "{error}");
    assert_eq!(remote.jit.memory_statistics().live_bytes, before);
}

#[test]
fn a_lazy_function_that_cannot_be_linked_ends_the_executor_and_not_its_controller() {
    let Some(object) = c("long lazy(void); long run(void) { return lazy(); }") else { return };
    let remote = Remote::start();
    let main = remote.jit.main_dylib();
    let tracker = remote.add("run.o", &object);
    let alias = jittison::session::Alias {
        name: jittison::base::Name::new("lazy"),
        aliasee: jittison::base::Name::new("no_such_function"),
        flags: jittison::session::SymbolFlags::EXPORTED,
    };
    remote.jit.lazy_reexport(&tracker, main, &[alias]).unwrap();
    let error = remote.jit.remote_function(main, "run").unwrap().call(&[]).unwrap_err();
    assert!(error.to_string().contains("was ended by signal 6 (SIGABRT)"), "{error}");
    assert!(tracker.remove().unwrap().is_complete());
}
