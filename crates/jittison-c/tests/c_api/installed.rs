//! The installed package, used by another project: by `pkg-config`, by CMake and by a plain compiler. The project is
//! `examples/c`. Valgrind finds no leak in its programs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use jittison_test_tools::{PrivateDir, c, require};

use crate::areas::VALGRIND;
use crate::building::{crate_path, shared_library, succeed};

/// What `examples/c/main.c` prints.
const OUTPUT: &str = "\
the kernel computed 42
area(6, 7) = 42
the kernel computed 6
removed, and still held: area(2, 3) = 6
live bytes: some
released: freed, live bytes: 0
";

/// An installed package, and the object for the example.
struct Package {
    directory: PrivateDir,
    kernel: PathBuf,
}

fn source(name: &str) -> PathBuf {
    crate_path("../../examples/c").join(name)
}

impl Package {
    fn install() -> Option<Package> {
        let kernel = c(&fs::read_to_string(source("kernel.c")).unwrap())?;
        let directory = PrivateDir::new();
        let built = shared_library().parent().unwrap().to_path_buf();
        require("cc")?;
        succeed(Command::new(crate_path("install")).arg("--built").arg(built).arg(directory.path("prefix")));
        let kernel = directory.write("kernel.o", kernel);
        Some(Package { directory, kernel })
    }

    fn prefix(&self, path: &str) -> PathBuf {
        self.directory.path("prefix").join(path)
    }

    /// Runs the example. The loader finds the shared library in the prefix.
    fn run(&self, command: &mut Command) {
        let output = succeed(command.arg(&self.kernel).env("LD_LIBRARY_PATH", self.prefix("lib")));
        assert_eq!(output, OUTPUT);
    }
}

#[test]
fn the_package_is_used_by_a_plain_compiler_shared_and_static() {
    let Some(package) = Package::install() else { return };
    let (shared, fixed) = (package.directory.path("shared"), package.directory.path("static"));
    let compile = || {
        let mut command = Command::new("cc");
        command.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(package.prefix("include")).arg(source("main.c"));
        command
    };
    succeed(compile().arg("-o").arg(&shared).arg("-L").arg(package.prefix("lib")).arg("-ljittison"));
    package.run(&mut Command::new(&shared));
    let libraries = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];
    succeed(compile().arg("-o").arg(&fixed).arg(package.prefix("lib/libjittison.a")).args(libraries));
    package.run(&mut Command::new(&fixed));
}

#[test]
fn the_package_is_used_by_pkg_config() {
    let Some(mut pkg_config) = require("pkg-config") else { return };
    let Some(package) = Package::install() else { return };
    pkg_config.env("PKG_CONFIG_PATH", package.prefix("lib/pkgconfig"));
    let flags = succeed(pkg_config.args(["--cflags", "--libs", "jittison"]));
    let program = package.directory.path("program");
    let mut command = Command::new("cc");
    succeed(command.arg(source("main.c")).args(flags.split_whitespace()).arg("-o").arg(&program));
    package.run(&mut Command::new(&program));
}

#[test]
fn the_package_is_used_by_cmake() {
    let Some(mut configure) = require("cmake") else { return };
    let Some(package) = Package::install() else { return };
    let project = "cmake_minimum_required(VERSION 3.16)\nproject(user C)\nfind_package(jittison 0.1 REQUIRED)\n\
                   foreach(kind jittison jittison_static)\n  add_executable(with_${kind} main.c)\n  \
                   target_link_libraries(with_${kind} PRIVATE jittison::${kind})\nendforeach()\n";
    package.directory.write("project/CMakeLists.txt", project);
    package.directory.write("project/main.c", fs::read(source("main.c")).unwrap());
    let build = package.directory.path("build");
    configure.arg("-S").arg(package.directory.path("project")).arg("-B").arg(&build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", package.directory.path("prefix").display()));
    succeed(&mut configure);
    succeed(Command::new("cmake").arg("--build").arg(&build));
    for program in ["with_jittison", "with_jittison_static"] {
        package.run(&mut Command::new(build.join(program)));
    }
}

#[test]
fn installed_symbols_have_the_version_of_the_interface() {
    let Some(mut nm) = require("nm") else { return };
    let Some(package) = Package::install() else { return };
    let symbols = succeed(nm.args(["-D", "--defined-only"]).arg(package.prefix("lib/libjittison.so")));
    let (versions, functions): (Vec<_>, Vec<_>) = symbols.lines().partition(|line| line.contains(" A "));
    assert_eq!(versions.len(), 1, "{versions:?}");
    assert!(functions.len() > 40 && functions.iter().all(|line| line.ends_with("@@JITTISON_0.1")), "{symbols}");
    assert_eq!(fs::read_link(package.prefix("lib/libjittison.so.0")).unwrap().to_str(), Some("libjittison.so.0.1.0"));
}

/// Compiles an example with `cc` against the package, and runs it under valgrind with objects of examples as arguments.
fn runs_without_a_leak(example: &str, objects: &[&str], output: &str) {
    let Some(mut valgrind) = require("valgrind") else { return };
    let Some(package) = Package::install() else { return };
    let program = package.directory.path("program");
    let mut command = Command::new("cc");
    command.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(package.prefix("include"));
    command.arg(source(&format!("{example}.c"))).arg("-o").arg(&program);
    succeed(command.arg("-L").arg(package.prefix("lib")).arg("-ljittison"));
    valgrind.args(VALGRIND).arg(&program).env("LD_LIBRARY_PATH", package.prefix("lib"));
    for object in objects {
        let Some(bytes) = c(&fs::read_to_string(source(&format!("{object}.c"))).unwrap()) else { return };
        valgrind.arg(package.directory.write(&format!("{object}.o"), bytes));
    }
    assert_eq!(succeed(&mut valgrind), output);
}

#[test]
fn the_main_job_in_c_leaks_nothing() {
    runs_without_a_leak("main", &["kernel"], OUTPUT);
}

#[test]
fn an_embedder_with_its_own_resource_manager_leaks_nothing() {
    let output = "\
event 1: 0 handlers, sum 0
event 10: 4 handlers, sum 62
removed 2 handlers
event 100: 2 handlers, sum 301
removed 2 handlers
event 1000: 0 handlers, sum 0
";
    runs_without_a_leak("resources", &["module"], output);
}

#[test]
fn a_host_that_reloads_plugins_while_they_are_called_leaks_nothing() {
    let output = "\
version 1 is loaded
version 2 is loaded
refused, for `calls`: the old version stays
version 4 is loaded
version 5 is loaded
4 versions were used, all as expected
removed: freed, live bytes: 0
";
    runs_without_a_leak("plugins", &[], output);
}
