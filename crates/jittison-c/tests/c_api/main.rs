//! The C API, used by C programs: one program for each area, in `tests/c`. Each checks its own results.
//!
//! | file | holds |
//! |---|---|
//! | this file | the tests of areas |
//! | `areas.rs` | the programs, and the objects that they link |
//! | `header.rs` | the header is good C and C++, and declares what the library exports |
//! | `installed.rs` | the installed package is used by another project |
//! | `tools.rs` | gdb and perf know linked functions |
//! | `building.rs` | how a program is compiled against the library and run |

mod areas;
mod building;
mod header;
mod installed;
mod tools;

use std::path::PathBuf;

use areas::*;
use building::{Language, Program, succeed};
use jittison_test_tools::{PrivateDir, c, cpp, require, rounds};

#[test]
fn objects_are_linked_and_called() {
    LINKING.passes();
}

#[test]
fn a_removal_frees_code_when_its_last_handle_is_released() {
    REMOVAL.passes();
}

#[test]
fn a_guard_keeps_what_its_thread_found() {
    GUARDS.passes();
}

#[test]
fn a_refused_call_is_an_error_with_a_code_and_a_place() {
    REFUSALS.passes();
}

#[test]
fn system_calls_that_the_kernel_refuses_are_errors_or_have_a_fallback() {
    REFUSED_CALLS.passes();
}

#[test]
fn programs_run_and_memory_is_measured() {
    let Some(map) = PROGRAMS.passes() else { return };
    let Some(mut python) = require("python3") else { return };
    let file = PrivateDir::new();
    succeed(python.args(["-m", "json.tool"]).arg(file.write("map.json", map)));
}

#[test]
fn names_are_redirected_and_functions_are_patched() {
    REDIRECTION.passes();
}

#[test]
fn objects_are_replaced_while_their_program_runs() {
    RELOADING.passes();
}

#[test]
fn symbols_are_found_pinned_and_supplied() {
    SYMBOLS.passes();
}

#[test]
fn graphs_are_made_by_hand_and_linked() {
    GRAPHS.passes();
}

#[test]
fn functions_are_compiled_at_their_first_call_and_in_tiers() {
    COMPILERS.passes();
}

#[test]
fn plugins_see_and_change_and_refuse_links() {
    PLUGINS.passes();
}

#[test]
fn embedders_map_memory_observe_and_answer_for_lazy_functions() {
    SERVICES.passes();
}

#[test]
fn embedders_own_resources_and_supply_symbols() {
    CUSTOM.passes();
}

#[test]
fn threads_share_handles_and_one_of_them_releases_each() {
    THREADS.passes();
}

/// Without the programs that replace functions of the C library, as valgrind does.
#[test]
fn no_area_leaks() {
    let areas = [
        LINKING,
        REMOVAL,
        GUARDS,
        REFUSALS,
        REDIRECTION,
        RELOADING,
        SYMBOLS,
        GRAPHS,
        COMPILERS,
        PLUGINS,
        SERVICES,
        CUSTOM,
    ];
    areas.iter().for_each(Area::leaks_nothing);
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
fn cpp_owners_release_what_they_own_and_leak_nothing() {
    let Some(program) = Program::compile("owners", Language::Cpp) else { return };
    let via = c("long one(void); long via(void) { return one() + 1; }");
    let (Some(one), Some(via), Some(eleven)) = (c(ONE), via, c("long one(void) { return 11; }")) else { return };
    let directory = &program.directory;
    let paths =
        [("one.o", one), ("via.o", via), ("eleven.o", eleven)].map(|(name, bytes)| directory.write(name, bytes));
    program.run(&paths);
    let Some(mut valgrind) = require("valgrind") else { return };
    succeed(valgrind.args(VALGRIND).arg(program.path()).args(paths));
}
