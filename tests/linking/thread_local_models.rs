//! Thread-local variables that another object defines, under every pair of TLS models, in either order of linking. The
//! answer of the native linker is the reference.
//!
//! A use by a static model needs a distance that the C library fixes only while it has space and no thread has used the
//! variable. Otherwise a thunk computes it. Each test names which of the two it checks.

use std::process::Command;

use jittison::Jit;
use jittison::session::Visibility;

use crate::support::*;
use crate::thread_locals::clang_of_models;

/// Models by the flags that gcc and clang need for them.
const MODELS: [(&str, &[&str]); 6] = [
    ("global-dynamic", &["-O2", "-fPIC", "-ftls-model=global-dynamic"]),
    ("local-dynamic", &["-O2", "-fPIC", "-ftls-model=local-dynamic"]),
    ("initial-exec", &["-O2", "-fPIC", "-ftls-model=initial-exec"]),
    ("local-exec PIE", &["-O2", "-fPIE", "-ftls-model=local-exec"]),
    ("local-exec non-PIC", &["-O2", "-fno-pic", "-ftls-model=local-exec"]),
    ("descriptors", &["-O2", "-fPIC", TLS_DESCRIPTORS]),
];

const DEFINING: &str = "
    VISIBILITY _Thread_local long before = 7; VISIBILITY _Thread_local long shared = 40;
    long *defined_at(void) { return &shared; }
    long define_bump(void) { return shared += before - 6; }
";

/// `OWN` is the using object's own variable, if it has one.
const USING: &str = "
    extern VISIBILITY _Thread_local long before, shared;
    OWN
    long *used_at(void) { return &shared; }
    long use_bump(void) { STEP; shared += before - 6; return shared; }
";

const OWN: [(&str, &str); 2] = [
    ("", ""),
    ("static _Thread_local long own; long own_is(void) { return own; } static long *volatile to; ", "to = &own; ++*to"),
];

fn defining(visibility: &str) -> String {
    DEFINING.replace("VISIBILITY", visibility)
}

fn using(visibility: &str, (own, step): (&str, &str)) -> String {
    USING.replace("VISIBILITY", visibility).replace("OWN", own).replace("STEP", step)
}

/// Asserts that both objects see one variable per thread, and that each thread has its own.
fn assert_shared(jit: &Jit, what: &str) {
    let (defined_at, used_at) = (at(jit, "defined_at"), at(jit, "used_at"));
    let (define_bump, use_bump) = (bump(jit, "define_bump"), bump(jit, "use_bump"));
    let check = || {
        assert_eq!((define_bump.call(), use_bump.call(), define_bump.call()), (41, 42, 43), "{what}");
        assert_eq!(defined_at.call() as u64, used_at.call() as u64, "{what}");
        used_at.call() as u64
    };
    let mine = check();
    let other = std::thread::scope(|scope| scope.spawn(check).join().unwrap());
    assert_ne!(mine, other, "{what}");
}

type At = jittison::Function<extern "C" fn() -> *mut i64>;
type Bump = jittison::Function<extern "C" fn() -> i64>;

fn at(jit: &Jit, name: &str) -> At {
    function(jit, name)
}

fn bump(jit: &Jit, name: &str) -> Bump {
    function(jit, name)
}

/// The order in which the two objects are linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The using object needs the defining one, which is linked for it.
    Using,
    /// The defining object is linked first. No code has run when the other is linked.
    Defining,
    /// The defining object is linked and has used its variable when the other is added.
    UsedBefore,
}

fn check_pair(defining: &[u8], using: &[u8], order: Order, what: &str) {
    let what = format!("{what}, {order:?}");
    let jit = new_jit();
    let main = jit.main_dylib();
    let add_defining = || add(&jit, main, "defining.o", defining);
    let add_using = || add(&jit, main, "using.o", using);
    let trackers = match order {
        Order::Using => {
            let trackers = [add_using(), add_defining()];
            drop(at(&jit, "used_at"));
            trackers
        }
        Order::Defining => {
            let trackers = [add_defining(), add_using()];
            drop(at(&jit, "defined_at"));
            trackers
        }
        Order::UsedBefore => {
            let defining = add_defining();
            let address = at(&jit, "defined_at");
            std::thread::scope(|scope| scope.spawn(|| assert!(!address.call().is_null())).join().unwrap());
            drop(address);
            [defining, add_using()]
        }
    };
    assert_shared(&jit, &what);
    for tracker in trackers.into_iter().rev() {
        drop(tracker.remove().unwrap());
    }
    assert_eq!(held(&jit).0, 0, "{what}");
}

/// What the native linker and the loader answer: whether a program of both objects runs as expected. `flags` are those of the
/// program.
fn runs_natively(objects: [&[u8]; 2], flags: &[&str]) -> Option<bool> {
    let main = gcc(
        &["-O2", "-fPIC"],
        "#include <pthread.h>
        long *defined_at(void), *used_at(void); long define_bump(void), use_bump(void);
        static void *check(void *at) {
            int ok = define_bump() == 41 && use_bump() == 42 && define_bump() == 43;
            return ok && defined_at() == used_at() && used_at() != at ? used_at() : 0;
        }
        int main(void) {
            pthread_t thread; void *result, *mine = check(0);
            pthread_create(&thread, 0, check, mine); pthread_join(thread, &result);
            return !(mine && result);
        }",
    )?;
    let (dir, mut linker) = (PrivateDir::new(), require("gcc")?);
    let program = dir.path("program");
    linker.args(flags).arg("-o").arg(&program).arg(dir.write("main.o", main));
    linker.arg(dir.write("defining.o", objects[0])).arg(dir.write("using.o", objects[1]));
    let is_linked = linker.output().unwrap().status.success();
    Some(is_linked && Command::new(&program).status().unwrap().success())
}

/// The definition of a variable and its use, by all pairs of models, for one compiler.
fn check_models(compile: fn(&[&str], &str) -> Option<Vec<u8>>, compiler: &str) {
    for (defining_model, defining_flags) in MODELS {
        for (using_model, using_flags) in MODELS {
            for visibility in ["", "__attribute__((visibility(\"hidden\")))"] {
                for own in OWN {
                    let Some(defining) = compile(defining_flags, &defining(visibility)) else { return };
                    let Some(using) = compile(using_flags, &using(visibility, own)) else { return };
                    let what = format!("{compiler}: {using_model} of {defining_model} {visibility} own: {}", own.1);
                    for order in [Order::Using, Order::Defining, Order::UsedBefore] {
                        check_pair(&defining, &using, order, &what);
                    }
                }
            }
        }
    }
}

#[test]
fn a_variable_of_another_object_is_shared_under_every_pair_of_models_of_gcc() {
    own_process!();
    check_models(gcc, "gcc");
}

#[test]
fn a_variable_of_another_object_is_shared_under_every_pair_of_models_of_clang() {
    own_process!();
    check_models(clang_of_models, "clang");
}

#[test]
fn a_native_linker_accepts_every_pair_of_models() {
    // Shares the process: the programs run in processes of their own.
    for (defining_model, defining_flags) in MODELS {
        for (using_model, using_flags) in MODELS {
            let Some(defining) = gcc(defining_flags, &defining("")) else { return };
            let Some(using) = gcc(using_flags, &using("", OWN[1])) else { return };
            let Some(runs) = runs_natively([&defining, &using], &["-no-pie", "-pthread"]) else { return };
            assert!(runs, "{using_model} of {defining_model}");
        }
    }
}

/// A native linker has the models that reach another module: all but local-exec and local-dynamic.
#[test]
fn a_variable_of_another_dylib_is_shared_under_every_model_that_reaches_it() {
    own_process!();
    for (defining_model, defining_flags) in MODELS {
        for (using_model, using_flags) in MODELS {
            for runs_before in [false, true] {
                let Some(defining) = gcc(defining_flags, &defining("")) else { return };
                let Some(using) = gcc(using_flags, &using("", OWN[1])) else { return };
                let jit = new_jit();
                let other = jit.create_dylib("other").unwrap();
                jit.main_dylib().add_to_link_order(&[(other.clone(), Visibility::ExportedOnly)]).unwrap();
                let _defining = add(&jit, &other, "defining.o", &defining);
                if runs_before {
                    bump(&jit, "define_bump").call();
                }
                let _using = add(&jit, jit.main_dylib(), "using.o", &using);
                let (used_at, defined_at) = (at(&jit, "used_at"), at(&jit, "defined_at"));
                let check =
                    || assert_eq!(used_at.call() as u64, defined_at.call() as u64, "{using_model} of {defining_model}");
                check();
                std::thread::scope(|scope| scope.spawn(check).join().unwrap());
            }
        }
    }
}

/// More than the C library has static space for: the later blocks have thunks.
#[test]
fn static_models_work_when_the_static_space_of_the_c_library_is_used_up() {
    own_process!();
    for (model, flags) in MODELS {
        let jit = new_jit();
        let mut trackers = Vec::new();
        for number in 0..40 {
            let source = format!(
                "_Thread_local long block{number}[32] = {{{number}}};
                long bump{number}(void) {{ return ++block{number}[0] + block{number}[31]; }}"
            );
            let Some(object) = gcc(flags, &source) else { return };
            trackers.push(add(&jit, jit.main_dylib(), &format!("block{number}.o"), &object));
        }
        for number in 0..40 {
            let bump = bump(&jit, &format!("bump{number}"));
            let check = || assert_eq!((bump.call(), bump.call()), (number + 1, number + 2), "{model}");
            check();
            std::thread::scope(|scope| scope.spawn(check).join().unwrap());
        }
        trackers.into_iter().for_each(|tracker| assert!(tracker.remove().unwrap().is_complete()));
        assert_eq!(held(&jit).0, 0, "{model}");
    }
}

const LARGE: &str = "
    _Thread_local char large[100 << 10] = {1}; _Thread_local long zero[20 << 10];
    long test(void) { zero[20479] += 5; large[102399] += 2; return ++large[0] + 100 * large[102399] + 10000 * zero[20479]; }
";

#[test]
fn a_large_static_block_works() {
    own_process!();
    for (model, flags) in MODELS {
        let Some(object) = gcc(flags, LARGE) else { return };
        let (jit, _trackers) = linked(&[&object]);
        let test = bump(&jit, "test");
        let check = || assert_eq!((test.call(), test.call()), (50_202, 100_403), "{model}");
        check();
        std::thread::scope(|scope| scope.spawn(check).join().unwrap());
    }
}

/// The remedy that errors name.
#[test]
fn a_large_static_block_has_a_fixed_distance_if_the_process_asks_for_space() {
    const TEST: &str = "thread_local_models::a_large_static_block_has_a_fixed_distance_if_the_process_asks_for_space";
    if !is_rerun(TEST) {
        let mut command = rerun(TEST);
        let output = command.env("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=600000").output().unwrap();
        assert_passed(TEST, &output);
        return;
    }
    let Some(object) = gcc(&["-O2", "-fno-pic"], LARGE) else { return };
    let before = {
        let (jit, _trackers) = linked(&[&object]);
        assert_eq!(long(&jit, "test"), 50_202);
        held(&jit)
    };
    // Each link has one allocation: there are no thunks.
    assert_eq!(before.0, 1);
}

#[test]
fn a_block_too_large_for_static_tls_has_thunks() {
    own_process!();
    let source = "static _Thread_local char big[1 << 20]; long test(void) { return (long)++big[5]; }";
    for flags in [&["-O2", "-fPIC", "-ftls-model=initial-exec"][..], &["-O2", "-fPIE"], &["-O2", "-fno-pic"]] {
        let Some(object) = gcc(flags, source) else { return };
        let (jit, trackers) = linked(&[&object]);
        assert_eq!((long(&jit, "test"), long(&jit, "test")), (1, 2));
        assert_eq!(held(&jit).0, 2, "the link and its thunks");
        trackers.into_iter().for_each(|tracker| assert!(tracker.remove().unwrap().is_complete()));
        assert_eq!(held(&jit), held(&new_jit()), "the thunks are freed with their object");
    }
}

/// A variable that another object defines outside of static TLS, and offsets from one block to another.
#[test]
fn every_static_use_of_a_variable_outside_static_tls_works() {
    own_process!();
    let definition = "_Thread_local char big[1 << 20]; long first(void) { return ++big[5]; }";
    let uses = "extern _Thread_local char big[]; OWN long test(void) { STEP; return ++big[5]; }";
    let own = [
        ("", ""),
        ("static _Thread_local long own; long *volatile at;", "at = &own; ++*at"),
        ("static _Thread_local long own[1 << 18];  long *volatile at;", "at = &own[5]; ++*at"),
    ];
    let Some(object) = gcc(&["-O2", "-fPIC"], definition) else { return };
    for (model, flags) in MODELS {
        for (own, step) in own {
            let Some(user) = gcc(flags, &uses.replace("OWN", own).replace("STEP", step)) else { return };
            for objects in [[&object, &user], [&user, &object]] {
                let (jit, _trackers) = linked(&[objects[0], objects[1]]);
                let (first, test) = (bump(&jit, "first"), bump(&jit, "test"));
                let check = || assert_eq!((first.call(), test.call(), first.call()), (1, 2, 3), "{model} {own}");
                check();
                std::thread::scope(|scope| scope.spawn(check).join().unwrap());
            }
        }
    }
}

/// By a fixed distance, and by a thunk.
#[test]
fn a_static_use_pins_the_object_that_defines_the_variable() {
    own_process!();
    let uses = "extern _Thread_local long shared[]; long use_bump(void) { return ++shared[1]; }";
    for length in [4, 1 << 17] {
        let definition = format!("_Thread_local long shared[{length}]; long *defined_at(void) {{ return shared; }}");
        for flags in [&["-O2", "-fPIC", "-ftls-model=initial-exec"][..], &["-O2", "-fPIE"]] {
            let (Some(definition), Some(user)) = (gcc(&["-O2", "-fPIC"], &definition), gcc(flags, uses)) else {
                return;
            };
            let jit = new_jit();
            let defining = add(&jit, jit.main_dylib(), "defining.o", &definition);
            let using = add(&jit, jit.main_dylib(), "using.o", &user);
            let use_bump = bump(&jit, "use_bump");
            let removal = defining.remove().unwrap();
            assert!(!removal.is_complete(), "{length}: the using object needs the variable");
            assert_eq!((use_bump.call(), use_bump.call()), (1, 2));
            drop(use_bump);
            assert!(using.remove().unwrap().is_complete() && removal.is_complete(), "{length}");
            assert_eq!(held(&jit).0, 0, "{length}");
        }
    }
}

/// The C library does not reuse all static space, so later rounds may have thunks.
#[test]
fn repeated_links_with_late_static_offsets_leave_nothing() {
    own_process!();
    let (Some(definition), Some(user)) = (gcc(MODELS[0].1, &defining("")), gcc(MODELS[3].1, &using("", OWN[1]))) else {
        return;
    };
    let count = |path: &str| {
        std::fs::read_to_string(path).unwrap().lines().filter(|line| line.contains("thread-local")).count()
    };
    let jit = new_jit();
    let (mut mappings, mut descriptors) = (0, 0);
    for round in 0..100 {
        let trackers =
            [add(&jit, jit.main_dylib(), "defining.o", &definition), add(&jit, jit.main_dylib(), "using.o", &user)];
        assert_shared(&jit, "repeated");
        trackers.into_iter().rev().for_each(|tracker| assert!(tracker.remove().unwrap().is_complete()));
        assert_eq!(held(&jit).0, 0);
        let now = (count("/proc/self/maps"), std::fs::read_dir("/proc/self/fd").unwrap().count());
        match round {
            0 => (mappings, descriptors) = now,
            _ => assert_eq!(now, (mappings, descriptors), "round {round}"),
        }
    }
}

/// Threads that exist use the new distance while it is granted, and threads that start.
#[test]
fn a_static_offset_is_granted_while_other_threads_run() {
    own_process!();
    let (Some(definition), Some(user)) = (gcc(MODELS[0].1, &defining("")), gcc(MODELS[3].1, &using("", OWN[0]))) else {
        return;
    };
    for _ in 0..rounds(64) {
        let jit = new_jit();
        let _defining = add(&jit, jit.main_dylib(), "defining.o", &definition);
        let _using = add(&jit, jit.main_dylib(), "using.o", &user);
        let (defined_at, define_bump) = (at(&jit, "defined_at"), bump(&jit, "define_bump"));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let first = defined_at.call() as u64;
                    let used_at = at(&jit, "used_at");
                    assert_eq!(
                        (define_bump.call(), defined_at.call() as u64, used_at.call() as u64),
                        (41, first, first)
                    );
                });
            }
        });
    }
}

/// Instructions of static models, each in a function that returns a number. `%rdi` and `%rsi` are arguments.
#[cfg(target_arch = "x86_64")]
const INSTRUCTIONS: &[(&str, &str)] = &[
    ("load", "mov %fs:word@tpoff, %rax"),
    ("load_narrow", "movzbl %fs:word@tpoff, %eax"),
    ("load_into_argument", "mov %fs:word@tpoff, %rdi; lea (%rdi,%rsi), %rax"),
    ("store", "mov %rdi, %fs:word@tpoff; mov %fs:word@tpoff, %rax"),
    ("store_immediate", "movq $77, %fs:word@tpoff; mov %fs:word@tpoff, %rax"),
    ("add_to_memory", "addq $3, %fs:word@tpoff; mov %fs:word@tpoff, %rax"),
    ("add_from_memory", "mov %rsi, %rax; add %fs:word@tpoff+0, %rax"),
    ("address", "mov %fs:0, %rax; lea word@tpoff(%rax), %rax; mov (%rax), %rax"),
    ("address_by_add", "mov %fs:0, %rax; add $word@tpoff, %rax; mov (%rax), %rax"),
    ("distance", "mov $word@tpoff, %rax; mov %fs:(%rax), %rax"),
    ("distance_on_stack", "movq $word@tpoff, -16(%rsp); mov -16(%rsp), %rax; mov %fs:(%rax), %rax"),
    ("element", "mov %fs:list@tpoff(,%rdi,8), %rax"),
    ("element_of_base", "mov %fs:0, %rcx; mov list@tpoff+8(%rcx,%rdi,8), %rax"),
    ("element_with_addend", "mov %fs:list@tpoff+16, %rax"),
    ("locked", "mov $2, %eax; lock xadd %rax, %fs:word@tpoff; add %fs:word@tpoff, %rax"),
    ("carry_in", "mov $5, %eax; stc; adc %fs:word@tpoff, %rax"),
    ("flags_out", "xor %eax, %eax; cmp %rdi, %fs:word@tpoff; setb %al; mov $4, %ecx; cmova %rcx, %rax"),
    ("flags_kept", "xor %eax, %eax; cmp %rdi, %rsi; mov %fs:word@tpoff, %rcx; seta %al; lea (%rax,%rcx,2), %rax"),
    ("pushed", "pushq %fs:word@tpoff; pop %rax"),
    ("pushed_distance", "pushq $word@tpoff; pop %rax; mov %fs:(%rax), %rax"),
    (
        "red_zone",
        "mov %rdi, -8(%rsp); mov %rsi, -128(%rsp); mov %fs:word@tpoff, %rax; add -8(%rsp), %rax; add -128(%rsp), %rax",
    ),
    (
        "called",
        "lea callee(%rip), %rax; mov %rax, %fs:pointer@tpoff; sub $8, %rsp; mov $3, %eax; call *%fs:pointer@tpoff; add $8, %rsp",
    ),
    ("jumped", "lea callee(%rip), %rax; mov %rax, %fs:pointer@tpoff; mov $4, %eax; jmp *%fs:pointer@tpoff"),
    (
        "vector",
        "movups %fs:list@tpoff, %xmm1; movq %xmm1, %rax; psrldq $8, %xmm1; movq %xmm1, %rcx; lea (%rax,%rcx,8), %rax",
    ),
    ("slot", "mov word@gottpoff(%rip), %rax; mov %fs:(%rax), %rax"),
    ("slot_added", "mov %fs:0, %rax; add word@gottpoff(%rip), %rax; mov (%rax), %rax"),
    (
        "all_registers",
        "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; \
        mov $1, %eax; mov $2, %ebx; mov $3, %ecx; mov $4, %edx; mov $5, %ebp; mov $6, %r8d; mov $7, %r9d; mov $8, %r10d; \
        mov $9, %r11d; mov $10, %r12d; mov $11, %r13d; mov $12, %r14d; addq $1, %fs:word@tpoff; mov %fs:word@tpoff, %r15; \
        add %rbx, %rax; lea (%rax,%rcx,2), %rax; lea (%rax,%rdx,4), %rax; lea (%rax,%rbp,8), %rax; lea (%r8,%rax,2), %rax; \
        lea (%r9,%rax,2), %rax; lea (%r10,%rax,2), %rax; lea (%r11,%rax,2), %rax; lea (%r12,%rax,2), %rax; \
        lea (%r13,%rax,2), %rax; lea (%r14,%rax,2), %rax; lea (%r15,%rax,2), %rax; lea (%rdi,%rax,2), %rax; lea (%rsi,%rax,2), %rax; \
        pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx",
    ),
];

/// Instructions of static models, each in a function that returns a number. `x0` and `x1` are arguments.
#[cfg(target_arch = "aarch64")]
const INSTRUCTIONS: &[(&str, &str)] = &[
    ("load", "mrs x9, tpidr_el0; add x9, x9, :tprel_hi12:word; ldr x0, [x9, :tprel_lo12_nc:word]"),
    (
        "store",
        "mrs x9, tpidr_el0; add x9, x9, :tprel_hi12:word; str x0, [x9, :tprel_lo12_nc:word]; ldr x0, [x9, :tprel_lo12_nc:word]",
    ),
    ("load_8", "mrs x2, tpidr_el0; add x2, x2, :tprel_hi12:word; ldrb w0, [x2, :tprel_lo12_nc:word]"),
    ("load_16", "mrs x2, tpidr_el0; add x2, x2, :tprel_hi12:word; ldrsh x0, [x2, :tprel_lo12_nc:word]"),
    ("load_32", "mrs x2, tpidr_el0; add x2, x2, :tprel_hi12:word; ldrsw x0, [x2, :tprel_lo12_nc:word]"),
    (
        "vector",
        "mrs x2, tpidr_el0; add x2, x2, :tprel_hi12:list; ldr d1, [x2, :tprel_lo12_nc:list]; add d1, d1, d1; \
        str d1, [x2, :tprel_lo12_nc:list]; ldr x0, [x2, :tprel_lo12_nc:list]; ushr d1, d1, #1; \
        str d1, [x2, :tprel_lo12_nc:list]; ldr x1, [x2, :tprel_lo12_nc:list]; add x0, x0, x1, lsl #9",
    ),
    ("prefetch", "mrs x2, tpidr_el0; add x2, x2, :tprel_hi12:word; prfm pldl1keep, [x2, :tprel_lo12_nc:word]"),
    (
        "element_with_addend",
        "mrs x2, tpidr_el0; add x2, x2, :tprel_hi12:list + 16; ldr x0, [x2, :tprel_lo12_nc:list + 16]",
    ),
    (
        "element_with_far_addend",
        "mrs x2, tpidr_el0; add x2, x2, :tprel_hi12:list + 0x6789a8; add x2, x2, :tprel_lo12_nc:list + 0x6789a8; \
        movz x3, #0x67, lsl #16; movk x3, #0x89a0; sub x2, x2, x3; ldr x0, [x2]",
    ),
    ("address", "mrs x2, tpidr_el0; add x2, x2, :tprel_hi12:word; add x2, x2, :tprel_lo12_nc:word; ldr x0, [x2]"),
    ("moves_of_16", "mrs x2, tpidr_el0; movz x3, :tprel_g0:word; ldr x0, [x2, x3]"),
    ("moves_of_32", "mrs x2, tpidr_el0; movz x3, :tprel_g1:word; movk x3, :tprel_g0_nc:word; ldr x0, [x2, x3]"),
    (
        "moves_of_48",
        "mrs x2, tpidr_el0; movz x3, :tprel_g2:word; movk x3, :tprel_g1_nc:word; movk x3, :tprel_g0_nc:word; ldr x0, [x2, x3]",
    ),
    (
        "moves_that_keep",
        "mrs x2, tpidr_el0; movn x3, :tprel_g2:list; mov x4, #-1; movk x4, :tprel_g1_nc:list; movk x4, :tprel_g0_nc:list; \
        bfi x3, x4, #0, #32; ldr x0, [x2, x3]; lsr x4, x4, #32; add x0, x0, x4",
    ),
    ("slot", "adrp x3, :gottprel:word; ldr x3, [x3, :gottprel_lo12:word]; mrs x2, tpidr_el0; ldr x0, [x2, x3]"),
    (
        "slot_in_two_registers",
        "adrp x3, :gottprel:word; ldr x0, [x3, :gottprel_lo12:word]; ldr x4, [x3, :gottprel_lo12:word]; mrs x2, tpidr_el0; \
        ldr x0, [x2, x0]; ldr x4, [x2, x4]; add x0, x0, x4",
    ),
    ("in_the_result", "mrs x0, tpidr_el0; add x0, x0, :tprel_hi12:word; ldr x0, [x0, :tprel_lo12_nc:word]"),
    (
        "in_the_link_register",
        "mov x12, x30; mrs x30, tpidr_el0; add x30, x30, :tprel_hi12:word; add x0, x30, :tprel_lo12_nc:word; \
        str x12, [x30, :tprel_lo12_nc:pointer]; ldr x30, [x30, :tprel_lo12_nc:pointer]; ldr x0, [x0]",
    ),
    (
        "in_the_scratch_registers",
        "mov x11, #5; mov x12, #7; mrs x10, tpidr_el0; add x9, x10, :tprel_hi12:word; ldr x10, [x9, :tprel_lo12_nc:word]; \
        str x11, [x9, :tprel_lo12_nc:pointer]; ldr x9, [x9, :tprel_lo12_nc:pointer]; add x0, x9, x10; add x0, x0, x11; add x0, x0, x12",
    ),
    (
        "flags_kept",
        "mrs x2, tpidr_el0; cmp x0, x1; add x2, x2, :tprel_hi12:word; ldr x3, [x2, :tprel_lo12_nc:word]; cset x0, lo; \
        add x0, x3, x0, lsl #1; cset x1, mi; add x0, x0, x1, lsl #4; cset x1, vs; add x0, x0, x1, lsl #5",
    ),
    (
        "stack_kept",
        "stp x0, x1, [sp, #-48]!; stp x1, x0, [sp, #16]; mrs x2, tpidr_el0; add x2, x2, :tprel_hi12:word; \
        ldr x3, [x2, :tprel_lo12_nc:word]; ldp x5, x4, [sp, #16]; ldp x0, x1, [sp], #48; add x0, x0, x5, lsl #3; \
        add x0, x0, x4, lsl #9; add x0, x0, x3",
    ),
];

/// Assembles a source for the architecture of the tests.
fn assembled(source: &str) -> Option<Vec<u8>> {
    build("gcc", source.as_bytes(), &["-x", "assembler", "-c", "-o", OUTPUT, INPUT])
}

/// The functions of [`INSTRUCTIONS`], with a block of at least `size` bytes.
fn instructions(size: u64) -> Option<Vec<u8>> {
    let functions = INSTRUCTIONS.iter().map(|(name, code)| {
        format!(".globl {name}\n.type {name},@function\n{name}: {code}\nret\n.size {name}, .-{name}\n")
    });
    let callee = if cfg!(target_arch = "x86_64") { "callee: lea (%rax,%rdi), %rax\nret" } else { "" };
    assembled(&format!(
        ".text\n{callee}\n{}
        .section .tdata,\"awT\",@progbits\n.balign 16\nlist: .quad 11, 12, 13, 14\nword: .quad 1000\npointer: .quad 0
        .zero {size}\n.section .note.GNU-stack\n",
        functions.collect::<String>()
    ))
}

#[test]
fn an_instruction_does_the_same_in_a_thunk() {
    own_process!();
    let (Some(small), Some(large)) = (instructions(8), instructions(1 << 20)) else { return };
    let results = |object: &[u8], allocations| {
        let (jit, _trackers) = linked(&[object]);
        let functions: Vec<_> =
            INSTRUCTIONS.iter().map(|(name, _)| function::<extern "C" fn(i64, i64) -> i64>(&jit, name)).collect();
        assert_eq!(held(&jit).0, allocations);
        let in_thread = || functions.iter().map(|function| function.call(2, 50)).collect::<Vec<_>>();
        std::thread::scope(|scope| scope.spawn(in_thread).join().unwrap())
    };
    let (expected, found) = (results(&small, 1), results(&large, 2));
    for ((name, _), (expected, found)) in INSTRUCTIONS.iter().zip(expected.iter().zip(&found)) {
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(expected[0], 1000);
}

/// The first use in a thread allocates the thread's copy of the block, with code that uses vector registers.
#[test]
#[cfg(target_arch = "x86_64")]
fn the_first_use_of_a_variable_in_a_thread_keeps_the_vector_registers() {
    own_process!();
    if !std::is_x86_feature_detected!("avx") {
        return;
    }
    let each = |code: &str| {
        (0..16)
            .map(|number| code.replace("@", &number.to_string()).replace('#', &(32 * number).to_string()))
            .collect::<String>()
    };
    let (load, store) = (each("vmovdqu #(%rdi), %ymm@\n"), each("vmovdqu %ymm@, #(%rsi)\n"));
    let accesses = [
        "mov %fs:word@tpoff, %rax",
        "mov word@gottpoff(%rip), %rax\nmov %fs:(%rax), %rax",
        "leaq word@tlsdesc(%rip), %rax\ncall *word@tlscall(%rax)\nmov %fs:(%rax), %rax",
    ];
    for access in accesses {
        let source = format!(
            ".text\n.globl test\n.type test,@function\ntest: push %rbp\n{load}{access}\n{store}vzeroupper\npop %rbp\nret\n.size test, .-test
            .section .tdata,\"awT\",@progbits\nword: .quad 1000\n.zero 1 << 20\n.section .note.GNU-stack\n"
        );
        let Some(object) = asm(&source) else { return };
        let (jit, _trackers) = linked(&[&object]);
        let test = function::<extern "C" fn(*const u8, *mut u8) -> i64>(&jit, "test");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let before: Vec<u8> = (0..512).map(|at| at as u8 ^ 0x5a).collect();
                let mut after = vec![0; 512];
                assert_eq!(test.call(before.as_ptr(), after.as_mut_ptr()), 1000);
                assert_eq!(after, before, "{access}");
            });
        });
    }
}

/// The first use in a thread allocates the thread's copy of the block, with code that uses registers.
#[test]
#[cfg(target_arch = "aarch64")]
fn the_first_use_of_a_variable_in_a_thread_keeps_all_registers() {
    own_process!();
    let each = |range: std::ops::Range<usize>, code: &str| -> String {
        let with = |number: usize| code.replace('@', &number.to_string()).replace('#', &format!("#{}", number * 16));
        range.map(with).collect()
    };
    // Vectors, then general registers; x0 and x30 are those that a thunk uses itself.
    let save = format!("stp x29, x30, [sp, #-272]!\n{}", each(8..16, "str q@, [sp, #]\n")) + "str x1, [sp, #16]\n";
    let save = save
        + "stp x19, x20, [sp, #32]\nstp x21, x22, [sp, #48]\nstp x23, x24, [sp, #64]\nstp x25, x26, [sp, #80]\n\
                       stp x27, x28, [sp, #96]\n";
    let restore = each(8..16, "ldr q@, [sp, #]\n")
        + "ldp x19, x20, [sp, #32]\nldp x21, x22, [sp, #48]\nldp x23, x24, [sp, #64]\nldp x25, x26, [sp, #80]\n\
           ldp x27, x28, [sp, #96]\nldp x29, x30, [sp], #272\n";
    let load = each(0..32, "ldr q@, [x0, #]\n") + &each(1..30, "fmov x@, d@\n") + "fmov x30, d30\nfmov x0, d0\n";
    let store = "str x9, [sp, #24]\nldr x9, [sp, #16]\n".to_string()
        + &each(0..32, "str q@, [x9, #]\n")
        + "add x9, x9, #512\n"
        + &each(1..9, "str x@, [x9, #]\n")
        + &each(10..31, "str x@, [x9, #]\n")
        + "ldr x10, [sp, #24]\nstr x10, [x9, #144]\n";
    let accesses = [
        ("local exec", "mrs x0, tpidr_el0\nadd x0, x0, :tprel_hi12:word\nldr x0, [x0, :tprel_lo12_nc:word]\n"),
        (
            "initial exec",
            "adrp x0, :gottprel:word\nldr x0, [x0, :gottprel_lo12:word]\nstr x9, [sp, #24]\n\
          mrs x9, tpidr_el0\nldr x0, [x9, x0]\nldr x9, [sp, #24]\n",
        ),
    ];
    for (model, access) in accesses {
        let source = format!(
            ".text\n.globl test\n.type test,@function\ntest: {save}{load}{access}{store}{restore}ret\n.size test, .-test
            .section .tdata,\"awT\",@progbits\nword: .quad 1000\n.zero 1 << 20\n.section .note.GNU-stack\n"
        );
        let Some(object) = assembled(&source) else { return };
        let (jit, _trackers) = linked(&[&object]);
        let test = function::<extern "C" fn(*const u8, *mut u8) -> i64>(&jit, "test");
        assert_eq!(held(&jit).0, 2, "the link and its thunks");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let before: Vec<u8> = (0..512).map(|at| (at * 7) as u8 ^ 0x5a).collect();
                let mut after = vec![0; 1024];
                assert_eq!(test.call(before.as_ptr(), after.as_mut_ptr()), 1000, "{model}");
                assert_eq!(after[..512], before, "{model}: vectors");
                for register in 1..31 {
                    let at = register * 16;
                    assert_eq!(after[512 + at..][..8], before[at..][..8], "{model}: x{register}");
                }
            });
        });
    }
}

/// Code for small blocks has twelve bits for the distance.
#[test]
#[cfg(target_arch = "aarch64")]
fn twelve_bits_of_a_distance_are_all_of_it_unless_others_have_the_upper_bits() {
    own_process!();
    let block = ".section .tdata,\"awT\",@progbits\nword: .quad 1000\nother: .quad 7\n.zero 1 << 20\n.section .note.GNU-stack\n";
    let functions = ".text\n.globl address, load, others
        address: mrs x2, tpidr_el0; add x2, x2, :tprel_lo12:word; ldr x0, [x2]; ret
        load: mrs x2, tpidr_el0; ldr x0, [x2, :tprel_lo12:word]; ret
        others: mrs x2, tpidr_el0; add x2, x2, :tprel_hi12:other; ldr x0, [x2, :tprel_lo12_nc:other]; ret\n";
    let Some(object) = assembled(&format!("{functions}{block}")) else { return };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(["address", "load", "others"].map(|name| long(&jit, name)), [1000, 1000, 7]);
    let upper = format!("{functions}add x2, x2, :tprel_hi12:word\n{block}");
    let Some(object) = assembled(&upper) else { return };
    let error = refused_in(&new_jit(), &object, "load");
    assert_says(
        &error,
        &["R_AARCH64_TLSLE_ADD_TPREL_LO12", "`word`", "another instruction has the upper bits of the distance"],
    );
}

/// The function that computes distances keeps 128 bits of the vector registers.
#[test]
#[cfg(target_arch = "aarch64")]
fn a_distance_in_code_with_instructions_of_sve_is_refused() {
    own_process!();
    let source = ".arch armv8-a+sve\n.text\n.globl test\ntest: ptrue p0.d; mrs x2, tpidr_el0; add x2, x2, :tprel_hi12:word
        ldr x0, [x2, :tprel_lo12_nc:word]; ret\n.section .tdata,\"awT\",@progbits\nword: .quad 1000\n.zero 1 << 20\n.section .note.GNU-stack\n";
    let Some(object) = assembled(source) else { return };
    let error = refused_in(&new_jit(), &object, "test");
    assert_says(&error, &["R_AARCH64_TLSLE_ADD_TPREL_HI12", "`word`", "the section has instructions of SVE"]);
}

/// Code that knows only the block of its own object, and a variable of another object.
#[test]
#[cfg(target_arch = "aarch64")]
fn a_distance_from_the_block_of_the_object_leads_to_a_variable_of_another_one() {
    own_process!();
    let definition = "_Thread_local long big[1 << 17]; long first(void) { return ++big[5]; }";
    let source = ".text\n.globl test
        test: stp x29, x30, [sp, #-16]!
        adrp x0, :tlsdesc:_TLS_MODULE_BASE_; ldr x1, [x0, :tlsdesc_lo12:_TLS_MODULE_BASE_]; add x0, x0, :tlsdesc_lo12:_TLS_MODULE_BASE_
        .tlsdesccall _TLS_MODULE_BASE_
        blr x1; mrs x1, tpidr_el0; add x0, x0, x1; add x0, x0, :dtprel_hi12:big + 40, lsl #12; ldr x0, [x0, :dtprel_lo12_nc:big + 40]
        ldp x29, x30, [sp], #16; ret
        .section .tdata,\"awT\",@progbits\nown: .quad 3\n.section .note.GNU-stack\n";
    let (Some(definition), Some(user)) = (gcc(&["-O2", "-fPIC"], definition), assembled(source)) else { return };
    let (jit, _trackers) = linked(&[&definition, &user]);
    let (first, test) = (bump(&jit, "first"), bump(&jit, "test"));
    let check = || assert_eq!((first.call(), test.call(), first.call(), test.call()), (1, 1, 2, 2));
    check();
    std::thread::scope(|scope| scope.spawn(check).join().unwrap());
}
