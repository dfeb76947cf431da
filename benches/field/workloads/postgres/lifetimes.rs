//! [`Calendar`]: when queries begin and when they end, in simulated time.

use std::collections::{BTreeMap, BTreeSet};

use crate::dice::Dice;
use crate::workloads::chance::{exponential, log_normal, pareto, weighted};

/// Of 1,000 queries: interactive ones; reports; what stays for minutes and hours; what stays as long as the session. The shape is
/// that of PostgreSQL's maintainers' words, the long tail that of studies of warehouse fleets.
const KINDS: [u32; 4] = [700, 250, 49, 1];
const INTERACTIVE_MEDIAN: f64 = 0.020;
const REPORT_MEDIAN: f64 = 2.0;
const DEVIATION: f64 = 1.0;
const LONG_LEAST: f64 = 60.0;
const LONG_EXPONENT: f64 = 1.1;
const WHOLE_SESSION: f64 = 1e12;
/// Queries that run inside others, as functions of the server do: how deep, and in how many queries that take this long.
const DEEPEST: u32 = 3;
const NESTING_LEAST: f64 = 0.5;
/// One in so many of those has one inside.
const NESTING_ONE_IN: usize = 2;

/// What a client asks for.
#[derive(Clone, Copy)]
pub struct Load {
    pub queries_a_second: f64,
    /// Queries that may be open.
    pub most_live: usize,
    /// Each query ends before the next begins.
    pub is_closed_loop: bool,
}

/// Times are seconds since the beginning, as bits that sort as the seconds do.
pub struct Calendar {
    load: Load,
    next_arrival: f64,
    next_id: u64,
    /// When queries inside others begin, how deep, and when the one around them ends.
    nested: BTreeMap<(u64, u64), (u32, f64)>,
    ends: BTreeSet<(u64, u64)>,
    /// When the open ones end, oldest first.
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
            queries_a_second: self.queries_a_second / share,
            most_live: self.most_live.div_ceil(clients),
            is_closed_loop: self.is_closed_loop,
        }
    }
}

impl Calendar {
    pub fn new(load: Load) -> Calendar {
        let (nested, ends, open) = Default::default();
        Calendar { load, next_arrival: 0.0, next_id: 0, nested, ends, open }
    }

    pub fn next(&mut self, dice: &mut Dice) -> Event {
        let is_full = self.open.len() >= self.load.most_live;
        let oldest = self.open.first_key_value().map(|(&id, _)| id).filter(|_| is_full);
        if let Some(id) = oldest {
            return self.end(id);
        }
        let inner = self.nested.first_key_value().map_or(f64::INFINITY, |((at, _), _)| f64::from_bits(*at));
        let beginning = inner.min(self.next_arrival);
        match self.ends.first() {
            Some(&(at, id)) if self.load.is_closed_loop || f64::from_bits(at) <= beginning => self.end(id),
            _ => self.begin(beginning, dice),
        }
    }

    /// Ends the oldest query that is open.
    pub fn close(&mut self) -> Option<u64> {
        let id = *self.open.first_key_value()?.0;
        self.end(id);
        Some(id)
    }

    fn begin(&mut self, at: f64, dice: &mut Dice) -> Event {
        let (depth, latest) = match self.nested.first_entry() {
            Some(first) if f64::from_bits(first.key().0) <= self.next_arrival => first.remove(),
            _ => {
                self.next_arrival += exponential(dice, 1.0 / self.load.queries_a_second.max(1e-9));
                (1, f64::INFINITY)
            }
        };
        let end = (at + lifetime(dice)).min(latest);
        let id = self.next_id;
        self.next_id += 1;
        self.ends.insert((end.to_bits(), id));
        self.open.insert(id, end.to_bits());
        if depth < DEEPEST && end - at >= NESTING_LEAST && dice.roll(NESTING_ONE_IN) == 0 {
            let begins = at + exponential(dice, NESTING_LEAST);
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

/// In seconds.
fn lifetime(dice: &mut Dice) -> f64 {
    match weighted(dice, &KINDS) {
        0 => log_normal(dice, INTERACTIVE_MEDIAN, DEVIATION),
        1 => log_normal(dice, REPORT_MEDIAN, DEVIATION),
        2 => pareto(dice, LONG_LEAST, LONG_EXPONENT),
        _ => WHOLE_SESSION,
    }
}
