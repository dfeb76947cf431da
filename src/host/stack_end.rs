//! [`at_stack_end`]: calls where the unwinder sees the end of the stack, as it does below a native program's `main`.
//!
//! An exception that nobody catches ends a C++ program by `std::terminate`, called from the throw itself: the unwinder
//! looks for a handler first, comes to the end of the stack, and says so before any frame is left. Below Rust's `main`
//! stands a handler for everything, at which a foreign exception ends otherwise. So there is a frame here whose return
//! address is undefined to the unwinder (DWARF 5, 6.4.4), as that of `_start` is.

use std::ffi::c_void;

/// Calls `body`. A panic that leaves it ends the process.
pub(crate) fn at_stack_end<F: FnOnce() -> R, R>(body: F) -> R {
    let mut call = Call { body: Some(body), result: None };
    // SAFETY: H4 - `enter` takes what is passed here.
    unsafe { stack_end(enter::<F, R>, (&raw mut call).cast()) };
    call.result.expect("`enter` returns only with a result")
}

struct Call<F, R> {
    body: Option<F>,
    result: Option<R>,
}

/// # Safety
/// `call` is the `Call<F, R>` of the [`at_stack_end`] that waits for this.
unsafe extern "C-unwind" fn enter<F: FnOnce() -> R, R>(call: *mut c_void) {
    // SAFETY: H4 - `at_stack_end` has it on its stack, and waits.
    let call = unsafe { &mut *call.cast::<Call<F, R>>() };
    call.result = call.body.take().map(|body| body());
}

/// Two versions of this crate may be in one program.
macro_rules! symbol {
    () => {
        concat!("\"jittison_stack_end_", env!("CARGO_PKG_VERSION"), "\"")
    };
}

unsafe extern "C-unwind" {
    /// Calls `function(argument)`.
    #[link_name = concat!("jittison_stack_end_", env!("CARGO_PKG_VERSION"))]
    fn stack_end(function: unsafe extern "C-unwind" fn(*mut c_void), argument: *mut c_void);
}

// A naked function would do, if it could carry unwind directives of its own.
std::arch::global_asm!(
    ".pushsection .text.jittison_stack_end,\"ax\",@progbits",
    concat!(".globl ", symbol!()),
    concat!(".hidden ", symbol!()),
    concat!(".type ", symbol!(), ",@function"),
    concat!(symbol!(), ":"),
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
