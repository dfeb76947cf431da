//! `LookupAndApply`: several names are looked up, and all of them are used or none (ORC: LookupAndApplyTest,
//! LookupAndRecordAddrsTest).

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use jittison::base::ExecutorAddr;
use jittison::error::{Error, Result};
use jittison::session::*;

use crate::support::*;

/// The initial value of a destination. It shows whether the destination was written, even with null.
const UNTOUCHED: ExecutorAddr = ExecutorAddr::new(0xDEAD);

fn run(fixture: &Fixture, parts: LookupAndApply<'_>) -> Result<()> {
    parts.run(&fixture.session, &fixture.main.search_order(), RequiredState::Ready)
}

fn values(found: &[LookupResult]) -> Vec<u64> {
    found.iter().map(|result| result.address.value()).collect()
}

#[test]
fn an_address_is_recorded_in_its_destination() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let mut foo = UNTOUCHED;
    run(&fixture, LookupAndApply::new().record(SymbolRequest::required("foo"), &mut foo)).unwrap();
    assert_eq!(foo, address(1));
}

#[test]
fn a_required_name_that_is_absent_is_an_error_and_records_nothing() {
    let fixture = Fixture::new();
    let mut gone = UNTOUCHED;
    assert_not_found(run(&fixture, LookupAndApply::new().record(SymbolRequest::required("gone"), &mut gone)));
    assert_eq!(gone, UNTOUCHED);
}

#[test]
fn a_weakly_requested_name_that_is_absent_is_recorded_as_null() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let (mut foo, mut gone) = (UNTOUCHED, UNTOUCHED);
    let parts = LookupAndApply::new()
        .record(SymbolRequest::weak("gone"), &mut gone)
        .record(SymbolRequest::weak("foo"), &mut foo);
    run(&fixture, parts).unwrap();
    assert_eq!((foo, gone), (address(1), ExecutorAddr::NULL));
}

#[test]
fn several_parts_share_one_lookup_and_each_gets_its_results_in_order() {
    struct CountingGenerator(Mutex<usize>);
    impl DefinitionGenerator for CountingGenerator {
        fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
            *self.0.lock().unwrap() += 1;
            (1..).zip(names_of(missing)).try_for_each(|(value, name)| dylib.define(Unit::ready(&[name], value)))
        }
    }
    let fixture = Fixture::new();
    let generator = Arc::new(CountingGenerator(Mutex::default()));
    fixture.main.add_generator(generator.clone());
    let log = Mutex::new(Vec::new());
    let mut c = UNTOUCHED;
    let parts = LookupAndApply::new()
        .apply(&["b", "a"].map(SymbolRequest::required), |found| log.lock().unwrap().push(values(found)))
        .record(SymbolRequest::required("c"), &mut c)
        .apply(&[], |found| log.lock().unwrap().push(values(found)))
        .apply(&["a", "d"].map(SymbolRequest::required), |found| log.lock().unwrap().push(values(found)));
    run(&fixture, parts).unwrap();
    assert_eq!(*log.lock().unwrap(), [vec![1, 2], vec![], vec![2, 4]], "in the order in which they were added");
    assert_eq!((c, *generator.0.lock().unwrap()), (address(3), 1), "one lookup has all names");
}

#[test]
fn no_part_is_applied_if_any_name_fails() {
    let absent = |_: &Fixture| ();
    let failing = |fixture: &Fixture| {
        fixture.main.define(Unit::exported(&["bad"], |r| r.fail(Error::other("no")))).unwrap();
    };
    for prepare in [absent as fn(&Fixture), failing] {
        let fixture = Fixture::new();
        fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
        prepare(&fixture);
        let (mut foo, mut bad) = (UNTOUCHED, UNTOUCHED);
        let parts = LookupAndApply::new()
            .record(SymbolRequest::required("foo"), &mut foo)
            .apply(&["foo"].map(SymbolRequest::required), |_| panic!("applied"))
            .record(SymbolRequest::required("bad"), &mut bad);
        assert!(run(&fixture, parts).is_err());
        assert_eq!((foo, bad), (UNTOUCHED, UNTOUCHED));
    }
}

#[test]
fn a_part_without_names_is_applied_at_once() {
    let fixture = Fixture::new();
    let mut applied = false;
    run(&fixture, LookupAndApply::new().apply(&[], |_| applied = true)).unwrap();
    assert!(applied);
    run(&fixture, LookupAndApply::new()).unwrap();
}

#[test]
fn started_parts_are_applied_when_the_last_symbol_is_ready_and_then_reported() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let (log, applied, reported) = (fixture.log.clone(), fixture.log.clone(), fixture.log.clone());
    LookupAndApply::new()
        .apply(&["foo"].map(SymbolRequest::required), move |found| applied.push(format!("applied {:?}", values(found))))
        .start(&fixture.session, &fixture.main.search_order(), RequiredState::Ready, move |outcome| {
            reported.push(format!("reported {}", outcome.is_ok()));
        });
    let r = held.take();
    r.notify_resolved(|_| Some(address(7))).unwrap();
    assert_eq!(log.take(), [""; 0]);
    r.notify_emitted(Vec::new()).unwrap();
    assert_eq!(log.take(), ["applied [7]", "reported true"]);
}

#[test]
fn started_parts_are_dropped_unapplied_if_the_lookup_fails() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let (witness, reported) = (Arc::new(()), Arc::new(Mutex::new(None)));
    let (captured, outcome) = (witness.clone(), reported.clone());
    LookupAndApply::new().apply(&["foo"].map(SymbolRequest::required), move |_| panic!("applied: {captured:?}")).start(
        &fixture.session,
        &fixture.main.search_order(),
        RequiredState::Ready,
        move |failed| {
            *outcome.lock().unwrap() = Some(failed);
        },
    );
    held.take().fail(Error::other("no"));
    let error = reported.lock().unwrap().take().expect("reported").unwrap_err();
    assert_eq!(failed_symbols(&error), ["foo"]);
    assert_eq!(Arc::strong_count(&witness), 1, "the part is dropped");
}

#[test]
fn parts_are_applied_on_a_worker_and_may_call_back_into_the_session() {
    let options = SessionOptions { worker_threads: 1, ..SessionOptions::default() };
    let session = ExecutionSession::with_options(options);
    let main = session.create_dylib("main").unwrap();
    main.define(Unit::ready(&["foo"], 1)).unwrap();
    let (inner, pinning, (send, receive)) = (main.clone(), session.clone(), channel());
    LookupAndApply::new()
        .apply(&["foo"].map(SymbolRequest::required), move |found| {
            let pin = pinning.pin(found[0].symbol.as_ref().expect("not absolute")).expect("the symbol is ready");
            inner.define(Unit::ready(&["bar"], 2)).unwrap();
            send.send((pin, find_in(&pinning, &[&inner], "bar").unwrap())).unwrap();
        })
        .start(&session, &main.search_order(), RequiredState::Ready, |outcome| outcome.unwrap());
    let (_pin, bar) = receive.recv().expect("the part is applied");
    assert_eq!(bar, 2);
}
