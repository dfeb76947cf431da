//! A small query engine that compiles, links, runs and removes every query.
//!
//! It generates TPC-H's `lineitem` in memory and takes SQL. Cranelift compiles each query to an object file, and
//! `jittison` links the object under its own tracker. After thousands of queries the process must not be larger than
//! before, and every answer must be that of an interpreter. The exit status says whether both hold. `sql.rs`
//! describes the supported SQL, and `plan.rs` the rules for decimals. It is not a database: there is one table, which
//! never changes and contains no NULL.
//!
//! ```text
//! cargo run --release --example query_engine
//! cargo run --release --example query_engine -- --sql "select count(*) from lineitem" --asm
//! ```

mod adaptor;
mod client;
mod codegen;
mod data;
mod date;
mod engine;
mod evictor;
mod execute;
mod expression;
mod inspect;
mod interpret;
mod measure;
mod plan;
mod plot;
mod published;
mod query;
mod report;
mod run;
mod sql;
mod stream;
mod typing;
mod value;

use std::error::Error;
use std::fs;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Compiles, links, runs and removes SQL queries over TPC-H's lineitem.
#[derive(Parser)]
#[command(name = "query_engine")]
struct Options {
    /// Scale factor of the table; 1 is six million rows
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Queries in the measured stream
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    queries: u64,
    /// Threads that run queries
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    clients: u16,
    /// Seed of the random queries
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep every query linked, to show how much memory removal saves
    #[arg(long)]
    never_remove: bool,
    /// Run one query over the full table and print its rows
    #[arg(long, value_name = "QUERY", conflicts_with_all = ["plot", "json", "never_remove"])]
    sql: Option<String>,
    /// With --sql: also print the machine code
    #[arg(long, requires = "sql")]
    asm: bool,
    /// Draw live code and resident memory over time
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// The most queries that are linked in both ways.
const BOTH_WAYS: u64 = 300;

/// Why the program fails.
enum Failure {
    /// The arguments or the SQL are wrong.
    Request(String),
    /// A check failed, or an operation did.
    Check(String),
}

fn main() -> ExitCode {
    match execute_command(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Request(reason)) => {
            eprintln!("query_engine: {reason}");
            ExitCode::from(2)
        }
        Err(Failure::Check(reason)) => {
            eprintln!("query_engine: {reason}");
            ExitCode::from(1)
        }
    }
}

fn execute_command(options: &Options) -> Result<(), Failure> {
    if !(options.scale >= 0.001 && options.scale <= 1_000.0) {
        return Err(Failure::Request("the scale must lie between 0.001 and 1000".to_owned()));
    }
    // An invalid query is reported before the table is generated.
    if let Some(text) = &options.sql {
        sql::parse(text).map_err(Failure::Request)?;
    }
    let bar = progress_bar();
    bar.set_message("generating lineitem");
    bar.tick();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let table = data::Table::generate(options.scale, threads);
    let engine = engine::Engine::new().map_err(|error| Failure::Check(format!("the linker cannot start: {error}")))?;
    match &options.sql {
        Some(text) => {
            bar.finish_and_clear();
            inspect::inspect(text, &table, &engine, options.asm)
        }
        None => stream(options, &table, &engine, &bar),
    }
}

/// The default run: the stream of queries, and the memory check after it.
fn stream(options: &Options, table: &data::Table, engine: &engine::Engine, bar: &ProgressBar) -> Result<(), Failure> {
    bar.set_message("interpreting Q1 and Q6");
    bar.tick();
    let workload = client::Workload::new(table, engine, options.seed, options.never_remove).map_err(Failure::Check)?;
    // Compiled answers are compared with the interpreted ones, so the interpreted ones are compared with the
    // specification.
    if options.scale == 1.0 {
        for (benchmark, answer) in workload.full_table_answers() {
            if let Some(difference) = benchmark.difference(answer, table) {
                let name = benchmark.name;
                return Err(Failure::Check(format!("{name} differs from the published answer: {difference}")));
            }
        }
    }
    bar.set_style(style("{msg} {wide_bar} {pos}/{len}"));
    let outcome = run::run(&workload, options.queries, usize::from(options.clients), bar);
    bar.finish_and_clear();
    let mut summary = outcome.map_err(Failure::Check)?;
    if options.json {
        let (scale, seed) = (options.scale, options.seed);
        println!("{}", report::json(&mut summary, scale, seed, options.never_remove));
    } else {
        println!("{}", report::table(&mut summary, options.never_remove));
        if options.scale == 1.0 {
            println!("Q1 and Q6 are as published in the TPC-H specification");
        }
        let queries = options.queries.min(BOTH_WAYS);
        println!("{}", adaptor::compare(table, engine, options.seed, queries).map_err(Failure::Check)?);
    }
    if let Some(path) = &options.plot {
        let title = format!(
            "{} queries, {}",
            summary.queries,
            if options.never_remove { "none removed" } else { "each removed" }
        );
        let failed = |error: &dyn Error| Failure::Check(format!("{}: {error}", path.display()));
        let drawing = plot::svg(summary.timeline.samples(), &title).map_err(|error| failed(&*error))?;
        fs::write(path, drawing).map_err(|error| failed(&error))?;
    }
    let leaks = summary.leaks();
    if options.never_remove || leaks.is_empty() { Ok(()) } else { Err(Failure::Check(leaks.join("; "))) }
}

/// A progress bar. It is invisible without a terminal.
fn progress_bar() -> ProgressBar {
    if !std::io::stdout().is_terminal() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // The table's progress is unknown while it is generated.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(style("{msg} …"));
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
