//! Functions of the process that links, called by code of an executor.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use jittison::{ErrorKind, Function, Jit, ResourceTracker};
use jittison_test_tools::own_process;

use crate::{Remote, c};

/// 16 bytes, of which one half is passed in an integer register and the other in a vector register.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mixed {
    integer: i64,
    float: f64,
}

/// Passed on the stack, returned in memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Large {
    first: i64,
    second: f64,
    third: i64,
}

extern "C" fn mix(a: i32, b: f64, m: Mixed, c: f32, d: i64, e: i64, f: i64, g: i64) -> Mixed {
    Mixed { integer: m.integer + i64::from(a) + d + e + f + 10 * g, float: m.float + b + f64::from(c) }
}

extern "C" fn grow(large: Large, by: i64) -> Large {
    Large { first: large.first + by, second: large.second * 2.0, third: large.third - by }
}

const CALLER: &str = "
    typedef struct { long integer; double float_; } mixed; typedef struct { long first; double second; long third; } large;
    mixed mix(int, double, mixed, float, long, long, long, long); large grow(large, long);
    __attribute__((weak)) large grow(large, long);
    double call_mix(int n) {
        mixed m = mix(n, 0.5, (mixed){ 100, 0.25 }, 2, 1000, 2000, 3000, 40000);
        return m.integer + m.float_;
    }
    double call_grow(long n) { large l = grow((large){ 1, 2, 3 }, n); return l.first * 100 + l.second * 10 + l.third; }";

/// Defines a function of this process, under a tracker.
macro_rules! define {
    ($jit:expr, $tracker:expr, $name:literal, $function:expr) => {
        // SAFETY: the function takes any arguments.
        unsafe { $jit.define_function($tracker, $name, $function) }
    };
}

/// A function of the main dylib.
macro_rules! find {
    ($jit:expr, $name:literal, fn($($argument:ty),*) $(-> $result:ty)?) => {
        // SAFETY: the function has this signature.
        unsafe { $jit.lookup::<extern "C" fn($($argument),*) $(-> $result)?>($name) }.unwrap()
    };
}

#[test]
fn arguments_and_results_of_functions_of_this_process_arrive_there_as_here() {
    let Some(object) = c(CALLER) else { return };
    let remote = Remote::start();
    for jit in [Jit::new().unwrap(), remote.jit] {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let before = jit.memory_statistics().live_bytes;
        define!(jit, &tracker, "mix", mix as extern "C" fn(i32, f64, Mixed, f32, i64, i64, i64, i64) -> Mixed).unwrap();
        // Elsewhere they are passed by address, which is refused.
        let passes_large = cfg!(target_arch = "x86_64");
        if passes_large {
            define!(jit, &tracker, "grow", grow as extern "C" fn(Large, i64) -> Large).unwrap();
        }
        jit.add_object(&tracker, "caller.o", &object[..]).unwrap();
        assert_eq!(find!(jit, "call_mix", fn(i32) -> f64).call(7), 406_107.0 + 2.75);
        if passes_large {
            assert_eq!(find!(jit, "call_grow", fn(i64) -> f64).call(4), 500.0 + 40.0 - 1.0);
        }
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!(jit.memory_statistics().live_bytes, before);
    }
}

static CALL_BACK: OnceLock<Function<extern "C" fn(i64) -> i64>> = OnceLock::new();

/// Calls linked code again.
extern "C" fn fewer(n: i64) -> i64 {
    if n == 0 { 0 } else { CALL_BACK.get().unwrap().call(n - 1) + n }
}

#[test]
fn a_function_of_this_process_may_call_linked_code_again() {
    own_process!();
    let Some(object) = c("long fewer(long); long again(long n) { return fewer(n) + 1; }") else { return };
    let remote = Remote::start();
    let tracker = remote.add("again.o", &object);
    define!(remote.jit, &tracker, "fewer", fewer as extern "C" fn(i64) -> i64).unwrap();
    let again = find!(remote.jit, "again", fn(i64) -> i64);
    CALL_BACK.set(again.clone()).unwrap();
    assert_eq!(again.call(50), 50 * 51 / 2 + 51);
}

extern "C" fn count(n: i64) -> i64 {
    static COUNTED: AtomicU64 = AtomicU64::new(0);
    COUNTED.fetch_add(n as u64, Ordering::Relaxed);
    COUNTED.load(Ordering::Relaxed) as i64
}

#[test]
fn threads_of_linked_code_and_of_this_process_call_the_same_function() {
    own_process!();
    let source = "
        #include <pthread.h>
        long count(long);
        static void *body(void *n) { for (long i = 0; i < (long)n; i++) count(1); return 0; }
        void threads(long n) { pthread_t t[3]; for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, body, (void *)n);
            for (int i = 0; i < 3; i++) pthread_join(t[i], 0); }
        long counted(void) { return count(0); }";
    let Some(object) = c(source) else { return };
    let remote = Remote::start();
    let tracker = remote.add("threads.o", &object);
    define!(remote.jit, &tracker, "count", count as extern "C" fn(i64) -> i64).unwrap();
    let threads = find!(remote.jit, "threads", fn(i64));
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(|| threads.call(200)))));
    assert_eq!(find!(remote.jit, "counted", fn() -> i64).call(), 1200);
}

extern "C-unwind" fn panics(n: i64) -> i64 {
    panic!("by the test, with {n}")
}

#[test]
fn a_panic_of_a_function_of_this_process_ends_the_executor_and_not_this_process() {
    let Some(object) = c("long panics(long); long run(long n) { return panics(n); }") else { return };
    let remote = Remote::start();
    let tracker = remote.add("run.o", &object);
    define!(remote.jit, &tracker, "panics", panics as extern "C-unwind" fn(i64) -> i64).unwrap();
    let run = find!(remote.jit, "run", fn(i64) -> i64);
    let error = run.try_call(3).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::ExecutorEnded { .. }) && error.to_string().contains("(SIGABRT)"),
        "{error}"
    );
    drop(run);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
}

#[test]
fn a_name_that_is_taken_and_a_type_that_cannot_be_passed_on_define_nothing() {
    #[repr(C, align(32))]
    struct Aligned([u64; 4]);
    extern "C" fn aligned(_: Aligned) {}
    let Some(object) = c("long taken(void) { return 1; }") else { return };
    let remote = Remote::start();
    let taken = remote.add("taken.o", &object);
    let dylib: &jittison::JitDylib = remote.jit.main_dylib();
    let tracker: ResourceTracker = dylib.create_tracker().unwrap();
    let refused = define!(remote.jit, &tracker, "taken", count as extern "C" fn(i64) -> i64).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::DuplicateDefinition { .. }), "{refused}");
    let refused = define!(remote.jit, &tracker, "other", aligned as extern "C" fn(Aligned)).unwrap_err();
    assert!(refused.to_string().contains("`other` cannot be called with its type"), "{refused}");
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
    drop(taken);
    define!(remote.jit, &tracker, "other", count as extern "C" fn(i64) -> i64).unwrap();
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
    let refused = define!(remote.jit, &tracker, "other", count as extern "C" fn(i64) -> i64).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::TrackerDefunct { .. }), "{refused}");
}
