//! What `run` can be given beside objects: archives, libraries, dylibs, definitions, aliases; and links that are not run.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::native::{directory, jittison, succeed};

/// Compiles sources, each `(name, text)`, to `name.o`.
fn objects(directory: &Path, flags: &[&str], sources: &[(&str, &str)]) {
    for (name, text) in sources {
        let (source, object) = (format!("{name}.c"), format!("{name}.o"));
        fs::write(directory.join(&source), text).expect("a source");
        let mut command = Command::new("gcc");
        succeed(command.current_dir(directory).args(["-c", "-O1", "-fPIC"]).args(flags).args([&source, "-o", &object]));
    }
}

fn archive(directory: &Path, flags: &str, name: &str, members: &[&str]) {
    succeed(Command::new("ar").current_dir(directory).arg(flags).arg(name).args(members));
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    jittison(directory).arg("run").args(arguments).output().expect("the tool runs")
}

fn status(directory: &Path, arguments: &[&str]) -> i32 {
    let output = run(directory, arguments);
    output.status.code().unwrap_or_else(|| panic!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn told(directory: &Path, arguments: &[&str]) -> String {
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
    assert!(told(&directory, &["main.o", "liba.a"]).contains("`second`"));
    let told = told(&directory, &["main.o", "libb.a", "--whole-archive", "liba.a"]);
    assert!(told.contains("`nobody_has_this`") || told.contains("nobody_has_this"), "{told}");
}

#[test]
fn a_member_is_pulled_for_the_report_to_count_and_everything_is_returned() {
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
fn dylibs_see_themselves_first_and_then_what_the_others_export() {
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
    assert!(told(&directory, &["main.o", "other.o"]).contains("duplicate definition of `own`"));
    objects(&directory, &["-fvisibility=hidden"], &[("hidden", "int theirs(void) { return 2; }")]);
    assert!(told(&directory, &["main.o", "--dylib", "second", "hidden.o"]).contains("`theirs`"));
}

#[test]
fn symbols_are_defined_and_named_again_on_the_command_line() {
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

/// An object leads to many others at once, each of them to a member of its own, and initialisers in all of them say who they
/// are.
#[test]
fn initialisers_run_in_one_order_however_many_threads_link() {
    const COUNT: usize = 60;
    let directory = directory("order");
    let says = |name: String, text: String| {
        let say = format!("__attribute__((constructor)) static void say(void) {{ puts(\"{name}\"); }}");
        (name, format!("void puts(const char *); {say} {text}"))
    };
    let object = |number| {
        let text = format!("int m{number}(void); int o{number}(void) {{ return m{number}(); }}");
        says(format!("o{number}"), text)
    };
    let member = |number| says(format!("m{number}"), format!("int m{number}(void) {{ return {number}; }}"));
    let each = |text: fn(usize) -> String| (0..COUNT).map(text).collect::<String>();
    let (declared, called) = (each(|number| format!("int o{number}(void);")), each(|number| format!(" + o{number}()")));
    let main = ("main".to_string(), format!("{declared} int main(void) {{ return (0{called}) / 100; }}"));
    let sources: Vec<_> = (0..COUNT).flat_map(|number| [object(number), member(number)]).chain([main]).collect();
    let sources: Vec<(&str, &str)> = sources.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    objects(&directory, &[], &sources);
    let named = |kind: &str| (0..COUNT).map(|number| format!("{kind}{number}.o")).collect::<Vec<String>>();
    let (typed, members) = (named("o"), named("m"));
    archive(&directory, "rc", "libm.a", &members.iter().map(String::as_str).collect::<Vec<_>>());
    let typed: Vec<&str> = ["main.o", "./libm.a"].into_iter().chain(typed.iter().map(String::as_str)).collect();
    let print = |threads: &str| {
        let output = run(&directory, &[&typed[..], &["--threads", threads]].concat());
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
fn threads_that_link_end_before_the_program_begins_and_all_of_it_is_returned() {
    // Shares the process: the count is made in the program that `jittison run` runs.
    let directory = directory("threads-end");
    let count = "#include <dirent.h>
        int main(void) { int n = -3; DIR *tasks = opendir(\"/proc/self/task\"); for (; tasks; n++) if (!readdir(tasks)) return n; return 99; }";
    objects(&directory, &[], &[("main", count), ("other", "int other(void) { return 1; }")]);
    for threads in ["0", "1", "4"] {
        let arguments = ["main.o", "other.o", "--threads", threads, "--report", "report.json"];
        assert_eq!(status(&directory, &arguments), 0, "those beside the program's own, where {threads} linked");
        let report: Value = serde_json::from_str(&fs::read_to_string(directory.join("report.json")).unwrap()).unwrap();
        assert_eq!(
            (&report["removal"]["everything_returned"], &report["removal"]["hindrance"]),
            (&true.into(), &Value::Null)
        );
    }
}

#[test]
fn a_link_that_is_not_run_needs_nothing_of_this_process_and_stands_where_it_is_told() {
    let directory = directory("not-run");
    objects(&directory, &[], &[("main", "int printf(const char *, ...); int main(void) { return printf(\"no\"); }")]);
    assert!(told(&directory, &["main.o", "--no-exec"]).contains("`printf`"));
    let output = run(
        &directory,
        &["main.o", "--no-exec", "--phony-externals", "--base", "0x40000000", "--report", "report.json"],
    );
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b""[..]));
    let report: Value = serde_json::from_str(&fs::read_to_string(directory.join("report.json")).unwrap()).unwrap();
    assert_eq!(report["link"]["objects"], 1);
    assert_eq!(report["status"], Value::Null);
}
