//! Lookups that a generator captures: resumed, failed, dropped, queued behind one another (ORC: CoreAPIsTest).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use jittison::base::Name;
use jittison::error::{Error, ErrorKind, Result};
use jittison::session::*;

use crate::support::*;

/// Captures every lookup and keeps it with the names that it was asked for.
#[derive(Default)]
struct Captures {
    held: Mutex<Vec<(Vec<String>, SuspendedLookup)>>,
}

impl Captures {
    fn on(dylib: &JitDylib) -> Arc<Captures> {
        let generator = Arc::new(Captures::default());
        dylib.add_generator(generator.clone());
        generator
    }

    fn asked(&self) -> Vec<Vec<String>> {
        self.held.lock().unwrap().iter().map(|(names, _)| names.clone()).collect()
    }

    fn take(&self) -> SuspendedLookup {
        self.held.lock().unwrap().remove(0).1
    }
}

impl DefinitionGenerator for Captures {
    fn generate_or_suspend(&self, _: &JitDylib, missing: &[SymbolRequest<'_>], suspension: &Suspension) -> Result<()> {
        if let Some(captured) = suspension.capture() {
            assert!(suspension.capture().is_none(), "captured once");
            self.held.lock().unwrap().push((names_of(missing).into_iter().map(str::to_string).collect(), captured));
        }
        Ok(())
    }
}

fn absolute(dylib: &JitDylib, name: &str, value: u64) {
    dylib.define_absolute([(Name::new(name), address(value), EXPORTED)]).unwrap();
}

#[track_caller]
fn assert_abandoned(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::LookupAbandoned { .. }), "{error}");
}

#[test]
fn a_captured_lookup_completes_when_it_is_resumed() {
    let world = World::new();
    let generator = Captures::on(&world.main);
    let answer = world.ask(&["foo"], RequiredState::Ready);
    assert!(answer.is_pending());
    assert_eq!(generator.asked(), [["foo"]]);
    absolute(&world.main, "foo", 1);
    generator.take().resume(Ok(()));
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn a_lookup_that_is_resumed_without_its_name_goes_on_to_the_next_generator_and_dylib() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let (first, second) = (Captures::on(&world.main), Captures::on(&world.main));
    absolute(&other, "foo", 7);
    let order = [(world.main.clone(), Visibility::All), (other, Visibility::All)];
    let answer = Answer::default();
    let request = [SymbolRequest::required("foo")];
    world.session.lookup_then(&order, &request, RequiredState::Ready, answer.callback());
    first.take().resume(Ok(()));
    assert_eq!((first.asked().len(), second.asked().len()), (0, 1));
    second.take().resume(Ok(()));
    assert_eq!(answer.addresses(), [7]);
}

#[test]
fn resuming_with_an_error_or_dropping_fails_the_lookup() {
    let world = World::new();
    let generator = Captures::on(&world.main);
    let (failed, dropped) = (world.ask(&["foo"], RequiredState::Ready), world.ask(&["bar"], RequiredState::Ready));
    generator.take().resume(Err(Error::other("archive is gone")));
    assert_eq!(failed.error().to_string(), "archive is gone");
    drop(generator.take());
    assert_abandoned(&dropped.error());
}

#[test]
fn a_second_lookup_waits_behind_the_first_and_each_may_fail_in_turn() {
    let world = World::new();
    let generator = Captures::on(&world.main);
    let answers = ["foo", "bar", "baz"].map(|name| world.ask(&[name], RequiredState::Ready));
    assert_eq!(generator.asked(), [["foo"]]);
    for (i, name) in ["foo", "bar", "baz"].iter().enumerate() {
        assert!(answers[i..].iter().all(Answer::is_pending));
        generator.take().resume(Err(Error::other(*name)));
        assert_eq!(answers[i].error().to_string(), *name);
    }
}

#[test]
fn lookups_behind_a_captured_one_go_on_one_by_one_those_too_that_need_no_generation_any_more() {
    let world = World::new();
    let generator = Captures::on(&world.main);
    let answers = ["foo", "bar", "foo", "baz"].map(|name| world.ask(&[name], RequiredState::Ready));
    absolute(&world.main, "foo", 1);
    absolute(&world.main, "bar", 2);
    generator.take().resume(Ok(()));
    assert_eq!((answers[0].addresses(), answers[1].addresses(), answers[2].addresses()), (vec![1], vec![2], vec![1]));
    assert_eq!(generator.asked(), [["baz"]]);
    assert!(answers[3].is_pending());
    generator.take().resume(Ok(()));
    assert_not_found::<()>(Err(answers[3].error()));
}

#[test]
fn names_that_are_defined_pass_by_a_generator_that_has_captured() {
    let world = World::new();
    let generator = Captures::on(&world.main);
    let answer = world.ask(&["foo"], RequiredState::Ready);
    absolute(&world.main, "bar", 2);
    assert_eq!(world.find("bar").unwrap(), 2);
    drop(generator.take());
    assert_abandoned(&answer.error());
}

#[test]
fn a_blocking_lookup_is_resumed_from_another_thread() {
    let world = World::new();
    let generator = Captures::on(&world.main);
    thread::scope(|scope| {
        scope.spawn(|| {
            while generator.asked().is_empty() {
                thread::yield_now();
            }
            world.main.define(Unit::ready(&["foo"], 1)).unwrap();
            generator.take().resume(Ok(()));
        });
        assert_eq!(world.find("foo").unwrap(), 1);
    });
}

#[test]
fn a_lookup_may_be_resumed_before_its_generator_returns() {
    struct AtOnce;
    impl DefinitionGenerator for AtOnce {
        fn generate_or_suspend(
            &self,
            dylib: &JitDylib,
            missing: &[SymbolRequest<'_>],
            suspension: &Suspension,
        ) -> Result<()> {
            let captured = suspension.capture().expect("not captured yet");
            absolute(dylib, missing[0].name, 1);
            captured.resume(Ok(()));
            Ok(())
        }
    }
    let world = World::new();
    world.main.add_generator(Arc::new(AtOnce));
    for i in 0..sized(100, 5) {
        assert_eq!(world.find(&format!("foo{i}")).unwrap(), 1);
    }
}

#[test]
fn the_error_of_a_generator_that_captures_and_fails_is_the_lookups() {
    // The captured lookup, dropped on the way out, said that it had been abandoned, and the reason was lost.
    struct Fails;
    impl DefinitionGenerator for Fails {
        fn generate_or_suspend(&self, _: &JitDylib, _: &[SymbolRequest<'_>], suspension: &Suspension) -> Result<()> {
            let _captured = suspension.capture();
            Err(Error::other("no archive"))
        }
    }
    let world = World::new();
    world.main.add_generator(Arc::new(Fails));
    for _ in 0..2 {
        assert_eq!(world.find("foo").unwrap_err().to_string(), "no archive");
    }
}

#[test]
fn a_generator_that_captures_and_panics_does_not_block_those_behind_it() {
    // It was taken to have the lookup still: every later one queued up for ever.
    struct Panics(Mutex<bool>);
    impl DefinitionGenerator for Panics {
        fn generate_or_suspend(&self, _: &JitDylib, _: &[SymbolRequest<'_>], suspension: &Suspension) -> Result<()> {
            if std::mem::take(&mut *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())) {
                let _captured = suspension.capture();
                panic!("generator");
            }
            Ok(())
        }
    }
    let world = World::new();
    world.main.add_generator(Arc::new(Panics(Mutex::new(true))));
    assert!(catch_unwind(AssertUnwindSafe(|| world.ask(&["foo"], RequiredState::Ready))).is_err());
    let answer = world.ask(&["foo"], RequiredState::Ready);
    assert_not_found::<()>(Err(answer.error()));
}

#[test]
fn flags_do_not_wait_for_a_generator_that_would_suspend() {
    let world = World::new();
    let generator = Captures::on(&world.main);
    let order = [(world.main.clone(), Visibility::All)];
    let found = world.session.lookup_flags(&order, &[SymbolRequest::weak("foo")]).unwrap();
    assert_eq!(found, [None]);
    assert!(generator.asked().is_empty());
}

#[test]
fn removing_a_generator_fails_those_that_wait_for_it_and_not_the_one_that_it_has() {
    let world = World::new();
    let generator = Captures::on(&world.main);
    let as_dyn: Arc<dyn DefinitionGenerator> = generator.clone();
    let (captured, queued) = (world.ask(&["foo"], RequiredState::Ready), world.ask(&["bar"], RequiredState::Ready));
    assert!(world.main.remove_generator(&as_dyn));
    assert!(!world.main.remove_generator(&as_dyn));
    assert_abandoned(&queued.error());
    assert!(captured.is_pending());
    absolute(&world.main, "foo", 1);
    generator.take().resume(Ok(()));
    assert_eq!(captured.addresses(), [1]);
    assert_not_found(world.find("baz"));
}

#[test]
fn no_generator_is_passed_over_when_one_before_it_is_removed_meanwhile() {
    // Its successor moved into its place, and was taken for one that had been asked.
    let world = World::new();
    let (first, second) = (Captures::on(&world.main), Captures::on(&world.main));
    let answer = world.ask(&["foo"], RequiredState::Ready);
    let captured = first.take();
    assert!(world.main.remove_generator(&(first as Arc<dyn DefinitionGenerator>)));
    captured.resume(Ok(()));
    assert_eq!(second.asked(), [["foo"]]);
    absolute(&world.main, "foo", 1);
    second.take().resume(Ok(()));
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn a_dylib_that_is_removed_fails_the_queued_now_and_the_captured_when_it_is_resumed() {
    let world = World::new();
    let generator = Captures::on(&world.main);
    let (captured, queued) = (world.ask(&["foo"], RequiredState::Ready), world.ask(&["bar"], RequiredState::Ready));
    world.session.remove_dylib(&world.main).unwrap();
    assert_abandoned(&queued.error());
    generator.take().resume(Ok(()));
    assert!(matches!(captured.error().kind(), ErrorKind::DylibDefunct { .. }));
}

#[test]
fn a_weakly_requested_symbol_that_vanishes_during_the_search_is_not_an_error() {
    // The lookup failed with a name that it could have done without.
    let world = World::new();
    let generator = Captures::on(&world.main);
    let tracker = world.tracker();
    tracker.define(Unit::never(&["foo"])).unwrap();
    let requests = [SymbolRequest::weak("foo"), SymbolRequest::required("bar")];
    let answer = Answer::default();
    let order = [(world.main.clone(), Visibility::All)];
    world.session.lookup_then(&order, &requests, RequiredState::Ready, answer.callback());
    tracker.remove().unwrap();
    absolute(&world.main, "bar", 2);
    generator.take().resume(Ok(()));
    assert_eq!(answer.addresses(), [0, 2]);
}

#[test]
fn lookups_from_many_threads_all_come_to_an_end_behind_one_slow_generator() {
    let world = World::new();
    let generator = Captures::on(&world.main);
    let done = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (world, done) = (&world, &done);
            scope.spawn(move || {
                for i in 0..sized(200, 5) {
                    assert_not_found(world.find(&format!("name{thread}.{i}")));
                }
                done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        while done.load(std::sync::atomic::Ordering::SeqCst) < 4 {
            let next = generator.held.lock().unwrap().pop();
            match next {
                Some((_, captured)) => captured.resume(Ok(())),
                None => thread::yield_now(),
            }
        }
    });
}

#[test]
fn whoever_is_told_that_its_generator_was_removed_may_call_the_session() {
    // Called under no lock, whether the generator goes alone or with its dylib.
    for is_alone in [true, false] {
        let world = World::new();
        let generator = Captures::on(&world.main);
        let _captured = world.ask(&["captured"], RequiredState::Ready);
        let (told, main) = (Arc::new(Mutex::new(None)), world.main.clone());
        let tell = told.clone();
        let order = [(world.main.clone(), Visibility::All)];
        let requests = [SymbolRequest::required("queued")];
        world.session.lookup_then(&order, &requests, RequiredState::Ready, move |found| {
            assert_abandoned(&found.unwrap_err());
            *tell.lock().unwrap() = Some(main.symbol_count());
        });
        if is_alone {
            let generator: Arc<dyn DefinitionGenerator> = generator.clone();
            assert!(world.main.remove_generator(&generator));
        } else {
            world.session.remove_dylib(&world.main).unwrap();
        }
        assert_eq!(*told.lock().unwrap(), Some(0));
    }
}
