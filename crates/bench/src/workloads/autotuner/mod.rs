//! Workload c: functions that are replaced by better versions while threads call them without pause.
//!
//! The sizes are those of GEMM micro-kernels with several tiles and unrollings. Each function is a [`Patchable`] with
//! three versions: the current, the best and the previous one. One rate of candidates is that of a compiler; at two
//! others the linker is the only load beside the callers.
//!
//! [`Patchable`]: jittison::Patchable

mod callers;
mod kernels;
mod progress;
mod replay;
mod tuner;

pub use replay::scenarios;
