//! Four threads do random operations at the same time. At the end, every recorded resource was freed exactly once.
//!
//! The choices are seeded and nothing depends on time. Only the schedule of the threads differs between runs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use jittison::session::*;

use crate::support::*;

const THREADS: u64 = 4;
const STEPS: u64 = sized(8_000, 40);
const NAMES: u64 = 64;

/// xorshift: a small seeded generator.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[derive(Default)]
struct Recorded {
    serial: AtomicU64,
    /// Resources that a live tracker accepted.
    resources: Mutex<Vec<u64>>,
}

/// Like `Unit::depending`, but accepts a refusal at every step.
fn tolerant_unit(
    name: &str,
    dependency: Option<String>,
    manager: &Arc<LedgerManager>,
    recorded: &Arc<Recorded>,
) -> Unit {
    let (manager, recorded) = (manager.clone(), recorded.clone());
    Unit::new(&[(name, weak())], move |r| {
        let resource = recorded.serial.fetch_add(1, Ordering::Relaxed) + 1;
        if r.with_resource_key(|key| manager.ledger.record(key, resource)).is_err() {
            return;
        }
        recorded.resources.lock().unwrap().push(resource);
        if r.notify_resolved(|_| Some(address(resource))).is_err() {
            return;
        }
        let requests: Vec<_> = dependency.iter().map(|name| SymbolRequest::weak(name)).collect();
        r.lookup(&requests, RequiredState::Resolved, |r, found| {
            let found = found.unwrap_or_default();
            let _ = r.notify_emitted(found.into_iter().filter_map(|result| result.symbol).collect());
        });
    })
}

fn work(
    thread: u64,
    session: &ExecutionSession,
    dylibs: &[JitDylib],
    manager: &Arc<LedgerManager>,
    recorded: &Arc<Recorded>,
) {
    let mut choices = Choices(0x9E37_79B9_7F4A_7C15 ^ (thread + 1));
    let mut trackers: Vec<ResourceTracker> = Vec::new();
    let mut pins: Vec<Pin> = Vec::new();
    for _ in 0..STEPS {
        let dylib = &dylibs[choices.below(dylibs.len() as u64) as usize];
        let name = format!("n{}", choices.below(NAMES));
        match choices.below(16) {
            0..=4 => {
                let dependency = (choices.below(3) > 0).then(|| format!("n{}", choices.below(NAMES)));
                let unit = tolerant_unit(&name, dependency, manager, recorded);
                match choices.below(8) {
                    0 => drop(dylib.define(unit)),
                    1 if !trackers.is_empty() => {
                        drop(trackers[choices.below(trackers.len() as u64) as usize].define(unit))
                    }
                    _ => {
                        let tracker = dylib.create_tracker().unwrap();
                        let _ = tracker.define(unit);
                        trackers.push(tracker);
                    }
                }
            }
            5..=8 => {
                let requests = [SymbolRequest::required(&name)];
                session.lookup_then(&dylib.search_order(), &requests, RequiredState::Ready, drop);
            }
            9 | 10 => pins.extend(dylib.pin(&name).map(|(_, pin)| pin)),
            11 if !pins.is_empty() => drop(pins.swap_remove(choices.below(pins.len() as u64) as usize)),
            12 if !pins.is_empty() => pins.push(pins[0].clone()),
            13 if trackers.len() > 1 => {
                let tracker = trackers.swap_remove(choices.below(trackers.len() as u64) as usize);
                let _ = tracker.transfer_to(&trackers[0]);
            }
            14 if !trackers.is_empty() && choices.below(4) == 0 => {
                drop(trackers.swap_remove(choices.below(trackers.len() as u64) as usize));
            }
            15 if choices.below(8) == 0 => drop(dylib.clear()),
            _ if !trackers.is_empty() => {
                let tracker = trackers.swap_remove(choices.below(trackers.len() as u64) as usize);
                let _ = tracker.remove();
            }
            _ => {}
        }
        if trackers.len() > 6 {
            trackers.drain(..3).for_each(|tracker| drop(tracker.remove()));
        }
        if pins.len() > 8 {
            pins.clear();
        }
    }
}

#[test]
fn four_threads_free_every_resource_exactly_once() {
    for policy in [ReclaimPolicy::OnDrop, ReclaimPolicy::Explicit] {
        let Fixture { session, main, manager, .. } = Fixture::with_policy(policy);
        let other = session.create_dylib("other").unwrap();
        main.set_link_order(&[(other.clone(), Visibility::ExportedOnly)]).unwrap();
        other.set_link_order(&[(main.clone(), Visibility::ExportedOnly)]).unwrap();
        let dylibs = [main.clone(), other.clone()];
        let recorded = Arc::new(Recorded::default());
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (session, dylibs, manager, recorded) = (&session, &dylibs, &manager, &recorded);
                scope.spawn(move || work(thread, session, dylibs, manager, recorded));
            }
        });

        session.end().unwrap();
        session.reclaim();

        assert_eq!((main.symbol_count(), other.symbol_count()), (0, 0));
        assert_eq!(manager.ledger.key_count(), 0, "a resource stays under a dead key");
        let mut balance: HashMap<u64, i64> = HashMap::new();
        let accepted = recorded.resources.lock().unwrap();
        assert!(accepted.len() as u64 > STEPS / 8, "only {} resources: the test is too weak", accepted.len());
        accepted.iter().for_each(|resource| *balance.entry(*resource).or_default() += 1);
        manager.take_freed().iter().for_each(|resource| *balance.entry(*resource).or_default() -= 1);
        balance.retain(|_, count| *count != 0);
        assert!(balance.is_empty(), "recorded minus freed: {balance:?}");
    }
}

#[test]
fn removing_a_module_right_after_its_lookup_leaks_nothing() {
    const ROUNDS: u64 = sized(5_000, 4);
    let fixture = Fixture::new();
    thread::scope(|scope| {
        for thread in 0..2 {
            let fixture = &fixture;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let name = format!("t{thread}r{round}");
                    let tracker = fixture.loaded(&name, round + 1);
                    let (_, pin) = fixture.main.pin(&name).unwrap();
                    let removal = tracker.remove().unwrap();
                    assert!(!removal.is_complete());
                    drop(pin);
                    assert!(removal.is_complete());
                }
            });
        }
    });
    assert_eq!(fixture.manager.take_freed().len() as u64, 2 * ROUNDS);
    assert_eq!((fixture.main.symbol_count(), fixture.manager.ledger.key_count()), (0, 0));
}
