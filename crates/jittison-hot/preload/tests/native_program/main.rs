//! Programs of C and C++ that a compiler and its linker made, started with the library preloaded, and edited while they run. Each line of
//! the table *Into a program that was started normally* in `docs/watch.md` has a test here that it names.
//!
//! A program answers one line for each line of its input, so the tests wait for nothing but lines.
//!
//! | file | holds |
//! |---|---|
//! | this file | a program that runs; what it is built from |
//! | `following.rs` | what follows |
//! | `freeing.rs` | which replaced versions are freed |
//! | `refusing.rs` | what is refused by name |

mod following;
mod freeing;
mod refusing;

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use jittison_test_tools::{PrivateDir, require};

/// The flags that `docs/watch.md` advises.
const FLAGS: [&str; 6] = [
    "-O2",
    "-fPIC",
    "-ffunction-sections",
    "-fdata-sections",
    "-fpatchable-function-entry=114,112",
    "-flive-patching=inline-only-static",
];

/// Answers each line with `step(n)`, where `n` counts the lines.
const MAIN: &str = "#include <stdio.h>
long step(long n);
int main(void) {
    char line[64];
    for (long n = 1; fgets(line, sizeof line, stdin); n++) { printf(\"%ld\\n\", step(n)); fflush(stdout); }
    return 7;
}";

/// How a program is built.
#[derive(Clone, Copy)]
struct Build<'a> {
    compiler: &'a str,
    flags: &'a [&'a str],
    link: &'a [&'a str],
    /// What `JITTISON_HOT` is. Without, the objects in their order.
    list: Option<&'a str>,
}

const GCC: Build<'static> = Build { compiler: "gcc", flags: &FLAGS, link: &[], list: None };

/// A program that runs.
struct Running {
    directory: PrivateDir,
    child: Child,
    output: Receiver<String>,
    events: Receiver<String>,
    build: (String, Vec<String>),
}

impl Build<'_> {
    /// Compiles `main` and `step`, links them, and starts the program. `None` without the compiler.
    fn start(self, main: &str, step: &str) -> Option<Running> {
        let mut running = self.start_unchecked(main, step)?;
        let event = running.event();
        assert!(event.starts_with("jittison: watching "), "{event}");
        Some(running)
    }

    fn start_unchecked(self, main: &str, step: &str) -> Option<Running> {
        let directory = PrivateDir::new();
        for (name, text) in [("main", main), ("step", step)] {
            compile(&directory, (self.compiler, self.flags), name, text)?;
        }
        self.run(directory)
    }

    /// Links the objects of a directory, and starts the program.
    fn run(self, directory: PrivateDir) -> Option<Running> {
        let mut linker = require(self.compiler)?;
        linker.current_dir(&*directory).args(["main.o", "step.o", "-o", "program", "-pthread"]).args(self.link);
        succeed(&mut linker);
        Some(self.start_program(directory))
    }

    /// Starts the program that was linked in a directory.
    fn start_program(self, directory: PrivateDir) -> Running {
        let mut program = Command::new(directory.path("program"));
        program.current_dir(&*directory).env("LD_PRELOAD", library());
        program.env("JITTISON_HOT", self.list.unwrap_or("main.o:step.o"));
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = lines_of(child.stdout.take().unwrap());
        let events = lines_of(child.stderr.take().unwrap());
        let build = (self.compiler.to_string(), self.flags.iter().map(|flag| flag.to_string()).collect());
        Running { directory, child, output, events, build }
    }
}

impl Running {
    /// Sends a line, and returns the answer.
    fn ask(&mut self) -> String {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.output.recv_timeout(PATIENCE).expect("the program answers")
    }

    /// The next line of the library.
    fn event(&mut self) -> String {
        self.events.recv_timeout(PATIENCE).expect("the library prints a line")
    }

    /// Writes a new version of `step.o`.
    fn edit(&self, text: &str) {
        let flags: Vec<&str> = self.build.1.iter().map(String::as_str).collect();
        compile(&self.directory, (&self.build.0, &flags), "step", text).unwrap();
    }

    /// Writes a new version of `step.o`, and waits until it runs.
    fn follow(&mut self, text: &str) -> String {
        self.edit(text);
        let event = self.event();
        assert!(event.starts_with("jittison: step.o version "), "{event}");
        event
    }

    /// Writes a new version of `step.o`, and waits until it is refused. The line says each of these.
    fn refuse(&mut self, text: &str, says: &[&str]) {
        self.edit(text);
        self.refused(says);
    }

    fn refused(&mut self, says: &[&str]) {
        let event = self.event();
        assert!(event.ends_with("; the running code stays"), "{event}");
        says.iter().for_each(|says| assert!(event.contains(says), "{says}: {event}"));
    }

    /// Ends the input. The program ends as it would without the library.
    fn end(mut self) {
        drop(self.child.stdin.take());
        assert_eq!(self.child.wait().unwrap().code(), Some(7));
    }
}

/// A program that does not end, or whose test failed, is killed.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles a source beside the object, and lets the object take its name at once.
fn compile(directory: &PrivateDir, (compiler, flags): (&str, &[&str]), name: &str, text: &str) -> Option<()> {
    let extension = if compiler.contains("++") { "cpp" } else { "c" };
    let source = format!("{name}.{extension}");
    directory.write(&source, text);
    let mut command = require(compiler)?;
    command.current_dir(&**directory).args(flags).args(["-c", &source, "-o", "new"]);
    succeed(&mut command);
    std::fs::rename(directory.path("new"), directory.path(&format!("{name}.o"))).unwrap();
    Some(())
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The shared library that was built with this test: it is in the directory of the test program.
fn library() -> PathBuf {
    let library = std::env::current_exe().unwrap().parent().unwrap().join("libjittison_hot_preload.so");
    assert!(library.exists(), "{library:?} was not built");
    library
}

/// The lines of a stream. A thread reads them, so that a wait for one is bounded.
fn lines_of(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Far more than any step takes.
const PATIENCE: Duration = Duration::from_secs(120);
