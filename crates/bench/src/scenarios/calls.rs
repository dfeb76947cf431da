//! jittison: how linked code is reached: lookups, stubs, guards and hot swaps.

use std::hint::black_box;
use std::rc::Rc;

use fastrand::Rng;
use jittison::Jit;
use jittison::base::{ExecutorAddr, Name};
use jittison::session::{ExecutionSession, JitDylib, ResourceTracker, SymbolFlags};

use super::fixture::Fixture;
use crate::measure::checks::{Run, check_function};
use crate::measure::competitor::{EPOCH, JITTISON};
use crate::measure::rows;
use crate::measure::samples::{BATCH, Samples, nanoseconds_each, rate_together, single};
use crate::measure::scenario::{Measures, Scenario, Unit, to_text};
use crate::measure::workload::Workload;
use crate::measure::workload_scenario::scenario;
use crate::peers::ours::{Jittison, link, remove_now};

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    let of = |group, competitor, round: fn(&Workload) -> Measures| scenario(group, competitor, workload, round);
    vec![
        of("lookup", JITTISON, lookups),
        of("lookup, handles", JITTISON, handles),
        of("patch, swap", JITTISON, swaps),
        of("patch, guard", JITTISON, guards),
        of("patch, guard", EPOCH, epochs),
    ]
}

fn lookups(workload: &Workload) -> Measures {
    let mut measures = Vec::new();
    for symbols in workload.sizes.lookups_among {
        let [one, two] = lookups_among(*symbols, workload.sizes.lookups)?;
        measures.push(single(rows::LOOKUP.at(*symbols, JITTISON), Unit::Nanoseconds, one));
        measures.push(single(rows::LOOKUP_TWO.at(*symbols, JITTISON), Unit::Nanoseconds, two));
        measures.push(single(rows::LOOKUP_THREADS.at(*symbols, JITTISON), Unit::Ratio, one / two));
    }
    Ok(measures)
}

/// Nanoseconds per lookup, from one thread and from two at once.
fn lookups_among(symbols: usize, lookups: usize) -> Result<[f64; 2], String> {
    let session = ExecutionSession::new();
    let dylib = session.create_dylib("symbols").map_err(to_text)?;
    let names: Vec<String> = (0..symbols).map(|number| format!("some_symbol_{number}")).collect();
    let tracker = dylib.create_tracker().map_err(to_text)?;
    let define = |(number, name): (usize, &String)| {
        (Name::from(name.as_str()), ExecutorAddr::new(FIRST + number as u64), SymbolFlags::EXPORTED)
    };
    tracker.define_absolute(names.iter().enumerate().map(define)).map_err(to_text)?;
    // Twice: the second lookup of a name makes it ready for the fast path.
    names.iter().chain(&names).try_for_each(|name| dylib.lookup_address(name).map(drop).map_err(to_text))?;
    let one = looking_up(&dylib, &names, 1, lookups)?;
    Ok([one, looking_up(&dylib, &names, 2, lookups)?])
}

/// The address of the first symbol.
const FIRST: u64 = 0x1000;

/// Each thread looks the names up in a random order of its own.
fn looking_up(dylib: &JitDylib, names: &[String], threads: usize, lookups: usize) -> Result<f64, String> {
    let work = |(dylib, order): &mut (JitDylib, Vec<u32>)| {
        for symbol in order.iter().map(|symbol| *symbol as usize) {
            let found = dylib.lookup_address(&names[symbol]).map_err(to_text)?;
            let is_right = found.value() == FIRST + symbol as u64;
            is_right.then_some(()).ok_or_else(|| format!("{} at {found:?}", names[symbol]))?;
        }
        Ok(())
    };
    let mut workers: Vec<_> =
        (0..threads).map(|thread| (dylib.clone(), random_order(names.len(), lookups, thread))).collect();
    let rate = rate_together(&mut workers, lookups, work)?;
    Ok(1e9 / rate)
}

/// So many random numbers below `end`, drawn before the clock starts. Each thread has its own.
fn random_order(end: usize, count: usize, thread: usize) -> Vec<u32> {
    let mut rng = Rng::with_seed(5 + thread as u64);
    (0..count).map(|_| rng.u32(..end as u32)).collect()
}

/// Owned handles to ready functions of as many modules, by the call that the README shows, in random order.
fn handles(workload: &Workload) -> Measures {
    let mut measures = Vec::new();
    for modules in workload.sizes.lookups_among {
        let mut fixture = Fixture::<Jittison>::new(workload, &workload.objects.small)?;
        let mut names = Vec::with_capacity(*modules);
        let link_next = |_| {
            let ready = fixture.next()?;
            let module = fixture.link_checked(&ready)?;
            names.push(ready.instance.entry);
            Ok(module)
        };
        let live = (0..*modules).map(link_next).collect::<Result<Vec<ResourceTracker>, String>>()?;
        let worker = |thread| (fixture.linker.jit.clone(), random_order(names.len(), workload.sizes.lookups, thread));
        let work = |(jit, order): &mut (Jit, Vec<u32>)| {
            order.iter().try_for_each(|module| {
                // SAFETY: every entry has this signature.
                let function = unsafe { jit.lookup::<Run>(&names[*module as usize]) }.map_err(to_text)?;
                black_box(&function);
                Ok(())
            })
        };
        // The first lookups of each name find it on the general path.
        work(&mut worker(0))?;
        let one = rate_together(&mut [worker(0)], workload.sizes.lookups, work)?;
        let two = rate_together(&mut [worker(0), worker(1)], workload.sizes.lookups, work)?;
        measures.push(single(rows::HANDLE.at(*modules, JITTISON), Unit::Nanoseconds, 1e9 / one));
        measures.push(single(rows::HANDLE_THREADS.at(*modules, JITTISON), Unit::Ratio, two / one));
        fixture.remove_all(live)?;
    }
    Ok(measures)
}

/// An even number: the last one redirects to the second target.
const REDIRECTS: usize = 1_000_000;

/// The swaps redirect by name, as the peers do.
fn swaps(workload: &Workload) -> Measures {
    let mut fixture = Fixture::<Jittison>::new(workload, &workload.objects.small)?;
    let (jit, dylib) = (fixture.linker.jit.clone(), fixture.linker.dylib.clone());
    let targets = [fixture.next()?.instance, fixture.next()?.instance];
    let linked = [link(&jit, &dylib, &targets[0])?, link(&jit, &dylib, &targets[1])?];
    let stubs = dylib.create_tracker().map_err(to_text)?;
    jit.create_stub(&stubs, "stub", linked[0].0).map_err(to_text)?;
    let stub = jit.stub(&dylib, "stub").map_err(to_text)?;
    // SAFETY: every target of the stub has this signature.
    let function = unsafe { jit.lookup::<Run>("stub") }.map_err(to_text)?;
    let mut outcome = Ok(());
    let by_name = nanoseconds_each(REDIRECTS, |number| {
        // SAFETY: both have the same signature, and neither is removed.
        let redirected = unsafe { jit.redirect_stub(&dylib, "stub", linked[number & 1].0) };
        if redirected.is_err() {
            outcome = redirected.map_err(to_text);
        }
    });
    outcome?;
    check_function(&function, &targets[1])?;
    let by_handle = nanoseconds_each(REDIRECTS, |number| {
        // SAFETY: as above.
        unsafe { stub.redirect(black_box(linked[number & 1].0)) };
    });
    check_function(&function, &targets[1])?;

    let (mut samples, mut current): (_, Option<ResourceTracker>) = (Samples::default(), None);
    for _ in 0..workload.sizes.swaps / BATCH {
        let batch = fixture.make_batch()?;
        samples.batch(|samples| {
            batch.iter().try_for_each(|ready| {
                samples.one(|| {
                    let (address, tracker) = link(&jit, &dylib, &ready.instance)?;
                    // SAFETY: the same signature; the old version is removed after this call.
                    unsafe { jit.redirect_stub(&dylib, "stub", address) }.map_err(to_text)?;
                    current.replace(tracker).map_or(Ok(()), remove_now)
                })
            })
        })?;
        batch.last().map_or(Ok(()), |last| check_function(&function, &last.instance))?;
    }
    Ok(vec![
        single(rows::REDIRECT.by(JITTISON), Unit::Nanoseconds, by_name),
        single(rows::REDIRECT_HANDLE.by(JITTISON), Unit::Nanoseconds, by_handle),
        samples.into_measure(rows::SWAP.by(JITTISON)),
    ])
}

const GUARDS: usize = 1_000_000;

fn guards(_: &Workload) -> Measures {
    let session = ExecutionSession::new();
    // The first guard of a thread creates its epoch record.
    drop(session.guard());
    let guard = nanoseconds_each(GUARDS, |_| drop(session.guard()));
    Ok(vec![single(rows::GUARD.by(JITTISON), Unit::Nanoseconds, guard)])
}

fn epochs(_: &Workload) -> Measures {
    let handle = crossbeam::epoch::Collector::new().register();
    drop(handle.pin());
    let pin = nanoseconds_each(GUARDS, |_| drop(handle.pin()));
    Ok(vec![single(rows::GUARD.by(EPOCH), Unit::Nanoseconds, pin)])
}
