//! jittison beside its peers: the same objects, the same checks, by turns on the same machine.
//!
//! ```text
//! cargo bench --bench field -- [--rounds N] [--quick] [--only WORDS] [--programs [NAMES]] [--json FILE] [--html FILE]
//!                              [--svg FILE] [--list] [--peers DIRECTORY]
//! ```
//!
//! Everything is done in rounds, all competitors by turns, so that a noisy minute hits everybody; figures are medians over the
//! rounds, with the least and the most. Peers that are not there are skipped: `benches/field/peers/install` and `build` make the
//! LLVM one. cranelift-jit and elf_loader are libraries of this program. Whole programs, by linkers that are programs, come with
//! `--programs`. Needs gcc, which compiles what is linked; strace, which counts system calls; and for a million live modules,
//! which `--quick` leaves out, 5 GB of free memory. What is missing is said, and left out.
//!
//! Tables go to the terminal, all figures of all rounds to `--json`, tables and plots to `--html`, and one picture of the main
//! rows to `--svg`. `benches/field/reproduce` does all that, with the peers.

#[path = "../../tests/support/allocations.rs"]
mod allocations;
mod cranelift;
mod cranelift_pieces;
#[path = "../../tests/support/dice.rs"]
mod dice;
mod dlopen;
mod elf_load;
mod floor;
mod goals;
mod handles;
mod host_functions;
mod html;
mod installed;
mod large;
mod linker;
mod machine;
mod memory_manager;
mod million;
#[path = "../link/objects.rs"]
mod objects;
mod orc;
mod ours;
mod ours_calls;
mod picture;
mod programs;
mod report;
mod resident;
mod rows;
mod samples;
mod scenario;
mod scenarios;
mod scratch;
mod sizes;
mod svg;
mod system_calls;
mod system_library;
mod tableless;
mod workload;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};

use machine::Machine;
use programs::Program;
use report::Report;
use scenario::Scenario;
use workload::Workload;

#[derive(Parser)]
#[command(about = "Measures jittison beside its peers")]
struct Arguments {
    /// How often everything is done.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Less of everything: to see whether it works.
    #[arg(long)]
    quick: bool,
    /// Only scenarios whose titles contain one of these words, with `|` between them.
    #[arg(long)]
    only: Option<String>,
    /// Also links and runs whole programs: all, or those of these names (sqlite, cpython, cc1, …), with `|` between them.
    #[arg(long, value_name = "NAMES", num_args = 0..=1, default_missing_value = "")]
    programs: Option<String>,
    /// Where all figures of all rounds go.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where tables and plots go.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Where one picture goes, of how many times better than the peers the main rows are.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Names the scenarios, and measures nothing.
    #[arg(long)]
    list: bool,
    /// Where the peers' programs are, if not in target/peers.
    #[arg(long)]
    peers: Option<PathBuf>,
    /// Does what system calls are counted of, and nothing else: for strace.
    #[arg(long, hide = true)]
    counted: bool,
    /// Links this object, for the first time and then again, and tells how long it took.
    #[arg(long, hide = true)]
    first: Option<PathBuf>,
    /// What cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
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
    let objects = objects::build().ok_or("gcc is needed to make objects; install it and try again")?;
    let workload = Workload::new(objects, arguments.quick)?;
    if arguments.counted {
        return system_calls::be_counted(&workload);
    }
    if let Some(object) = &arguments.first {
        return large::be_first(&workload, object);
    }
    let peers = arguments.peers.clone().unwrap_or_else(built_peers);
    let programs = programs(arguments)?;
    let (has_programs, has_sqlite) = (!programs.is_empty(), programs.iter().any(|program| program.name() == "sqlite"));
    let mut scenarios = scenarios::scenarios(&Rc::new(workload), &peers, arguments.quick, has_sqlite);
    scenarios.extend(programs.into_iter().map(|program| Box::new(program) as Box<dyn Scenario>));
    scenarios.retain(|scenario| is_wanted(&scenario.title(), arguments.only.as_deref()));
    if arguments.list {
        scenarios.iter().for_each(|scenario| println!("{}", scenario.title()));
        return Ok(());
    }
    let (machine, mut peers) = (Machine::this(), machine::peers(&peers));
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
        write(path, &html::page(&report, &machine, &peers, arguments.rounds))?;
    }
    if let Some(path) = &arguments.svg {
        match picture::picture(&report, &machine, arguments.rounds) {
            Some(picture) => write(path, &picture)?,
            None => eprintln!("no picture: a main row with a figure of ours and a peer's is wanted"),
        }
    }
    Ok(())
}

/// Those whole programs that are asked for, and of these, unless they are listed only, those for which everything is there.
fn programs(arguments: &Arguments) -> Result<Vec<Program>, String> {
    let Some(names) = &arguments.programs else { return Ok(Vec::new()) };
    let mut programs = programs::programs(names)?;
    programs.retain(|program| is_wanted(&program.title(), arguments.only.as_deref()));
    if !arguments.list {
        programs::prepare(&mut programs);
    }
    Ok(programs)
}

/// `peers` in the target directory: where cargo puts everything that it builds.
fn built_peers() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(default, PathBuf::from).join("peers")
}

fn is_wanted(title: &str, only: Option<&str>) -> bool {
    let title = title.to_lowercase();
    only.is_none_or(|words| words.to_lowercase().split('|').any(|word| title.contains(word.trim())))
}

/// All rounds of all scenarios, by turns. One that fails does no more rounds.
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
