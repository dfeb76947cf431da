//! Links queries in both ways: from an object file, and as a graph that `jittison-cranelift` makes of Cranelift's machine code.
//!
//! Each query of a stream is compiled twice, once for each way, and both answers must be equal. The times begin when the
//! machine code is there, and end when the function can be called.

use std::time::{Duration, Instant};

use crate::client::slice;
use crate::codegen::Compiler;
use crate::data::Table;
use crate::engine::Engine;
use crate::execute::execute;
use crate::plan::plan;
use crate::sql;
use crate::stream::{self, Random};

/// The times of all queries, by step.
#[derive(Default)]
struct Times {
    written: Vec<Duration>,
    linked: Vec<Duration>,
    graphs: Vec<Duration>,
}

/// Links queries in both ways, and describes the median times.
pub fn compare(table: &Table, engine: &Engine, seed: u64, queries: u64) -> Result<String, String> {
    let (mut compiler, mut times) = (Compiler::new()?, Times::default());
    let before = engine.live_bytes();
    for number in 0..queries {
        one(&mut compiler, &mut times, table, engine, seed, number)?;
    }
    if engine.live_bytes() != before {
        return Err(format!("{} bytes of code are left of both ways", engine.live_bytes() - before));
    }
    let Times { written, linked, graphs } = times;
    let [written, linked, graphs] = [written, linked, graphs].map(median);
    Ok(format!(
        "adaptor: {queries} queries linked in both ways, answers equal; median: object file written {written:.1} µs, linked \
         {linked:.1} µs; graph made and linked {graphs:.1} µs"
    ))
}

fn one(
    compiler: &mut Compiler,
    times: &mut Times,
    table: &Table,
    engine: &Engine,
    seed: u64,
    number: u64,
) -> Result<(), String> {
    let mut random = Random::new(seed, number);
    let (text, rows) = (stream::query(&mut random), slice(&mut random, table.rows()));
    let failed = |error: jittison::Error| format!("{text}: {error}");
    let plan = plan(&sql::parse(&text)?, table).map_err(|error| error.to_string())?;
    let symbol = format!("both_ways_{number}");

    let mut module = compiler.object_module(&symbol)?;
    compiler.define(&mut module, &symbol, &plan, table)?;
    let start = Instant::now();
    let object = module.finish().emit().map_err(|error| error.to_string())?;
    times.written.push(start.elapsed());
    let start = Instant::now();
    let linked = engine.link(&symbol, object).map_err(failed)?;
    times.linked.push(start.elapsed());
    // SAFETY: the function is compiled from this plan for this table.
    let expected = unsafe { execute(linked.function(), &plan, table, rows.clone()) };
    linked.remove().map_err(failed)?;

    let mut module = engine.module(compiler.isa().clone()).map_err(failed)?;
    let (id, _) = compiler.define(&mut module, &symbol, &plan, table)?;
    let start = Instant::now();
    let function = engine.link_module(&mut module, id).map_err(failed)?;
    times.graphs.push(start.elapsed());
    // SAFETY: as above.
    let answer = unsafe { execute(&function, &plan, table, rows) };
    match answer.difference(&expected, table) {
        Some(difference) => Err(format!("the two ways differ: {text}: {difference}")),
        None => Ok(()),
    }
}

/// The median in microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}
