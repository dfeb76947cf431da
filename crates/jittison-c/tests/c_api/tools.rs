//! Tools that look at linked code from outside, for an embedder in C: gdb's backtrace, and perf's files, name linked functions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jittison_test_tools::{c, require};

use crate::building::{Language, Program, succeed};

const LINKED: &str = "long stop_here(long); long linked(long n) { return stop_here(n) + 1; }";

/// The program `tests/c/tools.c`, and its object.
fn build() -> Option<(Program, PathBuf)> {
    let program = Program::compile("tools", Language::C)?;
    let object = program.directory.write("linked.o", c(LINKED)?);
    Some((program, object))
}

/// The address of `linked`, as the program prints it.
fn address_of(output: &str) -> u64 {
    let line = output.lines().last().unwrap();
    u64::from_str_radix(line.strip_prefix("0x").unwrap(), 16).unwrap()
}

#[test]
fn gdb_names_a_linked_function_between_those_of_a_c_program() {
    let Some(mut gdb) = require("gdb") else { return };
    let Some((program, object)) = build() else { return };
    gdb.args(["-batch", "-nx", "-iex", "set debuginfod enabled off", "-ex", "break stop_here", "-ex", "run"]);
    gdb.args(["-ex", "backtrace", "-ex", "continue", "--args"]).arg(program.path()).arg("debugger").arg(object);
    let output = succeed(&mut gdb);
    let frame = |number: u32| {
        let start = format!("#{number} ");
        output.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no {start}: {output}"))
    };
    assert!(frame(0).contains("stop_here (number=6)"), "{output}");
    assert!(frame(1).contains(" in linked ("), "{output}");
    assert!(frame(2).contains(" main ("), "{output}");
    assert!(output.contains("exited normally"), "{output}");
}

#[test]
fn the_perf_map_names_a_linked_function_of_a_c_program() {
    let Some((program, object)) = build() else { return };
    let run = Command::new(program.path()).arg("map").arg(object).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let map = PathBuf::from(format!("/tmp/perf-{}.map", run.id()));
    let run = run.wait_with_output().unwrap();
    assert!(run.status.success(), "{}", run.status);
    let lines = fs::read_to_string(&map).unwrap();
    fs::remove_file(map).unwrap();
    let address = address_of(&String::from_utf8(run.stdout).unwrap());
    let is_linked = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        u64::from_str_radix(words[0], 16) == Ok(address) && words[2] == "linked"
    };
    assert!(lines.lines().any(is_linked), "{address:x} in\n{lines}");
}

#[test]
fn the_jitdump_names_a_linked_function_of_a_c_program() {
    let Some((program, object)) = build() else { return };
    let directory = program.directory.path("dumps");
    fs::create_dir(&directory).unwrap();
    let mut command = Command::new(program.path());
    let address = address_of(&succeed(command.arg("jitdump").arg(object).env("JITTISON_PERF_DIR", &directory)));
    let dump = fs::read(only_file(&only_file(&directory))).unwrap();
    // In a load record the name follows the address of the code, its size and its number.
    let name = dump.windows(8).position(|window| window == b"\0linked\0").expect("the dump has the name");
    let number_of = |offset: usize| u64::from_le_bytes(dump[offset..offset + 8].try_into().unwrap());
    assert_eq!(number_of(name + 1 - 24), address);
}

fn only_file(directory: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}
