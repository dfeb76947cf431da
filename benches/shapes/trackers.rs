//! Shapes of trackers: chains, rings and stars of code that refers to each other, trackers with many symbols, handles and guards.

use jittison::base::Name;
use jittison::error::Error;
use jittison::session::{
    ExecutionSession, JitDylib, Pin, RequiredState, ResourceTracker, SymbolFlags, SymbolRef, SymbolRequest,
};

use crate::{ADDRESS, Shape, name_of, remove, symbols};

pub const SHAPES: &[(&str, Shape)] = &[
    ("nothing: an idle thread", |_, _| Box::new(|| std::thread::sleep(std::time::Duration::from_millis(20)))),
    ("chain, last live, others removed newest first", |jit, size| {
        let chain = chain(jit.session(), size);
        Box::new(move || chain[..size - 1].iter().rev().for_each(remove))
    }),
    ("chain, oldest first", |jit, size| {
        let chain = chain(jit.session(), size);
        Box::new(move || chain.iter().for_each(remove))
    }),
    ("chain, newest first, all", |jit, size| {
        let chain = chain(jit.session(), size);
        Box::new(move || chain.iter().rev().for_each(remove))
    }),
    ("chain, every second one, then the others newest first", |jit, size| {
        let chain = chain(jit.session(), size);
        Box::new(move || {
            chain.iter().step_by(2).for_each(remove);
            chain[..size - 1].iter().rev().filter(|tracker| !tracker.is_defunct()).for_each(remove);
        })
    }),
    ("ring, newest first, without the last removal", |jit, size| {
        let ring = ring(jit.session(), size);
        Box::new(move || ring[1..].iter().rev().for_each(remove))
    }),
    ("ring, the last removal", |jit, size| {
        let ring = ring(jit.session(), size);
        ring[1..].iter().rev().for_each(remove);
        Box::new(move || remove(&ring[0]))
    }),
    ("star held by handles, base removed: drop of the handles", |jit, size| {
        let (star, pins) = star(jit.session(), size);
        star[1..].iter().for_each(remove);
        remove(&star[0]);
        Box::new(move || drop(pins))
    }),
    ("star, base removed: the others one by one", |jit, size| {
        let (star, pins) = star(jit.session(), size);
        drop(pins);
        remove(&star[0]);
        Box::new(move || star[1..].iter().for_each(remove))
    }),
    ("remove_all of a chain", |jit, size| {
        let chain = chain(jit.session(), size);
        Box::new(move || drop(ResourceTracker::remove_all(chain).unwrap()))
    }),
    ("remove_all of a star", |jit, size| {
        let (star, pins) = star(jit.session(), size);
        drop(pins);
        Box::new(move || drop(ResourceTracker::remove_all(star).unwrap()))
    }),
    ("remove_cascade of a chain", |jit, size| {
        let chain = chain(jit.session(), size);
        Box::new(move || drop(chain[0].remove_cascade().unwrap()))
    }),
    ("clear of a dylib with a chain", |jit, size| {
        let chain = chain(jit.session(), size);
        Box::new(move || drop(chain[0].dylib().clear().unwrap()))
    }),
    ("transfer of a tracker with many symbols", |jit, size| {
        let dylib = jit.session().create_dylib("shape").unwrap();
        let [source, destination] = [(); 2].map(|()| dylib.create_tracker().unwrap());
        source.define_absolute(symbols(0..size)).unwrap();
        Box::new(move || source.transfer_to(&destination).unwrap())
    }),
    ("transfer of a tracker with many dependants", |jit, size| {
        let (star, pins) = star(jit.session(), size);
        drop(pins);
        let destination = star[0].dylib().create_tracker().unwrap();
        Box::new(move || star[0].transfer_to(&destination).unwrap())
    }),
    ("transfer of a tracker with many dependants to one of theirs", |jit, size| {
        let (star, pins) = star(jit.session(), size);
        drop(pins);
        Box::new(move || star[0].transfer_to(&star[1]).unwrap())
    }),
    ("remove of a tracker with many symbols", |jit, size| {
        let tracker = jit.session().create_dylib("shape").unwrap().create_tracker().unwrap();
        tracker.define_absolute(symbols(0..size)).unwrap();
        Box::new(move || remove(&tracker))
    }),
    ("clear of a dylib with many trackers", |jit, size| {
        let dylib = jit.session().create_dylib("shape").unwrap();
        let trackers: Vec<_> = (0..size).map(|index| load(&dylib, index, Vec::new()).0).collect();
        trackers.leak();
        Box::new(move || drop(dylib.clear().unwrap()))
    }),
    ("definition of many symbols in one step", |jit, size| {
        let tracker = jit.session().create_dylib("shape").unwrap().create_tracker().unwrap();
        let symbols: Vec<_> = symbols(0..size).collect();
        Box::new(move || {
            tracker.define_absolute(symbols).unwrap();
            std::mem::forget(tracker);
        })
    }),
    ("definition of many symbols one by one", |jit, size| {
        let tracker = jit.session().create_dylib("shape").unwrap().create_tracker().unwrap();
        Box::new(move || {
            symbols(0..size).for_each(|symbol| tracker.define_absolute([symbol]).unwrap());
            std::mem::forget(tracker);
        })
    }),
    ("trackers of one dylib, created one by one", |jit, size| {
        let dylib = jit.session().create_dylib("shape").unwrap();
        Box::new(move || (0..size).for_each(|_| std::mem::forget(dylib.create_tracker().unwrap())))
    }),
    ("trackers of one dylib, handles dropped", |jit, size| {
        let dylib = jit.session().create_dylib("shape").unwrap();
        let trackers: Vec<_> = (0..size).map(|index| load(&dylib, index, Vec::new()).0).collect();
        Box::new(move || drop(trackers))
    }),
    ("tracker that refers to many others: emission", |jit, size| {
        let dylib = jit.session().create_dylib("shape").unwrap();
        let others: Vec<_> = (0..size).map(|index| load(&dylib, index, Vec::new())).collect();
        let refers_to: Vec<_> = others.iter().map(|(_, symbol)| symbol.clone()).collect();
        others.leak();
        Box::new(move || std::mem::forget(load(&dylib, size, refers_to)))
    }),
    ("tracker that refers to many others: removal", |jit, size| {
        let dylib = jit.session().create_dylib("shape").unwrap();
        let others: Vec<_> = (0..size).map(|index| load(&dylib, index, Vec::new())).collect();
        let refers_to: Vec<_> = others.iter().map(|(_, symbol)| symbol.clone()).collect();
        others.leak();
        let (tracker, _) = load(&dylib, size, refers_to);
        Box::new(move || remove(&tracker))
    }),
    ("star: refused removal of the base", |jit, size| {
        let (star, pins) = star(jit.session(), size);
        pins.leak();
        Box::new(move || drop(star[0].try_remove().unwrap_err()))
    }),
    ("star: dependents of the base", |jit, size| {
        let (star, pins) = star(jit.session(), size);
        pins.leak();
        Box::new(move || drop(star[0].dependents()))
    }),
    ("star held by handles: removal of the base", |jit, size| {
        let (star, pins) = star(jit.session(), size);
        pins.leak();
        Box::new(move || remove(&star[0]))
    }),
    ("handles of one tracker: pinned", |jit, size| {
        let dylib = jit.session().create_dylib("shape").unwrap();
        let (_tracker, _) = load(&dylib, 0, Vec::new());
        Box::new(move || {
            (0..size).for_each(|_| std::mem::forget(dylib.pin(&name_of(0)).unwrap()));
            std::mem::forget(_tracker);
        })
    }),
    ("handles of one tracker: dropped", |jit, size| {
        let dylib = jit.session().create_dylib("shape").unwrap();
        let (tracker, _) = load(&dylib, 0, Vec::new());
        let pins: Vec<_> = (0..size).map(|_| dylib.pin(&name_of(0)).unwrap().1).collect();
        Box::new(move || {
            remove(&tracker);
            drop(pins);
        })
    }),
    ("trackers held by handles: removal", |jit, size| {
        let (trackers, pins) = held(jit.session(), size);
        pins.leak();
        Box::new(move || trackers.iter().for_each(remove))
    }),
    ("removed trackers held by handles: pending removals", |jit, size| {
        let (trackers, pins) = held(jit.session(), size);
        pins.leak();
        trackers.iter().for_each(remove);
        let jit = jit.clone();
        Box::new(move || assert!(jit.session().pending_removals().len() >= size))
    }),
    ("removed trackers held by handles: drop of the handles", |jit, size| {
        let (trackers, pins) = held(jit.session(), size);
        trackers.iter().for_each(remove);
        Box::new(move || drop(pins))
    }),
    ("trackers removed under a guard, and its drop", |jit, size| {
        let (trackers, pins) = held(jit.session(), size);
        drop(pins);
        let jit = jit.clone();
        Box::new(move || {
            let guard = jit.session().guard();
            trackers.iter().for_each(remove);
            drop(guard);
        })
    }),
];

/// A tracker with a ready symbol whose code refers to `refers_to`.
pub fn load(dylib: &JitDylib, index: usize, refers_to: Vec<SymbolRef>) -> (ResourceTracker, SymbolRef) {
    try_load(dylib, &name_of(index), refers_to).unwrap()
}

/// Fails if the dylib is cleared meanwhile.
pub fn try_load(
    dylib: &JitDylib,
    name: &Name,
    refers_to: Vec<SymbolRef>,
) -> Result<(ResourceTracker, SymbolRef), Error> {
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

/// Trackers, each with a symbol and a handle.
fn held(session: &ExecutionSession, size: usize) -> (&'static [ResourceTracker], Vec<Pin>) {
    let dylib = session.create_dylib("shape").unwrap();
    let trackers: Vec<_> = (0..size).map(|index| load(&dylib, index, Vec::new()).0).collect();
    let pins = (0..size).map(|index| dylib.pin(&name_of(index)).unwrap().1).collect();
    (trackers.leak(), pins)
}
