//! [`DefinitionGenerator`]: adds definitions to a dylib when a lookup misses them.
//!
//! A generator may answer at once, or capture the lookup and resume it later:
//!
//! 1. The search calls the generator with a [`Suspension`]; the generator [captures](Suspension::capture) the lookup.
//! 2. The search is parked in a [`SuspendedSlot`]. The generator's outcome may arrive before or after that; whichever
//!    comes second resumes the search.
//! 3. Other lookups that need this generator meanwhile wait in its queue. After the captured lookup has resumed, they
//!    resume one by one, until one of them is captured.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::base::{catch, count_step};
use crate::error::{ErrorKind, Result};
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::materialization::Task;
use crate::session::types::request::SymbolRequest;
use crate::session::work::dispatch::{dispatch, keep_first};
use crate::sync::{Arc, Mutex, seeded_bug};

/// Supplies definitions on demand (ORC: `DefinitionGenerator`), for instance from the process or from an archive.
///
/// Implement [`generate`](Self::generate), or [`generate_or_suspend`](Self::generate_or_suspend) if it may take long.
///
/// ```
/// use std::sync::Arc;
///
/// use jittison::base::{ExecutorAddr, Name};
/// use jittison::session::{DefinitionGenerator, SymbolFlags, SymbolRequest};
/// use jittison::{Error, ExecutionSession, JitDylib};
///
/// extern "C" fn host_double(x: i64) -> i64 {
///     2 * x
/// }
///
/// /// Supplies functions of this program under the names that linked code uses.
/// struct HostFunctions;
///
/// impl DefinitionGenerator for HostFunctions {
///     fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<(), Error> {
///         let known = missing.iter().filter(|request| request.name == "host_double");
///         let address = ExecutorAddr::new(host_double as *const () as u64);
///         // Weak, because another thread may define the same name at the same time.
///         let flags = SymbolFlags::EXPORTED | SymbolFlags::CALLABLE | SymbolFlags::WEAK;
///         dylib.define_absolute(known.map(|request| (Name::new(request.name), address, flags)))
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// let session = ExecutionSession::new();
/// let dylib = session.create_dylib("main")?;
/// dylib.add_generator(Arc::new(HostFunctions));
/// let found = dylib.lookup_address("host_double")?;
/// assert_eq!(found.value(), host_double as *const () as u64);
/// # session.end()?;
/// # Ok(()) }
/// ```
pub trait DefinitionGenerator: Send + Sync {
    /// A lookup did not find `missing` in `dylib`. Define in `dylib` the names that this generator knows (ORC:
    /// `tryToGenerate`). Each name comes once. It is [required](SymbolRequest::required) if the lookup fails without
    /// it. Define an optional name only if its definition is already in memory.
    ///
    /// A name may stay undefined: the lookup goes on with the next generator and the next dylib. The method is called
    /// with no lock held, possibly by several threads at once. It may call back into the session.
    ///
    /// # Errors
    /// An error fails the lookup. A panic leaves the call that started the lookup; after a suspension, it fails the lookup.
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        let _ = (dylib, missing);
        Ok(())
    }

    /// As [`generate`](Self::generate), but the generator may capture the lookup with `suspension`, and resume it later
    /// from any thread (ORC: `LookupState`). Until then, other lookups that need this generator wait in its queue.
    ///
    /// # Errors
    /// An error fails the lookup, even if the generator has captured it.
    fn generate_or_suspend(
        &self,
        dylib: &JitDylib,
        missing: &[SymbolRequest<'_>],
        suspension: &Suspension,
    ) -> Result<()> {
        let _ = suspension;
        self.generate(dylib, missing)
    }
}

/// Lets a generator capture the lookup that called it.
pub struct Suspension {
    entry: Arc<GeneratorEntry>,
    dylib: JitDylib,
    may_capture: bool,
    captured: RefCell<Option<Arc<SuspendedSlot>>>,
}

impl Suspension {
    pub(crate) fn new(entry: Arc<GeneratorEntry>, dylib: &JitDylib, may_capture: bool) -> Suspension {
        Suspension { entry, dylib: dylib.clone(), may_capture, captured: RefCell::new(None) }
    }

    /// Captures the lookup. It continues when the result is [resumed](SuspendedLookup::resume). `None` when the lookup
    /// cannot be suspended, such as a lookup of flags, or is already captured.
    pub fn capture(&self) -> Option<SuspendedLookup> {
        let mut captured = self.captured.borrow_mut();
        if !self.may_capture || captured.is_some() {
            return None;
        }
        let slot = self.entry.capture(self.dylib.name());
        *captured = Some(slot.clone());
        Some(SuspendedLookup { slot: Some(slot) })
    }

    pub(crate) fn into_captured(self) -> Option<Arc<SuspendedSlot>> {
        self.captured.take()
    }
}

impl Drop for Suspension {
    fn drop(&mut self) {
        // Reached only if the generator panicked: otherwise the search has called `into_captured`.
        if let Some(slot) = self.captured.take() {
            slot.cancel();
        }
    }
}

impl fmt::Debug for Suspension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Suspension(captured: {})", self.captured.borrow().is_some())
    }
}

/// A lookup that a generator has captured (ORC: `LookupState`). Dropping it fails the lookup.
#[must_use = "dropping a captured lookup fails it"]
pub struct SuspendedLookup {
    slot: Option<Arc<SuspendedSlot>>,
}

impl SuspendedLookup {
    /// Continues the lookup with the definitions that exist now, or fails it with the error.
    pub fn resume(mut self, outcome: Result<()>) {
        if let Some(slot) = self.slot.take() {
            slot.resume(Some(outcome));
        }
    }
}

impl Drop for SuspendedLookup {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            // Queued lookups resume here, and their units may panic. The thread may be unwinding already.
            let _ = catch(|| slot.resume(None));
        }
    }
}

impl fmt::Debug for SuspendedLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SuspendedLookup")
    }
}

impl JitDylib {
    /// Adds a generator, called after the existing ones (ORC: `addGenerator`). A removed dylib ignores it.
    pub fn add_generator(&self, generator: Arc<dyn DefinitionGenerator>) {
        let mut state = self.inner().state.lock();
        if !state.open {
            return;
        }
        state.table.note_generator();
        let serial = state.generators_added;
        state.generators_added += 1;
        state.generators.push(GeneratorEntry::new(generator, serial));
    }

    /// Removes a generator (ORC: `removeGenerator`). Lookups in its queue fail; a lookup that it has captured may still
    /// be resumed. False when the dylib does not have this generator.
    pub fn remove_generator(&self, generator: &Arc<dyn DefinitionGenerator>) -> bool {
        let removed = {
            let mut state = self.inner().state.lock();
            let position = state.generators.iter().position(|entry| Arc::ptr_eq(&entry.generator, generator));
            position.map(|position| state.generators.remove(position))
        };
        removed.map(|entry| entry.fail_queued()).is_some()
    }

    /// The first generator with this serial or a higher one.
    pub(crate) fn generator_from(&self, serial: u64) -> Option<Arc<GeneratorEntry>> {
        let state = self.inner().state.lock();
        // They are sorted by serial.
        let first = state.generators.partition_point(|entry| {
            count_step();
            entry.serial < serial
        });
        state.generators.get(first).cloned()
    }
}

/// A suspended lookup. Dropping it fails the lookup.
pub(crate) trait ParkedLookup: Send {
    /// Continues where the lookup was suspended, or fails it.
    fn resume(self: Box<Self>, outcome: Result<()>);
}

/// A generator in its dylib's list.
pub(crate) struct GeneratorEntry {
    /// Position among all generators that were ever added to its dylib.
    pub(crate) serial: u64,
    pub(crate) generator: Arc<dyn DefinitionGenerator>,
    queue: Mutex<GeneratorQueue>,
}

#[derive(Default)]
struct GeneratorQueue {
    /// The number of captured lookups. More than one if several called the generator before it captured the first.
    captured: usize,
    waiting: VecDeque<Box<dyn ParkedLookup>>,
}

/// The meeting point of a captured search and the generator's outcome, which may arrive in either order.
pub(crate) struct SuspendedSlot {
    entry: Arc<GeneratorEntry>,
    /// The dylib's name, for errors.
    dylib: String,
    state: Mutex<SlotState>,
}

enum SlotState {
    /// Neither has arrived.
    Empty,
    /// The search has arrived.
    Parked(Box<dyn ParkedLookup>),
    /// The outcome has arrived.
    Resumed(Result<()>),
    /// Both have arrived, or the lookup has failed.
    Done,
}

impl GeneratorEntry {
    pub(crate) fn new(generator: Arc<dyn DefinitionGenerator>, serial: u64) -> Arc<GeneratorEntry> {
        Arc::new(GeneratorEntry { serial, generator, queue: Mutex::new(GeneratorQueue::default()) })
    }

    /// Captures a lookup; later lookups wait in the queue.
    pub(crate) fn capture(self: &Arc<GeneratorEntry>, dylib: &str) -> Arc<SuspendedSlot> {
        self.queue.lock().captured += 1;
        Arc::new(SuspendedSlot { entry: self.clone(), dylib: dylib.to_string(), state: Mutex::new(SlotState::Empty) })
    }

    /// Queues a lookup behind the captured one.
    pub(crate) fn enqueue(&self, search: Box<dyn ParkedLookup>) {
        let mut queue = self.queue.lock();
        // Seeded bug: queues the lookup although no captured lookup is left to release it.
        if seeded_bug!("queued_behind_a_lookup_that_has_gone_on") || queue.captured > 0 {
            queue.waiting.push_back(search);
            return;
        }
        drop(queue);
        // The captured lookup has resumed meanwhile, so there is nothing to wait for.
        search.resume(Ok(()));
    }

    /// Whether a lookup is captured.
    pub(crate) fn is_captured(&self) -> bool {
        self.queue.lock().captured > 0
    }

    /// Pops the next queued lookup, if no lookup is captured.
    fn next_in_queue(&self) -> Option<Box<dyn ParkedLookup>> {
        let mut queue = self.queue.lock();
        if queue.captured > 0 { None } else { queue.waiting.pop_front() }
    }

    /// A captured lookup has resumed: resumes the queued ones, until one of them is captured. A panic of a unit that one
    /// of them materialises does not stop the others.
    pub(crate) fn release_capture(&self) {
        self.queue.lock().captured -= 1;
        let mut panicked = None;
        while let Some(next) = self.next_in_queue() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| next.resume(Ok(())))) {
                keep_first(&mut panicked, panic);
            }
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    /// Fails the queued lookups. Called after the generator has left its dylib.
    pub(crate) fn fail_queued(&self) {
        let waiting = std::mem::take(&mut self.queue.lock().waiting);
        drop(waiting);
    }
}

impl SuspendedSlot {
    /// Stores the captured search, or resumes it if the outcome has already arrived.
    pub(crate) fn park(self: &Arc<SuspendedSlot>, search: Box<dyn ParkedLookup>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, SlotState::Done) {
            SlotState::Resumed(outcome) => {
                drop(state);
                self.resume_search(search, outcome);
            }
            _ => *state = SlotState::Parked(search),
        }
    }

    /// Delivers the generator's outcome. `None`, from a dropped [`SuspendedLookup`], fails the lookup.
    pub(crate) fn resume(self: &Arc<SuspendedSlot>, outcome: Option<Result<()>>) {
        let outcome = outcome.unwrap_or_else(|| Err(ErrorKind::LookupAbandoned { dylib: self.dylib.clone() }.into()));
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, SlotState::Done) {
            SlotState::Parked(search) => {
                drop(state);
                self.resume_search(search, outcome);
            }
            SlotState::Empty => *state = SlotState::Resumed(outcome),
            // Seeded bug: drops the stored failure, and with it the lookup.
            SlotState::Resumed(_) | SlotState::Done if seeded_bug!("resumed_over_a_failure") => {}
            already @ (SlotState::Resumed(_) | SlotState::Done) => *state = already,
        }
    }

    /// Sets the outcome to the generator's own error, whatever the captured lookup was resumed with. Called before the
    /// search is parked.
    pub(crate) fn override_outcome(&self, outcome: Result<()>) {
        *self.state.lock() = SlotState::Resumed(outcome);
    }

    /// The generator panicked, so the search will not be parked. Releases the lookups in the queue.
    pub(crate) fn cancel(&self) {
        *self.state.lock() = SlotState::Done;
        let entry = self.entry.clone();
        // The thread is already unwinding: a second panic would abort the process.
        let _ = catch(|| dispatch([Task::call(move || entry.release_capture())]));
    }

    fn resume_search(self: &Arc<SuspendedSlot>, search: Box<dyn ParkedLookup>, outcome: Result<()>) {
        let entry = self.entry.clone();
        dispatch([Task::call(move || search.resume(outcome)), Task::call(move || entry.release_capture())]);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{sized, steps_of};
    use crate::session::ExecutionSession;

    struct Nothing;

    impl DefinitionGenerator for Nothing {
        fn generate(&self, _: &JitDylib, _: &[SymbolRequest<'_>]) -> Result<()> {
            Ok(())
        }
    }

    /// Symptom: a lookup that asked 10,000 generators took 17 microseconds for each of them.
    #[test]
    fn a_lookup_finds_the_next_of_many_generators_in_few_steps() {
        let count = sized(2_000, 100);
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("dylib").unwrap();
        (0..count).for_each(|_| dylib.add_generator(Arc::new(Nothing)));
        let steps = steps_of(|| assert!(dylib.lookup_address("missing").is_err()));
        assert!((count..20 * count).contains(&steps), "{steps} steps for {count} generators");
    }
}
