//! Compiles `src/slot.rs`, `src/owned_slot.rs` and what they need of the C API alone, so that their loom models build without the rest:
//!
//!     RUSTFLAGS="--cfg loom" cargo test --release -p jittison-c-slot-model
//!
//! With `SEEDED_BUG` one of `live_is_not_checked`, `owner_is_not_checked`, `no_heavy_barrier` and `hazards_are_not_read` a model fails.

#[allow(dead_code, unused_imports)]
#[path = "../../src/barriers.rs"]
mod barriers;
#[allow(dead_code)]
#[path = "../../src/hazards.rs"]
mod hazards;
#[allow(dead_code)]
#[path = "../../src/owned_slot.rs"]
mod owned_slot;
#[allow(dead_code)]
#[path = "../../src/slot.rs"]
mod slot;
