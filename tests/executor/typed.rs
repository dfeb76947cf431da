//! Functions with a type, called in another process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use jittison::base::Name;
use jittison::memory::{MemoryManager, SlabPool, SlabPoolOptions};
use jittison::session::{Alias, SymbolFlags};
use jittison::{ErrorKind, Function, Jit};
use jittison_test_tools::{is_rerun, rerun, this_test};

use crate::{Remote, c};

/// 16 bytes, of which one half is passed in an integer register and the other in a vector register.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mixed {
    integer: i64,
    float: f64,
}

/// 8 bytes in one vector register.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    x: f32,
    y: f32,
}

/// Passed on the stack, returned in memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
struct Large {
    first: i64,
    second: f64,
    third: u8,
}

/// On the stack, because a field is not aligned.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Packed {
    byte: u8,
    word: u32,
}

const SIGNATURES: &str = r#"
#include <stdint.h>
#include <string.h>
typedef struct { int64_t integer; double float_; } mixed;
typedef struct { float x, y; } point;
typedef struct { int64_t first; double second; uint8_t third; } large;
typedef struct __attribute__((packed)) { uint8_t byte; uint32_t word; } packed;
static int calls;
void nothing(void) { calls++; }
int how_often(void) { return calls; }
_Bool not_(_Bool b) { return !b; }
int8_t smaller(int16_t a, uint8_t b) { return a - b; }
float half(float x) { return x / 2; }
double twelve(int32_t a, double b, int64_t c, float d, uint8_t e, double f, int64_t g, double h, int64_t i, double j, int64_t k, double l) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j + 11 * k + 12 * l;
}
double ten(double a, double b, double c, double d, double e, double f, double g, double h, double i, double j) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}
mixed swap(point p, mixed m) { return (mixed){ m.float_ + p.x, m.integer + p.y }; }
point turn(point p) { return (point){ -p.y, p.x }; }
large grow(large l, int n) { return (large){ l.first * n, l.second * n, l.third + n }; }
unsigned __int128 add(unsigned __int128 a, int b, int c, int d, unsigned __int128 e) { return a + b + c + d + e; }
uint64_t unpack(packed p, int factor) { return (p.byte + p.word) * factor; }
const char *text(void) { return "text"; }
long length(const char *s) { return strlen(s); }
"#;

/// A function of the main dylib.
macro_rules! find {
    ($remote:expr, $name:literal, fn($($argument:ty),*) $(-> $result:ty)?) => {
        // SAFETY: the function has this signature.
        unsafe { $remote.jit.lookup::<extern "C" fn($($argument),*) $(-> $result)?>($name) }.unwrap()
    };
}

#[test]
fn arguments_and_results_of_every_class_arrive() {
    let Some(object) = c(SIGNATURES) else { return };
    let remote = Remote::start();
    let tracker = remote.add("signatures.o", &object);
    {
        let (nothing, how_often) = (find!(remote, "nothing", fn()), find!(remote, "how_often", fn() -> i32));
        nothing.call();
        nothing.call();
        assert_eq!(how_often.call(), 2);
        assert_eq!([true, false].map(|b| find!(remote, "not_", fn(bool) -> bool).call(b)), [false, true]);
        assert_eq!(find!(remote, "smaller", fn(i16, u8) -> i8).call(-3, 4), -7);
        assert_eq!(find!(remote, "half", fn(f32) -> f32).call(3.0), 1.5);
        let twelve = find!(remote, "twelve", fn(i32, f64, i64, f32, u8, f64, i64, f64, i64, f64, i64, f64) -> f64);
        let numbers: f64 = (1..=12).map(|n| f64::from(n * n)).sum();
        assert_eq!(twelve.call(1, 2.0, 3, 4.0, 5, 6.0, 7, 8.0, 9, 10.0, 11, 12.0), numbers);
        let ten = find!(remote, "ten", fn(f64, f64, f64, f64, f64, f64, f64, f64, f64, f64) -> f64);
        assert_eq!(ten.call(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0), 385.0);
        let swap = find!(remote, "swap", fn(Point, Mixed) -> Mixed);
        assert_eq!(
            swap.call(Point { x: 0.5, y: 0.25 }, Mixed { integer: 3, float: 4.5 }),
            Mixed { integer: 5, float: 3.25 }
        );
        assert_eq!(find!(remote, "turn", fn(Point) -> Point).call(Point { x: 1.0, y: 2.0 }), Point { x: -2.0, y: 1.0 });
        // Elsewhere they are passed by address, which is refused.
        if cfg!(target_arch = "x86_64") {
            let grow = find!(remote, "grow", fn(Large, i32) -> Large);
            let large = Large { first: -2, second: 1.5, third: 7 };
            assert_eq!(grow.call(large, 3), Large { first: -6, second: 4.5, third: 10 });
        }
        let add = find!(remote, "add", fn(u128, i32, i32, i32, u128) -> u128);
        assert_eq!(add.call(1 << 100, 1, 2, 3, 1 << 90), (1 << 100) + (1 << 90) + 6);
        let packed = Packed { byte: 1, word: 0x0102_0304 };
        assert_eq!(find!(remote, "unpack", fn(Packed, i32) -> u64).call(packed, 2), 0x0102_0305 * 2);
        // A pointer of the executor goes through this process as a number.
        let text = find!(remote, "text", fn() -> *const u8).call();
        assert_eq!(find!(remote, "length", fn(*const u8) -> i64).call(text), 4);
    }
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
}

#[test]
fn a_handle_keeps_its_code_and_works_on_every_thread() {
    let Some(object) = c("long next(long n) { return n + 1; }") else { return };
    let remote = Remote::start();
    let tracker = remote.add("next.o", &object);
    let next = find!(remote, "next", fn(i64) -> i64);
    let removal = tracker.remove().unwrap();
    assert!(!removal.is_complete());
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let next = next.clone();
            scope.spawn(move || (0..1000).for_each(|n| assert_eq!(next.call(n * thread), n * thread + 1)));
        }
    });
    drop(next);
    assert!(removal.is_complete());
    assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
}

#[test]
fn a_call_may_link_a_lazy_function_whose_initialiser_is_called_in_between() {
    let Some(object) = c("double later(double); double now(double x) { return later(x) + 1; }") else { return };
    let other = "static double factor; __attribute__((constructor)) static void begin(void) { factor = 3; } \
                 double other(double x) { return x * factor; }";
    let Some(other) = c(other) else { return };
    let remote = Remote::start();
    let source = remote.jit.create_dylib("source").unwrap();
    remote.jit.add_object(&source.create_tracker().unwrap(), "other.o", other).unwrap();
    let tracker = remote.jit.main_dylib().create_tracker().unwrap();
    let alias = Alias { name: Name::new("later"), aliasee: Name::new("other"), flags: SymbolFlags::EXPORTED };
    remote.jit.lazy_reexport(&tracker, &source, &[alias]).unwrap();
    let _tracker = remote.add("now.o", &object);
    let now = find!(remote, "now", fn(f64) -> f64);
    assert_eq!([now.call(2.5), now.call(-1.0)], [8.5, -2.0]);
}

#[test]
fn a_call_of_an_executor_that_ends_panics_or_returns_the_error() {
    let Some(object) = c("long one(void) { return 1; } long crash(long *p) { return *p; }") else { return };
    let remote = Remote::start();
    let tracker = remote.add("crash.o", &object);
    let one = find!(remote, "one", fn() -> i64);
    let crash = find!(remote, "crash", fn(*const i64) -> i64);
    assert_eq!(one.try_call().unwrap(), 1);
    let error = crash.try_call(std::ptr::without_provenance(16)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::ExecutorEnded { .. }), "{error}");
    assert!(error.to_string().contains("(SIGSEGV)") && error.to_string().contains("crash+0x0 in crash.o"), "{error}");
    let panic = catch_unwind(AssertUnwindSafe(|| one.call())).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("(SIGSEGV)"));
    // SAFETY: the lookup fails.
    let ended = unsafe { remote.jit.lookup::<extern "C" fn() -> i64>("one") }.unwrap_err();
    assert!(matches!(ended.kind(), ErrorKind::ExecutorEnded { .. }), "{ended}");
    drop((one, crash));
    assert!(tracker.remove().unwrap().is_complete());
    // Code of this process is called as before.
    let here = Jit::new().unwrap();
    here.add_object(&here.main_dylib().create_tracker().unwrap(), "crash.o", object).unwrap();
    // SAFETY: the function has this signature.
    let one = unsafe { here.lookup::<extern "C" fn() -> i64>("one") }.unwrap();
    assert_eq!((one.call(), one.try_call().unwrap()), (1, 1));
}

#[test]
fn signatures_that_cannot_be_passed_on_are_refused_before_anything_is_linked() {
    #[repr(C, align(32))]
    struct Aligned([u64; 4]);
    #[repr(C, packed)]
    struct Odd(u8, u32);

    let Some(object) = c("long one(void) { return 1; }") else { return };
    let remote = Remote::start();
    let _tracker = remote.add("one.o", &object);
    /// Asserts that the lookup with this type fails with this text.
    macro_rules! refused {
        ($type:ty, $why:literal) => {
            // SAFETY: the lookup is refused.
            let error = unsafe { remote.jit.lookup::<$type>("one") }.unwrap_err().to_string();
            assert!(error.contains("`one` cannot be called with its type") && error.contains($why), "{error}");
            assert_eq!(remote.jit.memory_statistics().live_bytes, 0);
        };
    }
    refused!(extern "C" fn(Aligned) -> i64, "an argument with an alignment of more than 16 bytes");
    refused!(extern "C" fn(i32, [u8; 2049]) -> i64, "more than 2,048 bytes of arguments");
    refused!(extern "C" fn() -> [u8; 2049], "its result has more than 2,048 bytes");
    refused!(extern "C" fn() -> Aligned, "its result is a packed structure, or has an alignment");
    refused!(extern "C" fn() -> Odd, "its result is a packed structure, or has an alignment");
}

#[test]
fn versions_are_tried_and_replaced_under_handles_with_a_type() {
    let version = |factor: u32| c(&format!("double scale(double x) {{ return x * {factor}; }}"));
    let (Some(first), Some(second)) = (version(2), version(3)) else { return };
    let remote = Remote::start();
    let patchable = remote.jit.patchable_builder(remote.jit.main_dylib(), &["scale"]).history(0).build().unwrap();
    let prepare = |object: Vec<u8>| {
        let mut patch = patchable.patch();
        patch.add_object("scale.o", object).unwrap();
        // SAFETY: the object may run, and every version has this signature.
        unsafe { patch.link() }.unwrap()
    };
    drop(prepare(first).commit().unwrap());
    let scale = find!(remote, "scale", fn(f64) -> f64);
    assert_eq!(scale.call(1.5), 3.0);
    let prepared = prepare(second);
    // SAFETY: the function has this signature.
    let tried: Function<extern "C" fn(f64) -> f64> = unsafe { prepared.lookup("scale") }.unwrap();
    assert_eq!((tried.call(1.5), scale.call(1.5)), (4.5, 3.0));
    drop(prepared.commit().unwrap());
    assert_eq!((tried.call(1.5), scale.call(1.5)), (4.5, 4.5));
}

#[test]
fn sessions_that_choose_nothing_run_where_the_environment_says() {
    let test = this_test!();
    let source = "int getpid(void); int process(void) { return getpid(); } \
                  char *getenv(const char *); int is_named(void) { return getenv(\"JITTISON_EXECUTOR\") != 0; }";
    let Some(object) = c(source) else { return };
    if !is_rerun(test) {
        for (program, status) in
            [(Some(env!("CARGO_BIN_EXE_jittison-executor")), 2), (Some(""), 1), (None, 1), (Some("/no/program"), 3)]
        {
            let mut command = rerun(test);
            command.env_remove("JITTISON_EXECUTOR");
            program.map(|program| command.env("JITTISON_EXECUTOR", program));
            assert_eq!(command.status().unwrap().code(), Some(status), "{program:?}");
        }
        return;
    }
    let process = |jit: &Jit| {
        jit.add_object(&jit.main_dylib().create_tracker().unwrap(), "process.o", &object[..]).unwrap();
        // SAFETY: the function has this signature.
        unsafe { jit.lookup::<extern "C" fn() -> u32>("process") }.unwrap().call()
    };
    // What a session chooses is used whatever the environment says.
    let memory: Arc<dyn MemoryManager> = Arc::new(SlabPool::new(SlabPoolOptions::default()).unwrap());
    assert_eq!(process(&Jit::builder().memory_manager(memory).build().unwrap()), std::process::id());
    let executor = crate::start();
    assert_eq!(process(&Jit::builder().executor(&executor).build().unwrap()), executor.id());
    let jit = match Jit::new() {
        Ok(jit) => jit,
        Err(error) => {
            assert!(error.to_string().contains("/no/program"), "{error}");
            std::process::exit(3);
        }
    };
    if process(&jit) == std::process::id() {
        std::process::exit(1);
    }
    // Sessions of a program that runs in an executor stay there.
    assert_eq!(find!(Remote { executor, jit }, "is_named", fn() -> i32).call(), 0);
    std::process::exit(2);
}
