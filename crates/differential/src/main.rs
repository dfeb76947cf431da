//! `jittison-differential`: compares many small programs, and prints the results as Markdown.
//!
//! ```text
//! cargo build --release --features cli --bin jittison
//! cargo run --release -p jittison-differential -- --seed 1 --count 10000
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, thread};

use clap::Parser;
use jittison_differential::{Options, run, show};

/// Links small programs of several objects natively and by jittison, and compares their answers.
#[derive(Parser)]
struct Arguments {
    /// The seed of the first program.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many programs.
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// How many programs at the same time; all processors by default.
    #[arg(long)]
    threads: Option<usize>,
    /// The program `jittison`; by default the one beside this program.
    #[arg(long)]
    jittison: Option<PathBuf>,
    /// How many classes of wrong programs are minimized.
    #[arg(long, default_value_t = 20)]
    minimize: usize,
    /// Write the results to a file too, with the tables of pairs.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Print the program of the seed, with its sources and answers, and nothing else.
    #[arg(long)]
    show: bool,
}

fn main() -> ExitCode {
    match compare(&Arguments::parse()) {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("jittison-differential: {problem}");
            ExitCode::from(2)
        }
    }
}

fn compare(arguments: &Arguments) -> Result<ExitCode, String> {
    let here = env::current_exe().map_err(|problem| problem.to_string())?;
    let beside = here.with_file_name("jittison");
    let jittison = arguments.jittison.clone().unwrap_or(beside);
    if !jittison.is_file() {
        return Err(format!(
            "{}: there is no such program; build it with `cargo build --release --features cli --bin jittison`",
            jittison.display()
        ));
    }
    let directory = here.with_file_name("differential");
    let options = Options {
        seed: arguments.seed,
        count: arguments.count,
        threads: arguments.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)),
        jittison,
        directory,
        minimize_max: arguments.minimize,
    };
    if arguments.show {
        print!("{}", show(&options, arguments.seed)?);
        return Ok(ExitCode::SUCCESS);
    }
    let report = run(&options)?;
    if let Some(path) = &arguments.report {
        let command = format!("--seed {} --count {}", arguments.seed, arguments.count);
        let text = report.markdown().replace("--seed N --count M", &command);
        fs::write(path, text).map_err(|problem| format!("{}: {problem}", path.display()))?;
    }
    println!("{}", report.summary());
    Ok(if report.faults().is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
