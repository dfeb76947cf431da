//! Counts the steps of the waiting graph on long chains and rings.

use crate::base::{ExecutorAddr, Name, sized};
use crate::session::*;
use crate::sync::{Arc, Mutex};

/// A unit that hands its responsibility out.
struct Hands(Vec<(Name, SymbolFlags)>, Arc<Mutex<Option<MaterializationResponsibility>>>);

impl MaterializationUnit for Hands {
    fn name(&self) -> &str {
        "hands"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.0
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        *self.1.lock() = Some(responsibility);
    }
}

/// Emits `count` groups, each of which refers to the next; the last to nothing, or to the first. Returns the steps.
fn steps(count: usize, is_ring: bool, backward: bool) -> usize {
    let session = ExecutionSession::new();
    let main = session.create_dylib("main").unwrap();
    let names: Vec<Name> = (0..count).map(|i| Name::new(&format!("f{i}"))).collect();
    let handed = Arc::new(Mutex::new(None));
    main.define(Hands(names.iter().map(|name| (name.clone(), SymbolFlags::EXPORTED)).collect(), handed.clone()))
        .unwrap();
    let order = [(main.clone(), Visibility::All)];
    session.lookup_then(&order, &[SymbolRequest::required("f0")], RequiredState::Ready, drop);
    let r = handed.lock().take().unwrap();
    r.notify_resolved(|_| Some(ExecutorAddr::new(1))).unwrap();
    let reference = |i: usize| r.symbol(&names[i]).into_iter().collect();
    // The end of a chain is emitted last, so that all others wait.
    let next = |i: usize| if i + 1 < count { reference(i + 1) } else { reference(0) };
    let members = if is_ring { 0..count } else { 0..count - 1 };
    let mut groups: Vec<_> =
        members.map(|i| DependencyGroup { symbols: vec![names[i].clone()], dependencies: next(i) }).collect();
    if backward {
        groups.reverse();
    }
    r.notify_emitted_groups(groups).unwrap();
    assert!(names.iter().all(|name| main.symbol_state(name) == Some(SymbolState::Ready)));
    session.inner().waiting.lock().steps
}

#[test]
fn chains_and_rings_cost_a_few_steps_for_each_group_in_either_order() {
    const FEW: usize = sized(1_000, 4);
    const MANY: usize = sized(10_000, 12);
    for (is_ring, backward) in [(false, false), (false, true), (true, false), (true, true)] {
        let (short, long) = (steps(FEW, is_ring, backward), steps(MANY, is_ring, backward));
        println!("ring: {is_ring}, backward: {backward}: {short} steps for {FEW} groups, {long} for {MANY}");
        assert!(long < 10 * MANY, "{long} steps (ring: {is_ring}, backward: {backward})");
    }
}
