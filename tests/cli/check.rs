//! `jittison check`: every relocation type computes the value of its rules, also at its limits. A value out of range is refused.
//!
//! The cases are the assembly files in `tests/linking/check/`. The README there explains their first lines.

use std::fs;
use std::path::{Path, PathBuf};

use crate::native::{directory, jittison, succeed, tool};

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/linking/check");
    let entries = fs::read_dir(folder).expect("the cases").map(|entry| entry.expect("an entry").path());
    let mut cases: Vec<_> = entries.filter(|path| path.extension().is_some_and(|extension| extension == "s")).collect();
    cases.sort();
    cases
}

/// The value of the header line `# key: value`.
fn header_value<'a>(source: &'a str, key: &str) -> Option<&'a str> {
    source.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "))
}

#[test]
fn every_relocation_type_matches_its_rules_and_refuses_values_out_of_range() {
    let directory = directory("check");
    let cases = cases();
    assert!(cases.len() > 60, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let source = fs::read_to_string(case).expect("a source");
        let name = case.file_stem().unwrap().to_string_lossy().into_owned();
        let object = format!("{name}.o");
        succeed(tool("gcc", &directory).arg("-c").arg(case).args(["-o", &object]));
        let refusal = header_value(&source, "error");
        // A file that must be refused has no rules. Any rule works for it.
        let rules = directory.join("any.s");
        fs::write(&rules, "# jitlink-check: 1 = 1\n").expect("a file");
        let mut command = jittison(&directory);
        command.arg("check").arg("--rules").arg(if refusal.is_some() { &rules } else { case });
        let output =
            command.args(header_value(&source, "args").unwrap_or("").split_whitespace()).arg(&object).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_right = match refusal {
            None => output.status.success() && message.is_empty(),
            Some(words) => output.status.code() == Some(125) && message.contains(words),
        };
        if !is_right {
            wrong.push(format!("{name}: {} {message}", output.status));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn a_failed_rule_is_reported_with_its_line_and_both_values() {
    let directory = directory("check-wrong");
    fs::write(directory.join("a.s"), ".data\n.globl field\nfield: .quad 0x1234\n").unwrap();
    succeed(tool("gcc", &directory).args(["-c", "a.s", "-o", "a.o"]));
    let check = |rules: &str| {
        fs::write(directory.join("rules"), rules).unwrap();
        let output =
            jittison(&directory).args(["check", "--rules", "rules", "--base", "0x10000", "a.o"]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(
        check("# jitlink-check: *{8}field = 0x1234\n# jitlink-check: field = 0x10000\n"),
        (Some(0), String::new())
    );
    let (status, message) = check("\n# jitlink-check: *{8}field = 0x1235\n");
    assert_eq!(status, Some(125));
    for words in ["rules:2:", "0x1234", "0x1235", "*{8}field"] {
        assert!(message.contains(words), "{words} in {message}");
    }
    let (status, message) = check("nothing here\n");
    assert!(status == Some(125) && message.contains("rules"), "{message}");
    let (status, message) = check("# jitlink-check: *{8}absent = 1\n");
    assert!(status == Some(125) && message.contains("absent"), "{message}");
}

#[test]
fn missing_symbols_are_null_with_phony_externals() {
    let directory = directory("check-phony");
    fs::write(directory.join("a.s"), ".data\n.globl field\nfield: .quad nowhere + 8\n").unwrap();
    succeed(tool("gcc", &directory).args(["-c", "a.s", "-o", "a.o"]));
    fs::write(directory.join("rules"), "# jitlink-check: *{8}field = 8\n").unwrap();
    let check =
        |more: &[&str]| jittison(&directory).args(["check", "--rules", "rules", "a.o"]).args(more).output().unwrap();
    assert!(check(&["--phony-externals"]).status.success());
    let missing = check(&[]);
    assert!(!missing.status.success() && String::from_utf8_lossy(&missing.stderr).contains("`nowhere`"));
}
