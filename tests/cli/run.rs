//! `jittison run` itself: its options, its report, its help.

use serde_json::Value;

use crate::native::{GNU, Twins, compile, directory, jittison, report, tool};

fn run_with_report(twins: &Twins, arguments: &[&str], status: i32) -> Value {
    let mut tool = jittison(&twins.directory);
    tool.arg("run").args(&twins.objects).args(["--report", "report.json", "--"]).args(arguments);
    tool.assert().code(status);
    report(&twins.directory)
}

#[test]
fn the_report_proves_that_everything_was_returned() {
    let twins =
        Twins::build(GNU, &["-O1"], "report", &["objects_main.cpp", "objects_shapes.cpp", "objects_statics.cpp"]);
    for (arguments, status, ended_by) in [(&[][..], 40, "return from the entry"), (&["x"][..], 2, "exit")] {
        let report = run_with_report(&twins, arguments, status);
        assert_eq!(report["status"], status);
        assert_eq!(report["ended_by"], ended_by);
        assert_eq!(report["objects"].as_array().map(Vec::len), Some(3));
        assert_eq!(report["objects"][0]["path"], "objects_main.o");
        assert!(report["objects"][0]["symbols"].as_array().is_some_and(|symbols| symbols.contains(&"main".into())));
        assert_eq!(report["initializers_called"], 3);
        for stage in ["add_us", "link_us", "initialize_us", "run_us", "finalize_us", "remove_us"] {
            assert!(report["stages"][stage].as_f64().is_some_and(|took| took > 0.0), "{stage}: {report:#}");
        }
        let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_u64).expect(pointer);
        assert!(number("/usage/code_bytes") > 1000 && number("/usage/data_bytes") > 0);
        assert!(number("/memory/linked/live_bytes") > 1000 && number("/memory/linked/process_mappings") > 0);
        assert!(number("/memory/after/process_resident_bytes") > 0);
        assert_eq!(number("/memory/before/live_bytes"), 0);
        assert_eq!(number("/memory/after/allocations"), 0);
        assert_eq!(number("/memory/after/live_bytes"), 0);
        assert_eq!(number("/memory/after/reserved_bytes"), 0);
        assert_eq!(report["removal"]["is_complete"], true);
        assert_eq!(report["removal"]["everything_returned"], true);
        assert_eq!(report["removal"]["hindrance"], Value::Null);
    }
}

#[test]
fn trace_reports_links_and_removals_and_leaves_the_program_output_unchanged() {
    let twins = Twins::build(GNU, &["-O1"], "trace", &["basics_main.c", "basics_data.c", "basics_functions.c"]);
    let run = |options: &[&str]| {
        let mut tool = jittison(&twins.directory);
        tool.arg("run").args(options).args(&twins.objects).output().expect("the tool runs")
    };
    let (quiet, traced) = (run(&[]), run(&["--trace"]));
    assert_eq!((&quiet.status, &quiet.stdout), (&traced.status, &traced.stdout));
    let trace = String::from_utf8_lossy(&traced.stderr).into_owned();
    for object in &twins.objects {
        let line = format!("jittison: linked: {object}, tracker ");
        assert_eq!(trace.matches(&line).count(), 1, "{line}: {trace}");
    }
    for part in ["memory: window mapped", "published: ", "retired: ", "reclaimed: "] {
        assert!(trace.contains(part), "{part}: {trace}");
    }
    assert!(!String::from_utf8_lossy(&quiet.stderr).contains("linked: "));
}

#[test]
fn code_that_threads_still_run_is_kept_and_the_report_says_so() {
    let twins = Twins::build(GNU, &["-O1"], "report-threads", &["threads_main.cpp", "threads_worker.cpp"]);
    let report = run_with_report(&twins, &["detach"], 5);
    assert_eq!(report["removal"]["is_complete"], false);
    assert_eq!(report["removal"]["hindrance"], "1 threads of the program were still running");
    let report = run_with_report(&twins, &["join"], 4);
    assert_eq!(report["removal"]["is_complete"], true, "{report:#}");
}

// Seen red: the thread counted, so nothing was removed.
#[test]
fn threads_of_a_preloaded_library_are_none_of_the_program() {
    const PRELOADED: &str = "#include <pthread.h>
        #include <unistd.h>
        static void *wait_for_ever(void *nothing) { for (;;) pause(); return nothing; }
        __attribute__((constructor)) static void start(void) { pthread_t thread; pthread_create(&thread, 0, wait_for_ever, 0); }";
    let twins = Twins::build(GNU, &["-O1"], "preloaded", &["threads_main.cpp", "threads_worker.cpp"]);
    std::fs::write(twins.directory.join("preloaded.c"), PRELOADED).expect("the directory is writable");
    let options = ["-shared", "-fPIC", "preloaded.c", "-o", "preloaded.so"];
    tool("gcc", &twins.directory).args(options).unwrap();
    for (mode, status, hindrance) in
        [("join", 4, Value::Null), ("detach", 5, "1 threads of the program were still running".into())]
    {
        let mut command = jittison(&twins.directory);
        command.env("LD_PRELOAD", twins.directory.join("preloaded.so"));
        command.arg("run").args(&twins.objects).args(["--report", "report.json", "--", mode]).assert().code(status);
        assert_eq!(report(&twins.directory)["removal"]["hindrance"], hindrance, "{mode}");
    }
}

#[test]
fn another_entry_can_be_chosen() {
    let directory = directory();
    let objects = compile(GNU, &["-O1"], &["data_entry.c"], &directory);
    let mut tool = jittison(&directory);
    tool.arg("run").args(&objects).args(["--entry", "entry", "--", "a"]).assert().code(62);
}

#[test]
fn libraries_are_found_by_path_by_file_name_and_by_bare_name() {
    let directory = directory();
    let library = compile(GNU, &["-O1"], &["greet_library.c"], &directory);
    tool("gcc", &directory).args(["-shared", "-o", "libgreet.so.3"]).args(&library).unwrap();
    let objects = compile(GNU, &["-O1"], &["greet_main.c"], &directory);
    for name in ["./libgreet.so.3", "libgreet.so.3", "greet"] {
        let mut tool = jittison(&directory);
        tool.arg("run").args(&objects).args(["-l", name]).env("LD_LIBRARY_PATH", &*directory).assert().code(12);
    }
}

#[test]
fn help_and_version_explain_the_tool() {
    let directory = directory();
    let version = format!("jittison {}\n", env!("CARGO_PKG_VERSION"));
    jittison(&directory).arg("--version").assert().success().stdout(version);
    for command in ["", "run", "watch", "inspect", "map", "check"] {
        let arguments = [command, "--help"].into_iter().filter(|argument| !argument.is_empty());
        let output = jittison(&directory).args(arguments).unwrap();
        let help = String::from_utf8(output.stdout).expect("help is text");
        insta::assert_snapshot!(["help", command].join("_").trim_end_matches('_'), help);
    }
}

#[test]
fn a_usage_error_has_its_own_exit_status() {
    let directory = directory();
    for arguments in
        [&[][..], &["run"], &["inspect"], &["map"], &["map", "a.o", "--svg"], &["walk"], &["run", "a.o", "--speed"]]
    {
        jittison(&directory).args(arguments).assert().code(2);
    }
}
