//! Several threads use the same dylibs and trackers. At the end, every recorded resource was freed exactly once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::*;

use crate::unit::{LedgerManager, Unit};
use crate::{Choices, STEPS};

const NAMES: usize = 24;
const SHARED_TRACKERS: usize = 4;

struct Fixture {
    session: ExecutionSession,
    dylibs: Vec<JitDylib>,
    names: Vec<Name>,
    manager: Arc<LedgerManager>,
    units_made: AtomicU64,
    /// Trackers that all threads use.
    shared: Vec<Mutex<ResourceTracker>>,
}

pub fn run(seed: u64) {
    let (done, is_done) = channel();
    let test = thread::Builder::new().name(format!("seed {seed}"));
    let test = test.spawn(move || {
        run_to_the_end(seed);
        let _ = done.send(());
    });
    let test = test.unwrap();
    // A thread that hangs cannot be joined, so the wait has a limit.
    match is_done.recv_timeout(Duration::from_secs(120)) {
        Err(RecvTimeoutError::Timeout) => panic!("the run hangs"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => test.join().expect("the run succeeds"),
    }
}

fn run_to_the_end(seed: u64) {
    let mut choices = Choices::new(seed);
    let reclaim = *choices.of(&[ReclaimPolicy::OnDrop, ReclaimPolicy::Explicit]);
    let worker_threads = choices.below(3);
    let session =
        ExecutionSession::with_options(SessionOptions { reclaim, worker_threads, ..SessionOptions::default() });
    let dylibs: Vec<_> = (0..2).map(|_| session.create_dylib("dylib").unwrap()).collect();
    dylibs[0].set_link_order(&[(dylibs[1].clone(), Visibility::ExportedOnly)]).unwrap();
    dylibs[1].set_link_order(&[(dylibs[0].clone(), Visibility::ExportedOnly)]).unwrap();
    let manager = Arc::new(LedgerManager::default());
    session.register_manager(manager.clone());
    let shared = (0..SHARED_TRACKERS).map(|at| Mutex::new(dylibs[at % 2].create_tracker().unwrap())).collect();
    let names = (0..NAMES).map(|name| Name::new(&format!("n{name}"))).collect();
    let fixture = Fixture { session, dylibs, names, manager, units_made: AtomicU64::new(0), shared };
    let threads = 2 + choices.below(3);
    let ends_early = choices.one_in(4);
    thread::scope(|scope| {
        for thread in 0..threads {
            let fixture = &fixture;
            let choices = Choices::new(seed ^ (thread as u64 + 1) << 32);
            scope.spawn(move || fixture.work(choices, STEPS / threads, ends_early && thread == 0));
        }
    });
    fixture.session.end().unwrap();
    let Fixture { session, dylibs, manager, shared, .. } = fixture;
    drop((session, shared));
    for dylib in &dylibs {
        assert!(dylib.is_defunct() && dylib.symbol_count() == 0);
    }
    assert_eq!(manager.ledger.key_count(), 0, "a resource stays under a dead key");
    assert_eq!(*manager.faults.lock().unwrap(), [""; 0]);
    let [mut recorded, mut freed] = [&manager.recorded, &manager.freed].map(|list| list.lock().unwrap().clone());
    recorded.sort_unstable();
    freed.sort_unstable();
    assert_eq!(recorded, freed, "every resource is freed exactly once");
    assert!(ends_early || recorded.len() > STEPS / 100, "only {} units have run", recorded.len());
}

impl Fixture {
    fn work(&self, mut choices: Choices, steps: usize, ends_session: bool) {
        let mut own: Vec<ResourceTracker> = Vec::new();
        let mut pins: Vec<Pin> = Vec::new();
        for step in 0..steps {
            let dylib = choices.of(&self.dylibs);
            let name = choices.of(&self.names);
            match choices.below(32) {
                0..=3 => own.extend(dylib.create_tracker()),
                4..=10 => {
                    let unit = self.unit(&mut choices);
                    let _ = match choices.below(4) {
                        0 => dylib.define(unit),
                        1 if !own.is_empty() => choices.of(&own).define(unit),
                        _ => self.shared_tracker(&mut choices).define(unit),
                    };
                }
                11 => {
                    let symbol = (name.clone(), ExecutorAddr::new(1), SymbolFlags::EXPORTED | SymbolFlags::WEAK);
                    let _ = self.shared_tracker(&mut choices).define_absolute([symbol]);
                }
                12..=16 => {
                    let requests = [SymbolRequest::required(name)];
                    let found = self.session.lookup(&dylib.search_order(), &requests, RequiredState::Ready);
                    let symbol = found.ok().and_then(|mut found| found.remove(0).symbol);
                    pins.extend(symbol.filter(|_| choices.one_in(3)).and_then(|symbol| self.session.pin(&symbol)));
                }
                17..=18 => {
                    let other: &Name = choices.of(&self.names);
                    let requests = [SymbolRequest::required(name), SymbolRequest::weak(other)];
                    self.session.lookup_then(&dylib.search_order(), &requests, RequiredState::Resolved, drop);
                }
                19 => pins.extend(dylib.pin(name).map(|(_, pin)| pin)),
                20 => {
                    let clone = pins.first().cloned();
                    pins.extend(clone);
                }
                21..=22 if !pins.is_empty() => drop(pins.swap_remove(choices.below(pins.len()))),
                23 => drop(self.shared_tracker(&mut choices).remove()),
                24 => {
                    let (source, destination) = (self.shared_tracker(&mut choices), self.shared_tracker(&mut choices));
                    let _ = source.transfer_to(&destination);
                }
                25 if !own.is_empty() => {
                    drop(choices.of(&own).transfer_to(&self.shared_tracker(&mut Choices::new(step as u64))))
                }
                26 => self.replace_shared_tracker(&mut choices),
                27 => drop(dylib.remove_symbols(&[name])),
                28 if choices.one_in(16) => drop(dylib.clear()),
                29 => drop(self.session.reclaim()),
                30 if !own.is_empty() => drop(own.swap_remove(choices.below(own.len()))),
                _ if !own.is_empty() => drop(own.swap_remove(choices.below(own.len())).remove()),
                _ => {}
            }
            if own.len() > 6 {
                own.drain(..3).for_each(|tracker| drop(tracker.remove()));
            }
            pins.truncate(8);
            if ends_session && step == steps / 2 {
                self.session.end().unwrap();
            }
        }
    }

    /// One of the shared trackers.
    fn shared_tracker(&self, choices: &mut Choices) -> ResourceTracker {
        choices.of(&self.shared).lock().unwrap().clone()
    }

    /// Replaces a shared tracker, which other threads may be using.
    fn replace_shared_tracker(&self, choices: &mut Choices) {
        let Ok(new) = choices.of(&self.dylibs).create_tracker() else { return };
        let old = std::mem::replace(&mut *choices.of(&self.shared).lock().unwrap(), new);
        if choices.one_in(2) {
            let _ = old.remove();
        }
    }

    fn unit(&self, choices: &mut Choices) -> Unit {
        let number = self.units_made.fetch_add(1, Ordering::Relaxed) + 1;
        let flags = [SymbolFlags::EXPORTED, SymbolFlags::EXPORTED | SymbolFlags::WEAK];
        let first = choices.below(NAMES);
        let symbols =
            (0..1 + choices.below(2)).map(|at| (self.names[(first + at) % NAMES].clone(), *choices.of(&flags)));
        let symbols = symbols.collect();
        let dependencies = (0..choices.below(3)).map(|_| choices.of(&self.names).clone()).collect();
        Unit {
            number,
            symbols,
            dependencies,
            fails: choices.one_in(16),
            manager: self.manager.clone(),
            discarded: Vec::new(),
        }
    }
}
