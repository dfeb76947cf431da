//! Assembly of functions that this process runs. `host` invokes the macros and declares the functions.

/// Defines the function that entries of lazy functions jump to. It saves the argument registers, calls
/// `resolve(number)`, restores the registers and jumps to the result. `%r11` is the number.
///
/// `$name` expands to the name of the function, `$resolve` is an `extern "C" fn(u64) -> u64`.
///
/// On entry, the return address is at `(%rsp)`, and `%rsp` is 8 below a multiple of 16. After nine pushes and 128
/// bytes, `%rsp` is a multiple of 16, as the psABI demands at a call. The function saves the registers in which a
/// function may get arguments (psABI 3.2.3): the integer registers, and the lower 128 bits of the vector registers.
macro_rules! define_call_through {
    ({ $($name:tt)* }, $resolve:path) => {
        std::arch::global_asm!(
            ".pushsection .text.jittison_call_through,\"ax\",@progbits",
            concat!(".globl ", $($name)*),
            concat!(".hidden ", $($name)*),
            concat!(".type ", $($name)*, ",@function"),
            concat!($($name)*, ":"),
            ".cfi_startproc",
            "endbr64",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "push rax",
            "push r10",
            "sub rsp, 128",
            "movups [rsp], xmm0",
            "movups [rsp + 16], xmm1",
            "movups [rsp + 32], xmm2",
            "movups [rsp + 48], xmm3",
            "movups [rsp + 64], xmm4",
            "movups [rsp + 80], xmm5",
            "movups [rsp + 96], xmm6",
            "movups [rsp + 112], xmm7",
            "mov rdi, r11",
            "call {resolve}",
            "mov r11, rax",
            "movups xmm0, [rsp]",
            "movups xmm1, [rsp + 16]",
            "movups xmm2, [rsp + 32]",
            "movups xmm3, [rsp + 48]",
            "movups xmm4, [rsp + 64]",
            "movups xmm5, [rsp + 80]",
            "movups xmm6, [rsp + 96]",
            "movups xmm7, [rsp + 112]",
            "add rsp, 128",
            "pop r10",
            "pop rax",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "pop rbp",
            ".cfi_def_cfa rsp, 8",
            "jmp r11",
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
            concat!(".globl ", $($name)*),
            concat!(".hidden ", $($name)*),
            concat!(".type ", $($name)*, ",@function"),
            concat!($($name)*, ":"),
            ".cfi_startproc",
            "endbr64",
            "mov rdi, [rsp]",
            "jmp {function}",
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
            concat!(".globl ", $($name)*),
            concat!(".hidden ", $($name)*),
            concat!(".type ", $($name)*, ",@function"),
            concat!($($name)*, ":"),
            ".cfi_startproc",
            ".cfi_undefined rip",
            "endbr64",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "mov rax, rdi",
            "mov rdi, rsi",
            "call rax",
            "pop rbp",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_endproc",
            ".popsection",
        );
    };
}

/// Defines a function that gets a call of any signature. It stores the registers in which a function may get arguments (psABI 3.2.3),
/// and `%r11`, which entries set to their number. It calls `pass` with them and with the address of the arguments on the stack, and
/// returns the registers of the result: `%rax`, `%rdx`, `%xmm0` and `%xmm1`.
///
/// `$name` expands to its name, `$pass` is an `unsafe extern "C" fn(*mut CallRegisters, *const u64)`. `CallRegisters` has the vector
/// registers at 0, the integer registers at 128, the place of a result at 192, the number at 200, and 208 bytes in all.
#[cfg(feature = "executor")]
macro_rules! define_carrier {
    ({ $($name:tt)* }, $pass:path) => {
        std::arch::global_asm!(
            ".pushsection .text.jittison_remote_calls,\"ax\",@progbits",
            concat!(".globl ", $($name)*),
            concat!(".hidden ", $($name)*),
            concat!(".type ", $($name)*, ",@function"),
            concat!($($name)*, ":"),
            ".cfi_startproc",
            "endbr64",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "sub rsp, 208",
            "movups [rsp], xmm0",
            "movups [rsp + 16], xmm1",
            "movups [rsp + 32], xmm2",
            "movups [rsp + 48], xmm3",
            "movups [rsp + 64], xmm4",
            "movups [rsp + 80], xmm5",
            "movups [rsp + 96], xmm6",
            "movups [rsp + 112], xmm7",
            "mov [rsp + 128], rdi",
            "mov [rsp + 136], rsi",
            "mov [rsp + 144], rdx",
            "mov [rsp + 152], rcx",
            "mov [rsp + 160], r8",
            "mov [rsp + 168], r9",
            "xor eax, eax",
            "mov [rsp + 176], rax",
            "mov [rsp + 184], rax",
            "mov [rsp + 192], rax",
            "mov [rsp + 200], r11",
            "mov rdi, rsp",
            "lea rsi, [rbp + 16]",
            "call {pass}",
            "movups xmm0, [rsp]",
            "movups xmm1, [rsp + 16]",
            "mov rax, [rsp + 128]",
            "mov rdx, [rsp + 136]",
            "leave",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_endproc",
            ".popsection",
            pass = sym $pass,
        );
    };
}

/// Defines a function that gets a function, `CallRegisters`, words for the stack, and their number. It calls the function with them,
/// and stores the registers of the result. `%al` is the number of vector registers, which functions with variable
/// arguments read.
///
/// `$name` expands to its name.
#[cfg(feature = "executor")]
macro_rules! define_make_call {
    ({ $($name:tt)* }) => {
        std::arch::global_asm!(
            ".pushsection .text.jittison_remote_calls,\"ax\",@progbits",
            concat!(".globl ", $($name)*),
            concat!(".hidden ", $($name)*),
            concat!(".type ", $($name)*, ",@function"),
            concat!($($name)*, ":"),
            ".cfi_startproc",
            "endbr64",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "push rbx",
            ".cfi_offset rbx, -24",
            "sub rsp, 8",
            "mov rbx, rsi",
            "mov r11, rdi",
            // The words, at the lowest address of a stack that is a multiple of 16.
            "lea rax, [rcx + 1]",
            "and rax, -2",
            "shl rax, 3",
            "sub rsp, rax",
            "mov rsi, rdx",
            "mov rdi, rsp",
            "rep movsq",
            "movups xmm0, [rbx]",
            "movups xmm1, [rbx + 16]",
            "movups xmm2, [rbx + 32]",
            "movups xmm3, [rbx + 48]",
            "movups xmm4, [rbx + 64]",
            "movups xmm5, [rbx + 80]",
            "movups xmm6, [rbx + 96]",
            "movups xmm7, [rbx + 112]",
            "mov rdi, [rbx + 128]",
            "mov rsi, [rbx + 136]",
            "mov rdx, [rbx + 144]",
            "mov rcx, [rbx + 152]",
            "mov r8, [rbx + 160]",
            "mov r9, [rbx + 168]",
            "mov eax, 8",
            "call r11",
            "mov [rbx + 128], rax",
            "mov [rbx + 136], rdx",
            "movups [rbx], xmm0",
            "movups [rbx + 16], xmm1",
            "mov rbx, [rbp - 8]",
            "leave",
            ".cfi_def_cfa rsp, 8",
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
