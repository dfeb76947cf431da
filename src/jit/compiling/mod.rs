//! Functions that a compiler of the embedder makes when they are needed: at their first call, ahead of it on another thread, or
//! again when they have been called often.
//!
//! ```text
//!   CompileOnDemandLayer   callers ─► lazy stub `f` ─► `f$body`            compiled at the first call, one unit for each function
//!   ReOptimizeLayer        callers ─► stub `f` ─┬─► counter stub ─► `f$tier1`     version 1
//!                                               └─► `f`                            version 2, when the count is used up
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `compiler.rs` | [`FunctionCompiler`], its request and its result |
//! | `call_counter.rs` | the stub that counts calls, and the entry that a used up count leads to |
//! | `tier_state.rs` | the tier of a function, and which thread compiles the next |
//! | `tiered.rs` | one function of a [`ReOptimizeLayer`]: its tier, and the compilation of the next |
//! | `on_demand.rs` | [`CompileOnDemandLayer`] and its materialisation unit |
//! | `on_demand_tiers.rs` | functions in tiers whose first tier is compiled at their first call |
//! | `reoptimize.rs` | [`ReOptimizeLayer`] and [`ReOptimized`] |
//!
//! A file imports files above it in this table.
//!
//! # Who calls the compiler
//! No lock is held. A first call compiles on the thread that calls, or on a worker of a session that has worker threads.
//! [`ReOptimizeLayer::add`] compiles first tiers on its own thread.
//! Compilation ahead of a call and of further tiers runs in the background (`src/session/background_work.rs`).
//!
//! # What keeps a replaced tier in memory
//! Tiers are versions of a [`Patchable`](crate::Patchable), one for each function. So the rules for replaced versions hold.

mod call_counter;
mod compiler;
mod on_demand;
mod on_demand_tiers;
mod reoptimize;
mod tier_state;
mod tiered;

pub use compiler::{CompileRequest, CompiledFunction, FunctionCompiler};
pub use on_demand::CompileOnDemandLayer;
pub use reoptimize::{ReOptimizeLayer, ReOptimized};
#[cfg(loom)]
pub use tier_state::TierState;
