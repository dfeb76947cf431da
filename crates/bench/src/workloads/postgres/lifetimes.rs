//! [`QuerySchedule`]: when queries begin and end, in simulated time.

use std::collections::{BTreeMap, BTreeSet};

use crate::workloads::chance::{exponential, log_normal, pareto, weighted};
use fastrand::Rng;

/// Of 1,000 queries: interactive ones; reports; those that stay open for minutes and hours; those that stay as long
/// as the session. The shape follows what PostgreSQL's maintainers describe; the long tail follows studies of
/// warehouse fleets.
const KINDS: [u32; 4] = [700, 250, 49, 1];
const INTERACTIVE_MEDIAN: f64 = 0.020;
const REPORT_MEDIAN: f64 = 2.0;
const DEVIATION: f64 = 1.0;
const LONG_LEAST: f64 = 60.0;
const LONG_EXPONENT: f64 = 1.1;
const FULL_SESSION: f64 = 1e12;
/// Queries that run inside others, as functions of the server do: the maximum depth, and the minimum duration of an
/// outer query in seconds.
const MAX_DEPTH: u32 = 3;
const NESTING_LEAST: f64 = 0.5;
/// One in this many of those outer queries has an inner one.
const NESTING_ONE_IN: usize = 2;

/// What a client does.
#[derive(Clone, Copy)]
pub struct Load {
    pub queries_per_second: f64,
    /// The maximum number of open queries.
    pub max_live: usize,
    /// Each query ends before the next one begins.
    pub is_closed_loop: bool,
}

/// Times are seconds since the start, as bits, which sort in the same order.
pub struct QuerySchedule {
    load: Load,
    next_arrival: f64,
    next_id: u64,
    /// The start of inner queries, their depth, and the end of the outer query.
    nested: BTreeMap<(u64, u64), (u32, f64)>,
    ends: BTreeSet<(u64, u64)>,
    /// The end of each open query, oldest first.
    open: BTreeMap<u64, u64>,
}

/// What happens next.
pub enum Event {
    Begin(u64),
    End(u64),
}

impl Load {
    /// The share of one of several clients.
    pub fn of_one_in(self, clients: usize) -> Load {
        let share = clients as f64;
        Load {
            queries_per_second: self.queries_per_second / share,
            max_live: self.max_live.div_ceil(clients),
            is_closed_loop: self.is_closed_loop,
        }
    }
}

impl QuerySchedule {
    pub fn new(load: Load) -> QuerySchedule {
        let (nested, ends, open) = Default::default();
        QuerySchedule { load, next_arrival: 0.0, next_id: 0, nested, ends, open }
    }

    pub fn next(&mut self, rng: &mut Rng) -> Event {
        let is_full = self.open.len() >= self.load.max_live;
        let oldest = self.open.first_key_value().map(|(&id, _)| id).filter(|_| is_full);
        if let Some(id) = oldest {
            return self.end(id);
        }
        let inner = self.nested.first_key_value().map_or(f64::INFINITY, |((at, _), _)| f64::from_bits(*at));
        let beginning = inner.min(self.next_arrival);
        match self.ends.first() {
            Some(&(at, id)) if self.load.is_closed_loop || f64::from_bits(at) <= beginning => self.end(id),
            _ => self.begin(beginning, rng),
        }
    }

    /// Ends the oldest open query.
    pub fn close(&mut self) -> Option<u64> {
        let id = *self.open.first_key_value()?.0;
        self.end(id);
        Some(id)
    }

    fn begin(&mut self, at: f64, rng: &mut Rng) -> Event {
        let (depth, latest) = match self.nested.first_entry() {
            Some(first) if f64::from_bits(first.key().0) <= self.next_arrival => first.remove(),
            _ => {
                self.next_arrival += exponential(rng, 1.0 / self.load.queries_per_second.max(1e-9));
                (1, f64::INFINITY)
            }
        };
        let end = (at + lifetime(rng)).min(latest);
        let id = self.next_id;
        self.next_id += 1;
        self.ends.insert((end.to_bits(), id));
        self.open.insert(id, end.to_bits());
        if depth < MAX_DEPTH && end - at >= NESTING_LEAST && rng.usize(..NESTING_ONE_IN) == 0 {
            let begins = at + exponential(rng, NESTING_LEAST);
            if begins < end {
                self.nested.insert((begins.to_bits(), id), (depth + 1, end));
            }
        }
        Event::Begin(id)
    }

    fn end(&mut self, id: u64) -> Event {
        let at = self.open.remove(&id).unwrap_or_default();
        self.ends.remove(&(at, id));
        Event::End(id)
    }
}

/// A random lifetime, in seconds.
fn lifetime(rng: &mut Rng) -> f64 {
    match weighted(rng, &KINDS) {
        0 => log_normal(rng, INTERACTIVE_MEDIAN, DEVIATION),
        1 => log_normal(rng, REPORT_MEDIAN, DEVIATION),
        2 => pareto(rng, LONG_LEAST, LONG_EXPONENT),
        _ => FULL_SESSION,
    }
}
