//! The source tree: its files, `DESIGN.md`, and the report of what is wrong.

use std::fs;
use std::path::{Path, PathBuf};

pub use jittison_test_tools::rust_files;

use crate::table::{Table, read_table};

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

pub fn design() -> String {
    fs::read_to_string(root().join("DESIGN.md")).expect("DESIGN.md can be read")
}

/// The floor table.
pub fn read_floors() -> Table {
    read_table(&design()).unwrap_or_else(|fault| panic!("\n{fault}\n"))
}

/// Runs an inspector on every file of `src/` and fails with the faults that it returns.
pub fn check_sources(inspect: impl Fn(&Path, &str, &str, &Table) -> Vec<String>) {
    let table = read_floors();
    let root = root();
    let files = rust_files(&root, "src");
    assert!(!files.is_empty(), "src/ holds no source file");
    let faults = files.iter().flat_map(|(file, text)| inspect(&root, file, text, &table));
    report(faults.collect());
}

pub fn report(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The room of a file: the `os` of `src/os/x.rs`, the `sync` of `src/sync.rs`.
pub fn room_of(file: &str) -> &str {
    let inside = file.strip_prefix("src/").unwrap_or(file);
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs")
}
