//! `Jit::link_object`: adds an object and links it at once. When the call returns, the state is the one after a lookup.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use jittison::base::{ExecutorAddr, Name};
use jittison::error::ErrorKind;
use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::FixedLink;
use jittison::session::{
    MaterializationResponsibility, MaterializationUnit, RequiredState, ResourceTracker, SymbolFlags, SymbolRequest,
    Visibility,
};
use jittison::{Error, Jit};

use crate::support::*;

/// A session whose error reporter sends to a channel. Only errors that no caller receives are reported.
fn reporting() -> (Jit, mpsc::Receiver<String>) {
    let (sender, reports) = mpsc::channel();
    let jit =
        Jit::builder().error_reporter(Arc::new(move |error: Error| sender.send(error.to_string()).unwrap())).build();
    (jit.unwrap(), reports)
}

#[test]
fn link_object_makes_its_definitions_ready_and_links_what_they_refer_to() {
    let (Some(user), Some(used)) = (
        c("extern long used(void); long user(void) { return used() + 1; } long other = 3;"),
        c("long used(void) { return 41; } long unused = 1;"),
    ) else {
        return;
    };
    let jit = new_jit();
    let below = add(&jit, jit.main_dylib(), "used.o", &used);
    assert_eq!(jit.memory_statistics().allocations, 0, "no lookup has asked for it");
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_object(&tracker, "user.o", user).unwrap();
    assert_eq!(jit.memory_statistics().allocations, 2);
    assert_eq!(long(&jit, "user"), 42);
    assert_eq!(tracker.dependencies().len(), 1);
    assert!(!below.remove().unwrap().is_complete(), "another object refers to it");
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_missing_symbol_is_returned_to_the_caller_only_and_leaves_nothing() {
    let (Some(bad), Some(good)) =
        (c("extern long nowhere(void); long f(void) { return nowhere(); }"), c("long f(void) { return 5; }"))
    else {
        return;
    };
    let (jit, reports) = reporting();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.link_object(&tracker, "bad.o", bad).unwrap_err();
    assert_says(&error, &["`nowhere`", "bad.o"]);
    assert!(matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. }), "{error}");
    assert_eq!((held(&jit), reports.try_iter().count()), ((0, 0, 0), 0));
    jit.link_object(&tracker, "good.o", good).unwrap();
    assert_eq!(long(&jit, "f"), 5, "the name is free again, and the tracker is live");
}

#[test]
fn a_link_error_is_returned_to_the_caller_only_and_leaves_nothing() {
    let Some(far) = asm(".data\n.globl f\nf: .long 0\n.long far - .\n.section .note.GNU-stack\n") else { return };
    let Some(unknown) = asm(".text\n.globl f\nf: ret\nplace: .quad 0\n.reloc place, R_X86_64_RELATIVE, f\n") else {
        return;
    };
    let (jit, reports) = reporting();
    define_absolute(jit.main_dylib(), "far", 0x7fff_0000_0000);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    for (object, problem) in [(far, "is not in ["), (unknown, "R_X86_64_RELATIVE")] {
        assert_says(&jit.link_object(&tracker, "bad.o", object).unwrap_err(), &["bad.o", problem]);
        assert_eq!((held(&jit), jit.main_dylib().symbol_count(), reports.try_iter().count()), ((0, 0, 0), 1, 0));
    }
}

#[test]
fn an_unreadable_object_does_not_override_a_weak_definition() {
    let Some(weak) = c("__attribute__((weak)) long f(void) { return 1; }") else { return };
    let Some(bad) = asm(".text\n.globl f\nf: ret\nplace: .quad 0\n.reloc place, R_X86_64_RELATIVE, f\n") else {
        return;
    };
    let jit = new_jit();
    let _lazy = add(&jit, jit.main_dylib(), "weak.o", &weak);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    assert_says(&jit.link_object(&tracker, "bad.o", bad).unwrap_err(), &["bad.o", "R_X86_64_RELATIVE"]);
    assert_eq!(long(&jit, "f"), 1, "the weak definition stays");
}

#[test]
fn a_common_symbol_larger_than_an_existing_definition_is_refused() {
    let (Some(small), Some(large)) = (
        asm(".data\n.globl shared\nshared: .quad 7\n.size shared, 8\n.section .note.GNU-stack\n"),
        asm(".comm shared,64,8\n.section .note.GNU-stack\n"),
    ) else {
        return;
    };
    let jit = new_jit();
    let [first, second] = ["first", "second"].map(|_| jit.main_dylib().create_tracker().unwrap());
    jit.link_object(&first, "small.o", small).unwrap();
    let error = jit.link_object(&second, "large.o", large).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CommonTooSmall { wanted: 64, found: 8, .. }), "{error}");
    assert_says(&error, &["`shared`", "small.o", "large.o"]);
}

#[test]
fn duplicate_names_are_refused_and_duplicate_weak_names_are_dropped() {
    let (Some(first), Some(weak)) = (
        c("long f(void) { return 1; }"),
        c("__attribute__((weak)) long f(void) { return 2; } long g(void) { return f(); }"),
    ) else {
        return;
    };
    let jit = new_jit();
    let [one, two, three] = ["one.o", "two.o", "three.o"].map(|_| jit.main_dylib().create_tracker().unwrap());
    jit.link_object(&one, "one.o", first.clone()).unwrap();
    let before = held(&jit);
    let error = jit.link_object(&two, "two.o", first).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DuplicateDefinition { .. }), "{error}");
    assert_says(&error, &["`f`", "one.o", "two.o"]);
    assert_eq!(held(&jit), before);
    jit.link_object(&three, "three.o", weak.clone()).unwrap();
    assert_eq!(long(&jit, "g"), 1, "the first definition wins");
    assert_eq!(three.dependencies().iter().map(ResourceTracker::key).collect::<Vec<_>>(), [one.key()]);
    // Everything that this object defines exists already: nothing of it is linked.
    let Some(duplicate) = c("__attribute__((weak)) long f(void) { return 3; }") else { return };
    let before = held(&jit);
    jit.link_object(&two, "duplicate.o", duplicate).unwrap();
    assert_eq!((held(&jit), long(&jit, "f")), (before, 1));
}

#[test]
fn a_linked_strong_definition_overrides_an_unlinked_weak_one() {
    let (Some(weak), Some(strong)) =
        (c("__attribute__((weak)) long f(void) { return 1; }"), c("long f(void) { return 2; }"))
    else {
        return;
    };
    let jit = new_jit();
    let _lazy = add(&jit, jit.main_dylib(), "weak.o", &weak);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_object(&tracker, "strong.o", strong).unwrap();
    assert_eq!((long(&jit, "f"), jit.memory_statistics().allocations), (2, 1));
}

#[test]
fn objects_that_refer_to_each_other_are_linked_together() {
    let (Some(even), Some(odd)) = (
        c(
            "extern long odd(long n); long even(long n) { return n == 0 ? 1 : odd(n - 1); } long test(void) { return even(10); }",
        ),
        c("extern long even(long n); long odd(long n) { return n == 0 ? 0 : even(n - 1); }"),
    ) else {
        return;
    };
    let jit = new_jit();
    let lazy = add(&jit, jit.main_dylib(), "odd.o", &odd);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_object(&tracker, "even.o", even).unwrap();
    assert_eq!(long(&jit, "test"), 1);
    drop((lazy.remove().unwrap(), tracker.remove().unwrap()));
    assert_eq!(held(&jit), (0, 0, 0));
}

/// A definition that stays unresolved until the test resolves it.
struct Slow(Name, mpsc::Sender<MaterializationResponsibility>, [(Name, SymbolFlags); 1]);

impl Slow {
    fn new(name: &str) -> (Slow, mpsc::Receiver<MaterializationResponsibility>) {
        let (sender, receiver) = mpsc::channel();
        (Slow(Name::new(name), sender, [(Name::new(name), SymbolFlags::EXPORTED | SymbolFlags::CALLABLE)]), receiver)
    }
}

impl MaterializationUnit for Slow {
    fn name(&self) -> &str {
        &self.0
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.2
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.1.send(responsibility).unwrap();
    }
}

extern "C" fn forty() -> i64 {
    40
}

/// Sends a message when a link has found its externals and applied its relocations.
struct FixedUpSignal(mpsc::Sender<()>);

impl LinkPlugin for FixedUpSignal {
    fn begin(&self, _origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(FixedUpSignal(self.0.clone())))
    }
}

impl LinkHooks for FixedUpSignal {
    fn fixed_up(&mut self, _link: &mut FixedLink<'_>) -> Result<(), Error> {
        self.0.send(()).map_err(|error| Error::other(error.to_string()))
    }
}

#[test]
fn link_object_waits_for_definitions_in_progress_and_returns_their_failure() {
    // Shares the process: the test reads the state of a thread of its own.
    let Some(user) = c("extern long slow(void); long user(void) { return slow() + 2; }") else { return };
    for (is_resolved, fails) in [(false, false), (false, true), (true, false), (true, true)] {
        let (jit, reports) = reporting();
        let (slow, responsibilities) = Slow::new("slow");
        let lower = jit.main_dylib().create_tracker().unwrap();
        lower.define(slow).unwrap();
        let address = ExecutorAddr::new(forty as *const () as u64);
        let resolved = is_resolved.then(|| {
            let (order, requests) = ([(jit.main_dylib().clone(), Visibility::All)], [SymbolRequest::required("slow")]);
            jit.session().lookup_then(&order, &requests, RequiredState::Resolved, |found| drop(found.unwrap()));
            let responsibility = responsibilities.try_recv().unwrap();
            responsibility.notify_resolved(|_| Some(address)).unwrap();
            responsibility
        });
        let (sender, fixed_up) = mpsc::channel();
        jit.layer().add_plugin(Arc::new(FixedUpSignal(sender)));
        let (jit, user) = (&jit, user.clone());
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let (name, linker) = mpsc::channel();
        thread::scope(|threads| {
            let link = threads.spawn(|| {
                name.send(thread_id()).unwrap();
                jit.link_object(&tracker, "user.o", user)
            });
            let responsibility =
                resolved.unwrap_or_else(|| responsibilities.recv_timeout(Duration::from_secs(60)).unwrap());
            if is_resolved {
                // Before, the failure could come ahead of the search for `slow`.
                fixed_up.recv_timeout(Duration::from_secs(60)).unwrap();
            }
            // Before, nobody would receive a failure, so it would be reported.
            wait_until_asleep(linker.recv().unwrap());
            assert!(!link.is_finished(), "{is_resolved} {fails}");
            match fails {
                true => responsibility.fail(Error::other("no disk")),
                false => {
                    if !is_resolved {
                        responsibility.notify_resolved(|_| Some(address)).unwrap();
                    }
                    responsibility.notify_emitted(Vec::new()).unwrap();
                }
            }
            let outcome = link.join().unwrap();
            if fails {
                assert_eq!(outcome.unwrap_err().root_cause().to_string(), "no disk");
            } else {
                outcome.unwrap();
                assert_eq!(long(jit, "user"), 42);
            }
        });
        assert_eq!(reports.try_iter().count(), 0, "the waiting caller received the error");
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(held(jit), (0, 0, 0));
    }
}

#[test]
fn link_object_fails_under_a_removed_tracker() {
    let Some(object) = c("long f(void) { return 1; }") else { return };
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    tracker.remove().unwrap();
    let error = jit.link_object(&tracker, "f.o", object).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TrackerDefunct { .. }), "{error}");
    assert_eq!((held(&jit), jit.main_dylib().symbol_count()), ((0, 0, 0), 0));
}

#[test]
fn initialisers_run_when_the_dylib_is_initialised() {
    let Some(object) = c("static long state; __attribute__((constructor)) static void start(void) { state = 9; }
                          long f(void) { return state; }")
    else {
        return;
    };
    let Some(only) = c("static long count; __attribute__((constructor)) static void more(void) { count++; }") else {
        return;
    };
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_object(&tracker, "f.o", object).unwrap();
    jit.link_object(&tracker, "only.o", only).unwrap();
    assert_eq!(jit.memory_statistics().allocations, 2, "an object that defines nothing is linked, too");
    assert_eq!(initialize(&jit, jit.main_dylib()), 2);
    assert_eq!(long(&jit, "f"), 9);
}
