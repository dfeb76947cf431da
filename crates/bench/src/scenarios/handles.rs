//! jittison: the cost of a call through an owning handle, compared with a plain pointer; and the cost of an empty
//! tracker.

use std::hint::black_box;
use std::rc::Rc;

use jittison::Jit;

use super::fixture::Fixture;
use crate::measure::checks::{ARGUMENT, Run};
use crate::measure::competitor::{JITTISON, POINTER};
use crate::measure::rows;
use crate::measure::samples::{median_nanoseconds, nanoseconds_each, single};
use crate::measure::scenario::{Measures, Scenario, Unit, to_text};
use crate::measure::workload::Workload;
use crate::measure::workload_scenario::scenario;
use crate::peers::ours::{Jittison, remove_now};

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    vec![
        scenario("patch, calls of handles", JITTISON, workload, calls),
        scenario("dylib, trackers", JITTISON, workload, trackers),
    ]
}

/// Each figure is the minimum of this many windows. Windows of both kinds alternate, because the difference is smaller
/// than the noise of one window.
const WINDOWS: usize = 200;
const CALLS: usize = 10_000;

fn calls(workload: &Workload) -> Measures {
    let jit = Jit::new().map_err(to_text)?;
    let tracker = jit.main_dylib().create_tracker().map_err(to_text)?;
    jit.add_object(&tracker, "runtime.o", workload.objects.runtime.as_slice()).map_err(to_text)?;
    // SAFETY: the runtime library defines it with this signature.
    let function = unsafe { jit.lookup::<Run>("rt_hash") }.map_err(to_text)?;
    let address = jit.main_dylib().lookup_address("rt_hash").map_err(to_text)?;
    // SAFETY: the same function; the handle keeps it mapped.
    let pointer: Run = unsafe { std::mem::transmute(address.value() as usize) };
    let (mut by_handle, mut by_pointer) = (f64::INFINITY, f64::INFINITY);
    let mut results = [ARGUMENT; 2];
    for _ in 0..WINDOWS {
        // Each call depends on the result of the call before. The callee is read again each time, as in a caller that
        // does other work.
        by_handle = by_handle.min(nanoseconds_each(CALLS, |_| results[0] = black_box(&function).call(results[0])));
        by_pointer = by_pointer.min(nanoseconds_each(CALLS, |_| results[1] = black_box(&pointer)(results[1])));
    }
    if results[0] != results[1] {
        return Err("a call by the handle and one by the pointer differ".to_string());
    }
    Ok(vec![
        single(rows::CALL.by(JITTISON), Unit::Nanoseconds, by_handle),
        single(rows::CALL.by(POINTER), Unit::Nanoseconds, by_pointer),
        single(rows::CALL_OVERHEAD.by(JITTISON), Unit::Nanoseconds, by_handle - by_pointer),
    ])
}

const TRACKERS: usize = 50_000;

fn trackers(workload: &Workload) -> Measures {
    let fixture = Fixture::<Jittison>::new(workload, &workload.objects.small)?;
    let mut outcome = Ok(());
    let each = median_nanoseconds(TRACKERS, |_| {
        let removed = fixture.linker.dylib.create_tracker().map_err(to_text).and_then(remove_now);
        if removed.is_err() {
            outcome = removed;
        }
    });
    outcome.map(|()| vec![single(rows::TRACKER.by(JITTISON), Unit::Nanoseconds, each)])
}
