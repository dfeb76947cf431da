//! A client: takes queries from the stream, one after the other, and sees each
//! through compiling, linking, running, checking and removing.
//!
//! Most queries are removed at once. Some stay open as cursors for a few
//! hundred queries more and are run and checked again when they are closed;
//! half of these have lost their tracker by then and live only because they
//! are held. One in four is removed by another thread while it runs. Clients share the linker and the table, and nothing else.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use jittison::Function;

use crate::codegen::Compiler;
use crate::data::Table;
use crate::engine::{Engine, LinkedQuery, PinnedQuery, QueryFunction};
use crate::execute::execute;
use crate::interpret::interpret;
use crate::measure::{Gauge, Latencies, Step};
use crate::plan::{Plan, plan};
use crate::published::{Benchmark, Q1, Q6};
use crate::sql;
use crate::stream::{self, Random};
use crate::value::Answer;

/// Queries 1 and 6 run over the whole table once in so many queries each.
const WHOLE_TABLE_PERIOD: u64 = 500;
/// One query in so many stays open.
const CURSOR_PERIOD: u64 = 16;
/// One query in so many is removed by another thread while it runs.
const EVICTION_PERIOD: u64 = 4;
/// The most cursors a client keeps open.
const MOST_CURSORS: usize = 24;
/// The rows that a random query runs over.
const SLICE: Range<usize> = 2_048..16_384;

/// What all clients work on.
pub struct Workload<'a> {
    pub table: &'a Table,
    pub engine: &'a Engine,
    pub seed: u64,
    pub never_remove: bool,
    /// Machine code that is linked now.
    pub code: Gauge,
    /// Queries taken from the stream in this phase.
    pub taken: AtomicU64,
    /// Queries finished in this phase.
    pub finished: AtomicU64,
    /// Set when a client has failed, so that the others stop too.
    pub failed: AtomicBool,
    /// Numbers the symbols, because two live queries cannot share a name.
    serial: AtomicU64,
    /// What the interpreter says of queries 1 and 6.
    whole_table: [Answer; 2],
}

impl<'a> Workload<'a> {
    /// Interprets the two queries that run over the whole table.
    pub fn new(table: &'a Table, engine: &'a Engine, seed: u64, never_remove: bool) -> Result<Workload<'a>, String> {
        let interpreted = |benchmark: &Benchmark| {
            let query = sql::parse(benchmark.sql)?;
            Ok::<_, String>(interpret(&query, table, 0..table.rows()))
        };
        let whole_table = [interpreted(&Q1)?, interpreted(&Q6)?];
        Ok(Workload {
            table,
            engine,
            seed,
            never_remove,
            code: Gauge::default(),
            taken: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            serial: AtomicU64::new(0),
            whole_table,
        })
    }

    /// What the interpreter says of queries 1 and 6.
    pub fn whole_table_answers(&self) -> [(&'static Benchmark, &Answer); 2] {
        [(&Q1, &self.whole_table[0]), (&Q6, &self.whole_table[1])]
    }
}

/// A stretch of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    pub first: u64,
    pub count: u64,
}

/// A query that stays open.
struct Cursor {
    held: Held,
    sql: String,
    plan: Plan,
    rows: Range<usize>,
    expected: Answer,
    code_bytes: u64,
    /// The query of this client before which it is closed.
    closes_at: u64,
}

enum Held {
    Linked(LinkedQuery),
    Pinned(PinnedQuery),
}

impl Held {
    fn function(&self) -> &Function<QueryFunction> {
        match self {
            Held::Linked(query) => query.function(),
            Held::Pinned(query) => query.function(),
        }
    }
}

/// One client and what it keeps from query to query.
pub struct Client<'a> {
    workload: &'a Workload<'a>,
    compiler: Compiler,
    pub latencies: Latencies,
    /// Latencies of queries 1 and 6 over the whole table, as [`Step::Run`].
    pub whole_table: [Latencies; 2],
    cursors: Vec<Cursor>,
    /// Queries that are never removed.
    kept: Vec<LinkedQuery>,
    done: u64,
}

impl<'a> Client<'a> {
    /// A client with room to measure `queries` queries.
    pub fn new(workload: &'a Workload<'a>, queries: usize) -> Result<Client<'a>, String> {
        let whole = queries / WHOLE_TABLE_PERIOD as usize + 2;
        Ok(Client {
            workload,
            compiler: Compiler::new()?,
            latencies: Latencies::with_room(queries),
            whole_table: [Latencies::with_room(whole), Latencies::with_room(whole)],
            cursors: Vec::with_capacity(MOST_CURSORS),
            kept: Vec::new(),
            done: 0,
        })
    }

    /// Runs queries until the phase is over, and closes all cursors.
    pub fn run(&mut self, phase: Phase) -> Result<(), String> {
        self.latencies.clear();
        self.whole_table.iter_mut().for_each(Latencies::clear);
        let result = self.run_queries(phase);
        if result.is_err() {
            self.workload.failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn run_queries(&mut self, phase: Phase) -> Result<(), String> {
        while !self.workload.failed.load(Ordering::Relaxed) {
            let index = self.workload.taken.fetch_add(1, Ordering::Relaxed);
            if index >= phase.count {
                break;
            }
            self.close_due_cursors()?;
            self.query(index, phase.first + index)?;
            self.done += 1;
            self.workload.finished.fetch_add(1, Ordering::Relaxed);
        }
        while let Some(cursor) = self.cursors.pop() {
            self.close(cursor)?;
        }
        Ok(())
    }

    /// One query, from its text to its end.
    fn query(&mut self, index: u64, place: u64) -> Result<(), String> {
        let workload = self.workload;
        let mut random = Random::new(workload.seed, place);
        let whole_table = match index % WHOLE_TABLE_PERIOD {
            0 => Some(0),
            1 => Some(1),
            _ => None,
        };
        let (sql, rows) = match whole_table {
            Some(which) => {
                let (benchmark, _) = workload.whole_table_answers()[which];
                (benchmark.sql.to_owned(), 0..workload.table.rows())
            }
            None => (stream::query(&mut random), slice(&mut random, workload.table.rows())),
        };
        let failed = |what: String| format!("{what} ({sql})");
        let symbol = format!("query_{}", workload.serial.fetch_add(1, Ordering::Relaxed));

        let compiler = &mut self.compiler;
        let compiled = self.latencies.time(Step::Compile, || {
            let query = sql::parse(&sql)?;
            let plan = plan(&query, workload.table)?;
            let compiled = compiler.compile(&symbol, &plan, workload.table)?;
            Ok((query, plan, compiled.object))
        });
        let (query, plan, object) = compiled.map_err(failed)?;
        let linked = self.latencies.time(Step::Link, || workload.engine.link(&symbol, object));
        let linked = linked.map_err(|error| failed(error.to_string()))?;
        let code_bytes = linked.code_bytes();
        workload.code.add(code_bytes);

        let is_evicted = !workload.never_remove && random.one_in(EVICTION_PERIOD);
        if is_evicted {
            workload.engine.evict(&linked);
        }
        // SAFETY: the function was compiled from this plan for this table.
        let run = || unsafe { execute(linked.function(), &plan, workload.table, rows.clone()) };
        let started = std::time::Instant::now();
        let answer = run();
        let took = started.elapsed();
        self.latencies.note(Step::Run, took);
        let expected = match whole_table {
            Some(which) => {
                self.whole_table[which].note(Step::Run, took);
                workload.whole_table[which].clone()
            }
            None => interpret(&query, workload.table, rows.clone()),
        };
        check(&answer, &expected, workload.table, &sql, &rows)?;

        if is_evicted {
            linked.remove_evicted().map_err(|error| failed(error.to_string()))?;
            workload.code.subtract(code_bytes);
        } else if workload.never_remove {
            self.kept.push(linked);
        } else if self.cursors.len() < MOST_CURSORS && random.one_in(CURSOR_PERIOD) {
            let held = if random.one_in(2) {
                let pinned = self.latencies.time(Step::Remove, || linked.remove_pinned());
                Held::Pinned(pinned.map_err(|error| failed(error.to_string()))?)
            } else {
                Held::Linked(linked)
            };
            let closes_at = self.done + 100 + random.below(300);
            self.cursors.push(Cursor { held, sql, plan, rows, expected, code_bytes, closes_at });
        } else {
            self.remove(linked, &sql)?;
            workload.code.subtract(code_bytes);
        }
        Ok(())
    }

    fn remove(&mut self, linked: LinkedQuery, sql: &str) -> Result<(), String> {
        match self.latencies.time(Step::Remove, || linked.remove()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("a query that nobody holds was not removed at once ({sql})")),
            Err(error) => Err(format!("{error} ({sql})")),
        }
    }

    fn close_due_cursors(&mut self) -> Result<(), String> {
        let done = self.done;
        while let Some(place) = self.cursors.iter().position(|c| c.closes_at <= done) {
            let cursor = self.cursors.swap_remove(place);
            self.close(cursor)?;
        }
        Ok(())
    }

    /// Runs a cursor's query once more, checks it again and lets it go.
    fn close(&mut self, cursor: Cursor) -> Result<(), String> {
        let table = self.workload.table;
        // SAFETY: the function was compiled from this plan for this table.
        let answer = unsafe { execute(cursor.held.function(), &cursor.plan, table, cursor.rows.clone()) };
        check(&answer, &cursor.expected, table, &cursor.sql, &cursor.rows)?;
        match cursor.held {
            Held::Linked(linked) => self.remove(linked, &cursor.sql)?,
            Held::Pinned(pinned) => drop(pinned),
        }
        self.workload.code.subtract(cursor.code_bytes);
        Ok(())
    }
}

/// A random stretch of the table.
fn slice(random: &mut Random, rows: usize) -> Range<usize> {
    let wanted = SLICE.start + random.below(SLICE.len() as u64) as usize;
    let length = wanted.min(rows);
    let begin = random.below((rows - length + 1) as u64) as usize;
    begin..begin + length
}

/// Compares an answer of compiled code with the interpreter's.
pub fn check(answer: &Answer, expected: &Answer, table: &Table, sql: &str, rows: &Range<usize>) -> Result<(), String> {
    match answer.difference(expected, table) {
        None => Ok(()),
        Some(difference) => {
            Err(format!("a compiled answer is wrong: {difference} (rows {}..{} of: {sql})", rows.start, rows.end))
        }
    }
}
