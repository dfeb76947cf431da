//! Tests of hot patching. Functions change while threads call them: all at once, or not at all. A failed patch leaves nothing.
//! Variables keep their values. A replaced version is freed when nothing keeps it. One file per theme.

mod committing;
mod failing;
mod graphs;
mod inside;
mod lifetimes;
mod program;
mod rebinding;
mod removed_names;
mod removing;
mod shared_dylibs;
mod variables;

use jittison_test_support as support;

use jittison::{Committed, Error, Jit, JitDylib, Patchable, PreparedPatch};

type Function = extern "C" fn(i64) -> i64;

/// An object with `long name(long n)` for each pair of name and body.
fn functions(bodies: &[(&str, &str)]) -> Option<Vec<u8>> {
    let one = |(name, body): &(&str, &str)| format!("long {name}(long n) {{ return {body}; }}\n");
    support::c(&bodies.iter().map(one).collect::<String>())
}

fn link(kernels: &Patchable, object: &[u8]) -> Result<PreparedPatch, Error> {
    let mut patch = kernels.patch();
    patch.add_object("version.o", object)?;
    // SAFETY: the objects belong to the tests, and their initialisers may run.
    unsafe { patch.link() }
}

fn commit(kernels: &Patchable, object: &[u8]) -> Committed {
    link(kernels, object).and_then(PreparedPatch::commit).unwrap()
}

/// A function by name, in the way in which callers find it.
fn find(jit: &Jit, name: &str) -> jittison::Function<Function> {
    support::function::<Function>(jit, name)
}

/// State that a failure may not change: memory, symbols, resource keys, dylibs.
fn state_of(jit: &Jit) -> ((usize, u64, u64), usize, usize, usize) {
    let symbols = |dylib: &JitDylib| dylib.symbol_count();
    let dylibs = jit.session().dylibs();
    // Without the process dylib, which caches the symbols that were looked up.
    let others = dylibs.iter().filter(|dylib| *dylib != jit.process_dylib());
    (support::held(jit), others.map(symbols).sum(), jit.layer().key_count(), dylibs.len())
}

/// The numbers of all live versions, and of those that are current for some function.
fn version_numbers(kernels: &Patchable) -> (Vec<u64>, Vec<u64>) {
    let versions = kernels.versions();
    let current = versions.iter().filter(|version| !version.current.is_empty());
    (versions.iter().map(|version| version.version).collect(), current.map(|version| version.version).collect())
}
