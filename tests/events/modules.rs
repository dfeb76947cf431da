//! Events of a module: resolved, linked, published, retired, reclaimed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name};
use jittison::session::SymbolFlags;
use jittison::{Event, Jit, Observer, ResourceKey};

use crate::recorder::{Recorded, kinds, observed};
use crate::support::*;

#[test]
fn each_step_of_a_module_is_reported_once_and_in_order() {
    let Some(object) = c("extern long abs_of(long); static long table[3] = {1, 2, 3};
        long test(long x) { return abs_of(table[x]); } long other(void) { return 2; }")
    else {
        return;
    };
    let (jit, recorder) = observed();
    define_absolute(jit.main_dylib(), "abs_of", 0x1000);
    assert_eq!(kinds(&recorder.take_of_modules()), ["published"]);
    let tracker = add(&jit, jit.main_dylib(), "module.o", &object);
    assert_eq!(recorder.take_of_modules(), [], "nothing is linked before a lookup");
    jit.address_of(jit.main_dylib(), "test").unwrap();
    let (key, usage) = (tracker.key(), jit.usage(&tracker));
    let recorded = recorder.take_of_modules();
    assert_eq!(kinds(&recorded), ["resolved", "linked", "published"]);
    let symbols = vec!["other".to_string(), "test".to_string()];
    let Recorded::Resolved { symbols: mut resolved, .. } = recorded[0].clone() else { unreachable!() };
    resolved.sort();
    assert_eq!(resolved, symbols);
    let bytes = [usage.code, usage.read_only, usage.data];
    let Recorded::Linked { counts: [relocations, definitions, externals], .. } = recorded[1] else { unreachable!() };
    // The call, and the uses of the table. Unwind tables add some more.
    assert!((2..20).contains(&relocations), "{relocations}");
    assert_eq!((definitions, externals), (2, 1));
    let counts = [relocations, definitions, externals];
    let object = "module.o".to_string();
    assert_eq!(recorded[1], Recorded::Linked { key, object, bytes, reserved: usage.reserved, counts });
    let Recorded::Published { key: published_under, symbols: mut published } = recorded[2].clone() else {
        unreachable!()
    };
    published.sort();
    assert_eq!((published_under, published), (key, symbols));
    jit.address_of(jit.main_dylib(), "test").unwrap();
    assert_eq!(recorder.take_of_modules(), [], "a second lookup causes no event");
    tracker.remove().unwrap();
    tracker.remove().unwrap();
    let reclaimed = Recorded::Reclaimed { key, bytes: usage.total(), failures: 0 };
    assert_eq!(recorder.take_of_modules(), [Recorded::Retired { key, held: (0, 0, 0) }, reclaimed]);
}

#[test]
fn a_held_tracker_is_reported_retired_with_its_obstacles_and_reclaimed_later() {
    let (Some(base), Some(user)) =
        (c("long base(void) { return 4; }"), c("extern long base(void); long user(void) { return base(); }"))
    else {
        return;
    };
    let (jit, recorder) = observed();
    let of_base = add(&jit, jit.main_dylib(), "base.o", &base);
    let of_user = add(&jit, jit.main_dylib(), "user.o", &user);
    let handle = function::<extern "C" fn() -> i64>(&jit, "base");
    assert_eq!(long(&jit, "user"), 4);
    recorder.take();
    let guard = jit.guard();
    let removal = of_base.remove().unwrap();
    assert_eq!(recorder.take_of_modules(), [Recorded::Retired { key: of_base.key(), held: (1, 1, 1) }]);
    drop((handle, guard));
    assert_eq!(recorder.take_of_modules(), []);
    of_user.remove().unwrap();
    assert!(removal.is_complete());
    let recorded = recorder.take_of_modules();
    assert_eq!(kinds(&recorded), ["retired", "reclaimed", "reclaimed"]);
    assert!(matches!(recorded[1], Recorded::Reclaimed { key, .. } if key == of_user.key()));
    assert!(matches!(recorded[2], Recorded::Reclaimed { key, .. } if key == of_base.key()));
}

#[test]
fn remove_now_is_reported_as_retired_and_then_as_reclaimed() {
    let Some(object) = c("long test(void) { return 1; }") else { return };
    let (jit, recorder) = observed();
    let tracker = add(&jit, jit.main_dylib(), "module.o", &object);
    assert_eq!(long(&jit, "test"), 1);
    recorder.take();
    // SAFETY: no thread calls this code now or later.
    unsafe { jit.remove_now(&tracker) }.unwrap();
    assert_eq!(kinds(&recorder.take_of_modules()), ["retired", "reclaimed"]);
}

#[test]
fn symbols_that_wait_for_each_other_are_reported_published_together() {
    // Each refers to the other, so both become ready together.
    let (Some(one), Some(two)) = (
        c("extern long two(long); long one(long x) { return x > 0 ? two(x - 1) : 1; }"),
        c("extern long one(long); long two(long x) { return x > 0 ? one(x - 1) : 2; }"),
    ) else {
        return;
    };
    let (jit, recorder) = observed();
    let keys = [("one.o", &one), ("two.o", &two)].map(|(name, object)| add(&jit, jit.main_dylib(), name, object).key());
    // The dropped handles transfer both to the default tracker.
    let default = jit.main_dylib().default_tracker().unwrap().key();
    let moved = keys.map(|source| Recorded::Transferred { source, destination: default });
    assert_eq!(recorder.take_of_modules(), moved);
    jit.address_of(jit.main_dylib(), "one").unwrap();
    let recorded = recorder.take_of_modules();
    assert_eq!(kinds(&recorded), ["resolved", "resolved", "linked", "linked", "published"]);
    let Recorded::Published { key, mut symbols } = recorded[4].clone() else { unreachable!() };
    symbols.sort();
    assert_eq!((key, symbols), (default, vec!["one".to_string(), "two".to_string()]));
}

#[test]
fn removing_a_dylib_or_ending_the_session_reports_each_tracker() {
    let Some(object) = c("long test(void) { return 1; }") else { return };
    let (jit, recorder) = observed();
    let dylibs = ["a", "b"].map(|name| jit.create_dylib(name).unwrap());
    let trackers = dylibs.each_ref().map(|dylib| add(&jit, dylib, "module.o", &object));
    dylibs.iter().for_each(|dylib| assert_eq!(long_in(&jit, dylib, "test"), 1));
    recorder.take();
    jit.session().remove_dylib(&dylibs[0]).unwrap();
    let recorded = recorder.take_of_modules();
    assert_eq!(kinds(&recorded), ["retired", "reclaimed"]);
    assert_eq!(recorded[0], Recorded::Retired { key: trackers[0].key(), held: (0, 0, 0) });
    let key = trackers[1].key();
    drop(jit);
    let recorded = recorder.take_of_modules();
    assert!(recorded.contains(&Recorded::Retired { key, held: (0, 0, 0) }), "{recorded:?}");
    assert!(
        recorded.iter().any(|recorded| matches!(recorded, Recorded::Reclaimed { key: other, .. } if *other == key)),
        "{recorded:?}"
    );
}

/// The last step of each tracker. A step that is reported twice or too early gets a value above 5.
#[derive(Default)]
struct Steps(Mutex<HashMap<ResourceKey, usize>>);

impl Observer for Steps {
    fn observe(&self, event: &Event<'_>) {
        let (key, step) = match event {
            Event::Resolved { key, .. } => (key, 1),
            Event::Linked { key, .. } => (key, 2),
            Event::Published { key, .. } => (key, 3),
            Event::Retired { key, .. } => (key, 4),
            Event::Reclaimed { key, .. } => (key, 5),
            _ => return,
        };
        let mut steps = self.0.lock().unwrap();
        let before = steps.insert(*key, step).unwrap_or(0);
        // A panic here is caught and would not fail the test.
        if before != step - 1 {
            steps.insert(*key, 100);
        }
    }
}

#[test]
fn concurrent_modules_are_each_reported_once_and_in_order() {
    let Some(object) = c("static long state = 4; long test(void) { return state; }") else { return };
    let steps = Arc::new(Steps::default());
    let jit = Jit::builder().observer(steps.clone()).worker_threads(1).build().unwrap();
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let (jit, object) = (&jit, &object);
            let dylib = jit.create_dylib(name).unwrap();
            scope.spawn(move || {
                for _ in 0..500 {
                    let tracker = add(jit, &dylib, "module.o", object);
                    assert_eq!(long_in(jit, &dylib, "test"), 4);
                    tracker.remove().unwrap();
                }
            });
        }
    });
    let steps = steps.0.lock().unwrap();
    assert_eq!(steps.values().filter(|step| **step == 5).count(), 1000);
    assert_eq!(steps.values().filter(|step| **step > 5).count(), 0);
}

/// Records the text of each event about published symbols of `main`.
#[derive(Default)]
struct Published(Mutex<Vec<String>>);

impl Observer for Published {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Published { dylib, .. } if dylib.name() == "main") {
            self.0.lock().unwrap().push(event.to_string());
        }
    }
}

#[test]
fn event_text_names_at_most_eight_symbols_and_marks_more() {
    let published = Arc::new(Published::default());
    let jit = Jit::builder().observer(published.clone()).build().unwrap();
    for (count, end) in [(7, "n7_7, "), (8, "n8_8, "), (9, "n9_8, …, ")] {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
        let symbols = (1..=count).map(|number| (format!("n{count}_{number}"), number));
        let symbols = symbols.map(|(name, at)| (Name::new(&name), ExecutorAddr::new(at), flags));
        jit.main_dylib().define_absolute(symbols.collect::<Vec<_>>()).unwrap();
        let text = std::mem::take(&mut *published.0.lock().unwrap()).join("\n");
        assert!(text.starts_with(&format!("published: n{count}_1, n{count}_2, ")), "{text}");
        assert_eq!(text.split_once(end).map(|(_, key)| key.matches(", ").count()), Some(0), "{text}");
    }
}
