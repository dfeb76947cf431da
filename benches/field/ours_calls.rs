//! jittison: what linked code is reached through. Lookups, stubs, guards, hot swaps.

use std::hint::black_box;
use std::rc::Rc;

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{ExecutionSession, JitDylib, ResourceTracker, SymbolFlags};

use crate::ours::{Run, Scene, WHO, check_function, remove_now};
use crate::rows;
use crate::samples::{BATCH, Samples, nanoseconds_each, rate_together, single};
use crate::scenario::{Measure, Scenario, Unit, words};
use crate::scenarios::scenario;
use crate::workload::Workload;

type Measures = Result<Vec<Measure>, String>;

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    let of = |group, who, round: fn(&Workload) -> Measures| scenario(group, who, workload, round);
    vec![
        of("lookup", WHO, lookups),
        of("patch, swap", WHO, swaps),
        of("patch, guard", WHO, guards),
        of("patch, guard", EPOCH, epochs),
    ]
}

/// What a guard would be if it were not the session's own.
pub const EPOCH: &str = "crossbeam-epoch";

fn lookups(workload: &Workload) -> Measures {
    let mut measures = Vec::new();
    for symbols in workload.sizes.lookups_among {
        let [one, two] = lookups_among(*symbols, workload.sizes.lookups)?;
        measures.push(single(rows::LOOKUP.at(*symbols, WHO), Unit::Nanoseconds, one));
        measures.push(single(rows::LOOKUP_TWO.at(*symbols, WHO), Unit::Nanoseconds, two));
        measures.push(single(rows::LOOKUP_THREADS.at(*symbols, WHO), Unit::Ratio, one / two));
    }
    Ok(measures)
}

/// Nanoseconds of a lookup, from one thread and from two at once.
fn lookups_among(symbols: usize, lookups: usize) -> Result<[f64; 2], String> {
    let session = ExecutionSession::new();
    let dylib = session.create_dylib("symbols").map_err(words)?;
    let names: Vec<String> = (0..symbols).map(|number| format!("some_symbol_{number}")).collect();
    let tracker = dylib.create_tracker().map_err(words)?;
    let define = |(number, name): (usize, &String)| {
        (Name::from(name.as_str()), ExecutorAddr::new(FIRST + number as u64), SymbolFlags::EXPORTED)
    };
    tracker.define_absolute(names.iter().enumerate().map(define)).map_err(words)?;
    // Twice: the second lookup of a name puts it where all others find it.
    names.iter().chain(&names).try_for_each(|name| dylib.lookup_address(name).map(drop).map_err(words))?;
    let one = looking_up(&dylib, &names, 1, lookups)?;
    Ok([one, looking_up(&dylib, &names, 2, lookups)?])
}

/// Where the first symbol is.
const FIRST: u64 = 0x1000;

fn looking_up(dylib: &JitDylib, names: &[String], threads: usize, lookups: usize) -> Result<f64, String> {
    let work = |dylib: &mut JitDylib| {
        for lookup in 0..lookups {
            let symbol = lookup * 7_919 % names.len();
            let found = dylib.lookup_address(&names[symbol]).map_err(words)?;
            let is_right = found.value() == FIRST + symbol as u64;
            is_right.then_some(()).ok_or_else(|| format!("{} at {found:?}", names[symbol]))?;
        }
        Ok(())
    };
    let rate = rate_together(&mut vec![dylib.clone(); threads], lookups, work)?;
    Ok(1e9 / rate)
}

fn swaps(workload: &Workload) -> Measures {
    let mut scene = Scene::new(workload, &workload.objects.small)?;
    let ends = [scene.next(), scene.next()];
    let linked = [scene.link(&ends[0])?, scene.link(&ends[1])?];
    let stubs = scene.dylib.create_tracker().map_err(words)?;
    scene.jit.create_stub(&stubs, "stub", linked[0].0).map_err(words)?;
    let stub = scene.jit.stub(&scene.dylib, "stub").map_err(words)?;
    // SAFETY: what the stub leads to has this signature, always.
    let function = unsafe { scene.jit.lookup::<Run>("stub") }.map_err(words)?;
    let redirect = nanoseconds_each(1_000_000, |number| {
        // SAFETY: both have the same signature, and nothing removes them.
        unsafe { stub.redirect(black_box(linked[number & 1].0)) };
    });
    check_function(&function, &ends[1])?;

    let (mut samples, mut current): (_, Option<ResourceTracker>) = (Samples::default(), None);
    for _ in 0..workload.sizes.swaps / BATCH {
        let batch = scene.make_batch();
        samples.batch(|samples| {
            batch.iter().try_for_each(|instance| {
                samples.one(|| {
                    let (address, tracker) = scene.link(instance)?;
                    // SAFETY: the same signature; the old one is removed after this.
                    unsafe { stub.redirect(address) };
                    current.replace(tracker).map_or(Ok(()), remove_now)
                })
            })
        })?;
        batch.last().map_or(Ok(()), |last| check_function(&function, last))?;
    }
    Ok(vec![single(rows::REDIRECT.by(WHO), Unit::Nanoseconds, redirect), samples.into_measure(rows::SWAP.by(WHO))])
}

const GUARDS: usize = 1_000_000;

fn guards(_: &Workload) -> Measures {
    let session = ExecutionSession::new();
    // The first of a thread makes its place.
    drop(session.guard());
    let guard = nanoseconds_each(GUARDS, |_| drop(session.guard()));
    Ok(vec![single(rows::GUARD.by(WHO), Unit::Nanoseconds, guard)])
}

fn epochs(_: &Workload) -> Measures {
    let handle = crossbeam::epoch::Collector::new().register();
    drop(handle.pin());
    let pin = nanoseconds_each(GUARDS, |_| drop(handle.pin()));
    Ok(vec![single(rows::GUARD.by(EPOCH), Unit::Nanoseconds, pin)])
}
