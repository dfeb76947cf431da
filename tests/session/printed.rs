//! What a log says of the session's handles: each prints what it stands for, and never what it cannot.

use std::sync::mpsc::channel;

use jittison::base::ExecutorAddr;
use jittison::session::*;

use crate::support::*;

fn printed(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

#[test]
fn handles_print_what_they_stand_for() {
    let world = World::new();
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    assert_eq!(printed(&world.main), format!("dylib `{}`", world.main.name()));
    assert!(printed(&world.session).starts_with("session of [dylib `"), "{:?}", world.session);

    let tracker = world.loaded("bar", 2);
    let key = tracker.with_resource_key(|key| printed(&key)).unwrap();
    assert_eq!(printed(&tracker), format!("{key} of `{}`", world.main.name()));
    let pin = world.session.pin(&world.references(&["bar"])[0]).unwrap();
    assert_eq!(printed(&pin), format!("Pin({key})"));
    let guard = world.session.guard();
    assert!(printed(&guard).starts_with("guard of thread"), "{guard:?}");
    drop(guard);

    let removal = tracker.remove().unwrap();
    let held = printed(&removal);
    assert!(held.starts_with(&format!("removal of {key}: held by ")) && held.len() > 30, "{held}");
    drop(pin);
    assert_eq!(printed(&removal), format!("removal of {key}: complete"));
}

#[test]
fn lookups_print_how_far_they_are() {
    let world = World::new();
    let (unit, held) = Unit::held(&["foo"]);
    world.main.define(unit).unwrap();
    let mut address = ExecutorAddr::NULL;
    let parts = LookupAndApply::new().record(SymbolRequest::required("foo"), &mut address);
    assert_eq!(printed(&parts), "1 names to look up for 1 parts");
    drop(parts);
    let order = world.main.search_order();
    let future = world.session.lookup_async(&order, &[SymbolRequest::required("foo")], RequiredState::Ready);
    assert_eq!(printed(&future), "lookup under way");
    let responsibility = held.take();
    let owed = printed(&responsibility);
    assert!(owed.starts_with("responsibility of unit of foo for ") && owed.contains("foo\""), "{owed}");
    finish(responsibility, 1);
    assert_eq!(printed(&future), "lookup with its answer");

    let request = [SymbolRequest::required("foo")];
    let found = world.session.lookup(&order, &request, RequiredState::Ready).unwrap();
    let symbol = found[0].symbol.as_ref().expect("the dylib's own");
    assert_eq!(printed(symbol), format!("`foo` of `{}`", world.main.name()));
}

#[test]
fn flags_print_their_names_and_options_what_they_are() {
    assert_eq!(printed(&(SymbolFlags::EXPORTED | SymbolFlags::THREAD_LOCAL)), "[exported thread-local]");
    assert_eq!(printed(&SymbolFlags::default()), "[]");
    let options = printed(&SessionOptions::default());
    for part in ["reclaim: ", "worker_threads: 0", "error_reporter: false", "observers: 0"] {
        assert!(options.contains(part), "{options} lacks {part}");
    }
}

#[test]
fn what_a_generator_captures_prints_whether_it_was_captured() {
    struct Prints(std::sync::Mutex<std::sync::mpsc::Sender<String>>);
    impl DefinitionGenerator for Prints {
        fn generate(&self, _: &JitDylib, _: &[SymbolRequest<'_>]) -> jittison::error::Result<()> {
            unreachable!("the other method is asked")
        }
        fn generate_or_suspend(
            &self,
            _: &JitDylib,
            _: &[SymbolRequest<'_>],
            suspension: &Suspension,
        ) -> jittison::error::Result<()> {
            let told = self.0.lock().unwrap();
            told.send(printed(suspension)).unwrap();
            let captured = suspension.capture().expect("not captured yet");
            told.send(printed(suspension)).unwrap();
            told.send(printed(&captured)).unwrap();
            captured.resume(Ok(()));
            Ok(())
        }
    }
    let world = World::new();
    let (sender, told) = channel();
    world.main.add_generator(std::sync::Arc::new(Prints(sender.into())));
    assert_not_found(world.session.lookup(
        &world.main.search_order(),
        &[SymbolRequest::required("absent")],
        RequiredState::Ready,
    ));
    let told: Vec<_> = told.try_iter().collect();
    assert_eq!(told, ["Suspension(captured: false)", "Suspension(captured: true)", "SuspendedLookup"]);
}
