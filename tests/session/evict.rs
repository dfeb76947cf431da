//! The instant-evict race: a module is removed the moment its lookup returns, a million times from two threads.
//!
//! The modules are units of the session, not linked objects: the race is the session's, and unoptimised links of a
//! million objects would take minutes. `tests/platform/evict.rs` does the same with tens of thousands of real ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use jittison::base::Name;
use jittison::error::Result;
use jittison::session::*;

use crate::support::process::rounds;
use crate::support::{EXPORTED, address, own_process, resident_bytes};

/// A session with a dylib for all threads, and a manager that only counts.
struct World {
    session: ExecutionSession,
    main: JitDylib,
    vault: Arc<Vault>,
    /// Held by every unit that there is.
    witness: Arc<()>,
}

#[derive(Default)]
struct Vault {
    ledger: Ledger<u64>,
    given_back: AtomicU64,
    keys_told: AtomicU64,
}

impl ResourceManager for Vault {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        self.given_back.fetch_add(self.ledger.take(key).len() as u64, Ordering::Relaxed);
        self.keys_told.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.ledger.transfer(destination, source);
    }
}

/// Records one resource and is ready. Plainer than the scripted units of the other tests, and several times as fast.
struct Module {
    symbols: [(Name, SymbolFlags); 1],
    value: u64,
    vault: Arc<Vault>,
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
        r.with_resource_key(|key| self.vault.ledger.record(key, self.value)).expect("the tracker is live");
        r.notify_resolved(|_| Some(address(self.value))).expect("the tracker is live");
        r.notify_emitted(Vec::new()).expect("the tracker is live");
    }
}

/// How a module goes.
#[derive(Clone, Copy, Debug)]
enum Eviction {
    /// By whoever looked it up, when the lookup has returned.
    AfterTheLookup,
    /// In the callback of the lookup, inside the call that made the module ready.
    InsideTheLookup,
    /// While a pin holds it, which goes next.
    UnderAPin,
    /// While a handle is dropped that was the last, so that a transfer was under way.
    AfterForgetting,
}

const EVICTIONS: [Eviction; 4] =
    [Eviction::AfterTheLookup, Eviction::InsideTheLookup, Eviction::UnderAPin, Eviction::AfterForgetting];

/// Loads and evicts one module.
fn evict(world: &World, dylib: &JitDylib, name: &Name, value: u64, eviction: Eviction) {
    let tracker = dylib.create_tracker().unwrap();
    let (vault, witness) = (world.vault.clone(), world.witness.clone());
    tracker.define(Module { symbols: [(name.clone(), EXPORTED)], value, vault, _witness: witness }).unwrap();
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
            world.session.lookup_then(&order, &requests, RequiredState::Ready, move |found| {
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
        Eviction::AfterForgetting => {
            let heir = dylib.create_tracker().unwrap();
            assert_eq!(look_up(), value);
            tracker.transfer_to(&heir).unwrap();
            drop(tracker);
            assert!(heir.remove().unwrap().is_complete());
        }
    }
}

/// Two threads evict `rounds` modules each, in one dylib or in one each.
fn churn(world: &World, is_shared: bool, eviction: Eviction, rounds: u64) {
    thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                let own = (!is_shared).then(|| world.session.create_dylib("own").unwrap());
                let dylib = own.as_ref().unwrap_or(&world.main);
                let name = Name::from(format!("module of thread {thread}"));
                (1..=rounds).for_each(|value| evict(world, dylib, &name, value, eviction));
                assert_eq!(dylib.symbol_flags(&name), None);
                if let Some(own) = &own {
                    assert!(world.session.remove_dylib(own).unwrap().is_empty());
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
    let world = World { session, main, vault: Arc::default(), witness: Arc::default() };
    world.session.register_manager(world.vault.clone());
    let mut before = None;
    for rounds in [most / 100, most] {
        for eviction in EVICTIONS {
            for is_shared in [true, false] {
                churn(&world, is_shared, eviction, rounds);
                let given_back = world.vault.given_back.swap(0, Ordering::Relaxed);
                assert_eq!(given_back, 2 * rounds, "{eviction:?}: each resource is given back");
            }
        }
        // What the first, short round leaves resident is what the session keeps at hand.
        before.get_or_insert_with(resident_bytes);
    }
    assert_eq!((world.main.symbol_count(), world.vault.ledger.key_count()), (0, 0));
    assert_eq!(Arc::strong_count(&world.witness), 1, "no unit is left");
    // A dylib that is cleared tells of every tracker that it still has, and a tracker takes some hundred bytes.
    let told = world.vault.keys_told.load(Ordering::Relaxed);
    assert!(world.main.clear().unwrap().is_empty());
    assert_eq!(world.vault.keys_told.load(Ordering::Relaxed), told, "no tracker is left");
    let grown = resident_bytes().saturating_sub(before.expect("measured"));
    assert!(grown < 24 << 20, "{} KiB more than at the start", grown >> 10);
}
