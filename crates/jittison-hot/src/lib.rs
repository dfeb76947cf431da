//! Replaces functions of a program that was started normally, while it runs.
//!
//! The program is linked by its own linker and started as always. Its C and C++ objects are compiled with
//! `-fPIC -ffunction-sections -fdata-sections -fpatchable-function-entry=114,112`. The environment variable `JITTISON_HOT` names
//! them. When one of the files is written again, callers in the program reach the new functions.
//!
//! | program | what it needs |
//! |---|---|
//! | C, C++ | `LD_PRELOAD=libjittison_hot_preload.so`; nothing is added to the program |
//! | Rust with parts in C or C++ | this crate, and [`init`] at the start of `main` |
//!
//! `docs/watch.md` says what follows and what is refused.
//!
//! | file | holds |
//! |---|---|
//! | `objects.rs` | the objects that `JITTISON_HOT` names |
//! | `follower.rs` | the thread that waits for new objects and reloads them |
//! | `signals.rs` | signals stay with the threads of the program |
//!
//! # Invariants
//! - **P1** *The user's word.* Who sets `JITTISON_HOT` promises that each version of the objects may run, and that running code calls
//!   its functions with the signatures that they have.
//! - **P2** *Signal sets.* A signal set is filled by the C library before it is read.
//!
//! # Limits
//! Functions of Rust do not follow: stable rustc leaves no room at their entries. `jittison watch --cargo` runs programs of Rust.

mod follower;
mod objects;
mod signals;

use std::env;

#[doc(hidden)]
pub use jittison::host::NativeThreads;

use crate::objects::Objects;

/// Makes the program patchable, as [`start`] does, if it is compiled with debug assertions. Otherwise this is empty, so a release build
/// has no code of this crate and of jittison.
#[inline(always)]
pub fn init() {
    #[cfg(debug_assertions)]
    let _ = start();
}

/// Makes the program patchable, if the environment variable `JITTISON_HOT` names its objects. Says whether it did so.
///
/// What cannot be done is printed to standard error, and the program goes on.
pub fn start() -> bool {
    let Some(list) = env::var_os(VARIABLE) else { return false };
    let started = Objects::read(&list).and_then(|objects| signals::blocked(|| follower::start(objects)));
    // A shell or another launcher gets the variable, too.
    started.inspect_err(|problem| print(&format!("{problem}; the program runs as it is"))).is_ok()
}

/// Prints a line, as `jittison watch` does.
fn print(line: &str) {
    eprintln!("jittison: {line}");
}

/// The environment variable with the objects.
pub const VARIABLE: &str = "JITTISON_HOT";
