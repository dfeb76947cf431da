//! jittison: what a handle that keeps its code costs the caller, beside a plain pointer; and a tracker that keeps nothing.

use std::hint::black_box;
use std::rc::Rc;

use jittison::Jit;

use crate::ours::{Run, Scene, WHO, remove_now};
use crate::rows;
use crate::samples::{nanoseconds_each, nanoseconds_mostly, single};
use crate::scenario::{Measure, Scenario, Unit, words};
use crate::scenarios::scenario;
use crate::workload::{ARGUMENT, Workload};

type Measures = Result<Vec<Measure>, String>;

pub const POINTER: &str = "plain pointer";

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    vec![
        scenario("patch, calls of handles", WHO, workload, calls),
        scenario("dylib, trackers", WHO, workload, trackers),
    ]
}

/// The least of so many windows, both by turns: the difference is smaller than what others take of one.
const WINDOWS: usize = 200;
const CALLS: usize = 10_000;

fn calls(workload: &Workload) -> Measures {
    let jit = Jit::new().map_err(words)?;
    let tracker = jit.main_dylib().create_tracker().map_err(words)?;
    jit.add_object(&tracker, "runtime.o", workload.objects.runtime.as_slice()).map_err(words)?;
    // SAFETY: the runtime library's signature.
    let function = unsafe { jit.lookup::<Run>("rt_hash") }.map_err(words)?;
    let address = jit.main_dylib().lookup_address("rt_hash").map_err(words)?;
    // SAFETY: the same function, which the handle keeps.
    let pointer: Run = unsafe { std::mem::transmute(address.value() as usize) };
    let (mut by_handle, mut by_pointer) = (f64::INFINITY, f64::INFINITY);
    let mut results = [ARGUMENT; 2];
    for _ in 0..WINDOWS {
        // Each call waits for the one before. What is called is read anew each time, as by a caller that does other things.
        by_handle = by_handle.min(nanoseconds_each(CALLS, |_| results[0] = black_box(&function).call(results[0])));
        by_pointer = by_pointer.min(nanoseconds_each(CALLS, |_| results[1] = black_box(&pointer)(results[1])));
    }
    if results[0] != results[1] {
        return Err("a call by the handle and one by the pointer differ".to_string());
    }
    Ok(vec![
        single(rows::CALL.by(WHO), Unit::Nanoseconds, by_handle),
        single(rows::CALL.by(POINTER), Unit::Nanoseconds, by_pointer),
        single(rows::CALL_OVERHEAD.by(WHO), Unit::Nanoseconds, by_handle - by_pointer),
    ])
}

const TRACKERS: usize = 50_000;

fn trackers(workload: &Workload) -> Measures {
    let scene = Scene::new(workload, &workload.objects.small)?;
    let mut outcome = Ok(());
    let each = nanoseconds_mostly(TRACKERS, |_| {
        let removed = scene.dylib.create_tracker().map_err(words).and_then(remove_now);
        if removed.is_err() {
            outcome = removed;
        }
    });
    outcome.map(|()| vec![single(rows::TRACKER.by(WHO), Unit::Nanoseconds, each)])
}
