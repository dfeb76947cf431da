//! Instant eviction: a module is removed right after its lookup returns, a million times from two threads.
//!
//! The modules are units of the session and not linked objects: the race is in the session, and a million unoptimised links
//! would take minutes. `tests/platform/evict.rs` does the same with tens of thousands of linked objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use jittison::base::Name;
use jittison::error::Result;
use jittison::session::*;

use crate::support::{EXPORTED, address, own_process, resident_bytes};
use jittison_test_support::rounds;

/// A session with a dylib for all threads, and a manager that only counts.
struct Fixture {
    session: ExecutionSession,
    main: JitDylib,
    manager: Arc<CountingManager>,
    /// Every unit holds a clone.
    witness: Arc<()>,
}

#[derive(Default)]
struct CountingManager {
    ledger: Ledger<u64>,
    freed: AtomicU64,
    keys_removed: AtomicU64,
}

impl ResourceManager for CountingManager {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        self.freed.fetch_add(self.ledger.take(key).len() as u64, Ordering::Relaxed);
        self.keys_removed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.ledger.transfer(destination, source);
    }
}

/// A unit that records one resource and becomes ready. Faster than the scripted units of the other tests.
struct Module {
    symbols: [(Name, SymbolFlags); 1],
    value: u64,
    manager: Arc<CountingManager>,
    _witness: Arc<()>,
}

impl MaterializationUnit for Module {
    fn name(&self) -> &str {
        "module"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn materialize(self: Box<Self>, r: MaterializationResponsibility) {
        r.with_resource_key(|key| self.manager.ledger.record(key, self.value)).expect("the tracker is live");
        r.notify_resolved(|_| Some(address(self.value))).expect("the tracker is live");
        r.notify_emitted(Vec::new()).expect("the tracker is live");
    }
}

/// How a module is removed.
#[derive(Clone, Copy, Debug)]
enum Eviction {
    /// By the thread that looked it up, after the lookup has returned.
    AfterTheLookup,
    /// In the callback of the lookup, inside the call that made the module ready.
    InsideTheLookup,
    /// While a pin holds it; the pin is dropped next.
    UnderAPin,
    /// Through the destination of a transfer, after the last handle to the source is dropped.
    AfterATransfer,
}

const EVICTIONS: [Eviction; 4] =
    [Eviction::AfterTheLookup, Eviction::InsideTheLookup, Eviction::UnderAPin, Eviction::AfterATransfer];

/// Loads and evicts one module.
fn evict(fixture: &Fixture, dylib: &JitDylib, name: &Name, value: u64, eviction: Eviction) {
    let tracker = dylib.create_tracker().unwrap();
    let (manager, witness) = (fixture.manager.clone(), fixture.witness.clone());
    tracker.define(Module { symbols: [(name.clone(), EXPORTED)], value, manager, _witness: witness }).unwrap();
    let requests = [SymbolRequest::required(name)];
    let look_up = || dylib.lookup(&requests, RequiredState::Ready).unwrap()[0].address.value();
    match eviction {
        Eviction::AfterTheLookup => {
            assert_eq!(look_up(), value);
            assert!(tracker.remove().unwrap().is_complete());
        }
        Eviction::InsideTheLookup => {
            let order = [(dylib.clone(), Visibility::All)];
            let evicted = tracker.clone();
            fixture.session.lookup_then(&order, &requests, RequiredState::Ready, move |found| {
                assert_eq!(found.unwrap()[0].address.value(), value);
                assert!(evicted.remove().unwrap().is_complete());
            });
        }
        Eviction::UnderAPin => {
            assert_eq!(look_up(), value);
            let (_, pin) = dylib.pin(name).unwrap();
            let removal = tracker.remove().unwrap();
            assert!(!removal.is_complete());
            drop(pin);
            assert!(removal.is_complete());
        }
        Eviction::AfterATransfer => {
            let destination = dylib.create_tracker().unwrap();
            assert_eq!(look_up(), value);
            tracker.transfer_to(&destination).unwrap();
            drop(tracker);
            assert!(destination.remove().unwrap().is_complete());
        }
    }
}

/// Two threads evict `rounds` modules each, in a shared dylib or in one dylib each.
fn churn(fixture: &Fixture, is_shared: bool, eviction: Eviction, rounds: u64) {
    thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                let own = (!is_shared).then(|| fixture.session.create_dylib("own").unwrap());
                let dylib = own.as_ref().unwrap_or(&fixture.main);
                let name = Name::from(format!("module of thread {thread}"));
                (1..=rounds).for_each(|value| evict(fixture, dylib, &name, value, eviction));
                assert_eq!(dylib.symbol_flags(&name), None);
                if let Some(own) = &own {
                    assert!(fixture.session.remove_dylib(own).unwrap().is_empty());
                }
            });
        }
    });
}

#[cfg_attr(miri, ignore = "measures the resident memory of a process of its own")]
#[test]
fn modules_evicted_by_two_threads_when_their_lookups_return_leave_nothing() {
    own_process!();
    // A million modules at full depth.
    let most = rounds(1_000_000) as u64 / (2 * 2 * EVICTIONS.len() as u64);
    let session = ExecutionSession::new();
    let main = session.create_dylib("main").unwrap();
    let fixture = Fixture { session, main, manager: Arc::default(), witness: Arc::default() };
    fixture.session.register_manager(fixture.manager.clone());
    let mut before = None;
    for rounds in [most / 100, most] {
        for eviction in EVICTIONS {
            for is_shared in [true, false] {
                churn(&fixture, is_shared, eviction, rounds);
                let freed = fixture.manager.freed.swap(0, Ordering::Relaxed);
                assert_eq!(freed, 2 * rounds, "{eviction:?}: each resource is freed");
            }
        }
        // The first, short round fills the caches of the session.
        before.get_or_insert_with(resident_bytes);
    }
    assert_eq!((fixture.main.symbol_count(), fixture.manager.ledger.key_count()), (0, 0));
    assert_eq!(Arc::strong_count(&fixture.witness), 1, "every unit is dropped");
    // `clear` calls the manager for every tracker that the dylib still has. A tracker takes some hundred bytes.
    let before_clear = fixture.manager.keys_removed.load(Ordering::Relaxed);
    assert!(fixture.main.clear().unwrap().is_empty());
    assert_eq!(fixture.manager.keys_removed.load(Ordering::Relaxed), before_clear, "a tracker still exists");
    let grown = resident_bytes().saturating_sub(before.expect("measured"));
    assert!(grown < 24 << 20, "{} KiB more than at the start", grown >> 10);
}
