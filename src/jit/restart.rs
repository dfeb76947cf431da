//! [`Jit::restart`]: the objects of a session in another executor.
//!
//! A session holds addresses of its executor everywhere: in symbols, stubs and code. So a restart builds a second session with the same
//! settings, and fills it:
//!
//! | step | from |
//! |---|---|
//! | settings | the builder of the first session |
//! | functions, aliases, stubs, generators | the caller's `set_up` |
//! | dylibs and their link orders | the dylibs that have objects or archives, and those that they link against |
//! | archives | the static libraries of each dylib |
//! | objects under trackers | [`SessionInputs`](crate::jit::session_inputs::SessionInputs), in the order in which they were added |
//! | links | one lookup for each dylib, of the objects that were linked |

use std::collections::HashMap;
use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::Name;
use crate::error::{Error, Result};
use crate::executor::ExecutorProcess;
use crate::jit::inner::Jit;
use crate::jit::session_inputs::{InputSource, SessionInput};
use crate::link::ObjectInterface;
use crate::session::{JitDylib, RequiredState, ResourceKey, ResourceTracker, SymbolRequest, SymbolState};

/// A session that has the objects of another one ([`Jit::restart`]).
///
/// A drop of this value transfers what is under its trackers to the default trackers, unless the caller has handles to them.
pub struct Restarted {
    jit: Jit,
    /// By the number of the dylib in the first session.
    dylibs: FxHashMap<u64, JitDylib>,
    /// By the key in the first session.
    trackers: HashMap<ResourceKey, ResourceTracker>,
    added: usize,
    linked: usize,
}

impl Jit {
    /// Links the live objects of this session again, in a session of its own in `executor`. Use it when the executor of this session has
    /// ended, or to move to another one. This session needs [`JitBuilder::keep_objects`](crate::JitBuilder::keep_objects), and stays as it is.
    ///
    /// The new session has the settings of this one. `set_up` gives it what a session has beside objects and archives: functions of this
    /// process, absolute symbols, aliases, stubs, lazy functions, graphs, units, generators, plugins. It runs before any object is added.
    /// A dylib that it makes stands for the dylib of the same name here. An object whose definitions it has made already is not added;
    /// an archive that was added whole here must not be added by it.
    ///
    /// Then each object that was added here by [`add_object`](Self::add_object), [`add_object_file`](Self::add_object_file),
    /// [`link_object`](Self::link_object) or [`add_archive_whole`](Self::add_archive_whole), and whose tracker was not removed, is added under a
    /// tracker of its own there, also if its link failed here; static libraries are attached, and supply members when they are needed. The
    /// objects that were linked here are linked. Initialisers run as always: in lookups, and in [`initialize`](Self::initialize). Variables
    /// have their first values.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), jittison::Error> {
    /// use jittison::Jit;
    /// use jittison::executor::ExecutorProcess;
    ///
    /// let executor = ExecutorProcess::start("jittison-executor")?;
    /// let jit = Jit::builder().executor(&executor).keep_objects().build()?;
    /// let tracker = jit.main_dylib().create_tracker()?;
    /// jit.add_object_file(&tracker, "query.o")?;
    /// // … the executor crashes …
    /// let restarted = jit.restart(&ExecutorProcess::start("jittison-executor")?, |_| Ok(()))?;
    /// let (jit, tracker) = (restarted.jit().clone(), restarted.tracker(&tracker).cloned());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The session keeps no objects. The executor has ended. The error of `set_up`. An object is refused, or cannot be linked. In all
    /// these cases the new session is dropped with all that it has, and this session is unchanged.
    pub fn restart(&self, executor: &ExecutorProcess, set_up: impl FnOnce(&Jit) -> Result<()>) -> Result<Restarted> {
        let Some(state) = &self.0.restart_state else {
            return Err(Error::other(
                "a session that keeps no objects cannot be restarted; nothing was done; build it with `JitBuilder::keep_objects`",
            ));
        };
        let jit = (state.rebuild)(executor)?;
        set_up(&jit)?;
        let mut restart = Restart::new(self, &jit);
        restart.add_objects(state.inputs.live())?;
        restart.attach_archives()?;
        restart.set_link_orders()?;
        let linked = restart.link()?;
        let Restart { dylibs, trackers, added, .. } = restart;
        Ok(Restarted { jit, dylibs, trackers, added, linked })
    }
}

impl Restarted {
    /// The new session.
    pub fn jit(&self) -> &Jit {
        &self.jit
    }

    /// The dylib that stands for `old`. `None` if `old` had no object and no archive, and no dylib with any links against it.
    pub fn dylib(&self, old: &JitDylib) -> Option<&JitDylib> {
        self.dylibs.get(&old.id())
    }

    /// The tracker of the objects that `old` had. `None` if it had none.
    pub fn tracker(&self, old: &ResourceTracker) -> Option<&ResourceTracker> {
        self.trackers.get(&old.key())
    }

    /// Number of objects, and of archives that were added whole.
    pub fn added(&self) -> usize {
        self.added
    }

    /// Number of objects that were linked.
    pub fn linked(&self) -> usize {
        self.linked
    }
}

impl fmt::Debug for Restarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a session with {} objects of another one, {} of them linked", self.added, self.linked)
    }
}

/// A restart that goes on.
struct Restart<'a> {
    old: &'a Jit,
    new: &'a Jit,
    /// The dylibs of the first session that exist, by number.
    old_dylibs: FxHashMap<u64, JitDylib>,
    dylibs: FxHashMap<u64, JitDylib>,
    /// Dylibs of the new session that stand for none yet.
    unused: Vec<JitDylib>,
    trackers: HashMap<ResourceKey, ResourceTracker>,
    added: usize,
    /// One name of each object that was linked, by number of its dylib in the first session.
    linked: FxHashMap<u64, Vec<Name>>,
}

/// The names that an object defines.
struct Defined {
    /// Those that no other live object of the dylib can define.
    strong: Vec<Name>,
    weak: Vec<Name>,
}

impl<'a> Restart<'a> {
    fn new(old: &'a Jit, new: &'a Jit) -> Restart<'a> {
        let pairs = [(old.main_dylib(), new.main_dylib()), (old.process_dylib(), new.process_dylib())];
        let dylibs: FxHashMap<_, _> = pairs.into_iter().map(|(old, new)| (old.id(), new.clone())).collect();
        let mut unused = new.session().dylibs();
        unused.retain(|dylib| !dylibs.values().any(|used| used == dylib));
        let old_dylibs = old.session().dylibs().into_iter().map(|dylib| (dylib.id(), dylib)).collect();
        let (trackers, linked) = (HashMap::new(), FxHashMap::default());
        Restart { old, new, old_dylibs, dylibs, unused, trackers, added: 0, linked }
    }

    fn add_objects(&mut self, inputs: Vec<(ResourceKey, SessionInput)>) -> Result<()> {
        let mut objects = Vec::with_capacity(inputs.len());
        for (key, input) in inputs {
            // A dylib that was removed meanwhile is not in the list.
            if let Some(dylib) = self.old_dylibs.get(&key.dylib.number()).cloned() {
                let defined = Defined::of(&input)?;
                objects.push((key, dylib, input, defined));
            }
        }
        // If a newer object has a strong name of an older one, the link of the older one has failed: the table has none of its other names.
        let mut newer = FxHashSet::default();
        let mut current: Vec<_> = Vec::with_capacity(objects.len());
        for object in objects.into_iter().rev() {
            let (_, dylib, _, defined) = &object;
            let id = |name: &Name| (dylib.id(), name.clone());
            let is_newer = |name: &Name| newer.contains(&id(name));
            let is_gone = |name: &Name| is_newer(name) || dylib.symbol_state(name.as_str()).is_none();
            if !defined.strong.iter().any(is_newer) || !defined.strong.iter().all(is_gone) {
                newer.extend(defined.strong.iter().map(id));
                current.push(object);
            }
        }
        current.into_iter().rev().try_for_each(|(key, dylib, input, defined)| self.add(key, &dylib, input, &defined))
    }

    fn add(&mut self, key: ResourceKey, old: &JitDylib, input: SessionInput, defined: &Defined) -> Result<()> {
        let dylib = self.dylib(old)?;
        let is_defined = |name: &Name| dylib.symbol_state(name.as_str()).is_some();
        if !defined.strong.is_empty() && defined.strong.iter().all(is_defined) {
            return Ok(()); // by `set_up`
        }
        let tracker = self.tracker(key, old, &dylib)?;
        match input.source {
            InputSource::Object(bytes) => self.new.add_object(&tracker, &input.name, bytes)?,
            InputSource::WholeArchive(archive) => {
                self.new.add_open_archive_whole(&tracker, &input.name, archive).map(|_members| ())?
            }
        }
        self.added += 1;
        let is_linked = |name: &&Name| old.symbol_state(name.as_str()) == Some(SymbolState::Ready);
        if let Some(name) = defined.strong.iter().chain(&defined.weak).find(is_linked) {
            self.linked.entry(old.id()).or_default().push(name.clone());
        }
        Ok(())
    }

    fn attach_archives(&mut self) -> Result<()> {
        let of_dylibs: Vec<_> =
            self.old.0.static_libraries.lock().iter().filter_map(|(id, known)| Some((*id, known.upgrade()?))).collect();
        for (id, libraries) in of_dylibs {
            if let Some(old) = self.old_dylibs.get(&id).cloned() {
                let dylib = self.dylib(&old)?;
                self.new.static_libraries(&dylib)?.share_archives(&libraries);
            }
        }
        Ok(())
    }

    /// Gives the new dylibs the link orders of the old ones, also those dylibs that only these orders name.
    fn set_link_orders(&mut self) -> Result<()> {
        let mut waiting: Vec<u64> = self.dylibs.keys().copied().collect();
        let mut done = FxHashSet::default();
        while let Some(id) = waiting.pop() {
            let Some(old) = self.old_dylibs.get(&id).filter(|_| done.insert(id)).cloned() else { continue };
            let mut order = Vec::new();
            for (other, visibility) in old.link_order() {
                order.push((self.dylib(&other)?, visibility));
                waiting.push(other.id());
            }
            self.dylib(&old)?.set_link_order(&order)?;
        }
        Ok(())
    }

    /// Links the objects that were linked. Returns their number.
    fn link(&self) -> Result<usize> {
        for (id, names) in &self.linked {
            let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(name.as_str())).collect();
            self.dylibs[id].lookup(&requests, RequiredState::Ready)?;
        }
        Ok(self.linked.values().map(Vec::len).sum())
    }

    /// The dylib that stands for `old`: one of `set_up`, or a new one.
    fn dylib(&mut self, old: &JitDylib) -> Result<JitDylib> {
        if let Some(known) = self.dylibs.get(&old.id()) {
            return Ok(known.clone());
        }
        let dylib = match self.unused.iter().position(|dylib| dylib.name() == old.name()) {
            Some(position) => self.unused.remove(position),
            None => self.new.create_dylib(old.name())?,
        };
        self.dylibs.insert(old.id(), dylib.clone());
        Ok(dylib)
    }

    fn tracker(&mut self, key: ResourceKey, old: &JitDylib, dylib: &JitDylib) -> Result<ResourceTracker> {
        if let Some(known) = self.trackers.get(&key) {
            return Ok(known.clone());
        }
        let is_default = old.default_tracker()?.key() == key;
        let tracker = if is_default { dylib.default_tracker()? } else { dylib.create_tracker()? };
        self.trackers.insert(key, tracker.clone());
        Ok(tracker)
    }
}

impl Defined {
    fn of(input: &SessionInput) -> Result<Defined> {
        let mut defined = Defined { strong: Vec::new(), weak: Vec::new() };
        if let InputSource::Object(bytes) = &input.source {
            ObjectInterface::visit(&input.name, bytes, |symbol, _| {
                if symbol.has_address {
                    let may_be_another = symbol.is_weak || symbol.is_comdat || symbol.leader.is_some();
                    let names = if may_be_another { &mut defined.weak } else { &mut defined.strong };
                    names.push(symbol.name);
                }
            })?;
        }
        Ok(defined)
    }
}
