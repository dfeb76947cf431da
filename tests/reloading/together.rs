//! Objects that are reloaded together: all of them follow, or none.

use crate::*;

/// The objects `a.o` and `b.o`, and their new versions.
fn pair(one: [&str; 2], two: [&str; 2]) -> Option<(Program, [Vec<u8>; 2])> {
    let [a1, b1] = one.map(c);
    let [a2, b2] = two.map(c);
    let program = Program::new(&[("a.o", &a1?), ("b.o", &b1?)]);
    Some((program, [a2?, b2?]))
}

fn named(objects: &[Vec<u8>; 2]) -> [(&str, &[u8]); 2] {
    [("a.o", &objects[0]), ("b.o", &objects[1])]
}

#[test]
fn a_signature_changes_in_caller_and_callee() {
    let one = ["long step(long n) { return n + 1; }", "long step(long n); long run(void) { return step(1); }"];
    let two = [
        "double step(double n, long *count) { ++*count; return n / 2; }",
        "double step(double n, long *count); long run(void) { long count = 0; return step(8, &count) * 10 + count; }",
    ];
    let Some((program, new)) = pair(one, two) else { return };
    assert_eq!(program.call("run"), 2);
    let reloads = program.reload_all(&named(&new));
    assert_eq!(program.call("run"), 41);
    let facts: Vec<_> = reloads.iter().map(|reload| (reload.object.as_str(), reload.version)).collect();
    assert_eq!(facts, [("a.o", 1), ("b.o", 2)]);
    assert!(reloads.iter().all(|reload| reload.diff.changed.len() == 1));
}

/// An object that needs a new function, a new variable and a new constant of another object, and defines three.
fn of_ring(own: &str, other: &str, sum: &str) -> String {
    format!(
        "extern long {other}_variable; extern const long {other}_constant; long {other}_function(void);
         extern const long {own}_constant; long {own}_variable = 100; const long {own}_constant = 20;
         long {own}_function(void) {{ return 3; }}
         long {own}_run(void) {{ return {sum}; }}"
    )
}

const SUM: &str = "other_variable + other_constant + other_function()";

#[test]
fn objects_need_new_definitions_of_each_other() {
    let one = ["long a_run(void) { return 1; }", "long b_run(void) { return 2; }"];
    let (a, b) = (of_ring("a", "b", &SUM.replace("other", "b")), of_ring("b", "a", &SUM.replace("other", "a")));
    let Some((program, new)) = pair(one, [&a, &b]) else { return };
    program.refused("a.o", &new[0], &["b_"]);
    program.refused("b.o", &new[1], &["a_"]);
    drop(program.reload_all(&named(&new)));
    assert_eq!((program.call("a_run"), program.call("b_run")), (123, 123));
    // Each follows alone afterwards, and reads what the other one brought.
    let Some(next) = c(&of_ring("a", "b", "1000 + b_variable + b_constant + b_function()")) else { return };
    drop(program.reload("a.o", &next));
    assert_eq!((program.call("a_run"), program.call("b_run")), (1123, 123));
}

#[test]
fn constants_of_each_other_keep_no_chain_of_versions() {
    let one = ["long a_run(void) { return 1; }", "long b_run(void) { return 2; }"];
    let (a, b) = (of_ring("a", "b", &SUM.replace("other", "b")), of_ring("b", "a", &SUM.replace("other", "a")));
    let Some((program, new)) = pair(one, [&a, &b]) else { return };
    drop(program.reload_all(&named(&new)));
    let edited = |own: &str, other: &str, number: u32| {
        c(&of_ring(own, other, &format!("{number} + {}", SUM.replace("other", other))))
    };
    let Some(edits) = (0..2).map(|n| Some([edited("a", "b", n)?, edited("b", "a", n)?])).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let mut held = Vec::new();
    for round in 0..20 {
        let [a, b] = &edits[round % 2];
        drop((program.reload("a.o", a), program.reload("b.o", b)));
        assert_eq!(program.call("a_run"), 123 + (round % 2) as i64);
        held.push(support::held(&program.jit));
    }
    assert_eq!(held[18..], held[4..6]);
}

#[test]
fn if_one_is_refused_none_follows() {
    let one = [
        "static long kept[2]; long a_run(void) { return 1 + kept[1]++ * 0; }",
        "long a_run(void); long b_run(void) { return a_run() + 10; }",
    ];
    let good = "static long kept[2]; long a_new = 5; long a_run(void) { return 2 + kept[1]++ * 0; }";
    let bad = [
        ("long a_run(void); long missing(void); long b_run(void) { return a_run() + missing(); }", "missing"),
        ("long a_new = 6; long a_run(void); long b_run(void) { return a_run() + a_new; }", "a.o defines this name too"),
        ("long a_run(void) { return 3; } long b_run(void) { return a_run(); }", "a.o defines this name too"),
        ("extern long missing; long a_run(void); long b_run(void) { return a_run() + missing; }", "missing"),
    ];
    let Some((program, [good, _])) = pair(one, [good, "long b_run(void) { return 0; }"]) else { return };
    for (bad, says) in bad {
        let Some(bad) = c(bad) else { return };
        for order in [[("a.o", &*good), ("b.o", &*bad)], [("b.o", &*bad), ("a.o", &*good)]] {
            let says = if order[0].0 == "b.o" { says.replace("a.o", "b.o") } else { says.to_string() };
            program.all_refused(&order, &[&says]);
        }
        assert_eq!((program.call("a_run"), program.call("b_run")), (1, 11));
    }
    program.all_refused(&[("a.o", &good), ("b.o", b"no object")], &["b.o"]);
    program.all_refused(&[("a.o", &good), ("c.o", &good)], &["c.o", "no object of this name"]);
    program.all_refused(&[("a.o", &good), ("a.o", &good)], &["a.o", "given twice"]);
    assert_eq!((program.call("a_run"), program.call("b_run")), (1, 11));
    // Alone, the good one follows.
    drop(program.reload("a.o", &good));
    assert_eq!(program.call("b_run"), 12);
}

#[test]
fn three_objects_define_each_name_once() {
    let source = |name: &str, more: &str| c(&format!("long {name}_run(void) {{ return 1; }} {more}"));
    let names = ["a", "b", "c"];
    let build = |more: [&str; 3]| -> Option<Vec<Vec<u8>>> {
        names.iter().zip(more).map(|(name, more)| source(name, more)).collect()
    };
    let new = "long new(void) { return 5; }";
    let (Some(one), Some(twice), Some(once)) = (
        build([""; 3]),
        build([new, "long between(void) { return 0; }", new]),
        build(["", new, "int other(void) { return 7; }"]),
    ) else {
        return;
    };
    fn files(objects: &[Vec<u8>]) -> Vec<(&'static str, &[u8])> {
        ["a.o", "b.o", "c.o"].into_iter().zip(objects.iter().map(Vec::as_slice)).collect()
    }
    let program = Program::new(&files(&one));
    program.all_refused(&files(&twice), &["c.o", "`new`", "a.o defines this name too"]);
    drop(program.reload_all(&files(&once)));
    assert_eq!(program.call("new"), 5);
}

#[test]
fn a_changed_constant_follows_with_the_objects_that_read_it() {
    let source = |value: u32| format!("extern const long limit; const long limit = {value};");
    let reader = |more: u32| format!("extern const long limit; long run(void) {{ return limit + {more}; }}");
    let Some((program, new)) = pair([&source(1), &reader(0)], [&source(2), &reader(10)]) else { return };
    program.refused("a.o", &new[0], &["`limit`", "another object reads"]);
    drop(program.reload_all(&named(&new)));
    assert_eq!(program.call("run"), 12);
    // The reader is given, but does not change.
    let Some(third) = c(&source(3)) else { return };
    program.all_refused(&[("a.o", &third), ("b.o", &new[1])], &["`limit`", "another object reads"]);
    assert_eq!(program.call("run"), 12);
}

#[test]
fn functions_and_variables_move_between_objects() {
    let moved = "long count = 1; long next(void) { return count++; }";
    let user = "long next(void); extern long count; long run(void) { return next() * 10 + count; }";
    let Some((program, new)) = pair([moved, user], ["long other(void) { return 5; }", &format!("{moved} {user}")])
    else {
        return;
    };
    assert_eq!(program.call("run"), 12);
    // Alone, it would have a function of another object.
    program.refused("b.o", &new[1], &["`next`", "a.o defines a function of this name"]);
    drop(program.reload_all(&named(&new)));
    // The variable has its value.
    assert_eq!((program.call("run"), program.call("other")), (23, 5));
}

#[test]
fn a_new_inline_variable_of_both_is_one() {
    let source = |name: &str, more: &str| {
        cpp(&format!(
            "{more} extern \"C\" long {name}() {{ return {}; }}",
            if more.is_empty() { "0" } else { "++shared" }
        ))
    };
    let shared = "inline long shared = 40;";
    let (Some(a), Some(b), Some(a2), Some(b2)) =
        (source("a_run", ""), source("b_run", ""), source("a_run", shared), source("b_run", shared))
    else {
        return;
    };
    let program = Program::new(&[("a.o", &a), ("b.o", &b)]);
    drop(program.reload_all(&[("a.o", &a2), ("b.o", &b2)]));
    assert_eq!((program.call("a_run"), program.call("b_run"), program.call("a_run")), (41, 42, 43));
}

#[test]
fn objects_that_did_not_change_are_not_linked() {
    let one = ["long a_run(void) { return 1; }", "long b_run(void) { return 2; }"];
    let Some((program, new)) = pair(one, [one[0], "long b_run(void) { return 3; }"]) else { return };
    let reloads = program.reload_all(&named(&new));
    let facts: Vec<_> = reloads.iter().map(|reload| (reload.version, reload.diff.is_empty())).collect();
    assert_eq!(facts, [(0, true), (1, false)]);
    assert_eq!(program.call("b_run"), 3);
    let versions: Vec<_> = program.reload_all(&named(&new)).iter().map(|reload| reload.version).collect();
    assert_eq!(versions, [0, 1]);
    assert!(program.reload_all(&[]).is_empty());
}

#[test]
fn replaced_versions_are_freed_one_by_one() {
    let source = |name: &str, value: u32| format!("long {name}(void) {{ return {value}; }}");
    let Some((program, second)) = pair([&source("a", 1), &source("b", 1)], [&source("a", 2), &source("b", 2)]) else {
        return;
    };
    drop(program.reload_all(&named(&second)));
    let Some(third) = c(&source("a", 3)) else { return };
    let reload = program.reload("a.o", &third);
    assert_eq!((reload.retired.len(), reload.retired_in_memory), (1, 0));
    assert_eq!((program.call("a"), program.call("b")), (3, 2));
}
