//! Lookups that succeed, and those that find nothing: states, order, visibility, results, threads (ORC: CoreAPIsTest).

use std::sync::{Arc, Barrier};
use std::thread;

use jittison::base::{ExecutorAddr, Name};
use jittison::error::ErrorKind;
use jittison::session::*;

use crate::support::*;

#[test]
fn a_ready_lookup_is_told_after_resolve_and_emit() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let ready = world.ask(&["foo"], RequiredState::Ready);
    let resolved = world.ask(&["foo"], RequiredState::Resolved);
    let r = held.take();
    assert_eq!(world.main.symbol_state("foo"), Some(SymbolState::Materializing));

    r.notify_resolved(|_| Some(address(0x10))).unwrap();
    assert_eq!(resolved.addresses(), [0x10]);
    assert!(ready.is_pending());
    assert_eq!(world.main.symbol_state("foo"), Some(SymbolState::Resolved));

    r.notify_emitted(Vec::new()).unwrap();
    assert_eq!(ready.addresses(), [0x10]);
    assert_eq!(world.main.symbol_state("foo"), Some(SymbolState::Ready));
}

#[test]
fn an_empty_lookup_is_told_at_once() {
    let world = World::new();
    assert!(world.ask(&[], RequiredState::Ready).results().is_empty());
    assert!(world.session.lookup(&[], &[], RequiredState::Ready).unwrap().is_empty());
}

#[test]
fn one_requested_symbol_materialises_its_whole_unit() {
    let world = World::new();
    world.main.define(Unit::ready(&["foo", "bar"], 0x10).logging(&world.log)).unwrap();
    assert_eq!(world.ask(&["foo"], RequiredState::Ready).addresses(), [0x10]);
    assert_eq!(world.main.symbol_state("bar"), Some(SymbolState::Ready));
    world.find("bar").unwrap();
    assert_eq!(world.log.take(), ["run unit of foo", "drop unit of foo"]);
}

#[test]
fn results_come_in_the_order_of_the_requests_even_when_a_name_is_asked_twice() {
    let world = World::new();
    for (name, value) in [("a", 1), ("b", 2), ("c", 3)] {
        world.main.define(Unit::ready(&[name], value)).unwrap();
    }
    assert_eq!(world.ask(&["c", "a", "b", "a"], RequiredState::Ready).addresses(), [3, 1, 2, 1]);
}

#[test]
fn a_hidden_symbol_is_passed_over_and_the_next_dylib_serves() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.define_absolute([(Name::new("foo"), address(1), SymbolFlags::NONE)]).unwrap();
    other.define_absolute([(Name::new("foo"), address(2), EXPORTED)]).unwrap();
    assert_eq!(find_in(&world.session, &[&world.main, &other], "foo").unwrap(), 2);
    assert_eq!(world.ask(&["foo"], RequiredState::Ready).addresses(), [1], "Visibility::All sees it");
    assert_not_found(find_in(&world.session, &[&world.main], "foo"));
}

#[test]
fn the_first_dylib_in_the_order_wins() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    other.define(Unit::ready(&["foo"], 2)).unwrap();
    assert_eq!(find_in(&world.session, &[&other, &world.main], "foo").unwrap(), 2);
    assert_eq!(world.main.symbol_state("foo"), Some(SymbolState::NeverSearched), "the shadowed one is left alone");
    assert_eq!(find_in(&world.session, &[&world.main, &other], "foo").unwrap(), 1);
}

#[test]
fn what_is_not_ready_yet_counts_ahead_of_what_is_in_a_dylib_behind() {
    let world = World::new();
    let behind = world.session.create_dylib("behind").unwrap();
    behind.define(Unit::ready(&["foo", "bar"], 2)).unwrap();
    assert_eq!(find_in(&world.session, &[&behind], "foo").unwrap(), 2);
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let order = [&world.main, &behind].map(|dylib| (dylib.clone(), Visibility::All));
    let requests = ["foo", "bar"].map(SymbolRequest::required);
    let found = world.session.lookup(&order, &requests, RequiredState::Ready).unwrap();
    assert_eq!(found.iter().map(|result| result.address.value()).collect::<Vec<_>>(), [1, 2]);
}

/// A unit of one symbol, of 5 GiB, at an address.
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
        let world = World::new();
        world.main.define(Huge([(Name::new("foo"), flags)], 0x1000)).unwrap();
        assert_eq!(world.find("foo").unwrap(), 0x1000);
        let end = 0x1000 + (5 << 30);
        let found = world.session.symbols_at(&[address(end - 1), address(end)]);
        assert_eq!(found[0].as_ref().map(|found| found.offset), Some((5 << 30) - 1));
        assert!(found[1].is_none());
    }
}

#[test]
fn of_two_symbols_that_hold_an_address_the_one_that_begins_last_is_found() {
    for order in [["outer", "inner"], ["inner", "outer"]] {
        let world = World::new();
        for name in order {
            let start = if name == "outer" { 0x1000 } else { 0x2000 };
            world.main.define(Huge([(Name::new(name), EXPORTED)], start)).unwrap();
            world.find(name).unwrap();
        }
        let found = world.session.symbols_at(&[address(0x1fff), address(0x2000)]);
        let found: Vec<_> = found.iter().flatten().map(|found| (found.name.as_str(), found.offset)).collect();
        assert_eq!(found, [("outer", 0xfff), ("inner", 0)]);
    }
}

#[test]
fn asking_for_flags_materialises_nothing() {
    let world = World::new();
    world.main.define(Unit::never(&["foo"])).unwrap();
    world.main.define(Unit::new(&[("bar", weak())], |_| panic!("was run"))).unwrap();
    assert_eq!(world.main.symbol_flags("foo"), Some(EXPORTED));
    assert_eq!(world.main.symbol_flags("bar"), Some(weak()));
    assert_eq!(world.main.symbol_flags("baz"), None);
    assert_eq!(world.main.symbol_state("foo"), Some(SymbolState::NeverSearched));
}

#[test]
fn a_weak_request_that_finds_nothing_has_the_null_address() {
    let world = World::new();
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    let requests = [SymbolRequest::weak("absent"), SymbolRequest::required("foo")];
    let found =
        world.session.lookup(&[(world.main.clone(), Visibility::All)], &requests, RequiredState::Ready).unwrap();
    assert_eq!((found[0].address, found[1].address), (ExecutorAddr::NULL, address(1)));
    assert!(found[0].symbol.is_none() && found[1].symbol.is_some());
}

#[test]
fn symbols_not_found_lists_every_name_and_materialises_none() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.define(Unit::never(&["foo"])).unwrap();
    let order = [(world.main.clone(), Visibility::All), (other, Visibility::All)];
    let requests = ["gone", "foo", "missing"].map(SymbolRequest::required);
    let error = world.session.lookup(&order, &requests, RequiredState::Ready).unwrap_err();
    match error.kind() {
        ErrorKind::SymbolsNotFound { symbols, searched, .. } => {
            assert_eq!(symbols, &["gone", "missing"]);
            assert_eq!(searched, &["main", "other"]);
        }
        other => panic!("{other}"),
    }
    assert_eq!(world.main.symbol_state("foo"), Some(SymbolState::NeverSearched));
}

#[test]
fn a_side_effects_only_symbol_is_found_without_an_address() {
    let world = World::new();
    let (unit, held) = Unit::held_with(&[("init", EXPORTED | SymbolFlags::SIDE_EFFECTS_ONLY)]);
    world.main.define(unit).unwrap();
    let answer = world.ask(&["init"], RequiredState::Ready);
    let r = held.take();
    r.notify_resolved(|_| panic!("it has no address to be asked for")).unwrap();
    assert!(answer.is_pending());
    r.notify_emitted(Vec::new()).unwrap();
    assert_eq!(answer.results()[0].address, ExecutorAddr::NULL);
}

#[test]
fn a_side_effects_only_symbol_may_be_emitted_without_resolving() {
    let world = World::new();
    let flags = EXPORTED | SymbolFlags::SIDE_EFFECTS_ONLY;
    for request in [SymbolRequest::weak("init"), SymbolRequest::required("init")] {
        world.main.define(Unit::new(&[("init", flags)], |r| r.notify_emitted(Vec::new()).unwrap())).unwrap();
        let found = world.main.lookup(&[request], RequiredState::Ready).unwrap();
        assert_eq!((found[0].address, found[0].flags), (ExecutorAddr::NULL, flags));
        world.main.clear().unwrap();
    }
}

#[test]
fn an_absolute_symbol_is_ready_at_once_and_gives_nothing_to_depend_on() {
    let world = World::new();
    world.main.define_absolute([(Name::new("abs"), address(0x99), EXPORTED)]).unwrap();
    assert_eq!(world.main.symbol_state("abs"), Some(SymbolState::Ready));
    let found = world.ask(&["abs"], RequiredState::Ready).results();
    assert_eq!(found[0].address, address(0x99));
    assert!(found[0].flags.contains(SymbolFlags::ABSOLUTE) && found[0].symbol.is_none());
}

#[test]
fn a_responsibility_says_what_it_owes_and_where() {
    let world = World::new();
    let tracker = world.tracker();
    let (unit, held) = Unit::held(&["foo", "bar"]);
    tracker.define(unit).unwrap();
    let answer = world.ask(&["foo"], RequiredState::Ready);
    let r = held.take();
    let names: Vec<_> = r.symbols().iter().map(|owed| owed.name.to_string()).collect();
    assert_eq!(names, ["foo", "bar"]);
    assert_eq!(r.dylib(), world.main);
    assert_eq!(r.tracker().key(), tracker.key());
    assert_eq!(r.unit_name(), "unit of foo");
    finish(r, 1);
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn a_responsibility_looks_up_in_the_search_order_and_an_error_names_its_unit() {
    let world = World::new();
    let library = world.session.create_dylib("library").unwrap();
    world.main.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]);
    world.main.define_absolute([(Name::new("own"), address(1), SymbolFlags::NONE)]).unwrap();
    library.define_absolute([(Name::new("puts"), address(2), EXPORTED)]).unwrap();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let foo = world.ask(&["foo"], RequiredState::Ready);
    let r = held.take();

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
    let world = World::new();
    let (session, main) = (world.session.clone(), world.main.clone());
    world.main.define(Unit::ready(&["bar"], 2)).unwrap();
    world
        .main
        .define(Unit::exported(&["foo"], move |r| {
            let bar = find_in(&session, &[&main], "bar").unwrap();
            finish(r, bar + 1);
        }))
        .unwrap();
    assert_eq!(world.find("foo").unwrap(), 3);
}

#[test]
fn a_chain_of_ten_thousand_units_is_walked_without_recursion() {
    const LENGTH: u64 = sized(10_000, 10);
    let world = World::new();
    for i in 0..LENGTH {
        let next = format!("f{}", i + 1);
        let dependencies: &[&str] = if i + 1 < LENGTH { &[&next] } else { &[] };
        let unit = Unit::depending(&format!("f{i}"), dependencies, &world.books, i);
        world.main.define(unit).unwrap();
    }
    assert_eq!(world.find("f0").unwrap(), 0);
    assert_eq!(world.main.symbol_state(&format!("f{}", LENGTH - 1)), Some(SymbolState::Ready));
    world.main.clear().unwrap();
    assert_eq!(world.books.take_given_back().len() as u64, LENGTH);
}

#[test]
fn a_blocking_lookup_is_served_by_a_materialisation_on_another_thread() {
    let world = World::new();
    let unit = Unit::exported(&["foo"], |r| {
        thread::spawn(move || finish(r, 0x10));
    });
    world.main.define(unit).unwrap();
    assert_eq!(world.find("foo").unwrap(), 0x10);
}

#[test]
fn many_threads_that_look_for_one_symbol_run_its_unit_once_and_agree() {
    let world = Arc::new(World::new());
    for round in 0..sized(50, 5) {
        let name = format!("foo{round}");
        world.main.define(Unit::ready(&[&name], round).logging(&world.log)).unwrap();
        let start = Arc::new(Barrier::new(4));
        let seekers: Vec<_> = (0..4)
            .map(|_| {
                let (world, start, name) = (world.clone(), start.clone(), name.clone());
                thread::spawn(move || {
                    start.wait();
                    world.find(&name).unwrap()
                })
            })
            .collect();
        assert!(seekers.into_iter().all(|seeker| seeker.join().unwrap() == round));
        assert_eq!(world.log.take().iter().filter(|event| event.starts_with("run")).count(), 1);
    }
}

#[test]
fn a_lookup_names_the_definitions_to_depend_on_whatever_their_state_and_dylib() {
    // ORC reports what is not ready only, so what is ready could go unnoticed in the middle of a link.
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let ready = world.loaded("ready", 1);
    let (unit, held) = Unit::held(&["resolved"]);
    world.main.define(unit).unwrap();
    let _resolved = world.ask(&["resolved"], RequiredState::Resolved);
    let r_resolved = held.take();
    r_resolved.notify_resolved(|_| Some(address(2))).unwrap();
    let waiting = other.create_tracker().unwrap();
    other.set_link_order(&[(world.main.clone(), Visibility::ExportedOnly)]);
    waiting.define(Unit::depending("waiting", &["resolved"], &world.books, 3)).unwrap();
    world.main.define_absolute([(Name::new("absolute"), address(4), EXPORTED)]).unwrap();
    world.main.set_link_order(&[(other.clone(), Visibility::ExportedOnly)]);

    let user = world.tracker();
    let names = ["ready", "resolved", "waiting", "absolute"];
    user.define(Unit::depending("user", &names, &world.books, 5)).unwrap();
    let found = Arc::new(std::sync::Mutex::new(Vec::new()));
    let filled = found.clone();
    world.session.lookup_then(
        &world.main.search_order(),
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

    let answer = world.ask(&["user"], RequiredState::Ready);
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
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    world.main.define(Unit::ready(&["required"], 1)).unwrap();
    world.main.define(Unit::new(&[("hidden", SymbolFlags::NONE)], |r| finish(r, 2))).unwrap();
    other.define(Unit::new(&[("hidden", EXPORTED), ("weak", weak())], |r| finish(r, 3))).unwrap();
    let order = [(world.main.clone(), Visibility::ExportedOnly), (other.clone(), Visibility::All)];
    let mut requests = vec![
        SymbolRequest::required("required"),
        SymbolRequest::required("hidden"),
        SymbolRequest::weak("weak"),
        SymbolRequest::weak("absent"),
    ];
    let found = world.session.lookup(&order, &requests, RequiredState::Ready).unwrap();
    assert_eq!(found.iter().map(|result| result.address.value()).collect::<Vec<_>>(), [1, 3, 3, 0]);
    requests.push(SymbolRequest::required("missing"));
    let error = world.session.lookup(&order, &requests, RequiredState::Ready).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::SymbolsNotFound { symbols, .. } if symbols == &["missing"]), "{error}");
}
