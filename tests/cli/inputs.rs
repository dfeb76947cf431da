//! Inputs of `run` besides objects: archives, libraries, dylibs, definitions and aliases. Also worker threads and `--no-exec`.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::native::{directory, jittison, succeed, tool};

/// Compiles each source `(name, text)` to `name.o`.
fn objects(directory: &Path, flags: &[&str], sources: &[(&str, &str)]) {
    for (name, text) in sources {
        let (source, object) = (format!("{name}.c"), format!("{name}.o"));
        fs::write(directory.join(&source), text).expect("a source");
        succeed(tool("gcc", directory).args(["-c", "-O1", "-fPIC"]).args(flags).args([&source, "-o", &object]));
    }
}

fn archive(directory: &Path, flags: &str, name: &str, members: &[&str]) {
    succeed(tool("ar", directory).arg(flags).arg(name).args(members));
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    jittison(directory).arg("run").args(arguments).output().expect("the tool runs")
}

fn status(directory: &Path, arguments: &[&str]) -> i32 {
    let output = run(directory, arguments);
    output.status.code().unwrap_or_else(|| panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The error text of a run that must fail.
fn error_of(directory: &Path, arguments: &[&str]) -> String {
    let output = run(directory, arguments);
    assert_eq!(output.status.code(), Some(125), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn members_of_archives_are_pulled_as_they_are_needed_in_any_order() {
    let directory = directory("archives");
    objects(
        &directory,
        &[],
        &[
            ("main", "int first(void); int main(void) { return first(); }"),
            ("first", "int second(void); int first(void) { return second() + 1; }"),
            ("second", "int second(void) { return 40; }"),
            ("unneeded", "int nobody_has_this(void); int unneeded(void) { return nobody_has_this(); }"),
        ],
    );
    archive(&directory, "rc", "liba.a", &["first.o", "unneeded.o"]);
    archive(&directory, "rcT", "libb.a", &["second.o"]);
    for order in [["main.o", "liba.a", "libb.a"], ["libb.a", "liba.a", "main.o"]] {
        assert_eq!(status(&directory, &order), 41, "{order:?}");
    }
    assert_eq!(status(&directory, &["main.o", "-L", ".", "-l", "a", "-l", "b"]), 41);
    assert!(error_of(&directory, &["main.o", "liba.a"]).contains("`second`"));
    let message = error_of(&directory, &["main.o", "libb.a", "--whole-archive", "liba.a"]);
    assert!(message.contains("`nobody_has_this`") || message.contains("nobody_has_this"), "{message}");
}

#[test]
fn the_report_counts_pulled_members_and_everything_is_returned() {
    let directory = directory("archive-report");
    objects(
        &directory,
        &[],
        &[("main", "int first(void); int main(void) { return first(); }"), ("first", "int first(void) { return 3; }")],
    );
    archive(&directory, "rc", "liba.a", &["first.o"]);
    assert_eq!(status(&directory, &["main.o", "liba.a", "--report", "report.json"]), 3);
    let report: Value = serde_json::from_str(&fs::read_to_string(directory.join("report.json")).unwrap()).unwrap();
    let link = &report["link"];
    assert_eq!((&link["objects"], &link["members_pulled"]), (&2.into(), &1.into()), "{report:#}");
    assert!(link["relocations"]["R_X86_64_PLT32"].as_u64().is_some_and(|count| count >= 1));
    for phase in ["read", "prune", "plan_and_allocate", "look_up", "fix_up", "seal"] {
        assert!(link["phases"][format!("{phase}_us")].as_f64().is_some_and(|took| took > 0.0), "{phase}: {report:#}");
    }
    assert_eq!(report["removal"]["everything_returned"], true);
}

#[test]
fn a_dylib_searches_itself_first_and_then_exports_of_the_others() {
    let directory = directory("dylibs");
    objects(
        &directory,
        &[],
        &[
            ("main", "int own(void) { return 1; } int theirs(void); int main(void) { return own() * 10 + theirs(); }"),
            ("other", "int own(void) { return 2; } int theirs(void) { return own(); }"),
        ],
    );
    assert_eq!(status(&directory, &["main.o", "--dylib", "second", "other.o"]), 12);
    assert!(error_of(&directory, &["main.o", "other.o"]).contains("duplicate definition of `own`"));
    objects(&directory, &["-fvisibility=hidden"], &[("hidden", "int theirs(void) { return 2; }")]);
    assert!(error_of(&directory, &["main.o", "--dylib", "second", "hidden.o"]).contains("`theirs`"));
}

#[test]
fn the_command_line_defines_symbols_and_aliases() {
    let directory = directory("defined");
    objects(
        &directory,
        &[],
        &[(
            "main",
            "extern char fixed[]; int named(void); int real(void) { return 5; } int main(void) { return (int)(long)fixed + named(); }",
        )],
    );
    let found = status(&directory, &["main.o", "--define", "fixed=0x20", "--alias", "named=real"]);
    assert_eq!(found, 37);
    assert_eq!(
        status(
            &directory,
            &["main.o", "--define", "fixed=1", "--alias", "named=real", "--alias", "begin=main", "--entry", "real"]
        ),
        5
    );
}

#[test]
fn worker_threads_link_the_same_program() {
    let directory = directory("threads");
    let sources: Vec<(String, String)> = (0..40)
        .map(|i| {
            let next = if i == 39 { "0".to_string() } else { format!("f{}()", i + 1) };
            (format!("f{i}"), format!("int f{}(void); int f{i}(void) {{ return {next} + 1; }}", i + 1))
        })
        .collect();
    let sources: Vec<(&str, &str)> = sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    objects(&directory, &[], &sources);
    objects(&directory, &[], &[("main", "int f0(void); int main(void) { return f0(); }")]);
    let members: Vec<String> = (0..40).map(|i| format!("f{i}.o")).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    archive(&directory, "rc", "libf.a", &members);
    for threads in ["0", "1", "2", "4"] {
        assert_eq!(status(&directory, &["main.o", "libf.a", "--threads", threads]), 40, "{threads} threads");
    }
}

/// One object refers to many objects, and each of these to an archive member of its own. An initialiser in each prints its name.
#[test]
fn initialisers_run_in_the_same_order_with_any_number_of_threads() {
    const COUNT: usize = 60;
    let directory = directory("order");
    let with_initialiser = |name: String, text: String| {
        let say = format!("__attribute__((constructor)) static void say(void) {{ puts(\"{name}\"); }}");
        (name, format!("void puts(const char *); {say} {text}"))
    };
    let object = |number| {
        let text = format!("int m{number}(void); int o{number}(void) {{ return m{number}(); }}");
        with_initialiser(format!("o{number}"), text)
    };
    let member = |number| with_initialiser(format!("m{number}"), format!("int m{number}(void) {{ return {number}; }}"));
    let each = |text: fn(usize) -> String| (0..COUNT).map(text).collect::<String>();
    let (declared, called) = (each(|number| format!("int o{number}(void);")), each(|number| format!(" + o{number}()")));
    let main = ("main".to_string(), format!("{declared} int main(void) {{ return (0{called}) / 100; }}"));
    let sources: Vec<_> = (0..COUNT).flat_map(|number| [object(number), member(number)]).chain([main]).collect();
    let sources: Vec<(&str, &str)> = sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    objects(&directory, &[], &sources);
    let named = |kind: &str| (0..COUNT).map(|number| format!("{kind}{number}.o")).collect::<Vec<String>>();
    let (given, members) = (named("o"), named("m"));
    archive(&directory, "rc", "libm.a", &members.iter().map(String::as_str).collect::<Vec<_>>());
    let given: Vec<&str> = ["main.o", "./libm.a"].into_iter().chain(given.iter().map(String::as_str)).collect();
    let print = |threads: &str| {
        let output = run(&directory, &[&given[..], &["--threads", threads]].concat());
        assert_eq!(output.status.code(), Some(17), "{threads} threads: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let expected = print("0");
    assert_eq!(expected.lines().count(), 2 * COUNT);
    for threads in ["2", "4"].iter().cycle().take(12) {
        assert_eq!(print(threads), expected, "{threads} threads");
    }
}

#[test]
fn link_threads_end_before_the_program_starts_and_everything_is_returned() {
    // Shares the process: the program that `jittison run` runs counts its own threads.
    let directory = directory("threads-end");
    let count = "#include <dirent.h>
        int main(void) { int n = -3; DIR *tasks = opendir(\"/proc/self/task\"); for (; tasks; n++) if (!readdir(tasks)) return n; return 99; }";
    objects(&directory, &[], &[("main", count), ("other", "int other(void) { return 1; }")]);
    for threads in ["0", "1", "4"] {
        let arguments = ["main.o", "other.o", "--threads", threads, "--report", "report.json"];
        assert_eq!(status(&directory, &arguments), 0, "threads besides the main one, after {threads} threads linked");
        let report: Value = serde_json::from_str(&fs::read_to_string(directory.join("report.json")).unwrap()).unwrap();
        assert_eq!(
            (&report["removal"]["everything_returned"], &report["removal"]["hindrance"]),
            (&true.into(), &Value::Null)
        );
    }
}

#[test]
fn no_exec_links_at_the_given_base_without_process_symbols() {
    let directory = directory("not-run");
    objects(&directory, &[], &[("main", "int printf(const char *, ...); int main(void) { return printf(\"no\"); }")]);
    assert!(error_of(&directory, &["main.o", "--no-exec"]).contains("`printf`"));
    let output = run(
        &directory,
        &["main.o", "--no-exec", "--phony-externals", "--base", "0x40000000", "--report", "report.json"],
    );
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b""[..]));
    let report: Value = serde_json::from_str(&fs::read_to_string(directory.join("report.json")).unwrap()).unwrap();
    assert_eq!(report["link"]["objects"], 1);
    assert_eq!(report["status"], Value::Null);
}
