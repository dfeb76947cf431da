//! Counts the steps of the waiting graph on long chains and cycles.

use crate::base::{ExecutorAddr, Name, sized};
use crate::session::core::execution_session::ExecutionSession;
use crate::session::core::materialization::MaterializationUnit;
use crate::session::core::responsibility::MaterializationResponsibility;
use crate::session::materialize::emission::DependencyGroup;
use crate::session::types::request::{RequiredState, SymbolRequest, Visibility};
use crate::session::types::symbol::{SymbolFlags, SymbolState};
use crate::sync::{Arc, Mutex};

/// A unit that stores its responsibility for the test.
struct StoringUnit(Vec<(Name, SymbolFlags)>, Arc<Mutex<Option<MaterializationResponsibility>>>);

impl MaterializationUnit for StoringUnit {
    fn name(&self) -> &str {
        "storing"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.0
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        *self.1.lock() = Some(responsibility);
    }
}

/// Emits `count` groups, each of which refers to the next; the last to none, or to the first. Returns the number of
/// steps.
fn steps(count: usize, is_ring: bool, backward: bool) -> usize {
    let session = ExecutionSession::new();
    let main = session.create_dylib("main").unwrap();
    let names: Vec<Name> = (0..count).map(|i| Name::new(&format!("f{i}"))).collect();
    let stored = Arc::new(Mutex::new(None));
    main.define(StoringUnit(names.iter().map(|name| (name.clone(), SymbolFlags::EXPORTED)).collect(), stored.clone()))
        .unwrap();
    let order = [(main.clone(), Visibility::All)];
    session.lookup_then(&order, &[SymbolRequest::required("f0")], RequiredState::Ready, drop);
    let r = stored.lock().take().unwrap();
    r.notify_resolved(|_| Some(ExecutorAddr::new(1))).unwrap();
    let reference = |i: usize| r.symbol(&names[i]).into_iter().collect();
    // The symbol at the end of a chain is emitted last, so that all other groups wait.
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
fn the_steps_per_group_do_not_grow_with_the_length_of_a_chain_or_cycle() {
    const FEW: usize = sized(1_000, 4);
    const MANY: usize = sized(10_000, 12);
    for (is_ring, backward) in [(false, false), (false, true), (true, false), (true, true)] {
        let (short, long) = (steps(FEW, is_ring, backward), steps(MANY, is_ring, backward));
        println!("ring: {is_ring}, backward: {backward}: {short} steps for {FEW} groups, {long} for {MANY}");
        assert!(long < 10 * MANY, "{long} steps (ring: {is_ring}, backward: {backward})");
    }
}
