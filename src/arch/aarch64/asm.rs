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

/// Defines a function without parameters that calls `$function` with its own return address. `$name` expands to its name.
#[cfg(feature = "reload")]
macro_rules! define_with_caller {
    ({ $($name:tt)* }, $function:path) => {
        std::arch::global_asm!(
            ".pushsection .text.jittison_with_caller,\"ax\",@progbits",
            ".balign 4",
            concat!(".globl ", $($name)*),
            concat!(".hidden ", $($name)*),
            concat!(".type ", $($name)*, ",@function"),
            concat!($($name)*, ":"),
            ".cfi_startproc",
            "hint #34", // bti c
            "mov x0, x30",
            "b {function}",
            ".cfi_endproc",
            ".popsection",
            function = sym $function,
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

/// Defines a function that gets a call of any signature. It stores the registers in which a function may get arguments (AAPCS64, 6.4.2),
/// and `x17`, which entries set to their number. It calls `pass` with them and with the address of the arguments on the stack, and
/// returns the registers of the result: `x0`, `x1`, and `v0` to `v3`.
///
/// `$name` expands to its name, `$pass` is an `unsafe extern "C" fn(*mut CallRegisters, *const u64)`. `CallRegisters` has the vector
/// registers at 0, the integer registers at 128, the place of a result at 192, the number at 200, and 208 bytes in all.
#[cfg(feature = "executor")]
macro_rules! define_carrier {
    ({ $($name:tt)* }, $pass:path) => {
        std::arch::global_asm!(
            ".pushsection .text.jittison_remote_calls,\"ax\",@progbits",
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
            "sub sp, sp, #208",
            "stp q0, q1, [sp]",
            "stp q2, q3, [sp, #32]",
            "stp q4, q5, [sp, #64]",
            "stp q6, q7, [sp, #96]",
            "stp x0, x1, [sp, #128]",
            "stp x2, x3, [sp, #144]",
            "stp x4, x5, [sp, #160]",
            "stp x6, x7, [sp, #176]",
            "stp x8, x17, [sp, #192]",
            "mov x0, sp",
            "add x1, x29, #16",
            "bl {pass}",
            "ldp q0, q1, [sp]",
            "ldp q2, q3, [sp, #32]",
            "ldp x0, x1, [sp, #128]",
            "mov sp, x29",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa sp, 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            ".popsection",
            pass = sym $pass,
        );
    };
}

/// Defines a function that gets a function, `CallRegisters`, words for the stack, and their number. It calls the function with them,
/// and stores the registers of the result.
///
/// `$name` expands to its name.
#[cfg(feature = "executor")]
macro_rules! define_make_call {
    ({ $($name:tt)* }) => {
        std::arch::global_asm!(
            ".pushsection .text.jittison_remote_calls,\"ax\",@progbits",
            ".balign 4",
            concat!(".globl ", $($name)*),
            concat!(".hidden ", $($name)*),
            concat!(".type ", $($name)*, ",@function"),
            concat!($($name)*, ":"),
            ".cfi_startproc",
            "hint #34", // bti c
            "stp x29, x30, [sp, #-32]!",
            ".cfi_def_cfa_offset 32",
            ".cfi_offset x29, -32",
            ".cfi_offset x30, -24",
            "mov x29, sp",
            ".cfi_def_cfa_register x29",
            "str x19, [sp, #16]",
            ".cfi_offset x19, -16",
            "mov x19, x1",
            "mov x16, x0",
            // The words, at the lowest address of a stack that is a multiple of 16.
            "add x4, x3, #1",
            "and x4, x4, #-2",
            "sub sp, sp, x4, lsl #3",
            "mov x5, sp",
            "2:",
            "cbz x3, 3f",
            "ldr x6, [x2], #8",
            "str x6, [x5], #8",
            "sub x3, x3, #1",
            "b 2b",
            "3:",
            "ldp q0, q1, [x19]",
            "ldp q2, q3, [x19, #32]",
            "ldp q4, q5, [x19, #64]",
            "ldp q6, q7, [x19, #96]",
            "ldp x0, x1, [x19, #128]",
            "ldp x2, x3, [x19, #144]",
            "ldp x4, x5, [x19, #160]",
            "ldp x6, x7, [x19, #176]",
            "ldr x8, [x19, #192]",
            "blr x16",
            "stp x0, x1, [x19, #128]",
            "stp q0, q1, [x19]",
            "stp q2, q3, [x19, #32]",
            "ldr x19, [x29, #16]",
            "mov sp, x29",
            "ldp x29, x30, [sp], #32",
            ".cfi_def_cfa sp, 0",
            ".cfi_restore x19",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
            ".popsection",
        );
    };
}

#[cfg(feature = "reload")]
pub(crate) use define_with_caller;
pub(crate) use {define_call_through, define_stack_end};
#[cfg(feature = "executor")]
pub(crate) use {define_carrier, define_make_call};
