//! The scenarios of workload a: clients that replay queries.

use std::thread;

use super::classes::{CLASSES, libraries, templates};
use super::client::{Client, Figures};
use super::lifetimes::Load;
use crate::measure::competitor::{DLOPEN, JITTISON};
use crate::measure::machine::processors;
use crate::measure::scenario::{Measures, Scenario, Unit, to_text};
use crate::workloads::cancel::Cancel;
use crate::workloads::corpus::Template;
use crate::workloads::dlopen::SystemLoader;
use crate::workloads::host::HostSession;
use crate::workloads::loader::Loader;
use crate::workloads::rows::Rows;
use jittison_test_support::bench::resident::Resident;

/// The time of PostgreSQL's fastest compilations, for comparison with a link and a removal.
const COMPILE_NS: f64 = 5e6;
/// Queries per round.
const QUERIES: u64 = 50_000;
const QUICK_QUERIES: u64 = 4_000;
/// Fewer for the system's loader: with thousands of libraries each takes it a millisecond.
const DLOPEN_QUERIES: u64 = 6_000;

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

    fn round(&mut self) -> Measures {
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
        if self.by_dlopen { DLOPEN } else { JITTISON }
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
