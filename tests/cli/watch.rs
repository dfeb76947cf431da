//! `jittison watch`: objects of a running program are written again. The program answers one line for each line of its input, so
//! the tests wait for nothing but lines.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use jittison_test_support::PrivateDir;
use serde_json::Value;

use crate::native::{cargo_target, directory, tool, words_of};

pub const MAIN: &str = "#include <stdio.h>
long step(long n);
int main(void) {
    char line[64];
    for (long n = 1; fgets(line, sizeof line, stdin) && line[0] != 'q'; n++) { printf(\"%ld\\n\", step(n)); fflush(stdout); }
    return 7;
}";

/// A running `jittison watch`.
pub struct Watched {
    pub directory: PrivateDir,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    events: BufReader<std::process::ChildStderr>,
}

impl Watched {
    /// Starts a program of `main.o` and `step.o`, and waits until its files are watched.
    fn start(options: &[&str], step: &str) -> Watched {
        Watched::start_with(options, &[("step", step)])
    }

    /// As [`start`](Self::start), with other objects beside `main.o`.
    fn start_with(options: &[&str], objects: &[(&str, &str)]) -> Watched {
        Watched::start_main(options, MAIN, objects)
    }

    /// As [`start_with`](Self::start_with), with this source of `main.o`.
    pub fn start_main(options: &[&str], main: &str, objects: &[(&str, &str)]) -> Watched {
        let directory = directory();
        std::fs::create_dir_all(directory.join("src")).expect("the directory is writable");
        let mut arguments: Vec<String> = options.iter().map(|option| option.to_string()).collect();
        for (name, text) in [&[("main", main)], objects].concat() {
            compile_source(&directory, name, text);
            arguments.push(format!("{name}.o"));
        }
        Watched::start_in(directory, &arguments)
    }

    pub fn start_in(directory: PrivateDir, arguments: &[String]) -> Watched {
        let command = Watched::command(&directory, arguments);
        Watched::spawn(directory, command)
    }

    fn command(directory: &Path, arguments: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_jittison"));
        command.current_dir(directory).args(["watch", "--json"]).args(arguments);
        command.env_remove("CARGO_TARGET_DIR").envs(cargo_target());
        command
    }

    fn spawn(directory: PrivateDir, mut command: Command) -> Watched {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the tool runs");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it has an output"));
        let events = BufReader::new(child.stderr.take().expect("it has an error output"));
        let mut watched = Watched { directory, child, input, output, events };
        assert_eq!(watched.event()["event"], "watching");
        watched
    }

    pub fn event(&mut self) -> Value {
        let mut line = String::new();
        self.events.read_line(&mut line).expect("an event is text");
        serde_json::from_str(&line).unwrap_or_else(|problem| panic!("{problem}: {line:?}"))
    }

    /// The next event, which is a refusal that says this.
    fn refusal(&mut self, says: &str) {
        let event = self.event();
        assert_eq!(event["event"], "refused", "{event}");
        assert!(event["error"].as_str().is_some_and(|error| error.contains(says)), "{event}");
    }

    /// Replaces a file at once, so that the tool sees it whole.
    fn replace(&self, file: &str, bytes: &[u8]) {
        let new = self.directory.join("replacement");
        std::fs::write(&new, bytes).expect("the directory is writable");
        std::fs::rename(new, self.directory.join(file)).expect("the directory is writable");
    }

    pub fn ask(&mut self) -> String {
        self.input.as_mut().expect("it was not closed").write_all(b"\n").expect("the program reads");
        self.line()
    }

    /// The next line of the program.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("an answer is text");
        line.trim().to_string()
    }

    pub fn write(&self, name: &str, text: &str) {
        compile_source(&self.directory, name, text);
    }

    /// Ends the program. Returns its exit status and the rest of its error output.
    pub fn end(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        let status = self.child.wait().expect("it ends");
        let mut rest = String::new();
        self.events.read_to_string(&mut rest).expect("events are text");
        (status.code(), rest)
    }
}

/// A program that does not end, or whose test failed, is killed.
impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles to another file first, and renames it, so that the tool sees one change.
pub fn compile_source(directory: &Path, name: &str, text: &str) {
    let source = directory.join(format!("{name}.c"));
    std::fs::write(&source, text).expect("the directory is writable");
    let new = directory.join(format!("{name}.new"));
    let flags = ["-O1", "-fPIC", "-ffunction-sections", "-fdata-sections", "-c"];
    tool("gcc", directory).args(flags).arg(&source).arg("-o").arg(&new).unwrap();
    std::fs::rename(&new, directory.join(format!("{name}.o"))).expect("the directory is writable");
}

fn step(sum: &str, more: &str) -> String {
    format!("{more} static long calls; long step(long n) {{ calls++; return {sum}; }}")
}

#[test]
fn a_running_program_follows_its_objects() {
    follow_objects(&[]);
}

#[test]
fn a_program_that_runs_in_an_executor_follows_its_objects() {
    follow_objects(&["--executor"]);
}

fn follow_objects(options: &[&str]) {
    let mut program = Watched::start(options, &step("1000 + calls", ""));
    assert_eq!(program.ask(), "1001");

    program.write("step", &step("2000 + calls", ""));
    let event = program.event();
    assert_eq!(
        (&event["event"], &event["object"], &event["version"]),
        (&"reloaded".into(), &"step.o".into(), &1.into())
    );
    assert_eq!(event["changed"], serde_json::json!(["step"]));
    assert!(event["milliseconds"]["total"].as_f64().is_some_and(|time| time > 0.0), "{event}");
    assert_eq!(program.ask(), "2002");

    // A broken object, and an object that cannot follow.
    program.replace("step.o", b"no object");
    program.refusal("cannot link step.o: not a relocatable ELF64 object: it begins with");
    program.write("step", "static char calls; long step(long n) { return calls++; }");
    program.refusal("`calls`");
    assert_eq!(program.ask(), "2003");

    program.write("step", &step("3000 + calls + 10 * fresh++", "static long fresh = 5;"));
    let event = program.event();
    assert_eq!(event["new_variables"], serde_json::json!(["fresh"]));
    assert_eq!((program.ask(), program.ask()), ("3054".to_string(), "3065".to_string()));
    assert_eq!(program.end(), (Some(7), String::new()));
}

#[test]
fn a_call_of_a_new_function_waits_for_the_object_that_defines_it() {
    let mut program = Watched::start(&[], &step("calls", ""));
    program.write("step", &step("helper(n)", "long helper(long n);"));
    let event = program.event();
    assert!(event["error"].as_str().is_some_and(|error| error.contains("helper")), "{event}");
    program.write("main", &format!("{MAIN} long helper(long n) {{ return 500 + n; }}"));
    let (first, second) = (program.event(), program.event());
    assert_eq!((&first["object"], &second["object"]), (&"main.o".into(), &"step.o".into()));
    assert_eq!(program.ask(), "501");
    assert_eq!(program.end().0, Some(7));
}

#[test]
fn an_object_that_is_refused_does_not_hold_others_without_a_build() {
    let mut program = Watched::start(&[], &step("calls", ""));
    program.write("main", &format!("{MAIN} long missing(void); long more(void) {{ return missing(); }}"));
    assert!(program.event()["error"].as_str().is_some_and(|error| error.contains("missing")));
    program.write("step", &step("10 + calls", ""));
    let (first, second) = (program.event(), program.event());
    assert_eq!((&first["event"], &first["object"]), (&"reloaded".into(), &"step.o".into()));
    assert_eq!((&second["event"], &second["object"]), (&"refused".into(), &"main.o".into()));
    assert_eq!(program.ask(), "11");
    // Its first bytes run, so nothing is left to do.
    program.write("main", MAIN);
    program.write("step", &step("20 + calls", ""));
    assert_eq!(program.event()["event"], "reloaded");
    assert_eq!(program.ask(), "22");
    assert_eq!(program.end(), (Some(7), String::new()));
}

#[test]
fn the_objects_of_a_build_follow_together_or_not_at_all() {
    // All sources are in one file, so a save is one change.
    let compile = format!("{} -O1 -fPIC -ffunction-sections -fdata-sections", words_of("gcc"));
    let build = format!("for name in half step; do {compile} -DIN_$name -c src/all.c -o $name.o; done");
    let source = |half: &str, step: &str| format!("#ifdef IN_half\n{half}\n#else\n{step}\n#endif");
    let (half, user) =
        ("long half(long n) { return n / 2; }", "long half(long n); long step(long n) { return half(100); }");
    let options = ["--build", &build, "--source", "src"];
    let mut program = Watched::start_with(&options, &[("half", half), ("step", user)]);
    let path = program.directory.join("src/all.c");
    let save = |half: &str, step: &str| std::fs::write(&path, source(half, step)).expect("the directory is writable");
    assert_eq!(program.ask(), "50");

    // A signature changes, and with it what its caller needs of others: nobody has it.
    let half = "double half(double n, long *calls) { ++*calls; return n / 2; }";
    let user = "double half(double n, long *calls); static long calls; long step(long n) { return half(9, &calls) * 10 + calls";
    save(half, &format!("long missing(void); {user} + missing(); }}"));
    let event = program.event();
    assert_eq!((&event["event"], &event["objects"]), (&"refused".into(), &serde_json::json!(["half.o", "step.o"])));
    assert!(event["error"].as_str().is_some_and(|error| error.contains("missing")), "{event}");
    assert_eq!(program.ask(), "50");

    save(half, &format!("{user}; }}"));
    let (first, second) = (program.event(), program.event());
    assert_eq!((&first["event"], &first["object"]), (&"reloaded".into(), &"half.o".into()), "{first}");
    assert_eq!((&second["event"], &second["object"]), (&"reloaded".into(), &"step.o".into()), "{second}");
    assert_eq!(program.ask(), "46");
    assert_eq!(program.end(), (Some(7), String::new()));
}

/// Writes `libparts.a` with these members, which are compiled to files of their names, in folders of their own if they have one.
fn archive(directory: &Path, members: &[(&str, &str)]) {
    let mut files = Vec::new();
    for (name, text) in members {
        std::fs::create_dir_all(directory.join(name).parent().expect("it is in a folder")).expect("it is writable");
        compile_source(directory, name, text);
        files.push(format!("{name}.o"));
    }
    let _ = std::fs::remove_file(directory.join("new.a"));
    tool("ar", directory).args(["qcs", "new.a"]).args(files).unwrap();
    std::fs::rename(directory.join("new.a"), directory.join("libparts.a")).expect("the directory is writable");
}

#[test]
fn members_of_archives_follow() {
    for whole in [false, true] {
        let directory = directory();
        compile_source(&directory, "main", MAIN);
        // Two members of one name, and one that nobody needs.
        let step = ("one/part", "long half(long n); long step(long n) { return half(100 * n); }");
        let half = ("two/part", "long half(long n) { return n / 2; }");
        let other = ("other", "long other(void) { return 1; }");
        archive(&directory, &[step, half, other]);
        let arguments =
            if whole { vec!["main.o", "--whole-archive", "libparts.a"] } else { vec!["main.o", "libparts.a"] };
        let arguments: Vec<String> = arguments.into_iter().map(String::from).collect();
        let mut program = Watched::start_in(directory, &arguments);
        assert_eq!(program.ask(), "50");

        archive(&program.directory, &[step, ("two/part", "long half(long n) { return n + 1; }"), other]);
        let event = program.event();
        assert_eq!(event["changed"], serde_json::json!(["half"]), "{event}");
        assert!(event["object"].as_str().is_some_and(|name| name.contains("libparts.a(part.o")), "{event}");
        assert_eq!(program.ask(), "201");

        // Both follow together.
        let step = ("one/part", "long half(long n, long more); long step(long n) { return half(100 * n, 7); }");
        let half = ("two/part", "long half(long n, long more) { return n + more; }");
        archive(&program.directory, &[step, half, other]);
        let (first, second) = (program.event(), program.event());
        assert_eq!((&first["event"], &second["event"]), (&"reloaded".into(), &"reloaded".into()), "{first} {second}");
        assert_eq!(program.ask(), "307");

        // What is gone stays as it is, and follows when it is there again.
        archive(&program.directory, &[step, other]);
        program.refusal("the archive has no such member any more");
        assert_eq!(program.ask(), "407");
        program.replace("libparts.a", b"no archive");
        for _ in 0..if whole { 3 } else { 2 } {
            program.refusal("libparts.a");
        }
        assert_eq!(program.ask(), "507");
        archive(&program.directory, &[step, ("two/part", "long half(long n, long more) { return n - more; }"), other]);
        assert_eq!(program.event()["changed"], serde_json::json!(["half"]));
        assert_eq!(program.ask(), "593");
        assert_eq!(program.end(), (Some(7), String::new()));
    }
}

#[test]
fn a_member_that_cannot_be_reloaded_is_linked_and_named() {
    let directory = directory();
    compile_source(&directory, "main", MAIN);
    compile_source(&directory, "other", "static const char text[] __attribute__((used)) = \"text\";");
    compile_source(&directory, "step", "long step(long n) { return n; }");
    tool("strip", &directory).args(["--strip-all", "other.o"]).unwrap();
    tool("ar", &directory).args(["qcs", "libparts.a", "step.o", "other.o"]).unwrap();
    let arguments = ["main.o", "--whole-archive", "libparts.a"].map(String::from);
    let mut child = Watched::command(&directory, &arguments);
    let output = child.stdin(Stdio::null()).output().expect("the tool runs");
    let events = String::from_utf8_lossy(&output.stderr);
    let first: Value = serde_json::from_str(events.lines().next().unwrap_or_default()).expect("an event is JSON");
    assert_eq!(first["event"], "not_followed", "{events}");
    assert!(first["object"].as_str().is_some_and(|name| name.contains("libparts.a(other.o")), "{events}");
    assert!(first["error"].as_str().is_some_and(|error| error.contains("it has no symbol table")), "{events}");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_member_that_is_needed_later_is_linked_unless_its_archive_was_written_again() {
    const STEP: &str = "long other(void); long step(long n) { return n + other(); }";
    let start = || {
        let directory = directory();
        compile_source(&directory, "main", MAIN);
        compile_source(&directory, "step", "long step(long n) { return n; }");
        archive(&directory, &[("other", "long other(void) { return 10; }")]);
        let mut program = Watched::start_in(directory, &["main.o", "step.o", "libparts.a"].map(String::from));
        assert_eq!(program.ask(), "1");
        program
    };
    let mut program = start();
    program.write("step", STEP);
    assert_eq!(program.event()["event"], "reloaded");
    assert_eq!(program.ask(), "12");
    assert_eq!(program.end(), (Some(7), String::new()));

    let mut program = start();
    archive(&program.directory, &[("other", "long other(void) { return 20; }")]);
    program.write("step", STEP);
    let event = program.event();
    assert_eq!(event["event"], "refused", "{event}");
    assert!(event["error"].as_str().is_some_and(|error| error.contains("libparts.a: it was written again")), "{event}");
    assert_eq!(program.ask(), "2");
    assert_eq!(program.end(), (Some(7), String::new()));
}

#[test]
fn an_object_that_is_written_after_it_was_read_follows() {
    // Before the first folder is watched, another file takes the name of an object.
    const PRELOADED: &str = "#define _GNU_SOURCE
        #include <stdint.h>
        #include <stdio.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int inotify_add_watch(int fd, const char *path, uint32_t mask) {
            rename(\"late.o\", \"step.o\");
            return syscall(SYS_inotify_add_watch, fd, path, mask);
        }";
    let directory = directory();
    for (name, text) in [("main", MAIN), ("late", &step("2000 + calls", "")), ("step", &step("1000 + calls", ""))] {
        compile_source(&directory, name, text);
    }
    std::fs::write(directory.join("preloaded.c"), PRELOADED).expect("the directory is writable");
    tool("gcc", &directory).args(["-shared", "-fPIC", "preloaded.c", "-o", "preloaded.so"]).unwrap();
    let mut command = Watched::command(&directory, &["main.o", "step.o"].map(String::from));
    command.env("LD_PRELOAD", directory.join("preloaded.so"));
    let mut program = Watched::spawn(directory, command);
    let event = program.event();
    assert_eq!((&event["event"], &event["object"]), (&"reloaded".into(), &"step.o".into()), "{event}");
    assert_eq!(program.ask(), "2001");
    assert_eq!(program.end(), (Some(7), String::new()));
}

#[test]
fn a_saved_source_is_built() {
    let gcc = words_of("gcc");
    let build = format!("{gcc} -O1 -fPIC -ffunction-sections -fdata-sections -c src/step.c -o step.o");
    let mut program = Watched::start(&["--build", &build, "--source", "src"], &step("1000 + calls", ""));
    assert_eq!(program.ask(), "1001");
    let source = program.directory.join("src/step.c");
    let save = |text: &str| std::fs::write(&source, text).expect("the directory is writable");
    save(&step("2000 + calls", ""));
    let event = program.event();
    assert_eq!(event["event"], "reloaded", "{event}");
    assert!(event["milliseconds"]["build"].as_f64().is_some_and(|time| time > 0.0), "{event}");
    assert_eq!(program.ask(), "2002");
    save("long step(long n) { return nonsense; }");
    let event = program.event();
    assert_eq!(event["event"], "build_failed");
    assert!(event["output"].as_str().is_some_and(|output| output.contains("nonsense")), "{event}");
    assert_eq!(program.ask(), "2003");
    assert_eq!(program.end().0, Some(7));
}

#[test]
fn lines_for_people_name_what_changed() {
    let directory = directory();
    compile_source(&directory, "main", MAIN);
    compile_source(&directory, "step", &step("1", ""));
    let mut command = Command::new(env!("CARGO_BIN_EXE_jittison"));
    command.current_dir(&*directory).args(["watch", "main.o", "step.o"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the tool runs");
    let mut lines = BufReader::new(child.stderr.take().expect("it has an error output")).lines();
    let mut next = || lines.next().expect("there is a line").expect("it is text");
    assert_eq!(next(), "jittison: watching main.o, step.o");
    compile_source(&directory, "step", &step("2 + hidden++", "static long hidden = 1;"));
    let line = next();
    assert!(line.starts_with("jittison: step.o version 1: changed step; new variables hidden; "), "{line}");
    assert!(line.contains(" bytes of code; live after ") && line.contains("read "), "{line}");
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(7));
}

#[test]
fn a_watched_program_must_run() {
    let directory = directory();
    compile_source(&directory, "main", "int main(void) { return 0; }");
    let mut tool = crate::native::jittison(&directory);
    let refused = tool.args(["watch", "--no-exec", "main.o"]).assert().code(125);
    refused.stderr(predicates::str::contains("leave --no-exec out"));
}
