//! Lookups that succeed or find nothing: states, order, visibility, results, threads (ORC: CoreAPIsTest).

use std::sync::{Arc, Barrier};
use std::thread;

use jittison::base::{ExecutorAddr, Name};
use jittison::error::ErrorKind;
use jittison::session::*;

use crate::support::*;

#[test]
fn a_ready_lookup_is_answered_after_resolve_and_emit() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let ready = fixture.look_up(&["foo"], RequiredState::Ready);
    let resolved = fixture.look_up(&["foo"], RequiredState::Resolved);
    let r = held.take();
    assert_eq!(fixture.main.symbol_state("foo"), Some(SymbolState::Materializing));

    r.notify_resolved(|_| Some(address(0x10))).unwrap();
    assert_eq!(resolved.addresses(), [0x10]);
    assert!(ready.is_pending());
    assert_eq!(fixture.main.symbol_state("foo"), Some(SymbolState::Resolved));

    r.notify_emitted(Vec::new()).unwrap();
    assert_eq!(ready.addresses(), [0x10]);
    assert_eq!(fixture.main.symbol_state("foo"), Some(SymbolState::Ready));
}

#[test]
fn an_empty_lookup_is_answered_at_once() {
    let fixture = Fixture::new();
    assert!(fixture.look_up(&[], RequiredState::Ready).results().is_empty());
    assert!(fixture.session.lookup(&[], &[], RequiredState::Ready).unwrap().is_empty());
}

#[test]
fn one_requested_symbol_materialises_its_entire_unit() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo", "bar"], 0x10).logging(&fixture.log)).unwrap();
    assert_eq!(fixture.look_up(&["foo"], RequiredState::Ready).addresses(), [0x10]);
    assert_eq!(fixture.main.symbol_state("bar"), Some(SymbolState::Ready));
    fixture.find("bar").unwrap();
    assert_eq!(fixture.log.take(), ["run unit of foo", "drop unit of foo"]);
}

#[test]
fn results_come_in_the_order_of_the_requests_even_with_a_repeated_name() {
    let fixture = Fixture::new();
    for (name, value) in [("a", 1), ("b", 2), ("c", 3)] {
        fixture.main.define(Unit::ready(&[name], value)).unwrap();
    }
    assert_eq!(fixture.look_up(&["c", "a", "b", "a"], RequiredState::Ready).addresses(), [3, 1, 2, 1]);
}

#[test]
fn a_hidden_symbol_is_skipped_and_the_next_dylib_is_searched() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.define_absolute([(Name::new("foo"), address(1), SymbolFlags::NONE)]).unwrap();
    other.define_absolute([(Name::new("foo"), address(2), EXPORTED)]).unwrap();
    assert_eq!(find_in(&fixture.session, &[&fixture.main, &other], "foo").unwrap(), 2);
    assert_eq!(fixture.look_up(&["foo"], RequiredState::Ready).addresses(), [1], "Visibility::All sees it");
    assert_not_found(find_in(&fixture.session, &[&fixture.main], "foo"));
}

#[test]
fn the_first_dylib_in_the_order_wins() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    other.define(Unit::ready(&["foo"], 2)).unwrap();
    assert_eq!(find_in(&fixture.session, &[&other, &fixture.main], "foo").unwrap(), 2);
    assert_eq!(
        fixture.main.symbol_state("foo"),
        Some(SymbolState::NeverSearched),
        "the shadowed symbol is not touched"
    );
    assert_eq!(find_in(&fixture.session, &[&fixture.main, &other], "foo").unwrap(), 1);
}

#[test]
fn an_unready_symbol_takes_precedence_over_later_dylibs() {
    let fixture = Fixture::new();
    let later = fixture.session.create_dylib("later").unwrap();
    later.define(Unit::ready(&["foo", "bar"], 2)).unwrap();
    assert_eq!(find_in(&fixture.session, &[&later], "foo").unwrap(), 2);
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let order = [&fixture.main, &later].map(|dylib| (dylib.clone(), Visibility::All));
    let requests = ["foo", "bar"].map(SymbolRequest::required);
    let found = fixture.session.lookup(&order, &requests, RequiredState::Ready).unwrap();
    assert_eq!(found.iter().map(|result| result.address.value()).collect::<Vec<_>>(), [1, 2]);
}

/// A unit of one symbol of 5 GiB at an address.
struct Huge([(Name, SymbolFlags); 1], u64);

impl MaterializationUnit for Huge {
    fn name(&self) -> &str {
        "huge"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.0
    }

    fn size_bytes(&self, _: usize) -> u64 {
        5 << 30
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        finish(responsibility, self.1);
    }

    fn discard(&mut self, _: &str) {}
}

#[test]
fn a_symbol_of_more_than_4_gib_is_found_by_its_last_byte() {
    for flags in [EXPORTED, weak()] {
        let fixture = Fixture::new();
        fixture.main.define(Huge([(Name::new("foo"), flags)], 0x1000)).unwrap();
        assert_eq!(fixture.find("foo").unwrap(), 0x1000);
        let end = 0x1000 + (5 << 30);
        let found = fixture.session.symbols_at(&[address(end - 1), address(end)]);
        assert_eq!(found[0].as_ref().map(|found| found.offset), Some((5 << 30) - 1));
        assert!(found[1].is_none());
    }
}

#[test]
fn of_two_symbols_that_cover_an_address_the_one_that_starts_last_is_found() {
    for order in [["outer", "inner"], ["inner", "outer"]] {
        let fixture = Fixture::new();
        for name in order {
            let start = if name == "outer" { 0x1000 } else { 0x2000 };
            fixture.main.define(Huge([(Name::new(name), EXPORTED)], start)).unwrap();
            fixture.find(name).unwrap();
        }
        let found = fixture.session.symbols_at(&[address(0x1fff), address(0x2000)]);
        let found: Vec<_> = found.iter().flatten().map(|found| (found.name.as_str(), found.offset)).collect();
        assert_eq!(found, [("outer", 0xfff), ("inner", 0)]);
    }
}

#[test]
fn looking_up_flags_materialises_nothing() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::never(&["foo"])).unwrap();
    fixture.main.define(Unit::new(&[("bar", weak())], |_| panic!("was run"))).unwrap();
    assert_eq!(fixture.main.symbol_flags("foo"), Some(EXPORTED));
    assert_eq!(fixture.main.symbol_flags("bar"), Some(weak()));
    assert_eq!(fixture.main.symbol_flags("baz"), None);
    assert_eq!(fixture.main.symbol_state("foo"), Some(SymbolState::NeverSearched));
}

#[test]
fn a_weak_request_that_finds_nothing_has_the_null_address() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let requests = [SymbolRequest::weak("absent"), SymbolRequest::required("foo")];
    let found =
        fixture.session.lookup(&[(fixture.main.clone(), Visibility::All)], &requests, RequiredState::Ready).unwrap();
    assert_eq!((found[0].address, found[1].address), (ExecutorAddr::NULL, address(1)));
    assert!(found[0].symbol.is_none() && found[1].symbol.is_some());
}

#[test]
fn symbols_not_found_lists_every_name_and_materialises_none() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.define(Unit::never(&["foo"])).unwrap();
    let order = [(fixture.main.clone(), Visibility::All), (other, Visibility::All)];
    let requests = ["gone", "foo", "missing"].map(SymbolRequest::required);
    let error = fixture.session.lookup(&order, &requests, RequiredState::Ready).unwrap_err();
    match error.kind() {
        ErrorKind::SymbolsNotFound { symbols, searched, .. } => {
            assert_eq!(symbols, &["gone", "missing"]);
            assert_eq!(searched, &["main", "other"]);
        }
        other => panic!("{other}"),
    }
    assert_eq!(fixture.main.symbol_state("foo"), Some(SymbolState::NeverSearched));
}

#[test]
fn a_side_effects_only_symbol_is_found_without_an_address() {
    let fixture = Fixture::new();
    let (unit, held) = Unit::held_with(&[("init", EXPORTED | SymbolFlags::SIDE_EFFECTS_ONLY)]);
    fixture.main.define(unit).unwrap();
    let answer = fixture.look_up(&["init"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| panic!("a side-effects-only symbol has no address")).unwrap();
    assert!(answer.is_pending());
    r.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answer.results()[0].address, ExecutorAddr::NULL);
}

#[test]
fn a_side_effects_only_symbol_may_be_emitted_without_resolving() {
    let fixture = Fixture::new();
    let flags = EXPORTED | SymbolFlags::SIDE_EFFECTS_ONLY;
    for request in [SymbolRequest::weak("init"), SymbolRequest::required("init")] {
        fixture.main.define(Unit::new(&[("init", flags)], |r| r.notify_emitted(Vec::new()).unwrap())).unwrap();
        let found = fixture.main.lookup(&[request], RequiredState::Ready).unwrap();
        assert_eq!((found[0].address, found[0].flags), (ExecutorAddr::NULL, flags));
        fixture.main.clear().unwrap();
    }
}

#[test]
fn an_absolute_symbol_is_ready_at_once_and_has_no_definition_to_depend_on() {
    let fixture = Fixture::new();
    fixture.main.define_absolute([(Name::new("abs"), address(0x99), EXPORTED)]).unwrap();
    assert_eq!(fixture.main.symbol_state("abs"), Some(SymbolState::Ready));
    let found = fixture.look_up(&["abs"], RequiredState::Ready).results();
    assert_eq!(found[0].address, address(0x99));
    assert!(found[0].flags.contains(SymbolFlags::ABSOLUTE) && found[0].symbol.is_none());
}

/// With the flag, a lookup returned no definition: no handle pinned the code, and no link depended on it.
#[test]
fn a_definition_that_its_caller_declares_absolute_is_pinned_as_any_other() {
    let fixture = Fixture::new();
    let declared = EXPORTED | SymbolFlags::ABSOLUTE;
    fixture.main.define(Unit::new(&[("of_dylib", declared)], |r| finish(r, 1))).unwrap();
    let tracker = fixture.tracker();
    tracker.define(Unit::new(&[("of_tracker", declared)], |r| finish(r, 1))).unwrap();
    let mut r = tracker.define_materializing("begun", [(Name::new("begun"), declared)]).unwrap();
    assert_eq!(r.define_materializing(&[(Name::new("added"), declared)]).unwrap(), [true]);
    assert!(r.symbols().iter().all(|claimed| claimed.flags == EXPORTED));
    finish(r, 1);
    let found = fixture.look_up(&["of_dylib", "of_tracker", "begun", "added"], RequiredState::Ready).results();
    for found in found {
        assert_eq!(found.flags, EXPORTED);
        assert!(found.symbol.is_some_and(|symbol| fixture.session.pin(&symbol).is_some()));
    }
}

#[test]
fn a_responsibility_lists_its_symbols_tracker_and_dylib() {
    let fixture = Fixture::new();
    let tracker = fixture.tracker();
    let held = define_held_under(&tracker, &["foo", "bar"]);
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    let r = held.take();
    let names: Vec<_> = r.symbols().iter().map(|claimed| claimed.name.to_string()).collect();
    assert_eq!(names, ["foo", "bar"]);
    assert_eq!(r.dylib(), fixture.main);
    assert_eq!(r.tracker().key(), tracker.key());
    assert_eq!(r.unit_name(), "unit of foo");
    finish(r, 1);
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn a_responsibility_looks_up_in_the_search_order_and_an_error_names_its_unit() {
    let fixture = Fixture::new();
    let library = fixture.session.create_dylib("library").unwrap();
    fixture.main.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
    fixture.main.define_absolute([(Name::new("own"), address(1), SymbolFlags::NONE)]).unwrap();
    library.define_absolute([(Name::new("puts"), address(2), EXPORTED)]).unwrap();
    let (r, foo) = fixture.claim(&["foo"], RequiredState::Ready);

    r.lookup(&["own", "puts"].map(SymbolRequest::required), RequiredState::Resolved, |r, found| {
        let found: Vec<_> = found.unwrap().iter().map(|result| result.address.value()).collect();
        assert_eq!(found, [1, 2]);
        r.lookup(&["nowhere"].map(SymbolRequest::required), RequiredState::Resolved, |r, missing| {
            let text = missing.unwrap_err().to_string();
            assert!(text.contains("`nowhere`") && text.contains("unit of foo") && text.contains("library"), "{text}");
            finish(r, 3);
        });
    });
    assert_eq!(foo.addresses(), [3]);
}

#[test]
fn a_lookup_from_inside_a_materialisation_does_not_deadlock() {
    let fixture = Fixture::new();
    let (session, main) = (fixture.session.clone(), fixture.main.clone());
    fixture.main.define(Unit::ready(&["bar"], 2)).unwrap();
    fixture
        .main
        .define(Unit::exported(&["foo"], move |r| {
            let bar = find_in(&session, &[&main], "bar").unwrap();
            finish(r, bar + 1);
        }))
        .unwrap();
    assert_eq!(fixture.find("foo").unwrap(), 3);
}

#[test]
fn a_chain_of_ten_thousand_units_is_walked_without_recursion() {
    const LENGTH: u64 = sized(10_000, 10);
    let fixture = Fixture::new();
    for i in 0..LENGTH {
        let next = format!("f{}", i + 1);
        let dependencies: &[&str] = if i + 1 < LENGTH { &[&next] } else { &[] };
        let unit = Unit::depending(&format!("f{i}"), dependencies, &fixture.manager, i);
        fixture.main.define(unit).unwrap();
    }
    assert_eq!(fixture.find("f0").unwrap(), 0);
    assert_eq!(fixture.main.symbol_state(&format!("f{}", LENGTH - 1)), Some(SymbolState::Ready));
    fixture.main.clear().unwrap();
    assert_eq!(fixture.manager.take_freed().len() as u64, LENGTH);
}

#[test]
fn a_blocking_lookup_is_served_by_a_materialisation_on_another_thread() {
    let fixture = Fixture::new();
    let unit = Unit::exported(&["foo"], |r| {
        thread::spawn(move || finish(r, 0x10));
    });
    fixture.main.define(unit).unwrap();
    assert_eq!(fixture.find("foo").unwrap(), 0x10);
}

#[test]
fn many_threads_that_look_up_one_symbol_run_its_unit_once_and_agree() {
    let fixture = Arc::new(Fixture::new());
    for round in 0..sized(50, 5) {
        let name = format!("foo{round}");
        fixture.main.define(Unit::ready(&[&name], round).logging(&fixture.log)).unwrap();
        let start = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (fixture, start, name) = (fixture.clone(), start.clone(), name.clone());
                thread::spawn(move || {
                    start.wait();
                    fixture.find(&name).unwrap()
                })
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap() == round));
        assert_eq!(fixture.log.take().iter().filter(|event| event.starts_with("run")).count(), 1);
    }
}

#[test]
fn a_lookup_returns_the_definitions_to_depend_on_in_every_state_and_dylib() {
    // ORC reports only dependencies that are not ready, so a ready one could be removed unnoticed during a link.
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    let ready = fixture.loaded("ready", 1);
    let (r_resolved, _resolved) = fixture.claim(&["resolved"], RequiredState::Resolved);
    r_resolved.notify_resolved(|_| Some(address(2))).unwrap();
    let waiting = other.create_tracker().unwrap();
    other.set_link_order(&[(fixture.main.clone(), Visibility::ExportedOnly)]).unwrap();
    waiting.define(Unit::depending("waiting", &["resolved"], &fixture.manager, 3)).unwrap();
    fixture.main.define_absolute([(Name::new("absolute"), address(4), EXPORTED)]).unwrap();
    fixture.main.set_link_order(&[(other.clone(), Visibility::ExportedOnly)]).unwrap();

    let user = fixture.tracker();
    let names = ["ready", "resolved", "waiting", "absolute"];
    user.define(Unit::depending("user", &names, &fixture.manager, 5)).unwrap();
    let found = Arc::new(std::sync::Mutex::new(Vec::new()));
    let filled = found.clone();
    fixture.session.lookup_then(
        &fixture.main.search_order(),
        &names.map(SymbolRequest::required),
        RequiredState::Resolved,
        move |results| *filled.lock().unwrap() = results.unwrap(),
    );
    let found = std::mem::take(&mut *found.lock().unwrap());
    let is_ready = |result: &LookupResult| {
        let symbol = result.symbol.as_ref()?;
        Some(matches!(symbol.watch().pin(), Watched::Ready(_)))
    };
    assert_eq!(found.iter().map(is_ready).collect::<Vec<_>>(), [Some(true), Some(false), Some(false), None]);
    assert_eq!(other.symbol_state("waiting"), Some(SymbolState::Emitted));

    let answer = fixture.look_up(&["user"], RequiredState::Ready);
    assert!(answer.is_pending());
    let dependencies: Vec<_> = user.dependencies().iter().map(ResourceTracker::key).collect();
    assert!([ready.key(), waiting.key()].iter().all(|key| dependencies.contains(key)));
    r_resolved.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answer.addresses(), [5]);
    assert_eq!(other.symbol_state("waiting"), Some(SymbolState::Ready));
}

#[test]
fn required_weak_and_hidden_names_are_found_over_two_dylibs_at_once() {
    // ORC: OrcCAPITest, ExecutionSessionLookup_Success and _Failure.
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    fixture.main.define(Unit::ready(&["required"], 1)).unwrap();
    fixture.main.define(Unit::new(&[("hidden", SymbolFlags::NONE)], |r| finish(r, 2))).unwrap();
    other.define(Unit::new(&[("hidden", EXPORTED), ("weak", weak())], |r| finish(r, 3))).unwrap();
    let order = [(fixture.main.clone(), Visibility::ExportedOnly), (other.clone(), Visibility::All)];
    let mut requests = vec![
        SymbolRequest::required("required"),
        SymbolRequest::required("hidden"),
        SymbolRequest::weak("weak"),
        SymbolRequest::weak("absent"),
    ];
    let found = fixture.session.lookup(&order, &requests, RequiredState::Ready).unwrap();
    assert_eq!(found.iter().map(|result| result.address.value()).collect::<Vec<_>>(), [1, 3, 3, 0]);
    requests.push(SymbolRequest::required("missing"));
    let error = fixture.session.lookup(&order, &requests, RequiredState::Ready).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::SymbolsNotFound { symbols, .. } if symbols == &["missing"]), "{error}");
}
