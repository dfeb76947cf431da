//! Workload a: a tracker for each module, one to three modules for each query, all of it removed when the query ends.
//!
//! The sizes are those of PostgreSQL's modules by class, as its llvmjit makes them; the mix and the rates are assumptions.
//! Time is simulated: events happen in their order and nobody sleeps. What a session keeps open has a limit, as a client has only
//! so many cursors: when it is reached, the oldest query ends early.

mod client;
mod lifetimes;

use std::sync::OnceLock;
use std::thread;

use self::client::{Client, Figures};
use self::lifetimes::Load;
use super::cancel::Cancel;
use super::corpus::{self, Shape, Template};
use super::dlopen::SystemLoader;
use super::host::House;
use super::loader::Loader;
use super::processors;
use super::rows::Rows;
use crate::ours::WHO;
use crate::resident::Resident;
use crate::scenario::words;
use crate::scenario::{Measure, Scenario, Unit};

/// PostgreSQL's modules by class: a filter; a small join; a larger one; a join of eight tables; hundreds of aggregates.
const CLASSES: [(&str, &[Shape]); 5] = [
    ("T", &[shape(680, 10, 3, 0, 4), shape(1_000, 10, 3, 0, 6), shape(1_400, 13, 3, 64, 5)]),
    ("S", &[shape(3_000, 40, 3, 128, 8), shape(5_900, 82, 4, 256, 12), shape(13_000, 100, 4, 256, 12)]),
    ("M", &[shape(7_600, 75, 9, 256, 8), shape(13_500, 112, 16, 512, 10), shape(26_000, 163, 29, 512, 12)]),
    ("L", &[shape(18_000, 175, 40, 512, 7), shape(41_000, 221, 40, 880, 7), shape(72_000, 430, 12, 512, 13)]),
    ("XL", &[shape(107_000, 1_100, 2, 256, 9), shape(223_000, 1_800, 2, 256, 9)]),
];
/// How many of a hundred modules are of which class: assumed.
const MIX: [u32; 5] = [30, 35, 25, 8, 2];
/// What PostgreSQL takes for the fastest of its compilations: what a link and a removal are compared with.
const COMPILE_NS: f64 = 5e6;
/// Queries of one round.
const QUERIES: u64 = 50_000;
const QUICK_QUERIES: u64 = 4_000;
/// The system's loader does no more: with thousands of libraries it takes a millisecond for each.
const DLOPEN_QUERIES: u64 = 6_000;

const fn shape(text: usize, relocations: usize, functions: usize, rodata: usize, hosts: usize) -> Shape {
    Shape { text, relocations, functions, rodata, hosts }
}

/// As it is today: one thread, and what one backend keeps open.
const BACKEND: Load = Load { queries_a_second: 10.0, most_live: 15, is_closed_loop: false };
/// An engine of threads that share a session; the numbers are for all of them together.
const THREADS: Load = Load { queries_a_second: 500.0, most_live: 2_500, is_closed_loop: false };
/// With a compiler that is as fast as the linker: each query as soon as the last has ended.
const CLOSED_LOOP: Load = Load { queries_a_second: 0.0, most_live: 15, is_closed_loop: true };

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
    /// Of each thread.
    load: Load,
    queries: u64,
    by_dlopen: bool,
}

impl Scenario for Postgres {
    fn title(&self) -> String {
        format!("workload a, PostgreSQL-like, {}, {}", self.name, self.who())
    }

    fn round(&mut self) -> Result<Vec<Measure>, String> {
        let mut rows = Rows::new("workload a", self.who(), self.name);
        if self.by_dlopen {
            self.round_of_dlopen(&mut rows)?
        } else {
            self.round_of_ours(&mut rows)?
        }
        Ok(rows.finish())
    }
}

impl Postgres {
    fn who(&self) -> &'static str {
        if self.by_dlopen { crate::dlopen::WHO } else { WHO }
    }

    fn round_of_ours(&self, rows: &mut Rows) -> Result<(), String> {
        let (templates, house) = (templates()?, House::new()?);
        house.jit.layer().add_plugin(Cancel::plugin());
        let before = Resident::measure()?;
        self.run(&house, templates, rows)?;
        let held = house.jit.memory_statistics().resident_bytes;
        rows.value("code memory held at the end, all removed", Unit::Bytes, held as f64);
        house.check_empty()?;
        house.jit.release_free();
        rows.value("resident memory left, free memory released", Unit::Bytes, before.grown()?);
        house.jit.session().end().map_err(words)
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
        rows.value("link and remove, of a compile of 5 ms", Unit::Ratio, figures.cost_of_a_module() / COMPILE_NS);
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
