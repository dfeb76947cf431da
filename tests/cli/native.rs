//! Helpers: compilers, the tool, and the comparison of a program under `jittison run` with the natively linked one.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use assert_cmd::assert::Assert;
use jittison_test_support::{PrivateDir, require, rustc};
use predicates::function;
use serde_json::Value;

/// The exit status of the tool if it fails.
pub const FAILED: i32 = 125;

/// An architecture, as messages name it.
#[derive(Clone, Copy)]
pub struct Machine {
    pub name: &'static str,
    /// `e_machine` of its objects.
    pub number: u16,
}

const X86_64: Machine = Machine { name: "x86-64", number: 62 };
const AARCH64: Machine = Machine { name: "AArch64", number: 183 };
/// The architecture that the tests run on.
pub const OWN: Machine = if cfg!(target_arch = "x86_64") { X86_64 } else { AARCH64 };
/// Another architecture that the tool links for.
pub const OTHER: Machine = if cfg!(target_arch = "x86_64") { AARCH64 } else { X86_64 };

/// The refusal of an object for `found` in a session that links for `expected`.
pub fn wrong_architecture(found: Machine, expected: Machine) -> String {
    format!(
        "wrong architecture: e_machine is {} ({}), but this session links {} ({})",
        found.name, found.number, expected.name, expected.number
    )
}

/// A C and a C++ compiler of one family.
#[derive(Clone, Copy)]
pub struct Toolchain {
    pub c: &'static str,
    pub cpp: &'static str,
}

pub const GNU: Toolchain = Toolchain { c: "gcc", cpp: "g++" };
const CLANG: Toolchain = Toolchain { c: "clang-19", cpp: "clang++-19" };

/// The installed toolchains. Without clang the test runs with gcc only, and is also reported as skipped.
pub fn toolchains() -> Vec<Toolchain> {
    let has_clang = require(CLANG.c).and_then(|_| require(CLANG.cpp)).is_some();
    if has_clang { vec![GNU, CLANG] } else { vec![GNU] }
}

/// A command that runs `tool` in `directory`. Nothing here can be tested without gcc and binutils: if they are missing, the
/// test fails.
pub fn tool(tool: &str, directory: &Path) -> Command {
    let mut command = Command::from_std(require(tool).unwrap_or_else(|| panic!("the test needs {tool}")));
    command.current_dir(directory);
    command
}

/// The words by which a shell starts `tool`, for scripts and databases of a test.
pub fn words_of(tool: &str) -> String {
    let command = require(tool).unwrap_or_else(|| panic!("the test needs {tool}"));
    let words: Vec<_> = [command.get_program()].into_iter().chain(command.get_args()).collect();
    words.iter().map(|word| word.to_str().expect("it is text")).collect::<Vec<_>>().join(" ")
}

/// An empty directory of one test.
pub fn directory() -> PrivateDir {
    PrivateDir::new()
}

/// Compiles sources of `programs/` to objects in `directory`, and returns the names of the objects.
pub fn compile(toolchain: Toolchain, flags: &[&str], sources: &[&str], directory: &Path) -> Vec<String> {
    let one = |source: &&str| {
        let compiler = if source.ends_with(".cpp") { toolchain.cpp } else { toolchain.c };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/programs").join(source);
        let object = format!("{}.o", source.split('.').next().unwrap_or(source));
        tool(compiler, directory).args(["-c", "-fPIC", "-w"]).args(flags).arg(path).args(["-o", &object]).unwrap();
        object
    };
    sources.iter().map(one).collect()
}

/// The command `jittison`, which runs in `directory`. Cargo builds in the folder of the package.
pub fn jittison(directory: &Path) -> Command {
    let mut command = assert_cmd::cargo_bin_cmd!("jittison");
    command.current_dir(directory).env_remove("JITTISON_TEST").env_remove("CARGO_TARGET_DIR").envs(cargo_target());
    command
}

/// The command `cargo-jittison`, as [`jittison`].
pub fn cargo_jittison(directory: &Path) -> Command {
    let mut command = assert_cmd::cargo_bin_cmd!("cargo-jittison");
    command.current_dir(directory).env_remove("CARGO_TARGET_DIR").envs(cargo_target());
    command
}

/// The variable that makes Cargo build for the architecture of the tests. None if it does that anyway.
pub fn cargo_target() -> Option<(&'static str, OsString)> {
    // The compiler of the tests gets `--target` and the architecture, if it needs them.
    let target = rustc()?.get_args().nth(1).map(OsStr::to_os_string);
    target.map(|target| ("CARGO_BUILD_TARGET", target))
}

/// Asserts that the tool fails with one line of error text.
pub fn fails(directory: &Path, arguments: &[&str]) -> Assert {
    has_failed(jittison(directory).args(arguments).assert())
}

/// Asserts that the finished tool has failed with one line of error text, and has printed nothing else.
pub fn has_failed(finished: Assert) -> Assert {
    let is_one_line = |text: &str| {
        text.starts_with("jittison: ") && text.find('\n') == Some(text.len() - 1) && !text.contains("panicked")
    };
    finished.code(FAILED).stdout("").stderr(function::function(is_one_line))
}

/// The standard error of a finished command.
pub fn error_text(finished: &Assert) -> String {
    String::from_utf8_lossy(&finished.get_output().stderr).into_owned()
}

/// The report that a run wrote to `report.json`.
pub fn report(directory: &Path) -> Value {
    let text = std::fs::read_to_string(directory.join("report.json")).expect("the report was written");
    serde_json::from_str(&text).expect("the report is JSON")
}

/// A program as objects, and as an executable of the system linker.
pub struct Twins {
    pub directory: PrivateDir,
    pub objects: Vec<String>,
    label: String,
}

impl Twins {
    pub fn build(toolchain: Toolchain, flags: &[&str], name: &str, sources: &[&str]) -> Twins {
        let label = format!("{name}-{}{}", toolchain.c, flags.concat());
        let directory = directory();
        let objects = compile(toolchain, flags, sources, &directory);
        let has_cpp = sources.iter().any(|source| source.ends_with(".cpp"));
        let compiler = if has_cpp { toolchain.cpp } else { toolchain.c };
        Twins::link(compiler, flags, label, directory, objects)
    }

    /// Links objects and archives of `directory` with `compiler`.
    pub fn link(compiler: &str, flags: &[&str], label: String, directory: PrivateDir, objects: Vec<String>) -> Twins {
        let mut link = tool(compiler, &directory);
        // Objects with absolute addresses cannot be linked into a PIE.
        link.args(flags.contains(&"-fno-pic").then_some("-no-pie"));
        link.args(&objects).args(["-o", "native", "-lm", "-pthread"]).unwrap();
        Twins { directory, objects, label }
    }

    /// Runs both with the same arguments, and asserts that output and status are equal. `JITTISON_TEST` in their environment is
    /// `setting`.
    pub fn compare(&self, arguments: &[&str], setting: &str) -> Output {
        let mut native = std::process::Command::new(self.directory.join("native"));
        // `argv[0]` is the name that the tool gives the program.
        native.arg0(&self.objects[0]).current_dir(&*self.directory).args(arguments).env("JITTISON_TEST", setting);
        let expected = Command::from_std(native).output().expect("the native program runs");
        let mut tool = jittison(&self.directory);
        tool.arg("run").args(&self.objects).arg("--").args(arguments).env("JITTISON_TEST", setting);
        let found = tool.output().expect("the tool runs");
        let shown = |output: &Output| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let status = (output.status.code(), output.status.signal());
            format!("status {status:?}\n-- out\n{}-- err\n{}", text(&output.stdout), text(&output.stderr))
        };
        let label = format!("{} {arguments:?} {setting}", self.label);
        let (expected, shown) = (shown(&expected), shown(&found));
        assert!(expected == shown, "{label}: native:\n{expected}\nlinked here:\n{shown}");
        found
    }
}

/// Builds a program with every toolchain and optimisation level, and calls `check` with each.
pub fn each_build(name: &str, sources: &[&str], check: impl Fn(&Twins)) {
    for toolchain in toolchains() {
        for optimisation in ["-O0", "-O2"] {
            check(&Twins::build(toolchain, &[optimisation], name, sources));
        }
    }
}
