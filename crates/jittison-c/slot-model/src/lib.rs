//! Compiles `src/slot.rs` of the C API alone, so that its loom model builds without the rest:
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p jittison-c-slot-model
//!
//! With `SEEDED_BUG=live_is_not_checked` the model fails.

#[allow(dead_code)]
#[path = "../../src/slot.rs"]
mod slot;
