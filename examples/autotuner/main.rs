//! An autotuner that changes the code of kernels while threads call them.
//!
//! A matrix product and a stencil are called without pause. Meanwhile a tuner links one variant after another, tries it, leads
//! all callers to it, measures, keeps the better one and takes the other back: hundreds of times a second. Variants that do
//! not link, answer wrongly or fail while they start are thrown in, and must be seen by nobody. The exit status says whether
//! every answer was right, every call arrived, and everything was given back. It does not find the fastest product there is:
//! there are a few dozen variants (`compiler.rs`, `cranelift.rs`), of small kernels that fit into a cache.
//!
//! ```text
//! cargo run --release --example autotuner
//! cargo run --release --example autotuner -- --cranelift --seconds 10 --plot tuning.svg
//! cargo run --release --example autotuner -- --mode free-at-once     # ends by a signal
//! ```

#[path = "../support/axis.rs"]
mod axis;
mod callers;
mod compiler;
mod cranelift;
mod hazard;
mod histogram;
mod ledger;
mod patched;
mod plot;
mod problem;
mod report;
mod run;
mod suite;
mod tuner;
mod watch;

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
    /// What becomes of versions that callers are led away from
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

/// What becomes of versions that callers are led away from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Freed when the last call in them has ended, which execution guards tell
    Patch,
    /// Freed while a lock keeps all callers out
    StopTheWorld,
    /// Kept for ever
    NeverFree,
    /// Freed at once, whoever is inside: crashes
    FreeAtOnce,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Patch => "patch",
            Mode::StopTheWorld => "stop-the-world",
            Mode::NeverFree => "never-free",
            Mode::FreeAtOnce => "free-at-once",
        }
    }
}

fn main() -> ExitCode {
    match serve(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("autotuner: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Options) -> Result<(), String> {
    let bar = progress_bar();
    bar.set_message("compiling variants");
    bar.tick();
    let suite = make_suite(options)?;
    if options.mode == Mode::FreeAtOnce {
        bar.finish_and_clear();
        eprintln!("autotuner: versions are freed while threads are in them; this process will not live long");
        return Err(run::crash(options, &suite)?);
    }
    let ran = run::run(options, &suite, &bar);
    bar.finish_and_clear();
    let summary = ran?;
    match options.json {
        true => println!("{}", report::json(&summary)),
        false => println!("{}", report::table(&summary)),
    }
    if let Some(path) = &options.plot {
        let drawing = plot::svg(&summary, &suite);
        fs::write(path, drawing).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let faults = summary.faults();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
}

fn make_suite(options: &Options) -> Result<Suite, String> {
    if !options.cranelift {
        match compiler::suite() {
            Ok(suite) => return Ok(suite),
            Err(compiler::Failure::Broken(reason)) => return Err(reason),
            Err(compiler::Failure::NoCompiler) => eprintln!("autotuner: there is no C compiler; Cranelift it is"),
        }
    }
    cranelift::suite()
}

/// A progress bar; an invisible one when there is no terminal.
fn progress_bar() -> ProgressBar {
    if !std::io::stdout().is_terminal() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{wide_bar} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
