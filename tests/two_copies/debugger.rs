//! The debuggers' lists of two copies, one of which is in a library that is closed: with live code, with none, and
//! without anything that keeps the library loaded. Each copy has a list of its own, which are read here word by word, and
//! by the real gdb.

use std::thread;

use jittison::ResourceTracker;

use crate::debuggers::*;
use crate::support::*;
use crate::{Call, Copy, is_child, is_loaded, said_alone_with};

/// What has both copies tell debuggers.
const TOLD: [(&str, &str); 1] = [("JITTISON_GDB", "1")];

impl Copy {
    /// The list of the copy in the library.
    fn list(&self) -> DebuggerList {
        let address = |name| {
            // SAFETY: as `library.rs` declares both.
            let get = unsafe { std::mem::transmute::<usize, extern "C" fn() -> usize>(self.symbol(name)) };
            get()
        };
        DebuggerList { descriptor: address("copy_list") as _, lock: address("copy_list_lock") as _ }
    }

    /// Lists an object in a session that nothing keeps the library loaded for.
    fn list_only(&self, object: &[u8], name: &str) {
        type ListOnly = unsafe extern "C" fn(*const u8, usize, *const u8, usize);
        // SAFETY: as `library.rs` declares it, with the object's bytes and the name's.
        unsafe {
            let list_only: ListOnly = std::mem::transmute(self.symbol("copy_list_only"));
            list_only(object.as_ptr(), object.len(), name.as_ptr(), name.len());
        }
    }

    fn unlist(&self) {
        // SAFETY: as `library.rs` declares it.
        unsafe { std::mem::transmute::<usize, extern "C" fn()>(self.symbol("copy_unlist"))() }
    }
}

/// A function that calls `helper`, to be found in backtraces by its name.
fn calling(name: &str) -> Vec<u8> {
    c(&format!("extern long helper(long); long {name}(long n) {{ return helper(n) + 1; }}")).unwrap()
}

/// Runs on a thread that ends, so that the C library has nothing of a thread's to keep the library for.
fn on_a_thread_that_ends<T: Send + 'static>(copy: &Copy, act: impl FnOnce(Copy) -> T + Send + 'static) -> T {
    let address = copy.0 as usize;
    thread::spawn(move || act(Copy(address as _))).join().unwrap()
}

/// A session of the test's own, with a function that calls `helper`.
struct Own {
    jit: jittison::Jit,
}

impl Own {
    fn new(helper: Call) -> Own {
        let jit = new_jit();
        define_absolute(jit.main_dylib(), "helper", helper as *const () as u64);
        Own { jit }
    }

    /// A session with a function that stays in its list, and what keeps that there.
    fn with_own_kept(helper: Call) -> (Own, ResourceTracker) {
        let own = Own::new(helper);
        let kept = add(&own.jit, own.jit.main_dylib(), "kept.o", &calling("own_kept"));
        assert_eq!(crate::own_function(&own.jit, "own_kept")(0), 1);
        (own, kept)
    }

    /// Links a function, calls it, and removes it again; having seen it in its list meanwhile, and only then.
    fn comes_and_goes(&self, name: &str) {
        let before = DebuggerList::own().files().len();
        let tracker = add(&self.jit, self.jit.main_dylib(), "own.o", &calling(name));
        assert_eq!(crate::own_function(&self.jit, name)(0), 1);
        assert_eq!(DebuggerList::own().files().len(), before + 1);
        assert_eq!(DebuggerList::own().count_with(name), 1);
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(DebuggerList::own().files().len(), before);
    }
}

#[test]
fn a_closed_library_s_list_has_what_lives_and_the_other_copy_s_list_goes_on() {
    said_alone_with(this_test!(), &TOLD);
    if !is_child() {
        return;
    }
    let (own, _kept) = Own::with_own_kept(crate::helps_nobody);
    for round in 0..2 {
        let copy = Copy::open();
        let list = copy.list();
        assert_ne!(list.descriptor, DebuggerList::own().descriptor);
        let of_library = on_a_thread_that_ends(&copy, |copy| {
            copy.begin(&calling("of_library"), crate::helps_nobody);
            copy.find("of_library")
        });
        assert_eq!((list.files().len(), list.count_with("of_library")), (1, 1));
        // Ended first, or not.
        if round == 0 {
            assert!(on_a_thread_that_ends(&copy, |copy| copy.end()));
            assert_eq!(list.files().len(), 0);
        }
        copy.close();
        assert!(is_loaded(), "what sessions leave behind is with the loader and with other threads");
        own.comes_and_goes("own_meanwhile");
        assert_eq!((list.files().len(), list.count_with("of_library")), (round, round));
        if round == 1 {
            assert_eq!(of_library(0), 1);
        }
        assert_eq!(DebuggerList::own().files().len(), 1);
    }
}

#[test]
fn a_library_that_is_unloaded_with_entries_takes_its_list_along_and_nobody_else_s() {
    said_alone_with(this_test!(), &TOLD);
    if !is_child() {
        return;
    }
    let (own, _kept) = Own::with_own_kept(crate::helps_nobody);
    let object = c("long listed_only(void) { return 7; }").unwrap();
    for is_ended in [true, false, false] {
        let copy = Copy::open();
        let list = copy.list();
        let object = object.clone();
        on_a_thread_that_ends(&copy, move |copy| copy.list_only(&object, "listed_only"));
        assert_eq!((list.files().len(), list.count_with("listed_only")), (1, 1));
        if is_ended {
            on_a_thread_that_ends(&copy, |copy| copy.unlist());
            assert_eq!(list.files().len(), 0);
        }
        copy.close();
        assert!(!is_loaded(), "nothing holds it");
        own.comes_and_goes("own_meanwhile");
        assert_eq!((DebuggerList::own().files().len(), DebuggerList::own().count_with("own_kept")), (1, 1));
    }
}

#[test]
fn gdb_knows_the_code_of_both_copies_when_the_library_is_closed_and_when_it_is_gone() {
    let test = this_test!();
    if is_rerun(test) {
        let own = Own::new(stops);
        let _kept = add(&own.jit, own.jit.main_dylib(), "kept.o", &calling("own_kept"));
        let own_kept = crate::own_function(&own.jit, "own_kept");
        let unloaded = Copy::open();
        let object = c("long listed_only(void) { return 7; }").unwrap();
        on_a_thread_that_ends(&unloaded, move |copy| copy.list_only(&object, "listed_only"));
        unloaded.close();
        assert!(!is_loaded());
        assert_eq!(own_kept(1), 2);
        let closed = Copy::open();
        let of_library = on_a_thread_that_ends(&closed, |copy| {
            copy.begin(&calling("of_library"), stops);
            copy.find("of_library")
        });
        closed.close();
        assert_eq!((of_library(2), own_kept(3)), (3, 4));
        return;
    }
    let Some(library) = crate::built_library() else { return };
    let commands = format!(
        "set environment {}={}\nset environment JITTISON_GDB=1\nbreak jittison_test_checkpoint\nrun\n\
         echo [unloaded]\\n\nbacktrace 3\ncontinue\necho [closed]\\n\nbacktrace 3\ncontinue\n\
         echo [own]\\n\nbacktrace 3\ncontinue\n",
        crate::CHILD,
        library.display()
    );
    let Some(told) = gdb(test, &commands) else { return };
    let part = |from: &str| told.split_once(from).unwrap_or_else(|| panic!("no {from}: {told}")).1;
    for (mark, name) in [("[unloaded]\n", "own_kept"), ("[closed]\n", "of_library"), ("[own]\n", "own_kept")] {
        let part = part(mark).split("Continuing").next().unwrap();
        assert!(part.contains(&format!(" in {name} ()")), "{mark}: {told}");
    }
    assert!(told.contains("exited normally"), "{told}");
}

/// Where gdb stops in the host, called by linked code.
extern "C-unwind" fn stops(number: i64) -> i64 {
    jittison_test_checkpoint(number)
}
