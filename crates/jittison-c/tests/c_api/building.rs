//! [`Program`]: a C or C++ program, compiled against the header and the shared library of this build.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use jittison_test_tools::{PrivateDir, emulated, require};

#[derive(Clone, Copy)]
pub enum Language {
    C,
    Cpp,
}

pub struct Program {
    pub directory: PrivateDir,
    path: PathBuf,
}

/// The directory of this crate.
pub fn crate_path(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The shared library that was built with this test: it is in the directory of the test program.
pub fn shared_library() -> PathBuf {
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libjittison_c.so");
    assert!(library.exists(), "{library:?} was not built");
    library
}

impl Program {
    /// Compiles `tests/c/NAME` with the extension of the language. Without a compiler the test is skipped: `None`.
    pub fn compile(name: &str, language: Language) -> Option<Program> {
        let (compiler, extension, standard) = match language {
            Language::C => ("cc", "c", "-std=c11"),
            Language::Cpp => ("c++", "cpp", "-std=c++17"),
        };
        let directory = PrivateDir::new();
        let library = shared_library();
        for link in ["libjittison.so", "libjittison.so.0"] {
            symlink(&library, directory.path(link)).unwrap();
        }
        let path = directory.path(name);
        let mut command = require(compiler)?;
        command.args([standard, "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]);
        command.arg(crate_path("include")).arg(crate_path(&format!("tests/c/{name}.{extension}"))).arg("-o").arg(&path);
        command.arg("-L").arg(&*directory).arg("-ljittison");
        command.arg(format!("-Wl,-rpath,{}", directory.display()));
        succeed(&mut command);
        Some(Program { directory, path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs the program, which must succeed.
    pub fn run(&self, arguments: &[PathBuf]) -> String {
        succeed(emulated(&self.path).args(arguments))
    }
}

/// Runs a command, which must succeed. Returns its output.
pub fn succeed(command: &mut Command) -> String {
    let run = command.output().unwrap();
    let (output, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{command:?}: {}\n{output}\n{errors}", run.status);
    output.into_owned()
}
