//! Lookups that a generator captures: resumed, failed, dropped, queued (ORC: CoreAPIsTest).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;

use jittison::base::Name;
use jittison::error::{Error, ErrorKind, Result};
use jittison::session::*;

use crate::support::*;

/// Captures every lookup and keeps it with its names.
#[derive(Default)]
struct CapturingGenerator {
    captured_lookups: Mutex<Vec<(Vec<String>, SuspendedLookup)>>,
}

impl CapturingGenerator {
    fn on(dylib: &JitDylib) -> Arc<CapturingGenerator> {
        let generator = Arc::new(CapturingGenerator::default());
        dylib.add_generator(generator.clone());
        generator
    }

    fn asked(&self) -> Vec<Vec<String>> {
        self.captured_lookups.lock().unwrap().iter().map(|(names, _)| names.clone()).collect()
    }

    fn take(&self) -> SuspendedLookup {
        self.captured_lookups.lock().unwrap().remove(0).1
    }
}

impl DefinitionGenerator for CapturingGenerator {
    fn generate_or_suspend(&self, _: &JitDylib, missing: &[SymbolRequest<'_>], suspension: &Suspension) -> Result<()> {
        if let Some(captured) = suspension.capture() {
            assert!(suspension.capture().is_none(), "captured once");
            self.captured_lookups
                .lock()
                .unwrap()
                .push((names_of(missing).into_iter().map(str::to_string).collect(), captured));
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
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    assert!(answer.is_pending());
    assert_eq!(generator.asked(), [["foo"]]);
    absolute(&fixture.main, "foo", 1);
    generator.take().resume(Ok(()));
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn a_lookup_resumed_without_its_name_continues_with_the_next_generator_and_dylib() {
    let fixture = Fixture::new();
    let other = fixture.session.create_dylib("other").unwrap();
    let (first, second) = (CapturingGenerator::on(&fixture.main), CapturingGenerator::on(&fixture.main));
    absolute(&other, "foo", 7);
    let order = [(fixture.main.clone(), Visibility::All), (other, Visibility::All)];
    let answer = Answer::default();
    let request = [SymbolRequest::required("foo")];
    fixture.session.lookup_then(&order, &request, RequiredState::Ready, answer.callback());
    first.take().resume(Ok(()));
    assert_eq!((first.asked().len(), second.asked().len()), (0, 1));
    second.take().resume(Ok(()));
    assert_eq!(answer.addresses(), [7]);
}

#[test]
fn resuming_with_an_error_or_dropping_fails_the_lookup() {
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    let (failed, dropped) =
        (fixture.look_up(&["foo"], RequiredState::Ready), fixture.look_up(&["bar"], RequiredState::Ready));
    generator.take().resume(Err(Error::other("archive is gone")));
    assert_eq!(failed.error().to_string(), "archive is gone");
    drop(generator.take());
    assert_abandoned(&dropped.error());
}

#[test]
fn a_second_lookup_waits_behind_the_first_and_each_may_fail_in_turn() {
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    let answers = ["foo", "bar", "baz"].map(|name| fixture.look_up(&[name], RequiredState::Ready));
    assert_eq!(generator.asked(), [["foo"]]);
    for (i, name) in ["foo", "bar", "baz"].iter().enumerate() {
        assert!(answers[i..].iter().all(Answer::is_pending));
        generator.take().resume(Err(Error::other(*name)));
        assert_eq!(answers[i].error().to_string(), *name);
    }
}

#[test]
fn lookups_queued_behind_a_captured_one_continue_in_turn_until_one_is_captured() {
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    let answers = ["foo", "bar", "foo", "baz"].map(|name| fixture.look_up(&[name], RequiredState::Ready));
    absolute(&fixture.main, "foo", 1);
    absolute(&fixture.main, "bar", 2);
    generator.take().resume(Ok(()));
    assert_eq!((answers[0].addresses(), answers[1].addresses(), answers[2].addresses()), (vec![1], vec![2], vec![1]));
    assert_eq!(generator.asked(), [["baz"]]);
    assert!(answers[3].is_pending());
    generator.take().resume(Ok(()));
    assert_not_found::<()>(Err(answers[3].error()));
}

#[test]
fn defined_names_are_found_while_a_generator_holds_a_captured_lookup() {
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    absolute(&fixture.main, "bar", 2);
    assert_eq!(fixture.find("bar").unwrap(), 2);
    drop(generator.take());
    assert_abandoned(&answer.error());
}

#[test]
fn a_blocking_lookup_is_resumed_from_another_thread() {
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    thread::scope(|scope| {
        scope.spawn(|| {
            while generator.asked().is_empty() {
                thread::yield_now();
            }
            fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
            generator.take().resume(Ok(()));
        });
        assert_eq!(fixture.find("foo").unwrap(), 1);
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
    let fixture = Fixture::new();
    fixture.main.add_generator(Arc::new(AtOnce));
    for i in 0..sized(100, 5) {
        assert_eq!(fixture.find(&format!("foo{i}")).unwrap(), 1);
    }
}

#[test]
fn a_lookup_fails_with_the_error_of_the_generator_that_captured_it() {
    // Symptom: the captured lookup was dropped and reported that it was abandoned, and the error was lost.
    struct Fails;
    impl DefinitionGenerator for Fails {
        fn generate_or_suspend(&self, _: &JitDylib, _: &[SymbolRequest<'_>], suspension: &Suspension) -> Result<()> {
            let _captured = suspension.capture();
            Err(Error::other("no archive"))
        }
    }
    let fixture = Fixture::new();
    fixture.main.add_generator(Arc::new(Fails));
    for _ in 0..2 {
        assert_eq!(fixture.find("foo").unwrap_err().to_string(), "no archive");
    }
}

#[test]
fn a_generator_that_captures_and_panics_does_not_block_later_lookups() {
    // Symptom: the generator counted as holding the lookup, and all later lookups stayed queued.
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
    let fixture = Fixture::new();
    fixture.main.add_generator(Arc::new(Panics(Mutex::new(true))));
    assert!(catch_unwind(AssertUnwindSafe(|| fixture.look_up(&["foo"], RequiredState::Ready))).is_err());
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    assert_not_found::<()>(Err(answer.error()));
}

#[test]
fn a_flags_lookup_does_not_wait_for_a_generator_that_would_suspend() {
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    let order = [(fixture.main.clone(), Visibility::All)];
    let found = fixture.session.lookup_flags(&order, &[SymbolRequest::weak("foo")]).unwrap();
    assert_eq!(found, [None]);
    assert!(generator.asked().is_empty());
}

#[test]
fn removing_a_generator_fails_queued_lookups_and_not_the_captured_one() {
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    let as_dyn: Arc<dyn DefinitionGenerator> = generator.clone();
    let (captured, queued) =
        (fixture.look_up(&["foo"], RequiredState::Ready), fixture.look_up(&["bar"], RequiredState::Ready));
    assert!(fixture.main.remove_generator(&as_dyn));
    assert!(!fixture.main.remove_generator(&as_dyn));
    assert_abandoned(&queued.error());
    assert!(captured.is_pending());
    absolute(&fixture.main, "foo", 1);
    generator.take().resume(Ok(()));
    assert_eq!(captured.addresses(), [1]);
    assert_not_found(fixture.find("baz"));
}

#[test]
fn no_generator_is_skipped_when_an_earlier_one_is_removed_meanwhile() {
    // Symptom: the next generator moved to the position of the removed one and was skipped.
    let fixture = Fixture::new();
    let (first, second) = (CapturingGenerator::on(&fixture.main), CapturingGenerator::on(&fixture.main));
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    let captured = first.take();
    assert!(fixture.main.remove_generator(&(first as Arc<dyn DefinitionGenerator>)));
    captured.resume(Ok(()));
    assert_eq!(second.asked(), [["foo"]]);
    absolute(&fixture.main, "foo", 1);
    second.take().resume(Ok(()));
    assert_eq!(answer.addresses(), [1]);
}

#[test]
fn removing_a_dylib_fails_queued_lookups_at_once_and_captured_ones_when_resumed() {
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    let (captured, queued) =
        (fixture.look_up(&["foo"], RequiredState::Ready), fixture.look_up(&["bar"], RequiredState::Ready));
    fixture.session.remove_dylib(&fixture.main).unwrap();
    assert_abandoned(&queued.error());
    generator.take().resume(Ok(()));
    assert!(matches!(captured.error().kind(), ErrorKind::DylibDefunct { .. }));
}

#[test]
fn a_weakly_requested_symbol_that_is_removed_during_the_search_is_not_an_error() {
    // Symptom: the lookup failed because of a weakly requested name.
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    let tracker = fixture.tracker();
    tracker.define(Unit::never(&["foo"])).unwrap();
    let requests = [SymbolRequest::weak("foo"), SymbolRequest::required("bar")];
    let answer = Answer::default();
    let order = [(fixture.main.clone(), Visibility::All)];
    fixture.session.lookup_then(&order, &requests, RequiredState::Ready, answer.callback());
    tracker.remove().unwrap();
    absolute(&fixture.main, "bar", 2);
    generator.take().resume(Ok(()));
    assert_eq!(answer.addresses(), [0, 2]);
}

#[test]
fn lookups_from_many_threads_all_end_behind_one_slow_generator() {
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    let done = std::sync::atomic::AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (fixture, done) = (&fixture, &done);
            scope.spawn(move || {
                for i in 0..sized(200, 5) {
                    assert_not_found(fixture.find(&format!("name{thread}.{i}")));
                }
                done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        while done.load(std::sync::atomic::Ordering::SeqCst) < 4 {
            let next = generator.captured_lookups.lock().unwrap().pop();
            match next {
                Some((_, captured)) => captured.resume(Ok(())),
                None => thread::yield_now(),
            }
        }
    });
}

#[test]
fn the_callback_of_a_lookup_whose_generator_was_removed_may_call_the_session() {
    // The callback is called with no lock held, whether the generator is removed alone or with its dylib.
    for is_alone in [true, false] {
        let fixture = Fixture::new();
        let generator = CapturingGenerator::on(&fixture.main);
        let _captured = fixture.look_up(&["captured"], RequiredState::Ready);
        let (answered, main) = (Arc::new(Mutex::new(None)), fixture.main.clone());
        let recorder = answered.clone();
        let order = [(fixture.main.clone(), Visibility::All)];
        let requests = [SymbolRequest::required("queued")];
        fixture.session.lookup_then(&order, &requests, RequiredState::Ready, move |found| {
            assert_abandoned(&found.unwrap_err());
            *recorder.lock().unwrap() = Some(main.symbol_count());
        });
        if is_alone {
            let generator: Arc<dyn DefinitionGenerator> = generator.clone();
            assert!(fixture.main.remove_generator(&generator));
        } else {
            fixture.session.remove_dylib(&fixture.main).unwrap();
        }
        assert_eq!(*answered.lock().unwrap(), Some(0));
    }
}

/// Captures the first lookup that calls it, and panics in the second call.
#[derive(Default)]
struct CapturesThenPanics {
    captured: Mutex<Option<SuspendedLookup>>,
    calls: Mutex<usize>,
}

impl DefinitionGenerator for CapturesThenPanics {
    fn generate_or_suspend(&self, _: &JitDylib, _: &[SymbolRequest<'_>], suspension: &Suspension) -> Result<()> {
        let call = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls
        };
        match call {
            1 => *self.captured.lock().unwrap() = suspension.capture(),
            2 => panic!("a bug in a generator"),
            _ => {}
        }
        Ok(())
    }
}

#[test]
fn a_generator_that_panics_in_a_resumed_search_fails_that_lookup_and_no_other() {
    // Symptom: the lookup, and all lookups that were queued behind it, were never answered.
    let fixture = Fixture::new();
    let generator = Arc::new(CapturesThenPanics::default());
    fixture.main.add_generator(generator.clone());
    let [captured, panicking, behind] =
        ["foo", "bar", "baz"].map(|name| fixture.look_up(&[name], RequiredState::Ready));
    let resumed = generator.captured.lock().unwrap().take().unwrap();
    catch_unwind(AssertUnwindSafe(|| resumed.resume(Ok(())))).expect("the lookup has the panic");
    assert_not_found::<()>(Err(captured.error()));
    let text = panicking.error().to_string();
    assert!(text.contains("`main`") && text.contains("a bug in a generator"), "{text}");
    assert_not_found::<()>(Err(behind.error()));
}

#[test]
fn a_second_generator_that_panics_in_a_resumed_search_fails_the_lookup() {
    let fixture = Fixture::new();
    let first = CapturingGenerator::on(&fixture.main);
    let second = Arc::new(CapturesThenPanics { calls: Mutex::new(1), ..CapturesThenPanics::default() });
    fixture.main.add_generator(second);
    let answer = fixture.look_up(&["foo"], RequiredState::Ready);
    first.take().resume(Ok(()));
    assert!(answer.error().to_string().contains("a bug in a generator"), "{}", answer.error());
}

#[test]
fn a_captured_lookup_that_is_dropped_while_its_thread_unwinds_does_not_abort() {
    let fixture = Fixture::new();
    let generator = CapturingGenerator::on(&fixture.main);
    let [captured, panicking, behind] =
        ["foo", "bar", "baz"].map(|name| fixture.look_up(&[name], RequiredState::Ready));
    fixture.main.define(Unit::exported(&["bar"], |_| panic!("a bug in a unit"))).unwrap();
    absolute(&fixture.main, "baz", 3);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _dropped = generator.take();
        panic!("outer");
    }));
    assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&"outer"));
    assert_abandoned(&captured.error());
    assert_eq!(failed_symbols(&panicking.error()), ["bar"]);
    assert_eq!(behind.addresses(), [3]);
}
