//! The address of a function is one address, however code names it. Code of `-fno-pic` names functions of shared libraries in 32
//! bits, which do not hold their addresses. A stub has another address, so it stands for a function in calls only.

use jittison::Jit;
use jittison::memory::Placement;

use crate::support::*;

/// A C library function that the tests name.
type Labs = extern "C" fn(i64) -> i64;

fn host_labs() -> *const () {
    unsafe extern "C" {
        fn labs(x: i64) -> i64;
    }
    labs as *const ()
}

// Seen red: code had the address of a stub, data had the function's.
#[test]
fn a_library_function_has_one_address_in_code_and_in_data() {
    if !require_x86_64() {
        return;
    }
    let source = "
        extern long labs(long);
        typedef long (*function)(long);
        static const function table[] = { labs };
        function volatile in_data = labs;
        function stored;
        __attribute__((noinline)) static void store(function *to) { *to = labs; }
        __attribute__((noinline)) static int is_labs(function f) { return f == labs; }
        __attribute__((noinline)) static function get(void) { return labs; }
        long test(function host) {
            store(&stored);
            int passed = 0;
            passed |= (host == get()) << 0;
            passed |= (in_data == get()) << 1;
            passed |= (table[0] == in_data) << 2;
            passed |= (stored == host) << 3;
            passed |= is_labs(host) << 4;
            passed |= (!is_labs((function)0)) << 5;
            return passed + (labs(-5) + get()(-7) + in_data(-9)) * 100;
        }";
    for level in ["-O0", "-O1", "-O2", "-Os"] {
        for model in [&["-fno-pic", "-fno-pie"][..], &["-fno-pic", "-mcmodel=medium"], &["-fPIE"], &["-fPIC"]] {
            let Some(object) = gcc(&[&[level], model].concat(), source) else { return };
            let (jit, _trackers) = linked(&[&object]);
            let test = function::<extern "C" fn(*const ()) -> i64>(&jit, "test");
            assert_eq!(test.call(host_labs()), 2100 + 63, "{level} {model:?}");
        }
    }
}

// Old assemblers mark a call or jump as `R_X86_64_PC32`, like a reference to data. Seen red: the pointer was a stub.
#[test]
fn a_call_or_jump_of_an_old_assembler_goes_to_a_library_function_by_its_stub() {
    let Some(object) = asm("
        .text
        .globl by_call, by_jump, by_condition, pointer
        by_call: sub $8, %rsp
            .byte 0xe8; 1: .long 0; .reloc 1b, R_X86_64_PC32, labs - 4
            add $8, %rsp; ret
        by_jump: .byte 0xe9; 1: .long 0; .reloc 1b, R_X86_64_PC32, labs - 4
        by_condition: test %rdi, %rdi
            .byte 0x0f, 0x88; 1: .long 0; .reloc 1b, R_X86_64_PC32, labs - 4
            mov $1, %eax; ret
        pointer: lea labs(%rip), %rax; ret
        .section .note.GNU-stack,\"\",@progbits")
    else {
        return;
    };
    let (jit, _trackers) = linked(&[&object]);
    let results = ["by_call", "by_jump", "by_condition"].map(|name| function::<Labs>(&jit, name).call(-6));
    assert_eq!(results, [6, 6, 6]);
    assert_eq!(long(&jit, "pointer") as u64, host_labs() as u64, "an address is no call");
}

// Seen red: the words were the distance to a stub, and its address.
#[test]
fn data_that_has_no_space_for_the_address_of_a_library_function_is_refused() {
    for (directive, relocation) in [(".long labs", "R_X86_64_32"), (".long labs - .", "R_X86_64_PC32")] {
        let source = format!(".data\n.globl test\ntest: {directive}\n.section .note.GNU-stack,\"\",@progbits");
        let Some(object) = asm(&source) else { return };
        // A window beside others may be near the library. It is small, because other tests need windows below 2 GiB, too.
        let jit = Jit::builder().placement(Placement::Low2GiB).window_size(64 << 20).build().unwrap();
        assert_says(&refused_in(&jit, &object, "test"), &["bad.o", "`.data`", relocation, "`labs`", "-fPIC"]);
    }
}

// Seen red: the instruction had the address of a stub.
#[test]
fn instructions_that_have_no_space_for_the_address_of_a_library_function_are_refused() {
    let Some(object) = asm("
        .text\n.globl test\ntest: cmp $labs, %eax; ret\n.section .note.GNU-stack,\"\",@progbits")
    else {
        return;
    };
    assert_says(&refused(&object, "test"), &["bad.o", "`.text`", "R_X86_64_32", "to the function", "`labs`", "-fPIC"]);
}
