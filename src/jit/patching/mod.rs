//! [`Patchable`]: functions of a dylib that come in versions and are replaced while threads call them.
//!
//! ```text
//!   callers ─► stub `gemm` ─► slot ─┬─► version 3 (current)       dylib `main patch 3`
//!              (dylib `main`)       ├┄► version 2 (history)       dylib `main patch 2`
//!                                   ┆   version 1 (retired)       in no dylib; handles or its variables keep it
//!   versions ─► variables that version 1 defined first            dylib `main`
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `outcome.rs` | what a commit and a rollback return, and [`PatchVersion`] |
//! | `version_code.rs` | the code of one version, in a dylib that no other dylib searches |
//! | `variables.rs` | variables that versions share |
//! | `failed_version.rs` | a version whose initialiser threw, which stays in memory |
//! | `uncommitted_version.rs` | a linked version that no caller reaches yet |
//! | `versions.rs` | all versions: commit, rollback, and the end of the dylib |
//! | `patchable_inner.rs`, `patchable.rs` | [`Patchable`] and its builder |
//! | `patch_input.rs` | an object or a graph that becomes part of a version |
//! | `patch.rs` | [`Patch`] and [`PreparedPatch`]: the way of a version from objects to a commit |
//! | `rebindable.rs` | objects that are replaced as one unit |
//!
//! A file imports files above it in this table.
//!
//! # Limits
//! Only callers that go through a stub are redirected. The objects of one version call each other directly, so that a
//! version can be tried as a unit before it is committed.

mod failed_version;
mod outcome;
mod patch;
mod patch_input;
mod patchable;
mod patchable_inner;
mod rebindable;
mod uncommitted_version;
mod variables;
mod version_code;
mod versions;

pub use outcome::{Committed, PatchVersion, RolledBack};
pub use patch::{Patch, PreparedPatch};
pub use patchable::{Patchable, PatchableBuilder};
pub(in crate::jit) use patchable_inner::UnheldPatchable;
#[cfg(feature = "reload")]
pub(in crate::jit) use variables::publish as publish_variables;
#[cfg(feature = "reload")]
pub(in crate::jit) use versions::{keep_for, pin_for_late_bindings};
