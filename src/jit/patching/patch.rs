//! [`Patch`] and [`PreparedPatch`]: a version on its way, from objects to a commit.
//!
//! | step | what fails it | what is undone, by whom |
//! |---|---|---|
//! | objects are collected | bytes that are no object | nothing was done |
//! | `link` | a missing symbol, a wrong signature, none of the functions, a variable that has grown | the version's dylib, by the drop of `UncommittedVersion` |
//! | its initialisers | a throw, a panic | the names at once; the memory by the next call, since the exception may lie in it |
//! | `commit` | the dylib is gone, or defines one of the names by now | as for `link`; no slot was touched |
//! | dropped instead | – | as for `link` |

use std::fmt;
use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::Name;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{Function, FunctionPointer};
use crate::jit::files;
use crate::jit::patching::uncommitted_version::{Entry, UncommittedVersion};
use crate::jit::patching::variables;
use crate::jit::patching::versions::Versions;
use crate::jit::patching::{Committed, Patchable};
use crate::link::{self, ObjectBuffer};
use crate::session::{JitDylib, RequiredState, SymbolFlags, SymbolRequest, SymbolWatch, Visibility};
use crate::sync::Arc;

/// A new version of some of the functions of a [`Patchable`]: first objects and wishes, then [linked](Self::link) aside.
///
/// **Variables stay.** A variable that an object defines, and that the dylib or an earlier version defines too, is that one:
/// what it holds lives on. So sources can be compiled again as they are. It counts as the same if the name is: global,
/// writable, no function; of the same size at least ([`ErrorKind::VariableChanged`]). Constants, and variables that are local
/// to an object (`static`), come with each version. What a version brought stays as long as later ones use it, and with it,
/// in memory, the version.
#[must_use = "a patch does nothing until it is linked and committed"]
pub struct Patch {
    patchable: Patchable,
    objects: Vec<(String, ObjectBuffer)>,
    required: Vec<Name>,
    signatures: FxHashMap<Name, String>,
}

/// A version that is linked, initialised, and called by nobody. Dropped, it leaves nothing behind.
#[must_use = "dropping a prepared patch takes it back"]
pub struct PreparedPatch {
    patchable: Patchable,
    aside: UncommittedVersion,
    signatures: FxHashMap<Name, String>,
}

impl Patch {
    pub(super) fn new(patchable: &Patchable) -> Patch {
        let (objects, required) = (Vec::new(), Vec::new());
        Patch { patchable: patchable.clone(), objects, required, signatures: FxHashMap::default() }
    }

    /// Adds an object.
    ///
    /// # Errors
    /// When the bytes are no object that can be linked.
    pub fn add_object(&mut self, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<&mut Patch> {
        let bytes = bytes.into();
        link::variables(name, &bytes)?;
        self.objects.push((name.to_string(), bytes));
        Ok(self)
    }

    /// Adds an object file. The file is read here, and may be changed afterwards.
    ///
    /// # Errors
    /// As [`add_object`](Self::add_object), or when the file cannot be read ([`InputFile`](crate::InputFile)).
    pub fn add_object_file(&mut self, path: impl AsRef<Path>) -> Result<&mut Patch> {
        let path = path.as_ref();
        self.add_object(&path.display().to_string(), files::read_object(path)?)
    }

    /// Has the link fail if no object defines this function.
    pub fn require(&mut self, function: &str) -> &mut Patch {
        self.required.push(Name::new(function));
        self
    }

    /// Requires a function, and says what its signature is, in any words. All versions of which something is said have to
    /// say the same as the first.
    pub fn expect_signature(&mut self, function: &str, signature: &str) -> &mut Patch {
        self.signatures.insert(Name::new(function), signature.to_string());
        self.require(function)
    }

    /// Links the objects, where nobody sees them, and runs their initialisers. They see themselves, the dylib, hidden symbols
    /// included, and what that links against. Nothing that runs is changed, and on any error nothing is left.
    ///
    /// # Errors
    /// [`ErrorKind::PatchRefused`] with the cause: a missing symbol, a function that is none, [`ErrorKind::WrongSignature`],
    /// [`ErrorKind::VariableChanged`], failures to link; [`ErrorKind::TooManyVersions`]; [`ErrorKind::PatchableGone`]. An exception
    /// or panic of an initialiser passes through here; what was linked is given back by the next call on the [`Patchable`].
    ///
    /// # Safety
    /// The objects may run: their initialisers now, their finalisers and exit handlers when they are removed.
    pub unsafe fn link(self) -> Result<PreparedPatch> {
        let versions = self.patchable.state().clone();
        let number = versions.begin_link()?;
        let _linking = Linking(&versions);
        let aside = self.link_aside(&versions, number).map_err(|error| versions.refused(number, error))?;
        Ok(PreparedPatch { patchable: self.patchable, aside, signatures: self.signatures })
    }

    fn link_aside(&self, versions: &Arc<Versions>, number: u64) -> Result<UncommittedVersion> {
        // Asked before anything is made.
        let unknown = self.required.iter().find(|name| !versions.names().contains(name));
        if let Some(unknown) = unknown {
            return Err(not_patchable(versions, unknown, "it is none of the functions that were said to be"));
        }
        versions.check_signatures(&self.signatures)?;
        let mut aside = UncommittedVersion::new(versions, self.patchable.jit().session(), number)?;
        // Where the objects look for what they refer to.
        aside.code().dylib.set_link_order(&link_order(versions.dylib()));
        // Objects, without the variables that are there.
        self.add_objects(&mut aside, versions.dylib())?;
        // The functions, linked, with all that they need.
        self.link_functions(&mut aside, versions)?;
        // Initialisers, on which nothing else runs yet.
        self.initialize(&mut aside)?;
        let code = aside.code_mut();
        let first = code.functions.keys().next().map(|name| name.to_string()).unwrap_or_default();
        let (_, pin) = code.dylib.pin(&first).ok_or_else(|| taken_back(&code.dylib, &first))?;
        code.pin = Some(pin);
        Ok(aside)
    }

    fn add_objects(&self, aside: &mut UncommittedVersion, dylib: &JitDylib) -> Result<()> {
        let jit = self.patchable.jit();
        for (name, bytes) in &self.objects {
            let defined = link::variables(name, bytes)?;
            let is_there = variables::find_there(jit.session(), name, &defined, dylib)?;
            let mut left_out = FxHashSet::default();
            for (variable, is_there) in defined.iter().zip(is_there) {
                match is_there {
                    true => drop(left_out.insert(variable.name)),
                    false => drop(aside.code_mut().brought.insert(Name::new(variable.name), variable.size)),
                }
            }
            let tracker = &aside.code().tracker;
            jit.layer().add_without(tracker, name, bytes.clone(), |symbol| left_out.contains(symbol))?;
        }
        Ok(())
    }

    fn link_functions(&self, aside: &mut UncommittedVersion, versions: &Versions) -> Result<()> {
        let code = aside.code_mut();
        let is_defined = |name: &&Name| code.dylib.symbol_flags(name.as_str()).is_some();
        let (defined, missing): (Vec<&Name>, Vec<&Name>) = versions.names().iter().partition(is_defined);
        let absent = |name: &&&Name| self.required.contains(**name) || defined.is_empty();
        let absent: Vec<String> = missing.iter().filter(absent).map(|name| name.to_string()).collect();
        if !absent.is_empty() {
            let (needed_by, searched) = (None, vec![code.dylib.name().to_string()]);
            return Err(ErrorKind::SymbolsNotFound { symbols: absent, needed_by, searched }.into());
        }
        let brought = code.brought.keys();
        let requests: Vec<_> =
            defined.iter().copied().chain(brought).map(|name| SymbolRequest::required(name.as_str())).collect();
        let found = code.dylib.lookup(&requests, RequiredState::Ready)?;
        for (name, found) in defined.iter().zip(found) {
            let symbol = found.symbol.filter(|_| found.flags.contains(SymbolFlags::CALLABLE));
            let symbol =
                symbol.ok_or_else(|| not_patchable(versions, name, "the version defines no function by this name"))?;
            code.functions.insert((*name).clone(), Entry { address: found.address, symbol });
        }
        // Objects that nothing refers to, and that have initialisers.
        loop {
            let names = code.dylib.pending_side_effects();
            if names.is_empty() {
                return Ok(());
            }
            let requests: Vec<_> = names.iter().map(|name| SymbolRequest::weak(name.as_str())).collect();
            code.dylib.lookup(&requests, RequiredState::Ready)?;
        }
    }

    fn initialize(&self, aside: &mut UncommittedVersion) -> Result<()> {
        let jit = self.patchable.jit();
        aside.is_initializing = true;
        jit.run_pending(&aside.code().dylib);
        aside.is_initializing = false;
        let code = aside.code();
        let gone = code.functions.iter().find(|(_, entry)| SymbolWatch::of(&entry.symbol).is_gone());
        gone.map_or(Ok(()), |(name, _)| Err(taken_back(&code.dylib, name.as_str())))
    }
}

impl PreparedPatch {
    /// The number of the version.
    pub fn version(&self) -> u64 {
        self.aside.code().number
    }

    /// A function of the version itself, past its stub: to try it ahead of the commit. The handle keeps the version, also
    /// after it was dropped or replaced.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolsNotFound`].
    ///
    /// # Safety
    /// `name` is a function of the signature and ABI `F`; if `F` is safe to call, so is the function.
    pub unsafe fn lookup<F: FunctionPointer>(&self, name: &str) -> Result<Function<F>> {
        let dylib = &self.aside.code().dylib;
        let found = dylib.lookup(&[SymbolRequest::required(name)], RequiredState::Ready)?.pop();
        let pin = found.as_ref().and_then(|found| self.patchable.jit().session().pin(found.symbol.as_ref()?));
        let (Some(found), Some(pin)) = (found, pin) else { return Err(taken_back(dylib, name)) };
        // SAFETY: J1 - the caller's word for the signature; the pin holds the code.
        Ok(unsafe { Function::with_hold(found.address, Some(Arc::new(pin))) })
    }

    /// Leads all callers to this version, by one store for each function, one right after the other. Versions that are neither
    /// current nor in the history from then on are removed, as [`ResourceTracker::remove`](crate::ResourceTracker::remove)
    /// does it: running code stays until it has ended, as far as somebody holds it.
    ///
    /// Commits of one [`Patchable`] take turns.
    ///
    /// # Errors
    /// [`ErrorKind::PatchRefused`], when the dylib defines one of the names by now or another version has said a signature;
    /// [`ErrorKind::PatchableGone`]. The version is taken back then, and no caller was sent anywhere.
    pub fn commit(self) -> Result<Committed> {
        let PreparedPatch { patchable, aside, signatures } = self;
        let (versions, number) = (patchable.state(), aside.code().number);
        versions.commit(patchable.jit(), aside, signatures).map_err(|error| versions.refused(number, error))
    }
}

/// A link under way.
struct Linking<'a>(&'a Versions);

impl Drop for Linking<'_> {
    fn drop(&mut self) {
        self.0.end_link();
    }
}

/// The dylib, hidden symbols included, ahead of what it links against itself.
fn link_order(dylib: &JitDylib) -> Vec<(JitDylib, Visibility)> {
    [(dylib.clone(), Visibility::All)].into_iter().chain(dylib.link_order()).collect()
}

fn not_patchable(versions: &Versions, name: &Name, problem: &'static str) -> Error {
    let (dylib, symbol) = (versions.dylib().name().to_string(), name.to_string());
    ErrorKind::NotPatchable { dylib, symbol, problem }.into()
}

fn taken_back(dylib: &JitDylib, name: &str) -> Error {
    ErrorKind::TakenBack { symbol: name.to_string(), dylib: dylib.name().to_string() }.into()
}

impl fmt::Debug for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let objects: Vec<_> = self.objects.iter().map(|(name, _)| name).collect();
        write!(f, "patch of {:?} with {objects:?}", self.patchable)
    }
}

impl fmt::Debug for PreparedPatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "prepared version {} of {:?}", self.version(), self.patchable)
    }
}
