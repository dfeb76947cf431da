//! Programs of several objects behave as if the system linker had linked them: the same output, the same messages, the same exit
//! status.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use jittison_test_support::require;

use crate::native::{GNU, Twins, compile, directory, each_build, tool, toolchains, words_of};

const SIGABRT: i32 = 6;

#[test]
fn a_c_program_shares_data_calls_back_and_sees_its_arguments() {
    each_build("basics", &["basics_main.c", "basics_data.c", "basics_functions.c"], |twins| {
        let output = twins.compare(&[], "");
        assert_eq!(output.status.code(), Some(47), "the program did not reach its end");
        twins.compare(&["one", "", "with space", "--entry", "ünicode"], "from outside");
    });
}

const LIFECYCLE: [&str; 3] = ["lifecycle_main.c", "lifecycle_order.c", "lifecycle_deep.c"];

fn lifecycle(name: &str, modes: &[&str], check: impl Fn(&Twins, &str)) {
    each_build(name, &LIFECYCLE, |twins| modes.iter().for_each(|mode| check(twins, mode)));
}

#[test]
fn a_program_that_returns_or_exits_runs_its_handlers_and_finalisers_once() {
    let modes = [
        "return",
        "exit",
        "exit-in-constructor",
        "handler-registers",
        "handler-exits",
        "finaliser-registers",
        "finaliser-exits",
        "on_exit",
        "on_exit-exit",
        "large-status",
        "negative-status",
    ];
    lifecycle("lifecycle-returns", &modes, |twins, mode| {
        let output = twins.compare(&[mode], "");
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        // The C library skips finalisers after one that calls `exit`.
        let expected = usize::from(mode != "finaliser-exits");
        assert_eq!(lines.matches("early down").count(), expected, "{mode}: {lines}");
    });
}

#[test]
fn a_library_or_a_thread_that_ends_the_program_runs_its_handlers_too() {
    let modes = ["err", "exit-in-thread", "pthread_exit"];
    lifecycle("lifecycle-others", &modes, |twins, mode| {
        let output = twins.compare(&[mode], "");
        assert!(String::from_utf8_lossy(&output.stdout).contains("early down"), "{mode}");
    });
}

#[test]
fn an_abrupt_end_runs_no_handlers() {
    let modes = ["_exit", "quick_exit", "abort", "assert", "crash", "pipe"];
    lifecycle("lifecycle-abrupt", &modes, |twins, mode| {
        let output = twins.compare(&[mode], "");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("down"), "{mode}");
    });
}

#[test]
fn threads_and_children_of_a_program_may_outlive_its_main() {
    lifecycle("lifecycle-concurrent", &["thread", "thread-outlives", "fork", "fork-exit"], |twins, mode| {
        twins.compare(&[mode], "");
    });
}

const EXCEPTIONS: [&str; 3] = ["exceptions_main.cpp", "exceptions_throw.cpp", "exceptions_types.cpp"];

#[test]
fn an_exception_is_thrown_in_one_object_and_caught_in_another() {
    each_build("exceptions", &EXCEPTIONS, |twins| {
        for mode in ["", "exit"] {
            let output = twins.compare(&[mode], "");
            assert!(String::from_utf8_lossy(&output.stdout).contains("- static before"), "a static was not destroyed");
        }
    });
}

#[test]
fn an_uncaught_exception_ends_the_program_as_natively() {
    each_build("uncaught", &EXCEPTIONS, |twins| {
        for mode in ["uncaught", "uncaught-number", "noexcept", "uncaught-at-exit"] {
            let output = twins.compare(&[mode], "");
            assert_eq!(output.status.signal(), Some(SIGABRT), "{mode}");
            assert!(output.stderr.starts_with(b"terminate called after throwing"), "{mode}");
        }
        assert_eq!(twins.compare(&["terminate-handler"], "").status.code(), Some(33));
        assert_eq!(twins.compare(&[], "throw-in-constructor").status.signal(), Some(SIGABRT));
    });
}

#[test]
fn objects_share_classes_templates_and_static_objects() {
    each_build("objects", &["objects_main.cpp", "objects_shapes.cpp", "objects_statics.cpp"], |twins| {
        let output = twins.compare(&[], "");
        assert!(String::from_utf8_lossy(&output.stdout).contains("121 one"), "an inline variable exists twice");
        twins.compare(&["exit"], "");
    });
}

#[test]
fn static_objects_are_constructed_in_the_order_in_which_objects_are_given() {
    each_build("objects-reversed", &["objects_statics.cpp", "objects_shapes.cpp", "objects_main.cpp"], |twins| {
        twins.compare(&[], "");
    });
}

#[test]
fn threads_of_a_cpp_program_throw_wait_and_share_a_static() {
    each_build("threads", &["threads_main.cpp", "threads_worker.cpp"], |twins| {
        for mode in ["", "detach", "uncaught"] {
            twins.compare(&[mode], "");
        }
    });
}

#[test]
fn fork_and_quick_exit_handlers_are_called() {
    each_build("fork-handlers", &["fork_handlers.c"], |twins| {
        for arguments in [&[][..], &["quick"]] {
            let output = twins.compare(arguments, "");
            assert_eq!(output.status.code(), Some(7));
            let lines = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!((lines.matches("prepare").count(), lines.matches("quick").count()), (1, arguments.len()));
        }
    });
}

/// Builds without PIC, and as PIE. Such code accesses variables of libraries directly, like variables of its own
/// program.
fn each_fixed_build(name: &str, sources: &[&str], check: impl Fn(&Twins)) {
    for toolchain in toolchains() {
        for level in ["-O0", "-O2"] {
            for model in ["-fno-pic", "-fPIE"] {
                check(&Twins::build(toolchain, &[level, model], name, sources));
            }
        }
    }
}

#[test]
fn non_pic_and_pie_code_use_library_variables_types_and_streams() {
    each_fixed_build("libraries", &["libraries_main.cpp", "libraries_data.c"], |twins| {
        let output = twins.compare(&["-a", "-b", "x", "-c"], "seen");
        assert!(String::from_utf8_lossy(&output.stdout).contains("listed 111"));
        twins.compare(&[], "");
        assert_eq!(twins.compare(&["uncaught"], "").status.signal(), Some(SIGABRT));
    });
}

#[test]
fn non_pic_and_pie_code_throw_and_catch_across_objects() {
    each_fixed_build("exceptions-fixed", &EXCEPTIONS, |twins| {
        for mode in ["", "exit", "uncaught", "noexcept"] {
            twins.compare(&[mode], "");
        }
    });
    each_fixed_build("threads-fixed", &["threads_main.cpp", "threads_worker.cpp"], |twins| {
        twins.compare(&[], "");
    });
}

/// A library of Go as an archive, with its header. The cache of its compiler is kept, because it compiles its own library.
fn go_archive(directory: &Path) -> Option<String> {
    require("go")?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/programs/go_library.go");
    let mut go = tool("go", directory);
    go.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"))
        .env("GO111MODULE", "off")
        .env("HOME", directory)
        .env("GOARCH", if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" })
        .env("CGO_ENABLED", "1")
        .env("CC", words_of(GNU.c));
    go.args(["build", "-buildmode=c-archive", "-o", "libgo_library.a"]).arg(source).unwrap();
    Some("libgo_library.a".to_string())
}

#[test]
fn a_library_of_go_collects_recovers_from_faults_and_calls_back_from_its_threads() {
    for position in ["-fPIC", "-fPIE"] {
        let directory = directory();
        let Some(archive) = go_archive(&directory) else { return };
        let mut inputs = compile(GNU, &["-I.", position], &["go_main.c"], &directory);
        inputs.push(archive);
        let twins = Twins::link(GNU.cpp, &[], format!("go{position}"), directory, inputs);
        let output = twins.compare(&["one", "", "with space"], "from outside");
        assert_eq!(output.status.code(), Some(7), "the program did not reach its end");
    }
}
