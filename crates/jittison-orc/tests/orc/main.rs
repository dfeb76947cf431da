//! LLVM's ORC C API on jittison, used by C programs that LLVM 19 and LLVM 14 compile for.
//!
//! | file | holds |
//! |---|---|
//! | this file | the programs of `tests/c`: linked first, and with `LD_PRELOAD` |
//! | `table.rs` | the table of the README against installed headers and exported symbols |

mod table;

use std::path::{Path, PathBuf};
use std::process::Command;

use jittison_test_tools::{PrivateDir, emulated, require, require_that};

/// The shared library that was built with this test: it is in the directory of the test program.
fn shared_library() -> PathBuf {
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libjittison_orc.so");
    assert!(library.exists(), "{library:?} was not built");
    library
}

/// What `llvm-config` of a version prints. `None` if the version is not installed. With `JITTISON_LLVM` the headers and the libraries are
/// those of another architecture: in its folders `include-VERSION` and `lib`.
fn llvm_config(version: u32, option: &str) -> Option<String> {
    if let Ok(other) = std::env::var("JITTISON_LLVM") {
        let folder = if option == "--includedir" { format!("include-{version}") } else { "lib".to_string() };
        return Some(format!("{other}/{folder}"));
    }
    let output = Command::new(format!("llvm-config-{version}")).arg(option).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_string())
}

/// Runs a command that must succeed, and returns what it wrote.
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}\n{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Compiles `tests/c/NAME.c` against an LLVM. `library`: linked before LLVM's.
fn compile(name: &str, version: u32, directory: &PrivateDir, library: Option<&Path>) -> Option<PathBuf> {
    let mut compiler = require("cc")?;
    let found = llvm_config(version, "--includedir").zip(llvm_config(version, "--libdir"));
    if !require_that(found.is_some(), &format!("llvm-config-{version}")) {
        return None;
    }
    let (headers, libraries) = found?;
    let program = directory.path(name);
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-g", "-Wall", "-Werror", "-I", &headers, "-o"]).arg(&program);
    compiler.arg(format!("{}/tests/c/{name}.c", env!("CARGO_MANIFEST_DIR")));
    if let Some(library) = library {
        compiler.arg(library).arg(format!("-Wl,-rpath,{}", library.parent()?.display()));
    }
    compiler.arg(format!("-L{libraries}")).arg(format!("-lLLVM-{version}")).arg(format!("-Wl,-rpath-link,{libraries}"));
    // An RPATH, and no RUNPATH, is also where the libraries that LLVM's needs are searched.
    compiler.arg(format!("-Wl,--disable-new-dtags,-rpath,{libraries}"));
    succeed(&mut compiler);
    Some(program)
}

#[test]
fn a_program_that_is_linked_against_the_library_first_gets_all_promises() {
    let directory = PrivateDir::new();
    let Some(program) = compile("modules", 19, &directory, Some(&shared_library())) else { return };
    let output = succeed(emulated(&program).arg(directory.path("")));
    assert!(output.ends_with("all promises hold\n"), "{output}");
}

#[test]
fn a_program_that_knows_only_llvm_gets_all_promises_with_a_preload() {
    let directory = PrivateDir::new();
    let Some(program) = compile("modules", 19, &directory, None) else { return };
    let output = succeed(emulated(&program).arg(directory.path("")).env("LD_PRELOAD", shared_library()));
    assert!(output.ends_with("all promises hold\n"), "{output}");
}

#[test]
fn a_program_for_llvm_14_gets_its_own_layouts_and_arguments() {
    let directory = PrivateDir::new();
    let Some(program) = compile("older", 14, &directory, None) else { return };
    let output = succeed(emulated(&program).env("LD_PRELOAD", shared_library()));
    assert!(output.ends_with("all promises hold\n"), "{output}");
}
