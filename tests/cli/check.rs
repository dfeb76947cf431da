//! `check`: every relocation kind computes what its rule says, at its limits too, and what does not fit is refused.
//!
//! The cases are the assembly files of `tests/linking/check/`; what their first lines mean stands in the README there.

use std::fs;
use std::path::{Path, PathBuf};

use crate::native::{directory, jittison, succeed};

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/linking/check");
    let entries = fs::read_dir(folder).expect("the cases").map(|entry| entry.expect("an entry").path());
    let mut cases: Vec<_> = entries.filter(|path| path.extension().is_some_and(|extension| extension == "s")).collect();
    cases.sort();
    cases
}

/// What the line that begins with `word` says.
fn said<'a>(source: &'a str, word: &str) -> Option<&'a str> {
    source.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(word)?.strip_prefix(": "))
}

#[test]
fn every_kind_of_relocation_computes_what_its_rules_say_and_refuses_what_does_not_fit() {
    let directory = directory("check");
    let cases = cases();
    assert!(cases.len() > 60, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let source = fs::read_to_string(case).expect("a source");
        let name = case.file_stem().unwrap().to_string_lossy().into_owned();
        let object = format!("{name}.o");
        succeed(std::process::Command::new("gcc").current_dir(&directory).arg("-c").arg(case).args(["-o", &object]));
        let refusal = said(&source, "error");
        // A file that must be refused has no rules: any will do.
        let rules = directory.join("any.s");
        fs::write(&rules, "# jitlink-check: 1 = 1\n").expect("a file");
        let mut command = jittison(&directory);
        command.arg("check").arg("--rules").arg(if refusal.is_some() { &rules } else { case });
        let output =
            command.args(said(&source, "args").unwrap_or("").split_whitespace()).arg(&object).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_right = match refusal {
            None => output.status.success() && told.is_empty(),
            Some(words) => output.status.code() == Some(125) && told.contains(words),
        };
        if !is_right {
            wrong.push(format!("{name}: {} {told}", output.status));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn a_rule_that_does_not_hold_is_shown_with_its_place_and_both_values() {
    let directory = directory("check-wrong");
    fs::write(directory.join("a.s"), ".data\n.globl field\nfield: .quad 0x1234\n").unwrap();
    succeed(std::process::Command::new("gcc").current_dir(&directory).args(["-c", "a.s", "-o", "a.o"]));
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
    let (status, told) = check("\n# jitlink-check: *{8}field = 0x1235\n");
    assert_eq!(status, Some(125));
    for words in ["rules:2:", "0x1234", "0x1235", "*{8}field"] {
        assert!(told.contains(words), "{words} in {told}");
    }
    let (status, told) = check("nothing here\n");
    assert!(status == Some(125) && told.contains("rules"), "{told}");
    let (status, told) = check("# jitlink-check: *{8}absent = 1\n");
    assert!(status == Some(125) && told.contains("absent"), "{told}");
}

#[test]
fn what_nobody_defines_is_null_where_that_is_asked_for() {
    let directory = directory("check-phony");
    fs::write(directory.join("a.s"), ".data\n.globl field\nfield: .quad nowhere + 8\n").unwrap();
    succeed(std::process::Command::new("gcc").current_dir(&directory).args(["-c", "a.s", "-o", "a.o"]));
    fs::write(directory.join("rules"), "# jitlink-check: *{8}field = 8\n").unwrap();
    let check =
        |more: &[&str]| jittison(&directory).args(["check", "--rules", "rules", "a.o"]).args(more).output().unwrap();
    assert!(check(&["--phony-externals"]).status.success());
    let missing = check(&[]);
    assert!(!missing.status.success() && String::from_utf8_lossy(&missing.stderr).contains("`nowhere`"));
}
