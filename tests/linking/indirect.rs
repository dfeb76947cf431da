//! Indirect functions (`STT_GNU_IFUNC`): the first call resolves them, from any caller.

use crate::support::*;

const SOURCE: &str = "
    static int resolved;
    static long one(long x) { return x + 1; }
    static long two(long x) { return x + 2; }
    int which;
    static void *resolve(void) { resolved++; return which ? two : one; }
    long pick(long x) __attribute__((ifunc(\"resolve\")));
    long resolver_calls(void) { return resolved; }
    long inside(void) { return pick(10); }
    long (*pointer)(long) = pick;
    long by_pointer(void) { return pointer(20) + (pointer == pick); }
";

#[test]
fn an_indirect_function_is_resolved_once_at_its_first_call() {
    let Some(object) = c(SOURCE) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "resolver_calls"), 0, "no call has resolved it");
    let which = jit.address_of(jit.main_dylib(), "which").unwrap();
    // SAFETY: an int of the object above.
    unsafe { *(which.value() as *mut i32) = 1 };
    assert_eq!(long(&jit, "inside"), 12);
    assert_eq!(long(&jit, "by_pointer"), 23);
    assert_eq!(long(&jit, "resolver_calls"), 1);
}

#[test]
fn an_indirect_function_has_one_address_in_all_objects() {
    let user = "extern long pick(long); extern long (*pointer)(long);
        long far(void) { return pick(5) * 10 + (pointer == pick); }";
    let (Some(object), Some(user)) = (c(SOURCE), c(user)) else { return };
    let (jit, _trackers) = linked(&[&user, &object]);
    assert_eq!(long(&jit, "far"), 61);
    assert_eq!(function::<extern "C" fn(i64) -> i64>(&jit, "pick").call(1), 2);
}

#[test]
fn aliases_of_an_indirect_function_have_one_address() {
    let source = "static long one(long x) { return x + 1; } static void *resolve(void) { return one; }
        long pick(long) __attribute__((ifunc(\"resolve\"))); long other(long) __attribute__((alias(\"pick\")));
        long (*volatile a)(long) = pick; long (*volatile b)(long) = other;
        long test(void) { return (a == b) * 100 + a(1) * 10 + b(2); }";
    let Some(object) = c(source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 123);
    assert_eq!(jit.address_of(jit.main_dylib(), "pick").unwrap(), jit.address_of(jit.main_dylib(), "other").unwrap());
}

#[test]
fn the_call_that_resolves_keeps_its_arguments() {
    if !require_x86_64() {
        return;
    }
    let source = "
        #include <stdarg.h>
        static double clobber(double x) { return x * 3.5; }
        static double all(long a, long b, long c, long d, long e, long f, double g, double h, double i, double j,
                          double k, double l, double m, double n, long o, double p) {
            return a + 2*b + 3*c + 4*d + 5*e + 6*f + 7*g + 8*h + 9*i + 10*j + 11*k + 12*l + 13*m + 14*n + 15*o + 16*p;
        }
        static double sum(int count, ...) {
            va_list list; va_start(list, count);
            double total = 0;
            for (int i = 0; i < count; i++) total += va_arg(list, double);
            va_end(list);
            return total;
        }
        volatile double sink;
        static void *resolve(void) {
            sink = clobber(sink + 1);
            __asm__ volatile (\"xor %%eax,%%eax; mov $77,%%edi; mov %%rdi,%%rsi; mov %%rdi,%%rdx; mov %%rdi,%%rcx; mov %%rdi,%%r8;\"
                \"mov %%rdi,%%r9; mov %%rdi,%%r10; mov %%rdi,%%r11; pxor %%xmm0,%%xmm0; pxor %%xmm7,%%xmm7\"
                ::: \"rax\",\"rdi\",\"rsi\",\"rdx\",\"rcx\",\"r8\",\"r9\",\"r10\",\"r11\",\"xmm0\",\"xmm7\");
            return all;
        }
        static void *resolve_sum(void) { sink = clobber(2); return sum; }
        double many(long, long, long, long, long, long, double, double, double, double, double, double, double, double,
                    long, double) __attribute__((ifunc(\"resolve\")));
        double total(int, ...) __attribute__((ifunc(\"resolve_sum\")));
        long test(void) {
            double found = many(1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16);
            double expected = 0;
            for (int i = 1; i <= 16; i++) expected += i * i;
            return (found == expected) + 2 * (total(3, 1.0, 2.0, 4.0) == 7.0);
        }";
    let Some(object) = c(source) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 3);
}

#[test]
fn several_threads_may_resolve_at_once() {
    let Some(object) = c(SOURCE) else { return };
    for _ in 0..20 {
        let (jit, _trackers) = linked(&[&object]);
        let pick = function::<extern "C" fn(i64) -> i64>(&jit, "pick");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(pick.call(40), 41));
            }
        });
    }
}

#[test]
fn an_earlier_definition_wins_over_a_weak_indirect_function() {
    let weak = "
        .text
        .globl use
        .weak pick
        .type pick, @gnu_indirect_function
        pick: lea mine(%rip), %rax; ret
        mine: mov $1, %eax; ret
        use: jmp pick@PLT
        .section .note.GNU-stack,\"\",@progbits
    ";
    let (Some(first), Some(weak)) = (c("long pick(void) { return 101; }"), asm(weak)) else { return };
    let (jit, _trackers) = linked(&[&first, &weak]);
    assert_eq!(long(&jit, "use"), 101);
    let (jit, _trackers) = linked(&[&weak]);
    assert_eq!(long(&jit, "use"), 1, "without the other definition");
}
