//! [`Patch`] and [`PreparedPatch`]: the way of a version from objects to a commit.
//!
//! | step | what can fail | what is undone |
//! |---|---|---|
//! | objects are added | the bytes are not an object | nothing was done |
//! | `link` | a missing symbol, another signature, none of the functions, a larger variable | the drop of [`UncommittedVersion`] removes the version's dylib |
//! | initialisers run | an exception, a panic, also in a call of another thread | names at once; memory when the dylib is cleared, because the exception may lie in it |
//! | `commit` | the dylib was removed, or defines one of the names | as for `link`; no slot was changed |
//! | dropped without a commit | – | as for `link` |

use std::fmt;
use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::base::{ExecutorAddr, Name};
use crate::error::{Error, ErrorKind, Result};
use crate::host::{Function, FunctionPointer};
use crate::jit::files;
#[cfg(feature = "executor")]
use crate::jit::inner::Runs;
use crate::jit::inner::{not_found, removed_by_failed_initializer};
use crate::jit::patching::outcome::Committed;
use crate::jit::patching::patch_input::PatchInput;
use crate::jit::patching::patchable_inner::PatchableInner;
use crate::jit::patching::uncommitted_version::UncommittedVersion;
use crate::jit::patching::variables;
use crate::jit::patching::version_code::{VersionCode, VersionFunction};
use crate::jit::patching::versions::Versions;
use crate::link::{BuiltGraph, ObjectBuffer};
use crate::session::{
    JitDylib, Pin, ReadyDefinition, ReadyDefinitions, RequiredState, ResourceTracker, SymbolFlags, SymbolRequest,
};
use crate::sync::Arc;

/// A new version of some of the functions of a [`Patchable`](crate::Patchable): objects, graphs and requirements, to
/// be [linked](Self::link).
///
/// # Variables
///
/// Variables keep their values. If an object defines a variable that the dylib or an earlier version defines too, it uses
/// the existing variable. So the same sources can be compiled again without change.
///
/// Two variables are the same if they have the same name and are global, writable and not functions. The new definition must
/// not be larger than the existing one ([`ErrorKind::VariableChanged`]). Constants, and variables that are local to an
/// object (`static`), are new in each version. The version that first defined a variable stays in memory as long as later
/// versions use that variable.
///
/// ```
/// # const SCALE_1: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/scale_1.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// let kernels = jit.patchable(jit.main_dylib(), &["scale"])?;
/// let mut patch = kernels.patch();
/// patch.add_object("scale_1.o", SCALE_1)?.expect_signature("scale", "int (int)");
/// // SAFETY: the object may run.
/// let prepared = unsafe { patch.link()? };
/// assert!(prepared.commit()?.retired.is_empty()); // There was no version before.
/// # Ok(()) }
/// ```
#[must_use = "a patch has no effect until it is linked and committed"]
pub struct Patch {
    patchable: Arc<PatchableInner>,
    /// Mostly one.
    inputs: SmallVec<[PatchInput; 1]>,
    required: Vec<Name>,
    signatures: FxHashMap<Name, String>,
}

/// A version that is linked and initialised, and that no caller reaches yet. Dropping it removes all of it.
#[must_use = "dropping a prepared patch removes it"]
pub struct PreparedPatch {
    patchable: Arc<PatchableInner>,
    version: UncommittedVersion,
    signatures: FxHashMap<Name, String>,
}

impl Patch {
    pub(super) fn new(patchable: &Arc<PatchableInner>) -> Patch {
        let (inputs, required) = (SmallVec::new(), Vec::new());
        Patch { patchable: patchable.clone(), inputs, required, signatures: FxHashMap::default() }
    }

    /// Adds an object.
    ///
    /// # Errors
    /// The bytes are not an object that can be linked.
    pub fn add_object(&mut self, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<&mut Patch> {
        let input = PatchInput::Object(name.to_string(), bytes.into());
        input.variables()?;
        self.inputs.push(input);
        Ok(self)
    }

    /// Adds a graph of a code generator. [`GraphBuilder`](crate::link::GraphBuilder) makes it.
    pub fn add_graph(&mut self, graph: BuiltGraph) -> &mut Patch {
        self.inputs.push(PatchInput::Graph(graph));
        self
    }

    /// Adds a graph that is made for the tracker of the version.
    pub(in crate::jit) fn add_made(
        &mut self,
        name: &str,
        make: impl FnOnce(&ResourceTracker) -> Result<BuiltGraph> + Send + 'static,
    ) -> &mut Patch {
        self.inputs.push(PatchInput::Made(name.to_string(), Box::new(make)));
        self
    }

    /// Adds an object file. This call reads the entire file; later changes to the file have no effect.
    ///
    /// # Errors
    /// As [`add_object`](Self::add_object), or the file cannot be read ([`InputFile`](crate::InputFile)).
    pub fn add_object_file(&mut self, path: impl AsRef<Path>) -> Result<&mut Patch> {
        let path = path.as_ref();
        self.add_object(&path.display().to_string(), files::read_object(path)?)
    }

    /// Requires a function: the link fails if no object defines it.
    pub fn require(&mut self, function: &str) -> &mut Patch {
        self.required.push(Name::new(function));
        self
    }

    /// Requires a function, and declares its signature as any text. All versions that declare a signature for a function
    /// must declare the same text as the first one.
    pub fn expect_signature(&mut self, function: &str, signature: &str) -> &mut Patch {
        self.signatures.insert(Name::new(function), signature.to_string());
        self.require(function)
    }

    /// Links the objects and graphs into a dylib that no other code searches, and runs their initialisers.
    ///
    /// They find their own symbols, then all symbols of the patched dylib, hidden ones included, then what that dylib
    /// links against. Running code is not changed. If there is an error, nothing is left.
    ///
    /// # Errors
    /// - [`ErrorKind::PatchRefused`] with the cause: a missing symbol, a name that is not a function,
    ///   [`ErrorKind::WrongSignature`], [`ErrorKind::VariableChanged`], or a failure to link.
    /// - [`ErrorKind::TooManyVersions`], [`ErrorKind::PatchableGone`].
    /// - [`MemoryFault::NeverRuns`](crate::error::MemoryFault::NeverRuns): the session's memory is for links that are never
    ///   run.
    ///
    /// An exception or panic of an initialiser passes through this call. What was linked stays in memory, because the
    /// exception may have a type or a text that is in it. It is in the dylib `<dylib> patch <version>`, and it is removed with
    /// that dylib or when the patched dylib is [cleared](JitDylib::clear). Do neither, and keep a [`Jit`](crate::Jit),
    /// until the exception has been handled.
    ///
    /// # Safety
    /// - Each patchable function that the objects define has the signature and ABI with which callers call it.
    /// - All objects that were added so far to this patch, to the patched dylib and to the dylibs that it links against
    ///   may run: their initialisers in this call, their finalisers and exit handlers when they are removed.
    /// - Addresses that were given as numbers stay in memory, as [`Jit::lookup_in`](crate::Jit::lookup_in) says.
    pub unsafe fn link(mut self) -> Result<PreparedPatch> {
        self.patchable.jit.0.check_can_run()?;
        let versions = self.patchable.versions.clone();
        let number = versions.begin_link()?;
        let _in_progress = LinkInProgress(&versions);
        let version = self.link_version(&versions, number).map_err(|error| versions.refusal(number, error))?;
        Ok(PreparedPatch { patchable: self.patchable, version, signatures: self.signatures })
    }

    fn link_version(&mut self, versions: &Arc<Versions>, number: u64) -> Result<UncommittedVersion> {
        // Check the requirements before anything is created.
        let unknown = self.required.iter().find(|name| !versions.names().contains(name));
        if let Some(unknown) = unknown {
            return Err(not_patchable(
                versions,
                unknown,
                "it is not one of the functions that were declared patchable",
            ));
        }
        versions.check_signatures(&self.signatures)?;
        let home = versions.dylib();
        let is_plain = matches!(&self.inputs[..], [input] if input.is_plain());
        let spare = if is_plain { versions.take_spare(&self.patchable.jit.0) } else { None };
        let mut version = UncommittedVersion::new(home, self.patchable.jit.session(), number, is_plain, spare)?;
        version.set_link_order(home)?;
        // Add all inputs, without the variables that exist already.
        self.add_inputs(&mut version, home)?;
        // Link the functions and what they need. Then run initialisers: no caller reaches the version yet.
        let failures = self.patchable.jit.0.initializers.failures();
        let outcome =
            self.link_functions(&mut version, versions).and_then(|()| self.initialize(&mut version, failures));
        // Another caller may have run an initialiser that failed. Its exception may still lie in the version.
        version.is_initializing = outcome.is_err() && self.patchable.jit.0.initializers.failures() != failures;
        outcome.map(|()| version)
    }

    fn add_inputs(&mut self, version: &mut UncommittedVersion, home: &JitDylib) -> Result<()> {
        let jit = &self.patchable.jit.0;
        let is_alone = self.inputs.len() == 1;
        for input in std::mem::take(&mut self.inputs) {
            let mut left_out = FxHashSet::default();
            let defined = input.variables()?;
            let exists = match defined.is_empty() {
                true => Vec::new(),
                false => variables::find_existing(&jit.session, input.name(), &defined, home)?,
            };
            for (variable, exists) in defined.into_iter().zip(exists) {
                match exists {
                    true => drop(left_out.insert(variable.name.to_string())),
                    false => drop(version.code_mut().variables.insert(Name::new(variable.name), variable.size)),
                }
            }
            input.add_to(&jit.layer, &version.code().tracker, &left_out, is_alone)?;
        }
        Ok(())
    }

    fn link_functions(&self, version: &mut UncommittedVersion, versions: &Versions) -> Result<()> {
        let code = version.code_mut();
        let names = versions.names();
        // A graph is linked already. Its functions are found in one step then.
        let ready = if code.variables.is_empty() { code.dylib.ready_definitions(names) } else { None };
        let found = match ready.filter(|ready| self.is_complete(names, ready)) {
            Some(ready) => ready,
            None => self.look_up_functions(code, names)?,
        };
        // The names are sorted.
        for (name, found) in names.iter().zip(found) {
            let Some(found) = found else { continue };
            let id = found.id.filter(|_| found.flags.contains(SymbolFlags::CALLABLE));
            let id = id.ok_or_else(|| not_patchable(versions, name, "the version defines no function by this name"))?;
            code.functions.push((name.clone(), VersionFunction { address: found.address, id }));
        }
        if code.is_plain {
            return Ok(());
        }
        // Link objects that have initialisers and that no other object refers to.
        loop {
            let names = code.dylib.pending_side_effects();
            if names.is_empty() {
                return Ok(());
            }
            let requests: Vec<_> = names.iter().map(|name| SymbolRequest::weak(name.as_str())).collect();
            code.dylib.lookup(&requests, RequiredState::Ready)?;
        }
    }

    /// Whether a version with these definitions has the required functions, and at least one function.
    fn is_complete(&self, names: &[Name], ready: &ReadyDefinitions) -> bool {
        let is_missing =
            |(name, found): (&Name, &Option<ReadyDefinition>)| found.is_none() && self.required.contains(name);
        ready.iter().any(Option::is_some) && !names.iter().zip(ready).any(is_missing)
    }

    /// Looks up those of the functions that the version defines, and its variables.
    #[cold]
    fn look_up_functions(&self, code: &VersionCode, names: &[Name]) -> Result<ReadyDefinitions> {
        let is_defined: SmallVec<[bool; 8]> =
            names.iter().map(|name| code.dylib.symbol_flags(name.as_str()).is_some()).collect();
        // A version must define the required functions, and at least one function.
        let has_none = !is_defined.contains(&true);
        let undefined = names.iter().zip(&is_defined).filter(|(_, is_defined)| !**is_defined).map(|(name, _)| name);
        let missing = undefined.filter(|name| has_none || self.required.contains(name));
        let missing: Vec<String> = missing.map(Name::to_string).collect();
        if !missing.is_empty() {
            let (needed_by, searched, failed) = (None, vec![code.dylib.name().to_string()], Vec::new());
            return Err(ErrorKind::SymbolsNotFound { symbols: missing, needed_by, searched, failed }.into());
        }
        let defined = names.iter().zip(&is_defined).filter(|(_, is_defined)| **is_defined).map(|(name, _)| name);
        let requests: SmallVec<[_; 4]> =
            defined.chain(code.variables.keys()).map(|name| SymbolRequest::required(name.as_str())).collect();
        let mut found = code.dylib.lookup(&requests, RequiredState::Ready)?.into_iter().map(ReadyDefinition::from);
        Ok(is_defined.iter().map(|is_defined| is_defined.then(|| found.next()).flatten()).collect())
    }

    /// Runs the initialisers and pins the version. `failures` is the number of failed objects before the first initialiser
    /// could run.
    fn initialize(&self, version: &mut UncommittedVersion, failures: usize) -> Result<()> {
        let jit = &self.patchable.jit.0;
        version.is_initializing = true;
        jit.run_pending(&version.code().dylib);
        version.is_initializing = false;
        // An initialiser may have ended the executor, which no initialiser can report here.
        self.patchable.jit.check_executor()?;
        let code = version.code_mut();
        let gone = match pin_functions(code) {
            Ok(pin) => {
                code.pin = Some(Arc::new(pin));
                return Ok(());
            }
            Err(name) => name,
        };
        Err(match jit.initializers.failures() != failures {
            true => removed_by_failed_initializer(&code.dylib, &gone),
            false => not_found(&code.dylib, &gone),
        })
    }
}

/// Pins the tracker of the functions. The error is the name of a function that is gone.
fn pin_functions(code: &VersionCode) -> std::result::Result<Pin, String> {
    let mut pin = None;
    for (name, function) in &code.functions {
        // One pin is enough, because the functions have one tracker.
        let is_there = match &pin {
            None => {
                pin = code.dylib.pin_ready(function.id);
                pin.is_some()
            }
            Some(_) => code.dylib.has_definition(function.id),
        };
        if !is_there {
            return Err(name.to_string());
        }
    }
    pin.ok_or_else(String::new)
}

impl PreparedPatch {
    /// The number of the version.
    pub fn version(&self) -> u64 {
        self.version.code().number
    }

    /// The address of a symbol of this version, hidden ones included.
    pub(in crate::jit) fn address_of(&self, name: &str) -> Result<ExecutorAddr> {
        self.version.code().dylib.lookup_address(name)
    }

    /// Looks up a function of this version, not through its stub. Use it to try the version before the commit. The handle
    /// keeps the version in memory, also after the version is dropped or replaced.
    ///
    /// # Errors
    /// [`ErrorKind::SymbolsNotFound`]. [`ErrorKind::InitializerFailed`] if the code was removed.
    ///
    /// # Safety
    /// - `name` is a function of signature and ABI `F`. If `F` is a safe type, every call of the function is sound.
    /// - Addresses that were given as numbers stay in memory, as [`Jit::lookup_in`](crate::Jit::lookup_in) says.
    pub unsafe fn lookup<F: FunctionPointer>(&self, name: &str) -> Result<Function<F>> {
        let jit = &self.patchable.jit;
        #[cfg(feature = "executor")]
        if jit.0.runs == Runs::Elsewhere {
            jit.check_type_elsewhere::<F>(name)?;
        }
        let dylib = &self.version.code().dylib;
        let found = dylib.lookup(&[SymbolRequest::required(name)], RequiredState::Ready)?.pop();
        let pin = found.as_ref().and_then(|found| jit.session().pin(found.symbol.as_ref()?));
        let (Some(found), Some(pin)) = (found, pin) else { return Err(removed_by_failed_initializer(dylib, name)) };
        #[cfg(feature = "executor")]
        if jit.0.runs == Runs::Elsewhere {
            // SAFETY: J1 - as below.
            return Ok(unsafe { jit.function_elsewhere(found.address, Some(pin)) });
        }
        // SAFETY: J1 - the caller promises that `name`, which is at `found.address`, is a function of type `F`. The handle
        // owns the pin of its tracker, so the code stays in memory as long as the handle. The caller of `link` promised
        // that the code may run.
        Ok(unsafe { Function::with_hold(found.address, Some(Arc::new(pin))) })
    }

    /// Redirects all callers to this version: one store for each function, one directly after the other. Then removes the
    /// versions that are neither current nor in the history, as [`ResourceTracker::remove`](crate::ResourceTracker::remove)
    /// does: code that a thread runs stays in memory until the thread leaves it.
    ///
    /// Commits of one [`Patchable`](crate::Patchable) run one at a time.
    ///
    /// # Errors
    /// [`ErrorKind::PatchRefused`]: the dylib has got a definition of one of the names, or another version has declared another
    /// signature. [`ErrorKind::PatchableGone`]. Then the version is removed, and no caller was redirected.
    pub fn commit(self) -> Result<Committed> {
        let PreparedPatch { patchable, version, signatures } = self;
        let (versions, number) = (&patchable.versions, version.code().number);
        versions.commit(&patchable.jit.0, version, signatures).map_err(|error| versions.refusal(number, error))
    }
}

/// Counts a link until it is dropped.
struct LinkInProgress<'a>(&'a Versions);

impl Drop for LinkInProgress<'_> {
    fn drop(&mut self) {
        self.0.end_link();
    }
}

fn not_patchable(versions: &Versions, name: &Name, problem: &'static str) -> Error {
    let (dylib, symbol) = (versions.dylib().name().to_string(), name.to_string());
    ErrorKind::NotPatchable { dylib, symbol, problem }.into()
}

impl fmt::Debug for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inputs: Vec<_> = self.inputs.iter().map(PatchInput::name).collect();
        write!(f, "patch of {:?} with {inputs:?}", self.patchable)
    }
}

impl fmt::Debug for PreparedPatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "prepared version {} of {:?}", self.version(), self.patchable)
    }
}
