//! Whatever the kernel refuses, at whichever call: a clear error or the next best way, nothing leaked, and a session that
//! goes on.
//!
//! `calls.rs` stands between the library and the C library: it defines the functions by which this program asks for memory,
//! and refuses the n-th of a kind to the thread that wants it so. A program of its own, because every test in it is
//! linked against those.

mod calls;
mod linking;
#[path = "../support/mod.rs"]
mod support;
mod windows;
