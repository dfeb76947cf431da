//! `include/jittison.h` is good C and C++ for every compiler, and declares exactly what the library exports.

use std::collections::BTreeSet;
use std::fs;

use jittison_test_tools::{PrivateDir, require};

use crate::building::{crate_path, shared_library, succeed};

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(crate_path("include/jittison.h")).unwrap();
    let declarations = header.split("\nJITTISON_API ").skip(1);
    let name = |declaration: &str| {
        let head = declaration.split('(').next().unwrap();
        head.rsplit([' ', '*']).next().unwrap().to_string()
    };
    declarations.map(name).collect()
}

#[test]
fn the_library_exports_exactly_what_the_header_declares() {
    let Some(mut nm) = require("nm") else { return };
    let symbols = succeed(nm.args(["-D", "--defined-only"]).arg(shared_library()));
    let name = |line: &str| line.split_whitespace().last().unwrap().split('@').next().unwrap().to_string();
    let exported: BTreeSet<_> = symbols.lines().map(name).collect();
    let declared = declared();
    assert!(declared.len() > 40, "{declared:?}");
    assert_eq!(exported, declared);
}

#[test]
fn the_library_has_a_soname_with_its_version() {
    let Some(mut readelf) = require("readelf") else { return };
    let dynamic = succeed(readelf.arg("-d").arg(shared_library()));
    assert!(dynamic.contains("Library soname: [libjittison.so.0]"), "{dynamic}");
}

#[test]
fn every_function_of_the_header_is_described() {
    let header = fs::read_to_string(crate_path("include/jittison.h")).unwrap();
    let lines: Vec<_> = header.lines().collect();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("JITTISON_API")) {
        assert!(lines[number - 1].ends_with("*/"), "line {}: `{line}` has no description", number + 1);
    }
}

#[test]
fn compilers_accept_the_header_without_a_warning() {
    let directory = PrivateDir::new();
    let source = "#include <jittison.h>\nint main(void) { return jittison_error_code(0) != JITTISON_OK; }\n";
    let c = directory.write("header.c", source);
    let cpp = directory.write("header.cpp", source.replace("jittison.h>", "jittison.hpp>"));
    let owners = crate_path("tests/c/owners.cpp");
    for (compiler, source, standard) in [
        ("gcc", &c, "-std=c99"),
        ("clang-19", &c, "-std=c99"),
        ("gcc", &c, "-std=c11"),
        ("g++", &cpp, "-std=c++17"),
        ("clang++-19", &cpp, "-std=c++17"),
        ("g++", &owners, "-std=c++17"),
        ("clang++-19", &owners, "-std=c++17"),
    ] {
        let Some(mut command) = require(compiler) else { continue };
        command.args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"]);
        succeed(command.arg(crate_path("include")).arg(source));
    }
}
