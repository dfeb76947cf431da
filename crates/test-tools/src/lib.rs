//! Helpers of the tests of jittison that do not use jittison: what a test needs of the machine ([`require`]), compilers,
//! temporary directories, processes of a test's own, source files.

mod compiled;
mod cross;
mod process;
mod require;
mod set_on_drop;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use cross::{LARGE_CODE_MODEL, MARKED_ENTRIES, TLS_DESCRIPTORS, emulated, require_x86_64};
pub use process::*;
pub use require::*;
pub use set_on_drop::SetOnDrop;
pub use sources::rust_files;

// ---- compilers --------------------------------------------------------------

/// Compiles C with gcc: position-independent, `-O2`.
pub fn c(source: &str) -> Option<Vec<u8>> {
    gcc(&["-O2", "-fPIC"], source)
}

pub fn gcc(flags: &[&str], source: &str) -> Option<Vec<u8>> {
    compile("gcc", "c", flags, source)
}

pub fn clang(flags: &[&str], source: &str) -> Option<Vec<u8>> {
    compile("clang-19", "c", flags, source)
}

/// Compiles C++ with g++: position-independent, `-O2`.
pub fn cpp(source: &str) -> Option<Vec<u8>> {
    gxx(&["-O2", "-fPIC"], source)
}

pub fn gxx(flags: &[&str], source: &str) -> Option<Vec<u8>> {
    compile("g++", "c++", flags, source)
}

/// Assembles x86-64. On another architecture the test is skipped: `None`.
pub fn asm(source: &str) -> Option<Vec<u8>> {
    if !require_x86_64() {
        return None;
    }
    compile("gcc", "assembler", &[], source)
}

/// Assembles a source for the architecture of the tests: one of the two.
pub fn asm_of_target(x86_64: &str, aarch64: &str) -> Option<Vec<u8>> {
    compile("gcc", "assembler", &[], if cfg!(target_arch = "x86_64") { x86_64 } else { aarch64 })
}

/// Compiles a Rust library crate with `flags`.
pub fn rust(flags: &[&str], source: &str) -> Option<Vec<u8>> {
    let mut args = vec!["--edition", "2021", "--crate-name", "jitted", "--emit", "obj", "--crate-type", "lib"];
    args.extend(["-C", "opt-level=2", "-C", "codegen-units=1"]);
    args.extend(flags);
    args.extend(["-o", OUTPUT, INPUT]);
    run(rustc()?, source.as_bytes(), &args)
}

fn compile(tool: &str, language: &str, flags: &[&str], source: &str) -> Option<Vec<u8>> {
    let args = [&["-x", language, "-c"], flags, &["-o", OUTPUT, INPUT]].concat();
    let place = compiled::place(tool, &args, source);
    if let Some(object) = place.as_ref().and_then(|place| fs::read(place).ok()) {
        return Some(object);
    }
    let object = build(tool, source.as_bytes(), &args)?;
    place.iter().for_each(|place| compiled::keep(place, &object));
    Some(object)
}

/// In the arguments of [`build`], this stands for the input file.
pub const INPUT: &str = "<input>";
/// In the arguments of [`build`], this stands for the output file.
pub const OUTPUT: &str = "<output>";

/// Runs a tool on `input` and returns the bytes of its output file. Without the tool the test is skipped: `None`.
pub fn build(tool: &str, input: &[u8], args: &[&str]) -> Option<Vec<u8>> {
    run(require(tool)?, input, args)
}

fn run(mut tool: Command, input: &[u8], args: &[&str]) -> Option<Vec<u8>> {
    let dir = PrivateDir::new();
    let (from, to) = (dir.path("input"), dir.path("output"));
    fs::write(&from, input).unwrap();
    for arg in args {
        match *arg {
            INPUT => tool.arg(&from),
            OUTPUT => tool.arg(&to),
            arg => tool.arg(arg),
        };
    }
    let run = tool.output().unwrap();
    assert!(run.status.success(), "{tool:?}: {}", String::from_utf8_lossy(&run.stderr));
    Some(fs::read(&to).unwrap())
}

/// A temporary directory that other users cannot enter. Dropping it removes the directory.
pub struct PrivateDir(tempfile::TempDir);

impl std::ops::Deref for PrivateDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}

impl PrivateDir {
    #[allow(clippy::new_without_default)]
    pub fn new() -> PrivateDir {
        PrivateDir(
            tempfile::Builder::new().prefix("jittison-").tempdir().expect("a temporary directory can be created"),
        )
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes the members, and archives them with `tool`. Without the tool the test is skipped: `None`.
    pub fn archive(&self, tool: &str, flags: &[&str], name: &str, members: &[(&str, &[u8])]) -> Option<PathBuf> {
        let mut command = require(tool)?;
        command.current_dir(self.path("")).args(flags).arg(name);
        for (member, bytes) in members {
            self.write(member, bytes);
            command.arg(member);
        }
        let run = command.output().unwrap();
        assert!(run.status.success(), "{command:?}: {}", String::from_utf8_lossy(&run.stderr));
        Some(self.path(name))
    }
}
