//! The `jittison` command: `run` links objects and runs them as a program, `watch` reloads
//! them meanwhile, `inspect` shows an object, `map` shows code
//! memory, `check` compares a link with rules.
//!
//! | file | holds |
//! |---|---|
//! | `args.rs` | options and help texts |
//! | `run.rs`, `inputs.rs`, `linker_script.rs`, `add.rs`, `archives.rs`, `link.rs` | `run`: from files to an exit status |
//! | `watch.rs`, `build.rs`, `database.rs`, `place.rs`, `follower.rs`, `reload_lines.rs` | `watch`: `run`, and reloads of changed objects |
//! | `screen/` | `watch --tui`: draws the events of a `watch` that runs in a child process |
//! | `cargo/` | `watch --cargo`: builds a Cargo package, and takes what rustc gives its linker |
//! | `link_totals.rs`, `progress.rs` | counts and phase times of links, and a progress line |
//! | `report.rs`, `process.rs` | the report of `run --report`, and what the kernel says about this process |
//! | `inspect.rs`, `table.rs` | `inspect`: facts about an object, as tables or JSON |
//! | `map.rs` | `map`: links objects and prints the library's memory map |
//! | `check/`, `check_command.rs` | `check`: rules about relocations, and their evaluation |
//! | `offline.rs` | links that are inspected and never run |
//! | `output.rs` | results to standard output, error messages to standard error |
//!
//! Standard output gets only the results of `inspect` and `map`. A failure writes one line to standard error.
//!
//! # Invariant
//!
//! - **B1** *Promises of the user.* Whoever types a command makes the promises that the library asks of its caller. For
//!   `run`: the objects may run in this process, and the entry is a function `int main(int, char **, char **)`. For
//!   `watch` also: each version of an object may run, and its functions keep the signatures with which they are called. For all
//!   commands but `watch`: no other process changes an archive while the command runs, because archives are mapped. (Object files
//!   are read, so they may change; `watch` reads the archives that it follows, and no member of one that was written again.) The
//!   command checks what it can check: that an object defines the entry as a function.

mod add;
mod archives;
mod args;
mod build;
mod cargo;
mod check;
mod check_command;
mod database;
mod follower;
mod inputs;
mod inspect;
mod interposed;
mod link;
mod link_totals;
mod linker_script;
mod map;
mod offline;
mod output;
mod place;
mod process;
mod progress;
mod reload_lines;
mod report;
mod run;
mod screen;
mod table;
mod watch;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use crate::args::{Args, Command};
use crate::output::{FAILED, print_error};

fn main() -> ExitCode {
    if let Some(status) = cargo::run_as_tool() {
        return status;
    }
    let matches = args::command().get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|problem| problem.exit());
    let outcome = match (args.command, matches.subcommand()) {
        (Command::Run(args), Some((_, matches))) => run::run(&args, matches),
        (Command::Watch(args), Some((_, matches))) => watch::watch(&args, matches),
        (Command::Inspect(args), _) => inspect::inspect(&args),
        (Command::Map(args), _) => map::map(&args),
        (Command::Check(args), _) => check_command::check_objects(&args),
        // Cannot happen: `args` has a command, so `matches` has one.
        (Command::Run(_) | Command::Watch(_), None) => Err("the command line names no command".to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            print_error(&problem);
            ExitCode::from(FAILED)
        }
    }
}
