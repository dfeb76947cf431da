//! `watch --cargo`: a Cargo package is built so that its functions can be replaced, and what rustc gives its linker is linked here.
//!
//! ```text
//!   watch ─► cargo build ─► jittison-rustc ─► rustc with more flags ─► jittison-linker ─► objects, and the list of all inputs
//!                                              (RUSTC_WRAPPER)          (-C linker)        in the place of the program
//! ```
//!
//! `jittison-rustc` and `jittison-linker` are links to this command. The build has a target directory of its own, so the user's
//! builds stay as they are.
//!
//! | file | holds |
//! |---|---|
//! | `link_record.rs` | [`LinkRecord`]: what a program consists of |
//! | `tools.rs` | `jittison-rustc` and `jittison-linker` |
//! | `linker_line.rs` | reads the command line of a linker |
//! | `cargo_build.rs` | [`CargoBuild`]: runs Cargo, knows the sources |
//! | `artifact.rs` | [`Artifact`](artifact::Artifact): what Cargo says that it has built |

mod artifact;
mod cargo_build;
mod link_record;
mod linker_line;
mod tools;

pub use cargo_build::CargoBuild;
pub use tools::run_as_tool;
