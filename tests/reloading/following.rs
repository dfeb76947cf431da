//! What follows a reload: functions, their addresses, constants.

use crate::*;

#[test]
fn a_function_follows_at_the_next_call_of_every_object() {
    let (Some(main), Some(one), Some(two)) = (
        c("long step(void); long run(void) { return 10 * step(); }"),
        c("long step(void) { return 1; }"),
        c("long step(void) { return 2; }"),
    ) else {
        return;
    };
    let program = Program::new(&[("main.o", &main), ("step.o", &one)]);
    assert_eq!(program.call("run"), 10);
    let reload = program.reload("step.o", &two);
    assert_eq!((reload.diff.changed, reload.version), (vec!["step".to_string()], 1));
    assert_eq!((program.call("run"), program.call("step")), (20, 2));
}

#[test]
fn a_global_function_follows_in_calls_of_its_own_object() {
    // The frame of `run` is of version 1, and calls through the stub.
    let source = |result: u32| {
        format!(
            "long step(void) {{ return {result}; }}
             long run(void (*between)(void)) {{ long before = step(); between(); return 10 * before + step(); }}"
        )
    };
    let (Some(one), Some(two)) = (c(&source(1)), c(&source(2))) else { return };
    let program = Program::new(&[("a.o", &one)]);
    let run = support::function::<extern "C" fn(extern "C" fn()) -> i64>(&program.jit, "run");
    thread_local! {
        static RELOAD: std::cell::RefCell<Option<Box<dyn FnOnce()>>> = const { std::cell::RefCell::new(None) };
    }
    extern "C" fn between() {
        RELOAD.take().unwrap()();
    }
    let program = std::rc::Rc::new(program);
    let reloads = program.clone();
    RELOAD.set(Some(Box::new(move || drop(reloads.reload("a.o", &two)))));
    assert_eq!(run.call(between), 12);
}

#[test]
fn a_static_function_follows_with_its_callers() {
    let source = |result: u32| {
        format!(
            "__attribute__((noinline)) static long hidden(void) {{ return {result}; }} long run(void) {{ return hidden(); }}"
        )
    };
    let (Some(one), Some(two)) = (c(&source(1)), c(&source(2))) else { return };
    let program = Program::new(&[("a.o", &one)]);
    let reload = program.reload("a.o", &two);
    assert_eq!((program.call("run"), reload.diff.changed), (2, vec!["hidden".to_string()]));
}

#[test]
fn addresses_of_functions_in_variables_follow() {
    let source = |result: u32| {
        format!(
            "static long hidden(void) {{ return {result}; }}
             long shown(void) {{ return 10 * {result}; }}
             long (*table[])(void) = {{ hidden, shown }};
             static long (*taken)(void);
             void take(void) {{ taken = hidden; }}
             long run(void) {{ return table[0]() + table[1]() + 100 * (taken ? taken() : 0); }}"
        )
    };
    let (Some(one), Some(two)) = (c(&source(1)), c(&source(2))) else { return };
    let program = Program::new(&[("a.o", &one)]);
    support::function::<extern "C" fn()>(&program.jit, "take").call();
    assert_eq!(program.call("run"), 111);
    drop(program.reload("a.o", &two));
    assert_eq!(program.call("run"), 222);
}

#[test]
fn an_address_without_a_relocation_stays_at_the_old_code() {
    // On AArch64 each address has a relocation.
    if !support::require_x86_64() {
        return;
    }
    // Without -ffunction-sections the assembler computes the address of a `static` function itself.
    let source = |result: u32| {
        format!(
            "static long hidden(void) {{ return {result}; }} static long (*volatile taken)(void);
             void take(void) {{ taken = hidden; }} long run(void) {{ return taken(); }}"
        )
    };
    let compile = |result| support::gcc(&["-O1", "-fPIC"], &source(result));
    let (Some(one), Some(two)) = (compile(1), compile(2)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    support::function::<extern "C" fn()>(&program.jit, "take").call();
    // The first version stays in memory, so the address is valid.
    drop(program.reload("a.o", &two));
    assert_eq!(program.call("run"), 1);
}

#[test]
fn virtual_functions_follow_in_objects_that_exist() {
    let source = |result: u32| {
        format!(
            "struct Shape {{ virtual long area() {{ return {result}; }} virtual ~Shape() {{}} }};
             static Shape *shape;
             extern \"C\" void make() {{ shape = new Shape; }}
             extern \"C\" long run() {{ Shape *volatile it = shape; return it->area(); }}"
        )
    };
    let (Some(one), Some(two)) = (cpp(&source(1)), cpp(&source(2))) else { return };
    let program = Program::new(&[("a.o", &one)]);
    support::function::<extern "C" fn()>(&program.jit, "make").call();
    assert_eq!(program.call("run"), 1);
    let reload = program.reload("a.o", &two);
    assert_eq!(reload.diff.changed, ["_ZN5Shape4areaEv"]);
    assert_eq!(program.call("run"), 2);
}

#[test]
fn a_lambda_that_was_stored_stays_as_it_was() {
    let source = |lambdas: &str| {
        format!(
            "static long (*stored)(); extern \"C\" void store() {{ {lambdas} }} extern \"C\" long run() {{ return stored(); }}"
        )
    };
    let one = "stored = []() { return 1L; };";
    // The lambda that was the first is the second now.
    let two = "stored = []() { return 2L; }; stored = []() { return 1L; };";
    let (Some(one), Some(two)) = (cpp(&source(one)), cpp(&source(two))) else { return };
    let program = Program::new(&[("a.o", &one)]);
    let store = support::function::<extern "C" fn()>(&program.jit, "store");
    store.call();
    drop(program.reload("a.o", &two));
    assert_eq!(program.call("run"), 1);
    store.call();
    assert_eq!(program.call("run"), 1);
}

#[test]
fn inline_functions_follow_the_object_that_was_reloaded_last() {
    let source = |name: &str, result: u32| {
        format!(
            "inline __attribute__((noinline)) long shared() {{ return {result}; }} extern \"C\" long {name}() {{ return shared(); }}"
        )
    };
    let (Some(a), Some(b), Some(new)) = (cpp(&source("a", 1)), cpp(&source("b", 1)), cpp(&source("b", 2))) else {
        return;
    };
    let program = Program::new(&[("a.o", &a), ("b.o", &b)]);
    assert_eq!((program.call("a"), program.call("b")), (1, 1));
    drop(program.reload("b.o", &new));
    assert_eq!((program.call("a"), program.call("b")), (2, 2));
}

#[test]
fn constants_follow() {
    let source = |text: &str, number: u32| {
        format!(
            "static const int table[] = {{ 7, {number}, 9 }};
             const char *text(void) {{ return \"{text}\"; }}
             long run(void) {{ volatile int at = 1; return table[at] + text()[0]; }}"
        )
    };
    let (Some(one), Some(two)) = (c(&source("a", 100)), c(&source("b", 200))) else { return };
    let program = Program::new(&[("a.o", &one)]);
    assert_eq!(program.call("run"), 100 + i64::from(b'a'));
    let reload = program.reload("a.o", &two);
    assert!(reload.diff.constants_changed);
    assert_eq!(program.call("run"), 200 + i64::from(b'b'));
}

#[test]
fn exceptions_pass_from_one_version_to_another() {
    let thrower = |value: u32| format!("extern \"C\" long thrower() {{ throw {value}L; }}");
    let catcher = "extern \"C\" long thrower(); extern \"C\" long run() { try { return thrower(); } catch (long value) { return value; } }";
    let (Some(one), Some(two), Some(catcher)) = (cpp(&thrower(1)), cpp(&thrower(2)), cpp(catcher)) else { return };
    let program = Program::new(&[("t.o", &one), ("c.o", &catcher)]);
    assert_eq!(program.call("run"), 1);
    drop(program.reload("t.o", &two));
    assert_eq!(program.call("run"), 2);
}

#[test]
fn functions_come_and_go() {
    let (Some(main), Some(first), Some(one), Some(both)) = (
        c("long old(void); long run(void) { return old(); }"),
        c("long old(void); long new(void); long run(void) { return old() + new(); }"),
        c("long old(void) { return 1; }"),
        c("long new(void) { return 20; }"),
    ) else {
        return;
    };
    let program = Program::new(&[("main.o", &main), ("a.o", &one)]);
    let reload = program.reload("a.o", &both);
    assert_eq!((reload.diff.added, reload.diff.removed), (vec!["new".to_string()], vec!["old".to_string()]));
    // The last version of a function that is gone still runs, and other objects find the new one.
    assert_eq!(program.call("run"), 1);
    drop(program.reload("main.o", &first));
    assert_eq!(program.call("run"), 21);
}

#[test]
fn a_static_constant_is_not_that_of_another_object() {
    let own = |value: u32| {
        c(&format!(
            "static volatile long zero; static const long limit[2] = {{ {value}, 9 }}; long get(void) {{ return limit[zero]; }}"
        ))
    };
    let shared = c("extern const long limit; const long limit = 5;");
    let reader = c("extern const long limit; long run(void) { return limit; }");
    let (Some(one), Some(two), Some(shared), Some(reader)) = (own(1), own(2), shared, reader) else { return };
    let program = Program::new(&[("a.o", &one), ("shared.o", &shared), ("reader.o", &reader)]);
    drop(program.reload("a.o", &two));
    assert_eq!((program.call("get"), program.call("run")), (2, 5));
}

#[test]
fn a_constant_that_changed_before_it_was_read_is_read_as_it_is_now() {
    let source = |value: u32| {
        c(&format!("extern const long limit; const long limit = {value}; long get(void) {{ return limit; }}"))
    };
    let reader = |what: &str| c(&format!("extern const long limit; long run(void) {{ return {what}; }}"));
    let (Some(one), Some(two), Some(other), Some(reader)) = (source(1), source(2), reader("0"), reader("limit")) else {
        return;
    };
    let program = Program::new(&[("a.o", &one), ("reader.o", &other)]);
    drop(program.reload("a.o", &two));
    drop(program.reload("reader.o", &reader));
    assert_eq!(program.call("run"), 2);
    // One that never changed.
    let program = Program::new(&[("a.o", &one), ("reader.o", &other)]);
    drop(program.reload("reader.o", &reader));
    assert_eq!(program.call("run"), 1);
}
