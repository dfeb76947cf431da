//! Range extension: code may refer to data that its 32-bit displacement does not reach, such as data of a shared library from a
//! low window. The instruction moves to a thunk that computes the address. Registers, flags, stack and red zone stay as they are.

use std::io::Write as _;

use jittison::link::PlannedLink;
use jittison::memory::{OnFull, Placement};
use jittison::{Error, Jit};

use crate::support::*;

/// Words far above any low window. They live as long as the process.
fn far_words() -> &'static mut [u64; 16] {
    let words = Box::leak(Box::new([11, 22, 33, 44, 55, 66, 77, 88, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert!(words.as_ptr() as u64 > 1 << 33, "the words must be far");
    words
}

/// An object with one function `tN` for each body. The symbol `far` is for the far words.
fn bodies(bodies: &[&str]) -> Option<Vec<u8>> {
    let mut source = String::from(".text\n");
    for (number, body) in bodies.iter().enumerate() {
        source += &format!(".globl t{number}\n.type t{number}, @function\nt{number}:\n{body}\nret\n");
        source += &format!(".size t{number}, . - t{number}\n");
    }
    // A 32-bit address places the entire object low.
    source += ".globl low\nlow: mov $low, %eax\nret\n.section .note.GNU-stack\n";
    asm(&source)
}

#[test]
fn every_kind_of_instruction_reaches_a_far_variable() {
    let far = far_words();
    extern "C" fn callee() -> i64 {
        99
    }
    far[8] = callee as *const () as u64;
    let at = far.as_ptr() as i64;
    let cases: &[(&str, i64)] = &[
        ("mov $far, %edi; mov (%rdi), %rax", 11),
        ("mov $far + 8, %rax", at + 8),
        ("push %r14; mov $far + 8, %r14d; mov (%r14), %rax; pop %r14", 22),
        ("mov far(%rip), %rax", 11),
        ("mov far + 8, %ecx; mov %rcx, %rax", 22),
        ("mov $1, %ecx; mov far(, %rcx, 8), %rax", 22),
        ("mov $8, %esi; mov far(%rsi), %rax", 22),
        ("mov $8, %eax; mov far(%rax), %rax", 22),
        ("mov $8, %esi; lea far(%rsi), %rax", at + 8),
        ("lea far(%rip), %rax", at),
        ("lea far(%rsp), %rax; sub %rsp, %rax", at),
        ("mov $8, %esi; mov $1, %ecx; mov far + 8(%rsi, %rcx, 8), %rax", 44),
        ("mov $8, %esi; add far(%rsi), %rsi; mov %rsi, %rax", 30),
        ("movabs $1000, %rax; add $far, %rax", at + 1000),
        ("mov $far, %edx; xor %eax, %eax; cmp $far, %rdx; sete %al", 1),
        ("mov $far + 8, %edx; xor %eax, %eax; cmp $far, %rdx; seta %al", 1),
        ("mov $far, %eax; cmp $far, %rax; mov $7, %ecx; cmove %rcx, %rax", 7),
        // The red zone.
        (
            "movq $5, -8(%rsp); movq $6, -128(%rsp); addl $1, far + 80(%rip); mov -8(%rsp), %rax; add -128(%rsp), %rax",
            11,
        ),
        ("movq $far + 8, -16(%rsp); mov -16(%rsp), %rax", at + 8),
        ("mov $far, %edx; mov %rdx, -8(%rsp); xor %eax, %eax; cmpq $far, -8(%rsp); sete %al", 1),
        // Flags that the instruction reads, and flags that it writes.
        ("xor %eax, %eax; stc; mov %rax, far + 88(%rip); adc $0, %rax", 1),
        ("xor %eax, %eax; stc; adcq $0, far + 96(%rip); adc far + 96(%rip), %rax", 1),
        ("xor %eax, %eax; cmpb $11, far(%rip); sete %al", 1),
        ("xor %eax, %eax; test %eax, %eax; cmove far(%rip), %rax", 11),
        ("mov $3, %eax; test %eax, %eax; cmove far(%rip), %rax", 3),
        // The stack.
        ("push far(%rip); pop %rax", 11),
        ("push $far; pop %rax", at),
        ("mov $8, %eax; push far(%rax); pop %rax", 22),
        (
            "push $1; push %rdi; mov %rsp, %rdi; mov 8(%rsp), %rdi; push far(, %rdi, 8); pop %rax; pop %rdi; pop %rcx",
            22,
        ),
        ("call *far + 64(%rip)", 99),
        ("mov $8, %eax; sub $8, %rsp; call *far(, %rax, 8); add $8, %rsp", 99),
        ("jmp *far + 64(%rip)", 99),
        // Implicit operands, and instructions that leave few free registers.
        ("mov $2, %eax; mulq far(%rip)", 22),
        ("xor %edx, %edx; mov $112, %eax; divq far(%rip); lea (%rax, %rdx, 8), %rax", 26),
        ("mov $77, %eax; mov $1, %edx; cmpxchg %rdx, far + 48(%rip); sete %al; movzx %al, %eax", 1),
        ("mov $4, %eax; lock xadd %rax, far + 56(%rip)", 88),
        ("mov $0x1234, %eax; mov %ah, far + 104(%rip); movzbl far + 104(%rip), %eax", 0x12),
        ("imul $3, far(%rip), %rax", 33),
        ("cvtsi2sdq far(%rip), %xmm0; cvttsd2si %xmm0, %rax", 11),
        ("mov $far, %ecx; movq $far + 16, far + 112(%rip); mov 112(%rcx), %rax", at + 16),
        ("movl $low, far + 120(%rip); mov far + 120(%rip), %eax; mov $low, %ecx; sub %rcx, %rax", 0),
        // Two adjacent instructions, and a jump to the second.
        ("mov $1, %eax; jmp 1f; mov far(%rip), %rax; 1: add far(%rip), %rax", 12),
    ];
    let text: Vec<&str> = cases.iter().map(|(body, _)| *body).collect();
    let Some(object) = bodies(&text) else { return };
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "far", at as u64);
    let tracker = add(&jit, jit.main_dylib(), "forms.o", &object);
    assert!(long(&jit, "low") < 1 << 31, "the object must be low");
    for (number, (body, expected)) in cases.iter().enumerate() {
        assert_eq!(long(&jit, &format!("t{number}")), *expected, "{body}");
    }
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}

/// The error for an object whose function is `body`. `far` is out of reach.
fn refused_form(body: &str) -> Error {
    let jit = new_jit();
    define_absolute(jit.main_dylib(), "far", far_words().as_ptr() as u64);
    refused_in(&jit, &bodies(&[body]).unwrap(), "t0")
}

#[test]
fn instructions_that_cannot_move_to_a_thunk_are_refused_with_their_bytes() {
    if bodies(&[]).is_none() {
        return;
    }
    for (body, bytes, problem) in [
        ("mov %rsp, far(%rip)", "48 89 25 00 00 00 00", "stack pointer"),
        ("pop far(%rip)", "8f 05 00 00 00 00", "the stack"),
        ("cmp $far, %eax", "3d 00 00 00 00", "64 bits"),
        ("movl $far, (%rdi)", "c7 07 00 00 00 00", "64 bits"),
        ("mov %fs:far(%rax), %rax", "64 48 8b 80 00 00 00 00", "segment"),
        ("mov far(%eax), %eax", "67 8b 80 00 00 00 00", "32 bits"),
        (".byte 0xe9; .long far - . - 4", "e9 00 00 00 00", "no operand"),
    ] {
        let error = refused_form(body);
        assert_says(&error, &["bad.o", "`.text`", "`far`", "out of reach", bytes, problem, "-fPIC"]);
    }
}

#[test]
fn references_that_may_not_be_in_code_are_refused() {
    if bodies(&[]).is_none() {
        return;
    }
    // Data in code: with the byte before the field, the bytes decode as another instruction.
    assert_says(&refused_form(".byte 0x06; mov $far, %edi"), &["`.text`", "`far`", "0x0 may be no code"]);
    assert_says(&refused_form("jmp 1f; .byte 0x48, 0xbf; .long far; 1:"), &["`far`", "may be no code"]);
}

/// Links `object` alone, and asserts that its code uses the variables of the C library.
fn assert_uses_library_variables(jit: &Jit, object: &[u8]) {
    let tracker = add(jit, jit.main_dylib(), "data.o", object);
    // SAFETY: both belong to the C library, and this test does not change them.
    unsafe extern "C" {
        static environ: *const *const i8;
        static stdout: *mut libc::FILE;
    }
    let check = function::<extern "C" fn(*const u8, *const u8) -> i64>(jit, "check");
    assert_eq!(check.call((&raw const environ).cast(), (&raw const stdout).cast()), 0x1f);
    drop(check);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(jit), (0, 0, 0));
}

const VARIABLES: &str = "
    #include <stdio.h>
    #include <unistd.h>
    #include <getopt.h>
    extern char **environ;
    static FILE **listed = &stdout;
    static int is_stdout(FILE **file) { return file == &stdout; }
    long check(void *environ_at, void *stdout_at) {
        long seen = (void *)&environ == environ_at;
        seen |= ((void *)&stdout == stdout_at) << 1;
        seen |= (listed == stdout_at && is_stdout(stdout_at)) << 2;
        seen |= (fflush(stdout) == 0 && stdout == *listed) << 3;
        int before = optopt;
        optopt = 4711; optopt++;
        extern void *dlsym(void *, const char *);
        seen |= (*(int *)dlsym(0, \"optopt\") == 4712) << 4;
        optopt = before;
        return seen;
    }";

/// ADRP reaches 4 GiB.
#[test]
#[cfg(target_arch = "aarch64")]
fn code_below_2_gib_reaches_a_variable_of_this_process() {
    own_process!();
    let source = "extern long far[]; long get(void) { return far[3]; } void set(long value) { far[2] = value; }
        long *address(void) { return far + 5; } int narrow(void) { return ((int *)far)[6]; }";
    let words = Box::leak(Box::new([10, 11, 12, 13, 14, 15, 16i64]));
    for level in ["-O0", "-O2"] {
        for compile in [gcc, clang] {
            let Some(object) = compile(&["-fno-pic", "-fno-pie", level], source) else { return };
            let jit = Jit::builder().placement(Placement::Low2GiB).window_size(64 << 20).build().unwrap();
            define_absolute(jit.main_dylib(), "far", words.as_ptr() as u64);
            let _tracker = add(&jit, jit.main_dylib(), "far.o", &object);
            assert!(words.as_ptr() as u64 > 6 << 30, "the variable is far from the code");
            let set = function::<extern "C" fn(i64)>(&jit, "set");
            let address = function::<extern "C" fn() -> *const i64>(&jit, "address");
            set.call(99);
            assert_eq!((words[2], address.call()), (99, &raw const words[5]), "{level}");
            assert_eq!((long(&jit, "get"), long(&jit, "narrow") as i32), (13, 13), "{level}");
        }
    }
}

#[test]
fn non_pic_code_shares_the_variables_of_the_c_library() {
    own_process!();
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for compile in [gcc, clang] {
            let Some(object) = compile(&["-fno-pic", "-fno-pie", level], VARIABLES) else { return };
            assert_uses_library_variables(&new_jit(), &object);
        }
    }
}

#[test]
fn pie_code_reaches_library_variables_under_every_placement() {
    own_process!();
    for level in ["-O0", "-O2"] {
        for compile in [gcc, clang] {
            let Some(object) = compile(&["-fPIE", level], VARIABLES) else { return };
            for placement in [Placement::NearHost, Placement::Low2GiB, Placement::NearLibraries] {
                let jit = Jit::builder().placement(placement).window_size(256 << 20).build().unwrap();
                assert_uses_library_variables(&jit, &object);
            }
        }
    }
}

const STREAMS_AND_EXCEPTIONS: &str = r#"
    #include <iostream>
    #include <sstream>
    #include <stdexcept>
    #include <string>
    #include <typeinfo>
    #include <new>
    struct Mine : std::exception { const char *what() const noexcept override { return "mine"; } };
    namespace { struct Hidden {}; }
    static void raise(int kind) {
        switch (kind) {
        case 0: throw 42;
        case 1: throw std::runtime_error("run");
        case 2: throw Mine();
        case 3: throw std::string("text");
        case 4: throw Hidden();
        case 5: throw std::bad_alloc();
        case 6: throw 2.5f;
        case 7: std::string().at(3);
        }
    }
    static std::string caught(int kind) {
        try { raise(kind); return "nothing"; }
        catch (int number) { return "int"; }
        catch (const Mine &mine) { return mine.what(); }
        catch (const Hidden &) { return "hidden"; }
        catch (const std::bad_alloc &) { return "memory"; }
        catch (const std::exception &error) { return typeid(error).name(); }
        catch (const std::string &text) { return text; }
        catch (...) { return "else"; }
    }
    extern "C" void *of_int, *of_cout;
    extern "C" long test(const void *int_type, const void *cout_at) {
        std::ostringstream output;
        std::streambuf *before = std::cout.rdbuf(output.rdbuf());
        for (int kind = 0; kind < 9; kind++) std::cout << caught(kind) << ' ';
        std::cout << (std::cin.tie() == &std::cout) << (&typeid(int) == int_type) << (&std::cout == cout_at) << std::flush;
        std::cout.rdbuf(before);
        return output.str() == "int St13runtime_error mine text hidden memory else St12out_of_range nothing 111";
    }"#;

#[test]
fn non_pic_cpp_throws_library_types_and_writes_to_library_streams() {
    // Windows of other tests take the space near the libraries.
    own_process!();
    let new_jit = || {
        let builder = Jit::builder().library("libstdc++.so.6").trap_freed_code(true);
        // Code for AArch64 reaches data within 4 GiB, and has no thunks.
        let is_near = cfg!(target_arch = "aarch64").then_some(Placement::NearLibraries);
        is_near.into_iter().fold(builder, |builder, placement| builder.placement(placement)).build().unwrap()
    };
    let standard = |name: &str| {
        let jit = new_jit();
        jit.address_of(jit.main_dylib(), name).unwrap().value() as *const u8
    };
    for tool in ["g++", "clang++-19"] {
        for level in ["-O0", "-O2"] {
            let args = ["-x", "c++", "-c", "-fno-pic", "-fno-pie", level, "-o", OUTPUT, INPUT];
            let Some(object) = build(tool, STREAMS_AND_EXCEPTIONS.as_bytes(), &args) else { return };
            let jit = new_jit();
            let tracker = add(&jit, jit.main_dylib(), "streams.o", &object);
            let test = function::<extern "C" fn(*const u8, *const u8) -> i64>(&jit, "test");
            std::io::stdout().flush().unwrap();
            assert_eq!(test.call(standard("_ZTIi"), standard("_ZSt4cout")), 1, "{tool} {level}");
            drop(test);
            assert!(tracker.remove().unwrap().is_complete());
            assert_eq!(held(&jit), (0, 0, 0), "{tool} {level}");
        }
    }
}

#[test]
fn only_code_that_may_need_thunks_reserves_space_for_them() {
    // Shares the process: the code is planned and never runs.
    let hidden = "extern long own __attribute__((visibility(\"hidden\"))); long f(void) { return own; }";
    for (flags, source, has_thunks) in [
        ("-fPIC", VARIABLES, false),
        ("-fPIC", hidden, false),
        ("-fno-pic", hidden, false),
        // On AArch64 a program reaches what others define by the GOT.
        ("-fPIE", VARIABLES, cfg!(target_arch = "x86_64")),
        ("-fno-pic", VARIABLES, true),
    ] {
        let Some(object) = gcc(&["-O2", flags], source) else { return };
        let planned = PlannedLink::plan("thunks.o".into(), object.into(), |_| true, |_| Ok(())).unwrap();
        let graph = planned.graph();
        assert_eq!(graph.blocks().any(|(id, _)| graph.block_name(id).starts_with(".far_")), has_thunks, "{flags}");
    }
}

// Seen red: references to hidden symbols had no thunks, because objects of one dylib are usually near each other.
#[test]
fn code_below_2_gib_reaches_a_hidden_symbol_of_an_object_elsewhere() {
    let (Some(high), Some(low)) = (
        c("long value = 41;"),
        asm(".hidden value\n.globl low, read\n.text\nlow: mov $low, %eax; ret\nread: mov value(%rip), %rax; ret\n\
             .section .note.GNU-stack,\"\""),
    ) else {
        return;
    };
    let builder = Jit::builder().placement(Placement::NearLibraries).window_size(1 << 30);
    let jit = builder.on_full(OnFull::OpenAnother).build().unwrap();
    let _trackers =
        [("high.o", &high), ("low.o", &low)].map(|(name, object)| add(&jit, jit.main_dylib(), name, object));
    // Linked first, so that no object of the dylib is below 2 GiB yet.
    assert!(jit.address_of(jit.main_dylib(), "value").unwrap().value() > 1 << 32);
    assert!(long(&jit, "low") < 1 << 31);
    assert_eq!(long(&jit, "read"), 41);
}
