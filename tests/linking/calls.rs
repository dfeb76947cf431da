//! Calls and references within an object, across objects and across trackers, compiled with every option that changes the
//! relocations.

use crate::support::*;

/// Calls, strings, tables of functions, zero-fill, a switch, and imports of a function, a variable and a table.
const CALLER: &str = r#"
    extern long helper(long);                    /* a function of another object */
    extern long shared_counter;                  /* a variable of another object */
    extern long (*const table[3])(long);         /* pointers of another object */
    static long own(long x) { return x * 3; }
    long visible(long x) { return x + 1; }
    static long zeroes[100];
    static long (*const own_table[])(long) = { own, visible, helper };
    static const char text[] = "jettison";
    static const char *const words[] = { text, "at", "once" };
    static long pick(int which) {
        switch (which) {
            case 0: return 10; case 1: return 200; case 2: return 3000; case 3: return 40000; case 4: return 5;
            case 5: return 77; case 6: return 1234; default: return -1;
        }
    }
    long test(void) {
        long sum = helper(1) + visible(2) + own(3);                       /* 101 + 3 + 9 = 113 */
        for (int i = 0; i < 3; i++) sum += own_table[i](10) + table[i](1);/* 30+11+110 + 101+2+0 = 254 */
        for (int i = 0; i < 100; i++) sum += zeroes[i]++;                 /* 0 */
        for (int i = 0; i < 8; i++) sum += pick(i);                       /* 44525 */
        shared_counter += 5;
        return sum * 100 + shared_counter * 10 + words[0][0] - 'j' + words[2][3] - 'e';
    }
    long count(void) { return shared_counter; }
"#;

const HELPER: &str = r#"
    long shared_counter = 2;
    long helper(long x) { return x + 100; }
    extern long visible(long);
    static long minus(long x) { return x - 1; }
    long (*const table[3])(long) = { helper, visible, minus };
"#;

const EXPECTED: i64 = (113 + 254 + 44526 - 1) * 100 + 70;

fn check(flags: &[&str], compile: fn(&[&str], &str) -> Option<Vec<u8>>) {
    let (Some(caller), Some(helper)) = (compile(flags, CALLER), compile(flags, HELPER)) else { return };
    let (jit, trackers) = linked(&[&caller, &helper]);
    assert_eq!(long(&jit, "test"), EXPECTED, "{flags:?}");
    assert_eq!(long(&jit, "count"), 7, "{flags:?}");
    // The objects refer to each other, so both are freed together.
    assert!(!trackers[0].remove().unwrap().is_complete());
    assert!(trackers[1].remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

const LEVELS: [&str; 3] = ["-O0", "-O2", "-Os"];
const VARIATIONS: [&[&str]; 8] = [
    &["-fPIC"],
    &["-fPIE"],
    &["-fPIC", "-ffunction-sections", "-fdata-sections"],
    &["-fPIC", MARKED_ENTRIES],
    &["-fPIC", "-fno-plt"],
    &["-fPIC", "-g"],
    &["-fPIC", "-fno-asynchronous-unwind-tables"],
    &["-fPIC", "-fvisibility=hidden"],
];

#[test]
fn gcc_output_runs_under_every_option() {
    for level in LEVELS {
        for flags in VARIATIONS {
            check(&[&[level], flags].concat(), gcc);
        }
    }
}

#[test]
fn clang_output_runs_under_every_option() {
    for level in LEVELS {
        for flags in VARIATIONS {
            check(&[&[level], flags].concat(), clang);
        }
    }
}

#[test]
fn gcc_and_clang_objects_link_with_each_other() {
    let (Some(caller), Some(helper)) = (gcc(&["-O2", "-fPIC"], CALLER), clang(&["-O2", "-fPIC"], HELPER)) else {
        return;
    };
    let (jit, _trackers) = linked(&[&caller, &helper]);
    assert_eq!(long(&jit, "test"), EXPECTED);
}

#[test]
fn two_objects_under_one_tracker_link_with_each_other() {
    let (Some(caller), Some(helper)) = (c(CALLER), c(HELPER)) else { return };
    let jit = new_jit();
    let tracker = add_object(&jit, jit.main_dylib(), "caller.o", caller);
    jit.add_object(&tracker, "helper.o", helper).unwrap();
    assert_eq!(long(&jit, "test"), EXPECTED);
    assert!(tracker.remove().unwrap().is_complete(), "references inside a tracker do not keep it");
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn process_functions_are_called_with_and_without_a_plt() {
    let source = "#include <stdlib.h>\n#include <string.h>\n
        long test(void) { char *copy = strdup(\"12345\"); long n = strtol(copy, 0, 10) + strlen(copy); free(copy); return n; }";
    for flags in [["-O2", "-fPIC"], ["-O2", "-fno-plt"], ["-O0", "-fPIE"]] {
        let Some(object) = gcc(&flags, source) else { return };
        let (jit, trackers) = linked(&[&object]);
        assert_eq!(long(&jit, "test"), 12350, "{flags:?}");
        assert!(trackers[0].remove().unwrap().is_complete());
        assert_eq!(held(&jit), (0, 0, 0));
    }
}

#[test]
fn three_hundred_functions_of_one_object_are_callable() {
    let functions: String = (0..300).map(|i| format!("long f{i}(long x) {{ return x * {i} + {i}; }}\n")).collect();
    let names: String = (0..300).map(|i| format!("f{i},")).collect();
    let source = format!(
        "{functions} static long (*const all[])(long) = {{ {names} }};
         long test(void) {{ long sum = 0; for (int i = 0; i < 300; i++) sum += all[i](2); return sum; }}"
    );
    for flags in [&["-O2", "-fPIC"][..], &["-O2", "-fPIC", "-ffunction-sections"]] {
        let Some(object) = gcc(flags, &source) else { return };
        let (jit, _trackers) = linked(&[&object]);
        assert_eq!(long(&jit, "test"), (0..300).map(|i| 3 * i).sum::<i64>());
        for i in [0, 1, 150, 299] {
            assert_eq!(function::<extern "C" fn(i64) -> i64>(&jit, &format!("f{i}")).call(10), 11 * i);
        }
    }
}

#[test]
fn functions_take_and_return_every_shape_of_arguments() {
    let Some(object) = c("
        long none(void) { return 1; }
        double two(double a, float b) { return a - b; }
        long six(long a, long b, long c, long d, long e, long f) { return a+2*b+3*c+4*d+5*e+6*f; }
        long twelve(signed char a, short b, int c, long d, unsigned char e, unsigned f,
                    long g, long h, long i, long j, long k, long l)
            { return a + 2*b + 3*c + 4*d + 5*e + 6*f + 7*g + 8*h + 9*i + 10*j + 11*k + 12*l; }
        double mixed(long a, double b, long c, double d, float e, int f, double g, long h, long i, double j, long k, float l)
            { return a + 2*b + 3*c + 4*d + 5*e + 6*f + 7*g + 8*h + 9*i + 10*j + 11*k + 12*l; }
        void nothing(long *out) { *out = 5; }
        struct pair { long a; double b; };
        struct pair give(long a, double b) { struct pair p = { a + 1, b + 0.5 }; return p; }
    ") else {
        return;
    };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "none"), 1);
    assert_eq!(function::<extern "C" fn(f64, f32) -> f64>(&jit, "two").call(2.5, 0.25), 2.25);
    assert_eq!(function::<extern "C" fn(i64, i64, i64, i64, i64, i64) -> i64>(&jit, "six").call(1, 2, 3, 4, 5, 6), 91);
    type Twelve = extern "C" fn(i8, i16, i32, i64, u8, u32, i64, i64, i64, i64, i64, i64) -> i64;
    assert_eq!(function::<Twelve>(&jit, "twelve").call(-1, 2, 3, 4, 250, 6, 7, 8, 9, 10, 11, 12), 1873);
    type Mixed = extern "C" fn(i64, f64, i64, f64, f32, i32, f64, i64, i64, f64, i64, f32) -> f64;
    let mixed = function::<Mixed>(&jit, "mixed");
    assert_eq!(mixed.call(1, 2.0, 3, 4.0, 5.0, 6, 7.0, 8, 9, 10.0, 11, 12.0), 650.0);
    let mut out = 0;
    function::<extern "C" fn(*mut i64)>(&jit, "nothing").call(&mut out);
    assert_eq!(out, 5);
    #[repr(C)]
    struct Pair(i64, f64);
    let pair = function::<extern "C" fn(i64, f64) -> Pair>(&jit, "give").call(1, 1.0);
    assert_eq!((pair.0, pair.1), (2, 1.5));
}

#[test]
fn an_object_added_after_lookups_links_against_earlier_objects() {
    let (Some(first), Some(second)) =
        (c("long base(void) { return 20; }"), c("extern long base(void); long above(void) { return base() + 1; }"))
    else {
        return;
    };
    let jit = new_jit();
    let base = add(&jit, jit.main_dylib(), "base.o", &first);
    assert_eq!(long(&jit, "base"), 20);
    let above = add(&jit, jit.main_dylib(), "above.o", &second);
    assert_eq!(long(&jit, "above"), 21);
    assert!(above.remove().unwrap().is_complete());
    assert_eq!(long(&jit, "base"), 20, "the other object still works");
    assert!(base.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn a_got_call_with_an_operand_size_prefix_reaches_its_target() {
    // Compilers call `__tls_get_addr` without a PLT in this form. Symptom: relaxed behind its prefixes, the call had a 16-bit
    // operand.
    let Some(object) = asm("
        .globl test
        .type test, @function
        test: sub $8, %rsp
        .byte 0x66
        rex.W call *seven@GOTPCREL(%rip)
        add $8, %rsp
        ret
        .type seven, @function
        .globl seven
        seven: mov $7, %eax
        ret")
    else {
        return;
    };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 7);
}
