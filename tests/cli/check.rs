//! `jittison check`: every relocation type computes the value of its rules, also at its limits. A value out of range is refused.
//!
//! The cases are the assembly files in `tests/linking/check/`. The README there explains their first lines.

use std::fs;
use std::path::{Path, PathBuf};

use predicates::str::contains;

use jittison_test_support::{require, require_x86_64};

use crate::native::{FAILED, OTHER, OWN, directory, error_text, jittison, tool, wrong_architecture};

fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/linking").join(folder);
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
    if !require_x86_64() {
        return;
    }
    let cases = cases("check");
    assert!(cases.len() > 60, "{} cases", cases.len());
    check_cases(&cases, "gcc");
}

#[test]
fn rules_hold_for_objects_of_another_machine() {
    const GCC: &str = "aarch64-linux-gnu-gcc";
    let cases = cases("check-aarch64");
    assert_eq!(cases.len(), 7);
    if require(GCC).is_some() {
        check_cases(&cases, GCC);
    }
}

/// Assembles each case with `compiler`, links it, and checks its rules or its refusal.
fn check_cases(cases: &[PathBuf], compiler: &str) {
    let directory = directory();
    let mut wrong = Vec::new();
    for case in cases {
        let source = fs::read_to_string(case).expect("a source");
        let name = case.file_stem().unwrap().to_string_lossy().into_owned();
        let object = format!("{name}.o");
        tool(compiler, &directory).arg("-c").arg(case).args(["-o", &object]).unwrap();
        let refusal = header_value(&source, "error");
        // A file that must be refused has no rules. Any rule works for it.
        let rules = directory.join("any.s");
        fs::write(&rules, "# jitlink-check: 1 = 1\n").expect("a file");
        let mut command = jittison(&directory);
        command.arg("check").arg("--rules").arg(if refusal.is_some() { &rules } else { case });
        command.args(header_value(&source, "args").unwrap_or("").split_whitespace()).arg(&object);
        // No `assert`: it would end the test at the first wrong case.
        let output = command.output().expect("the tool runs");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_right = match refusal {
            None => output.status.success() && message.is_empty(),
            Some(words) => output.status.code() == Some(FAILED) && message.contains(words),
        };
        if !is_right {
            wrong.push(format!("{name}: {} {message}", output.status));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn a_failed_rule_is_reported_with_its_line_and_both_values() {
    let directory = directory();
    fs::write(directory.join("a.s"), ".data\n.globl field\nfield: .quad 0x1234\n").unwrap();
    tool("gcc", &directory).args(["-c", "a.s", "-o", "a.o"]).unwrap();
    let check = |rules: &str| {
        fs::write(directory.join("rules"), rules).unwrap();
        jittison(&directory).args(["check", "--rules", "rules", "--base", "0x10000", "a.o"]).assert()
    };
    check("# jitlink-check: *{8}field = 0x1234\n# jitlink-check: field = 0x10000\n").success().stderr("");
    let wrong = check("\n# jitlink-check: *{8}field = 0x1235\n").code(FAILED);
    insta::assert_snapshot!(
        error_text(&wrong),
        @r"jittison: rules:2:18: 0x1234 is not 0x1235\n  in *{8}field = 0x1235\n  field is 0x10000\n  *{8}field is 0x1234"
    );
    check("nothing here\n").code(FAILED).stderr(contains("rules"));
    check("# jitlink-check: *{8}absent = 1\n").code(FAILED).stderr(contains("absent"));
}

#[test]
fn missing_symbols_are_null_with_phony_externals() {
    let directory = directory();
    fs::write(directory.join("a.s"), ".data\n.globl field\nfield: .quad nowhere + 8\n").unwrap();
    tool("gcc", &directory).args(["-c", "a.s", "-o", "a.o"]).unwrap();
    fs::write(directory.join("rules"), "# jitlink-check: *{8}field = 8\n").unwrap();
    let check = |more: &[&str]| jittison(&directory).args(["check", "--rules", "rules", "a.o"]).args(more).assert();
    check(&["--phony-externals"]).success();
    check(&[]).code(FAILED).stderr(contains("`nowhere`"));
}

// Seen red: the C library of the process placed the blocks.
#[test]
fn thread_local_blocks_are_where_a_program_has_them() {
    if !require_x86_64() {
        return;
    }
    let directory = directory();
    let object = |name: &str, block: &str| {
        let section = ".section .tdata,\"awT\",@progbits";
        let source = format!(".data\n.globl {name}\n{name}: .long variable@tpoff\n{section}\n{block}");
        fs::write(directory.join(format!("{name}.s")), source).unwrap();
        tool("gcc", &directory).args(["-c", &format!("{name}.s"), "-o", &format!("{name}.o")]).unwrap();
    };
    object("first", ".balign 64\n.quad 5\nvariable: .quad 7\n");
    object("second", "variable: .quad 8\n");
    // The first block ends at the thread pointer, and the second one before it.
    let rules = "# jitlink-check: *{4}first = 0xffffffc8\n# jitlink-check: *{4}second = 0xffffffb8\n";
    fs::write(directory.join("rules"), rules).unwrap();
    jittison(&directory).args(["check", "--rules", "rules", "first.o", "second.o"]).assert().success().stderr("");
}

#[test]
fn an_object_for_another_machine_is_linked_and_not_run() {
    let (compiler, option) = match cfg!(target_arch = "x86_64") {
        true => ("aarch64-linux-gnu-gcc", None),
        false => ("clang-19", Some("--target=x86_64-linux-gnu")),
    };
    if require(compiler).is_none() {
        return;
    }
    let directory = directory();
    fs::write(directory.join("a.c"), "int main(void) { return 0; }\n").unwrap();
    tool(compiler, &directory).args(option).args(["-c", "a.c", "-o", "other.o"]).unwrap();
    tool("gcc", &directory).args(["-c", "a.c", "-o", "own.o"]).unwrap();
    jittison(&directory).args(["run", "--no-exec", "other.o"]).assert().success().stderr("");
    let refused = jittison(&directory).args(["run", "other.o"]).assert().code(FAILED);
    let message = format!("jittison: cannot link other.o: {}\n", wrong_architecture(OTHER, OWN));
    assert_eq!(error_text(&refused), message);
    let mixed = jittison(&directory).args(["run", "--no-exec", "other.o", "own.o"]).assert().code(FAILED);
    let message = format!("jittison: cannot link own.o: {}\n", wrong_architecture(OWN, OTHER));
    assert_eq!(error_text(&mixed), message);
    let shown = format!("ELF64 {} relocatable", OTHER.name);
    jittison(&directory).args(["inspect", "other.o"]).assert().success().stdout(contains(shown));
}
