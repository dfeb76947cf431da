//! `cargo jittison run`: `jittison watch --cargo` under a name that Cargo finds.
//!
//! Cargo starts `cargo-jittison jittison run …`. This program becomes the command `jittison` beside it, with all further arguments.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "jittison") {
        arguments.remove(0);
    }
    let Some((first, rest)) = arguments.split_first() else { return usage() };
    if first != "run" {
        return usage();
    }
    let Ok(own) = std::env::current_exe() else {
        eprintln!("cargo-jittison: this program has no path");
        return ExitCode::from(FAILED);
    };
    let command = own.with_file_name("jittison");
    // Returns only if it fails.
    let problem = Command::new(&command).args(["watch", "--cargo"]).args(rest).exec();
    eprintln!("cargo-jittison: {}: {problem}", command.display());
    ExitCode::from(FAILED)
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: cargo jittison run [OPTIONS] [-- ARGUMENTS]\n\nRuns a program of this package, and follows its sources. Options: `jittison watch --help`"
    );
    ExitCode::from(WRONG_USAGE)
}

/// As of the command `jittison`.
const FAILED: u8 = 125;
const WRONG_USAGE: u8 = 2;
