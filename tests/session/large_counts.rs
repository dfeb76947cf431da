//! Large counts: long chains of waiting code, and a million names.

use jittison::session::*;

use crate::support::*;

const LENGTH: usize = sized(3_000, 8) as usize;

/// Units `f0`, `f1`, ..., which have run and are resolved, and a query for each.
fn resolved(fixture: &Fixture, count: usize) -> (Vec<MaterializationResponsibility>, Vec<SymbolRef>, Vec<Answer>) {
    let names: Vec<String> = (0..count).map(|i| format!("f{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (responsibilities, answers) = fixture.resolved(&names);
    (responsibilities, fixture.references(&names), answers)
}

/// Emits a chain or ring in which `f(i)` refers to `f(i + 1)`, forwards or backwards, and one of its units last.
fn emit_chain(count: usize, is_ring: bool, backward: bool) {
    let fixture = Fixture::new();
    let (r, references, answers) = resolved(&fixture, count);
    let last = if backward { count - 1 } else { 0 };
    let mut indexed: Vec<_> = r.into_iter().enumerate().collect();
    let last = indexed.remove(if is_ring { last } else { count - 1 });
    if backward {
        indexed.reverse();
    }
    let dependencies = |i: usize| match references.get(i + 1) {
        Some(next) => vec![next.clone()],
        None if is_ring => vec![references[0].clone()],
        None => Vec::new(),
    };
    for (i, r) in indexed {
        r.notify_emitted(dependencies(i)).unwrap();
    }
    assert!(answers.iter().all(Answer::is_pending));
    last.1.notify_emitted(dependencies(last.0)).unwrap();
    assert!((1..).zip(&answers).all(|(value, answer)| answer.addresses() == [value]));
}

#[test]
fn a_chain_of_three_thousand_waiting_units_is_ready_when_the_last_is_emitted() {
    emit_chain(LENGTH, false, false);
    emit_chain(LENGTH, false, true);
}

#[test]
fn a_ring_of_three_thousand_waiting_units_is_ready_when_it_closes() {
    emit_chain(LENGTH, true, false);
    emit_chain(LENGTH, true, true);
}

#[test]
fn failing_the_end_of_a_long_chain_fails_all_of_it() {
    let fixture = Fixture::new();
    let (mut r, references, answers) = resolved(&fixture, LENGTH);
    let end = r.pop().unwrap();
    for (i, r) in r.into_iter().enumerate() {
        r.notify_emitted(vec![references[i + 1].clone()]).unwrap();
    }
    drop(end);
    assert!(answers.iter().all(|answer| !failed_symbols(&answer.error()).is_empty()));
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn removing_a_tracker_removes_all_of_its_names() {
    let fixture = Fixture::new();
    for count in [1, 15, 16, 17, 32, 33, sized(1_000, 40) as usize] {
        let names: Vec<String> = (0..count).map(|i| format!("f{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let tracker = fixture.tracker();
        // Half of the names are ready. The other half was never looked up.
        let (ready, lazy) = names.split_at(count / 2);
        tracker.define(Unit::ready(ready, 1)).unwrap();
        tracker.define(Unit::ready(lazy, 1)).unwrap();
        ready.iter().for_each(|name| assert_eq!(fixture.find(name).unwrap(), 1));
        tracker.remove().unwrap();
        names.iter().for_each(|name| assert!(fixture.find(name).is_err(), "{name} of {count}"));
    }
}

/// Defines and removes `count` new names, a hundred in each tracker.
fn churn(fixture: &Fixture, first: usize, count: usize) {
    for batch in (first..first + count).step_by(100) {
        let tracker = fixture.tracker();
        let names: Vec<String> = (batch..batch + 100).map(|i| format!("a_rather_long_and_unique_name_{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        tracker.define(Unit::ready(&names, 1)).unwrap();
        if batch % 1_000 == 0 {
            assert_eq!(fixture.find(names[0]).unwrap(), 1);
        }
        tracker.remove().unwrap();
    }
}

#[cfg_attr(miri, ignore = "measures the resident memory of a process of its own")]
#[test]
fn a_million_names_defined_and_removed_leave_no_memory_behind() {
    own_process!();
    let fixture = Fixture::new();
    churn(&fixture, 0, 10_000);
    let before = resident_bytes();
    churn(&fixture, 10_000, 1_000_000);
    assert_eq!(fixture.main.symbol_count(), 0);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 8 << 20, "{} KiB more than at the start", grown >> 10);
}
