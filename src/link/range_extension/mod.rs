//! Range extension: short references to data and functions that are out of reach, such as a variable of a shared library.
//!
//! Code of `-fno-pic` and `-fPIE` names the variables of other objects with 32 bits. A static linker copies such a
//! variable into the program and binds the library to the copy (`R_X86_64_COPY`). Here the library is
//! bound already. So the variable stays where it is, nothing of the library changes, and the link extends the
//! *reference* to 64 bits instead. The address of a function is treated alike. A call reaches a function by a stub, but
//! a stub has another address, and code may compare the addresses of functions.
//!
//! ```text
//!   code:              mov stdout(%rip), %rdi      →   jmp thunk; traps          thunk: movabs $stdout, %rdi
//!                                                                                       mov (%rdi), %rdi
//!                                                                                       jmp next instruction
//!   exception table:   udata4  typeinfo            →   indirect pcrel sdata4      slot:  .quad typeinfo
//! ```
//!
//! # Steps
//!
//! | phase | step | file |
//! |---|---|---|
//! | tables | reserve a thunk or slot for each reference that may turn out too short: one of 32 bits, or ADRP, in code or in an exception table, to an external that may belong to a library | `reservation.rs` |
//! | fix up | apply each reference that fits; use the stub of a function for calls that do not reach it; collect what is left, the *far references* | `fixup.rs` |
//! | | code: move the instruction of each far reference to a thunk | the architecture's `extend_code` |
//! | | exception tables: change the encoding of every table of the section, because one encoding holds for all entries of a table | `type_tables.rs` |
//! | | run these steps for each block, then write thunks and slots | `extender.rs` |
//! | removal | thunks and slots are blocks of the object: they go when the object goes | |
//!
//! An object without such a reference gets no thunks and no slots.
//!
//! On x86-64, moving instructions needs a decoder and an encoder, which are large. The feature `range-extension` brings them. Without
//! it, a far reference in code is an error that names the feature.
//!
//! # Limits
//! The link refuses, with section, offset and symbol, what it cannot extend exactly: 32-bit addresses in other data,
//! and instructions that `extend_code` does not know how to move.
//!
//! Thunks have no unwind information. The instructions that move throw no exceptions. But a profiler or a signal
//! handler that walks the stack from within a thunk does not get past it, and neither does an exception for a fault
//! (`-fnon-call-exceptions`). Nothing looks for jumps into the middle of an instruction; compilers make none.

mod decode_starts;
pub(super) mod extender;
pub(super) mod reservation;
mod type_tables;
