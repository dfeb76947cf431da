//! Workload a: each module has its own tracker, each query has one to three modules, and all of them are removed when
//! the query ends.
//!
//! The sizes are those of PostgreSQL's modules by class, as its llvmjit makes them. The mix and the rates are
//! assumptions. Time is simulated: events happen in order, and no thread sleeps. The number of open queries of a
//! session is limited, like a client's cursors. At the limit, the oldest query ends early.

mod client;
mod lifetimes;

use std::sync::OnceLock;
use std::thread;

use self::client::{Client, Figures};
use self::lifetimes::Load;
use super::cancel::Cancel;
use super::corpus::{self, Shape, Template};
use super::dlopen::SystemLoader;
use super::host::HostSession;
use super::loader::Loader;
use super::processors;
use super::rows::Rows;
use crate::measure::scenario::to_text;
use crate::measure::scenario::{Measure, Scenario, Unit};
use crate::peers::ours::NAME;
use jittison_test_support::bench::resident::Resident;

/// PostgreSQL's modules by class: a filter; a small join; a larger join; a join of eight tables; hundreds of
/// aggregates.
const CLASSES: [(&str, &[Shape]); 5] = [
    ("T", &[shape(680, 10, 3, 0, 4), shape(1_000, 10, 3, 0, 6), shape(1_400, 13, 3, 64, 5)]),
    ("S", &[shape(3_000, 40, 3, 128, 8), shape(5_900, 82, 4, 256, 12), shape(13_000, 100, 4, 256, 12)]),
    ("M", &[shape(7_600, 75, 9, 256, 8), shape(13_500, 112, 16, 512, 10), shape(26_000, 163, 29, 512, 12)]),
    ("L", &[shape(18_000, 175, 40, 512, 7), shape(41_000, 221, 40, 880, 7), shape(72_000, 430, 12, 512, 13)]),
    ("XL", &[shape(107_000, 1_100, 2, 256, 9), shape(223_000, 1_800, 2, 256, 9)]),
];
/// The number of modules of each class, of a hundred: an assumption.
const MIX: [u32; 5] = [30, 35, 25, 8, 2];
/// The time of PostgreSQL's fastest compilations, for comparison with a link and a removal.
const COMPILE_NS: f64 = 5e6;
/// Queries per round.
const QUERIES: u64 = 50_000;
const QUICK_QUERIES: u64 = 4_000;
/// Fewer for the system's loader: with thousands of libraries each takes it a millisecond.
const DLOPEN_QUERIES: u64 = 6_000;

const fn shape(text: usize, relocations: usize, functions: usize, rodata: usize, hosts: usize) -> Shape {
    Shape { text, relocations, functions, rodata, hosts }
}

/// PostgreSQL's architecture: one thread, and the queries that one backend keeps open.
const BACKEND: Load = Load { queries_per_second: 10.0, max_live: 15, is_closed_loop: false };
/// An engine with threads that share a session; the numbers are for all threads together.
const THREADS: Load = Load { queries_per_second: 500.0, max_live: 2_500, is_closed_loop: false };
/// A compiler that is as fast as the linker: each query begins when the last has ended.
const CLOSED_LOOP: Load = Load { queries_per_second: 0.0, max_live: 15, is_closed_loop: true };

pub fn scenarios(quick: bool) -> Vec<Box<dyn Scenario>> {
    let all = [
        ("a1, one backend", 1, BACKEND),
        ("a2, threads in one session", processors(), THREADS),
        ("a3, closed loop", processors(), CLOSED_LOOP),
    ];
    let queries = if quick { QUICK_QUERIES } else { QUERIES };
    let make = |(name, threads, load): (_, usize, Load)| -> [Box<dyn Scenario>; 2] {
        let load = load.of_one_in(threads);
        [(false, queries), (true, queries.min(DLOPEN_QUERIES))].map(|(by_dlopen, queries)| -> Box<dyn Scenario> {
            Box::new(Postgres { name, threads, load, queries: queries / threads as u64, by_dlopen })
        })
    };
    all.into_iter().flat_map(make).collect()
}

struct Postgres {
    name: &'static str,
    threads: usize,
    /// Per thread.
    load: Load,
    queries: u64,
    by_dlopen: bool,
}

impl Scenario for Postgres {
    fn title(&self) -> String {
        format!("workload a, PostgreSQL-like, {}, {}", self.name, self.competitor())
    }

    fn round(&mut self) -> Result<Vec<Measure>, String> {
        let mut rows = Rows::new("workload a", self.competitor(), self.name);
        if self.by_dlopen {
            self.round_of_dlopen(&mut rows)?
        } else {
            self.round_of_ours(&mut rows)?
        }
        Ok(rows.finish())
    }
}

impl Postgres {
    fn competitor(&self) -> &'static str {
        if self.by_dlopen { crate::peers::dlopen::NAME } else { NAME }
    }

    fn round_of_ours(&self, rows: &mut Rows) -> Result<(), String> {
        let (templates, session) = (templates()?, HostSession::new()?);
        session.jit.layer().add_plugin(Cancel::plugin());
        let before = Resident::measure()?;
        self.run(&session, templates, rows)?;
        let held = session.jit.memory_statistics().resident_bytes;
        rows.value("code memory held at the end, all removed", Unit::Bytes, held as f64);
        session.check_empty()?;
        session.jit.release_free();
        rows.value("resident memory left, free memory released", Unit::Bytes, before.grown()?);
        session.jit.session().end().map_err(to_text)
    }

    fn round_of_dlopen(&self, rows: &mut Rows) -> Result<(), String> {
        let (templates, loader) = (libraries()?, SystemLoader::new()?);
        let before = Resident::measure()?;
        self.run(&loader, templates, rows)?;
        rows.value("resident memory left, free memory released", Unit::Bytes, before.grown()?);
        Ok(())
    }

    fn run<L: Loader>(&self, loader: &L, templates: &[Vec<Template>], rows: &mut Rows) -> Result<(), String> {
        let figures = self.figures(loader, templates)?;
        figures.report(rows, CLASSES.map(|(name, _)| name));
        rows.value(
            "link and remove, relative to a compilation of 5 ms",
            Unit::Ratio,
            figures.cost_of_a_module() / COMPILE_NS,
        );
        Ok(())
    }

    fn figures<L: Loader>(&self, loader: &L, templates: &[Vec<Template>]) -> Result<Figures, String> {
        let client = |thread: usize| Client::new(loader, templates, self.load, thread);
        if self.threads == 1 {
            return client(0).run(self.queries, true);
        }
        thread::scope(|scope| {
            let start = |thread| scope.spawn(move || client(thread).run(self.queries, false));
            let started: Vec<_> = (0..self.threads).map(start).collect();
            let mut all = Figures::new();
            for one in started {
                all.merge(&one.join().map_err(|_| "a client panicked")??);
            }
            Ok(all)
        })
    }
}

type ByClass = Vec<Vec<Template>>;

fn templates() -> Result<&'static ByClass, String> {
    static TEMPLATES: OnceLock<Result<ByClass, String>> = OnceLock::new();
    let build = || {
        let shapes: Vec<Shape> = CLASSES.iter().flat_map(|(_, shapes)| shapes.iter().copied()).collect();
        let mut templates = corpus::build(&shapes)?.into_iter();
        Ok(CLASSES.iter().map(|(_, shapes)| templates.by_ref().take(shapes.len()).collect()).collect())
    };
    TEMPLATES.get_or_init(build).as_ref().map_err(String::clone)
}

/// The same as shared libraries.
fn libraries() -> Result<&'static ByClass, String> {
    static LIBRARIES: OnceLock<Result<ByClass, String>> = OnceLock::new();
    let of_class = |class: &Vec<Template>| class.iter().map(Template::shared).collect();
    LIBRARIES.get_or_init(|| templates()?.iter().map(of_class).collect()).as_ref().map_err(String::clone)
}
