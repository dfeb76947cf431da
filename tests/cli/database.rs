//! `jittison watch --compile-commands`: a program is compiled from the commands of a database, and again when a file that they read
//! was saved.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use assert_cmd::Command;
use jittison_test_support::{PrivateDir, require};
use predicates::str::contains;
use serde_json::{Value, json};

use crate::native::{directory, jittison, words_of};
use crate::watch::{MAIN, Watched};

/// A project with its sources in `src` and a header in `include`.
struct Project {
    directory: PrivateDir,
}

impl Project {
    fn new(step: &str, half: &str, header: &str) -> Project {
        let directory = directory();
        for folder in ["src", "include", "build"] {
            std::fs::create_dir_all(directory.join(folder)).expect("the directory is writable");
        }
        let project = Project { directory };
        project.save("src/main.c", MAIN);
        project.save("src/step.c", step);
        project.save("src/half.c", half);
        project.save("include/half.h", header);
        project
    }

    fn save(&self, file: &str, text: &str) {
        save(&self.directory, file, text);
    }

    /// Writes a database of these entries.
    fn write_database(&self, entries: &[Value]) {
        self.save("build/compile_commands.json", &Value::from(entries).to_string());
    }

    /// The entry of a source, as CMake writes it, with optimisation and without the flags that a reload needs.
    fn entry(&self, name: &str, target: &str) -> Value {
        let output = format!("CMakeFiles/{target}.dir/{name}.c.o");
        let command =
            format!("{} -O2 -DNAME=\\\"{name}\\\" -I../include -o {output} -c ../src/{name}.c", words_of("gcc"));
        json!({ "directory": self.directory.join("build"), "command": command, "file": format!("../src/{name}.c"), "output": output })
    }

    fn start(self, arguments: &[&str]) -> Watched {
        let arguments: Vec<String> =
            ["--compile-commands", "build"].iter().chain(arguments).map(|argument| argument.to_string()).collect();
        Watched::start_in(self.directory, &arguments)
    }
}

fn save(directory: &Path, file: &str, text: &str) {
    std::fs::write(directory.join(file), text).expect("the directory is writable");
}

const STEP: &str = "#include \"half.h\"
static long calls; long step(long n) { return half(100 + n) + 0 * ++calls + ADD; }";
const HALF: &str = "#include \"half.h\"
long half(long n) { return n / 2; }";
const HEADER: &str = "long half(long n);
#define ADD 0";

#[test]
fn other_files_that_are_written_all_the_time_hold_no_build_back() {
    const MOST: usize = 100_000;
    let mut program = project().start(&[]);
    let (log, is_over) = (program.directory.join("src/log"), AtomicBool::new(false));
    let step = program.directory.join("src/step.c");
    std::thread::scope(|threads| {
        let writes = threads.spawn(|| {
            let is_going_on = |_: &usize| !is_over.load(Ordering::Relaxed);
            (0..MOST).take_while(is_going_on).map(|_| std::fs::write(&log, "a line").unwrap()).count()
        });
        std::fs::write(&step, STEP.replace("ADD", "7")).unwrap();
        let event = program.event();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(event["event"], "reloaded", "{event}");
        let writes = writes.join().unwrap();
        assert!(writes < MOST / 2, "the reload came after {writes} writes");
    });
}

fn project() -> Project {
    let project = Project::new(STEP, HALF, HEADER);
    let gcc = words_of("gcc");
    let arguments = [&*gcc, "-O2", "-I../include", "-MD", "-MF", "main.d", "-c", "../src/main.c"];
    let main = json!({ "directory": project.directory.join("build"), "arguments": arguments, "file": "../src/main.c" });
    project.write_database(&[main, project.entry("step", "app"), project.entry("half", "app")]);
    project
}

#[test]
fn a_program_is_compiled_from_a_database_and_follows_its_sources() {
    let mut program = project().start(&[]);
    assert_eq!(program.ask(), "50");
    save(&program.directory, "src/half.c", &HALF.replace("n / 2", "n * 2"));
    let event = program.event();
    assert_eq!((&event["event"], &event["object"]), (&"reloaded".into(), &"src/half.c".into()), "{event}");
    assert!(event["milliseconds"]["build"].as_f64().is_some_and(|time| time > 0.0), "{event}");
    assert_eq!(program.ask(), "204");
    // Nothing was written outside of the folder that the documentation names.
    let files = std::fs::read_dir(program.directory.join("build")).expect("it is readable");
    let mut files: Vec<_> = files.map(|file| file.expect("it is readable").file_name()).collect();
    files.sort();
    assert_eq!(files, ["compile_commands.json", "jittison-watch"]);
    assert_eq!(program.end(), (Some(7), String::new()));
}

#[test]
fn all_that_read_a_header_follow_together() {
    let mut program = project().start(&[]);
    assert_eq!(program.ask(), "50");
    // A header that was not there before, with the text of a source.
    save(&program.directory, "include/more.h", "#define MORE 1000");
    save(
        &program.directory,
        "src/half.c",
        "#include \"half.h\"\n#include \"more.h\"\nlong half(long n) { return n + MORE; }",
    );
    assert_eq!(program.event()["object"], "src/half.c");
    assert_eq!(program.ask(), "1102");
    save(&program.directory, "include/more.h", "#define MORE 2000");
    assert_eq!(program.event()["object"], "src/half.c");
    assert_eq!(program.ask(), "2103");
    // Both sources read it. `main.c` does not.
    save(&program.directory, "include/half.h", "long half(long n);\n#define ADD 7\n#define half(n) half((n) + 1)");
    let event = program.event();
    assert_eq!(event["event"], "build_failed", "{event}");
    assert_eq!(program.ask(), "2104");
    save(&program.directory, "include/half.h", "#define half other\nlong half(long n);\n#define ADD 7");
    let (first, second) = (program.event(), program.event());
    assert_eq!((&first["object"], &second["object"]), (&"src/step.c".into(), &"src/half.c".into()), "{first} {second}");
    assert_eq!((&second["added"], &second["removed"]), (&json!(["other"]), &json!(["half"])));
    assert_eq!(program.ask(), "2112");
    assert_eq!(program.end(), (Some(7), String::new()));
}

#[test]
fn a_source_that_failed_is_compiled_again_with_the_next_one() {
    let mut program = project().start(&[]);
    save(&program.directory, "src/step.c", &STEP.replace("ADD", "FIVE"));
    let event = program.event();
    assert_eq!(event["event"], "build_failed");
    assert!(event["output"].as_str().is_some_and(|output| output.contains("FIVE")), "{event}");
    // The other one can be compiled, but waits: both are one edit.
    save(&program.directory, "src/half.c", &HALF.replace("n / 2", "n"));
    assert_eq!(program.event()["event"], "build_failed");
    assert_eq!(program.ask(), "50");
    save(&program.directory, "include/half.h", &format!("{HEADER}\n#define FIVE 5"));
    let (first, second) = (program.event(), program.event());
    assert_eq!((&first["event"], &second["event"]), (&"reloaded".into(), &"reloaded".into()), "{first} {second}");
    assert_eq!(program.ask(), "107");
    assert_eq!(program.end(), (Some(7), String::new()));
}

/// The entry of a source with the compiler `./cc`, a script in the folder of the database.
fn entry_of_script(project: &Project, name: &str, flags: &str, script: &str) -> Value {
    let path = project.directory.join("build/cc");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the directory is writable");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it is ours");
    let command = format!("./cc {flags} -I../include -c ../src/{name}.c");
    json!({ "directory": project.directory.join("build"), "command": command, "file": format!("../src/{name}.c") })
}

#[test]
fn the_flags_that_a_reload_needs_are_added() {
    let project = project();
    // The loop is in the same source, the compiler would inline what it calls, and link-time optimisation leaves no code.
    let main = |more: &str, sum: &str| {
        format!("{MAIN} static long calls = 0x100; {more} long step(long n) {{ calls++; return {sum}; }}")
    };
    project.save("src/main.c", &main("", "calls - 0x100"));
    let script = format!("echo \"$@\" >>log; exec {} \"$@\"", words_of("gcc"));
    project.write_database(&[entry_of_script(&project, "main", "-O2 -flto -fno-pic", &script)]);
    let mut program = project.start(&[]);
    assert_eq!(program.ask(), "1");
    save(&program.directory, "src/main.c", &main("static long more = 100;", "calls - 0x100 + more++"));
    assert_eq!(program.event()["changed"], json!(["step"]));
    assert_eq!((program.ask(), program.ask()), ("102".to_string(), "104".to_string()));
    // Also of a compiler whose path is relative to the folder of the command.
    let log = std::fs::read_to_string(program.directory.join("build/log")).expect("the compiler ran");
    let commands = log.lines().filter(|line| line.contains("main.c"));
    assert_eq!(commands.map(|line| assert!(line.contains("-flive-patching=inline-clone"), "{line}")).count(), 2);
    assert_eq!(program.end(), (Some(7), String::new()));
}

#[test]
fn options_are_added_before_the_double_dash_of_a_command() {
    // With a program before the compiler that has a `--` of its own. gcc has none.
    if require("clang-19").is_none() {
        return;
    }
    let clang = words_of("clang-19");
    for compiler in [clang.clone(), format!("env -- {clang}")] {
        let project = project();
        let mut half = project.entry("half", "app");
        half["command"] = json!(format!("{compiler} -O2 -I../include -o half.o -c -- ../src/half.c"));
        project.write_database(&[project.entry("main", "app"), project.entry("step", "app"), half]);
        let mut program = project.start(&[]);
        assert_eq!(program.ask(), "50");
        save(&program.directory, "src/half.c", &HALF.replace("n / 2", "n * 2"));
        assert_eq!(program.event()["object"], "src/half.c");
        assert_eq!(program.ask(), "204");
        assert_eq!(program.end(), (Some(7), String::new()));
    }
}

#[test]
fn arguments_of_response_files_are_those_of_the_command() {
    let project = project();
    // All that names an output is in them, so nothing of it is written.
    project.save("build/all.rsp", "-O2 '-DTWO=1 + 1'\n@more.rsp -o CMakeFiles/app.dir/half.c.o -MMD -MF half.d -c");
    project.save("build/more.rsp", "-I ../include \"-DTEXT=\\\"a b\\\"\"");
    project.save("src/half.c", "#include \"half.h\"\nlong half(long n) { return n / (TWO) + sizeof TEXT - 4; }");
    let mut half = project.entry("half", "app");
    half["command"] = json!(format!("{} @all.rsp ../src/half.c", words_of("gcc")));
    half.as_object_mut().expect("it is an entry").remove("output");
    let other = json!({ "directory": project.directory.join("build"), "command": "false -o x.dir/half.o", "file": "../src/half.c" });
    project.write_database(&[project.entry("main", "app"), project.entry("step", "app"), half, other]);
    let mut program = project.start(&["--only", "app.dir"]);
    assert_eq!(program.ask(), "50");
    save(&program.directory, "include/half.h", "long half(long n);\n#define ADD 7");
    assert_eq!(program.event()["event"], "reloaded");
    assert_eq!(program.ask(), "58");
    assert!(!program.directory.join("build/half.d").exists());
    assert_eq!(program.end(), (Some(7), String::new()));
}

#[test]
fn a_source_that_is_saved_after_the_compiler_read_it_follows() {
    let project = project();
    // Saves the source once, after it compiled it, and not when it is asked for its flags.
    let save =
        "case \"$*\" in *half.c*) [ -e saved ] || { touch saved; sed -i 's|n / 2|n * 3|' ../src/half.c; };; esac";
    let script = format!("{} \"$@\" || exit; {save}", words_of("gcc"));
    let half = entry_of_script(&project, "half", "-O2", &script);
    project.write_database(&[project.entry("main", "app"), project.entry("step", "app"), half]);
    let mut program = project.start(&[]);
    let event = program.event();
    assert_eq!((&event["event"], &event["object"]), (&"reloaded".into(), &"src/half.c".into()), "{event}");
    assert_eq!(program.ask(), "303");
    assert_eq!(program.end(), (Some(7), String::new()));
}

#[test]
fn only_the_sources_that_are_meant_are_compiled() {
    let both = || {
        let project = project();
        let broken =
            json!({ "directory": project.directory.join("build"), "command": "false", "file": "../src/main.c" });
        let entries = ["main", "step", "half"].map(|name| project.entry(name, "app"));
        project.write_database(&[&entries[..], &[project.entry("step", "tests"), broken]].concat());
        project
    };
    let mut program = both().start(&["--only", "app.dir"]);
    assert_eq!(program.ask(), "50");
    assert_eq!(program.end(), (Some(7), String::new()));

    let directory = both().directory;
    let refused = |only: &[&str], says: &str| {
        let mut tool = jittison(&directory);
        tool.args(["watch", "--compile-commands", "build/compile_commands.json"]).args(only);
        tool.assert().code(125).stderr(contains(says));
    };
    refused(
        &[],
        "src/step.c has two commands, for `CMakeFiles/app.dir/step.c.o` and for `CMakeFiles/tests.dir/step.c.o`",
    );
    refused(&["--only", "src/step.c", "--only", "tests"], "has two commands");
    refused(&["--only", "src/nothing.c"], "--only names none of its sources");
    // Without the others, the program has no `main`.
    refused(&["--only", "src/half.c"], "main");
}

#[test]
fn a_database_that_cannot_be_used_is_refused_by_name() {
    let project = project();
    let refused = |database: &str, says: &[&str]| {
        project.save("build/compile_commands.json", database);
        let mut tool = jittison(&project.directory);
        let mut refused = tool.args(["watch", "--compile-commands", "build"]).assert().code(125);
        for text in says.iter().chain(&["build/compile_commands.json"]) {
            refused = refused.stderr(contains(*text));
        }
    };
    refused("nothing", &["expected"]);
    refused("{}", &["it is not a list of commands"]);
    refused("[]", &["it has no commands"]);
    refused("[{}]", &["a command has no `file`"]);
    refused(r#"[{"file":"a.c"}]"#, &["the command of a.c has no `directory`"]);
    refused(r#"[{"file":"a.c","directory":"/"}]"#, &["the command of a.c cannot be read"]);
    refused(r#"[{"file":"a.c","directory":"/","arguments":[]}]"#, &["the command of a.c cannot be read"]);
    refused(r#"[{"file":"a.c","directory":"/","command":"gcc 'a.c"}]"#, &["the command of a.c cannot be read"]);
    let mut tool = jittison(&project.directory);
    tool.args(["watch", "--compile-commands", "nowhere.json"]).assert().code(125).stderr(contains("nowhere.json"));
    let mut tool = jittison(&project.directory);
    tool.args(["watch", "--only", "src"]).assert().code(2);
}

#[test]
fn a_program_whose_sources_cannot_be_compiled_is_not_started() {
    let project = Project::new("long step(long n) { return nonsense; }", "", "");
    project.write_database(&[project.entry("main", "app"), project.entry("step", "app")]);
    let mut tool = jittison(&project.directory);
    let refused = tool.args(["watch", "--compile-commands", "build"]).assert().code(125);
    refused.stderr(contains("nonsense")).stderr(contains("the program was not started"));
}

#[test]
fn a_compiler_that_is_missing_is_named() {
    let project = project();
    let missing = json!({ "directory": "/", "command": "no-such-compiler a.c", "file": "a.c" });
    project.write_database(&[missing]);
    let mut tool = jittison(&project.directory);
    tool.args(["watch", "--compile-commands", "build"]).assert().code(125).stderr(contains("no-such-compiler"));
}

#[test]
fn a_database_of_cmake_is_understood() {
    let Some(cmake) = require("cmake") else { return };
    let project = project();
    project.save(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.16)\nproject(app C)\ninclude_directories(include)\n\
         add_executable(app src/main.c src/step.c src/half.c)\nadd_executable(more src/main.c src/step.c src/half.c)",
    );
    let options = ["-S", ".", "-B", "build", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DCMAKE_BUILD_TYPE=Release"];
    let compiler = format!("-DCMAKE_C_COMPILER={}", words_of("gcc"));
    let made = Command::from_std(cmake).current_dir(&*project.directory).args(options).arg(compiler).ok();
    made.expect("cmake makes a build");
    let mut program = project.start(&["--only", "more.dir"]);
    assert_eq!(program.ask(), "50");
    save(&program.directory, "src/half.c", &HALF.replace("n / 2", "n"));
    assert_eq!(program.event()["object"], "src/half.c");
    assert_eq!(program.ask(), "102");
    assert_eq!(program.end(), (Some(7), String::new()));
}
