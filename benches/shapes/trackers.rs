//! Measures long operations of a session, by their shape and size: removals of trackers whose code refers to each other,
//! transfers, and trackers and dylibs with many symbols.
//!
//! `cargo bench --bench shapes` prints, for each shape, the time for each element at three sizes, and the longest time that an
//! operation of another thread took meanwhile: the lowest over three rounds, because the machine interrupts threads too. That
//! thread creates a tracker that refers to another one and removes it, in a dylib of its own or in the dylib of the shape. A
//! cost that grows with the size is a defect. Compare figures of the same run only. `-- WORD` runs the shapes whose names
//! contain the word, and `-- WORD SIZE…` at these sizes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use jittison::base::{ExecutorAddr, Name};
use jittison::error::Error;
use jittison::session::{
    ExecutionSession, JitDylib, Pin, RequiredState, ResourceTracker, SymbolFlags, SymbolRef, SymbolRequest,
};

const SIZES: [usize; 3] = [1_000, 4_000, 20_000];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let word = arguments.next().unwrap_or_default();
    let chosen: Vec<usize> = arguments.filter_map(|size| size.parse().ok()).collect();
    let sizes = if chosen.is_empty() { SIZES.to_vec() } else { chosen };
    println!("{:<58}{:>8}{:>12}{:>22}{:>15}", "shape", "size", "ns for each", "others wait, us: own", "same dylib");
    for (name, shape) in SHAPES.iter().filter(|(name, _)| name.contains(&word)) {
        for size in &sizes {
            let [(taken, own), (_, same)] = ["others", "shape"].map(|place| quietest(place, *shape, *size));
            let for_each = taken.as_secs_f64() * 1e9 / *size as f64;
            let [own, same] = [own, same].map(|longest| longest.as_secs_f64() * 1e6);
            println!("{name:<58}{size:>8}{for_each:>12.0}{own:>22.0}{same:>15.0}");
        }
    }
}

/// The shortest time of a shape, and the lowest of the longest waits, over some rounds.
fn quietest(place: &'static str, shape: Shape, size: usize) -> (Duration, Duration) {
    let round = |_| {
        let session = ExecutionSession::new();
        let prepared = shape(&session, size);
        beside_others(&session, place, prepared)
    };
    (0..ROUNDS).map(round).reduce(|a, b| (a.0.min(b.0), a.1.min(b.1))).unwrap()
}

const ROUNDS: usize = 3;

/// What is measured. Everything else was done before.
type Prepared = Box<dyn FnOnce()>;
type Shape = fn(&ExecutionSession, usize) -> Prepared;

const SHAPES: [(&str, Shape); 21] = [
    ("nothing: an idle thread", |_, _| Box::new(|| thread::sleep(Duration::from_millis(20)))),
    ("chain, last live, others removed newest first", |session, size| {
        let chain = chain(session, size);
        Box::new(move || chain[..size - 1].iter().rev().for_each(remove))
    }),
    ("chain, oldest first", |session, size| {
        let chain = chain(session, size);
        Box::new(move || chain.iter().for_each(remove))
    }),
    ("chain, newest first, all", |session, size| {
        let chain = chain(session, size);
        Box::new(move || chain.iter().rev().for_each(remove))
    }),
    ("chain, every second one, then the others newest first", |session, size| {
        let chain = chain(session, size);
        Box::new(move || {
            chain.iter().step_by(2).for_each(remove);
            chain[..size - 1].iter().rev().filter(|tracker| !tracker.is_defunct()).for_each(remove);
        })
    }),
    ("ring, newest first, without the last removal", |session, size| {
        let ring = ring(session, size);
        Box::new(move || ring[1..].iter().rev().for_each(remove))
    }),
    ("ring, the last removal", |session, size| {
        let ring = ring(session, size);
        ring[1..].iter().rev().for_each(remove);
        Box::new(move || remove(&ring[0]))
    }),
    ("star held by handles, base removed: drop of the handles", |session, size| {
        let (star, pins) = star(session, size);
        star[1..].iter().for_each(remove);
        remove(&star[0]);
        Box::new(move || drop(pins))
    }),
    ("star, base removed: the others one by one", |session, size| {
        let (star, pins) = star(session, size);
        drop(pins);
        remove(&star[0]);
        Box::new(move || star[1..].iter().for_each(remove))
    }),
    ("remove_all of a chain", |session, size| {
        let chain = chain(session, size);
        Box::new(move || drop(ResourceTracker::remove_all(chain).unwrap()))
    }),
    ("remove_all of a star", |session, size| {
        let (star, pins) = star(session, size);
        drop(pins);
        Box::new(move || drop(ResourceTracker::remove_all(star).unwrap()))
    }),
    ("remove_cascade of a chain", |session, size| {
        let chain = chain(session, size);
        Box::new(move || drop(chain[0].remove_cascade().unwrap()))
    }),
    ("clear of a dylib with a chain", |session, size| {
        let chain = chain(session, size);
        Box::new(move || drop(chain[0].dylib().clear().unwrap()))
    }),
    ("transfer of a tracker with many symbols", |session, size| {
        let dylib = session.create_dylib("shape").unwrap();
        let [source, destination] = [(); 2].map(|()| dylib.create_tracker().unwrap());
        source.define_absolute(symbols(0..size)).unwrap();
        Box::new(move || source.transfer_to(&destination).unwrap())
    }),
    ("transfer of a tracker with many dependants", |session, size| {
        let (star, pins) = star(session, size);
        drop(pins);
        let destination = star[0].dylib().create_tracker().unwrap();
        Box::new(move || star[0].transfer_to(&destination).unwrap())
    }),
    ("transfer of a tracker with many dependants to one of theirs", |session, size| {
        let (star, pins) = star(session, size);
        drop(pins);
        Box::new(move || star[0].transfer_to(&star[1]).unwrap())
    }),
    ("remove of a tracker with many symbols", |session, size| {
        let tracker = session.create_dylib("shape").unwrap().create_tracker().unwrap();
        tracker.define_absolute(symbols(0..size)).unwrap();
        Box::new(move || remove(&tracker))
    }),
    ("clear of a dylib with many trackers", |session, size| {
        let dylib = session.create_dylib("shape").unwrap();
        let trackers: Vec<_> = (0..size).map(|index| load(&dylib, index, Vec::new()).0).collect();
        trackers.leak();
        Box::new(move || drop(dylib.clear().unwrap()))
    }),
    ("definition of many symbols in one step", |session, size| {
        let tracker = session.create_dylib("shape").unwrap().create_tracker().unwrap();
        let symbols: Vec<_> = symbols(0..size).collect();
        Box::new(move || {
            tracker.define_absolute(symbols).unwrap();
            std::mem::forget(tracker);
        })
    }),
    ("definition of many symbols one by one", |session, size| {
        let tracker = session.create_dylib("shape").unwrap().create_tracker().unwrap();
        Box::new(move || {
            symbols(0..size).for_each(|symbol| tracker.define_absolute([symbol]).unwrap());
            std::mem::forget(tracker);
        })
    }),
    ("trackers of one dylib, created one by one", |session, size| {
        let dylib = session.create_dylib("shape").unwrap();
        Box::new(move || (0..size).for_each(|_| std::mem::forget(dylib.create_tracker().unwrap())))
    }),
];

const ADDRESS: ExecutorAddr = ExecutorAddr::new(8);

fn remove(tracker: &ResourceTracker) {
    drop(tracker.remove().unwrap());
}

fn symbols(indices: std::ops::Range<usize>) -> impl Iterator<Item = (Name, ExecutorAddr, SymbolFlags)> {
    indices.map(|index| (name_of(index), ADDRESS, SymbolFlags::EXPORTED))
}

fn name_of(index: usize) -> Name {
    Name::new(&format!("symbol {index}"))
}

/// A tracker with a ready symbol whose code refers to `refers_to`.
fn load(dylib: &JitDylib, index: usize, refers_to: Vec<SymbolRef>) -> (ResourceTracker, SymbolRef) {
    try_load(dylib, &name_of(index), refers_to).unwrap()
}

/// Fails if the dylib is cleared meanwhile.
fn try_load(dylib: &JitDylib, name: &Name, refers_to: Vec<SymbolRef>) -> Result<(ResourceTracker, SymbolRef), Error> {
    let tracker = dylib.create_tracker()?;
    let made = tracker.define_materializing("unit", [(name.clone(), SymbolFlags::EXPORTED)])?;
    made.notify_resolved(|_| Some(ADDRESS))?;
    made.notify_emitted(refers_to)?;
    let found = dylib.lookup(&[SymbolRequest::required(name)], RequiredState::Ready)?;
    Ok((tracker, found[0].symbol.clone().unwrap()))
}

/// Trackers of which each refers to the one before it, and the symbols of the first and of the last.
fn linked(session: &ExecutionSession, size: usize) -> (JitDylib, Vec<ResourceTracker>, [SymbolRef; 2]) {
    let dylib = session.create_dylib("shape").unwrap();
    let (first, symbol) = load(&dylib, 0, Vec::new());
    let (mut trackers, mut last) = (vec![first], symbol.clone());
    for index in 1..size {
        let (tracker, symbol) = load(&dylib, index, vec![last]);
        trackers.push(tracker);
        last = symbol;
    }
    (dylib, trackers, [symbol, last])
}

/// The trackers are leaked, so that their drop is not measured.
fn chain(session: &ExecutionSession, size: usize) -> &'static [ResourceTracker] {
    linked(session, size).1.leak()
}

fn ring(session: &ExecutionSession, size: usize) -> &'static [ResourceTracker] {
    let (dylib, trackers, [_, last]) = linked(session, size);
    dylib.pin(&name_of(0)).unwrap().1.add_dependency(&last).unwrap();
    trackers.leak()
}

/// A base, the trackers that refer to it, and a handle for each of these.
fn star(session: &ExecutionSession, size: usize) -> (&'static [ResourceTracker], Vec<Pin>) {
    let dylib = session.create_dylib("shape").unwrap();
    let (base, symbol) = load(&dylib, 0, Vec::new());
    let mut trackers = vec![base];
    trackers.extend((1..size).map(|index| load(&dylib, index, vec![symbol.clone()]).0));
    let pins = (1..size).map(|index| dylib.pin(&name_of(index)).unwrap().1).collect();
    (trackers.leak(), pins)
}

/// Runs `body`, and returns its time and the longest time of another thread's operation meanwhile, in the dylib `place`.
fn beside_others(session: &ExecutionSession, place: &'static str, body: Prepared) -> (Duration, Duration) {
    let (is_ready, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let library = session.create_dylib("library").unwrap();
            let existing = session.dylibs().into_iter().find(|dylib| dylib.name() == place);
            let dylib = existing.unwrap_or_else(|| session.create_dylib(place).unwrap());
            let ((_library, symbol), name) = (load(&library, 0, Vec::new()), Name::new("other"));
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let start = Instant::now();
                if let Ok((tracker, _)) = try_load(&dylib, &name, vec![symbol.clone()]) {
                    remove(&tracker);
                }
                longest = longest.max(start.elapsed());
                if !is_ready.swap(true, Ordering::Relaxed) {
                    longest = Duration::ZERO;
                }
            }
            longest
        });
        while !is_ready.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        body();
        let taken = start.elapsed();
        is_over.store(true, Ordering::Relaxed);
        (taken, other.join().unwrap())
    })
}
