//! What is refused by name. Nothing changes then, and the next edit follows.

use jittison_test_tools::PrivateDir;

use crate::{Build, FLAGS, GCC, MAIN, compile};

const STEP: &str = "long step(long n) { return n + 10; }";

#[test]
fn a_function_without_room_is_named_and_nothing_changes() {
    let source = |closed: u32, step: u32| {
        format!(
            "__attribute__((noinline, patchable_function_entry(0))) long closed(long n) {{ return n * {closed}; }}
             long step(long n) {{ return closed(n) + {step}; }}"
        )
    };
    let Some(mut program) = GCC.start(MAIN, &source(1, 10)) else { return };
    assert_eq!(program.ask(), "11");
    program.refuse(&source(2, 20), &["`closed`", "no room for a hook", "-fpatchable-function-entry=114,112"]);
    assert_eq!(program.ask(), "12");
    program.follow(&source(1, 20));
    assert_eq!(program.ask(), "23");
    program.end();
}

/// Without the flag, no function has room.
#[test]
fn an_object_without_room_is_refused() {
    let Some(mut program) = (Build { flags: &FLAGS[..4], ..GCC }).start(MAIN, STEP) else { return };
    program.refuse("long step(long n) { return n; }", &["`step`", "no room for a hook"]);
    assert_eq!(program.ask(), "11");
    program.end();
}

#[test]
fn a_constant_that_a_function_without_room_may_read_is_refused() {
    let source = |constant: u32| {
        format!(
            "static const long table[] = {{ {constant}, 2 }};
             __attribute__((noinline, patchable_function_entry(0))) long closed(long n) {{ return table[n & 1]; }}
             long step(long n) {{ return closed(n) + 10; }}"
        )
    };
    let Some(mut program) = GCC.start(MAIN, &source(1)) else { return };
    program.refuse(&source(5), &["`closed`", "no room for a hook"]);
    assert_eq!([program.ask(), program.ask()], ["12", "11"]);
    program.end();
}

#[test]
fn a_copy_that_the_compiler_made_of_a_function_is_refused() {
    let source = |value: u32| {
        format!(
            "__attribute__((noinline)) static long copied(long n, long by) {{ return n * by + {value}; }}
             long step(long n) {{ return copied(n, 3); }}"
        )
    };
    let Some(mut program) = (Build { flags: &FLAGS[..5], ..GCC }).start(MAIN, &source(0)) else { return };
    program.refuse(&source(1), &["`copied.constprop.0`", "-flive-patching=inline-only-static"]);
    assert_eq!(program.ask(), "3");
    program.end();
}

#[test]
fn an_object_that_is_broken_changes_nothing_and_the_next_one_follows() {
    let Some(mut program) = GCC.start(MAIN, STEP) else { return };
    let object = std::fs::read(program.directory.path("step.o")).unwrap();
    std::fs::write(program.directory.path("step.o"), &object[..object.len() / 2]).unwrap();
    program.refused(&["step.o"]);
    assert_eq!(program.ask(), "11");
    program.refuse("long missing(long n); long step(long n) { return missing(n); }", &["missing"]);
    assert_eq!(program.ask(), "12");
    program.follow("long step(long n) { return n + 20; }");
    assert_eq!(program.ask(), "23");
    program.end();
}

#[test]
fn a_variable_of_another_size_is_refused() {
    let source = |kind: &str| format!("static {kind} count; long step(long n) {{ return n + ++count; }}");
    let Some(mut program) = GCC.start(MAIN, &source("int")) else { return };
    assert_eq!(program.ask(), "2");
    program.refuse(&source("long"), &["`count`", "8 bytes"]);
    assert_eq!(program.ask(), "4");
    program.end();
}

/// Starts a program that cannot be patched. It runs as it is.
fn runs_as_it_is(build: Build<'_>, directory: PrivateDir, says: &[&str]) {
    let Some(mut program) = build.run(directory) else { return };
    let event = program.event();
    assert!(event.ends_with("; the program runs as it is"), "{event}");
    says.iter().for_each(|says| assert!(event.contains(says), "{says}: {event}"));
    assert_eq!(program.ask(), "11");
    program.end();
}

fn built(step: &str) -> Option<PrivateDir> {
    let directory = PrivateDir::new();
    compile(&directory, ("gcc", &FLAGS), "main", MAIN)?;
    compile(&directory, ("gcc", &FLAGS), "step", step)?;
    Some(directory)
}

#[test]
fn a_stripped_program_is_named_and_runs_as_it_is() {
    let Some(directory) = built(STEP) else { return };
    runs_as_it_is(Build { link: &["-s"], ..GCC }, directory, &["it was stripped"]);
    let Some(directory) = built("static long count; long step(long n) { count = n; return count + 10; }") else {
        return;
    };
    runs_as_it_is(Build { link: &["-Wl,-x"], ..GCC }, directory, &["`step.c`", "no names for the `static`"]);
}

#[test]
fn an_object_that_the_program_was_not_linked_from_is_named() {
    let Some(directory) = built(STEP) else { return };
    let Some(()) = compile(&directory, ("gcc", &FLAGS), "other", "long step(long n) { return n + 20; }") else {
        return;
    };
    let build = Build { list: Some("main.o:other.o"), ..GCC };
    runs_as_it_is(build, directory, &["other.o", "`step`", "linked from another object"]);
}

#[test]
fn a_list_without_objects_is_named() {
    let Some(directory) = built(STEP) else { return };
    runs_as_it_is(Build { list: Some("absent.o"), ..GCC }, directory, &["absent.o"]);
}
