//! [`Patchable`]: functions of a dylib whose code comes in versions, changed while threads call them.
//!
//! ```text
//!   callers ─► stub `gemm` ─► slot ─┬─► version 3 (current)       dylib `main patch 3`
//!              (dylib `main`)       ├┄► version 2 (history)       dylib `main patch 2`
//!                                   ┆   version 1 (retired)       in no dylib; held by handles, or for its variables
//!   versions ─► variables that version 1 brought                  dylib `main`
//! ```
//!
//! A version is linked aside, in a dylib of its own that nobody searches (`uncommitted_version.rs`, `patch.rs`); what its commit, a rollback
//! and the end of the dylib do to all of them stands in `versions.rs`; which variables it shares in `variables.rs`.
//!
//! Not here: references that are bound to a version's code past the stub. A version's own objects call each other
//! directly, so that a version can be tried as a whole before it is committed.

mod patch;
mod rebindable;
mod uncommitted_version;
mod variables;
mod versions;

use std::fmt;

use crate::base::Name;
use crate::error::{ErrorKind, Result};
use crate::jit::Jit;
use crate::jit::patching::versions::Versions;
use crate::platform::ProgramSymbols;
use crate::session::{JitDylib, Removal};
use crate::sync::Arc;

pub use patch::{Patch, PreparedPatch};

/// Some functions of a dylib, each behind a stub, whose code comes in versions. Cheap to clone.
///
/// All calls by name, through handles and from linked code, go to the current version: from the first commit on, which
/// defines the names. A version may define some of the functions only; the others stay where they are. Calls between
/// functions of one version are direct, so functions that are to be patched one without the other belong in versions of
/// their own.
///
/// Variables stay: see [`Patch`].
///
/// A version that was replaced is removed when it leaves the history. A version that is in use stays until it is not:
/// - A thread is inside of it. Each call through a [`Function`](crate::Function) of the session is entered, and holds the
///   versions that were replaced since it began. So do initialisers, finalisers, exit handlers and destructors of thread-local
///   variables. [`Removal::obstacles`] names the threads.
/// - A [guard](Jit::guard) was entered before it was replaced.
/// - A handle refers to the version itself ([`PreparedPatch::lookup`]), or a later version uses its variables.
///
/// A call that never returns holds all versions that are replaced meanwhile, until [`Patch::link`] refuses more
/// ([`max_versions`](PatchableBuilder::max_versions)). Such a loop says now and then that it is inside of none:
/// [`Jit::pass_quiescent_state`]. Whoever calls through a bare pointer enters the call with
/// [`enter_call`](crate::ExecutionSession::enter_call).
///
/// What the C library calls by itself is not entered: threads that linked code starts, its signal handlers, and its handlers of
/// `fork` and `quick_exit`. Whoever lets such code run (see the `# Safety` of [`Jit::lookup_in`]) gives the word that it
/// is in no patched function that is replaced meanwhile, or enters the call there.
///
/// The stubs and the versions belong to the dylib, not to this handle: dropped, it leaves them where they are, and they go
/// when the dylib is [cleared](JitDylib::clear) or removed.
///
/// ```
/// # fn compile(source: &str) -> Option<Vec<u8>> {
/// #     use std::{io::Write, process::{Command, Stdio}};
/// #     let dir = std::env::temp_dir().join(format!("jittison-doc-{}", std::process::id()));
/// #     std::fs::create_dir_all(&dir).ok()?;
/// #     let file = dir.join("object.o");
/// #     let mut gcc = Command::new("gcc").args(["-x", "c", "-O2", "-fPIC", "-c", "-", "-o"]).arg(&file).stdin(Stdio::piped()).spawn().expect("this example needs gcc");
/// #     gcc.stdin.take()?.write_all(source.as_bytes()).ok()?;
/// #     gcc.wait().ok()?;
/// #     let bytes = std::fs::read(&file).ok();
/// #     std::fs::remove_dir_all(&dir).ok()?;
/// #     bytes
/// # }
/// # fn main() -> Result<(), jittison::Error> {
/// # let Some(first) = compile("int calls; int gemm(int n) { calls++; return n; }") else { return Ok(()) };
/// # let Some(second) = compile("int calls; int gemm(int n) { calls++; return n * 100 + calls; }") else { return Ok(()) };
/// type Gemm = extern "C" fn(i32) -> i32;
/// let jit = jittison::Jit::new()?;
/// let kernels = jit.patchable(jit.main_dylib(), &["gemm"])?;
///
/// let mut patch = kernels.patch();
/// patch.add_object("gemm.o", first)?;
/// unsafe { patch.link()? }.commit()?;
/// let gemm = unsafe { jit.lookup::<Gemm>("gemm")? };
/// assert_eq!(gemm.call(7), 7);
///
/// let mut patch = kernels.patch();
/// patch.add_object("gemm_tuned.o", second)?;
/// let prepared = unsafe { patch.link()? };
/// let tuned = unsafe { prepared.lookup::<Gemm>("gemm")? };
/// assert_eq!(tuned.call(7), 702, "`calls` is the variable that was there"); // tried ahead of the commit
/// drop(tuned);
/// prepared.commit()?;
/// assert_eq!(gemm.call(7), 703, "the same handle");
///
/// kernels.rollback()?;
/// assert_eq!(gemm.call(7), 7);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Patchable(Arc<Handle>);

struct Handle {
    jit: Jit,
    versions: Arc<Versions>,
}

/// Settings of a [`Patchable`].
pub struct PatchableBuilder<'a> {
    jit: &'a Jit,
    dylib: JitDylib,
    names: Vec<Name>,
    limits: Limits,
}

#[derive(Clone, Copy)]
struct Limits {
    history: usize,
    max_versions: usize,
}

/// What a commit did.
#[derive(Debug)]
#[must_use = "the tickets say who still holds what was replaced"]
pub struct Committed {
    /// The version that was committed: from 1, in the order in which they were linked.
    pub version: u64,
    /// The removals of versions that are neither current nor in the history any more.
    pub retired: Vec<Removal>,
}

/// What a rollback did.
#[derive(Debug)]
#[must_use = "the tickets say who still holds what was undone"]
pub struct RolledBack {
    /// The version whose commit was undone.
    pub version: u64,
    /// Its removal; none if it stays, because it was the first to define a function.
    pub retired: Vec<Removal>,
}

/// One version that is there.
#[derive(Debug, Clone)]
pub struct PatchVersion {
    /// Its number.
    pub version: u64,
    /// The functions of the set that it defines.
    pub functions: Vec<String>,
    /// Those of them that callers are led to.
    pub current: Vec<String>,
    /// Whether it was replaced for good, and is held all the same.
    pub is_retired: bool,
    /// By whom, in words ([`Removal::obstacles`]).
    pub held_by: Vec<String>,
}

impl Jit {
    /// Functions of a dylib that are to come in versions. Nothing is defined before the first [commit](PreparedPatch::commit).
    ///
    /// # Errors
    /// As [`PatchableBuilder::build`].
    pub fn patchable(&self, dylib: &JitDylib, functions: &[&str]) -> Result<Patchable> {
        self.patchable_builder(dylib, functions).build()
    }

    /// The same, with settings.
    pub fn patchable_builder(&self, dylib: &JitDylib, functions: &[&str]) -> PatchableBuilder<'_> {
        let names = functions.iter().map(|name| Name::new(name)).collect();
        let limits = Limits { history: 1, max_versions: 64 };
        PatchableBuilder { jit: self, dylib: dylib.clone(), names, limits }
    }

    /// Lets links and lookups in a dylib find every global symbol of the running program, those included that its dynamic
    /// symbol table does not name ([`ProgramSymbols`]).
    ///
    /// # Errors
    /// When the program's file cannot be mapped, or has no symbol table because it was stripped.
    pub fn add_program_symbols(&self, dylib: &JitDylib) -> Result<()> {
        dylib.add_generator(Arc::new(ProgramSymbols::new()?));
        Ok(())
    }
}

impl PatchableBuilder<'_> {
    /// How many commits can be [rolled back](Patchable::rollback), one after the other. One, unless told otherwise.
    pub fn history(mut self, commits: usize) -> Self {
        self.limits.history = commits;
        self
    }

    /// How many versions may be replaced for good and still held before [`Patch::link`] refuses to make another. 64,
    /// unless told otherwise: as many as come about while one caller is kept from running for a moment.
    pub fn max_versions(mut self, versions: usize) -> Self {
        self.limits.max_versions = versions;
        self
    }

    /// Builds it.
    ///
    /// # Errors
    /// [`ErrorKind::NotPatchable`] for a name that the dylib defines already; a dylib that was removed.
    pub fn build(self) -> Result<Patchable> {
        let PatchableBuilder { jit, dylib, mut names, limits } = self;
        names.sort();
        names.dedup();
        if let Some(name) = names.iter().find(|name| dylib.symbol_flags(name.as_str()).is_some()) {
            let problem = "the dylib defines it already, and callers may be bound to that; remove it first, or \
                           patch it from its first version on";
            let (dylib, symbol) = (dylib.name().to_string(), name.to_string());
            return Err(ErrorKind::NotPatchable { dylib, symbol, problem }.into());
        }
        let versions = Versions::new(jit, &dylib, names, limits);
        dylib.attach(versions.clone())?;
        Ok(Patchable(Arc::new(Handle { jit: jit.clone(), versions })))
    }
}

impl Patchable {
    /// A new version, to be filled with objects.
    pub fn patch(&self) -> Patch {
        self.0.versions.sweep();
        Patch::new(self)
    }

    /// Undoes the last commit that was not undone: sends callers back to the version from before, by as many stores as that
    /// commit made, without linking. The version that was undone is removed, once nobody holds it.
    ///
    /// A function that the commit was the first to define stays as it is: there is nowhere to go back to.
    ///
    /// # Errors
    /// [`ErrorKind::NothingToRollBack`], [`ErrorKind::PatchableGone`]; nothing was done.
    pub fn rollback(&self) -> Result<RolledBack> {
        self.0.versions.rollback()
    }

    /// The versions that are there, in the order of their numbers: current, in the history, and replaced but held.
    pub fn versions(&self) -> Vec<PatchVersion> {
        self.0.versions.sweep();
        self.0.versions.list()
    }

    /// The names of the functions, sorted.
    pub fn functions(&self) -> Vec<String> {
        self.0.versions.function_names()
    }

    /// The dylib whose functions these are.
    pub fn dylib(&self) -> &JitDylib {
        self.0.versions.dylib()
    }

    pub(in crate::jit) fn jit(&self) -> &Jit {
        &self.0.jit
    }

    fn state(&self) -> &Arc<Versions> {
        &self.0.versions
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.versions.sweep();
        self.versions.leave_unused();
    }
}

impl fmt::Debug for Patchable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "patchable {:?} of {:?}", self.functions(), self.dylib())
    }
}

impl fmt::Debug for PatchableBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PatchableBuilder")
            .field("dylib", &self.dylib)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}
