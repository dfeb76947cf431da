//! Debuggers find names and lines of linked code as long as the code exists. These tests read the list of symbol files directly
//! and with gdb.

use fastrand::Rng;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::FixedLink;
use jittison::{Error, ErrorKind, Jit, JitDylib, ResourceTracker};

use crate::support::*;

/// All symbol files in the list, the newest first.
fn listed() -> Vec<Vec<u8>> {
    DebuggerList::own().files()
}

/// The number of listed files that have a symbol of that name.
fn listed_with(name: &str) -> usize {
    DebuggerList::own().count_with(name)
}

fn jit_with_debugger() -> Jit {
    Jit::builder().debugger(true).trap_freed_code(true).build().unwrap()
}

fn add_function(jit: &Jit, dylib: &JitDylib, name: &str) -> Option<ResourceTracker> {
    let object = c(&format!("long {name}(void) {{ return 7; }}"))?;
    Some(add(jit, dylib, &format!("{name}.o"), &object))
}

#[test]
fn an_object_is_listed_from_its_link_to_its_removal() {
    let jit = jit_with_debugger();
    let Some(tracker) = add_function(&jit, jit.main_dylib(), "listed_once") else { return };
    assert_eq!(listed_with("listed_once"), 0, "the object is not linked before the lookup");
    let held = function::<extern "C" fn() -> i64>(&jit, "listed_once");
    assert_eq!(listed_with("listed_once"), 1);
    let removal = tracker.remove().unwrap();
    assert!(!removal.is_complete());
    assert_eq!((listed_with("listed_once"), held.call()), (1, 7), "held code stays listed and callable");
    drop(held);
    assert_eq!(listed_with("listed_once"), 0);
}

#[test]
fn nothing_is_listed_unless_the_option_is_set() {
    let jit = new_jit();
    let Some(_tracker) = add_function(&jit, jit.main_dylib(), "unlisted") else { return };
    assert_eq!(long(&jit, "unlisted"), 7);
    assert_eq!(listed_with("unlisted"), 0);
}

#[test]
fn a_failed_link_is_not_listed() {
    let Some(object) = c("extern long missing(void); long fails_to_link(void) { return missing() + 1; }") else {
        return;
    };
    let jit = jit_with_debugger();
    refused_in(&jit, &object, "fails_to_link");
    assert_eq!(listed_with("fails_to_link"), 0);
    // This link fails late: the debugger's hooks have run, and the link is not recorded yet.
    jit.layer().add_plugin(Arc::new(Refusing));
    let Some(object) = c("long refused_late(void) { return 7; }") else { return };
    let tracker = add(&jit, jit.main_dylib(), "late.o", &object);
    let error = try_function::<extern "C" fn() -> i64>(&jit, jit.main_dylib(), "refused_late").unwrap_err();
    assert_says(&error, &["refused by the test"]);
    assert_eq!(listed_with("refused_late"), 0);
    assert!(tracker.remove().unwrap().is_complete());
}

struct Refusing;

impl LinkPlugin for Refusing {
    fn begin(&self, _origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(Refusing))
    }
}

impl LinkHooks for Refusing {
    fn fixed_up(&mut self, _link: &mut FixedLink<'_>) -> Result<(), Error> {
        Err(ErrorKind::NoSuchStub { dylib: "refused by the test".to_string(), symbol: String::new() }.into())
    }
}

#[test]
fn a_transferred_entry_stays_until_the_destination_is_removed() {
    let jit = jit_with_debugger();
    let Some(first) = add_function(&jit, jit.main_dylib(), "transferred_a") else { return };
    let Some(second) = add_function(&jit, jit.main_dylib(), "transferred_b") else { return };
    long(&jit, "transferred_a");
    long(&jit, "transferred_b");
    second.transfer_to(&first).unwrap();
    assert_eq!((listed_with("transferred_a"), listed_with("transferred_b")), (1, 1));
    assert!(first.remove().unwrap().is_complete());
    assert_eq!((listed_with("transferred_a"), listed_with("transferred_b")), (0, 0));
}

#[test]
fn the_end_of_a_session_removes_its_entries() {
    let jit = jit_with_debugger();
    let Some(tracker) = add_function(&jit, jit.main_dylib(), "of_an_ended_session") else { return };
    long(&jit, "of_an_ended_session");
    assert_eq!(listed_with("of_an_ended_session"), 1);
    drop((tracker, jit));
    assert_eq!(listed_with("of_an_ended_session"), 0);
}

#[test]
fn an_ended_session_removes_its_entries_except_those_of_held_code() {
    own_process!();
    let (ends, stays) = (jit_with_debugger(), jit_with_debugger());
    let names = ["ends_0", "stays_0", "ends_1", "ends_2", "stays_1", "ends_3"];
    let mut trackers = Vec::new();
    for name in names {
        let jit = if name.starts_with("ends") { &ends } else { &stays };
        let Some(tracker) = add_function(jit, jit.main_dylib(), name) else { return };
        trackers.push(tracker);
        assert_eq!(long(jit, name), 7);
    }
    let listed_names = || {
        let name_of = |file: &Vec<u8>| names.into_iter().find(|name| has_symbol(file, name)).unwrap();
        listed().iter().map(name_of).collect::<Vec<_>>()
    };
    assert_eq!(listed_names(), ["ends_3", "stays_1", "ends_2", "ends_1", "stays_0", "ends_0"]);
    let held = function::<extern "C" fn() -> i64>(&ends, "ends_2");
    let dylib = ends.main_dylib().clone();
    drop(ends);
    assert_eq!(listed_names(), ["stays_1", "ends_2", "stays_0"], "held code stays listed and callable");
    assert_eq!(held.call(), 7);
    drop(held);
    assert_eq!(listed_names(), ["stays_1", "stays_0"]);
    drop((dylib, trackers));
    assert_eq!(listed_names(), ["stays_1", "stays_0"]);
    drop(stays);
    assert_eq!(listed(), [[0; 0]; 0]);
}

#[test]
fn the_list_stays_consistent_while_four_threads_of_two_sessions_add_and_remove() {
    let Some(object) = c("long churned_by_threads(void) { return 7; }") else { return };
    let jits = [jit_with_debugger(), jit_with_debugger()];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (jit, object) = (&jits[thread % 2], &object);
            scope.spawn(move || {
                let dylib = jit.create_dylib(&format!("thread {thread}")).unwrap();
                let mut live = Vec::new();
                let mut random = Rng::with_seed(thread as u64 + 1);
                for round in 0..150 {
                    // A dylib can define the name only once, so a module is added only if the dylib has none.
                    let dylib = if round % 3 == 0 { dylib.clone() } else { jit.create_dylib("one more").unwrap() };
                    if live.iter().all(|(other, _): &(JitDylib, ResourceTracker)| other.id() != dylib.id()) {
                        let tracker = add(jit, &dylib, "churned.o", object);
                        assert_eq!(long_in(jit, &dylib, "churned_by_threads"), 7);
                        live.push((dylib, tracker));
                    }
                    if live.len() > 5 {
                        let (_, tracker) = live.swap_remove(random.usize(..5));
                        assert!(tracker.remove().unwrap().is_complete());
                    }
                    assert!(listed_with("churned_by_threads") >= live.len());
                }
                live.into_iter().for_each(|(_, tracker)| assert!(tracker.remove().unwrap().is_complete()));
            });
        }
    });
    assert_eq!(listed_with("churned_by_threads"), 0);
}

#[test]
fn a_forked_child_edits_its_own_list_even_if_a_lost_thread_held_the_lock() {
    own_process!();
    let jit = jit_with_debugger();
    let Some(tracker) = add_function(&jit, jit.main_dylib(), "forked_with") else { return };
    long(&jit, "forked_with");
    // The lock is held as if another thread were editing the list.
    let list = DebuggerList::own();
    let lock = list.lock();
    // SAFETY: the child removes its tracker and ends. It does not return into the test harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let removed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert!(tracker.remove().unwrap().is_complete());
            assert_eq!(listed_with("forked_with"), 0);
        }));
        // SAFETY: ends the child here.
        unsafe { libc::_exit(i32::from(removed.is_err())) }
    }
    lock.store(0, Ordering::Release);
    let mut status = 0;
    // SAFETY: waits for the child. The kernel writes `status`.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(listed_with("forked_with"), 1);
}

/// The child wrote through an entry that it had freed.
#[test]
fn a_forked_child_mends_a_list_that_a_lost_thread_left_in_the_middle_of_a_removal() {
    own_process!();
    let jit = jit_with_debugger();
    let names = ["forked_third", "forked_second", "forked_first"];
    let mut trackers = Vec::new();
    for name in names {
        let Some(tracker) = add_function(&jit, jit.main_dylib(), name) else { return };
        long(&jit, name);
        trackers.push(tracker);
    }
    let list = DebuggerList::own();
    let lock = list.lock();
    // SAFETY: the child removes its trackers and ends. It does not return into the test harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let removed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: the list has three entries, and this is the only thread of the child.
            unsafe { list.interrupt_removal_of_second() };
            for index in [2, 0] {
                assert!(trackers[index].remove().unwrap().is_complete());
                assert_eq!(names.map(listed_with), [index.min(1), 1, 0]);
            }
        }));
        // SAFETY: ends the child here.
        unsafe { libc::_exit(i32::from(removed.is_err())) }
    }
    lock.store(0, Ordering::Release);
    let mut status = 0;
    // SAFETY: waits for the child. The kernel writes `status`.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(names.map(listed_with), [1, 1, 1]);
}

#[test]
fn the_debugger_symbols_of_this_program_are_weak_and_protected() {
    // Shares the process: the symbols are read from the program's file.
    // Symptom without this: a C library took the list that the program exports, and used its own lock for it.
    let Some(mut readelf) = require("readelf") else { return };
    let run = readelf.arg("-sW").arg(std::env::current_exe().unwrap()).output().unwrap();
    let symbols = String::from_utf8_lossy(&run.stdout).into_owned();
    for name in ["__jit_debug_descriptor", "__jit_debug_register_code", "__jittison_jit_debug_lock_v1"] {
        let is_it = |line: &&str| line.split_whitespace().last() == Some(name);
        let line = symbols.lines().find(is_it).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[4..6], ["WEAK", "PROTECTED"], "{line}");
    }
}

// ---- the symbol file --------------------------------------------------------

#[test]
fn a_symbol_file_has_addresses_and_no_more_than_a_debugger_needs() {
    let source = "static const char text[9000] = \"long\"; const char *symbol_file_text(void) { return text; }
                  __attribute__((section(\".text.dropped\"), unused)) static long dropped(void) { return 3; }
                  long symbol_file_common; long symbol_file_function(void) { return symbol_file_common; }";
    let Some(object) = gcc(&["-O2", "-fPIC", "-fcommon", "-ffunction-sections", "-fkeep-static-functions"], source)
    else {
        return;
    };
    let jit = jit_with_debugger();
    let _tracker = add(&jit, jit.main_dylib(), "symbol_file.o", &object);
    let address = function::<extern "C" fn() -> i64>(&jit, "symbol_file_function").address();
    let common = jit.address_of(jit.main_dylib(), "symbol_file_common").unwrap();
    let file = listed().into_iter().find(|file| has_symbol(file, "symbol_file_function")).unwrap();
    assert!(file.len() < 4000, "{} bytes of {}", file.len(), object.len());
    let dir = PrivateDir::new();
    dir.write("file", &file);
    let Some(mut readelf) = require("readelf") else { return };
    let run = readelf.args(["-SsW"]).arg(dir.path("file")).output().unwrap();
    let (output, complaints) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(complaints.is_empty(), "{complaints}");
    let line =
        |what: &str| output.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {output}"));
    assert!(line(" .text.symbol_file_function").contains(&format!("NOBITS          {:016x}", address.value())));
    assert!(line(" .eh_frame").contains("PROGBITS"));
    assert!(!output.contains(".text.dropped"), "{output}");
    assert!(line(" dropped").contains("UND"), "{output}");
    let common_line = line(" symbol_file_common");
    assert!(common_line.contains("ABS") && common_line.contains(&format!("{:016x}", common.value())), "{common_line}");
}

#[test]
fn a_symbol_file_has_the_right_addresses_behind_a_section_that_no_linker_loads() {
    let source = ".section .skipped, \"ae\", @progbits\n.quad 1\n.section .text.behind_skipped, \"ax\", @progbits\n\
                  .globl behind_skipped\nbehind_skipped: mov $5, %eax\nret\n.section .note.GNU-stack\n";
    let Some(object) = asm(source) else { return };
    let jit = jit_with_debugger();
    let _tracker = add(&jit, jit.main_dylib(), "behind_skipped.o", &object);
    let address = function::<extern "C" fn() -> i64>(&jit, "behind_skipped").address();
    let file = listed().into_iter().find(|file| has_symbol(file, "behind_skipped")).unwrap();
    let dir = PrivateDir::new();
    dir.write("file", &file);
    let Some(mut readelf) = require("readelf") else { return };
    let run = readelf.args(["-SW"]).arg(dir.path("file")).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout);
    let line = output.lines().find(|line| line.contains(" .text.behind_skipped")).unwrap();
    assert!(line.contains(&format!("{:016x}", address.value())), "{line}");
}

/// The output of `readelf -r` for the listed file with the symbol `name`. `None` without readelf.
fn listed_relocations(name: &str) -> Option<String> {
    let file = listed().into_iter().find(|file| has_symbol(file, name));
    let dir = PrivateDir::new();
    dir.write("file", file.unwrap());
    let run = require("readelf")?.arg("-rW").arg(dir.path("file")).output().unwrap();
    assert!(run.stderr.is_empty(), "{}", String::from_utf8_lossy(&run.stderr));
    Some(String::from_utf8_lossy(&run.stdout).into_owned())
}

#[test]
fn debug_information_of_dropped_code_has_address_zero_or_one_in_lists() {
    if !require_x86_64() {
        return;
    }
    let source = "static __attribute__((used, section(\".text.gone\"))) long gone(void) { return 3; }
                  __attribute__((section(\".text.kept\"))) long kept_with_lines(void) { return 4; }";
    // `used` stops the compiler from dropping the function, but not the linker.
    let Some(object) = gcc(&["-O1", "-g", "-gdwarf-4", "-fPIC"], source) else { return };
    let jit = jit_with_debugger();
    let _tracker = add(&jit, jit.main_dylib(), "gone.o", &object);
    assert_eq!(long(&jit, "kept_with_lines"), 4);
    let Some(output) = listed_relocations("kept_with_lines") else { return };
    assert!(output.contains("R_X86_64_NONE"), "{output}");
    let ranges = output.split("Relocation section").find(|part| part.contains(".rela.debug_ranges")).unwrap();
    let has_address_one = |line: &&str| line.split_whitespace().skip(2).eq(["R_X86_64_64", "1"]);
    let ones = ranges.lines().filter(has_address_one);
    assert_eq!(ones.count(), 2, "the start and the end of the dropped function: {output}");
}

// ---- gdb --------------------------------------------------------------------

const DEBUGGED: &str = "\
__attribute__((noinline)) long debugged_inner(long count) {
    long twice = count * 2;
    return twice + 1;
}
long debugged_outer(long count) {
    return debugged_inner(count) * 10;
}
";

#[test]
fn gdb_finds_linked_functions_and_lines_until_their_removal() {
    let test = this_test!();
    if is_rerun(test) {
        let jit = jit_with_debugger();
        let object = gcc(&["-g", "-O0", "-fPIC", "-ffunction-sections"], DEBUGGED).unwrap();
        for number in 0..2 {
            let tracker = add(&jit, jit.main_dylib(), "debugged.o", &object);
            let outer = function::<extern "C" fn(i64) -> i64>(&jit, "debugged_outer");
            assert_eq!(outer.call(20 + number), (41 + 2 * number) * 10);
            drop(outer);
            assert!(tracker.remove().unwrap().is_complete());
            jittison_test_checkpoint(number);
        }
        return;
    }
    if c("").is_none() {
        return;
    }
    // gdb keeps a breakpoint when JIT code is removed, so it is deleted while the code exists.
    let commands = "break debugged_inner\nbreak jittison_test_checkpoint\nrun\n\
                    echo [stopped]\\n\nbacktrace 3\nnext\nprint twice\nset $where = (long)$pc\ninfo symbol $where\n\
                    delete 1\ncontinue\n\
                    echo [removed]\\n\ninfo symbol $where\nbreak debugged_inner\ncontinue\n\
                    echo [again]\\n\nbacktrace 2\ndelete 3\ncontinue\n\
                    echo [removed again]\\n\ninfo symbol $where\ncontinue\n";
    let Some(output) = gdb(test, commands) else { return };
    let mut rest = &output[..];
    let mut part = |mark: &str| {
        let (part, tail) = rest.split_once(mark).unwrap_or_else(|| panic!("no {mark}: {output}"));
        rest = tail;
        part
    };
    part("[stopped]\n");
    let stopped = part("[removed]\n");
    for expected in [
        "#0  debugged_inner (count=20) at ",
        "in debugged_outer (count=20) at ",
        "input:6\n",
        "$1 = 40\n",
        "debugged_inner + ",
    ] {
        assert!(stopped.contains(expected), "{expected}: {output}");
    }
    let removed = part("[again]\n");
    assert!(removed.contains("No symbol matches $where.\nBreakpoint 3 (debugged_inner) pending."), "{output}");
    let again = part("[removed again]\n");
    assert!(again.contains("#0  debugged_inner (count=21) at "), "{output}");
    assert!(rest.contains("No symbol matches $where."), "{output}");
    assert!(rest.contains("exited normally"), "{output}");
}

#[test]
fn gdb_breakpoints_in_removed_code_do_not_appear_in_code_linked_later() {
    let test = this_test!();
    if is_rerun(test) {
        let jit = jit_with_debugger();
        let object = |name: &str, value: u64| {
            asm(&format!(".globl {name}\n.byte 0, 0, 0\n{name}: movabs $0x{value:016x}, %rax\nret\n")).unwrap()
        };
        let first = add(&jit, jit.main_dylib(), "first.o", &object("stopped_in", 0x1111_1111_1111_1111));
        assert_eq!(long(&jit, "stopped_in"), 0x1111_1111_1111_1111);
        assert!(first.remove().unwrap().is_complete());
        jittison_test_checkpoint(1);
        // At the address of the breakpoint this code has the middle of an instruction.
        let filler = asm(".globl successor\nsuccessor: movabs $0x2222222222222222, %rax\nret\n").unwrap();
        let second = add(&jit, jit.main_dylib(), "second.o", &filler);
        assert_eq!(long(&jit, "successor"), 0x2222_2222_2222_2222);
        jittison_test_checkpoint(2);
        assert_eq!(long(&jit, "successor"), 0x2222_2222_2222_2222);
        assert!(second.remove().unwrap().is_complete());
        let again = add(&jit, jit.main_dylib(), "again.o", &object("stopped_in", 0x3333_3333_3333_3333));
        assert_eq!(long(&jit, "stopped_in"), 0x3333_3333_3333_3333);
        assert!(again.remove().unwrap().is_complete());
        return;
    }
    if c("").is_none() {
        return;
    }
    let commands = "break stopped_in\nbreak jittison_test_checkpoint\nrun\necho [first]\\n\ncontinue\ncontinue\n\
                    echo [second]\\n\ncontinue\necho [enabled]\\n\nenable 1\ncontinue\n";
    let Some(output) = gdb(test, commands) else { return };
    let hits = output.matches("hit Breakpoint 1, ").count();
    assert_eq!(hits, 2, "the breakpoint follows its function: {output}");
    assert!(output.contains("exited normally"), "{output}");
}

#[test]
fn gdb_unwinds_through_linked_code_without_debug_information_or_frame_pointers() {
    let test = this_test!();
    if is_rerun(test) {
        let jit = jit_with_debugger();
        let source = "extern long jittison_test_checkpoint(long); long frameless_second(long number) {
                          volatile char buffer[200]; buffer[7] = 1; return jittison_test_checkpoint(number) + buffer[7]; }
                      long frameless_first(long number) { return frameless_second(number) * 2; }";
        let object = gcc(&["-O2", "-fPIC", "-fomit-frame-pointer", "-fno-inline"], source).unwrap();
        let here = jittison_test_checkpoint as extern "C" fn(i64) -> i64 as usize as u64;
        define_absolute(jit.main_dylib(), "jittison_test_checkpoint", here);
        let _tracker = add(&jit, jit.main_dylib(), "frameless.o", &object);
        assert_eq!(function::<extern "C" fn(i64) -> i64>(&jit, "frameless_first").call(5), 12);
        return;
    }
    if c("").is_none() {
        return;
    }
    let Some(output) = gdb(test, "break jittison_test_checkpoint\nrun\nbacktrace 4\ncontinue\n") else { return };
    for expected in [" in frameless_second ()", " in frameless_first ()", "exited normally"] {
        assert!(output.contains(expected), "{expected}: {output}");
    }
    // The last frame belongs to the host. Depending on the debug information its name has a path or type arguments.
    assert!(["jittison::host::call::", "call<"].iter().any(|name| output.contains(name)), "{output}");
}
