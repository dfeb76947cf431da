//! The `jittison` command line: `run` links objects in process and runs them as a program, `inspect` says what an object
//! consists of and what linking it would take, `map` shows where linked objects stand in code memory.
//!
//! | file | what |
//! |---|---|
//! | `args.rs` | what can be typed, and the help texts |
//! | `run.rs`, `inputs.rs`, `link.rs` | `run`: from objects to an exit status |
//! | `observer.rs`, `progress.rs` | how far links are, and what they consist of |
//! | `report.rs`, `process.rs` | what `run --report` writes, and what the kernel says of this process |
//! | `inspect.rs`, `table.rs` | `inspect`: the facts, and how they are shown |
//! | `map.rs` | `map`: links, and has the library draw |
//! | `check/`, `check_command.rs` | `check`: rules about relocations, and what they are held against |
//! | `offline.rs` | links that are looked at and not run |
//!
//! The tool writes nothing to standard output but what `inspect` and `map` show, and one line to standard error when it fails.
//!
//! - **B1** Whoever types `jittison run` gives the word that a library asks of its caller: the objects may run in this
//!   process, and the entry is a `main`. The tool checks what can be checked, that one of the objects defines the entry as
//!   a function, and passes the word on in one place, `run.rs`. Nobody changes the archives while they are linked: they are
//!   mapped. Objects are read, and may be changed.

mod args;
mod check;
mod check_command;
mod inputs;
mod inspect;
mod link;
mod map;
mod observer;
mod offline;
mod process;
mod progress;
mod report;
mod run;
mod table;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::{Args, Command};
use crate::table::shown;

/// As `env`, `timeout` and others that run a program have it, so that it is unlikely to be the program's own.
const FAILED: u8 = 125;

fn main() -> ExitCode {
    let matches = Args::command().get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|problem| problem.exit());
    let outcome = match (args.command, matches.subcommand()) {
        (Command::Run(args), Some((_, matches))) => run::run(&args, matches),
        (Command::Inspect(args), _) => inspect::inspect(&args),
        (Command::Map(args), _) => map::map(&args),
        (Command::Check(args), _) => check_command::check_objects(&args),
        (Command::Run(_), None) => Err("no command".to_string()), // a command was parsed, so one was typed
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            complain(&problem);
            ExitCode::from(FAILED)
        }
    }
}

/// One line to standard error.
fn complain(problem: &str) {
    // Not `eprintln!`: where standard error is closed, there is nobody to tell.
    let _ = io::stderr().write_all(format!("jittison: {}\n", shown(problem)).as_bytes());
}
