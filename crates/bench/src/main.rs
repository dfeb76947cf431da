//! Measures jittison beside its peers: the same objects and the same checks, in turns on the same machine.
//!
//! ```text
//! cargo run --profile users -p jittison-bench -- [--rounds N] [--quick] [--only WORDS] [--programs [NAMES]]
//!                              [--json FILE] [--html FILE] [--svg FILE] [--benchmarks FILE]
//!                              [--list] [--peers DIRECTORY]
//! ```
//!
//! Each round runs all competitors in turns, so a noisy minute affects all of them. A figure is the median over the
//! rounds, with minimum and maximum. Missing peers are skipped with a message: `crates/bench/peers/install` and
//! `build` build the LLVM one. cranelift-jit and elf_loader are libraries of this program. `--programs` adds complete
//! programs, which are also linked by linkers that are programs.
//!
//! Requirements: gcc, which compiles the objects; strace, which counts system calls; and 5 GB of free memory for a
//! million live modules, which `--quick` omits. What is missing is skipped with a message.
//!
//! Tables go to the terminal, all figures of all rounds to `--json`, tables and plots to `--html`, and one picture of
//! the main rows to `--svg`. `crates/bench/reproduce` does all of it, including the peers, and writes to
//! `target/bench`.
//!
//! # Folders
//!
//! | folder | imports | holds |
//! |---|---|---|
//! | `measure` | – | what a figure is, the rows, the clock, and what all competitors link |
//! | `peers` | `measure` | the linkers, behind the trait `Linker`, and ORC's program |
//! | `workloads` | `measure`, `peers` | replays of JIT users |
//! | `scenarios` | `measure`, `peers`, `workloads` | what is measured of whom |
//! | `report` | `measure` | tables, JSON, the page and the picture |

mod measure;
mod peers;
mod report;
mod scenarios;
mod workloads;

use jittison_test_support::CountingAllocator;
use jittison_test_support::bench::objects;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use measure::machine::Machine;
use measure::scenario::Scenario;
use measure::workload::Workload;
use report::figures::Report;
use report::{html, markdown, picture};
use scenarios::programs::{self, Program};
use scenarios::registry::{competitors, scenarios};
use scenarios::{large, start, system_calls};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[derive(Parser)]
#[command(about = "Measures jittison beside its peers")]
struct Arguments {
    /// Number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Do less of everything, to see whether it works.
    #[arg(long)]
    quick: bool,
    /// Run only scenarios whose titles contain one of these words, separated by `|`.
    #[arg(long)]
    only: Option<String>,
    /// Also link and run complete programs: all, or those with these names (sqlite, cpython, cc1, …), separated by
    /// `|`.
    #[arg(long, value_name = "NAMES", num_args = 0..=1, default_missing_value = "")]
    programs: Option<String>,
    /// Write all figures of all rounds to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write tables and plots to this file.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Write a picture to this file that shows how many times better than its peers jittison is, in the main rows.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Replace the table in this file, between its two marks: BENCHMARKS.md.
    #[arg(long, value_name = "FILE")]
    benchmarks: Option<PathBuf>,
    /// Print the scenarios' titles and measure nothing.
    #[arg(long)]
    list: bool,
    /// The directory of the peers' programs, if it is not target/peers.
    #[arg(long)]
    peers: Option<PathBuf>,
    /// Run only the operations whose system calls are counted: for strace.
    #[arg(long, hide = true)]
    counted: bool,
    /// Create a session, link and call the first module of this process, and print the times.
    #[arg(long, hide = true, num_args = 2, value_names = ["LINKER", "FILE"])]
    start: Option<Vec<String>>,
    /// Link this object for the first time and then again, and print the times.
    #[arg(long, hide = true)]
    first: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if let Some([linker, file]) = arguments.start.as_deref() {
        return start::run_in_new_process(linker, Path::new(file));
    }
    let objects = objects::build().ok_or("gcc is needed to make objects; install it and try again")?;
    let workload = Workload::new(objects, arguments.quick)?;
    if arguments.counted {
        return system_calls::run_under_strace(&workload);
    }
    if let Some(object) = &arguments.first {
        return large::measure_first_links(&workload, object);
    }
    let peers = arguments.peers.clone().unwrap_or_else(built_peers);
    let programs = programs(arguments)?;
    let (has_programs, has_sqlite) = (!programs.is_empty(), programs.iter().any(|program| program.name() == "sqlite"));
    let mut scenarios = scenarios(&Rc::new(workload), &peers, arguments.quick, has_sqlite);
    scenarios.extend(programs.into_iter().map(|program| Box::new(program) as Box<dyn Scenario>));
    scenarios.retain(|scenario| is_wanted(&scenario.title(), arguments.only.as_deref()));
    if arguments.list {
        scenarios.iter().for_each(|scenario| println!("{}", scenario.title()));
        return Ok(());
    }
    let (machine, mut peers) = (Machine::this(), competitors(&peers));
    if has_programs {
        peers.extend(programs::described());
    }
    let mut report = Report::new(&peers);
    measure(scenarios, arguments.rounds, &mut report);
    println!("{}", machine.line());
    report.print();
    if let Some(path) = &arguments.json {
        let json = report.json(&machine, &peers, arguments.rounds, arguments.quick);
        write(path, &format!("{json:#}\n"))?;
    }
    if let Some(path) = &arguments.html {
        write(path, &html::page(&report, &machine, &peers, arguments.rounds)?)?;
    }
    if let Some(path) = &arguments.benchmarks {
        markdown::replace_in(path, &markdown::table(&report, &machine, arguments.rounds, &command(arguments)))?;
    }
    if let Some(path) = &arguments.svg {
        match picture::picture(&report, &machine, arguments.rounds)? {
            Some(picture) => write(path, &picture)?,
            None => eprintln!("there is no picture: no main row has a figure of jittison and one of a peer"),
        }
    }
    Ok(())
}

/// The complete programs that are asked for. Unless they are only listed, those with missing prerequisites are left
/// out.
fn programs(arguments: &Arguments) -> Result<Vec<Program>, String> {
    let Some(names) = &arguments.programs else { return Ok(Vec::new()) };
    let mut programs = programs::programs(names)?;
    programs.retain(|program| is_wanted(&program.title(), arguments.only.as_deref()));
    if !arguments.list {
        programs::prepare(&mut programs);
    }
    Ok(programs)
}

/// `peers` in cargo's target directory.
fn built_peers() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(default, PathBuf::from).join("peers")
}

/// The command that makes the same tables again.
fn command(arguments: &Arguments) -> String {
    let quick = if arguments.quick { " --quick" } else { "" };
    format!("crates/bench/reproduce{quick} --rounds {}", arguments.rounds)
}

fn is_wanted(title: &str, only: Option<&str>) -> bool {
    let title = title.to_lowercase();
    only.is_none_or(|alternatives| alternatives.to_lowercase().split('|').any(|word| title.contains(word.trim())))
}

/// Runs all rounds of all scenarios, in turns. A scenario that fails runs no further rounds.
fn measure(mut scenarios: Vec<Box<dyn Scenario>>, rounds: usize, report: &mut Report) {
    let progress = ProgressBar::new((scenarios.len() * rounds) as u64);
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} [{elapsed_precise}, {eta} left] {msg}") {
        progress.set_style(style);
    }
    for round in 1..=rounds {
        scenarios.retain_mut(|scenario| {
            let title = scenario.title();
            progress.set_message(format!("round {round}, {title}"));
            let is_done = match scenario.round() {
                Ok(measures) => {
                    report.add(measures);
                    true
                }
                Err(error) => {
                    progress.println(format!("failed: {title}: {error}"));
                    report.failures.push((title, error));
                    false
                }
            };
            progress.inc(1);
            is_done
        });
    }
    progress.finish_and_clear();
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
