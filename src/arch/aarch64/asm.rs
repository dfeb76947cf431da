//! Assembly of functions that this process runs. `host` invokes the macros and declares the functions.

/// Defines the function that entries of lazy functions jump to. It saves the argument registers, calls
/// `resolve(number)`, restores the registers and jumps to the result. `x17` is the number.
///
/// `$name` expands to the name of the function, `$resolve` is an `extern "C" fn(u64) -> u64`.
///
/// On entry, `x30` is the return address, and `sp` is a multiple of 16. The function saves the registers in which a function
/// may get arguments (AAPCS64, 6.4.2): `x0` to `x7`, the place of a result `x8`, and `v0` to `v7`. It saves `x9` to `x15` and
/// `x18`, too, in which compilers pass static chains. It does not save what SVE registers have beyond 128 bits.
macro_rules! define_call_through {
    ({ $($name:tt)* }, $resolve:path) => {
        std::arch::global_asm!(
            ".pushsection .text.jittison_call_through,\"ax\",@progbits",
            ".balign 4",
            concat!(".globl ", $($name)*),
            concat!(".hidden ", $($name)*),
            concat!(".type ", $($name)*, ",@function"),
            concat!($($name)*, ":"),
            ".cfi_startproc",
            "hint #34", // bti c
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "mov x29, sp",
            ".cfi_def_cfa_register x29",
            "stp x0, x1, [sp, #-16]!",
            "stp x2, x3, [sp, #-16]!",
            "stp x4, x5, [sp, #-16]!",
            "stp x6, x7, [sp, #-16]!",
            "stp x8, x9, [sp, #-16]!",
            "stp x10, x11, [sp, #-16]!",
            "stp x12, x13, [sp, #-16]!",
            "stp x14, x15, [sp, #-16]!",
            "str x18, [sp, #-16]!",
            "stp q0, q1, [sp, #-32]!",
            "stp q2, q3, [sp, #-32]!",
            "stp q4, q5, [sp, #-32]!",
            "stp q6, q7, [sp, #-32]!",
            "mov x0, x17",
            "bl {resolve}",
            "mov x16, x0",
            "ldp q6, q7, [sp], #32",
            "ldp q4, q5, [sp], #32",
            "ldp q2, q3, [sp], #32",
            "ldp q0, q1, [sp], #32",
            "ldr x18, [sp], #16",
            "ldp x14, x15, [sp], #16",
            "ldp x12, x13, [sp], #16",
            "ldp x10, x11, [sp], #16",
            "ldp x8, x9, [sp], #16",
            "ldp x6, x7, [sp], #16",
            "ldp x4, x5, [sp], #16",
            "ldp x2, x3, [sp], #16",
            "ldp x0, x1, [sp], #16",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa sp, 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "br x16",
            ".cfi_endproc",
            ".popsection",
            resolve = sym $resolve,
        );
    };
}

/// Defines a function that gets `(function, argument)` and calls `function(argument)`, in a frame at which the unwinder ends (DWARF 5, 6.4.4: an
/// undefined return address). `$name` expands to its name.
///
/// The function is not a naked function, because that cannot have its own unwind directives.
macro_rules! define_stack_end {
    ({ $($name:tt)* }) => {
        std::arch::global_asm!(
            ".pushsection .text.jittison_stack_end,\"ax\",@progbits",
            ".balign 4",
            concat!(".globl ", $($name)*),
            concat!(".hidden ", $($name)*),
            concat!(".type ", $($name)*, ",@function"),
            concat!($($name)*, ":"),
            ".cfi_startproc",
            ".cfi_undefined x30",
            "hint #34", // bti c
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            "mov x29, sp",
            ".cfi_def_cfa_register x29",
            "mov x16, x0",
            "mov x0, x1",
            "blr x16",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa sp, 0",
            "ret",
            ".cfi_endproc",
            ".popsection",
        );
    };
}

pub(crate) use {define_call_through, define_stack_end};
