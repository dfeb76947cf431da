//! Objects that are linked as they are added: what a lookup would have brought about is there when the call returns.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use jittison::base::{ExecutorAddr, Name};
use jittison::error::ErrorKind;
use jittison::session::{
    MaterializationResponsibility, MaterializationUnit, RequiredState, ResourceTracker, SymbolFlags, SymbolRequest,
    Visibility,
};
use jittison::{Error, Jit};

use crate::support::*;

/// A session that tells of errors that nobody hears.
fn reporting() -> (Jit, mpsc::Receiver<String>) {
    let (tell, told) = mpsc::channel();
    let jit =
        Jit::builder().error_reporter(Arc::new(move |error: Error| tell.send(error.to_string()).unwrap())).build();
    (jit.unwrap(), told)
}

#[test]
fn what_an_object_defines_is_ready_and_what_it_refers_to_is_linked() {
    let (Some(user), Some(used)) = (
        c("extern long used(void); long user(void) { return used() + 1; } long other = 3;"),
        c("long used(void) { return 41; } long unused = 1;"),
    ) else {
        return;
    };
    let jit = new_jit();
    let below = add(&jit, jit.main_dylib(), "used.o", &used);
    assert_eq!(jit.memory_statistics().allocations, 0, "nobody has asked for it");
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_object(&tracker, "user.o", user).unwrap();
    assert_eq!(jit.memory_statistics().allocations, 2);
    assert_eq!(long(&jit, "user"), 42);
    assert_eq!(tracker.dependencies().len(), 1);
    assert!(!below.remove().unwrap().is_complete(), "it is referred to");
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_missing_symbol_is_told_to_the_caller_alone_and_leaves_nothing() {
    let (Some(bad), Some(good)) =
        (c("extern long nowhere(void); long f(void) { return nowhere(); }"), c("long f(void) { return 5; }"))
    else {
        return;
    };
    let (jit, told) = reporting();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.link_object(&tracker, "bad.o", bad).unwrap_err();
    assert_says(&error, &["`nowhere`", "bad.o"]);
    assert!(matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. }), "{error}");
    assert_eq!((held(&jit), told.try_iter().count()), ((0, 0, 0), 0));
    jit.link_object(&tracker, "good.o", good).unwrap();
    assert_eq!(long(&jit, "f"), 5, "the name is free again, and the tracker live");
}

#[test]
fn what_fails_in_the_link_itself_is_told_to_the_caller_alone_and_leaves_nothing() {
    let Some(far) = asm(".data\n.globl f\nf: .long 0\n.long far - .\n.section .note.GNU-stack\n") else { return };
    let Some(unknown) = asm(".text\n.globl f\nf: ret\nplace: .quad 0\n.reloc place, R_X86_64_RELATIVE, f\n") else {
        return;
    };
    let (jit, told) = reporting();
    define_absolute(jit.main_dylib(), "far", 0x7fff_0000_0000);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    for (object, problem) in [(far, "is not in ["), (unknown, "R_X86_64_RELATIVE")] {
        assert_says(&jit.link_object(&tracker, "bad.o", object).unwrap_err(), &["bad.o", problem]);
        assert_eq!((held(&jit), jit.main_dylib().symbol_count(), told.try_iter().count()), ((0, 0, 0), 1, 0));
    }
}

#[test]
fn an_object_that_cannot_be_read_takes_no_name_from_a_weak_definition() {
    let Some(weak) = c("__attribute__((weak)) long f(void) { return 1; }") else { return };
    let Some(bad) = asm(".text\n.globl f\nf: ret\nplace: .quad 0\n.reloc place, R_X86_64_RELATIVE, f\n") else {
        return;
    };
    let jit = new_jit();
    let _lazy = add(&jit, jit.main_dylib(), "weak.o", &weak);
    let tracker = jit.main_dylib().create_tracker().unwrap();
    assert_says(&jit.link_object(&tracker, "bad.o", bad).unwrap_err(), &["bad.o", "R_X86_64_RELATIVE"]);
    assert_eq!(long(&jit, "f"), 1, "it never gave way");
}

#[test]
fn a_common_symbol_needs_the_room_that_it_asks_for_as_when_an_object_is_added() {
    let (Some(small), Some(large)) = (
        asm(".data\n.globl room\nroom: .quad 7\n.size room, 8\n.section .note.GNU-stack\n"),
        asm(".comm room,64,8\n.section .note.GNU-stack\n"),
    ) else {
        return;
    };
    let jit = new_jit();
    let [first, second] = ["first", "second"].map(|_| jit.main_dylib().create_tracker().unwrap());
    jit.link_object(&first, "small.o", small).unwrap();
    let error = jit.link_object(&second, "large.o", large).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::CommonTooSmall { wanted: 64, found: 8, .. }), "{error}");
    assert_says(&error, &["`room`", "small.o", "large.o"]);
}

#[test]
fn names_that_are_taken_are_refused_or_left_out_as_when_an_object_is_added() {
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
    assert_eq!(long(&jit, "g"), 1, "the first definition counts");
    assert_eq!(three.dependencies().iter().map(ResourceTracker::key).collect::<Vec<_>>(), [one.key()]);
    // All that it defines is there: nothing of it is linked.
    let Some(nothing) = c("__attribute__((weak)) long f(void) { return 3; }") else { return };
    let before = held(&jit);
    jit.link_object(&two, "nothing.o", nothing).unwrap();
    assert_eq!((held(&jit), long(&jit, "f")), (before, 1));
}

#[test]
fn a_weak_definition_that_nobody_has_asked_for_gives_way() {
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

/// A definition that stays on its way until the test says where it is.
struct Slow(Name, mpsc::Sender<MaterializationResponsibility>, [(Name, SymbolFlags); 1]);

impl Slow {
    fn new(name: &str) -> (Slow, mpsc::Receiver<MaterializationResponsibility>) {
        let (give, given) = mpsc::channel();
        (Slow(Name::new(name), give, [(Name::new(name), SymbolFlags::EXPORTED | SymbolFlags::CALLABLE)]), given)
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

#[test]
fn what_is_still_on_its_way_is_waited_for_and_its_failure_told() {
    let Some(user) = c("extern long slow(void); long user(void) { return slow() + 2; }") else { return };
    for (is_resolved, fails) in [(false, false), (false, true), (true, false), (true, true)] {
        let (jit, told) = reporting();
        let (slow, given) = Slow::new("slow");
        let lower = jit.main_dylib().create_tracker().unwrap();
        lower.define(slow).unwrap();
        let address = ExecutorAddr::new(forty as *const () as u64);
        let begun = is_resolved.then(|| {
            let (order, requests) = ([(jit.main_dylib().clone(), Visibility::All)], [SymbolRequest::required("slow")]);
            jit.session().lookup_then(&order, &requests, RequiredState::Resolved, |found| drop(found.unwrap()));
            let responsibility = given.try_recv().unwrap();
            responsibility.notify_resolved(|_| Some(address)).unwrap();
            responsibility
        });
        let (jit, user) = (&jit, user.clone());
        let tracker = jit.main_dylib().create_tracker().unwrap();
        thread::scope(|threads| {
            let link = threads.spawn(|| jit.link_object(&tracker, "user.o", user));
            let responsibility = begun.unwrap_or_else(|| given.recv_timeout(Duration::from_secs(60)).unwrap());
            thread::sleep(Duration::from_millis(20));
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
        assert_eq!(told.try_iter().count(), 0, "who waited was told");
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(held(jit), (0, 0, 0));
    }
}

#[test]
fn a_removed_tracker_links_nothing() {
    let Some(object) = c("long f(void) { return 1; }") else { return };
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    tracker.remove().unwrap();
    let error = jit.link_object(&tracker, "f.o", object).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TrackerDefunct { .. }), "{error}");
    assert_eq!((held(&jit), jit.main_dylib().symbol_count()), ((0, 0, 0), 0));
}

#[test]
fn initialisers_are_run_when_the_dylib_is_initialised() {
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
    assert_eq!(jit.memory_statistics().allocations, 2, "what defines nothing is linked, too");
    assert_eq!(initialize(&jit, jit.main_dylib()), 2);
    assert_eq!(long(&jit, "f"), 9);
}
