//! [`Reloader`]: adds the objects of a program, and replaces them while it runs.
//!
//! | step of a reload | what can fail | what is undone |
//! |---|---|---|
//! | plan | a refusal | nothing was done |
//! | stubs of new functions | no memory | nothing was done |
//! | link | a missing symbol, a field that does not reach | the version and the new stubs are removed |
//! | publish new variables | the dylib has one of the names | as above |
//! | redirect, retire | nothing | – |

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

use rustc_hash::FxHashMap;

use crate::base::{ExecutorAddr, Name, ReentrantGuard, ReentrantLock};
use crate::error::{Error, ErrorKind, Result};
use crate::jit::inner::Jit;
use crate::jit::patching::publish_variables;
use crate::jit::reloading::reload::Reload;
use crate::jit::reloading::version::Version;
use crate::link::{Globals, LiveObject, ObjectBuffer, Plan, StubbedFunction, World, plan_first, plan_reload};
use crate::session::{JitDylib, Removal, RequiredState, ResourceTracker, SymbolRequest};
use crate::sync::Mutex;

/// A program whose objects are replaced while it runs, each as often as its source is edited.
///
/// Functions are reached through stubs, so callers follow at their next call. Variables keep their addresses and values, also
/// `static` ones. A reload that fails changes nothing. `docs/watch.md` has the table of what follows and what does not. The
/// command `jittison watch` does this with files.
///
/// ```
/// # const SCALE_1: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/scale_1.o"));
/// # const SCALE_2: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/scale_2.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// let program = jit.main_dylib().create_tracker()?;
/// let reloader = jittison::Reloader::new(&jit, &program)?;
/// reloader.add_object("scale.o", SCALE_1)?;
/// reloader.link()?;
/// // SAFETY: every version of `scale` has this signature, and the objects may run.
/// let scale = unsafe { jit.lookup::<extern "C" fn(i32) -> i32>("scale")? };
/// assert_eq!(scale.call(7), 7);
///
/// // SAFETY: as above, and the program keeps no address of a constant or of code.
/// let reload = unsafe { reloader.reload("scale.o", SCALE_2)? };
/// assert_eq!(reload.diff.changed, ["scale"]);
/// assert_eq!(scale.call(7), 702); // `calls` kept its value.
/// # Ok(()) }
/// ```
///
/// # Memory
/// A replaced version is removed, and freed when no call is in it, as a version of a [`Patchable`](crate::Patchable) is. These
/// versions stay until this is dropped: the first one; one that brought variables; one whose code may have registered exit
/// handlers; and the last version that had a function which is no longer defined. When this is dropped, the last versions
/// belong to the tracker of the program: they are freed with it.
///
/// # Limits
/// What is not counted as a call, for example a thread that linked code starts, must be inside a counted call: see
/// [`Patchable`](crate::Patchable).
pub struct Reloader {
    jit: Jit,
    home: JitDylib,
    /// Owns the objects and the stubs.
    program: ResourceTracker,
    /// Held by the thread that adds or reloads an object. It takes the state out meanwhile.
    lock: ReentrantLock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_linked: bool,
    objects: BTreeMap<String, LiveObject>,
    globals: Globals,
    /// The functions of the objects that were added, before the link.
    first: Vec<StubbedFunction>,
    /// For each stub, the version that it leads to. 0 is what was added.
    targets: BTreeMap<String, u64>,
    /// For each object, its newest version.
    newest: BTreeMap<String, u64>,
    versions: BTreeMap<u64, Version>,
    last_version: u64,
    /// Removed versions that may be in memory.
    retired: Vec<Removal>,
}

impl Reloader {
    /// A reloader for the objects of a program. They are added under `tracker`.
    ///
    /// # Errors
    /// The tracker is of another session, or the session has ended.
    pub fn new(jit: &Jit, tracker: &ResourceTracker) -> Result<Reloader> {
        jit.0.check_own(tracker.dylib_handle())?;
        // From the first such dylib on, calls are counted. A program that starts later is counted.
        let counts = jit.session().create_version_dylib("reloader")?;
        jit.session().remove_dylib(&counts)?;
        let (jit, home, program) = (jit.clone(), tracker.dylib(), tracker.clone());
        Ok(Reloader { jit, home, program, lock: ReentrantLock::new(), state: Mutex::new(State::default()) })
    }

    /// Adds an object of the program. Call it before [`link`](Self::link).
    ///
    /// # Errors
    /// As [`Jit::add_object`]; an object of this name was added already; the program is linked. Then nothing is added.
    pub fn add_object(&self, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<()> {
        self.add(name, &bytes.into()).map(drop)
    }

    /// As [`add_object`](Self::add_object). Returns the object as it is linked.
    ///
    /// # Errors
    /// As [`add_object`](Self::add_object).
    #[cfg(feature = "unstable")]
    pub fn add_changed(&self, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<ObjectBuffer> {
        self.add(name, &bytes.into())
    }

    fn add(&self, name: &str, bytes: &ObjectBuffer) -> Result<ObjectBuffer> {
        let mut taken = self.take_state()?;
        let state = &mut taken.state;
        if state.is_linked || state.objects.contains_key(name) {
            return Err(refused(name, name, "objects are added once, before the program is linked"));
        }
        let plan = self.with_world(state, name, |world| plan_first(name, bytes, world))?;
        let new = self.create_stubs(state, &plan)?;
        if let Err(error) = self.jit.add_object(&self.program, name, plan.object.clone()) {
            drop(new.map(|stubs| stubs.remove()));
            return Err(error);
        }
        if let Some(stubs) = new {
            stubs.transfer_to(&self.program)?;
        }
        state.targets.extend(plan.functions.iter().map(|function| (function.stub.clone(), 0)));
        state.first.extend(plan.functions);
        state.globals.extend(plan.globals);
        state.objects.insert(name.to_string(), plan.live);
        Ok(plan.object)
    }

    /// Links the objects that were added, and lets the stubs lead to their functions. No code runs: initialisers run when the
    /// program starts, or with the first [lookup](Jit::lookup).
    ///
    /// # Errors
    /// That of a link.
    pub fn link(&self) -> Result<()> {
        let mut taken = self.take_state()?;
        let first = std::mem::take(&mut taken.state.first);
        let redirects = match self.find_code(&self.home, &first) {
            Ok(redirects) => redirects,
            Err(error) => {
                taken.state.first = first;
                return Err(error);
            }
        };
        self.redirect(&redirects)?;
        taken.state.is_linked = true;
        Ok(())
    }

    /// The names of the objects, sorted.
    pub fn objects(&self) -> Vec<String> {
        let Ok(taken) = self.take_state() else { return Vec::new() };
        taken.state.objects.keys().cloned().collect()
    }

    /// Replaces an object: links it beside the running program, then lets all stubs of its functions lead to it, one store for
    /// each, one directly after the other.
    ///
    /// Initialisers and finalisers of the new version do not run. Variables that it brings have the values of the object. Members
    /// of archives that it is the first to need are linked and initialised.
    ///
    /// # Errors
    /// [`ErrorKind::ReloadRefused`] with the name of what cannot follow. The errors of a link, for example a missing symbol. In
    /// all cases nothing was changed.
    ///
    /// # Safety
    /// - The objects may run, and each function has the signature and ABI with which running code calls it.
    /// - Running code does not rely on what its compiler knew of the replaced functions beyond that: compile with `-fPIC`, and
    ///   with `-flive-patching` where gcc optimises.
    /// - The program uses no address of code or of a constant of a version that was freed. A version is not freed while a call
    ///   that began before its replacement is active, such as that of `main`.
    pub unsafe fn reload(&self, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<Reload> {
        self.jit.0.check_can_run()?;
        let (started, bytes) = (Instant::now(), bytes.into());
        let mut taken = self.take_state()?;
        let state = &mut taken.state;
        let before = state.objects.get(name).filter(|_| state.is_linked);
        let before = before.ok_or_else(|| refused(name, name, "no object of this name was added and linked"))?;
        let number = state.last_version + 1;
        let plan = self.with_world(state, name, |world| plan_reload(name, &bytes, number, before, world))?;
        let plan = plan.map_err(|refusal| refused(name, &refusal.symbol, &refusal.problem))?;
        let mut reload = Reload {
            object: name.to_string(),
            version: state.newest.get(name).copied().unwrap_or(0),
            code_bytes_before: before.code_bytes(),
            code_bytes: plan.live.code_bytes(),
            diff: plan.diff.clone(),
            stays: plan.stays,
            retired: Vec::new(),
            retired_in_memory: 0,
            read_time: started.elapsed(),
            link_time: Default::default(),
            commit_time: Default::default(),
        };
        if !reload.diff.is_empty() {
            state.last_version = number;
            let linked = Instant::now();
            let new_stubs = self.create_stubs(state, &plan)?;
            let undo = |error| {
                drop(new_stubs.as_ref().map(ResourceTracker::remove));
                error
            };
            let (version, redirects) = self.link_version(name, number, &plan).map_err(undo)?;
            let committed = Instant::now();
            reload.link_time = committed - linked;
            reload.version = number;
            self.redirect(&redirects).map_err(undo)?;
            if let Some(stubs) = &new_stubs {
                // The tracker of the program owns the stubs from here on. If it was removed, this tracker keeps them.
                let _ = stubs.transfer_to(&self.program);
            }
            reload.retired = self.commit(state, name, number, version, plan);
            reload.commit_time = committed.elapsed();
        }
        state.retired.retain(|removal| !removal.is_complete());
        reload.retired_in_memory = state.retired.len();
        Ok(reload)
    }

    /// Links a version beside the program. Returns where its stubs have to lead.
    fn link_version(&self, name: &str, number: u64, plan: &Plan) -> Result<(Version, Redirects)> {
        let jit = &self.jit.0;
        let mut version = Version::new(jit, &self.home, name, number)?;
        jit.layer.link(version.tracker(), name, plan.object.clone())?;
        // Of archive members that only this version needs.
        jit.run_pending(&self.home);
        let redirects = self.find_code(&version.dylib, &plan.functions)?;
        if let Some(name) = plan.functions.first().map(|f| &f.code).or(plan.variables.first().map(|(name, _)| name)) {
            version.pin_by(&Name::new(name));
        }
        if !plan.variables.is_empty() {
            let variables: FxHashMap<Name, u64> =
                plan.variables.iter().map(|(name, size)| (Name::new(name), *size)).collect();
            version.variables = Some(publish_variables(&self.home, &version.dylib, &variables)?);
        }
        version.stays = plan.stays;
        Ok((version, redirects))
    }

    /// Records a version to which all stubs lead, and removes those to which none leads any more.
    fn commit(&self, state: &mut State, name: &str, number: u64, mut version: Version, plan: Plan) -> Vec<Removal> {
        version.commit();
        state.targets.extend(plan.functions.into_iter().map(|function| (function.stub, number)));
        state.globals.extend(plan.globals);
        state.objects.insert(name.to_string(), plan.live);
        state.newest.insert(name.to_string(), number);
        state.versions.insert(number, version);
        let needed: BTreeSet<u64> = state.targets.values().chain(state.newest.values()).copied().collect();
        let is_unneeded = |number: &u64, version: &Version| !version.stays && !needed.contains(number);
        let unneeded: Vec<u64> =
            state.versions.iter().filter(|(n, version)| is_unneeded(n, version)).map(|(n, _)| *n).collect();
        let versions = unneeded.iter().filter_map(|number| state.versions.remove(number));
        let retired: Vec<Removal> = versions.filter_map(|version| version.retire(None)).collect();
        state.retired.extend(retired.iter().cloned());
        retired
    }

    /// Makes stubs for the functions of a plan that have none. They lead nowhere yet, and nothing calls them.
    fn create_stubs(&self, state: &State, plan: &Plan) -> Result<Option<ResourceTracker>> {
        let names: BTreeSet<&str> = plan.functions.iter().map(|function| function.stub.as_str()).collect();
        let new: Vec<(&str, ExecutorAddr)> = names
            .into_iter()
            .filter(|name| !state.targets.contains_key(*name))
            .map(|name| (name, ExecutorAddr::new(0)))
            .collect();
        if new.is_empty() {
            return Ok(None);
        }
        let tracker = self.home.create_tracker()?;
        match self.jit.0.stubs.create(&tracker, &new) {
            Ok(()) => Ok(Some(tracker)),
            Err(error) => {
                drop(tracker.remove());
                Err(error)
            }
        }
    }

    /// The addresses of functions in a dylib.
    fn find_code(&self, dylib: &JitDylib, functions: &[StubbedFunction]) -> Result<Redirects> {
        let requests: Vec<_> = functions.iter().map(|function| SymbolRequest::required(&function.code)).collect();
        let found = dylib.lookup(&requests, RequiredState::Ready)?;
        Ok(functions.iter().zip(found).map(|(function, found)| (function.stub.clone(), found.address)).collect())
    }

    /// Redirects stubs. If one of them is gone, none is redirected.
    fn redirect(&self, redirects: &Redirects) -> Result<()> {
        let stubs = &self.jit.0.stubs;
        let found: Vec<_> = redirects.iter().map(|(stub, _)| stubs.find(&self.home, stub)).collect::<Result<_>>()?;
        found.iter().zip(redirects).for_each(|(stub, (_, target))| stub.redirect(*target));
        Ok(())
    }

    fn with_world<R>(&self, state: &State, object: &str, plan: impl FnOnce(&World<'_>) -> R) -> R {
        let others = |name: &str| state.objects.iter().any(|(other, live)| other != object && live.requires(name));
        plan(&World {
            globals: &state.globals,
            has_stub: &|name| state.targets.contains_key(name),
            is_defined: &|name| self.home.symbol_flags(name).is_some(),
            is_required: &others,
        })
    }

    /// Takes the state, until the result is dropped.
    ///
    /// # Errors
    /// This thread has the state already: an observer or a resource manager called back.
    fn take_state(&self) -> Result<TakenState<'_>> {
        let guard = self.lock.lock();
        if guard.is_nested() {
            return Err(Error::other("a reload is in progress on this thread; call the reloader after it"));
        }
        let state = std::mem::take(&mut *self.state.lock());
        Ok(TakenState { reloader: self, state, _guard: guard })
    }
}

/// For each stub, its new target.
type Redirects = Vec<(String, ExecutorAddr)>;

/// The state, and the lock that makes this thread its owner.
struct TakenState<'a> {
    reloader: &'a Reloader,
    state: State,
    _guard: ReentrantGuard<'a>,
}

impl Drop for TakenState<'_> {
    fn drop(&mut self) {
        *self.reloader.state.lock() = std::mem::take(&mut self.state);
    }
}

impl Drop for Reloader {
    /// The last versions belong to the program from here on: its tracker, whose stubs lead to them, keeps them.
    fn drop(&mut self) {
        let state = std::mem::take(&mut *self.state.lock());
        let program = self.program.watch().pin();
        state.versions.into_values().for_each(|version| drop(version.retire(program.as_ref())));
    }
}

fn refused(object: &str, symbol: &str, problem: &str) -> Error {
    let (object, symbol, problem) = (object.to_string(), symbol.to_string(), problem.to_string());
    ErrorKind::ReloadRefused { object, symbol, problem }.into()
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").field("home", &self.home).finish_non_exhaustive()
    }
}
