//! What is refused by name, before anything changed.

use crate::*;

/// A program of one object, and its new version.
fn program_of(one: Option<Vec<u8>>, two: Option<Vec<u8>>) -> Option<(Program, Vec<u8>)> {
    let (one, two) = (one?, two?);
    Some((Program::new(&[("a.o", &one)]), two))
}

fn assert_refused(one: Option<Vec<u8>>, two: Option<Vec<u8>>, says: &[&str]) {
    let Some((program, two)) = program_of(one, two) else { return };
    let before = program.call("run");
    program.refused("a.o", &two, says);
    assert_eq!(program.call("run"), before);
}

#[test]
fn a_variable_of_another_size() {
    let source = |count: u32| c(&format!("static long kept[{count}]; long run(void) {{ return kept[1]++ * 0; }}"));
    assert_refused(source(2), source(3), &["a.o", "`kept`", "24 bytes", "16 in memory"]);
    let source = |kind: &str| c(&format!("{kind} shown = 1; long run(void) {{ return shown; }}"));
    assert_refused(source("int"), source("long"), &["`shown`", "8 bytes", "4 in memory"]);
    let source = |count: u32| {
        support::gcc(
            &["-O1", "-fPIC", "-fcommon"],
            &format!("long common[{count}]; long run(void) {{ return common[1]++ * 0; }}"),
        )
    };
    assert_refused(source(4), source(5), &["`common`", "40 bytes", "32 in memory"]);
}

#[test]
fn a_variable_in_memory_of_another_kind() {
    let source = |start: u32| c(&format!("static long kept = {start}; long run(void) {{ return kept++ * 0; }}"));
    assert_refused(source(0), source(5), &["`kept`", "it is in .data, and was in .bss"]);
    let source = |kind: &str| c(&format!("{kind} long kept = 3; long run(void) {{ return kept; }}"));
    assert_refused(source(""), source("__thread"), &["`kept`", "it is in .tdata, and was in .data"]);
}

#[test]
fn a_constant_that_became_a_variable_and_the_reverse() {
    let source = |kind: &str| c(&format!("{kind} long kept = 3; long run(void) {{ return kept; }}"));
    assert_refused(source("const"), source(""), &["`kept`", "it is a variable, and was a constant"]);
    assert_refused(source(""), source("const"), &["`kept`", "it is a constant, and was a variable"]);
}

#[test]
fn a_changed_constant_that_another_object_reads() {
    let source = |value: u32| c(&format!("const long limit = {value}; long get(void) {{ return limit; }}"));
    let reader = c("extern const long limit; long run(void) { return limit; }");
    let (Some(one), Some(two), Some(reader)) = (source(1), source(2), reader) else { return };
    let program = Program::new(&[("a.o", &one), ("reader.o", &reader)]);
    program.refused("a.o", &two, &["`limit`", "a constant that another object reads"]);
    assert_eq!(program.call("run"), 1);
}

#[test]
fn variables_that_moved_in_a_section() {
    let source = |more: &str| {
        support::gcc(
            &["-O1", "-fPIC"],
            &format!(
                "static long first = 1; {more} static long last = 2; long run(void) {{ first++; return last++ * 0; }}"
            ),
        )
    };
    let more = "static long new = 3; long get(void) { return new++; }";
    assert_refused(source(""), source(more), &["`new`", "-fdata-sections"]);
}

#[test]
fn static_variables_that_cannot_be_told_apart() {
    let function = |name: &str| format!("long {name}(void) {{ static long n; return ++n * 0; }}");
    let one = c(&format!("{} {}", function("run"), function("g")));
    let two = c(&format!("{} {}", function("i"), function("h")));
    assert_refused(one, two, &["`n`", "give them different names"]);
}

#[test]
fn static_variables_of_cpp_whose_numbers_may_have_changed() {
    let block = "{ static long n; result += ++n; }";
    let source = |blocks: usize| {
        cpp(&format!("extern \"C\" long run() {{ long result = 0; {} return result * 0; }}", block.repeat(blocks)))
    };
    assert_refused(source(1), source(2), &["`_ZZ3runE1n`", "their number changed"]);
    let lambda = "[]() { static long n; return ++n; }()";
    let source = |more: &str| cpp(&format!("extern \"C\" long run() {{ return ({more} {lambda}) * 0; }}"));
    assert_refused(
        source(""),
        source("[]() __attribute__((noinline)) { return 1; }() +"),
        &["a `static` variable of a lambda"],
    );
}

#[test]
fn a_new_variable_that_needs_a_constructor() {
    let one = cpp("extern \"C\" long run() { return 1; }");
    let two = cpp("extern \"C\" long run() { return 1; } long fresh = run();");
    assert_refused(one, two, &["`fresh`", "initialisers do not run again"]);
}

#[test]
fn code_that_no_stub_can_reach() {
    let one = c("long run(void) { return 1; }");
    assert_refused(one.clone(), support::asm(".globl run\nrun: ret"), &["`run`", "has no type"]);
    let indirect = "static long one(void) { return 1; } static void *choose(void) { return one; }
        long run(void) __attribute__((ifunc(\"choose\")));";
    assert_refused(one, c(indirect), &["`run`", "indirect function"]);
}

#[test]
fn an_object_that_needs_what_nobody_defines() {
    let two = c(
        "long missing(void); static long fresh; long added(void) { return fresh++; } long run(void) { return missing() + added(); }",
    );
    assert_refused(c("long run(void) { return 1; }"), two, &["missing"]);
}

#[test]
fn bytes_that_are_no_object() {
    let Some((program, two)) = program_of(c("long run(void) { return 1; }"), c("long run(void) { return 2; }")) else {
        return;
    };
    program.refused("a.o", &two[..two.len() / 2], &["a.o"]);
    program.refused("a.o", b"not an object", &["a.o"]);
    program.refused("b.o", &two, &["b.o", "no object of this name"]);
    // A good object follows all that.
    drop(program.reload("a.o", &two));
    assert_eq!(program.call("run"), 2);
}

#[test]
fn an_object_that_is_added_twice_or_too_late() {
    let (Some(one), Some(other)) = (c("long run(void) { return 1; }"), c("long other(void) { return 2; }")) else {
        return;
    };
    let jit = support::new_jit();
    let reloader = Reloader::new(&jit, &jit.main_dylib().create_tracker().unwrap()).unwrap();
    reloader.add_object("a.o", &*one).unwrap();
    let refused = |name: &str, bytes: &[u8]| {
        let error = reloader.add_object(name, bytes).unwrap_err();
        support::assert_says(&error, &[name, "objects are added once, before the program is linked"]);
    };
    refused("a.o", &other);
    reloader.link().unwrap();
    refused("b.o", &other);
    assert_eq!(reloader.objects(), ["a.o"]);
}

#[test]
fn a_variable_with_the_name_of_a_constant_that_a_version_brought() {
    let (Some(a), Some(b), Some(constant), Some(variable)) = (
        c("long get(void) { return 1; }"),
        c("long run(void) { return 1; }"),
        c("extern const long taken; const long taken = 1; long get(void) { return taken; }"),
        c("long taken = 2; long run(void) { return taken++; }"),
    ) else {
        return;
    };
    let program = Program::new(&[("a.o", &a), ("b.o", &b)]);
    drop(program.reload("a.o", &constant));
    program.refused("b.o", &variable, &["`taken`", "another definition"]);
    // And the reverse.
    let program = Program::new(&[("a.o", &a), ("b.o", &b)]);
    drop(program.reload("b.o", &variable));
    program.refused("a.o", &constant, &["`taken`", "another object has a variable of this name"]);
}

#[test]
fn a_variable_that_another_object_defines() {
    let (Some(a), Some(b), Some(two)) = (
        c("long run(void) { return 1; }"),
        c("const long taken = 1; long get(void) { return taken; }"),
        c("long taken = 2; long run(void) { return taken++; }"),
    ) else {
        return;
    };
    let program = Program::new(&[("a.o", &a), ("b.o", &b)]);
    program.refused("a.o", &two, &["`taken`", "another definition"]);
}
