//! What was live in an executor that has ended is linked again in another one ([`Jit::restart`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jittison::executor::ExecutorProcess;
use jittison::session::{RequiredState, SymbolRequest, SymbolState, Visibility};
use jittison::{ErrorKind, Jit, JitDylib};

use jittison_test_support::archive_bytes::{gnu, list_of};

use crate::{c, cpp, start};

fn kept(executor: &ExecutorProcess) -> Jit {
    Jit::builder().executor(executor).keep_objects().build().unwrap()
}

fn call(jit: &Jit, dylib: &JitDylib, name: &str) -> u64 {
    jit.remote_function(dylib, name).unwrap().call(&[]).unwrap()
}

fn state(jit: &Jit, name: &str) -> Option<SymbolState> {
    jit.main_dylib().symbol_state(name)
}

#[test]
fn what_was_live_runs_in_another_executor_under_the_same_trackers() {
    let (Some(counter), Some(user), Some(lazy)) = (
        c("static long count; long next(void) { return ++count; }"),
        c("long next(void); long twice(void) { next(); return next() * 100; }"),
        c("long lazy(void) { return 7; }"),
    ) else {
        return;
    };
    let executor = start();
    let jit = kept(&executor);
    let plugin = jit.create_dylib("plugin").unwrap();
    plugin.set_link_order(&[(jit.main_dylib().clone(), Visibility::ExportedOnly)]).unwrap();
    let (counters, users) = (jit.main_dylib().create_tracker().unwrap(), plugin.create_tracker().unwrap());
    jit.link_object(&counters, "counter.o", counter).unwrap();
    jit.add_object(&users, "user.o", user).unwrap();
    jit.add_object(&jit.main_dylib().default_tracker().unwrap(), "lazy.o", lazy).unwrap();
    assert_eq!(call(&jit, &plugin, "twice"), 200);
    assert_eq!(call(&jit, &plugin, "twice"), 400);
    executor.kill().unwrap();
    let error = jit.remote_function(&plugin, "twice").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ExecutorEnded { .. }), "{error}");

    let other = start();
    let restarted = jit.restart(&other, |_| Ok(())).unwrap();
    drop(jit);
    assert_eq!((restarted.added(), restarted.linked()), (3, 2));
    let new = restarted.jit().clone();
    // Linked again before anybody asks, and what was not linked is not.
    assert_eq!(
        (state(&new, "next"), state(&new, "lazy")),
        (Some(SymbolState::Ready), Some(SymbolState::NeverSearched))
    );
    let new_plugin = restarted.dylib(&plugin).unwrap().clone();
    assert_eq!(new_plugin.name(), "plugin");
    assert_eq!(call(&new, &new_plugin, "twice"), 200, "variables begin anew");
    assert_eq!(call(&new, new.main_dylib(), "lazy"), 7);
    // The trackers of before remove the same objects.
    let (counters, users) = (restarted.tracker(&counters).unwrap().clone(), restarted.tracker(&users).unwrap().clone());
    drop(restarted);
    assert!(users.remove().unwrap().is_complete() && counters.remove().unwrap().is_complete());
    assert_eq!((state(&new, "next"), new_plugin.symbol_state("twice")), (None, None));
    assert_eq!(call(&new, new.main_dylib(), "lazy"), 7);
}

#[test]
fn what_was_removed_transferred_or_defined_again_is_restarted_as_it_was() {
    let function = |name: &str, value: i32| c(&format!("int missing(void); int {name}(void) {{ return {value}; }}"));
    let (Some(gone), Some(held), Some(moved), Some(new)) =
        (function("gone", 1), function("held", 2), function("moved", 3), function("failed", 5))
    else {
        return;
    };
    let failing =
        c("int missing(void); int failed(void) { return missing(); } int failed_too(void) { return missing(); }")
            .unwrap();
    // Both objects have the group, and the definition of the first one counts.
    let group = |name: &str| {
        c(&format!("__asm__(\".section .text.both,\\\"axG\\\",%progbits,both,comdat\\n.globl both\\n.type both,%function\\nboth: nop\\n.size both,1\\n.text\"); int {name}(void) {{ return 6; }}")).unwrap()
    };
    let executor = start();
    let jit = kept(&executor);
    let create = || jit.main_dylib().create_tracker().unwrap();
    let (a, b, from, to, retried) = (create(), create(), create(), create(), create());
    jit.link_object(&a, "gone.o", gone).unwrap();
    jit.link_object(&b, "held.o", held).unwrap();
    jit.add_object(&from, "moved.o", moved).unwrap();
    jit.add_object(&retried, "failing.o", failing).unwrap();
    let missing = jit.main_dylib().lookup(&[SymbolRequest::required("failed")], RequiredState::Ready).unwrap_err();
    assert!(missing.to_string().contains("missing"), "{missing}");
    jit.add_object(&retried, "failed.o", new).unwrap();
    let groups = create();
    jit.link_object(&groups, "first.o", group("first")).unwrap();
    jit.link_object(&groups, "second.o", group("second")).unwrap();
    assert!(a.remove().unwrap().is_complete());
    let handle = jit.remote_function(jit.main_dylib(), "held").unwrap();
    assert!(!b.remove().unwrap().is_complete(), "a handle holds its code");
    from.transfer_to(&to).unwrap();

    let other = start();
    let restarted = jit.restart(&other, |_| Ok(())).unwrap();
    let new = restarted.jit();
    assert_eq!((state(new, "gone"), state(new, "held")), (None, None), "both were removed");
    assert_eq!(call(new, new.main_dylib(), "moved"), 3);
    assert_eq!(call(new, new.main_dylib(), "failed"), 5, "the definition that came after the failure");
    assert_eq!(state(new, "failed_too"), None);
    assert_eq!((call(new, new.main_dylib(), "first"), call(new, new.main_dylib(), "second")), (6, 6));
    assert!(restarted.tracker(&to).unwrap().remove().unwrap().is_complete());
    assert_eq!(state(new, "moved"), None);
    assert!(restarted.tracker(&a).is_none());
    // Both sessions live.
    assert_eq!(handle.call(&[]).unwrap(), 2);
    drop(handle);
    assert!(to.remove().unwrap().is_complete());
}

#[test]
fn archives_initialisers_and_what_the_caller_sets_up_are_there_after_a_restart() {
    let Some(main) = cpp("extern \"C\" long host(long), part(); struct Once { Once() { value = 40; } long value; }; \
         static Once once; extern \"C\" long run() { return host(once.value) + part(); }")
    else {
        return;
    };
    let (Some(part), Some(whole)) = (c("long part(void) { return 2; }"), c("long whole(void) { return 9; }")) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let archive = |name: &str, member: &str, object: &[u8]| {
        let path = directory.path().join(name);
        let members = [(member, object)];
        std::fs::write(&path, gnu(&members, &list_of(&members))).unwrap();
        path
    };
    let (lazy, whole) = (archive("libpart.a", "part.o", &part), archive("libwhole.a", "whole.o", &whole));
    static CALLS: AtomicU64 = AtomicU64::new(0);
    extern "C" fn host(value: i64) -> i64 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        value + 1
    }
    let set_up = |jit: &Jit| {
        // SAFETY: the function may be called with any argument.
        unsafe { jit.define_function(&jit.main_dylib().default_tracker()?, "host", host as extern "C" fn(i64) -> i64) }
    };
    let executor = start();
    let jit = kept(&executor);
    set_up(&jit).unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_static_library(jit.main_dylib(), &lazy).unwrap();
    jit.add_archive_whole(&tracker, &whole).unwrap();
    jit.add_object(&tracker, "main.o", main).unwrap();
    assert_eq!(call(&jit, jit.main_dylib(), "run"), 43);
    executor.kill().unwrap();
    let restarted = jit.restart(&start(), set_up).unwrap();
    let new = restarted.jit();
    assert_eq!(call(new, new.main_dylib(), "run"), 43);
    assert_eq!(call(new, new.main_dylib(), "whole"), 9);
    assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    // And once more, from the session that came out of a restart.
    let again = new.restart(&start(), set_up).unwrap();
    assert_eq!(call(again.jit(), again.jit().main_dylib(), "run"), 43);
    assert_eq!(call(again.jit(), again.jit().main_dylib(), "whole"), 9);
}

#[test]
fn a_restart_that_fails_leaves_nothing_and_can_be_made_again() {
    let Some(object) = c("long needed(void); long one(void) { return needed() + 1; }") else { return };
    let Some(needed) = c("long needed(void) { return 1; }") else { return };
    let executor = start();
    let plain = Jit::builder().executor(&executor).build().unwrap();
    let error = plain.restart(&executor, |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("keep_objects"), "{error}");

    let jit = kept(&executor);
    let give = |jit: &Jit| jit.add_object(&jit.main_dylib().default_tracker()?, "needed.o", needed.clone());
    give(&jit).unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.link_object(&tracker, "one.o", object).unwrap();
    // An executor that has ended.
    let dead = start();
    dead.kill().unwrap();
    let error = jit.restart(&dead, |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("was ended by signal 9 (SIGKILL)"), "{error}");
    // The caller's part fails.
    let other = start();
    let error = jit.restart(&other, |_| Err(jittison::Error::other("not today"))).unwrap_err();
    assert_eq!(error.to_string(), "not today");
    // What the caller has made is not made twice.
    let restarted = jit.restart(&other, give).unwrap();
    assert_eq!((restarted.added(), restarted.linked()), (1, 1));
    assert_eq!(call(restarted.jit(), restarted.jit().main_dylib(), "one"), 2);
}

#[test]
fn a_session_holds_bytes_of_objects_as_long_as_their_trackers_live() {
    struct Bytes {
        bytes: Vec<u8>,
        _held: Arc<()>,
    }
    impl AsRef<[u8]> for Bytes {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    let Some(object) = c("long one(void) { return 1; }") else { return };
    let executor = start();
    let held = Arc::new(());
    let buffer = || jittison::link::ObjectBuffer::new(Bytes { bytes: object.clone(), _held: held.clone() });
    let (keeping, plain) = (kept(&executor), Jit::builder().executor(&executor).build().unwrap());
    for (jit, count) in [(&keeping, 2), (&plain, 1)] {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        jit.link_object(&tracker, "one.o", buffer()).unwrap();
        assert_eq!(Arc::strong_count(&held), count);
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
