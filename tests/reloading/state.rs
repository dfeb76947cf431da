//! What keeps its place: global, `static` and thread-local variables. New variables.

use crate::*;

#[test]
fn variables_keep_their_addresses_and_values() {
    let source = |step: u32, start: u32| {
        format!(
            "long shown = {start}; static long hidden = {start}; static long zero; long common[4];
             long *address(void) {{ return &hidden; }}
             long run(void) {{ static long inner = {start}; shown += {step}; hidden += {step}; inner += {step}; zero += {step};
                common[1] += {step}; return shown + hidden + inner + zero + common[1]; }}"
        )
    };
    let (Some(one), Some(two)) = (c(&source(1, 100)), c(&source(10, 500))) else { return };
    let program = Program::new(&[("a.o", &one)]);
    let address = program.call("address");
    assert_eq!(program.call("run"), 305);
    let reload = program.reload("a.o", &two);
    // The new initial value changes nothing.
    assert_eq!((program.call("run"), program.call("address")), (355, address));
    assert!(!reload.stays);
}

#[test]
fn a_section_of_variables_stays_whole_without_data_sections() {
    let source = |step: u32| {
        format!(
            "static long many[3] = {{ 1, 2, 3 }}; static long one = 4; static long zeroes[2];
             long run(void) {{ long sum = 0; for (long *at = many; at < many + 3; at++) {{ sum += *at; *at += {step}; }}
                zeroes[1] += {step}; return sum + one + zeroes[1]; }}"
        )
    };
    let compile = |step| support::gcc(&["-O2", "-fPIC"], &source(step));
    let (Some(one), Some(two)) = (compile(1), compile(100)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    assert_eq!(program.call("run"), 11);
    drop(program.reload("a.o", &two));
    assert_eq!((program.call("run"), program.call("run")), (9 + 4 + 101, 309 + 4 + 201));
}

#[test]
fn static_variables_of_functions_are_known_though_their_numbers_change() {
    let count = "long count(void) { static long n; return ++n; }";
    let other = "long other(void) { static long m = 5; return ++m; }";
    let (Some(one), Some(two)) = (c(count), c(&format!("{other} {count}"))) else { return };
    let program = Program::new(&[("a.o", &one)]);
    assert_eq!(program.call("count"), 1);
    let reload = program.reload("a.o", &two);
    assert_eq!((reload.diff.new_variables, reload.stays), (vec!["m".to_string()], true));
    assert_eq!((program.call("count"), program.call("other")), (2, 6));
}

#[test]
fn a_static_variable_and_a_static_constant_of_one_name_are_told_apart() {
    let source = |number: u32| {
        c(&format!(
            "static volatile long zero;
             long count(void) {{ static long table[2] = {{ 5, 6 }}; return ++table[zero]; }}
             long read(void) {{ static const long table[2] = {{ {number}, 8 }}; return table[zero]; }}"
        ))
    };
    let (Some(one), Some(two)) = (source(70), source(80)) else { return };
    let program = Program::new(&[("a.o", &one)]);
    assert_eq!((program.call("count"), program.call("read")), (6, 70));
    drop(program.reload("a.o", &two));
    assert_eq!((program.call("count"), program.call("read")), (7, 80));
}

#[test]
fn static_variables_of_one_name_are_told_apart_by_their_functions() {
    let function = |name: &str| format!("long {name}(void) {{ static long n; return ++n; }}");
    let (f, g, h) = (function("f"), function("g"), function("h"));
    let (Some(one), Some(two)) = (c(&format!("{f} {g}")), c(&format!("{h} {g} {f}"))) else { return };
    let program = Program::new(&[("a.o", &one)]);
    assert_eq!((program.call("f"), program.call("f"), program.call("g")), (1, 2, 1));
    drop(program.reload("a.o", &two));
    assert_eq!((program.call("f"), program.call("g"), program.call("h")), (3, 2, 1));
}

#[test]
fn a_static_variable_of_a_cpp_function_is_constructed_once() {
    let source = |step: u32| {
        format!(
            "struct Counter {{ long value; Counter(long start) : value(start) {{}} }}; extern \"C\" long start();
             extern \"C\" long run() {{ static Counter counter(start()); return counter.value += {step}; }}"
        )
    };
    let start = "extern \"C\" long start() { static long starts; return ++starts * 100; }";
    let (Some(one), Some(two), Some(start)) = (cpp(&source(1)), cpp(&source(10)), cpp(start)) else { return };
    let program = Program::new(&[("a.o", &one), ("start.o", &start)]);
    assert_eq!(program.call("run"), 101);
    drop(program.reload("a.o", &two));
    assert_eq!(program.call("run"), 111);
}

#[test]
fn thread_local_variables_keep_their_values() {
    let source = |step: u32| format!("__thread long shown = 5; long run(void) {{ shown += {step}; return shown; }}");
    let (Some(one), Some(two)) = (c(&source(1)), c(&source(10))) else { return };
    let program = Program::new(&[("a.o", &one)]);
    assert_eq!(program.call("run"), 6);
    drop(program.reload("a.o", &two));
    let of_thread = std::thread::scope(|threads| threads.spawn(|| program.call("run")).join().unwrap());
    assert_eq!((program.call("run"), of_thread), (16, 15));
}

#[test]
fn new_variables_are_initialised_and_found_by_other_objects() {
    let (Some(main), Some(main_new), Some(one), Some(two)) = (
        c("long run(void) { return 0; }"),
        c("extern long fresh; long run(void) { return ++fresh; }"),
        c("long get(void) { return 0; }"),
        c(
            "static long table[2] = { 3, 4 }; long fresh = 7; long *at = &table[1]; long get(void) { return fresh + *at; }",
        ),
    ) else {
        return;
    };
    let program = Program::new(&[("main.o", &main), ("a.o", &one)]);
    let reload = program.reload("a.o", &two);
    assert_eq!(reload.diff.new_variables, ["at", "fresh", "table"]);
    drop(program.reload("main.o", &main_new));
    assert_eq!((program.call("run"), program.call("get")), (8, 12));
}

#[test]
fn a_variable_that_comes_back_has_its_old_value() {
    let (Some(with), Some(without)) =
        (c("static long kept; long run(void) { return ++kept; }"), c("long run(void) { return 0; }"))
    else {
        return;
    };
    let program = Program::new(&[("a.o", &with)]);
    assert_eq!(program.call("run"), 1);
    assert_eq!(program.reload("a.o", &without).diff.removed_variables, ["kept"]);
    drop(program.reload("a.o", &with));
    assert_eq!(program.call("run"), 2);
}

#[test]
fn constructors_and_destructors_do_not_run_again() {
    let source = |step: u32| {
        format!(
            "static long runs; struct Once {{ Once() {{ runs += 1; }} ~Once() {{ runs += 100; }} }}; static Once once;
             extern \"C\" long run() {{ return runs + {step}; }}"
        )
    };
    let (Some(one), Some(two)) = (cpp(&source(10)), cpp(&source(20))) else { return };
    let program = Program::new(&[("a.o", &one)]);
    assert_eq!(program.call("run"), 11);
    drop(program.reload("a.o", &two));
    assert_eq!(program.call("run"), 21);
}
