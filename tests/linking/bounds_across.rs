//! `__start_NAME` and `__stop_NAME` over several objects: the parts of all objects that are added before the first of them is
//! linked, in the order of their addition, as a native linker joins them. Where gcc and the system's linker can build a program
//! of the same objects, its answer is compared.

use std::thread;

use jittison::error::LinkFault;
use jittison::session::SymbolState;
use jittison::{Error, ErrorKind, Jit, ResourceTracker};

use crate::support::*;

/// An object with values in the section `sets`, and a function `get_N` that returns the first of them.
pub fn part(number: usize, qualifier: &str, values: &[i64]) -> Option<Vec<u8>> {
    let put = |(index, value): (usize, &i64)| {
        format!("__attribute__((section(\"sets\"), used)) static {qualifier} long v{index} = {value};\n")
    };
    let values: String = values.iter().enumerate().map(put).collect();
    gcc(&["-O1", "-fPIC", "-fno-toplevel-reorder"], &format!("{values} long get_{number}(void) {{ return v0; }}"))
}

/// An object whose `digits` has one decimal digit for each value between the bounds, in order.
pub fn reader(name: &str) -> Option<Vec<u8>> {
    c(&format!(
        "extern const long __start_sets[], __stop_sets[];
        long {name}(void) {{
            long digits = 0;
            for (const long *p = __start_sets; p < __stop_sets; p++) digits = digits * 10 + *p;
            return digits;
        }}"
    ))
}

/// The value of `long name(void)` in a program that gcc links from these objects.
pub fn native(objects: &[&[u8]], name: &str) -> Option<i64> {
    let dir = PrivateDir::new();
    let main =
        format!("#include <stdio.h>\nlong {name}(void); int main(void) {{ printf(\"%ld\", {name}()); return 0; }}");
    let (main, program) = (c(&main)?, dir.path("program"));
    let mut linker = require("gcc")?;
    linker.arg("-o").arg(&program).arg(dir.write("main.o", main));
    for (index, object) in objects.iter().enumerate() {
        linker.arg(dir.write(&format!("object{index}.o"), object));
    }
    let run = linker.output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let run = require(program.to_str().unwrap())?.output().unwrap();
    Some(String::from_utf8_lossy(&run.stdout).parse().unwrap())
}

/// Checks that a session answers as the program does, whatever is looked up first, and frees everything.
pub fn assert_as_native(objects: &[&[u8]], name: &str, expected: i64) {
    let Some(native) = native(objects, name) else { return };
    assert_eq!(native, expected, "the native answer");
    let (jit, trackers) = linked(objects);
    assert_eq!(long(&jit, name), expected);
    remove_all(&jit, trackers);
}

pub fn remove_all(jit: &Jit, trackers: Vec<ResourceTracker>) {
    for tracker in trackers {
        tracker.remove().unwrap();
    }
    assert_eq!(held(jit), (0, 0, 0), "everything is freed");
}

pub fn assert_across(error: &Error, requesting: &str, defining: &str, problem: &str) {
    match error.root_cause().kind() {
        ErrorKind::Link {
            fault: LinkFault::BoundsAcrossObjects { section, requesting: user, defining: part, .. },
            ..
        } => {
            assert_eq!((&**section, &**user, &**part), ("sets", requesting, defining), "{error}");
        }
        other => panic!("{other}"),
    }
    assert_says(error, &["`sets`", "`__start_sets`", problem, "before the first of them is linked", "ld -r"]);
}

/// Symptom: the later object was refused.
#[test]
fn bounds_enclose_the_parts_of_all_objects_in_the_order_of_their_addition() {
    for qualifier in ["", "const"] {
        let (Some(one), Some(two), Some(reader)) =
            (part(1, qualifier, &[1, 2]), part(2, qualifier, &[3]), reader("digits"))
        else {
            return;
        };
        assert_as_native(&[&one, &two, &reader], "digits", 123);
        assert_as_native(&[&reader, &two, &one], "digits", 312);
        assert_as_native(&[&one, &reader, &two], "digits", 123);
        assert_as_native(&[&one, &reader], "digits", 12);
    }
}

#[test]
fn five_objects_of_constants_and_data_are_joined() {
    let parts: Option<Vec<_>> = (1..=5).map(|n| part(n, if n % 2 == 0 { "const" } else { "" }, &[n as i64])).collect();
    let (Some(parts), Some(reader)) = (parts, reader("digits")) else { return };
    let mut objects: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
    objects.insert(3, &reader);
    assert_as_native(&objects, "digits", 12345);
    // Whatever is looked up first.
    for first in 1..=5 {
        let (jit, trackers) = linked(&objects);
        assert_eq!(long(&jit, &format!("get_{first}")), first);
        assert_eq!(long(&jit, "digits"), 12345);
        assert_eq!(long(&jit, &format!("get_{}", first % 5 + 1)), first % 5 + 1);
        remove_all(&jit, trackers);
    }
}

#[test]
fn parts_are_aligned_as_a_native_linker_aligns_them() {
    let source = |value: u8, align: u8| format!(".section sets,\"aw\",@progbits\n.balign {align}\n.byte {value}\n");
    let measure = c("extern char __start_sets[], __stop_sets[]; char *start(void) { return __start_sets; }
        long digits(void) {
            long digits = __stop_sets - __start_sets;
            for (char *p = __start_sets; p < __stop_sets; p++) digits = digits * 3 + *p;
            return digits;
        }");
    let objects: Option<Vec<_>> =
        [(1, 1), (2, 8), (1, 2), (2, 1)].map(|(v, a)| asm(&source(v, a))).into_iter().collect();
    let (Some(measure), Some(parts)) = (measure, objects) else { return };
    let objects = [&parts[0][..], &parts[1], &parts[2], &measure, &parts[3]];
    let Some(expected) = native(&objects, "digits") else { return };
    assert_as_native(&objects, "digits", expected);
}

#[test]
fn data_of_one_object_is_the_data_that_the_bounds_enclose() {
    let writer = c("__attribute__((section(\"sets\"), used)) static long mine = 1; long set(void) { return ++mine; }");
    let (Some(writer), Some(other), Some(reader)) = (writer, part(2, "", &[5]), reader("digits")) else { return };
    let (jit, trackers) = linked(&[&writer, &other, &reader]);
    assert_eq!((long(&jit, "set"), long(&jit, "digits"), long(&jit, "set"), long(&jit, "digits")), (2, 25, 3, 35));
    remove_all(&jit, trackers);
}

#[test]
fn constants_stay_read_only_and_data_is_writable() {
    own_process!();
    let start = c("extern const char __start_sets[], __stop_sets[]; long start(void) { return (long)__start_sets; }");
    let (Some(start), Some(constant), Some(data)) = (start, part(1, "const", &[1]), part(2, "", &[2])) else { return };
    let Some(other) = part(3, "const", &[3]) else { return };
    let is_writable = |objects: &[&[u8]]| {
        let (jit, _trackers) = linked(objects);
        let start = long(&jit, "start") as u64;
        mappings().iter().find(|one| (one.start..one.end).contains(&start)).unwrap().protection.contains('w')
    };
    assert!(!is_writable(&[&constant, &other, &start]));
    assert!(is_writable(&[&constant, &data, &start]));
}

#[test]
fn zero_fill_is_joined_with_zero_fill_only() {
    let zero = |n: usize| {
        asm(&format!(
            ".section sets,\"aw\",@nobits\nz{n}: .zero 16\n.text\n.globl put_{n}\nput_{n}: movq $7, z{n}(%rip)\nmov $1, %eax\nret\n\
             .section .note.GNU-stack,\"\",@progbits\n"
        ))
    };
    let (Some(one), Some(two), Some(reader), Some(bytes)) = (zero(1), zero(2), reader("digits"), part(1, "", &[1]))
    else {
        return;
    };
    assert_as_native(&[&one, &reader, &two], "digits", 0);
    let (jit, trackers) = linked(&[&one, &reader, &two]);
    assert_eq!((long(&jit, "put_2"), long(&jit, "digits")), (1, 70));
    remove_all(&jit, trackers);
    // GNU ld makes two sections of the name here, and lld makes one.
    let (jit, _trackers) = linked(&[&one, &bytes]);
    assert_across(&refused_in(&jit, &reader, "digits"), "bad.o", "object1.o", "zero-fill");
}

#[test]
fn a_lookup_of_the_reader_links_all_objects_and_a_lookup_of_a_part_links_no_other() {
    let (Some(one), Some(two), Some(reader)) = (part(1, "", &[1]), part(2, "", &[2]), reader("digits")) else { return };
    let (jit, trackers) = linked(&[&one, &two, &reader]);
    let state = |name: &str| jit.main_dylib().symbol_state(name).unwrap();
    assert_eq!(long(&jit, "get_2"), 2);
    assert_eq!((state("get_1"), state("digits")), (SymbolState::NeverSearched, SymbolState::NeverSearched));
    assert_eq!(long(&jit, "digits"), 12);
    assert_eq!((state("get_1"), state("get_2")), (SymbolState::Ready, SymbolState::Ready));
    remove_all(&jit, trackers);
}

#[test]
fn copies_of_a_section_group_count_once() {
    let group = |value: usize| {
        format!(
            ".section sets,\"awG\",@progbits,shared,comdat\n.weak shared\nshared: .quad {value}\n.section sets,\"aw\"\n.quad {value}\n"
        )
    };
    let (Some(one), Some(two), Some(reader)) = (asm(&group(4)), asm(&group(5)), reader("digits")) else { return };
    assert_as_native(&[&one, &two, &reader], "digits", 445);
    assert_as_native(&[&two, &one, &reader], "digits", 554);
    // An object that loses all of its part.
    let only = ".section sets,\"awG\",@progbits,shared,comdat\n.weak shared\nshared: .quad 6\n";
    let Some(only) = asm(only) else { return };
    assert_as_native(&[&one, &only, &reader], "digits", 44);
    assert_as_native(&[&only, &one, &reader], "digits", 64);
}

#[test]
fn objects_that_all_refer_to_the_bounds_see_the_same_ones() {
    let object = |n: usize| {
        c(&format!(
            "__attribute__((section(\"sets\"), used)) static long mine = {n};
            extern long __start_sets[] __attribute__((weak, visibility(\"hidden\")));
            extern long __stop_sets[] __attribute__((weak, visibility(\"hidden\")));
            long digits_{n}(void) {{
                long digits = 0;
                for (long *p = __start_sets; p < __stop_sets; p++) digits = digits * 10 + *p;
                return digits;
            }}"
        ))
    };
    let (Some(one), Some(two), Some(three)) = (object(1), object(2), object(3)) else { return };
    let objects = [&one[..], &two, &three];
    assert_as_native(&objects, "digits_2", 123);
    let (jit, trackers) = linked(&objects);
    assert_eq!((long(&jit, "digits_3"), long(&jit, "digits_1"), long(&jit, "digits_2")), (123, 123, 123));
    remove_all(&jit, trackers);
}

#[test]
fn parts_may_refer_to_the_object_that_reads_them() {
    let plugin = |n: usize| {
        c(&format!(
            "extern long sum(long); static long run(void) {{ return sum({n}); }}
            __attribute__((section(\"sets\"), used)) static long (*const entry)(void) = run;
            long get_{n}(void) {{ return entry(); }}"
        ))
    };
    let host = c("extern long (*const __start_sets[])(void), (*const __stop_sets[])(void);
        long sum(long n) { return n * 10 + (__stop_sets - __start_sets); }
        long all(void) { long all = 0; for (long (*const *p)(void) = __start_sets; p < __stop_sets; p++) all = all * 100 + (*p)(); return all; }");
    let (Some(one), Some(two), Some(host)) = (plugin(1), plugin(2), host) else { return };
    assert_as_native(&[&one, &host, &two], "all", 1222);
    assert_as_native(&[&one, &host, &two], "get_2", 22);
}

#[test]
fn cpp_registrars_in_a_named_section_are_all_found() {
    let registrar = |name: &str, value: usize| {
        cpp(&format!(
            "struct Entry {{ const char *name; long value; }};
            namespace {{ extern const Entry entry; __attribute__((section(\"sets\"), used)) const Entry entry{{\"{name}\", {value}}}; }}"
        ))
    };
    let reader = cpp("struct Entry { const char *name; long value; };
        extern \"C\" const Entry __start_sets, __stop_sets;
        extern \"C\" long digits() {
            long digits = 0;
            for (const Entry *p = &__start_sets; p != &__stop_sets; ++p) digits = digits * 1000 + p->name[0] + p->value;
            return digits;
        }");
    let (Some(one), Some(two), Some(reader)) = (registrar("A", 1), registrar("B", 2), reader) else { return };
    assert_as_native(&[&reader, &one, &two], "digits", 66_068);
}

#[test]
fn memory_of_an_area_is_freed_in_every_order_of_removal() {
    let (Some(one), Some(two), Some(reader)) = (part(1, "", &[1]), part(2, "", &[2]), reader("digits")) else { return };
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (order, looked_up) in orders.into_iter().flat_map(|order| ["digits", "get_1"].map(|name| (order, name))) {
        let (jit, trackers) = linked(&[&one, &two, &reader]);
        let held_function = function::<extern "C" fn() -> i64>(&jit, looked_up);
        let expected = held_function.call();
        for index in order {
            trackers[index].remove().unwrap();
            assert_eq!(held_function.call(), expected, "the handle keeps it");
        }
        drop(held_function);
        assert_eq!(held(&jit), (0, 0, 0));
    }
}

#[test]
fn a_reader_keeps_the_parts_of_removed_objects() {
    let (Some(one), Some(two), Some(reader)) = (part(1, "", &[1]), part(2, "", &[2]), reader("digits")) else { return };
    let (jit, mut trackers) = linked(&[&one, &two, &reader]);
    assert_eq!(long(&jit, "digits"), 12);
    assert!(!trackers[0].remove().unwrap().is_complete(), "the reader pins it");
    assert_eq!(long(&jit, "digits"), 12);
    trackers.pop().unwrap().remove().unwrap();
    assert_eq!(long(&jit, "get_2"), 2);
    remove_all(&jit, trackers.split_off(1));
}

#[test]
fn an_object_that_comes_after_the_bounds_were_given_out_is_refused_until_the_reader_is_removed() {
    let (Some(one), Some(two), Some(reader)) = (part(1, "", &[1]), part(2, "", &[2]), reader("digits")) else { return };
    let (jit, mut trackers) = linked(&[&one, &reader]);
    assert_eq!(long(&jit, "digits"), 1);
    assert_across(&refused_in(&jit, &two, "get_2"), "object1.o", "bad.o", "after the bounds were given out");
    assert_eq!(long(&jit, "digits"), 1);
    trackers.pop().unwrap().remove().unwrap();
    trackers.push(add(&jit, jit.main_dylib(), "two.o", &two));
    assert_eq!(long(&jit, "get_2"), 2);
    remove_all(&jit, trackers);
}

#[test]
fn an_object_that_is_removed_before_it_is_linked_is_not_in_the_bounds() {
    let parts: Option<Vec<_>> = (1..=3).map(|n| part(n, "", &[n as i64])).collect();
    let (Some(parts), Some(reader)) = (parts, reader("digits")) else { return };
    let objects = [&parts[0][..], &parts[1], &parts[2], &reader];
    for removed in 0..3 {
        let (jit, mut trackers) = linked(&objects);
        trackers.remove(removed).remove().unwrap();
        assert_eq!(long(&jit, "digits"), [23, 13, 12][removed]);
        remove_all(&jit, trackers);
    }
    // Another object has its place already. At the end of the area the bounds are smaller; in the middle there are none.
    for (removed, expected) in [(0, Some(23)), (1, None)] {
        let (jit, mut trackers) = linked(&objects);
        assert_eq!(long(&jit, "get_3"), 3);
        trackers.remove(removed).remove().unwrap();
        match expected {
            Some(expected) => assert_eq!(long(&jit, "digits"), expected),
            None => {
                let error = try_function::<extern "C" fn() -> i64>(&jit, jit.main_dylib(), "digits").unwrap_err();
                assert_across(&error, "object3.o", "object1.o", "it was removed");
            }
        }
        drop(jit);
    }
}

#[test]
fn a_reader_fails_with_an_object_whose_part_it_needs_and_succeeds_after_the_cause_is_gone() {
    let broken = c("extern long missing; __attribute__((section(\"sets\"), used)) static long mine = 2;
        long get_2(void) { return mine + missing; }");
    let (Some(one), Some(broken), Some(reader)) = (part(1, "", &[1]), broken, reader("digits")) else { return };
    for first in ["digits", "get_1", "get_2"] {
        let jit = new_jit();
        let main = jit.main_dylib();
        let look_up = |name: &str| try_function::<extern "C" fn() -> i64>(&jit, main, name).map(|found| found.call());
        let [_one, failing, reading] = [("one.o", &one), ("broken.o", &broken), ("reader.o", &reader)]
            .map(|(name, object)| add(&jit, main, name, object));
        if first == "get_1" {
            assert_eq!(look_up("get_1").unwrap(), 1);
        }
        let failing_name = if first == "get_2" { "get_2" } else { "digits" };
        assert_says(&look_up(failing_name).unwrap_err(), &["missing"]);
        drop([failing, reading].map(|tracker| tracker.remove().unwrap()));
        define_absolute(main, "missing", 0);
        let fixed = add(&jit, main, "fixed.o", &broken);
        let reading = add(&jit, main, "reader.o", &reader);
        if first != "get_2" {
            // The first object is linked, and its place is in use.
            assert_across(&look_up("digits").unwrap_err(), "reader.o", "fixed.o", "linked before it was added");
            drop([fixed, reading].map(|tracker| tracker.remove().unwrap()));
            let _reading = add(&jit, main, "reader.o", &reader);
            assert_eq!(look_up("digits").unwrap(), 1);
        } else {
            assert_eq!(look_up("digits").unwrap(), 12);
        }
    }
}

#[test]
fn without_memory_for_the_area_the_link_fails_and_leaves_nothing() {
    let big = |n: usize| {
        c(&format!(
            "__attribute__((section(\"sets\"), used)) static char big[3 << 20] = {{1}}; long get_{n}(void) {{ return big[0]; }}"
        ))
    };
    let (Some(one), Some(two), Some(reader)) = (big(1), big(2), reader("digits")) else { return };
    let jit = Jit::builder().memory_budget(4 << 20).build().unwrap();
    let main = jit.main_dylib();
    let trackers =
        [("one.o", &one), ("two.o", &two), ("reader.o", &reader)].map(|(name, object)| add(&jit, main, name, object));
    for name in ["digits", "get_1"] {
        let error = try_function::<extern "C" fn() -> i64>(&jit, main, name).unwrap_err();
        assert!(matches!(error.root_cause().kind(), ErrorKind::Memory(_)), "{error}");
        assert_eq!(held(&jit), (0, 0, 0));
    }
    let [_, two, _] = trackers;
    assert_eq!(long(&jit, "get_2"), 1, "alone it fits");
    two.remove().unwrap();
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn objects_that_are_linked_at_once_join_the_objects_that_are_added() {
    let (Some(one), Some(two), Some(reader)) = (part(1, "", &[1]), part(2, "", &[2]), reader("digits")) else { return };
    let jit = new_jit();
    let main = jit.main_dylib();
    let mut trackers = vec![add(&jit, main, "one.o", &one)];
    for (name, object) in [("two.o", &two), ("reader.o", &reader)] {
        let tracker = main.create_tracker().unwrap();
        jit.link_object(&tracker, name, &**object).unwrap();
        trackers.push(tracker);
    }
    assert_eq!(long(&jit, "digits"), 12);
    remove_all(&jit, trackers);
}

#[test]
fn sections_of_code_are_not_joined() {
    let code = |n: usize| c(&format!("__attribute__((section(\"sets\"))) long get_{n}(void) {{ return {n}; }}"));
    let (Some(one), Some(two), Some(reader)) = (code(1), code(2), reader("digits")) else { return };
    let (jit, _trackers) = linked(&[&one, &two]);
    assert_across(&refused_in(&jit, &reader, "digits"), "bad.o", "object0.o", "of another kind (code");
    assert_eq!((long(&jit, "get_1"), long(&jit, "get_2")), (1, 2));
}

#[test]
fn members_of_an_archive_join_the_section_of_the_program() {
    let main = c("__attribute__((section(\"sets\"), used)) static long mine = 1;
        extern long digits(void); long test(void) { return digits(); }");
    let (Some(main), Some(two), Some(reader)) = (main, part(2, "", &[2]), reader("digits")) else { return };
    let dir = PrivateDir::new();
    let Some(library) = dir.archive("ar", &["rcs"], "libreader.a", &[("reader.o", &reader)]) else { return };
    let (jit, trackers) = linked(&[&main, &two]);
    jit.link_static_library(jit.main_dylib(), library).unwrap();
    assert_eq!(long(&jit, "test"), 12);
    drop(trackers);
}

#[test]
fn threads_that_link_parts_and_readers_at_the_same_time_agree() {
    let parts: Option<Vec<_>> = (1..=4).map(|n| part(n, "", &[n as i64])).collect();
    let (Some(parts), Some(one), Some(two)) = (parts, reader("digits_1"), reader("digits_2")) else { return };
    let objects = [&parts[0][..], &one, &parts[1], &parts[2], &two, &parts[3]];
    for _ in 0..rounds(50) {
        let (jit, trackers) = linked(&objects);
        let names = ["get_1", "digits_1", "get_4", "digits_2"];
        let answers = thread::scope(|scope| {
            let threads = names.map(|name| scope.spawn(|| long(&jit, name)));
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(answers, [1, 1234, 4, 1234]);
        remove_all(&jit, trackers);
    }
}

/// Symptom: a library that reads the section of a program was refused, because the program was linked first.
#[test]
fn a_reader_that_comes_later_sees_the_parts_that_are_linked_together() {
    let (Some(one), Some(two), Some(reader)) = (part(1, "const", &[1]), part(2, "", &[2]), reader("digits")) else {
        return;
    };
    for objects in [&[&one[..]][..], &[&one, &two]] {
        let (jit, mut trackers) = linked(objects);
        assert_eq!(long(&jit, "get_1"), 1);
        trackers.push(add(&jit, jit.main_dylib(), "reader.o", &reader));
        assert_eq!(long(&jit, "digits"), if objects.len() == 1 { 1 } else { 12 });
        remove_all(&jit, trackers);
    }
    // Parts that were linked apart are not adjacent.
    let (jit, _trackers) = linked(&[&one]);
    assert_eq!(long(&jit, "get_1"), 1);
    let _two = add(&jit, jit.main_dylib(), "two.o", &two);
    assert_across(&refused_in(&jit, &reader, "digits"), "bad.o", "two.o", "linked before it was added");
}

/// Symptom: the second object was refused. Its list names a function whose section group was dropped.
#[test]
fn a_list_that_is_linked_to_a_dropped_group_is_dropped_with_it() {
    let object = |n: usize| {
        let source = format!(
            "inline long shared(long x) {{ return x * 3; }} long (*volatile pointer{n})(long) = shared;
            extern \"C\" {{
                extern long __start___patchable_function_entries[], __stop___patchable_function_entries[];
                long extra{n}(void) {{ return 1; }}
                long count{n}(void) {{ return __stop___patchable_function_entries - __start___patchable_function_entries; }}
            }}"
        );
        gxx(&["-O1", "-fPIC", "-fpatchable-function-entry=2"], &source)
    };
    let (Some(one), Some(two)) = (object(1), object(2)) else { return };
    let Some(expected) = native(&[&one, &two], "count1") else { return };
    assert_as_native(&[&one, &two], "count1", expected);
    assert_as_native(&[&one, &two], "count2", expected);
}

/// Code with 32-bit addresses needs the area below 2 GiB, and then all objects with parts are there.
#[test]
fn objects_with_and_without_32_bit_addresses_share_an_area() {
    let object = |n: usize, flags: &[&str]| {
        gcc(
            flags,
            &format!(
                "__attribute__((section(\"sets\"), used)) static long mine = {n}; long *get_{n}(void) {{ return &mine; }}"
            ),
        )
    };
    let (near, far) = (["-O1", "-fno-pic", "-mcmodel=small"], ["-O1", "-fPIC"]);
    let (Some(one), Some(two), Some(reader)) = (object(1, &near), object(2, &far), reader("digits")) else { return };
    for objects in [[&one[..], &two, &reader], [&reader, &one, &two]] {
        for first in ["digits", "get_1", "get_2"] {
            let (jit, trackers) = linked(&objects);
            long(&jit, first);
            assert_eq!(long(&jit, "digits"), 12);
            remove_all(&jit, trackers);
        }
    }
}

#[test]
fn large_zero_fill_of_several_objects_takes_no_memory_until_it_is_used() {
    own_process!();
    let zero = asm(".section sets,\"aw\",@nobits\n.zero 201326592\n.section .note.GNU-stack,\"\",@progbits\n");
    let measure =
        c("extern char __start_sets[], __stop_sets[]; long bytes(void) { return __stop_sets - __start_sets; }");
    let (Some(zero), Some(measure)) = (zero, measure) else { return };
    let before = resident_bytes();
    let (jit, trackers) = linked(&[&zero, &measure, &zero]);
    assert_eq!(long(&jit, "bytes"), 2 * (192 << 20));
    assert!(resident_bytes().saturating_sub(before) < 200 << 20);
    remove_all(&jit, trackers);
}
