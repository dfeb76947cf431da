//! The first cause of a cascade reaches every error that follows from it: of lookups that wait, of lookups that come later, of code
//! that was linked against what failed, and of removals during a link.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use jittison::base::Name;
use jittison::session::*;
use jittison::{Error, ErrorKind};

use crate::support::*;

fn fails(name: &str, cause: &'static str) -> Unit {
    Unit::exported(&[name], move |r| r.fail(Error::other(cause)))
}

#[track_caller]
fn assert_cause(error: &Error, cause: &str) {
    assert_eq!(error.root_cause().to_string(), cause, "{error}");
    assert_eq!(error.to_string().matches(cause).count(), 1, "{error}");
}

#[test]
fn a_lookup_names_the_chain_to_the_first_cause() {
    let fixture = Fixture::new();
    for (name, needs) in [("a", "b"), ("b", "c")] {
        fixture.main.define(Unit::depending(name, &[needs], &fixture.manager, 1)).unwrap();
    }
    fixture.main.define(fails("c", "no c")).unwrap();
    let error = fixture.find("a").unwrap_err();
    assert_eq!(error.to_string(), "failed to materialize `a` in dylib `main`, which needs `b`, which needs `c`: no c");
    assert_cause(&error, "no c");
}

#[test]
fn code_that_was_linked_against_a_symbol_and_waits_for_it_gets_the_cause_and_the_chain() {
    let fixture = Fixture::new();
    let library = fixture.session.create_dylib("library").unwrap();
    fixture.main.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
    let (unit, held) = Unit::held(&["other", "c"]);
    library.define(unit).unwrap();
    for (name, needs) in [("b", "c"), ("a", "b")] {
        fixture.main.define(Unit::depending(name, &[needs], &fixture.manager, 1)).unwrap();
    }
    let answers = ["a", "b"].map(|name| fixture.look_up(&[name], RequiredState::Ready));
    let r = held.take();
    r.notify_resolved(|_| Some(address(8))).unwrap();
    assert_eq!(fixture.states(&["a", "b"]), [EMITTED; 2]);
    r.fail(Error::other("no c"));
    let texts = answers.map(|answer| answer.error().to_string());
    assert_eq!(
        texts,
        [
            "failed to materialize `a` in dylib `main`, which needs `b`, which needs `c` of dylib `library`: no c",
            "failed to materialize `b` in dylib `main`, which needs `c` of dylib `library`: no c"
        ]
    );
}

#[test]
fn code_that_is_emitted_after_its_dependency_has_failed_gets_the_cause() {
    let fixture = Fixture::new();
    let (r_b, _) = fixture.claim(&["b"], RequiredState::Ready);
    r_b.notify_resolved(|_| Some(address(2))).unwrap();
    let references = fixture.references(&["b"]);
    r_b.fail(Error::other("no b"));
    let (r_a, answer) = fixture.claim(&["a"], RequiredState::Ready);
    r_a.notify_resolved(|_| Some(address(1))).unwrap();
    let refused = r_a.notify_emitted(references.clone()).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::DependencyRemoved { symbol, .. } if symbol == "b"), "{refused}");
    for error in [refused, answer.error()] {
        assert_cause(&error, "no b");
    }
    assert_eq!(answer.error().to_string(), "failed to materialize `a` in dylib `main`, which needs `b`: no b");
    // A dependant that is recorded by hand gets it, too.
    let user = fixture.loaded("user", 1);
    let pin = fixture.main.pin("user").unwrap().1;
    assert_cause(&pin.add_dependency(&references[0]).unwrap_err(), "no b");
    drop(pin);
    user.remove().unwrap();
}

#[test]
fn a_lookup_after_the_failure_gets_the_cause_until_the_name_is_defined_again() {
    let fixture = Fixture::new();
    fixture.main.define(fails("c", "no c")).unwrap();
    fixture.find("c").unwrap_err();
    let later = fixture.find("c").unwrap_err();
    let ErrorKind::SymbolsNotFound { symbols, failed, .. } = later.kind() else { panic!("{later}") };
    assert_eq!((symbols.len(), failed.len(), failed[0].symbol()), (1, 1, "c"));
    assert_cause(&later, "no c");
    fixture.main.define(Unit::depending("user", &["c"], &fixture.manager, 1)).unwrap();
    let error = fixture.find("user").unwrap_err();
    assert_eq!(error.to_string(), "failed to materialize `user` in dylib `main`, which needs `c`: no c");

    let mixed = fixture.look_up(&["absent", "c"], RequiredState::Ready).error();
    assert_eq!(mixed.root_cause().to_string(), mixed.to_string(), "a name that never was is a cause of its own");
    assert!(mixed.to_string().contains("no c"), "{mixed}");

    let again = fixture.loaded("c", 3);
    again.remove().unwrap();
    let absent = fixture.find("c").unwrap_err();
    let ErrorKind::SymbolsNotFound { failed, .. } = absent.kind() else { panic!("{absent}") };
    assert!(failed.is_empty(), "{absent}");
}

#[test]
fn a_hidden_symbol_that_failed_is_no_cause_for_a_dylib_that_does_not_see_it() {
    let fixture = Fixture::new();
    let (unit, held) = Unit::held_with(&[("c", SymbolFlags::NONE)]);
    fixture.main.define(unit).unwrap();
    let answer = fixture.look_up(&["c"], RequiredState::Ready);
    held.take().fail(Error::other("no c"));
    assert_cause(&answer.error(), "no c");
    assert_cause(&fixture.look_up(&["c"], RequiredState::Ready).error(), "no c");
    let outside = fixture.find("c").unwrap_err();
    let ErrorKind::SymbolsNotFound { failed, .. } = outside.kind() else { panic!("{outside}") };
    assert!(failed.is_empty(), "{outside}");
}

#[test]
fn an_alias_and_a_reexport_of_a_failed_symbol_have_its_cause() {
    let fixture = Fixture::new();
    let user = fixture.session.create_dylib("user").unwrap();
    fixture.main.define(fails("c", "no c")).unwrap();
    let alias = |name| Alias { name: Name::new(name), aliasee: Name::new("c"), flags: EXPORTED };
    fixture.tracker().define_aliases(&[alias("alias")]).unwrap();
    user.create_tracker().unwrap().reexport(&fixture.main, &[alias("reexport")]).unwrap();
    let first = fixture.find("alias").unwrap_err();
    assert_eq!(first.to_string(), "failed to materialize `alias` in dylib `main`, which needs `c`: no c");
    let later = find_in(&fixture.session, &[&user], "reexport").unwrap_err();
    assert_eq!(
        later.to_string(),
        "failed to materialize `reexport` in dylib `user`, which needs `c` of dylib `main`: no c"
    );
}

#[test]
fn a_removal_during_a_link_is_named_with_its_method_and_thread() {
    type Remove = fn(&Fixture, &ResourceTracker, &JitDylib);
    let verbs: [(&str, Remove); 5] = [
        ("ResourceTracker::remove", |_, tracker, _| drop(tracker.remove().unwrap())),
        ("ResourceTracker::remove_cascade", |_, tracker, _| drop(tracker.remove_cascade().unwrap())),
        ("ResourceTracker::remove_all", |_, tracker, _| drop(ResourceTracker::remove_all([tracker]).unwrap())),
        ("JitDylib::clear", |_, _, dylib| drop(dylib.clear().unwrap())),
        ("ExecutionSession::remove_dylib", |fixture, _, dylib| {
            drop(fixture.session.remove_dylib(dylib).unwrap());
        }),
    ];
    for (verb, remove) in verbs {
        let fixture = Fixture::new();
        let library = fixture.session.create_dylib("library").unwrap();
        fixture.main.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
        let tracker = library.create_tracker().unwrap();
        let held = define_held_under(&tracker, &["c"]);
        fixture.main.define(Unit::depending("a", &["c"], &fixture.manager, 1)).unwrap();
        let waiting = fixture.look_up(&["a"], RequiredState::Ready);
        let r = held.take();
        r.notify_resolved(|_| Some(address(8))).unwrap();
        remove(&fixture, &tracker, &library);
        let own = r.with_resource_key(|_| ()).unwrap_err();
        for error in [waiting.error(), own, r.notify_emitted(Vec::new()).unwrap_err()] {
            let cause = error.root_cause();
            let ErrorKind::TrackerDefunct { dylib, removed_by, .. } = cause.kind() else { panic!("{verb}: {error}") };
            let removed_by = removed_by.as_deref().unwrap_or_default();
            assert!(removed_by.starts_with(&format!("`{verb}` on thread ")), "{verb}: {error}");
            assert_eq!(dylib, "library");
        }
        assert!(waiting.error().to_string().contains("`a` in dylib `main`, which needs `c` of dylib `library`"));
    }
}

#[test]
fn every_thread_that_looks_up_a_cascade_gets_its_first_cause() {
    let (threads, rounds) = (4, sized(300, 5));
    for round in 0..rounds {
        let worker_threads = if round % 2 == 0 { 0 } else { 2 };
        let fixture = Fixture::with_options(SessionOptions { worker_threads, ..SessionOptions::default() });
        let library = fixture.session.create_dylib("library").unwrap();
        fixture.main.set_link_order(&[(library.clone(), Visibility::ExportedOnly)]).unwrap();
        library.define(fails("d", "no d")).unwrap();
        library.define(Unit::depending("c", &["d"], &fixture.manager, 1)).unwrap();
        fixture.main.define(Unit::depending("b", &["c"], &fixture.manager, 1)).unwrap();
        for number in 0..threads {
            let (name, next) = (format!("a{number}"), format!("a{}", (number + 1) % threads));
            fixture.main.define(Unit::depending(&name, &["b", &next], &fixture.manager, 1)).unwrap();
        }
        thread::scope(|scope| {
            for number in 0..threads {
                let fixture = &fixture;
                scope.spawn(move || {
                    let error = fixture.find(&format!("a{number}")).unwrap_err();
                    assert_eq!(error.root_cause().to_string(), "no d", "{error}");
                    let error = fixture.find("b").unwrap_err();
                    assert_eq!(error.root_cause().to_string(), "no d", "{error}");
                });
            }
        });
    }
}

#[test]
fn a_cascade_of_many_units_has_short_errors_and_ends() {
    let count = sized(20_000, 50) as usize;
    let fixture = Fixture::new();
    let (mut responsibilities, names): (Vec<_>, Vec<_>) = (Vec::new(), (0..count).map(|n| format!("f{n}")).collect());
    for name in &names {
        responsibilities.push(fixture.claim(&[name], RequiredState::Resolved).0);
    }
    for r in &responsibilities {
        r.notify_resolved(|_| Some(address(8))).unwrap();
    }
    let references: Vec<_> = names.iter().map(|name| fixture.references(&[name])).collect();
    let mut responsibilities = responsibilities.into_iter();
    let first = responsibilities.next().unwrap();
    for (r, needed) in responsibilities.zip(references) {
        r.notify_emitted(needed).unwrap();
    }
    let answers = [1, count / 2, count - 1].map(|number| fixture.look_up(&[&names[number]], RequiredState::Ready));
    first.fail(Error::other("no f0"));
    for answer in answers {
        let error = answer.error();
        assert_cause(&error, "no f0");
        assert!(error.to_string().len() < 300, "{error}");
    }
    assert_eq!(fixture.main.symbol_count(), 0);
}

#[test]
fn the_reporter_gets_the_first_cause() {
    let (sender, reports) = mpsc::channel();
    let error_reporter: ErrorReporter = Arc::new(move |error: Error| sender.send(error).unwrap());
    let fixture =
        Fixture::with_options(SessionOptions { error_reporter: Some(error_reporter), ..SessionOptions::default() });
    let (r, answer) = fixture.claim(&["a"], RequiredState::Resolved);
    let (r_b, _) = fixture.claim(&["b"], RequiredState::Resolved);
    r_b.notify_resolved(|_| Some(address(2))).unwrap();
    let references = fixture.references(&["b"]);
    r_b.fail(Error::other("no b"));
    r.notify_resolved(|_| Some(address(1))).unwrap();
    assert_eq!(answer.addresses(), [1]);
    r.notify_emitted(references).unwrap_err();
    let reported: Vec<Error> = reports.try_iter().collect();
    assert_eq!(reported.len(), 2);
    reported.iter().for_each(|error| assert_cause(error, "no b"));
}
