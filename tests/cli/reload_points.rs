//! Reload points under `jittison watch`: programs whose `main` does not return, and whose replaced versions are freed.

use crate::watch::Watched;

/// What a program says of reload points, with `crates/jittison-c/include/jittison_reload.h`.
const HEADER: &str = include_str!("../../crates/jittison-c/include/jittison_reload.h");

/// A `main` that calls `step` for each line, and then passes `point`.
fn main_with(point: &str) -> String {
    format!(
        "{HEADER}
#include <stdio.h>
long step(long n);
int main(void) {{
    char line[64];
    for (long n = 1; fgets(line, sizeof line, stdin) && line[0] != 'q'; n++) {{
        long result = step(n);
        {point}
        printf(\"%ld\\n\", result);
        fflush(stdout);
    }}
    return 7;
}}"
    )
}

fn step(number: usize) -> String {
    format!("long step(long n) {{ return {number}; }}")
}

/// Starts a program of `main.o` and `step.o`.
fn start(main: &str) -> Watched {
    Watched::start_main(&[], main, &[("step", &step(0))])
}

/// Reloads `step.o`, and calls it. Returns how many replaced versions were in memory when it was replaced.
fn reload(program: &mut Watched, number: usize) -> u64 {
    program.write("step", &step(number));
    let event = program.event();
    assert_eq!(event["event"], "reloaded", "{event}");
    assert_eq!(program.ask(), number.to_string());
    event["replaced_in_memory"].as_u64().expect("an event has the number")
}

#[test]
fn replaced_versions_are_freed_when_main_passes_a_reload_point() {
    let mut program = start(&main_with("jittison_reload_point();"));
    for number in 1..=50 {
        // The one before is in memory until `main` has passed.
        assert!(reload(&mut program, number) <= 1);
    }
    assert_eq!(program.end().0, Some(7));
}

#[test]
fn without_a_reload_point_replaced_versions_stay() {
    let mut program = start(&main_with(""));
    for number in 1..=5 {
        // Version 0 is the program.
        assert_eq!(reload(&mut program, number), number as u64 - 1);
    }
    assert_eq!(program.end().0, Some(7));
}

#[test]
fn in_an_executor_a_reload_point_does_nothing() {
    let main = main_with("jittison_reload_point();");
    let mut program = Watched::start_main(&["--executor"], &main, &[("step", &step(0))]);
    for number in 1..=3 {
        assert_eq!(reload(&mut program, number), number as u64 - 1);
    }
    assert_eq!(program.end().0, Some(7));
}
