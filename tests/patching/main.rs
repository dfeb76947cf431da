//! The promises of hot patching: functions change while threads call them, all at once or not at all; what fails leaves
//! nothing; data stays; what was replaced goes when nobody holds it. One file per theme.

mod committing;
mod failing;
mod inside;
mod lifetimes;
mod program;
mod rebinding;
#[path = "../support/mod.rs"]
mod support;
mod variables;

use jittison::{Committed, Error, Jit, JitDylib, Patchable, PreparedPatch};

type Function = extern "C" fn(i64) -> i64;

/// `long name(long n)` for each of the bodies.
fn functions(bodies: &[(&str, &str)]) -> Option<Vec<u8>> {
    let one = |(name, body): &(&str, &str)| format!("long {name}(long n) {{ return {body}; }}\n");
    support::c(&bodies.iter().map(one).collect::<String>())
}

fn link(kernels: &Patchable, object: &[u8]) -> Result<PreparedPatch, Error> {
    let mut patch = kernels.patch();
    patch.add_object("version.o", object)?;
    // SAFETY: tests' own objects, whose initialisers may run.
    unsafe { patch.link() }
}

fn commit(kernels: &Patchable, object: &[u8]) -> Committed {
    link(kernels, object).and_then(PreparedPatch::commit).unwrap()
}

/// A function by its name, as callers find it.
fn find(jit: &Jit, name: &str) -> jittison::Function<Function> {
    support::function::<Function>(jit, name)
}

/// What a failure may not change: memory, symbols, trackers' keys, dylibs, stubs.
fn everything(jit: &Jit) -> ((usize, u64, u64), usize, usize, usize) {
    let symbols = |dylib: &JitDylib| dylib.symbol_count();
    let dylibs = jit.session().dylibs();
    // Of the process dylib, which keeps what was asked of it.
    let others = dylibs.iter().filter(|dylib| *dylib != jit.process_dylib());
    (support::held(jit), others.map(symbols).sum(), jit.layer().key_count(), dylibs.len())
}

/// The live numbers, and those that are current for anything.
fn numbers(kernels: &Patchable) -> (Vec<u64>, Vec<u64>) {
    let versions = kernels.versions();
    let current = versions.iter().filter(|version| !version.current.is_empty());
    (versions.iter().map(|version| version.version).collect(), current.map(|version| version.version).collect())
}
