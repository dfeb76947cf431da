//! The table of `README.md` has every public item of cranelift-jit, and what it says of ours is so.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the package cranelift-jit that this crate is tested with.
fn package() -> PathBuf {
    // Without the filter, cargo asks for the packages for other systems, which no build here has fetched.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let arguments =
        ["metadata", "--format-version", "1", "--offline", "--filter-platform", &platform, "--manifest-path"];
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let output = Command::new(env!("CARGO")).args(arguments).arg(manifest).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut paths = text.split('"').filter(|part| part.ends_with("/Cargo.toml"));
    let is_package = |path: &&str| path.rsplit('/').nth(1).is_some_and(|folder| folder.starts_with("cranelift-jit-"));
    Path::new(paths.find(is_package).expect("cranelift-jit is fetched")).parent().unwrap().into()
}

/// All source of a folder.
fn source(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => texts.extend(source(&path)),
            false => texts.push(fs::read_to_string(path).unwrap()),
        }
    }
    texts
}

/// The identifier at the start of a text.
fn identifier(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    &text[..end]
}

/// The public items of a crate: its types and constants, and `Type::function` for what a type or trait has.
fn public_items(folder: &Path) -> BTreeSet<String> {
    let texts = source(&folder.join("src"));
    let root = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
    let (mut types, mut items) = (BTreeSet::new(), BTreeSet::new());
    for export in root.split("pub use ").skip(1) {
        let export = export.split(';').next().unwrap();
        let names = export.rsplit("::").next().unwrap().trim_matches(['{', '}', ' ', '\n']);
        types.extend(names.split(',').map(|name| name.trim().to_string()).filter(|name| !name.is_empty()));
    }
    items.extend(
        root.lines().filter_map(|line| line.strip_prefix("pub const ")).map(|line| identifier(line).to_string()),
    );
    for line in texts.iter().flat_map(|text| owned_lines(text)) {
        let (owner, line) = line;
        let declared =
            line.trim_start().strip_prefix("pub ").or(owner.starts_with("trait ").then_some(line.trim_start()));
        let function = declared.and_then(|line| line.strip_prefix("unsafe ").or(Some(line))?.strip_prefix("fn "));
        let owner = owner.strip_prefix("trait ").unwrap_or(&owner);
        if let Some(function) = function.filter(|_| types.contains(owner)) {
            items.insert(format!("{owner}::{}", identifier(function)));
        }
    }
    items.extend(types);
    items
}

/// Each line of a source, with the type whose block it is in.
fn owned_lines(text: &str) -> Vec<(String, &str)> {
    let mut owner = String::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("impl ") {
            // The functions of a trait belong to the trait.
            owner = if rest.contains(" for ") { String::new() } else { identifier(rest).to_string() };
        } else if let Some(rest) = line.strip_prefix("pub trait ") {
            owner = format!("trait {}", identifier(rest));
        } else if line == "}" {
            owner.clear();
        }
        lines.push((owner.clone(), line));
    }
    lines
}

/// The rows of the table: the items of the first cell, with their types, and the second cell.
fn rows() -> Vec<(Vec<String>, String)> {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let table = readme.split("## Each item of cranelift-jit").nth(1).expect("the table has a heading");
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let mut owner = String::new();
        let items = cells[0].split('`').skip(1).step_by(2).map(|item| {
            if let Some((found, _)) = item.split_once("::") {
                owner = found.to_string();
            }
            let is_bare = !item.contains("::") && item.chars().next().is_some_and(char::is_lowercase);
            if is_bare && !owner.is_empty() { format!("{owner}::{item}") } else { item.to_string() }
        });
        (items.collect(), cells[1].to_string())
    };
    table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| cranelift-jit ")).map(row).collect()
}

#[test]
fn the_table_has_every_public_item_of_cranelift_jit() {
    let (items, rows) = (public_items(&package()), rows());
    assert!(
        items.contains("JITModule::finalize_definitions") && items.contains("JITMemoryProvider::allocate"),
        "{items:?}"
    );
    let listed: BTreeSet<&String> = rows.iter().flat_map(|(items, _)| items).collect();
    let missing: Vec<_> = items.iter().filter(|item| !listed.contains(item)).collect();
    assert!(missing.is_empty(), "not in the table of README.md: {missing:?}");
}

#[test]
fn what_the_table_calls_the_same_exists_and_what_it_calls_missing_does_not() {
    let (theirs, ours) = (public_items(&package()), public_items(Path::new(env!("CARGO_MANIFEST_DIR"))));
    for (items, here) in rows() {
        for item in items.iter().filter(|item| theirs.contains(*item)) {
            let says = |word: &str| here.starts_with(word);
            assert!(says("the same") || says("missing"), "`{item}`: {here}");
            assert_eq!(ours.contains(item), says("the same"), "`{item}`: {here}");
        }
    }
}
