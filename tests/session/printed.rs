//! `Debug` of the session's handles: each prints the objects that it refers to.

use std::sync::mpsc::channel;

use jittison::base::ExecutorAddr;
use jittison::session::*;

use crate::support::*;

fn printed(value: &impl std::fmt::Debug) -> String {
    format!("{value:?}")
}

#[test]
fn handles_print_what_they_refer_to() {
    let fixture = Fixture::new();
    fixture.main.define(Unit::ready(&["foo"], 1)).unwrap();
    assert_eq!(printed(&fixture.main), format!("dylib `{}`", fixture.main.name()));
    assert!(printed(&fixture.session).starts_with("session of [dylib `"), "{:?}", fixture.session);

    let tracker = fixture.loaded("bar", 2);
    let key = tracker.with_resource_key(|key| printed(&key)).unwrap();
    assert_eq!(printed(&tracker), format!("{key} of `{}`", fixture.main.name()));
    let pin = fixture.session.pin(&fixture.references(&["bar"])[0]).unwrap();
    assert_eq!(printed(&pin), format!("Pin({key})"));
    let guard = fixture.session.guard();
    assert!(printed(&guard).starts_with("guard of thread"), "{guard:?}");
    drop(guard);

    let removal = tracker.remove().unwrap();
    let pending = printed(&removal);
    let holders = pending.strip_prefix(&format!("removal of {key}: held by "));
    assert!(holders.is_some_and(|holders| !holders.is_empty()), "{pending}");
    drop(pin);
    assert_eq!(printed(&removal), format!("removal of {key}: complete"));
}

#[test]
fn lookups_print_their_progress() {
    let fixture = Fixture::new();
    let held = fixture.define_held(&["foo"]);
    let mut address = ExecutorAddr::NULL;
    let parts = LookupAndApply::new().record(SymbolRequest::required("foo"), &mut address);
    assert_eq!(printed(&parts), "1 names to look up for 1 parts");
    drop(parts);
    let order = fixture.main.search_order();
    let future = fixture.session.lookup_async(&order, &[SymbolRequest::required("foo")], RequiredState::Ready);
    assert_eq!(printed(&future), "lookup under way");
    let responsibility = held.take();
    let claimed = printed(&responsibility);
    assert!(claimed.starts_with("responsibility of unit of foo for ") && claimed.contains("foo\""), "{claimed}");
    finish(responsibility, 1);
    assert_eq!(printed(&future), "lookup with its answer");

    let request = [SymbolRequest::required("foo")];
    let found = fixture.session.lookup(&order, &request, RequiredState::Ready).unwrap();
    let symbol = found[0].symbol.as_ref().expect("the symbol has a definition");
    assert_eq!(printed(symbol), format!("`foo` of `{}`", fixture.main.name()));
}

#[test]
fn flags_print_their_names_and_options_print_their_values() {
    assert_eq!(printed(&(SymbolFlags::EXPORTED | SymbolFlags::THREAD_LOCAL)), "[exported thread-local]");
    assert_eq!(printed(&SymbolFlags::default()), "[]");
    let options = printed(&SessionOptions::default());
    for part in ["reclaim: ", "worker_threads: 0", "error_reporter: false", "observers: 0"] {
        assert!(options.contains(part), "{options} lacks {part}");
    }
}

#[test]
fn a_suspension_prints_whether_it_was_captured() {
    struct PrintsSuspension(std::sync::Mutex<std::sync::mpsc::Sender<String>>);
    impl DefinitionGenerator for PrintsSuspension {
        fn generate(&self, _: &JitDylib, _: &[SymbolRequest<'_>]) -> jittison::error::Result<()> {
            unreachable!("the session calls the other method")
        }
        fn generate_or_suspend(
            &self,
            _: &JitDylib,
            _: &[SymbolRequest<'_>],
            suspension: &Suspension,
        ) -> jittison::error::Result<()> {
            let sender = self.0.lock().unwrap();
            sender.send(printed(suspension)).unwrap();
            let captured = suspension.capture().expect("not captured yet");
            sender.send(printed(suspension)).unwrap();
            sender.send(printed(&captured)).unwrap();
            captured.resume(Ok(()));
            Ok(())
        }
    }
    let fixture = Fixture::new();
    let (sender, receiver) = channel();
    fixture.main.add_generator(std::sync::Arc::new(PrintsSuspension(sender.into())));
    assert_not_found(fixture.session.lookup(
        &fixture.main.search_order(),
        &[SymbolRequest::required("absent")],
        RequiredState::Ready,
    ));
    let printed: Vec<_> = receiver.try_iter().collect();
    assert_eq!(printed, ["Suspension(captured: false)", "Suspension(captured: true)", "SuspendedLookup"]);
}
