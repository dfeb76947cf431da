//! The C API, used by C programs: one program for each area, in `tests/c`. Each checks its own results.
//!
//! | file | holds |
//! |---|---|
//! | this file | the programs, and the objects that they link |
//! | `header.rs` | the header is good C and C++, and declares what the library exports |
//! | `installed.rs` | the installed package is used by another project |
//! | `building.rs` | how a program is compiled against the library and run |

mod building;
mod header;
mod installed;

use std::path::PathBuf;

use building::{Language, Program, succeed};
use jittison_test_tools::{PrivateDir, c, cpp, require, rounds};

const ONE: &str = "long one(void) { return 1; }";

/// Compiles `tests/c/NAME.c`, and runs it with the objects as files. Returns what it prints, unless a compiler is missing.
fn passes(name: &str, objects: &[(&str, &str)]) -> Option<String> {
    let program = Program::compile(name, Language::C)?;
    let mut paths = Vec::new();
    for (file, source) in objects {
        paths.push(program.directory.write(file, c(source)?));
    }
    Some(program.run(&paths))
}

#[test]
fn objects_are_linked_and_called() {
    let first = format!("{ONE} long one_more(void); long host(void); long via(void) {{ return one_more() + host(); }}");
    passes("linking", &[("first.o", &first), ("second.o", "long one_more(void) { return 2; }")]);
}

#[test]
fn a_removal_frees_code_when_its_last_handle_is_released() {
    passes("removal", &[("one.o", ONE)]);
}

#[test]
fn a_guard_keeps_what_its_thread_found() {
    passes("guards", &[("one.o", ONE)]);
}

#[test]
fn a_refused_call_is_an_error_with_a_code_and_a_place() {
    passes(
        "refusals",
        &[("one.o", ONE), ("needs.o", "long nowhere(void); long needs(void) { return nowhere() + 1; }")],
    );
}

#[test]
fn programs_run_and_memory_is_measured() {
    let state = "static long state; __attribute__((constructor)) static void set(void) { state = 5; }
                 long read_state(void) { return state; }";
    let main = "int main(int argc, char **argv) { return 40 + argc + (argv[argc] != 0); }";
    let Some(map) = passes("programs", &[("state.o", state), ("main.o", main)]) else { return };
    let Some(mut python) = require("python3") else { return };
    let file = PrivateDir::new();
    succeed(python.args(["-m", "json.tool"]).arg(file.write("map.json", map)));
}

#[test]
fn names_are_redirected_and_functions_are_patched() {
    let first = "int calls; long number(void) { calls++; return 10; }";
    let second = "int calls; long number(void) { calls++; return 19 + calls; }";
    passes("redirection", &[("one.o", ONE), ("first.o", first), ("second.o", second), ("other.o", "int other;")]);
}

/// With `JITTISON_FULL` there are a million.
#[test]
fn random_calls_on_forged_and_stale_handles_are_errors() {
    let Some(program) = Program::compile("fuzz", Language::C) else { return };
    let Some(object) = c(ONE) else { return };
    let calls = rounds(1_000_000);
    let object = program.directory.write("one.o", object);
    let output = program.run(&[PathBuf::from(calls.to_string()), PathBuf::from("1"), object]);
    print!("{output}");
}

#[test]
fn cpp_programs_own_handles_and_see_exceptions_of_linked_code() {
    let Some(program) = Program::compile("raii", Language::Cpp) else { return };
    let Some(add) = c("int host(void); int add(int a, int b) { return a + b + host(); }") else { return };
    let throws =
        "__attribute__((constructor)) static void start() { throw 7; } extern \"C\" int unlucky() { return 1; }";
    let Some(throws) = cpp(throws) else { return };
    let directory = &program.directory;
    program.run(&[directory.write("add.o", add), directory.write("throws.o", throws)]);
}

#[test]
fn embedders_own_resources_and_supply_symbols() {
    let via = "long supplied(void); long computed(void); long via(void) { return supplied() + computed(); }";
    passes("custom", &[("via.o", via)]);
}

#[test]
fn threads_share_handles_and_one_of_them_releases_each() {
    passes("threads", &[("one.o", ONE)]);
}
