//! [`KeepAlive`]: keeps what stubs lead to for as long as code may reach it: functions of linked code, and callbacks of Python.
//!
//! A stub that is made from Python has a tracker of its own, in a dylib that no code searches. The name that the program
//! defines is an alias of it. So code that refers to the name depends on the stub's tracker, which is reclaimed after all of
//! that code: after its finalisers ran, which may still call the stub.
//!
//! | key of | owns | until |
//! |---|---|---|
//! | any tracker | functions of Python that hear of its end | it is reclaimed; then they are called, the newest first |
//! | the program's tracker | the owners of the stubs' trackers | the program's tracker is reclaimed; then they are removed |
//! | a stub's tracker | the present target | nothing refers to the stub |
//! | a tracker of a replaced target | that target | the calls that were entered before the redirect have returned |
//!
//! The last kind lives in a dylib for versions, whose trackers wait for calls. Every call from Python is entered (`call.rs`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jittison::base::{ExecutorAddr, Name};
use jittison::session::{Alias, SymbolFlags};
use jittison::{Error, Jit, JitDylib, OwningTracker, ResourceKey, ResourceManager, ResourceTracker};
use pyo3::prelude::*;

use crate::function::Code;
use crate::interpreter::with_interpreter;

/// What a stub leads to, and what keeps that in memory.
pub(crate) enum Target {
    /// The program promises that the address stays (P1).
    Address,
    Function(#[expect(dead_code, reason = "it is only held")] Code),
    /// An object of Python: a callback of ctypes or cffi.
    Object(#[expect(dead_code, reason = "it is only held")] Py<PyAny>),
}

enum Held {
    Stub(#[expect(dead_code, reason = "it is only held")] OwningTracker),
    /// A target, and the name of its stub.
    Target(String, Target),
    /// A function of Python that is called when the tracker is reclaimed.
    Hook(#[expect(dead_code, reason = "its drop calls it")] Hook),
}

/// Calls a function of Python when it is dropped.
struct Hook(Option<Py<PyAny>>);

impl Drop for Hook {
    fn drop(&mut self) {
        let Some(function) = self.0.take() else { return };
        with_interpreter(|py| {
            if let Err(raised) = function.call0(py) {
                raised.write_unraisable(py, Some(function.bind(py)));
            }
        });
    }
}

/// A resource manager that owns what stubs lead to.
#[derive(Default)]
pub(crate) struct KeepAlive {
    held: Mutex<HashMap<ResourceKey, Vec<Held>>>,
}

impl KeepAlive {
    fn lock(&self) -> MutexGuard<'_, HashMap<ResourceKey, Vec<Held>>> {
        // No code that may panic runs under the lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records `held` under a tracker. If the tracker is defunct, drops it.
    fn record(&self, tracker: &ResourceTracker, held: Held) -> Result<(), Error> {
        let mut held = Some(held);
        tracker.with_resource_key(|key| self.lock().entry(key).or_default().extend(held.take()))
    }

    /// Puts another target in the place of the one under `tracker`.
    fn replace(&self, tracker: &ResourceTracker, target: Target) -> Option<Held> {
        let mut all = self.lock();
        let place = all.get_mut(&tracker.key())?.iter_mut().find_map(|held| match held {
            Held::Target(name, old) => Some((name.clone(), old)),
            Held::Stub(_) | Held::Hook(_) => None,
        });
        place.map(|(name, old)| Held::Target(name, std::mem::replace(old, target)))
    }

    /// The names of the stubs that lead to objects of Python.
    fn stubs_of_objects(&self) -> Vec<String> {
        let all = self.lock();
        let name = |held: &Held| match held {
            Held::Target(name, Target::Object(_)) => Some(name.clone()),
            _ => None,
        };
        all.values().flatten().filter_map(name).collect()
    }
}

impl ResourceManager for KeepAlive {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<(), Error> {
        let held = self.lock().remove(&key);
        // Not under the lock: this removes the trackers of stubs, drops handles, and calls Python.
        held.into_iter().flatten().rev().for_each(drop);
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn transfer_resources(&self, _: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        let mut all = self.lock();
        if let Some(held) = all.remove(&source) {
            all.entry(destination).or_default().extend(held);
        }
    }
}

/// The names of the dylibs that only hold stubs and targets.
const OWN_DYLIBS: [&str; 2] = ["stubs of Python", "replaced targets of Python"];

/// The stubs that a session has from Python.
pub(crate) struct Stubs {
    keep_alive: Arc<KeepAlive>,
    /// The dylib of the stubs. No link order has it.
    dylib: JitDylib,
    /// The dylib of replaced targets. The first redirect or stub makes it.
    replaced: Mutex<Option<JitDylib>>,
    /// Makes the names of stubs unique. Held during a redirect, so that the last of two is also the one that is kept.
    count: Mutex<u64>,
}

/// A stub: where it is, and its tracker.
pub(crate) struct StubPlace {
    pub(crate) tracker: ResourceTracker,
    pub(crate) stub: jittison::Stub,
}

impl Stubs {
    pub(crate) fn new(jit: &Jit) -> Result<Stubs, Error> {
        let keep_alive = Arc::new(KeepAlive::default());
        jit.session().register_manager(keep_alive.clone());
        let dylib = jit.session().create_dylib(OWN_DYLIBS[0])?;
        Ok(Stubs { keep_alive, dylib, replaced: Mutex::new(None), count: Mutex::new(0) })
    }

    /// The dylibs that only hold stubs and targets.
    pub(crate) fn is_own(&self, dylib: &JitDylib) -> bool {
        *dylib == self.dylib || self.lock_replaced().as_ref() == Some(dylib)
    }

    /// Whether it is the name of one of them.
    pub(crate) fn is_own_name(name: &str) -> bool {
        OWN_DYLIBS.contains(&name)
    }

    /// Calls a function of Python when what a tracker owns is freed, before its finalisers run.
    pub(crate) fn on_reclaim(&self, tracker: &ResourceTracker, function: Py<PyAny>) -> Result<(), Error> {
        let mut hook = Hook(Some(function));
        let recorded = tracker.with_resource_key(|key| {
            self.keep_alive.lock().entry(key).or_default().push(Held::Hook(Hook(hook.0.take())));
        });
        // A tracker that is defunct has no record: the function is not called.
        hook.0 = None;
        recorded
    }

    fn lock_replaced(&self) -> MutexGuard<'_, Option<JitDylib>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_count(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replaced_dylib(&self, jit: &Jit) -> Result<JitDylib, Error> {
        let mut replaced = self.lock_replaced();
        if let Some(dylib) = &*replaced {
            return Ok(dylib.clone());
        }
        let dylib = jit.session().create_version_dylib(OWN_DYLIBS[1])?;
        Ok(replaced.insert(dylib).clone())
    }

    /// Defines `name` under `tracker` as a stub that leads to `address`, and keeps `target`.
    pub(crate) fn create(
        &self,
        jit: &Jit,
        tracker: &ResourceTracker,
        name: &str,
        address: ExecutorAddr,
        target: Target,
    ) -> Result<StubPlace, Error> {
        // Calls that begin after this are entered by the Rust crate too.
        self.replaced_dylib(jit)?;
        let unique = {
            let mut count = self.lock_count();
            *count += 1;
            format!("{name}#{count}")
        };
        let own = self.dylib.create_tracker()?.remove_on_drop();
        jit.create_stub(&own, &unique, address)?;
        self.keep_alive.record(&own, Held::Target(unique.clone(), target))?;
        let stub = jit.stub(&self.dylib, &unique)?;
        let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE;
        tracker.reexport(&self.dylib, &[Alias { name: Name::new(name), aliasee: Name::new(&unique), flags }])?;
        let place = StubPlace { tracker: ResourceTracker::clone(&own), stub };
        self.keep_alive.record(tracker, Held::Stub(own))?;
        Ok(place)
    }

    /// Redirects a stub. The target that it had is kept until the calls that may be inside it have returned.
    pub(crate) fn redirect(
        &self,
        jit: &Jit,
        place: &StubPlace,
        address: ExecutorAddr,
        target: Target,
    ) -> Result<(), Error> {
        let replaced = self.replaced_dylib(jit)?.create_tracker()?.remove_on_drop();
        let old = {
            let _one_at_a_time = self.lock_count();
            let Some(old) = self.keep_alive.replace(&place.tracker, target) else {
                return Err(Error::other("the stub has no record: its tracker was reclaimed by force"));
            };
            // SAFETY: P1 - the program promises the signature. The record above keeps the target.
            unsafe { place.stub.redirect(address) };
            old
        };
        // The drop of `replaced` removes the tracker, which waits for the calls that are entered.
        self.keep_alive.record(&replaced, old)
    }

    /// Redirects every stub that leads to an object of Python to `address`, which is never freed. Returns their number.
    pub(crate) fn redirect_objects(&self, jit: &Jit, address: ExecutorAddr) -> usize {
        let names = self.keep_alive.stubs_of_objects();
        // SAFETY: P1 - the caller passes a function that takes any arguments.
        let redirect = |name: &String| unsafe { jit.redirect_stub(&self.dylib, name, address) }.is_ok();
        names.iter().filter(|name| redirect(name)).count()
    }

    /// The number of trackers that own stubs or targets.
    pub(crate) fn key_count(&self) -> usize {
        self.keep_alive.lock().len()
    }
}
