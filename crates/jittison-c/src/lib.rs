//! The C API of jittison: the functions that `include/jittison.h` declares and describes.
//!
//! Each function does four steps: it finds the values behind its handles, reads its arguments, calls the Rust crate, and
//! writes its out-parameters. It keeps no state but the tables of handles.
//!
//! | file | holds |
//! |---|---|
//! | `entry.rs` | what every function does first and last: panics become errors, pointers are checked |
//! | `handle.rs`, `slot.rs` | handles: numbers that name values of this library, with a kind and a generation |
//! | `hazards.rs`, `barriers.rs` | hazard pointers of a thread, and how others see them |
//! | `owned_slot.rs`, `thread_number.rs` | values that belong to one thread; threads, and their hazards |
//! | `error.rs`, `code.rs` | `jittison_error`: failures of this library and of the Rust crate, with a code each |
//! | `text.rs` | strings of the caller, and texts that the caller owns |
//! | `session.rs`, `options.rs`, `dylib.rs`, `tracker.rs`, `object.rs` | sessions, dylibs, trackers, what is added to them |
//! | `function.rs`, `guard.rs`, `lookup.rs` | owned functions, guards, entries of calls, lookups of several symbols, pins |
//! | `stub.rs`, `alias.rs`, `patch.rs` | stubs, aliases and lazy functions, patches |
//! | `manager.rs`, `generator.rs`, `unit.rs`, `callbacks.rs` | resource managers, generators and units of the embedder |
//! | `graph.rs`, `compiler.rs` | graphs of code generators, compilers that are called on demand or for each tier |
//! | `plugin.rs`, `link.rs` | plugins, and links as their callbacks see and change them |
//! | `mapper.rs`, `observer.rs` | memory mappers and observers of the embedder |
//! | `reload.rs` | programs whose objects are replaced while they run |
//! | `removal.rs` | tickets of removals |
//! | `full_tables.rs` | a test of all functions that make handles |
//! | `memory.rs`, `json.rs`, `program.rs` | measures and maps of code memory; programs with a `main` |
//!
//! # Panics and exceptions
//! A panic of this library becomes the error `JITTISON_ERROR_PANIC`. Functions that run initialisers or a program on the
//! calling thread are `extern "C-unwind"` and catch nothing while linked code runs: an exception of that code passes
//! through them to the caller, as it passes through `dlopen`.
//!
//! # Invariants
//!
//! - **C1** *Pointers of the caller.* Every pointer is checked for null. A pointer that is not null is valid for what the
//!   header says, during the call: the caller promises it. Strings are copied or read before the function returns.
//! - **C2** *Objects behind pointers.* A `jittison_error` or `jittison_text` is made by `Box::into_raw`. The caller passes
//!   it to its free function once, and to nothing later.
//! - **C3** *Promises about linked code.* Signatures, code that may run, and addresses that stay in memory are the
//!   caller's promise: the header states it at the function, in the words of the Rust crate.
//! - **C4** *Guards belong to threads.* A guard or a call is used and dropped only by the thread that entered it:
//!   `owned_slot.rs` compares threads first. `Bound` (`guard.rs`) owns the session too, and drops the guard before it.
//! - **C5** *Callbacks.* A function pointer and its context are valid, on every thread, until the last call that the header
//!   names. A callback throws nothing.
//! - **C6** *Values that a hook lends.* What a callback may use for its duration is in a cell that only the thread of the
//!   callback reads. The cell is emptied on that thread before the hook returns.
//! - **C7** *Windows of the embedder.* The callback that maps a window promises what `MappedWindow` demands of an
//!   implementor: the header states it in its words.
//! - **C8** *Slots.* `slot.rs` hands out a value to users that are protected or counted. The last user, or who ends a value without users,
//!   has the value alone. `owned_slot.rs` hands out a value to the thread that published it, and to no other one.
#![warn(missing_docs)]

mod alias;
mod barriers;
mod callbacks;
mod code;
mod compiler;
mod dylib;
mod entry;
mod error;
#[cfg(test)]
mod full_tables;
mod function;
mod generator;
mod graph;
mod guard;
mod handle;
mod hazards;
mod json;
mod link;
mod lookup;
mod manager;
mod mapper;
mod memory;
mod object;
mod observer;
mod options;
mod owned_slot;
mod patch;
mod plugin;
mod program;
mod reload;
mod removal;
mod session;
mod slot;
mod stub;
mod text;
mod thread_number;
mod tracker;
mod unit;
