//! Initialisers run once and in order before code is used. Finalisers run in exact reverse when the code is removed.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

use jittison::{Jit, Program, ReclaimPolicy, ResourceTracker};

use crate::recorder::{install, push, recording_jit, take};
use crate::support::*;

/// Assembler source with lists of functions in sections. Each function records its number.
fn lists(sections: &[(&str, &[i64])]) -> String {
    let mut text = String::from(".section .note.GNU-stack,\"\",@progbits\n.text\n.globl touch\ntouch: ret\n");
    for number in sections.iter().flat_map(|(_, numbers)| *numbers) {
        text += &format!("f{number}: mov ${number}, %edi\njmp record@PLT\n");
    }
    for (section, numbers) in sections {
        let kind = if section.starts_with(".init") { "@init_array" } else { "@progbits" };
        let kind = if section.starts_with(".fini") { "@fini_array" } else { kind };
        text += &format!(".section {section},\"aw\",{kind}\n.balign 8\n");
        numbers.iter().for_each(|number| text += &format!(".quad f{number}\n"));
    }
    text
}

/// C source with constructors and destructors of three priorities and of none. They record `base` plus an offset.
fn prioritised(base: i64) -> String {
    let function = |attribute: &str, priority: &str, event: i64| {
        format!("__attribute__(({attribute}{priority})) static void {attribute}{event}(void) {{ record({event}); }}\n")
    };
    let mut text = format!("extern void record(long); long touch{base}(void) {{ return {base}; }}\n");
    for (priority, offset) in [("", 9), ("(103)", 3), ("(101)", 1), ("(102)", 2)] {
        text += &function("constructor", priority, base + offset);
        text += &function("destructor", priority, base + 50 + offset);
    }
    text
}

/// The C strings of a list that ends with null.
fn strings(list: i64) -> Vec<CString> {
    let list = list as *const *const c_char;
    // SAFETY: the list and its strings are those that an initialiser got and kept. Nothing changes them during the test.
    let string = |index| unsafe {
        let pointer = list.add(index).read();
        (!pointer.is_null()).then(|| CStr::from_ptr(pointer).to_owned())
    };
    (0..).map_while(string).collect()
}

// Seen red: the function of priority 0 of an earlier object was called first.
#[test]
fn pre_initialisers_of_all_objects_run_before_initialisers_of_priority_zero() {
    let preinit = |number: i64| {
        asm(&format!(
            ".section .note.GNU-stack,\"\",@progbits\n.text\nf: mov ${number}, %edi\njmp record@PLT
             .section .preinit_array,\"aw\",@preinit_array\n.balign 8\n.quad f"
        ))
    };
    let (Some(first), Some(second), Some(third)) =
        (asm(&lists(&[(".init_array.0", &[1]), (".init_array", &[2])])), preinit(3), preinit(4))
    else {
        return;
    };
    let jit = recording_jit();
    let _objects = [("a.o", first), ("b.o", second), ("c.o", third)]
        .map(|(name, object)| add(&jit, jit.main_dylib(), name, &object));
    initialize(&jit, jit.main_dylib());
    assert_eq!(take(), [3, 4, 1, 2]);
}

#[test]
fn initialisers_may_keep_their_arguments_and_their_environment() {
    let source = "static int count; static char **arguments, **environment;
         static void keep(int argc, char **argv, char **envp) {
             count = argc; arguments = argv; environment = envp;
         }
         __attribute__((section(\".init_array\"), used)) static void (*entry)(int, char **, char **) = keep;
         long kept_count(void) { return count; }
         long kept_arguments(void) { return (long)arguments; }
         long kept_environment(void) { return (long)environment; }";
    let Some(object) = c(source) else { return };
    let jit = new_jit();
    let _tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let count = long(&jit, "kept_count");
    let arguments = strings(long(&jit, "kept_arguments"));
    let expected: Vec<_> = std::env::args().map(|argument| CString::new(argument).unwrap()).collect();
    assert_eq!((count as usize, &arguments), (expected.len(), &expected));
    let environment = strings(long(&jit, "kept_environment"));
    let has_path = |variable: &CString| variable.to_bytes().starts_with(b"PATH=");
    assert_eq!(environment.iter().any(has_path), std::env::var_os("PATH").is_some());
}

/// The runtime of Go looks for its page size there.
#[test]
fn the_environment_and_the_auxiliary_vector_lie_behind_the_arguments() {
    let source = "static long variables, page_size;
         static void walk(int argc, char **argv, char **envp) {
             char **next = argv + argc + 1;
             for (; *next; next++) variables += (*next)[0] != 0;
             for (long *pair = (long *)(next + 1); pair[0]; pair += 2) if (pair[0] == 6) page_size = pair[1];
         }
         __attribute__((section(\".init_array\"), used)) static void (*entry)(int, char **, char **) = walk;
         long counted_variables(void) { return variables; }
         long found_page_size(void) { return page_size; }";
    let Some(object) = c(source) else { return };
    let jit = new_jit();
    let _tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    assert_eq!(long(&jit, "counted_variables") == 0, std::env::vars_os().next().is_none());
    assert_eq!(long(&jit, "found_page_size"), page_size() as i64);
}

#[test]
fn arguments_of_a_program_stay_valid_after_it_has_ended() {
    own_process!();
    let source = "static char **kept; int main(int argc, char **argv) { kept = argv; return argc; }
         long kept_arguments(void) { return (long)kept; }";
    let Some(object) = c(source) else { return };
    let jit = new_jit();
    let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
    let program = Program::new(&jit, &tracker).unwrap();
    let arguments = [c"program".to_owned(), c"a long argument that is in a block of memory of its own".to_owned()];
    // SAFETY: the object defines a `main` of C, and it may run.
    assert_eq!(unsafe { program.run("main", &arguments, |_| {}) }.unwrap(), 2);
    assert_eq!(strings(long(&jit, "kept_arguments")), arguments);
}

#[test]
fn initialisers_of_every_section_run_by_priority_and_finalisers_in_reverse() {
    let text = lists(&[
        (".init_array", &[1, 2]),
        (".init_array.00103", &[103]),
        (".ctors.00101", &[201]),
        (".init_array.00101", &[101, 104]),
        (".ctors.00103", &[203, 204]), // runs from the end of the section
        (".init_array.00102", &[102]),
        (".ctors.00102", &[202]),
        (".fini_array", &[11, 12]),
        (".fini_array.00101", &[111]),
        (".fini_array.00102", &[112, 113]),
        (".dtors.00102", &[212]),
        (".dtors.00103", &[213]),
    ]);
    let Some(object) = asm(&text) else { return };
    let jit = recording_jit();
    let tracker = add(&jit, jit.main_dylib(), "lists.o", &object);
    assert_eq!(initialize(&jit, jit.main_dylib()), 10);
    assert_eq!(take(), [101, 104, 102, 103, 204, 203, 202, 201, 1, 2]);
    assert_eq!(initialize(&jit, jit.main_dylib()), 0, "initialisers run only once");
    assert_eq!(take(), []);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [12, 11, 212, 213, 113, 112, 111]);
}

#[test]
fn unnumbered_ctors_run_last_from_the_end_and_unnumbered_dtors_first_from_the_start() {
    let Some(object) = asm(&lists(&[
        (".ctors", &[3, 2]),
        (".ctors.65434", &[1]), // the same priority as `.init_array.00101`
        (".dtors", &[5, 6]),
        (".dtors.65434", &[7]),
    ])) else {
        return;
    };
    let jit = recording_jit();
    let tracker = add(&jit, jit.main_dylib(), "old.o", &object);
    assert_eq!(initialize(&jit, jit.main_dylib()), 3);
    assert_eq!(take(), [1, 2, 3]);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [5, 6, 7], "a .dtors list runs from its start");
}

// Seen red: a list without a number had the priority 65535, so the order of the objects decided.
#[test]
fn lists_without_a_number_come_after_all_lists_with_one_across_objects() {
    let object = |number: i64, section: &str, opposite: &str| {
        asm(&lists(&[(section, &[number]), (opposite, &[number + 10])]).replace("touch", &format!("touch{number}")))
    };
    let (Some(plain), Some(last), Some(named)) = (
        object(1, ".init_array", ".fini_array"),
        object(2, ".init_array.65535", ".fini_array.65535"),
        object(3, ".init_array.name", ".dtors"),
    ) else {
        return;
    };
    let jit = recording_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    for (name, object) in [("plain.o", &plain), ("last.o", &last), ("named.o", &named)] {
        jit.add_object(&tracker, name, &object[..]).unwrap();
    }
    assert_eq!(initialize(&jit, jit.main_dylib()), 3);
    assert_eq!(take(), [2, 1, 3], "a suffix that is no number has no effect");
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [13, 11, 12]);
}

// Seen red: the order of the objects decided.
#[test]
fn lists_of_one_priority_are_in_the_order_of_their_names_across_objects() {
    let object = |number: i64, section: &str, opposite: &str| {
        asm(&lists(&[(section, &[number]), (opposite, &[number + 10])]).replace("touch", &format!("touch{number}")))
    };
    let (Some(short), Some(long), Some(old), Some(other)) = (
        object(1, ".init_array.200", ".fini_array.200"),
        object(2, ".init_array.00200", ".fini_array.00200"),
        object(3, ".ctors.65335", ".dtors.65335"),
        object(4, ".init_array.200", ".fini_array.200"),
    ) else {
        return;
    };
    let jit = recording_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    for (name, object) in [("short.o", &short), ("long.o", &long), ("old.o", &old), ("other.o", &other)] {
        jit.add_object(&tracker, name, &object[..]).unwrap();
    }
    assert_eq!(initialize(&jit, jit.main_dylib()), 4);
    assert_eq!(take(), [3, 2, 1, 4], "the order of GNU ld");
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [14, 11, 12, 13]);
}

#[test]
fn objects_of_one_priority_are_initialised_in_the_order_added_and_finalised_in_reverse() {
    let (Some(a), Some(b)) = (c(&prioritised(100)), c(&prioritised(200))) else { return };
    for together in [true, false] {
        let jit = recording_jit();
        let first = jit.main_dylib().create_tracker().unwrap();
        let second = if together { first.clone() } else { jit.main_dylib().create_tracker().unwrap() };
        jit.add_object(&first, "a.o", &a[..]).unwrap();
        jit.add_object(&second, "b.o", &b[..]).unwrap();
        // The second object is linked first.
        jit.address_of(jit.main_dylib(), "touch200").unwrap();
        assert_eq!(take(), [], "linking runs nothing");
        assert_eq!(initialize(&jit, jit.main_dylib()), 8);
        assert_eq!(take(), [101, 201, 102, 202, 103, 203, 109, 209]);
        if together {
            assert!(first.remove().unwrap().is_complete());
            assert_eq!(take(), [259, 159, 253, 153, 252, 152, 251, 151]);
        } else {
            assert!(first.remove().unwrap().is_complete());
            assert_eq!(take(), [159, 153, 152, 151], "only the finalisers of the removed tracker");
            assert_eq!(long(&jit, "touch200"), 200);
            assert!(second.remove().unwrap().is_complete());
            assert_eq!(take(), [259, 253, 252, 251]);
        }
        drop(jit);
        assert_eq!(take(), [], "finalisers do not run again at the end of the session");
    }
}

#[test]
fn a_lookup_runs_pending_initialisers_once_before_it_returns() {
    let (Some(a), Some(b)) = (
        c(&prioritised(100)),
        c("
        extern long touch100(void); extern void record(long);
        __attribute__((constructor)) static void set(void) { record(7); }
        long test(void) { record(8); return touch100(); }"),
    ) else {
        return;
    };
    let jit = recording_jit();
    let _a = add(&jit, jit.main_dylib(), "a.o", &a);
    let _b = add(&jit, jit.main_dylib(), "b.o", &b);
    let test = function::<extern "C" fn() -> i64>(&jit, "test");
    assert_eq!(take(), [101, 102, 103, 109, 7], "the initialisers of its dependencies run, too");
    assert_eq!(test.call(), 100);
    function::<extern "C" fn() -> i64>(&jit, "test").call();
    assert_eq!(take(), [8, 8]);
}

#[test]
fn pending_initialisers_of_a_removed_tracker_never_run() {
    let Some(object) = c(&prioritised(100)) else { return };
    let jit = recording_jit();
    for is_linked in [false, true] {
        let tracker = add(&jit, jit.main_dylib(), "a.o", &object);
        if is_linked {
            jit.address_of(jit.main_dylib(), "touch100").unwrap();
        }
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(initialize(&jit, jit.main_dylib()), 0);
        assert_eq!(take(), [], "neither initialisers nor finalisers run");
        assert_eq!((held(&jit), jit.main_dylib().symbol_count()), ((0, 0, 0), 1));
    }
}

#[test]
fn a_transfer_moves_finalisers() {
    let (Some(a), Some(b)) = (c(&prioritised(100)), c(&prioritised(200))) else { return };
    let jit = recording_jit();
    let first = add(&jit, jit.main_dylib(), "a.o", &a);
    let second = add(&jit, jit.main_dylib(), "b.o", &b);
    initialize(&jit, jit.main_dylib());
    take();
    first.transfer_to(&second).unwrap();
    assert!(first.remove().is_err());
    assert_eq!(take(), []);
    assert!(second.remove().unwrap().is_complete());
    assert_eq!(take(), [259, 159, 253, 153, 252, 152, 251, 151]);
}

#[test]
fn a_transfer_moves_pending_initialisers() {
    let Some(a) = c(&prioritised(100)) else { return };
    let jit = recording_jit();
    let first = add(&jit, jit.main_dylib(), "a.o", &a);
    jit.address_of(jit.main_dylib(), "touch100").unwrap();
    let second = jit.main_dylib().create_tracker().unwrap();
    first.transfer_to(&second).unwrap();
    assert_eq!(initialize(&jit, jit.main_dylib()), 4);
    assert_eq!(take(), [101, 102, 103, 109]);
    assert!(second.remove().unwrap().is_complete());
    assert_eq!(take(), [159, 153, 152, 151]);
}

#[test]
fn finalisers_run_after_the_last_handle_or_at_the_end_of_the_session() {
    let Some(a) = c(&prioritised(100)) else { return };
    let jit = recording_jit();
    let tracker = add(&jit, jit.main_dylib(), "a.o", &a);
    let touch = function::<extern "C" fn() -> i64>(&jit, "touch100");
    take();
    let removal = tracker.remove().unwrap();
    assert_eq!(removal.blockers(), (1, 0));
    assert_eq!(take(), []);
    assert_eq!(touch.call(), 100);
    drop(touch);
    assert!(removal.is_complete());
    assert_eq!(take(), [159, 153, 152, 151]);

    let _again = add(&jit, jit.main_dylib(), "a.o", &a);
    initialize(&jit, jit.main_dylib());
    take();
    jit.session().end().unwrap();
    assert_eq!(take(), [159, 153, 152, 151]);
}

#[test]
fn under_the_explicit_policy_finalisers_run_in_reclaim() {
    let Some(a) = c(&prioritised(100)) else { return };
    let jit = Jit::builder().reclaim_policy(ReclaimPolicy::Explicit).build().unwrap();
    install(&jit, jit.main_dylib());
    let tracker = add(&jit, jit.main_dylib(), "a.o", &a);
    let touch = function::<extern "C" fn() -> i64>(&jit, "touch100");
    take();
    tracker.remove().unwrap();
    std::thread::spawn(move || {
        drop(touch);
        assert_eq!(take(), [], "no finaliser runs on the thread that dropped the handle");
    })
    .join()
    .unwrap();
    assert_eq!(jit.session().reclaim(), 1);
    assert_eq!(take(), [159, 153, 152, 151]);
    assert_eq!(held(&jit), (0, 0, 0));
}

/// The state of [`reenter`].
struct Inside {
    jit: Jit,
    object: Vec<u8>,
    /// The tracker of the object that the initialiser added.
    added: Option<ResourceTracker>,
}

thread_local! {
    static INSIDE: RefCell<Option<Inside>> = const { RefCell::new(None) };
}

/// Adds, looks up and calls another object, from inside an initialiser or finaliser.
extern "C" fn reenter(event: i64) -> i64 {
    let (jit, object) = INSIDE.with_borrow(|inside| {
        let inside = inside.as_ref().unwrap();
        (inside.jit.clone(), inside.object.clone())
    });
    let tracker = add(&jit, jit.main_dylib(), &format!("inner{event}.o"), &object);
    let result = long(&jit, "inner");
    push(result);
    if event == 1 {
        INSIDE.with_borrow_mut(|inside| inside.as_mut().unwrap().added = Some(tracker));
    } else {
        assert!(tracker.remove().unwrap().is_complete());
    }
    push(event);
    result
}

#[test]
fn initialisers_and_finalisers_may_add_and_look_up_other_objects() {
    let (Some(outer), Some(inner)) = (
        c("extern long reenter(long); extern void record(long); static long result;
           __attribute__((constructor(150))) static void set(void) { result = reenter(1); }
           __attribute__((constructor(160))) static void after(void) { record(160); }
           __attribute__((destructor)) static void unset(void) { reenter(2); }
           long test(void) { return result; }"),
        c("extern void record(long); static long state;
           __attribute__((constructor)) static void set(void) { record(70); state = 71; }
           __attribute__((destructor)) static void unset(void) { record(79); }
           long inner(void) { return state; }"),
    ) else {
        return;
    };
    let jit = recording_jit();
    define_function(&jit, jit.main_dylib(), "reenter", reenter as extern "C" fn(i64) -> i64);
    INSIDE.set(Some(Inside { jit: jit.clone(), object: inner, added: None }));
    let tracker = add(&jit, jit.main_dylib(), "outer.o", &outer);
    assert_eq!(long(&jit, "test"), 71);
    assert_eq!(take(), [70, 71, 1, 160], "the inner object is initialised inside the outer's initialiser");
    let inner = INSIDE.with_borrow_mut(|inside| inside.as_mut().unwrap().added.take()).unwrap();
    assert!(inner.remove().unwrap().is_complete());
    assert_eq!(take(), [79]);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(take(), [70, 71, 79, 2], "the inner object is initialised and finalised inside the outer's finaliser");
    assert_eq!(held(&jit), (0, 0, 0));
    INSIDE.set(None);
}

#[test]
fn eight_threads_that_race_for_one_object_see_it_initialised_once() {
    let Some(object) = c("
        static long count; static volatile long delay;
        __attribute__((constructor)) static void set(void) { for (long i = 0; i < 200000; i++) delay++; count++; }
        long test(void) { return count; }")
    else {
        return;
    };
    for _ in 0..20 {
        let jit = new_jit();
        let _tracker = add(&jit, jit.main_dylib(), "slow.o", &object);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| assert_eq!(long(&jit, "test"), 1));
            }
        });
    }
}

/// The channels between an initialiser that waits and its test.
static BEGUN: std::sync::Mutex<Option<std::sync::mpsc::Sender<()>>> = std::sync::Mutex::new(None);
static MAY_END: std::sync::Mutex<Option<std::sync::mpsc::Receiver<()>>> = std::sync::Mutex::new(None);

extern "C" fn wait_for_the_test() -> i64 {
    let may_end = MAY_END.lock().unwrap().take().unwrap();
    BEGUN.lock().unwrap().take().unwrap().send(()).unwrap();
    may_end.recv_timeout(std::time::Duration::from_secs(60)).is_ok().into()
}

#[test]
fn a_running_initialiser_does_not_block_dylibs_without_pending_initialisers() {
    let (Some(slow), Some(plain), Some(waiting)) = (
        c("extern long wait_for_the_test(void); static long result;
           __attribute__((constructor)) static void set(void) { result = wait_for_the_test(); }
           long test(void) { return result; }"),
        c("long plain(void) { return 5; }"),
        c(
            "static long state; __attribute__((constructor)) static void set(void) { state = 1; } long other(void) { return state; }",
        ),
    ) else {
        return;
    };
    let (begin, begun) = std::sync::mpsc::channel();
    let (end, may_end) = std::sync::mpsc::channel();
    (*BEGUN.lock().unwrap(), *MAY_END.lock().unwrap()) = (Some(begin), Some(may_end));
    let jit = new_jit();
    define_function(&jit, jit.main_dylib(), "wait_for_the_test", wait_for_the_test as extern "C" fn() -> i64);
    let _slow = add(&jit, jit.main_dylib(), "slow.o", &slow);
    let [second, third] = ["second", "third"].map(|name| jit.create_dylib(name).unwrap());
    let _plain = add(&jit, &second, "plain.o", &plain);
    let _waiting = add(&jit, &third, "waiting.o", &waiting);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| long(&jit, "test"));
        begun.recv().unwrap();
        // This links the object and does not initialise it.
        jit.address_of(&third, "other").unwrap();
        assert_eq!(long_in(&jit, &second, "plain"), 5);
        end.send(()).unwrap();
        assert_eq!(first.join().unwrap(), 1, "the initialiser waited until the other dylib was used");
    });
    assert_eq!(long_in(&jit, &third, "other"), 1);
}
