//! Checks that the source tree is what `DESIGN.md` says.
//!
//! The floor table of `DESIGN.md` gives every room of `src/` a floor, the rooms that it may import and whether it may hold
//! `unsafe` code. A second table orders the sub-rooms of a room. The tests in this file walk the tree and fail with one line for
//! each fault: where it is, what is wrong and how to mend it. `inspect.rs` and `cycles.rs` hold the inspectors, which work on
//! plain text. `seen.rs` tests each inspector with a bad snippet.
//!
//! Source is read as text, not as syntax: macros are not expanded, and a path counts as written.

mod cycles;
mod inspect;
mod orderings;
mod reading;
mod seen;
mod table;
mod tree;

use std::collections::BTreeSet;
use std::fs;

use inspect::*;
use table::{SubRoom, sub_rooms};
use tree::*;

const LONGEST_FILE: usize = 700;
/// External crates that a room may name only if its imports cell lists them.
const FENCED_CRATES: [&str; 10] =
    ["libc", "memmap2", "rustix", "rustls", "object", "gimli", "iced_x86", "tracing", "landlock", "seccompiler"];
/// What the rooms above `host` may name of it: the trait `Executor`, its handles, values, and typed calls.
const HOST_NAMES: [&str; 49] = [
    "ReloadHooks",
    "ThreadHooks",
    "WalkFn",
    "Executor",
    "InProcess",
    "ExecutorHandle",
    "ThreadLocalBlock",
    "HandlerScope",
    "ProcessExitHook",
    "LazyEntries",
    "CodeDumpFile",
    "NameMapFile",
    "ProcessSymbol",
    "ProgramSymbol",
    "ProgramImage",
    "ImageObject",
    "ImageSymbol",
    "ImageSymbolKind",
    "CodeWrite",
    "StaticTls",
    "Stamp",
    "LazyTarget",
    "LazyFunction",
    "CodeKeepAlive",
    "ExecutorResource",
    "ExitHookFn",
    "HandlerFunctions",
    "KeepAliveFn",
    "LoaderFunction",
    "NativeProgram",
    "CallRegisters",
    "CallShape",
    "CallbackTarget",
    "HostFunction",
    "MAX_RESULT",
    "MAX_STACK_WORDS",
    "PassedCall",
    "RemoteCalls",
    "RemoteHold",
    "LoaderView",
    "SymbolSearch",
    "ViewScope",
    "ViewedAddress",
    "ViewedSymbol",
    "LazyFailure",
    "LazyFailureHandler",
    "Function",
    "FunctionPointer",
    "Symbol",
];
/// The files above `host` that may name the architecture of this process: what users make for it, texts, comparisons with it.
const NATIVE_FILES: [&str; 6] = [
    "src/jit/remote.rs",
    "src/link/builder/mod.rs",
    "src/link/elf/machine.rs",
    "src/link/elf/mod.rs",
    "src/platform/jit_dump.rs",
    "src/platform/stubs.rs",
];
const SYNC: &str = "src/sync.rs";
const BENCH: &str = "crates/bench/src";
/// The folders of the benchmark crate, and the folders that each imports.
const BENCH_FOLDERS: [(&str, &[&str]); 5] = [
    ("measure", &[]),
    ("peers", &["measure"]),
    ("workloads", &["measure", "peers"]),
    ("scenarios", &["measure", "peers", "workloads"]),
    ("report", &["measure"]),
];
/// The command-line program. It uses locks and threads of `std`, as other programs that use the library.
const TOOL: &str = "src/bin/";

#[test]
fn imports_obey_the_floor_table() {
    check_sources(|_, file, text, table| import_faults(file, text, table));
}

#[test]
fn unsafe_code_stays_in_the_rooms_marked_for_it() {
    check_sources(|_, file, text, table| unsafe_faults(file, text, table));
}

#[test]
fn safety_notes_cite_promises_that_their_room_makes() {
    let files = rust_files(&root(), "src");
    let rooms: BTreeSet<&str> = files.iter().map(|file| room_of(&file.0)).collect();
    let of_room = |room| files.iter().filter(move |file| room_of(&file.0) == room);
    let check = |room| safety_faults(room, &of_room(room).collect::<Vec<_>>());
    report(rooms.into_iter().flat_map(check).collect());
}

#[test]
fn only_the_sync_room_names_threads_and_locks_and_only_listed_rooms_name_libc() {
    check_sources(|_, file, text, table| outside_faults(file, text, table));
}

#[test]
fn code_for_one_instruction_set_stays_in_the_architecture_folders() {
    check_sources(|_, file, text, _| architecture_faults(file, text));
}

#[test]
fn what_a_session_writes_is_for_the_architecture_of_its_executor() {
    check_sources(|_, file, text, _| native_faults(file, text));
}

#[test]
fn rooms_above_host_reach_the_process_only_through_the_executor() {
    check_sources(|_, file, text, _| executor_faults(file, text));
}

#[test]
fn every_path_that_a_document_names_exists() {
    let mut documents: Vec<String> = [
        "DESIGN.md",
        "README.md",
        "CONTRIBUTING.md",
        "BENCHMARKS.md",
        "docs/orc-defects.md",
        "docs/platform.md",
        "docs/assumptions.md",
        "docs/cli.md",
        "docs/watch.md",
        "docs/executor.md",
        "docs/aarch64.md",
        "docs/memory-ordering.md",
        "docs/native.md",
        "docs/shapes.md",
    ]
    .map(String::from)
    .to_vec();
    let decisions = fs::read_dir(root().join("docs/adr")).expect("docs/adr can be read");
    documents.extend(decisions.map(|entry| format!("docs/adr/{}", entry.unwrap().file_name().to_string_lossy())));
    let text = |document: &str| fs::read_to_string(root().join(document)).unwrap_or_else(|e| panic!("{document}: {e}"));
    let faults = |document: &String| missing_path_faults(document, &text(document), |path| root().join(path).exists());
    report(documents.iter().flat_map(faults).collect());
}

#[test]
fn documents_that_a_newcomer_reads_keep_their_length() {
    for (document, most) in [("README.md", 150), ("DESIGN.md", 300), ("BENCHMARKS.md", 120)] {
        let text = fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"));
        let lines = text.lines().count();
        let mend = "move what only some readers need to a page of `docs/`";
        assert!(lines <= most, "{document}: {lines} lines, {most} are the limit. Mend: {mend}");
    }
}

#[test]
fn the_design_justifies_exactly_the_dependencies_of_the_default_build() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml can be read");
    report(dependency_faults(&design(), &manifest));
}

#[test]
fn the_design_lists_every_loom_model() {
    let models = rust_files(&root(), "loom_tests").into_iter().map(|(file, _)| file);
    let models: Vec<String> = models.filter(|file| file.starts_with("loom_tests/loom_")).collect();
    report(missing_model_faults(&design(), &models));
}

#[test]
fn every_function_that_hides_a_report_of_the_thread_sanitizer_exists() {
    let suppressions = fs::read_to_string(root().join(".ci/tsan.supp")).expect(".ci/tsan.supp can be read");
    report(suppression_faults(&suppressions, |file| fs::read_to_string(root().join(file)).unwrap_or_default()));
}

#[test]
fn every_test_that_is_said_to_exclude_a_defect_exists() {
    let defects = fs::read_to_string(root().join("docs/orc-defects.md")).expect("docs/orc-defects.md can be read");
    assert!(defects.lines().filter(|row| row.starts_with('|')).count() > 15, "the table of defects has gone");
    report(missing_test_faults(&defects, |file| fs::read_to_string(root().join(file)).unwrap_or_default()));
}

#[test]
fn every_source_file_opens_with_its_purpose() {
    let dirs = ["src", "tests", "loom_tests", "examples"];
    let files = dirs.iter().flat_map(|dir| rust_files(&root(), dir));
    report(files.filter_map(|(file, text)| opening_fault(&file, &text)).collect());
}

#[test]
fn every_loom_test_names_the_source_it_models() {
    let models = |file: &str| file.starts_with("loom_tests/loom_");
    let files = rust_files(&root(), "loom_tests").into_iter().filter(|(file, _)| models(file));
    let exists = |path: &str| root().join(path).is_file();
    report(files.filter_map(|(file, text)| loom_fault(&file, &text, exists)).collect());
}

#[test]
fn no_source_file_is_longer_than_the_limit() {
    check_sources(|_, file, text, _| length_fault(file, text).into_iter().collect());
}

#[test]
fn the_floor_table_lets_rooms_import_lower_floors_only() {
    let table = read_floors();
    report(table.0.iter().flat_map(|room| upward_faults(room, &table)).collect());
}

#[test]
fn files_of_one_room_import_each_other_one_way() {
    let (files, table) = (rust_files(&root(), "src"), sub_rooms(&design()).unwrap_or_else(|fault| panic!("{fault}")));
    let knots: Vec<(String, usize)> =
        table.iter().filter_map(|row| Some((format!("src/{}/", row.name), row.knot?))).collect();
    let rooms: BTreeSet<&str> = files.iter().map(|file| room_of(&file.0)).collect();
    let of_room = |room: &&str| {
        // A `tests.rs` is a test module in a file of its own.
        let is_counted = |file: &&(String, String)| room_of(&file.0) == *room && !file.0.ends_with("/tests.rs");
        let files: Vec<_> = files.iter().filter(is_counted).collect();
        cycles::Imports::read(&files)
    };
    // The binary is a crate of its own: its `crate::` starts there.
    let rooms = rooms.iter().filter(|room| !matches!(**room, "bin" | "lib")).map(of_room);
    let faults = |imports: cycles::Imports| {
        let mut faults = cycles::circle_faults(&imports, &knots);
        faults.extend(imports.sub_room_faults(&table));
        faults
    };
    report(rooms.flat_map(faults).collect());
}

#[test]
fn files_of_the_benchmark_crate_import_each_other_one_way() {
    let files = rust_files(&root(), BENCH);
    let folder = |(name, imports): (&str, &[&str])| SubRoom {
        name: name.to_string(),
        imports: imports.iter().map(|import| import.to_string()).collect(),
        knot: None,
    };
    let folders = BENCH_FOLDERS.map(folder);
    let has_files =
        |folder: &SubRoom| files.iter().any(|(file, _)| file.starts_with(&format!("{BENCH}/{}/", folder.name)));
    assert!(folders.iter().all(has_files), "a folder of the benchmark crate has gone");
    let imports = cycles::Imports::read(&files.iter().collect::<Vec<_>>());
    let mut faults = cycles::circle_faults(&imports, &[]);
    faults.extend(imports.sub_room_faults(&folders));
    faults.extend(files.iter().filter_map(|(file, text)| cycles::facade_fault(file, text)));
    report(faults);
}
