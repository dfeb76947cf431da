//! A client: it takes queries from the stream, and compiles, links, runs, checks and removes each of them.
//!
//! Most queries are removed at once. Some stay open as cursors for a few hundred queries more, and are run and
//! checked again when they are closed. Half of the cursors lose their tracker first and stay mapped only because they
//! are held. Another thread removes one query in four while it runs. Clients share only the linker and the table.

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

/// Queries 1 and 6 run over the full table once per this many queries.
const FULL_TABLE_PERIOD: u64 = 500;
/// One query in this many stays open.
const CURSOR_PERIOD: u64 = 16;
/// Another thread removes one query in this many while the query runs.
const EVICTION_PERIOD: u64 = 4;
/// The maximum number of open cursors of a client.
const MAX_CURSORS: usize = 24;
/// The number of rows that a random query reads.
const SLICE: Range<usize> = 2_048..16_384;

/// What all clients share.
pub struct Workload<'a> {
    pub table: &'a Table,
    pub engine: &'a Engine,
    pub seed: u64,
    pub never_remove: bool,
    /// The size of the machine code that is linked.
    pub code: Gauge,
    /// Queries taken from the stream in this phase.
    pub taken: AtomicU64,
    /// Queries finished in this phase.
    pub finished: AtomicU64,
    /// Set when a client fails; the others then stop too.
    pub failed: AtomicBool,
    /// Makes symbols unique: two live queries cannot share a name.
    serial: AtomicU64,
    /// The interpreter's answers to queries 1 and 6.
    full_table: [Answer; 2],
}

impl<'a> Workload<'a> {
    /// Interprets the two queries that run over the full table.
    pub fn new(table: &'a Table, engine: &'a Engine, seed: u64, never_remove: bool) -> Result<Workload<'a>, String> {
        let interpreted = |benchmark: &Benchmark| {
            let query = sql::parse(benchmark.sql)?;
            Ok::<_, String>(interpret(&query, table, 0..table.rows()))
        };
        let full_table = [interpreted(&Q1)?, interpreted(&Q6)?];
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
            full_table,
        })
    }

    /// The interpreter's answers to queries 1 and 6.
    pub fn full_table_answers(&self) -> [(&'static Benchmark, &Answer); 2] {
        [(&Q1, &self.full_table[0]), (&Q6, &self.full_table[1])]
    }
}

/// A range of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    pub first: u64,
    pub count: u64,
}

/// A query that stays open.
struct Cursor {
    query: CursorQuery,
    sql: String,
    plan: Plan,
    rows: Range<usize>,
    expected: Answer,
    code_bytes: u64,
    /// The cursor is closed before this client's query of this number.
    closes_at: u64,
}

enum CursorQuery {
    Linked(LinkedQuery),
    Pinned(PinnedQuery),
}

impl CursorQuery {
    fn function(&self) -> &Function<QueryFunction> {
        match self {
            CursorQuery::Linked(query) => query.function(),
            CursorQuery::Pinned(query) => query.function(),
        }
    }
}

/// A client, with what it reuses from query to query.
pub struct Client<'a> {
    workload: &'a Workload<'a>,
    compiler: Compiler,
    pub latencies: Latencies,
    /// Latencies of queries 1 and 6 over the full table, as [`Step::Run`].
    pub full_table: [Latencies; 2],
    cursors: Vec<Cursor>,
    /// Queries that are never removed.
    never_removed: Vec<LinkedQuery>,
    done: u64,
}

impl<'a> Client<'a> {
    /// Creates a client that can measure `queries` queries without allocating.
    pub fn new(workload: &'a Workload<'a>, queries: usize) -> Result<Client<'a>, String> {
        let full_table_queries = queries / FULL_TABLE_PERIOD as usize + 2;
        Ok(Client {
            workload,
            compiler: Compiler::new()?,
            latencies: Latencies::with_capacity(queries),
            full_table: [Latencies::with_capacity(full_table_queries), Latencies::with_capacity(full_table_queries)],
            cursors: Vec::with_capacity(MAX_CURSORS),
            never_removed: Vec::new(),
            done: 0,
        })
    }

    /// Runs queries until the phase is over, and closes all cursors.
    pub fn run(&mut self, phase: Phase) -> Result<(), String> {
        self.latencies.clear();
        self.full_table.iter_mut().for_each(Latencies::clear);
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

    /// Processes one query, from its text to its removal.
    fn query(&mut self, index: u64, position: u64) -> Result<(), String> {
        let workload = self.workload;
        let mut random = Random::new(workload.seed, position);
        let full_table = match index % FULL_TABLE_PERIOD {
            0 => Some(0),
            1 => Some(1),
            _ => None,
        };
        let (sql, rows) = match full_table {
            Some(which) => {
                let (benchmark, _) = workload.full_table_answers()[which];
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
        let duration = started.elapsed();
        self.latencies.record(Step::Run, duration);
        let expected = match full_table {
            Some(which) => {
                self.full_table[which].record(Step::Run, duration);
                workload.full_table[which].clone()
            }
            None => interpret(&query, workload.table, rows.clone()),
        };
        check(&answer, &expected, workload.table, &sql, &rows)?;

        if is_evicted {
            linked.remove_evicted().map_err(|error| failed(error.to_string()))?;
            workload.code.subtract(code_bytes);
        } else if workload.never_remove {
            self.never_removed.push(linked);
        } else if self.cursors.len() < MAX_CURSORS && random.one_in(CURSOR_PERIOD) {
            let query = if random.one_in(2) {
                let pinned = self.latencies.time(Step::Remove, || linked.remove_pinned());
                CursorQuery::Pinned(pinned.map_err(|error| failed(error.to_string()))?)
            } else {
                CursorQuery::Linked(linked)
            };
            let closes_at = self.done + 100 + random.below(300);
            self.cursors.push(Cursor { query, sql, plan, rows, expected, code_bytes, closes_at });
        } else {
            self.remove(linked, &sql)?;
            workload.code.subtract(code_bytes);
        }
        Ok(())
    }

    fn remove(&mut self, linked: LinkedQuery, sql: &str) -> Result<(), String> {
        match self.latencies.time(Step::Remove, || linked.remove()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("a query without holders was not removed at once ({sql})")),
            Err(error) => Err(format!("{error} ({sql})")),
        }
    }

    fn close_due_cursors(&mut self) -> Result<(), String> {
        let done = self.done;
        while let Some(position) = self.cursors.iter().position(|c| c.closes_at <= done) {
            let cursor = self.cursors.swap_remove(position);
            self.close(cursor)?;
        }
        Ok(())
    }

    /// Runs a cursor's query again, checks the answer and releases the query.
    fn close(&mut self, cursor: Cursor) -> Result<(), String> {
        let table = self.workload.table;
        // SAFETY: the function was compiled from this plan for this table.
        let answer = unsafe { execute(cursor.query.function(), &cursor.plan, table, cursor.rows.clone()) };
        check(&answer, &cursor.expected, table, &cursor.sql, &cursor.rows)?;
        match cursor.query {
            CursorQuery::Linked(linked) => self.remove(linked, &cursor.sql)?,
            CursorQuery::Pinned(pinned) => drop(pinned),
        }
        self.workload.code.subtract(cursor.code_bytes);
        Ok(())
    }
}

/// A random range of the table's rows.
pub fn slice(random: &mut Random, rows: usize) -> Range<usize> {
    let target = SLICE.start + random.below(SLICE.len() as u64) as usize;
    let length = target.min(rows);
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
