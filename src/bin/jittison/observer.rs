//! Watches links from the plugin's seat: how far they are, how long each phase took, what they consisted of.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jittison::Error;
use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::{FixedLink, FoundExternal, LinkGraph, LinkedObject, PlacedLink};
use jittison::session::ResourceKey;
use serde_json::{Value, json};

/// Totals over all links.
#[derive(Default)]
pub struct Totals {
    /// Links that are done.
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

/// What ends each phase, in order: see `LinkHooks`.
const PHASES: [&str; 6] = ["read", "prune", "plan_and_allocate", "look_up", "fix_up", "seal"];

impl Totals {
    /// As the report shows them. Phases of links that run at once, or wait for each other, overlap.
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

/// The plugin.
pub struct Observer(pub Arc<Totals>);

impl LinkPlugin for Observer {
    fn begin(&self, origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        // Members are called `libx.a(member.o)`.
        let members = u64::from(origin.object().ends_with(')'));
        let own = Counts { objects: 1, members, ..Counts::default() };
        Some(Box::new(Hooks { totals: self.0.clone(), own, phase: 0, since: Instant::now() }))
    }
}

struct Hooks {
    totals: Arc<Totals>,
    own: Counts,
    phase: usize,
    since: Instant,
}

impl Hooks {
    fn step(&mut self) {
        let now = Instant::now();
        self.own.phases[self.phase] += now - self.since;
        self.since = now;
        self.phase += 1;
    }
}

impl LinkHooks for Hooks {
    fn prepare(&mut self, _: &mut LinkGraph) -> Result<(), Error> {
        self.step();
        Ok(())
    }

    fn pruned(&mut self, graph: &mut LinkGraph) -> Result<(), Error> {
        self.step();
        self.own.symbols = graph.symbols().count() as u64;
        for (id, _) in graph.blocks().filter(|(_, block)| !block.is_dropped()) {
            for edge in graph.edges(id) {
                *self.own.relocations.entry(edge.kind.name()).or_default() += 1;
            }
        }
        // Counting belongs to no phase.
        self.since = Instant::now();
        Ok(())
    }

    fn placed(&mut self, _: &PlacedLink) -> Result<(), Error> {
        self.step();
        Ok(())
    }

    fn bind(&mut self, _: &PlacedLink, _: &mut [FoundExternal]) -> Result<(), Error> {
        self.step();
        Ok(())
    }

    fn fixed_up(&mut self, _: &mut FixedLink<'_>) -> Result<(), Error> {
        self.step();
        Ok(())
    }

    fn record(mut self: Box<Self>, _: ResourceKey, _: &LinkOrigin<'_>, _: &LinkedObject) {
        self.step();
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
