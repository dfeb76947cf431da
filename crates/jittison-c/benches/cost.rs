//! What a call through the C API costs over the same call in Rust, measured side by side in one run.
//!
//!     cargo bench -p jittison-c --bench cost
//!
//! A row is an operation. Its C form has the number of calls in the column `calls`; the Rust form does the same. Rounds of both
//! alternate, and the fastest round of each counts, so that other programs of the machine disturb both alike.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::time::Instant;

use jittison::{Function, Jit, JitDylib};
// The functions below are in this library.
use jittison_c as _;

type Handle = u64;
type Error = *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
struct Str {
    data: *const u8,
    length: usize,
}

// A handle as the header has it: a struct of one number is passed as the number.
unsafe extern "C-unwind" {
    safe fn jittison_session_create(options: *const c_void, out: &mut Handle) -> Error;
    safe fn jittison_dylib_main(session: Handle, out: &mut Handle) -> Error;
    safe fn jittison_tracker_create(dylib: Handle, out: &mut Handle) -> Error;
    safe fn jittison_tracker_is_defunct(tracker: Handle, out: &mut bool) -> Error;
    safe fn jittison_address_lookup(session: Handle, dylib: Handle, name: Str, out: &mut u64) -> Error;
    safe fn jittison_function_lookup(session: Handle, dylib: Handle, name: Str, out: &mut Handle) -> Error;
    safe fn jittison_function_address(function: Handle, out: &mut *mut c_void) -> Error;
    safe fn jittison_function_clone(function: Handle, out: &mut Handle) -> Error;
    safe fn jittison_function_release(function: Handle) -> Error;
    safe fn jittison_guard_enter(session: Handle, out: &mut Handle) -> Error;
    safe fn jittison_guard_leave(guard: Handle) -> Error;
    safe fn jittison_guard_lookup(guard: Handle, dylib: Handle, name: Str, out: &mut *mut c_void) -> Error;
    safe fn jittison_object_link(session: Handle, tracker: Handle, name: Str, bytes: *const u8, size: usize) -> Error;
}

const OBJECT: &[u8] = include_bytes!("../../../docs/examples/add.o");
const NAME: Str = Str { data: b"add".as_ptr(), length: 3 };
type Add = unsafe extern "C" fn(i64, i64) -> i64;

fn ok(error: Error) {
    assert!(error.is_null(), "a call failed");
}

/// The fastest of many rounds, in nanoseconds for one operation.
fn fastest(mut c: impl FnMut(), mut rust: impl FnMut()) -> (f64, f64) {
    const OPERATIONS: u32 = 2_000;
    let mut best = (f64::MAX, f64::MAX);
    let round = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..OPERATIONS).for_each(|_| work());
        start.elapsed().as_nanos() as f64 / f64::from(OPERATIONS)
    };
    for _ in 0..400 {
        best.0 = round(&mut c).min(best.0);
        best.1 = round(&mut rust).min(best.1);
    }
    best
}

fn main() {
    let (mut session, mut dylib, mut tracker) = (0, 0, 0);
    ok(jittison_session_create(ptr::null(), &mut session));
    ok(jittison_dylib_main(session, &mut dylib));
    ok(jittison_tracker_create(dylib, &mut tracker));
    ok(jittison_object_link(session, tracker, NAME, OBJECT.as_ptr(), OBJECT.len()));
    let mut function = 0;
    ok(jittison_function_lookup(session, dylib, NAME, &mut function));

    let jit = Jit::new().unwrap();
    let of_rust: JitDylib = jit.main_dylib().clone();
    let rust_tracker = of_rust.create_tracker().unwrap();
    jit.link_object(&rust_tracker, "add", OBJECT).unwrap();
    // SAFETY: the object defines `add` with this signature, and may run.
    let look_up = || unsafe { jit.lookup_in::<Add>(&of_rust, black_box("add")).unwrap() };
    let rust_function: Function<Add> = look_up();

    let mut worst: f64 = 0.0;
    let mut row = |operation: &str, calls: u32, c: &mut dyn FnMut(), rust: &mut dyn FnMut()| {
        let (c, rust) = fastest(c, rust);
        let over = (c - rust) / f64::from(calls);
        worst = worst.max(over);
        println!("{operation:<40} {calls:>5} {c:>9.1} {rust:>9.1} {over:>14.1}");
    };
    println!("{:<40} {:>5} {:>9} {:>9} {:>14}", "operation", "calls", "C, ns", "Rust, ns", "over, ns/call");
    row(
        "is a tracker defunct",
        1,
        &mut || {
            let mut is_defunct = false;
            ok(jittison_tracker_is_defunct(black_box(tracker), &mut is_defunct));
            black_box(is_defunct);
        },
        &mut || {
            black_box(black_box(&rust_tracker).is_defunct());
        },
    );
    row(
        "address of a function handle",
        1,
        &mut || {
            let mut address = ptr::null_mut();
            ok(jittison_function_address(black_box(function), &mut address));
            black_box(address);
        },
        &mut || {
            black_box(black_box(&rust_function).address());
        },
    );
    row(
        "clone and release a function handle",
        2,
        &mut || {
            let mut clone = 0;
            ok(jittison_function_clone(black_box(function), &mut clone));
            ok(jittison_function_release(clone));
        },
        &mut || {
            black_box(black_box(&rust_function).clone());
        },
    );
    row(
        "enter and leave a guard",
        2,
        &mut || {
            let mut guard = 0;
            ok(jittison_guard_enter(black_box(session), &mut guard));
            ok(jittison_guard_leave(guard));
        },
        &mut || {
            black_box(black_box(&jit).guard());
        },
    );
    row(
        "look up an address",
        1,
        &mut || {
            let mut address = 0;
            ok(jittison_address_lookup(black_box(session), black_box(dylib), black_box(NAME), &mut address));
            black_box(address);
        },
        &mut || {
            black_box(black_box(&jit).address_of(black_box(&of_rust), black_box("add")).unwrap());
        },
    );
    row(
        "look up and release a function",
        2,
        &mut || {
            let mut found = 0;
            ok(jittison_function_lookup(black_box(session), black_box(dylib), black_box(NAME), &mut found));
            ok(jittison_function_release(found));
        },
        &mut || {
            black_box(look_up());
        },
    );
    let mut guard = 0;
    ok(jittison_guard_enter(session, &mut guard));
    let rust_guard = jit.guard();
    row(
        "look up a function under a guard",
        1,
        &mut || {
            let mut address = ptr::null_mut();
            ok(jittison_guard_lookup(black_box(guard), black_box(dylib), black_box(NAME), &mut address));
            black_box(address);
        },
        &mut || {
            // SAFETY: as above.
            black_box(unsafe {
                jit.symbol::<Add>(black_box(&rust_guard), black_box(&of_rust), black_box("add")).unwrap()
            });
        },
    );
    ok(jittison_guard_leave(guard));
    println!("at most {worst:.1} ns a call over Rust");
}
