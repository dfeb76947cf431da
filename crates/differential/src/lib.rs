//! Small programs of several objects, each linked natively and by `jittison`, with the answers compared byte by byte.
//!
//! | file | holds |
//! |---|---|
//! | `program.rs`, `extra.rs` | a program as data |
//! | `draw.rs` | the program of a seed |
//! | `main_object.rs`, `assembly.rs`, `c_source.rs`, `cpp_source.rs` | the text of its objects |
//! | `tools.rs` | compilers, linkers and `jittison` as processes |
//! | `outcome.rs` | the comparison of one program |
//! | `features.rs` | which constructs meet in a program |
//! | `expected.rs`, `expected.txt` | known differences |
//! | `minimize.rs` | the smallest program that is still wrong |
//! | `run.rs`, `report.rs`, `reasons.rs` | many programs, their results as Markdown, and why `jittison` refuses some |
//!
//! GNU ld gives the native answer. If `jittison` differs, LLVM's linker and the other kind of executable are asked too: if
//! they differ from each other, the program has no single native answer. A refusal by `jittison` is counted by its cause. An answer
//! that differs, a crash and a program that does not end are *wrong*.
//!
//! Programs print values and which addresses are equal, never an address. The same seed gives the same program.

mod assembly;
mod c_source;
mod cpp_source;
mod draw;
mod expected;
mod extra;
mod features;
mod main_object;
mod minimize;
mod outcome;
mod program;
mod reasons;
mod report;
mod run;
mod tools;

pub use outcome::Outcome;
pub use report::Report;
pub use run::{Options, run};

/// Builds and compares one program, and describes it with its sources.
pub fn show(options: &Options, seed: u64) -> Result<String, String> {
    let tools = tools::Tools::new(&options.jittison, &options.directory)?;
    let program = draw::draw(seed);
    let outcome = outcome::compare(&tools, &program, &options.directory.join(format!("seed{seed}")))?;
    Ok(report::describe(&program, &outcome))
}
