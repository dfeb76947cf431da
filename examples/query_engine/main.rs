//! A small query engine that compiles every query, links it, runs it and
//! removes it again.
//!
//! Generates TPC-H's `lineitem` in memory, takes SQL, compiles each query with
//! Cranelift to an object file, and links that with `jittison` under a tracker
//! of its own. Thousands of queries later, the process must be no larger than
//! before, and every answer must be the one that an interpreter gives; the
//! exit status says so. What SQL is understood is told in `sql.rs`, and the
//! rules of decimals in `plan.rs`. It is not a database: there is one table,
//! it never changes, and nothing in it is NULL.
//!
//! ```text
//! cargo run --release --example query_engine
//! cargo run --release --example query_engine -- --sql "select count(*) from lineitem" --asm
//! ```

#[path = "../support/axis.rs"]
mod axis;
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
    /// Keep every query linked, to see what removal saves
    #[arg(long)]
    never_remove: bool,
    /// Run one query over the whole table and print its rows
    #[arg(long, value_name = "QUERY", conflicts_with_all = ["plot", "json", "never_remove"])]
    sql: Option<String>,
    /// With --sql: print the machine code too
    #[arg(long, requires = "sql")]
    asm: bool,
    /// Draw live code and resident memory over time
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Why the program ends without success.
enum Failure {
    /// The arguments or the SQL are wrong.
    Request(String),
    /// A check failed, or something broke.
    Check(String),
}

fn main() -> ExitCode {
    match serve(&Options::parse()) {
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

fn serve(options: &Options) -> Result<(), Failure> {
    if !(options.scale >= 0.001 && options.scale <= 1_000.0) {
        return Err(Failure::Request("the scale must lie between 0.001 and 1000".to_owned()));
    }
    // Errors of the query alone should not wait for the table.
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

/// The default run: the stream of queries, and what it leaves behind.
fn stream(options: &Options, table: &data::Table, engine: &engine::Engine, bar: &ProgressBar) -> Result<(), Failure> {
    bar.set_message("interpreting Q1 and Q6");
    bar.tick();
    let workload = client::Workload::new(table, engine, options.seed, options.never_remove).map_err(Failure::Check)?;
    // Compiled answers are compared with the interpreted ones, so these are
    // the ones to compare with the specification.
    if options.scale == 1.0 {
        for (benchmark, answer) in workload.whole_table_answers() {
            if let Some(departure) = benchmark.departure(answer, table) {
                let name = benchmark.name;
                return Err(Failure::Check(format!("{name} is not as published: {departure}")));
            }
        }
    }
    bar.set_style(style("{msg} {wide_bar} {pos}/{len}"));
    let ran = run::run(&workload, options.queries, usize::from(options.clients), bar);
    bar.finish_and_clear();
    let mut summary = ran.map_err(Failure::Check)?;
    if options.json {
        let (scale, seed) = (options.scale, options.seed);
        println!("{}", report::json(&mut summary, scale, seed, options.never_remove));
    } else {
        println!("{}", report::table(&mut summary, options.never_remove));
        if options.scale == 1.0 {
            println!("Q1 and Q6 are as published in the TPC-H specification");
        }
    }
    if let Some(path) = &options.plot {
        let title = format!(
            "{} queries, {}",
            summary.queries,
            if options.never_remove { "none removed" } else { "each removed" }
        );
        let drawing = plot::svg(summary.timeline.samples(), &title);
        let failed = |error| Failure::Check(format!("{}: {error}", path.display()));
        fs::write(path, drawing).map_err(failed)?;
    }
    let leftovers = summary.leftovers();
    if options.never_remove || leftovers.is_empty() { Ok(()) } else { Err(Failure::Check(leftovers.join("; "))) }
}

/// A progress bar; an invisible one when there is no terminal.
fn progress_bar() -> ProgressBar {
    if !std::io::stdout().is_terminal() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    // Nothing can be counted while the table is generated.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(style("{msg} …"));
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
