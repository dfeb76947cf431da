//! Results go to standard output, error messages to standard error. Texts from objects are made safe for a terminal.

use std::io::{self, Write as _};

/// The exit status of a failure of this command. `env`, `timeout` and other commands that run a program use it too, so a
/// program is unlikely to return it.
pub const FAILED: u8 = 125;

/// Writes a result to standard output.
pub fn print_result(text: &str) -> Result<(), String> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader, for example `head`, has closed the pipe.
        Err(problem) if problem.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(|problem| format!("standard output: {problem}")),
    }
}

/// Writes one line to standard error.
pub fn print_error(problem: &str) {
    // `eprintln!` would panic if standard error is closed.
    let _ = io::stderr().write_all(format!("jittison: {}\n", escape_controls(problem)).as_bytes());
}

/// The message of the root cause of an error.
pub fn message_of(error: jittison::Error) -> String {
    error.root_cause().to_string()
}

/// Escapes control characters, which a name in a broken object may contain, so that the text is one line.
pub fn escape_controls(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}
