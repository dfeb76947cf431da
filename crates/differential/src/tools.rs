//! [`Tools`]: assemblers, compilers, native linkers and `jittison`, each as a process with a time limit.
//!
//! The native linkers are called without the compiler driver, which only adds time. [`LinkCommand`] holds the arguments
//! that the driver would pass.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::Writer;

pub struct Tools {
    jittison: PathBuf,
    /// LLVM's linker; `None` if the machine has none.
    lld: Option<PathBuf>,
    /// The arguments for executables with fixed addresses, and for position-independent ones: of C, then of C++.
    commands: [[LinkCommand; 2]; 2],
    /// Compiled objects, by the hash of source and flags.
    cache: PathBuf,
    time_limit: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Linker {
    Ld,
    Lld,
}

/// What a native linker makes.
#[derive(Clone, Copy)]
pub struct Executable {
    pub is_pie: bool,
    pub has_cpp: bool,
}

/// How a process ended, and what it printed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    pub stdout: String,
    pub stderr: String,
    pub status: Status,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Exit(i32),
    Signal(i32),
    TimedOut,
}

/// The arguments of a linker before and after the inputs.
struct LinkCommand {
    before: Vec<String>,
    after: Vec<String>,
}

impl Tools {
    /// Finds the tools. `directory` gets a cache of compiled objects, which later runs use again.
    pub fn new(jittison: &Path, directory: &Path) -> Result<Tools, String> {
        let cache = directory.join("compiled");
        fs::create_dir_all(&cache).map_err(|problem| format!("{}: {problem}", cache.display()))?;
        Ok(Tools {
            jittison: jittison.to_path_buf(),
            lld: find_lld(),
            commands: [LinkCommand::of_both("gcc", directory)?, LinkCommand::of_both("g++", directory)?],
            cache,
            time_limit: Duration::from_secs(20),
        })
    }

    pub fn has(&self, linker: Linker) -> bool {
        linker == Linker::Ld || self.lld.is_some()
    }

    /// Writes an object file.
    pub fn compile(&self, writer: &Writer, source: &str, object: &Path) -> Result<(), String> {
        let (tool, flags, extension) = match writer {
            Writer::Gas => ("as", vec![], "s"),
            Writer::LlvmMc => ("llvm-mc-19", vec!["-filetype=obj", "-triple=x86_64-linux-gnu"], "s"),
            Writer::C { compiler, flags } => {
                let extension = if compiler.contains("++") { "cpp" } else { "c" };
                (*compiler, [&["-w", "-c"], &flags[..]].concat(), extension)
            }
        };
        // GNU as is as fast as the cache.
        let is_cached = *writer != Writer::Gas;
        let mut hasher = DefaultHasher::new();
        (tool, &flags, source).hash(&mut hasher);
        let cached = self.cache.join(format!("{:016x}.o", hasher.finish()));
        if is_cached && fs::copy(&cached, object).is_ok() {
            return Ok(());
        }
        let file = object.with_extension(extension);
        fs::write(&file, source).map_err(|problem| format!("{}: {problem}", file.display()))?;
        let mut command = Command::new(tool);
        command.args(&flags).arg(&file).arg("-o").arg(object);
        let ended = self.run(command, &object.with_extension("out"))?;
        if ended.status != Status::Exit(0) {
            return Err(format!("{tool} {}: {}\n{source}", flags.join(" "), ended.stderr));
        }
        if is_cached {
            // Another thread sees a complete file or none.
            let unfinished = object.with_extension("cached");
            let _ = fs::copy(object, &unfinished).and_then(|_| fs::rename(&unfinished, &cached));
        }
        Ok(())
    }

    pub fn archive(&self, archive: &Path, members: &[PathBuf]) -> Result<(), String> {
        let _ = fs::remove_file(archive);
        let mut command = Command::new("ar");
        // With a named format, `ar` does not load its plugins, which take longer than all the rest.
        command.args(["--target=elf64-x86-64", "-rcsD"]).arg(archive).args(members);
        let ended = self.run(command, &archive.with_extension("out"))?;
        if ended.status == Status::Exit(0) { Ok(()) } else { Err(ended.stderr) }
    }

    pub fn link(&self, linker: Linker, kind: Executable, inputs: &[PathBuf], program: &Path) -> Result<Ended, String> {
        let mut command = match (linker, &self.lld) {
            (Linker::Lld, Some(lld)) => Command::new(lld),
            _ => Command::new("ld"),
        };
        if linker == Linker::Lld {
            command.arg("--threads=1");
        }
        let _ = fs::remove_file(program);
        let arguments = &self.commands[usize::from(kind.has_cpp)][usize::from(kind.is_pie)];
        command.args(&arguments.before).args(inputs).args(&arguments.after).arg("-o").arg(program);
        self.run(command, &program.with_extension("link"))
    }

    pub fn run_program(&self, program: &Path, arguments: &[&str]) -> Result<Ended, String> {
        let mut command = Command::new(program);
        command.args(arguments);
        self.run(command, &program.with_extension("run"))
    }

    pub fn run_jittison(&self, inputs: &[PathBuf], arguments: &[&str], output: &Path) -> Result<Ended, String> {
        let mut command = Command::new(&self.jittison);
        command.arg("run").args(inputs).arg("--").args(arguments);
        self.run(command, output)
    }

    /// Runs a process with its output in files beside `output`, so that no pipe fills.
    fn run(&self, mut command: Command, output: &Path) -> Result<Ended, String> {
        let (out, err) = (output.with_extension("stdout"), output.with_extension("stderr"));
        let create = |path: &Path| File::create(path).map_err(|problem| format!("{}: {problem}", path.display()));
        command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?);
        let mut child = command.spawn().map_err(|problem| format!("{:?}: {problem}", command.get_program()))?;
        let start = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    let signal = status.signal().map(Status::Signal);
                    break signal.unwrap_or(Status::Exit(status.code().unwrap_or_default()));
                }
                Ok(None) if start.elapsed() > self.time_limit => {
                    let _ = child.kill();
                    let _ = child.wait();
                    break Status::TimedOut;
                }
                Ok(None) => thread::sleep(Duration::from_micros(500)),
                Err(problem) => return Err(problem.to_string()),
            }
        };
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Ok(Ended { stdout: read(&out), stderr: read(&err), status })
    }
}

impl LinkCommand {
    fn of_both(driver: &str, directory: &Path) -> Result<[LinkCommand; 2], String> {
        Ok([LinkCommand::of_driver(driver, "-no-pie", directory)?, LinkCommand::of_driver(driver, "-pie", directory)?])
    }

    /// Asks the compiler driver for the command that it would run.
    fn of_driver(driver: &str, mode: &str, directory: &Path) -> Result<LinkCommand, String> {
        let input = directory.join("input.o");
        fs::write(&input, "").map_err(|problem| problem.to_string())?;
        let ended = Command::new(driver).args(["-###", mode]).arg(&input).output();
        let output = ended.map_err(|problem| format!("{driver}: {problem}"))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let line =
            text.lines().find(|line| line.contains("collect2")).ok_or("the compiler driver names no linker command")?;
        let mut words = line.split_whitespace().map(|word| word.trim_matches('"').to_string()).skip(1);
        let mut arguments: Vec<String> = Vec::new();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-plugin" | "-o" => {
                    words.next();
                }
                word if word.starts_with("-plugin-opt") => {}
                _ => arguments.push(word),
            }
        }
        let at = arguments
            .iter()
            .position(|word| Path::new(word) == input)
            .ok_or("the compiler driver does not pass the input on")?;
        let after = arguments.split_off(at + 1);
        arguments.pop();
        Ok(LinkCommand { before: arguments, after })
    }
}

/// LLVM's linker: from `PATH`, or the one of the Rust toolchain.
fn find_lld() -> Option<PathBuf> {
    let is_lld = |path: &PathBuf| Command::new(path).arg("--version").output().is_ok_and(|run| run.status.success());
    let names = ["ld.lld-19", "ld.lld"].map(PathBuf::from);
    if let Some(found) = names.into_iter().find(is_lld) {
        return Some(found);
    }
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
    let libraries = sysroot.join("lib/rustlib");
    let targets = fs::read_dir(libraries).ok()?.flatten().map(|entry| entry.path().join("bin/gcc-ld/ld.lld"));
    targets.into_iter().find(is_lld)
}
