//! [`LinkTotals`]: counts and phase times over all links, collected by a link plugin.
//!
//! Each link has its own counts, which it adds to the totals when it is done. So links that run in parallel share nothing
//! until then.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jittison::Error;
use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::{FixedLink, FoundExternal, LinkGraph, LinkedObject, PlacedLink};
use jittison::session::ResourceKey;
use serde_json::{Value, json};

/// Totals over all completed links.
#[derive(Default)]
pub struct LinkTotals {
    /// The number of completed links.
    pub linked: AtomicU64,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    phases: [Duration; PHASES.len()],
    objects: u64,
    members: u64,
    symbols: u64,
    relocations: BTreeMap<&'static str, u64>,
}

/// The phases, in order. Each hook of `LinkHooks` ends one.
const PHASES: [&str; 6] = ["read", "prune", "plan_and_allocate", "look_up", "fix_up", "seal"];

impl LinkTotals {
    /// The totals for the report. Phases overlap if links run in parallel or wait for each other.
    pub fn json(&self) -> Value {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let phases: serde_json::Map<String, Value> = PHASES
            .iter()
            .zip(counts.phases)
            .map(|(name, took)| (format!("{name}_us"), json!(took.as_secs_f64() * 1e6)))
            .collect();
        json!({
            "phases": phases,
            "objects": counts.objects,
            "members_pulled": counts.members,
            "symbols": counts.symbols,
            "relocations": counts.relocations,
        })
    }
}

/// The plugin that collects the totals.
pub struct LinkTotalsPlugin(pub Arc<LinkTotals>);

impl LinkPlugin for LinkTotalsPlugin {
    fn begin(&self, origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        // The name of a member has the form `libx.a(member.o)`.
        let members = u64::from(origin.object().ends_with(')'));
        let own = Counts { objects: 1, members, ..Counts::default() };
        Some(Box::new(Hooks { totals: self.0.clone(), own, phase: 0, phase_began: Instant::now() }))
    }
}

/// The hooks of one link.
struct Hooks {
    totals: Arc<LinkTotals>,
    own: Counts,
    phase: usize,
    phase_began: Instant,
}

impl Hooks {
    fn end_phase(&mut self) {
        let now = Instant::now();
        self.own.phases[self.phase] += now - self.phase_began;
        self.phase_began = now;
        self.phase += 1;
    }
}

impl LinkHooks for Hooks {
    fn prepare(&mut self, _: &mut LinkGraph) -> Result<(), Error> {
        self.end_phase();
        Ok(())
    }

    fn pruned(&mut self, graph: &mut LinkGraph) -> Result<(), Error> {
        self.end_phase();
        self.own.symbols = graph.symbols().count() as u64;
        for (id, _) in graph.blocks().filter(|(_, block)| !block.is_dropped()) {
            for edge in graph.edges(id) {
                *self.own.relocations.entry(graph.relocation_name(edge.kind)).or_default() += 1;
            }
        }
        // The time for counting belongs to no phase.
        self.phase_began = Instant::now();
        Ok(())
    }

    fn placed(&mut self, _: &mut PlacedLink) -> Result<(), Error> {
        self.end_phase();
        Ok(())
    }

    fn bind(&mut self, _: &PlacedLink, _: &mut [FoundExternal]) -> Result<(), Error> {
        self.end_phase();
        Ok(())
    }

    fn fixed_up(&mut self, _: &mut FixedLink<'_>) -> Result<(), Error> {
        self.end_phase();
        Ok(())
    }

    fn record(mut self: Box<Self>, _: ResourceKey, _: &LinkOrigin<'_>, _: &LinkedObject) {
        self.end_phase();
        self.totals.linked.fetch_add(1, Relaxed);
        let mut totals = self.totals.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (total, own) in totals.phases.iter_mut().zip(self.own.phases) {
            *total += own;
        }
        totals.objects += self.own.objects;
        totals.members += self.own.members;
        totals.symbols += self.own.symbols;
        for (kind, count) in &self.own.relocations {
            *totals.relocations.entry(kind).or_default() += count;
        }
    }
}
