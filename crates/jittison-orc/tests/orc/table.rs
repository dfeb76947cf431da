//! The table of the README: each function of the headers has a row, and each row is a function that the library exports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use jittison_test_tools::{require, require_that};

use crate::{llvm_config, shared_library, succeed};

/// The versions that the library is for.
const VERSIONS: std::ops::RangeInclusive<u32> = 14..=19;
const HEADERS: [&str; 4] = ["Orc.h", "LLJIT.h", "LLJITUtils.h", "OrcEE.h"];

/// The rows of the README: the versions in which a function is declared.
fn rows() -> BTreeMap<String, std::ops::RangeInclusive<u32>> {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let row = |line: &str| {
        let cells: Vec<_> = line.strip_prefix("| `LLVMOrc")?.split(" | ").collect();
        let [name, versions, state, ..] = cells[..] else { panic!("a row without its cells: {line}") };
        assert!(state.len() > 3, "a row without a state: {line}");
        let (first, last) = versions.split_once('–').unwrap_or_else(|| panic!("no versions: {line}"));
        Some((format!("LLVMOrc{}", name.trim_end_matches('`')), first.parse().unwrap()..=last.parse().unwrap()))
    };
    readme.lines().filter_map(row).collect()
}

/// The functions that a header declares: names outside of comments that an opening parenthesis follows.
fn declared(header: &str) -> BTreeSet<String> {
    let mut code = String::new();
    for (position, part) in header.split("/*").enumerate() {
        code.push_str(if position == 0 { part } else { part.split_once("*/").map_or("", |(_, code)| code) });
    }
    let words =
        code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '(')).filter_map(|word| word.split_once('('));
    words.map(|(name, _)| name).filter(|name| name.starts_with("LLVMOrc")).map(String::from).collect()
}

#[test]
fn the_table_has_each_function_of_the_installed_headers_with_its_versions() {
    let rows = rows();
    let mut seen = Vec::new();
    for version in VERSIONS {
        let of_config = llvm_config(version, "--includedir").map(|directory| format!("{directory}/llvm-c"));
        let directory = of_config.unwrap_or_else(|| format!("/usr/include/llvm-c-{version}/llvm-c"));
        if !Path::new(&directory).join("Orc.h").exists() {
            continue;
        }
        seen.push(version);
        let texts = HEADERS.iter().filter_map(|header| fs::read_to_string(Path::new(&directory).join(header)).ok());
        let in_headers: BTreeSet<_> = texts.flat_map(|text| declared(&text)).collect();
        let in_table: BTreeSet<_> =
            rows.iter().filter(|(_, versions)| versions.contains(&version)).map(|(name, _)| name.clone()).collect();
        let difference: Vec<_> = in_headers.symmetric_difference(&in_table).collect();
        assert!(difference.is_empty(), "LLVM {version}: the headers and the table differ by {difference:?}");
    }
    require_that(!seen.is_empty(), "headers of LLVM (llvm-19-dev)");
}

#[test]
fn the_library_exports_the_functions_of_the_table_and_its_list_of_modules() {
    let Some(mut nm) = require("nm") else { return };
    let listed = succeed(nm.args(["-D", "--defined-only", "-f", "posix"]).arg(shared_library()));
    let exported: BTreeSet<_> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    let rows = rows();
    let own = "jittison_orc_modules";
    let in_table: BTreeSet<_> = rows.keys().map(String::as_str).chain([own]).collect();
    let difference: Vec<_> = exported.symmetric_difference(&in_table).collect();
    assert!(difference.is_empty(), "the exported symbols and the table differ by {difference:?}");
}

#[test]
fn declarations_are_read_and_comments_are_not() {
    let header =
        "/* LLVMOrcInComment(int) */\nvoid LLVMOrcOne(int);\nLLVMErrorRef\nLLVMOrcTwo(\n  void (*LLVMOther)(int));\n";
    assert_eq!(declared(header).into_iter().collect::<Vec<_>>(), ["LLVMOrcOne", "LLVMOrcTwo"]);
}
