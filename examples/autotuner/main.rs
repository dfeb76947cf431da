//! An autotuner that changes the code of kernels while threads call them.
//!
//! Caller threads call a matrix product and a stencil without pause. Meanwhile a tuner links one variant after
//! another, hundreds per second. It tries each variant, redirects all callers to it, measures it, and keeps it or
//! rolls back. It also links bad variants: ones with a missing symbol, a wrong answer or a failing initialiser. No
//! caller may ever reach those.
//!
//! The exit status says whether every answer was right, every call arrived and all memory was released. The example
//! does not search for the fastest possible product: there are a few dozen variants (`compiler.rs`, `cranelift.rs`)
//! of small kernels that fit into a cache.
//!
//! ```text
//! cargo run --release --example autotuner
//! cargo run --release --example autotuner -- --cranelift --seconds 10 --plot tuning.svg
//! cargo run --release --example autotuner -- --mode free-at-once     # ends by a signal
//! ```

mod callers;
mod compiler;
mod cranelift;
mod hazard;
mod histogram;
mod ledger;
mod patched;
mod plot;
mod problem;
mod reloaded;
mod report;
mod run;
mod suite;
mod tuner;
mod watch;

use std::error::Error;
use std::fs;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::suite::Suite;

/// Tunes kernels while threads call them.
#[derive(Parser)]
#[command(name = "autotuner")]
pub struct Options {
    /// Threads that call the kernels
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// How long to tune
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// What happens to a version that callers no longer reach
    #[arg(long, value_enum, default_value_t = Mode::Patch)]
    mode: Mode,
    /// Compile with Cranelift in this process, not with the C compiler (`cc`, or what CC names)
    #[arg(long)]
    cranelift: bool,
    /// Draw speed, versions and switches over time
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// What happens to a version that callers no longer reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Freed when the last call in it has ended; execution guards say when
    Patch,
    /// The same, by a `Reloader`: each variant is new bytes for one function of an object
    Reload,
    /// Freed while a lock keeps all callers out
    StopTheWorld,
    /// Kept for ever
    NeverFree,
    /// Freed at once, even while threads run in it: crashes
    FreeAtOnce,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Patch => "patch",
            Mode::Reload => "reload",
            Mode::StopTheWorld => "stop-the-world",
            Mode::NeverFree => "never-free",
            Mode::FreeAtOnce => "free-at-once",
        }
    }
}

fn main() -> ExitCode {
    match execute(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("autotuner: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn execute(options: &Options) -> Result<(), String> {
    let bar = progress_bar();
    bar.set_message("compiling variants");
    bar.tick();
    let suite = build_suite(options)?;
    if options.mode == Mode::FreeAtOnce {
        bar.finish_and_clear();
        eprintln!("autotuner: versions are freed while threads are in them; expect a crash");
        return Err(run::crash(options, &suite)?);
    }
    let outcome = run::run(options, &suite, &bar);
    bar.finish_and_clear();
    let summary = outcome?;
    match options.json {
        true => println!("{}", report::json(&summary)),
        false => println!("{}", report::table(&summary)),
    }
    if let Some(path) = &options.plot {
        let failed = |error: &dyn Error| format!("{}: {error}", path.display());
        let drawing = plot::svg(&summary).map_err(|error| failed(&*error))?;
        fs::write(path, drawing).map_err(|error| failed(&error))?;
    }
    let faults = summary.faults();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

fn build_suite(options: &Options) -> Result<Suite, String> {
    if !options.cranelift {
        match compiler::suite() {
            Ok(suite) => return Ok(suite),
            Err(compiler::Failure::Broken(reason)) => return Err(reason),
            Err(compiler::Failure::NoCompiler) => {
                eprintln!("autotuner: no C compiler was found; Cranelift compiles the variants")
            }
        }
    }
    cranelift::suite()
}

/// A progress bar. It is invisible without a terminal.
fn progress_bar() -> ProgressBar {
    if !std::io::stdout().is_terminal() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{wide_bar} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
