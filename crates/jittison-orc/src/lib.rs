//! LLVM's ORC C API on jittison: the functions of `llvm-c/Orc.h`, `LLJIT.h`, `LLJITUtils.h` and `OrcEE.h`, LLVM 14 to 19.
//!
//! A program that is written against these headers loads this library before LLVM's. Its calls of `LLVMOrc…` functions then
//! come here. Machine code is still made by the program's LLVM, which this library finds in the process at the first call
//! (`llvm.rs`). The build needs no LLVM. `README.md` has the state of each function.
//!
//! | file | holds |
//! |---|---|
//! | `entry.rs` | what every function does first and last: panics and failures become errors of LLVM |
//! | `llvm.rs`, `llvm_error.rs` | the LLVM of the process, its version and its functions; its errors |
//! | `names.rs` | the string pool |
//! | `flags.rs`, `layouts.rs` | flags of symbols, and structs that cross the boundary |
//! | `session.rs`, `dylib.rs`, `tracker.rs`, `lookup.rs` | execution sessions, dylibs, trackers, lookups |
//! | `target_machine.rs`, `lljit.rs` | target machines; `LLJIT` and its builder |
//! | `layers.rs`, `object_file.rs` | object layers, transforms; object files that LLVM hands over |
//! | `ir_module.rs`, `thread_safe.rs` | modules of IR as materialisation units; what is handed to LLVM |
//! | `unit.rs`, `responsibility.rs`, `stubs.rs` | units and responsibilities of the program, lazy re-exports |
//! | `generator.rs`, `library_symbols.rs`, `lookup_state.rs` | generators, symbols of a library, suspended lookups |
//! | `modules.rs` | which linked code is in memory now |
//! | `callback_memory.rs` | code memory that callbacks of the program allocate |
//!
//! # Threads and signals
//! The library starts no thread. A server whose signal handlers expect the main thread can use it.
//!
//! # Panics and exceptions
//! A panic of this library becomes an error of LLVM, or goes to the error reporter if the function returns none. A callback of
//! the program throws nothing and jumps over no frame of this library.
//!
//! # Invariants
//!
//! - **O1** *Pointers of the program.* They are what LLVM's headers demand of the argument: made by this library or by the LLVM
//!   of the process for that type, and not disposed of. The program promises it by calling, as with LLVM.
//! - **O2** *Ownership.* What a header says to be given away is used by the program no more. A value that is owned by the
//!   program is made by `Box::into_raw` or `Arc::into_raw`, and is given back once.
//! - **O3** *Callbacks.* A function pointer and its context are valid on the calling thread until the last call that the header
//!   allows. A callback throws nothing.
//! - **O4** *Functions of LLVM.* They come from the LLVM of the process under their own names. Their types have been the same
//!   since LLVM 14.
//! - **O5** *Linked code.* What the program adds may run, and addresses that it gives are what it says. That is the contract of
//!   ORC too.
#![warn(missing_docs)]

mod callback_memory;
mod dylib;
mod entry;
mod flags;
mod generator;
mod ir_module;
mod layers;
mod layouts;
mod library_symbols;
mod lljit;
mod llvm;
mod llvm_error;
mod lookup;
mod lookup_state;
mod modules;
mod names;
mod object_file;
mod responsibility;
mod session;
mod stubs;
mod target_machine;
mod thread_safe;
mod tracker;
mod unit;
