//! Looking several names up and using them all, or none (ORC: LookupAndApplyTest, LookupAndRecordAddrsTest).

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use jittison::base::ExecutorAddr;
use jittison::error::{Error, Result};
use jittison::session::*;

use crate::support::*;

/// A destination that shows whether it was written, null included.
const UNTOUCHED: ExecutorAddr = ExecutorAddr::new(0xDEAD);

fn run(world: &World, parts: LookupAndApply<'_>) -> Result<()> {
    parts.run(&world.session, &world.main.search_order(), RequiredState::Ready)
}

fn values(found: &[LookupResult]) -> Vec<u64> {
    found.iter().map(|result| result.address.value()).collect()
}

#[test]
fn an_address_is_recorded_where_it_was_asked_for() {
    let world = World::new();
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let mut foo = UNTOUCHED;
    run(&world, LookupAndApply::new().record(SymbolRequest::required("foo"), &mut foo)).unwrap();
    assert_eq!(foo, address(1));
}

#[test]
fn a_required_name_that_is_absent_is_an_error_and_records_nothing() {
    let world = World::new();
    let mut gone = UNTOUCHED;
    assert_not_found(run(&world, LookupAndApply::new().record(SymbolRequest::required("gone"), &mut gone)));
    assert_eq!(gone, UNTOUCHED);
}

#[test]
fn a_weakly_requested_name_that_is_absent_is_recorded_as_null() {
    let world = World::new();
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let (mut foo, mut gone) = (UNTOUCHED, UNTOUCHED);
    let parts = LookupAndApply::new()
        .record(SymbolRequest::weak("gone"), &mut gone)
        .record(SymbolRequest::weak("foo"), &mut foo);
    run(&world, parts).unwrap();
    assert_eq!((foo, gone), (address(1), ExecutorAddr::NULL));
}

#[test]
fn several_parts_share_one_lookup_and_each_is_given_its_own_results_in_its_own_order() {
    struct CountsItsCalls(Mutex<usize>);
    impl DefinitionGenerator for CountsItsCalls {
        fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
            *self.0.lock().unwrap() += 1;
            (1..).zip(names_of(missing)).try_for_each(|(value, name)| dylib.define(Unit::ready(&[name], value)))
        }
    }
    let world = World::new();
    let generator = Arc::new(CountsItsCalls(Mutex::default()));
    world.main.add_generator(generator.clone());
    let log = Mutex::new(Vec::new());
    let mut c = UNTOUCHED;
    let parts = LookupAndApply::new()
        .apply(&["b", "a"].map(SymbolRequest::required), |found| log.lock().unwrap().push(values(found)))
        .record(SymbolRequest::required("c"), &mut c)
        .apply(&[], |found| log.lock().unwrap().push(values(found)))
        .apply(&["a", "d"].map(SymbolRequest::required), |found| log.lock().unwrap().push(values(found)));
    run(&world, parts).unwrap();
    assert_eq!(*log.lock().unwrap(), [vec![1, 2], vec![], vec![2, 4]], "in the order in which they were added");
    assert_eq!((c, *generator.0.lock().unwrap()), (address(3), 1), "one lookup asks for all");
}

#[test]
fn no_part_is_applied_when_one_name_of_another_part_cannot_be_had() {
    let absent = |_: &World| ();
    let failing = |world: &World| {
        world.main.define(Unit::exported(&["bad"], |r| r.fail(Error::other("no")))).unwrap();
    };
    for prepare in [absent as fn(&World), failing] {
        let world = World::new();
        world.main.define(Unit::ready(&["foo"], 1)).unwrap();
        prepare(&world);
        let (mut foo, mut bad) = (UNTOUCHED, UNTOUCHED);
        let parts = LookupAndApply::new()
            .record(SymbolRequest::required("foo"), &mut foo)
            .apply(&["foo"].map(SymbolRequest::required), |_| panic!("applied"))
            .record(SymbolRequest::required("bad"), &mut bad);
        assert!(run(&world, parts).is_err());
        assert_eq!((foo, bad), (UNTOUCHED, UNTOUCHED));
    }
}

#[test]
fn nothing_to_look_up_is_applied_at_once() {
    let world = World::new();
    let mut applied = false;
    run(&world, LookupAndApply::new().apply(&[], |_| applied = true)).unwrap();
    assert!(applied);
    run(&world, LookupAndApply::new()).unwrap();
}

#[test]
fn parts_that_are_not_waited_for_are_applied_when_the_last_symbol_is_ready_and_then_it_is_told() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let (log, applied, told) = (world.log.clone(), world.log.clone(), world.log.clone());
    LookupAndApply::new()
        .apply(&["foo"].map(SymbolRequest::required), move |found| applied.push(format!("applied {:?}", values(found))))
        .start(&world.session, &world.main.search_order(), RequiredState::Ready, move |outcome| {
            told.push(format!("told {}", outcome.is_ok()));
        });
    let r = held.take();
    r.notify_resolved(|_| Some(address(7))).unwrap();
    assert_eq!(log.take(), [""; 0]);
    r.notify_emitted(Vec::new()).unwrap();
    assert_eq!(log.take(), ["applied [7]", "told true"]);
}

#[test]
fn parts_that_are_not_waited_for_are_dropped_unapplied_when_the_lookup_fails() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let (witness, told) = (Arc::new(()), Arc::new(Mutex::new(None)));
    let (kept, outcome) = (witness.clone(), told.clone());
    LookupAndApply::new().apply(&["foo"].map(SymbolRequest::required), move |_| panic!("applied: {kept:?}")).start(
        &world.session,
        &world.main.search_order(),
        RequiredState::Ready,
        move |failed| {
            *outcome.lock().unwrap() = Some(failed);
        },
    );
    held.take().fail(Error::other("no"));
    let error = told.lock().unwrap().take().expect("told").unwrap_err();
    assert_eq!(failed_symbols(&error), ["foo"]);
    assert_eq!(Arc::strong_count(&witness), 1, "what the part held is let go of");
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
            let pin = pinning.pin(found[0].symbol.as_ref().expect("not absolute")).expect("it is ready");
            inner.define(Unit::ready(&["bar"], 2)).unwrap();
            send.send((pin, find_in(&pinning, &[&inner], "bar").unwrap())).unwrap();
        })
        .start(&session, &main.search_order(), RequiredState::Ready, |outcome| outcome.unwrap());
    let (_pin, bar) = receive.recv().expect("it is applied");
    assert_eq!(bar, 2);
}
