//! `jittison watch --cargo`: test programs of a package, and profiles.

use std::path::Path;

use assert_cmd::assert::Assert;
use jittison_test_support::require;
use predicates::str::contains;

use crate::cargo::{MAIN, Running, part, save};
use crate::native::{FAILED, cargo_jittison, directory};

/// An integration test that answers each line of its input, and one that fails.
const INTEGRATION_TEST: &str = r#"
#[test]
fn answers() {
    for (number, line) in std::io::stdin().lines().enumerate() {
        if line.is_err() { break; }
        println!("{}", edited::answer(number as u64 + 1));
    }
    assert_eq!(edited::answer(1), "third 1");
}
#[test]
fn fails() { panic!("it was asked for"); }
"#;

#[test]
fn an_integration_test_that_runs_follows_the_sources_of_its_package() {
    let library = |text: &str| format!("pub fn answer(number: u64) -> String {{ format!(\"{text} {{number}}\") }}");
    let first = library("first");
    let files = [("src/lib.rs", &*first), ("tests/it.rs", INTEGRATION_TEST)];
    let options = ["--test", "it", "--", "--nocapture", "answers"];
    let Some(mut program) = Running::start_with(&options, &files, "") else { return };
    assert_eq!([program.watched.line(), program.watched.line()], ["", "running 1 test"]);
    assert_eq!(program.ask(), "first 1");
    program.save("src/lib.rs", &library("second"));
    assert_eq!(program.watched.event()["event"], "reloaded");
    assert_eq!(program.ask(), "second 2");
    // Its own source, too. The list of tests was read at the start.
    program.save("tests/it.rs", &INTEGRATION_TEST.replace("fn fails()", "fn more() {} #[test] fn fails()"));
    assert_eq!(program.watched.event()["event"], "reloaded");
    program.save("src/lib.rs", &library("third"));
    assert_eq!(program.watched.event()["event"], "reloaded");
    assert_eq!(program.ask(), "third 3");
    assert_eq!(program.watched.end(), (Some(0), String::new()));
}

/// A package with unit tests of a library and of a program, and two integration tests, of which one starts the program.
fn tested_package(directory: &Path) {
    let manifest = "[package]\nname = \"tested\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n\
        [[test]]\nname = \"plain\"\nharness = false\n";
    save(directory, "Cargo.toml", manifest);
    save(
        directory,
        "src/lib.rs",
        "pub fn twice(n: u64) -> u64 { 2 * n } #[test] fn of_library() { assert_eq!(twice(2), 4); }",
    );
    save(
        directory,
        "src/main.rs",
        "fn main() { println!(\"twice is {}\", tested::twice(21)); } #[test] fn of_program() { assert_eq!(tested::twice(2), 5); }",
    );
    save(
        directory,
        "tests/it.rs",
        "#[test] fn of_package() {
             let manifest = std::fs::read_to_string(\"Cargo.toml\").expect(\"it starts in the folder of its package\");
             assert!(manifest.contains(\"tested\"));
             let output = std::process::Command::new(env!(\"CARGO_BIN_EXE_tested\")).output().unwrap();
             assert_eq!(String::from_utf8(output.stdout).unwrap(), \"twice is 42\\n\");
         }",
    );
    save(directory, "tests/plain.rs", "fn main() { println!(\"plain {:?}\", std::env::args().nth(1)); }");
}

/// `cargo jittison run` of the package in `tested`, in the folder around it.
fn cargo(directory: &Path, arguments: &[&str]) -> Assert {
    let options = ["jittison", "run", "--manifest-path", "tested/Cargo.toml"];
    cargo_jittison(directory).args(options).args(arguments).assert()
}

#[test]
fn test_programs_run_as_cargo_runs_them_and_their_status_is_that_of_the_command() {
    if require("cargo").is_none() {
        return;
    }
    let directory = directory();
    tested_package(&directory.join("tested"));
    let cargo = |arguments: &[&str]| cargo(&directory, arguments);
    let passes = |test: &str| contains(format!("test {test} ... ok"));
    cargo(&["--lib"]).success().stdout(passes("of_library"));
    cargo(&["--tests", "--bin", "tested"]).code(101).stdout(contains("test of_program ... FAILED"));
    cargo(&["--test", "it"]).success().stdout(passes("of_package"));
    cargo(&["--test", "it", "--", "nothing"]).success().stdout(contains("1 filtered out"));
    cargo(&["--test", "plain", "--", "word"]).success().stdout("plain Some(\"word\")\n");
    // The program is linked for the tests that start it, and not for this command.
    cargo(&[]).success().stdout("twice is 42\n");
    cargo(&["--test", "it"]).success().stdout(passes("of_package"));
    let names = ["tested (lib)", "tested (bin)", "it (test)", "plain (test)", "choose one with --test, --lib or --bin"];
    let several = cargo(&["--tests"]).code(FAILED);
    names.into_iter().fold(several, |several, name| several.stderr(contains(name)));
    cargo(&["--test", "other"]).code(FAILED).stderr(contains("other"));
    cargo(&["--test", "it", "--bin", "tested"]).code(2);
    cargo(&["--lib", "--bin", "tested"]).code(2);
}

#[test]
fn a_profile_says_what_a_package_is_built_with_and_functions_follow() {
    // Shares the process: the text with the hook is that of another program.
    let profiles = "near = { path = \"near\" }
        [profile.release]
        lto = true
        panic = \"abort\"
        [profile.careful]
        inherits = \"release\"
        debug-assertions = true
        overflow-checks = true
        lto = \"thin\"
        panic = \"unwind\"
        opt-level = \"s\"";
    let part = |text: &str| {
        let body = "format!(\"{TEXT} {} {} {} {:?}\", cfg!(debug_assertions), cfg!(panic = \"abort\"), near::is_checked(), near::sum(250, number as u8))";
        part(body, &format!("const TEXT: &str = \"{text}\";"))
    };
    let near = "pub fn is_checked() -> bool { cfg!(debug_assertions) }
        pub fn sum(a: u8, b: u8) -> Option<u8> { std::panic::set_hook(Box::new(|_| ())); std::panic::catch_unwind(|| a + 10 * b).ok() }";
    let manifest = "[package]\nname = \"near\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
    for (option, answers) in [
        (&["--release"][..], ["first false true false Some(4)", "second false true false Some(14)"]),
        (&["--profile", "careful"], ["first true false true None", "second true false true None"]),
    ] {
        let parts = part("first");
        let files = [
            ("src/main.rs", MAIN),
            ("src/parts.rs", &*parts),
            ("near/Cargo.toml", manifest),
            ("near/src/lib.rs", near),
        ];
        let Some(mut program) = Running::start_with(option, &files, profiles) else { return };
        assert_eq!(program.ask(), answers[0]);
        program.edit(&part("second"));
        assert_eq!(program.ask(), answers[1]);
        assert_eq!(program.watched.end(), (Some(7), String::new()));
    }
}
