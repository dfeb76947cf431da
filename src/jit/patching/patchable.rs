//! [`Patchable`] and [`PatchableBuilder`]: a set of functions that come in versions.

use std::fmt;

use crate::base::{Name, sort_by_order};
use crate::error::{ErrorKind, Result};
use crate::jit::inner::Jit;
use crate::jit::patching::outcome::{PatchVersion, RolledBack};
use crate::jit::patching::patch::Patch;
use crate::jit::patching::patchable_inner::{PatchableInner, UnheldPatchable};
use crate::jit::patching::versions::{Limits, Versions};
use crate::platform::ProgramSymbols;
use crate::session::{JitDylib, Removal};
use crate::sync::Arc;

/// A set of functions of a dylib, each behind a stub, whose code comes in versions. Cheap to clone.
///
/// The first commit defines the names. From then on all calls by name, through handles and from linked code, go to the
/// current version. A version may define some of the functions; callers of the others stay with the versions that they have.
///
/// Calls between functions of one version are direct. So put functions into separate sets if one is to be patched without
/// the other. Variables keep their values: see [`Patch`].
///
/// # Example
///
/// ```
/// # const SCALE_1: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/scale_1.o"));
/// # const SCALE_2: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/scale_2.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// // scale_1.c: int calls; int scale(int n) { calls++; return n; }
/// // scale_2.c: int calls; int scale(int n) { calls++; return n * 100 + calls; }
/// type Scale = extern "C" fn(i32) -> i32;
/// let jit = jittison::Jit::new()?;
/// let kernels = jit.patchable(jit.main_dylib(), &["scale"])?;
///
/// let mut patch = kernels.patch();
/// patch.add_object("scale_1.o", SCALE_1)?;
/// // SAFETY: the object may run.
/// unsafe { patch.link()? }.commit()?;
/// // SAFETY: every version of `scale` has this signature.
/// let scale = unsafe { jit.lookup::<Scale>("scale")? };
/// assert_eq!(scale.call(7), 7);
///
/// let mut patch = kernels.patch();
/// patch.add_object("scale_2.o", SCALE_2)?;
/// // SAFETY: as above.
/// let prepared = unsafe { patch.link()? };
/// // SAFETY: as above. This handle calls the new version before it is committed.
/// let new_scale = unsafe { prepared.lookup::<Scale>("scale")? };
/// assert_eq!(new_scale.call(7), 702); // `calls` is the variable of the first version.
/// drop(new_scale);
/// let committed = prepared.commit()?;
/// assert_eq!(committed.version, 2);
/// assert_eq!(scale.call(7), 703); // The first handle follows the commit.
///
/// kernels.rollback()?;
/// assert_eq!(scale.call(7), 7);
/// # Ok(()) }
/// ```
///
/// # What keeps a replaced version in memory
///
/// A replaced version is removed when it leaves the history. Its memory is freed when nothing uses it any more. These use
/// it:
///
/// - A thread inside it. Each call through a [`Function`](crate::Function) of the session is counted, and pins the versions
///   that are replaced during the call. So are initialisers, finalisers, exit handlers and destructors of thread-local
///   variables. [`Removal::obstacles`](crate::Removal::obstacles) names the threads.
/// - A [guard](Jit::guard) that was entered before the version was replaced.
/// - A handle to the version itself ([`PreparedPatch::lookup`](crate::PreparedPatch::lookup)), or a later version that uses
///   its variables.
///
/// # Limits
///
/// - A call that never returns pins all versions that are replaced during it, until [`Patch::link`] refuses to make another
///   ([`max_versions`](PatchableBuilder::max_versions)). Let such a loop call [`Jit::pass_quiescent_state`].
/// - A call through a bare pointer is not counted. The caller has to hold an
///   [entry](crate::ExecutionSession::enter_call) or a guard during the call.
/// - What the C library calls on its own is not counted: threads that linked code starts, its signal handlers, its handlers
///   of `fork` and `quick_exit`. The caller of [`Jit::lookup_in`] promises that such code is in no patched function while
///   that function is replaced, or that such code holds an entry there.
///
/// Stubs and versions belong to the dylib, not to this handle. They stay when the handle is dropped. They go with
/// [`remove`](Self::remove), or when the dylib is [cleared](JitDylib::clear) or removed.
#[derive(Clone)]
pub struct Patchable(pub(super) Arc<PatchableInner>);

/// Settings of a [`Patchable`].
pub struct PatchableBuilder<'a> {
    jit: &'a Jit,
    dylib: JitDylib,
    names: Vec<Name>,
    limits: Limits,
}

impl Jit {
    /// Declares functions of a dylib that will come in versions. Nothing is defined before the first
    /// [commit](crate::PreparedPatch::commit).
    ///
    /// # Errors
    /// As [`PatchableBuilder::build`].
    pub fn patchable(&self, dylib: &JitDylib, functions: &[&str]) -> Result<Patchable> {
        self.patchable_builder(dylib, functions).build()
    }

    /// As [`patchable`](Self::patchable), with settings.
    pub fn patchable_builder(&self, dylib: &JitDylib, functions: &[&str]) -> PatchableBuilder<'_> {
        let names = functions.iter().map(|name| Name::new(name)).collect();
        let limits = Limits { history: 1, max_versions: 64 };
        PatchableBuilder { jit: self, dylib: dylib.clone(), names, limits }
    }

    /// Makes every global symbol of the running program available to links and lookups in a dylib, including symbols that
    /// are not in its dynamic symbol table.
    ///
    /// The symbols count as definitions of the dylib: objects that are linked into it cannot define them again, and versions
    /// of patched functions share the program's variables.
    ///
    /// # Errors
    /// The file of the program cannot be read, or it has no symbol table because it was stripped.
    pub fn add_program_symbols(&self, dylib: &JitDylib) -> Result<()> {
        dylib.add_generator(Arc::new(ProgramSymbols::with_executor(&*self.0.executor)?));
        Ok(())
    }
}

impl PatchableBuilder<'_> {
    /// The number of commits that can be [rolled back](Patchable::rollback), one after the other. Default: one.
    pub fn history(mut self, commits: usize) -> Self {
        self.limits.history = commits;
        self
    }

    /// The number of versions that may be removed for good and still in use, before [`Patch::link`] refuses to make another.
    /// Default: 64, about as many as can be replaced while one caller is not scheduled for a moment.
    pub fn max_versions(mut self, versions: usize) -> Self {
        self.limits.max_versions = versions;
        self
    }

    /// Builds it.
    ///
    /// # Errors
    /// [`ErrorKind::NotPatchable`] for a name that the dylib already defines. The dylib was removed, or is of another session.
    pub fn build(self) -> Result<Patchable> {
        let PatchableBuilder { jit, dylib, mut names, limits } = self;
        jit.0.check_own(&dylib)?;
        sort_by_order(&mut names, Ord::cmp);
        names.dedup();
        if let Some(name) = names.iter().find(|name| dylib.symbol_flags(name.as_str()).is_some()) {
            let problem = "the dylib already defines it, and callers may be bound to that definition; remove the definition, or \
                           make the name patchable before its first definition";
            let (dylib, symbol) = (dylib.name().to_string(), name.to_string());
            return Err(ErrorKind::NotPatchable { dylib, symbol, problem }.into());
        }
        let versions = Versions::new(jit, &dylib, names, limits);
        dylib.attach(versions.clone())?;
        Ok(Patchable(Arc::new(PatchableInner { jit: jit.clone(), versions })))
    }
}

impl Patchable {
    /// Starts a new version. Add objects to it, then [link](Patch::link) it.
    pub fn patch(&self) -> Patch {
        Patch::new(&self.0)
    }

    /// Undoes the last commit that was not undone. Callers go back to the previous version, with as many stores as the
    /// commit made and without a link. The version that was undone is removed.
    ///
    /// A function that the commit was the first to define stays as it is, because it has no previous version.
    ///
    /// # Errors
    /// [`ErrorKind::NothingToRollBack`], [`ErrorKind::PatchableGone`]. Then nothing was changed.
    pub fn rollback(&self) -> Result<RolledBack> {
        self.0.versions.rollback()
    }

    /// Removes the functions with all versions, and the variables that versions were the first to define. The names can be
    /// defined again at once, also as patchable. No other version can be committed.
    ///
    /// A handle to one of the functions keeps the function and its version in memory, and so does a caller that is inside.
    /// Returns a ticket for each part that was removed: the stubs, then the versions by number.
    ///
    /// ```
    /// # const SCALE_1: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/scale_1.o"));
    /// # fn main() -> Result<(), jittison::Error> {
    /// let jit = jittison::Jit::new()?;
    /// // SAFETY: the object may run.
    /// let kernels = unsafe { jit.add_rebindable(jit.main_dylib(), "scale.o", SCALE_1)? };
    /// assert!(kernels.remove()?.iter().all(|removal| removal.is_complete()));
    /// assert!(jit.main_dylib().symbol_flags("scale").is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::PatchableGone`]: they are removed already. The errors of resource managers, joined; all parts are removed
    /// in that case too.
    pub fn remove(&self) -> Result<Vec<Removal>> {
        self.0.versions.remove()
    }

    /// The versions that are in memory, sorted by number: current, in the history, and retired but in use.
    pub fn versions(&self) -> Vec<PatchVersion> {
        self.0.versions.sweep();
        self.0.versions.list()
    }

    /// The names of the functions, sorted.
    pub fn functions(&self) -> Vec<String> {
        self.0.versions.function_names()
    }

    /// This set, without a hold on the session.
    pub(in crate::jit) fn unheld(&self) -> UnheldPatchable {
        UnheldPatchable(self.0.versions.clone())
    }

    /// The dylib of the functions.
    pub fn dylib(&self) -> &JitDylib {
        self.0.versions.dylib()
    }
}

impl UnheldPatchable {
    /// Whether the functions and their dylib are there.
    pub(in crate::jit) fn is_present(&self) -> bool {
        self.0.check_present().is_ok()
    }

    /// A handle to the set.
    ///
    /// # Errors
    /// [`ErrorKind::PatchableGone`]: the functions or their dylib were removed.
    pub(in crate::jit) fn hold(&self, jit: &Jit) -> Result<Patchable> {
        self.0.check_present()?;
        Ok(Patchable(Arc::new(PatchableInner { jit: jit.clone(), versions: self.0.clone() })))
    }
}

impl fmt::Debug for Patchable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
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
