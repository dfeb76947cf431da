//! [`Reloader`]: adds the objects of a program, and replaces them while it runs.
//!
//! | step of a reload | what can fail | what is undone |
//! |---|---|---|
//! | plan | a refusal | nothing was done |
//! | stubs of new functions | no memory | nothing was done |
//! | link | a missing symbol, a field that does not reach | the versions and the new stubs are removed |
//! | publish new variables | the dylib has one of the names | as above |
//! | call the hooks that move variables | an exception, the end of the executor | as above; what a hook wrote elsewhere stays |
//! | redirect, retire | nothing | – |

use std::fmt;
use std::time::{Duration, Instant};

use crate::base::{Name, ReentrantGuard, ReentrantLock};
use crate::error::{Error, Result};
use crate::jit::inner::Jit;
use crate::jit::reload_points::{ReloadPoints, VersionCode};
use crate::jit::reloading::home::Home;
use crate::jit::reloading::native::NativeObjects;
use crate::jit::reloading::object_version::ObjectVersion;
use crate::jit::reloading::reload::Reload;
use crate::jit::reloading::state::{Extent, PlannedVersion, State, refused};
use crate::link::{ObjectBuffer, object_of_code};
use crate::session::{ResourceTracker, SymbolFlags};
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
/// handlers; and the last version that had a function which is no longer defined. The version that brought the value of a
/// constant which other objects may read stays as long as the constant has this value. When this is dropped, the last versions
/// belong to the tracker of the program: they are freed with it.
///
/// # Limits
/// Threads that linked code starts by `pthread_create`, `thrd_create`, `std::thread` or the standard library of Rust are counted as
/// calls, from the first reloader of the session on. What else is not counted, for example a thread that a library starts, must be
/// inside a counted call: see [`Patchable`](crate::Patchable).
///
/// # Reload points
/// Linked code that never returns calls `int jittison_reload_point(void)`, which the process dylib has from the first reloader on. There
/// a thread relies on the versions of its stack only, so others are freed. The result says whether the object of the caller was
/// replaced. `docs/watch.md` has what linked code promises. Nothing is freed in a session that also has a
/// [`Patchable`](crate::Patchable), or whose code runs in another process.
///
/// # Types
/// Of objects of C, C++ and Rust with debug information, types are compared: a reload is refused if a layout changed. A function with
/// other types is another one: new callers reach it, and old ones go on with the old one. `docs/watch.md` says how to compile.
pub struct Reloader {
    home: Home,
    /// Held by the thread that adds or reloads an object. It takes the state out meanwhile.
    lock: ReentrantLock,
    state: Mutex<State>,
    natives: Mutex<NativeObjects>,
}

impl Reloader {
    /// A reloader for the objects of a program. They are added under `tracker`.
    ///
    /// # Errors
    /// The tracker is of another session, or the session has ended.
    pub fn new(jit: &Jit, tracker: &ResourceTracker) -> Result<Reloader> {
        jit.0.check_own(tracker.dylib_handle())?;
        // From the first such dylib on, calls are counted. A program that starts later is counted.
        let counts = jit.session().create_reloaded_dylib("reloader")?;
        jit.session().remove_dylib(&counts)?;
        jit.0.reload_points.get_or_init(|| ReloadPoints::register(jit.session()));
        define_reload_functions(jit)?;
        let home = Home { jit: jit.clone(), dylib: tracker.dylib(), program: tracker.clone() };
        let (state, natives) = (Mutex::new(State::default()), Mutex::new(NativeObjects::default()));
        Ok(Reloader { home, lock: ReentrantLock::new(), state, natives })
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
        let (state, home) = (&mut taken.state, &self.home);
        let plan = state.plan_first(&home.dylib, name, bytes)?;
        let stubs = home.create_stubs(state, std::iter::once(&plan))?;
        home.jit.add_object(&home.program, name, plan.object.clone())?;
        stubs.keep(&home.program)?;
        let object = plan.object.clone();
        state.add(name, plan);
        Ok(object)
    }

    /// Adds an object that the running executable was linked from. Nothing of it is linked: its functions and variables are found in the
    /// executable by their names. Call it before [`link`](Self::link).
    ///
    /// A reload of the object hooks the entries of its functions, so code of the executable calls the new ones, too. For this,
    /// the executable is compiled with `-fpatchable-function-entry=114,112`, and not stripped. From the first such reload on, the session
    /// stays in memory until the process ends, and no version is freed: nobody knows when a thread has left one. (The library for
    /// `LD_PRELOAD` counts the threads, so there versions are freed.)
    /// `docs/watch.md` says what follows. x86-64 only.
    ///
    /// # Errors
    /// The executable was stripped, or linked from another object; its code cannot be changed. As [`add_object`](Self::add_object).
    pub fn add_native_object(&self, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<()> {
        self.home.jit.0.check_runs_here()?;
        let bytes = bytes.into();
        let mut taken = self.take_state()?;
        let TakenState { state, natives, .. } = &mut taken;
        let image = natives.image(&self.home)?;
        let native = state.plan_native(&self.home.dylib, name, &bytes)?;
        let functions = natives.add(&self.home, name, (&image, &native))?;
        state.add_native(name, native.plan, functions);
        Ok(())
    }

    /// Links the objects that were added, and lets the stubs lead to their functions. No code runs: initialisers run when the
    /// program starts, or with the first [lookup](Jit::lookup).
    ///
    /// # Errors
    /// That of a link.
    pub fn link(&self) -> Result<()> {
        let mut taken = self.take_state()?;
        let first = std::mem::take(&mut taken.state.first);
        let redirects = match self.home.find_code(&self.home.dylib, &first) {
            Ok(redirects) => redirects,
            Err(error) => {
                taken.state.first = first;
                return Err(error);
            }
        };
        self.home.redirect(&redirects)?;
        taken.state.is_linked = true;
        self.points().add_first(self.home.code_of_program(taken.state.objects.keys()));
        Ok(())
    }

    /// The names of the objects, sorted.
    pub fn objects(&self) -> Vec<String> {
        let Ok(taken) = self.take_state() else { return Vec::new() };
        taken.state.objects.keys().cloned().collect()
    }

    /// The versions that are in memory: for each object the one that runs, by name; then the replaced ones with what keeps them,
    /// newest first. Waits for a reload of another thread. Empty during a reload of this thread.
    pub fn versions(&self) -> Vec<ObjectVersion> {
        self.take_state().map(|taken| taken.state.list()).unwrap_or_default()
    }

    /// Replaces an object: links it beside the running program, then lets all stubs of its functions lead to it, one store for
    /// each, one directly after the other.
    ///
    /// A `static` variable `x` whose layout changed gets a new place if the version adds or changes a function
    /// `void jittison_migrate_x(void *new, const void *old, size_t old_size)`. It is called before the stubs are redirected; what
    /// other threads write into the old variable from then on is lost.
    ///
    /// Initialisers and finalisers of the new version do not run. Variables that it brings have the values of the object. Members
    /// of archives that it is the first to need are linked and initialised.
    ///
    /// # Errors
    /// [`ErrorKind::ReloadRefused`](crate::ErrorKind::ReloadRefused) with the name of what cannot follow. The errors of a link,
    /// for example a missing symbol. In all cases nothing was changed.
    ///
    /// # Safety
    /// - The objects may run, and each function has the signature and ABI with which running code calls it.
    /// - Running code does not rely on what its compiler knew of the replaced functions beyond that: compile with `-fPIC`, and
    ///   with `-flive-patching` where gcc optimises.
    /// - The program uses no address of code or of a constant of a version that was freed. A version is not freed while a call
    ///   that began before its replacement is active, such as that of `main`, unless the call has passed a reload point outside of it.
    pub unsafe fn reload(&self, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<Reload> {
        // SAFETY: J1 - the caller promises it.
        let reloads = unsafe { self.reload_all([(name, bytes)])? };
        one_of(reloads)
    }

    /// Replaces several objects as one: either all of them follow, or none. They may need each other's new functions, variables
    /// and constants. Returns what was done with each, in the order in which they were given.
    ///
    /// All of them are linked before the first stub is redirected. A thread that runs meanwhile may still call a replaced function
    /// after a new one, as long as the stores take.
    ///
    /// # Errors
    /// As [`reload`](Self::reload); an object is given twice; two of them define one name. In all cases nothing was changed.
    ///
    /// # Safety
    /// As [`reload`](Self::reload), for all objects.
    pub unsafe fn reload_all<'a, B: Into<ObjectBuffer>>(
        &self,
        objects: impl IntoIterator<Item = (&'a str, B)>,
    ) -> Result<Vec<Reload>> {
        self.home.jit.0.check_can_run()?;
        let objects: Vec<(&str, ObjectBuffer)> =
            objects.into_iter().map(|(name, bytes)| (name, bytes.into())).collect();
        let mut taken = self.take_state()?;
        self.replace(&mut taken, &objects, Extent::Whole)
    }

    /// Replaces some functions of an object: those that `bytes`, an object, defines. The others stay as they are. The functions may use
    /// variables of the object, as in [`reload`](Self::reload), and bring constants and `static` functions of their own.
    ///
    /// # Errors
    /// As [`reload`](Self::reload).
    ///
    /// # Safety
    /// As [`reload`](Self::reload).
    pub unsafe fn reload_functions(&self, name: &str, bytes: impl Into<ObjectBuffer>) -> Result<Reload> {
        self.home.jit.0.check_can_run()?;
        let mut taken = self.take_state()?;
        let reloads = self.replace(&mut taken, &[(name, bytes.into())], Extent::Part)?;
        one_of(reloads)
    }

    /// Replaces a global function by machine code. The code refers to nothing outside of itself, and has no unwind information, so no
    /// exception passes it, and backtraces end there. For all else give an object to [`reload_functions`](Self::reload_functions).
    ///
    /// ```
    /// # const SCALE_1: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/scale_1.o"));
    /// # fn main() -> Result<(), jittison::Error> {
    /// # let jit = jittison::Jit::new()?;
    /// # let program = jit.main_dylib().create_tracker()?;
    /// # let reloader = jittison::Reloader::new(&jit, &program)?;
    /// # reloader.add_object("scale.o", SCALE_1)?;
    /// # reloader.link()?;
    /// // SAFETY: `scale` has this signature, as an object and as machine code.
    /// let scale = unsafe { jit.lookup::<extern "C" fn(i32) -> i32>("scale")? };
    /// assert_eq!(scale.call(7), 7);
    /// // x86-64: lea eax, [rdi + rdi]; ret
    /// unsafe { reloader.replace_function("scale", &[0x8d, 0x04, 0x3f, 0xc3])? };
    /// assert_eq!(scale.call(7), 14);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// No object has a global function of this name; `code` is empty; as [`reload`](Self::reload).
    ///
    /// # Safety
    /// As [`reload`](Self::reload). `code` is a whole function of the session's architecture, from its entry on.
    pub unsafe fn replace_function(&self, function: &str, code: &[u8]) -> Result<Reload> {
        self.home.jit.0.check_can_run()?;
        let mut taken = self.take_state()?;
        let (object, is_strong) = taken.state.object_of_function(function)?;
        if code.is_empty() {
            return Err(refused(object, function, "there is no code for it"));
        }
        let (object, machine) = (object.to_string(), self.home.jit.0.executor.arch().e_machine());
        let bytes = object_of_code(machine, function, is_strong, code);
        let reloads = self.replace(&mut taken, &[(&object, bytes.into())], Extent::Part)?;
        one_of(reloads)
    }

    /// Replaces objects, or parts of them, as one.
    fn replace(
        &self,
        taken: &mut TakenState<'_>,
        objects: &[(&str, ObjectBuffer)],
        extent: Extent,
    ) -> Result<Vec<Reload>> {
        let started = Instant::now();
        let TakenState { state, natives, .. } = taken;
        state.keeps_all = state.is_native && !self.home.jit.0.executor.counts_native_threads();
        let planned = state.plan(&self.home.dylib, objects, extent)?;
        planned.iter().try_for_each(|new| natives.check(&new.object, &new.plan))?;
        let mut reloads: Vec<Reload> = planned.iter().map(|new| describe(state, new)).collect();
        let new: Vec<PlannedVersion> = planned.into_iter().filter(|new| new.is_linked).collect();
        let mut times = [started.elapsed(), Duration::ZERO, Duration::ZERO];
        if !new.is_empty() {
            let started = Instant::now();
            state.take_numbers(&new);
            let mut linked = self.home.link(state, &new)?;
            natives.hook(&self.home, &new[0].object, &linked.redirects)?;
            self.home.move_variables(&new, &linked)?;
            times[1] = started.elapsed();
            self.home.redirect(&natives.by_stub(std::mem::take(&mut linked.redirects)))?;
            // The tracker of the program owns the stubs from here on. If it was removed, their own tracker keeps them.
            let _ = linked.stubs.keep(&self.home.program);
            let code = linked.versions.iter().flat_map(|version| version.code(&self.home.jit.0));
            let code: Vec<VersionCode> = code.collect();
            new.into_iter().zip(linked.versions).for_each(|(new, version)| state.commit(new, version));
            let retired = state.retire_unneeded();
            self.points().replace(code);
            if let Some(first) = reloads.iter_mut().find(|reload| !reload.diff.is_empty()) {
                first.retired = retired;
            }
            times[2] = started.elapsed() - times[1];
        }
        let retired_in_memory = state.retired_in_memory();
        for reload in &mut reloads {
            [reload.read_time, reload.link_time, reload.commit_time] = times;
            reload.retired_in_memory = retired_in_memory;
        }
        Ok(reloads)
    }

    fn points(&self) -> &ReloadPoints {
        self.home.jit.0.reload_points.get().expect("`new` has set them")
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
        let natives = std::mem::take(&mut *self.natives.lock());
        Ok(TakenState { reloader: self, state, natives, _guard: guard })
    }
}

/// Defines the functions by which the program passes reload points and starts threads.
fn define_reload_functions(jit: &Jit) -> Result<()> {
    // Weak: an object may define a function of its own, and an earlier reloader may have defined these.
    let flags = SymbolFlags::EXPORTED | SymbolFlags::WEAK | SymbolFlags::CALLABLE;
    let functions = jit.0.executor.reload_functions(ReloadPoints::hooks());
    jit.0.process_symbols.replace(&functions.in_place);
    jit.process_dylib()
        .define_absolute(functions.added.into_iter().map(|(name, address)| (Name::new(name), address, flags)))
}

/// The state, and the lock that makes this thread its owner.
struct TakenState<'a> {
    reloader: &'a Reloader,
    state: State,
    natives: NativeObjects,
    _guard: ReentrantGuard<'a>,
}

impl Drop for TakenState<'_> {
    fn drop(&mut self) {
        *self.reloader.state.lock() = std::mem::take(&mut self.state);
        *self.reloader.natives.lock() = std::mem::take(&mut self.natives);
    }
}

impl Drop for Reloader {
    /// The last versions belong to the program from here on: its tracker, whose stubs lead to them, keeps them. With objects of the
    /// executable, all of it stays.
    fn drop(&mut self) {
        let state = std::mem::take(&mut *self.state.lock());
        let program = self.home.program.watch().pin();
        if state.is_native {
            // Entries of the executable lead to the stubs and to the versions.
            return std::mem::forget((state, program, self.home.jit.clone()));
        }
        state.versions.into_values().for_each(|version| drop(version.retire(program.as_ref())));
    }
}

fn one_of(reloads: Vec<Reload>) -> Result<Reload> {
    reloads.into_iter().next().ok_or_else(|| Error::other("a reload has a result for each object"))
}

/// What a planned version will have done.
fn describe(state: &State, new: &PlannedVersion) -> Reload {
    let before = state.running_version(&new.object);
    Reload {
        object: new.object.clone(),
        version: if new.is_linked { new.number } else { before },
        code_bytes_before: state.objects.get(&new.object).map_or(0, |live| live.code_bytes()),
        code_bytes: new.plan.live.code_bytes(),
        diff: new.plan.diff.clone(),
        stays: new.plan.stays,
        retired: Vec::new(),
        retired_in_memory: 0,
        read_time: Duration::ZERO,
        link_time: Duration::ZERO,
        commit_time: Duration::ZERO,
    }
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").field("home", &self.home.dylib).finish_non_exhaustive()
    }
}
