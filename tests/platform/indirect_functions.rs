//! Indirect functions (`STT_GNU_IFUNC`) on the architecture of this process. `tests/linking/indirect.rs` has the rest.

use crate::support::*;

/// The resolvers overwrite all registers that a function may overwrite.
const SOURCE: &str = r#"
    #include <stdarg.h>
    #include <stdint.h>
    #include <sys/auxv.h>
    struct features { uint64_t size, first, second; };
    struct large { long values[5]; };
    static long right_arguments;
    static void overwrite(void) {
    #ifdef __aarch64__
        register uint64_t x0 __asm__("x0") = 0;
        __asm__ volatile (
            "mov x1, #7; mov x2, #7; mov x3, #7; mov x4, #7; mov x5, #7; mov x6, #7; mov x7, #7; mov x8, #7; mov x9, #7;"
            "mov x10, #7; mov x11, #7; mov x12, #7; mov x13, #7; mov x14, #7; mov x15, #7; mov x16, #7; mov x17, #7;"
            "movi v0.2d, #0; movi v1.2d, #0; movi v2.2d, #0; movi v3.2d, #0; movi v4.2d, #0; movi v5.2d, #0; movi v6.2d, #0;"
            "movi v7.2d, #0; movi v16.2d, #0; movi v17.2d, #0; movi v18.2d, #0; movi v19.2d, #0; movi v20.2d, #0;"
            "movi v21.2d, #0; movi v22.2d, #0; movi v23.2d, #0"
            : "+r"(x0) :: "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
            "x17", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23");
    #endif
    }
    static void check(uint64_t word, const struct features *all) {
    #ifdef __aarch64__
        right_arguments += word == (getauxval(AT_HWCAP) | 1ul << 62) && all->size == 24
            && all->first == getauxval(AT_HWCAP) && all->second == getauxval(AT_HWCAP2);
    #else
        right_arguments++;
    #endif
        overwrite();
    }
    static double all(long a, long b, long c, long d, long e, long f, long g, long h, double i, double j, double k, double l,
                      double m, double n, double o, double p, long q, double r) {
        return a + 2*b + 3*c + 4*d + 5*e + 6*f + 7*g + 8*h + 9*i + 10*j + 11*k + 12*l + 13*m + 14*n + 15*o + 16*p + 17*q + 18*r;
    }
    static double sum(int count, ...) {
        va_list list; va_start(list, count);
        double total = 0;
        for (int i = 0; i < count; i++) total += va_arg(list, double);
        va_end(list);
        return total;
    }
    static struct large make(long x) { return (struct large){{x, x, x, x, x + 1}}; }
    static void *resolve(uint64_t word, const struct features *f) { check(word, f); return all; }
    static void *resolve_sum(uint64_t word, const struct features *f) { check(word, f); return sum; }
    static void *resolve_make(uint64_t word, const struct features *f) { check(word, f); return make; }
    double many(long, long, long, long, long, long, long, long, double, double, double, double, double, double, double, double,
                long, double) __attribute__((ifunc("resolve")));
    double total(int, ...) __attribute__((ifunc("resolve_sum")));
    struct large made(long) __attribute__((ifunc("resolve_make")));
    long test(void) {
        double found = many(1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18), expected = 0;
        for (int i = 1; i <= 18; i++) expected += i * i;
        return (found == expected) + 2 * (total(3, 1.0, 2.0, 4.0) == 7.0) + 4 * (made(8).values[4] == 9);
    }
    long resolved(void) { return right_arguments; }
"#;

#[test]
fn the_first_call_of_an_indirect_function_gives_its_resolver_the_features_and_keeps_the_arguments() {
    for flags in [&["-O2", "-fPIC"][..], &["-O0", "-fno-pic"], &["-O2", "-fPIE"]] {
        let Some(object) = gcc(flags, SOURCE) else { return };
        let (jit, _trackers) = linked(&[&object]);
        assert_eq!(long(&jit, "resolved"), 0, "no call has resolved one");
        assert_eq!([long(&jit, "test"), long(&jit, "test")], [7, 7], "{flags:?}");
        assert_eq!(long(&jit, "resolved"), 3, "each is resolved once");
    }
}
