//! [`Reloader`]: a program whose objects are replaced while it runs.
//!
//! ```text
//!   callers ─► stub `step` ─► slot ─┬─► `step.code` of version 3      dylib `main.o version 3`
//!              (home dylib)         ├┄► version 2 (retired)           in no dylib; calls keep it
//!                                   └┄► version 0: the program        home dylib
//!   versions ─► variables, of the version that brought them
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `reload.rs` | what a reload returns |
//! | `object_version.rs` | [`ObjectVersion`]: the description of a version, and what keeps it in memory |
//! | `version.rs` | the code of one version, in a dylib of its own; its end |
//! | `state.rs` | what is known of the program that runs; plans that follow from it |
//! | `home.rs` | the dylib of the program and its stubs; links versions beside it |
//! | `native.rs` | [`NativeObjects`](native::NativeObjects): objects of the running executable, and hooks at its entries |
//! | `reloader.rs` | [`Reloader`]: adds objects, plans, links, commits |
//!
//! A file imports files above it in this table. Plans are made in `src/link/reload/`.
//!
//! # Why not [`Patchable`](crate::Patchable)
//! The functions of a `Patchable` are known when it is made, and the first version of a function cannot refer to code that
//! refers to the function. The objects of a program refer to each other in rings, and an edit adds functions. So the stubs
//! here exist before the objects are linked, and a version defines its functions under other names.
//!
//! # Store, then retire
//! A commit stores all new targets and removes versions afterwards. So a thread that loaded an old target did so before the
//! removal, and its call entry is seen (`src/session/pins/calls.rs`).

mod home;
mod native;
mod object_version;
mod reload;
mod reloader;
mod state;
mod version;

pub use object_version::ObjectVersion;
pub use reload::Reload;
pub use reloader::Reloader;
