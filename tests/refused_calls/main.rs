//! System calls that the kernel refuses. Each gives a clear error or a fallback. Nothing leaks, and the session still works.
//!
//! `calls.rs` interposes the functions of the C library by which this program gets memory. It refuses the n-th call of a kind for
//! a thread that requests it. The tests need a program of their own, because the interposed functions apply to the entire program.

mod calls;
mod linking;
mod windows;

use jittison_test_support as support;
