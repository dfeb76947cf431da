//! `jittison watch --tui` on a pseudo-terminal of `script`. The tests wait for nothing but what is on the screen.

use std::io::{PipeReader, PipeWriter, Read as _, Write as _, pipe};
use std::path::Path;
use std::process::{Child, Command};

use jittison_test_support::PrivateDir;
use jittison_test_tools::require;

use crate::native::directory;
use crate::watch::compile_source;

const COLUMNS: usize = 110;
const ROWS: usize = 40;

/// Writes the result of `step` until a signal ends it.
const ENDLESS: &str = "#include <stdio.h>
#include <unistd.h>
long step(long n);
int main(void) { for (long n = 1;; n++) { printf(\"step gives %ld\\n\", step(n)); fflush(stdout); usleep(20000); } }";

/// A terminal with a shell that runs a `watch --tui` and says then how it ended and whether the terminal is as it was.
struct Terminal {
    directory: PrivateDir,
    script: Child,
    keys: PipeWriter,
    output: PipeReader,
    /// What was written to the terminal.
    written: Vec<u8>,
}

impl Terminal {
    /// `None` without the tools.
    fn start(objects: &[(&str, &str)]) -> Option<Terminal> {
        let (mut script, _) = (require("script")?, require("stty")?);
        let directory = directory();
        let mut names = Vec::new();
        for (name, text) in objects {
            compile_source(&directory, name, text);
            names.push(format!("{name}.o"));
        }
        let (tool, names) = (env!("CARGO_BIN_EXE_jittison"), names.join(" "));
        let commands = format!(
            "stty rows {ROWS} cols {COLUMNS}; before=$(stty -g); '{tool}' watch --tui {names}; echo status $?; \
             test \"$before\" = \"$(stty -g)\" && echo restored; echo end"
        );
        script.args(["--quiet", "--flush", "--command", &commands, "/dev/null"]).current_dir(&*directory);
        script.env("SHELL", "/bin/sh").env("TERM", "xterm");
        let (input, keys) = pipe().expect("a pipe");
        let (output, output_of_script) = pipe().expect("a pipe");
        let script = script.stdin(input).stdout(output_of_script).spawn().expect("the tool runs");
        Some(Terminal { directory, script, keys, output, written: Vec::new() })
    }

    /// Reads until the screen has this.
    fn wait_for(&mut self, what: &str, is_shown: impl Fn(&Shown) -> bool) -> Shown {
        loop {
            let shown = Shown::of(&String::from_utf8_lossy(&self.written));
            if is_shown(&shown) {
                return shown;
            }
            let mut bytes = [0; 1 << 14];
            let count = self.output.read(&mut bytes).unwrap_or(0);
            assert_ne!(count, 0, "the terminal was closed before this was shown: {what}\n{}", shown.text());
            self.written.extend(&bytes[..count]);
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
        self.keys.flush().expect("the terminal takes keys");
    }

    /// Waits for the end. Returns what is on the terminal then.
    fn end(mut self) -> String {
        let shown = self.wait_for("the end", |shown| shown.text().lines().any(|line| line == "end"));
        assert!(!shown.is_alternate, "the terminal shows the screen");
        assert!(shown.has_cursor, "the cursor is hidden");
        self.script.wait().expect("it ends");
        shown.text()
    }
}

impl Drop for Terminal {
    /// After a failure, the terminal hangs up.
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// What a terminal shows.
struct Shown {
    cells: Vec<Vec<char>>,
    is_alternate: bool,
    has_cursor: bool,
}

impl Shown {
    /// Knows the control sequences that the screen uses.
    fn of(written: &str) -> Shown {
        let mut shown = Shown { cells: vec![vec![' '; COLUMNS]; ROWS], is_alternate: false, has_cursor: true };
        let (mut row, mut column) = (0, 0);
        let mut rest = written.chars();
        while let Some(character) = rest.next() {
            match character {
                '\r' => column = 0,
                '\n' => row = (row + 1).min(ROWS - 1),
                '\x1b' if rest.as_str().starts_with('[') => {
                    rest.next();
                    let text = rest.as_str();
                    let Some(end) = text.find(|last| ('@'..='~').contains(&last)) else { break };
                    let (arguments, command) = (&text[..end], text.as_bytes()[end]);
                    rest = text[end + 1..].chars();
                    let mut numbers = arguments.split(';').map(|number| number.parse().unwrap_or(1_usize));
                    match (arguments, command) {
                        (_, b'H') => {
                            row = numbers.next().unwrap_or(1).clamp(1, ROWS) - 1;
                            column = numbers.next().unwrap_or(1) - 1;
                        }
                        (_, b'J') => shown.clear(),
                        ("?1049", b'h' | b'l') => {
                            shown.clear();
                            (shown.is_alternate, row, column) = (command == b'h', 0, 0);
                        }
                        ("?25", b'h' | b'l') => shown.has_cursor = command == b'h',
                        _ => {}
                    }
                }
                _ => {
                    if let Some(cell) = shown.cells[row].get_mut(column) {
                        *cell = character;
                    }
                    column += 1;
                }
            }
        }
        shown
    }

    fn clear(&mut self) {
        self.cells = vec![vec![' '; COLUMNS]; ROWS];
    }

    fn text(&self) -> String {
        let rows = self.cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_string() + "\n");
        rows.collect()
    }

    /// The words of the line of an object in the table, behind its name.
    fn row_of(&self, object: &str) -> Vec<String> {
        let text = self.text();
        let line =
            text.lines().find_map(|line| line.trim_start_matches(['│', '┃']).strip_prefix(&format!("{object} ")));
        line.unwrap_or_default().split_whitespace().map(str::to_string).collect()
    }
}

fn replace(directory: &Path, file: &str, bytes: &[u8]) {
    std::fs::write(directory.join("replacement"), bytes).expect("the directory is writable");
    std::fs::rename(directory.join("replacement"), directory.join(file)).expect("the directory is writable");
}

fn step(result: u32) -> String {
    format!("long step(long n) {{ return {result} + 0 * n; }}")
}

#[test]
fn the_screen_shows_a_reload_an_error_and_the_output_and_the_terminal_is_restored() {
    let Some(mut terminal) = Terminal::start(&[("main", ENDLESS), ("step", &step(41))]) else { return };
    let runs = |shown: &Shown, version: &str| shown.row_of("step.o").first().is_some_and(|number| number == version);
    terminal.wait_for("the objects and the output", |shown| {
        shown.is_alternate && runs(shown, "0") && shown.text().contains("step gives 41")
    });

    compile_source(&terminal.directory, "step", &step(42));
    terminal.wait_for("the new version, its event and its output", |shown| {
        let text = shown.text();
        runs(shown, "1") && text.contains("step.o version 1: changed step") && text.contains("step gives 42")
    });
    terminal.wait_for("the replaced version", |shown| {
        shown.text().contains("step.o version 0, ") && shown.text().contains("the program, which was linked with it")
    });

    replace(&terminal.directory, "step.o", b"no object");
    terminal.wait_for("the error", |shown| runs(shown, "1") && shown.text().contains("error, refused: step.o"));

    terminal.press("q");
    let end = terminal.end();
    assert!(end.contains("status 130\nrestored\n"), "{end}");
}

#[test]
fn a_replaced_version_is_shown_with_the_call_that_keeps_it() {
    let Some(mut terminal) = Terminal::start(&[("main", ENDLESS), ("step", &step(41))]) else { return };
    terminal.wait_for("the output", |shown| shown.text().contains("step gives 41"));
    for result in [42, 43] {
        compile_source(&terminal.directory, "step", &step(result));
        terminal.wait_for("the new output", |shown| shown.text().contains(&format!("step gives {result}")));
    }
    // The call of `main` began before it was replaced.
    terminal.wait_for("version 1 and the call", |shown| {
        shown.text().contains("step.o version 1, ") && shown.text().contains("a call of ")
    });
    terminal.press("\x03");
    let end = terminal.end();
    assert!(end.contains("status 130\nrestored\n"), "{end}");
}

#[test]
fn the_terminal_is_restored_when_the_program_exits_and_its_last_output_stays() {
    let main = "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(\"last words\"); exit(7); }";
    let Some(terminal) = Terminal::start(&[("main", main)]) else { return };
    let end = terminal.end();
    assert!(end.contains("last words\nstatus 7\nrestored\n"), "{end}");
}

#[test]
fn the_terminal_is_restored_when_a_signal_ends_the_program() {
    let main = "#include <stdlib.h>\nint main(void) { abort(); }";
    let Some(terminal) = Terminal::start(&[("main", main)]) else { return };
    let end = terminal.end();
    assert!(end.contains("status 134\nrestored\n"), "{end}");
}

#[test]
fn a_program_that_cannot_be_linked_says_so_when_the_screen_is_gone() {
    let Some(terminal) = Terminal::start(&[("main", ENDLESS)]) else { return };
    let end = terminal.end();
    assert!(end.contains("`step`") && end.contains("status 125\nrestored\n"), "{end}");
}

#[test]
fn a_program_that_ignores_the_first_key_is_terminated_by_the_second() {
    let main =
        "#include <signal.h>\n#include <unistd.h>\nint main(void) { signal(SIGINT, SIG_IGN); for (;;) sleep(1); }";
    let Some(mut terminal) = Terminal::start(&[("main", main)]) else { return };
    terminal.wait_for("the start", |shown| shown.text().contains("q: interrupt the program"));
    terminal.press("q");
    terminal.wait_for("the hint", |shown| shown.text().contains("interrupted; q again: terminate"));
    terminal.press("q");
    let end = terminal.end();
    assert!(end.contains("restored\n"), "{end}");
}

#[test]
fn a_screen_needs_a_terminal_and_is_no_stream_of_events() {
    let run = |options: &[&str]| {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_jittison"));
        let output = tool.args(["watch", "--tui"]).args(options).arg("main.o").output().expect("the tool runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, error) = run(&[]);
    assert_eq!(status, Some(125));
    assert!(error.contains("--tui needs a terminal, and standard output is none"), "{error}");
    let (status, error) = run(&["--json"]);
    assert_eq!(status, Some(2));
    assert!(error.contains("'--tui' cannot be used with '--json'"), "{error}");
}
