//! `jittison._jittison`: the native module of the Python package `jittison`.
//!
//! The classes here wrap the handles of the Rust crate. The Python files of the package (`python/jittison`) add what needs
//! Python code: signatures of ctypes and cffi, callbacks, and classes of exceptions.
//!
//! | file | holds |
//! |---|---|
//! | `interpreter.rs` | release of the GIL, and the end of the interpreter |
//! | `session.rs`, `dylib.rs`, `tracker.rs`, `removal.rs` | sessions, dylibs, trackers, tickets |
//! | `archive.rs` | archives that are given as bytes |
//! | `function.rs`, `call.rs`, `argument.rs`, `buffer.rs` | functions; one call; its arguments; memory of Python objects |
//! | `keep_alive.rs`, `stub.rs` | what stubs lead to, for as long as code may reach it; handles of stubs |
//! | `supply.rs` | definitions that functions of Python supply |
//! | `guard.rs`, `event.rs` | guards; what a function of Python hears of a session's work |
//! | `patch.rs`, `reload.rs` | functions, and objects of a program, that are replaced while threads call them |
//! | `memory.rs` | measures and maps of code memory |
//! | `error.rs` | errors of the Rust crate as exceptions of Python |
//!
//! # Invariants
//!
//! - **P1** *Promises about linked code.* Signatures, code that may run, and addresses that are given as numbers are the
//!   promise of the Python program. The documentation of the package lists them, in the words of the Rust crate.
//! - **P2** *The GIL.* A thread that may wait for another thread, or run linked code, has released the GIL. The drop of a
//!   handle may do both. No lock of this crate is held while a thread waits for the GIL.
//! - **P3** *Objects of Python.* A pointer to an object is valid while this crate holds a reference, or while the interpreter
//!   holds one for the duration of a call.
//! - **P4** *Frames without drops.* The interpreter may end a thread inside a call of linked code, with a forced unwind. No
//!   frame of this crate that it passes has something to drop or catches anything (`call.rs`).
//! - **P5** *Guards.* A guard is in a list of the thread that entered it, beside the session that it is of (`guard.rs`).

mod archive;
mod argument;
mod buffer;
mod call;
mod dylib;
mod error;
mod event;
mod function;
mod guard;
mod interpreter;
mod keep_alive;
mod memory;
mod patch;
mod reload;
mod removal;
mod session;
mod stub;
mod supply;
mod tracker;

use pyo3::prelude::*;

/// The native part of the package `jittison`.
#[pymodule(name = "_jittison")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<session::Jit>()?;
    module.add_class::<dylib::Dylib>()?;
    module.add_class::<tracker::Tracker>()?;
    module.add_class::<removal::Removal>()?;
    module.add_class::<function::Function>()?;
    module.add_class::<function::Pin>()?;
    module.add_class::<stub::Stub>()?;
    module.add_class::<guard::Guard>()?;
    module.add_class::<event::Event>()?;
    module.add_class::<supply::Generator>()?;
    module.add_class::<patch::Patchable>()?;
    module.add_class::<patch::Patch>()?;
    module.add_class::<patch::PreparedPatch>()?;
    module.add_class::<patch::Commit>()?;
    module.add_class::<patch::PatchVersion>()?;
    module.add_class::<reload::Reloader>()?;
    module.add_class::<reload::Reload>()?;
    module.add_class::<memory::MemoryMap>()?;
    module.add_class::<memory::MemoryUsage>()?;
    module.add_class::<memory::MemoryStatistics>()?;
    module.add_class::<memory::PoolStatistics>()?;
    module.add_class::<memory::Tenant>()?;
    module.add_class::<memory::CodeLocation>()?;
    module.add_function(wrap_pyfunction!(session::end_all_sessions, module)?)?;
    module.add_function(wrap_pyfunction!(interpreter::after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(interpreter::enter_callback, module)?)?;
    module.add_function(wrap_pyfunction!(interpreter::leave_callback, module)?)?;
    module.add_function(wrap_pyfunction!(error::set_exceptions, module)?)?;
    module.add_function(wrap_pyfunction!(error::report, module)?)?;
    call::add_call_method(module.py())
}
