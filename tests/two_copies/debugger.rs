//! The debugger lists of two copies. One copy is in a library that is closed with live code, without code, or with nothing that
//! keeps it loaded. Each copy has its own list. The tests read the lists directly and with gdb.

use std::thread;

use jittison::ResourceTracker;

use crate::support::*;
use crate::{Call, Copy, is_child, is_loaded, printed_by_rerun_with};

/// The environment that makes both copies register code with debuggers.
const WITH_DEBUGGER: [(&str, &str); 1] = [("JITTISON_GDB", "1")];

impl Copy {
    /// The debugger list of the copy in the library.
    fn list(&self) -> DebuggerList {
        let address = |name| {
            // SAFETY: the signature of both functions in `library.rs`.
            let get = unsafe { std::mem::transmute::<usize, extern "C" fn() -> usize>(self.symbol(name)) };
            get()
        };
        DebuggerList { descriptor: address("copy_list") as _, lock: address("copy_list_lock") as _ }
    }

    /// Lists an object in a session that does not keep the library loaded.
    fn list_only(&self, object: &[u8], name: &str) {
        type ListOnly = unsafe extern "C" fn(*const u8, usize, *const u8, usize);
        // SAFETY: the signature in `library.rs`, with the bytes of the object and of the name.
        unsafe {
            let list_only: ListOnly = std::mem::transmute(self.symbol("copy_list_only"));
            list_only(object.as_ptr(), object.len(), name.as_ptr(), name.len());
        }
    }

    fn unlist(&self) {
        // SAFETY: the signature in `library.rs`.
        unsafe { std::mem::transmute::<usize, extern "C" fn()>(self.symbol("copy_unlist"))() }
    }
}

/// An object with a function that calls `helper`. Backtraces show the function by its name.
fn calling(name: &str) -> Vec<u8> {
    c(&format!("extern long helper(long); long {name}(long n) {{ return helper(n) + 1; }}")).unwrap()
}

/// Runs `act` on a thread that ends, so that no thread-local destructor keeps the library loaded.
fn on_a_thread_that_ends<T: Send + 'static>(copy: &Copy, act: impl FnOnce(Copy) -> T + Send + 'static) -> T {
    let address = copy.0 as usize;
    thread::spawn(move || act(Copy(address as _))).join().unwrap()
}

/// A session of the copy of the test, whose functions call `helper`.
struct OwnSession {
    jit: jittison::Jit,
}

impl OwnSession {
    fn new(helper: Call) -> OwnSession {
        let jit = new_jit();
        define_absolute(jit.main_dylib(), "helper", helper as *const () as u64);
        OwnSession { jit }
    }

    /// A session with a listed function, and the tracker that keeps it.
    fn with_listed_function(helper: Call) -> (OwnSession, ResourceTracker) {
        let own = OwnSession::new(helper);
        let kept = add(&own.jit, own.jit.main_dylib(), "kept.o", &calling("own_kept"));
        assert_eq!(crate::own_function(&own.jit, "own_kept")(0), 1);
        (own, kept)
    }

    /// Links a function, calls it and removes it. The list has the function only in between.
    fn link_and_remove(&self, name: &str) {
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
fn closing_a_library_keeps_live_debugger_entries_in_both_lists() {
    printed_by_rerun_with(this_test!(), &WITH_DEBUGGER);
    if !is_child() {
        return;
    }
    let (own, _kept) = OwnSession::with_listed_function(crate::returns_zero);
    for round in 0..2 {
        let copy = Copy::open();
        let list = copy.list();
        assert_ne!(list.descriptor, DebuggerList::own().descriptor);
        let of_library = on_a_thread_that_ends(&copy, |copy| {
            copy.begin(&calling("of_library"), crate::returns_zero);
            copy.find("of_library")
        });
        assert_eq!((list.files().len(), list.count_with("of_library")), (1, 1));
        // In the first round the session ends before the library is closed.
        if round == 0 {
            assert!(on_a_thread_that_ends(&copy, |copy| copy.end()));
            assert_eq!(list.files().len(), 0);
        }
        copy.close();
        assert!(is_loaded(), "the loader and other threads still refer to the library");
        own.link_and_remove("own_meanwhile");
        assert_eq!((list.files().len(), list.count_with("of_library")), (round, round));
        if round == 1 {
            assert_eq!(of_library(0), 1);
        }
        assert_eq!(DebuggerList::own().files().len(), 1);
    }
}

#[test]
fn unloading_a_library_removes_only_its_own_debugger_list() {
    printed_by_rerun_with(this_test!(), &WITH_DEBUGGER);
    if !is_child() {
        return;
    }
    let (own, _kept) = OwnSession::with_listed_function(crate::returns_zero);
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
        assert!(!is_loaded(), "nothing keeps it loaded");
        own.link_and_remove("own_meanwhile");
        assert_eq!((DebuggerList::own().files().len(), DebuggerList::own().count_with("own_kept")), (1, 1));
    }
}

#[test]
fn gdb_knows_code_of_both_copies_after_the_library_is_closed_or_unloaded() {
    let test = this_test!();
    if is_rerun(test) {
        let own = OwnSession::new(stop_in_host);
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
            copy.begin(&calling("of_library"), stop_in_host);
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
    let Some(output) = gdb(test, &commands) else { return };
    let part = |from: &str| output.split_once(from).unwrap_or_else(|| panic!("no {from}: {output}")).1;
    for (mark, name) in [("[unloaded]\n", "own_kept"), ("[closed]\n", "of_library"), ("[own]\n", "own_kept")] {
        let part = part(mark).split("Continuing").next().unwrap();
        assert!(part.contains(&format!(" in {name} ()")), "{mark}: {output}");
    }
    assert!(output.contains("exited normally"), "{output}");
}

/// Linked code calls this function, and gdb stops in it.
extern "C-unwind" fn stop_in_host(number: i64) -> i64 {
    jittison_test_checkpoint(number)
}
