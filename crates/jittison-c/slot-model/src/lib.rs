//! Compiles `src/slot.rs` and `src/owned_slot.rs` of the C API alone, so that their loom models build without the rest:
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p jittison-c-slot-model
//!
//! With `SEEDED_BUG=live_is_not_checked` or `SEEDED_BUG=owner_is_not_checked` a model fails.

#[allow(dead_code)]
#[path = "../../src/owned_slot.rs"]
mod owned_slot;
#[allow(dead_code)]
#[path = "../../src/slot.rs"]
mod slot;
