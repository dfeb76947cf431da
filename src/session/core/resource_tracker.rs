//! [`ResourceTracker`]: the handle by which everything that was put under it is taken back. Reads as the removal.
//!
//! Remove is two steps. *Unpublish* happens at once: the gate closes, names leave the table, whoever waits for them is
//! told. *Reclaim* happens when nothing pins the tracker, which is mostly before `remove` returns: managers give back
//! what they recorded, newest manager first (`reclaim.rs`). Dropping the last handle of a live tracker does not remove:
//! it transfers what the tracker owns to the dylib's default tracker, so that forgetting never frees running code.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::{CallEntry, CodeHold, ExecutorAddr, Name, Payload, PrefetchHints, RecycledVec, text_of};
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::jit_dylib::{DylibId, DylibInner, JitDylib};
use crate::session::core::materialization::{self, MaterializationUnit};
use crate::session::core::observer::Event;
use crate::session::core::waiting;
use crate::session::lookup::ready_lookup::DependencyRef;
use crate::session::materialize::responsibility::{ClaimedSymbol, MaterializationResponsibility};
use crate::session::pins::dependants::WholeGraph;
use crate::session::pins::revocable_pins::StandingId;
use crate::session::pins::tracker_state::{Defunct, TrackerState};
use crate::session::removal::reclaim;
use crate::session::removal::tracker_watch::TrackerWatch;
use crate::session::removal::unmoved::UnmovedKey;
use crate::session::symbols::symbol_table::OwnedSymbols;
use crate::session::types::symbol::{SymbolFlags, SymbolRef};
use crate::sync::{Arc, Ordering, seeded_bug};

slotmap::new_key_type! {
    pub(crate) struct TrackerId;
}

/// Names a tracker's resources to the managers. Generational: a key is never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceKey {
    pub(crate) dylib: DylibId,
    pub(crate) tracker: TrackerId,
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tracker {:?}/{:?}", slotmap::Key::data(&self.dylib), slotmap::Key::data(&self.tracker))
    }
}

impl fmt::Debug for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What all handles of one tracker share.
pub(crate) struct TrackerCore {
    pub(crate) id: TrackerId,
    /// The dylib's table points back here until the tracker is reclaimed or merged; that breaks the cycle. A handle, so that
    /// who is to be given one need not count it.
    pub(crate) handle: JitDylib,
    /// Position in its dylib's creation order.
    pub(crate) serial: u64,
    pub(crate) owned: OwnedSymbols,
    pub(crate) gate: TrackerState,
    /// Of what it owns.
    pub(crate) whereabouts: PrefetchHints,
}

/// A handle to one tracker (ORC: `ResourceTracker`). Clones share it; when the last clone of a live tracker is dropped,
/// what it owns goes to the dylib's default tracker.
pub struct ResourceTracker {
    core: Arc<TrackerCore>,
}

impl ResourceTracker {
    /// The handle of a tracker that was just made. Nobody else can have made one: it owns nothing by which to be found.
    pub(crate) fn first(core: Arc<TrackerCore>) -> ResourceTracker {
        core.gate.handles.store(1, Ordering::Relaxed);
        ResourceTracker { core }
    }

    pub(crate) fn from_core(core: Arc<TrackerCore>) -> ResourceTracker {
        // Pairs with the drop of a handle through the gate: see `drop`.
        core.gate.handles.fetch_add(1, Ordering::Relaxed);
        ResourceTracker { core }
    }

    pub(crate) fn core(&self) -> &Arc<TrackerCore> {
        &self.core
    }

    /// Leads back to the tracker later, wherever it is transferred, without keeping anything alive.
    pub fn watch(&self) -> TrackerWatch {
        TrackerWatch::new(self.core.clone())
    }

    /// Whether the tracker was transferred.
    pub(crate) fn is_merged(&self) -> bool {
        self.core.gate.is_merged()
    }

    /// The key under which managers record this tracker's resources. For looking things up and for logs: only
    /// [`MaterializationResponsibility::with_resource_key`](crate::session::MaterializationResponsibility::with_resource_key)
    /// keeps it from being removed meanwhile.
    pub fn key(&self) -> ResourceKey {
        self.core.key()
    }

    /// The dylib that the tracker belongs to.
    pub fn dylib(&self) -> JitDylib {
        self.dylib_handle().clone()
    }

    /// The same, not counted.
    pub(crate) fn dylib_handle(&self) -> &JitDylib {
        &self.core.handle
    }

    /// A number for an object that is added: higher than those of all that were added to the dylib before.
    pub(crate) fn number_object(&self) -> u64 {
        self.core.dylib().objects_added.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the tracker was removed or transferred.
    pub fn is_defunct(&self) -> bool {
        !self.core.gate.is_live()
    }

    /// Runs `record` with the key, while the tracker can be neither removed nor transferred; see
    /// [`MaterializationResponsibility::with_resource_key`](crate::session::MaterializationResponsibility::with_resource_key).
    ///
    /// # Errors
    /// [`ErrorKind::TrackerDefunct`], and `record` was not run.
    pub fn with_resource_key<R>(&self, record: impl FnOnce(ResourceKey) -> R) -> Result<R> {
        if self.is_defunct() {
            return Err(self.core.defunct());
        }
        with_resource_key(&self.core, record)
    }

    /// The trackers that this one's code refers to, and so keeps, in no particular order.
    pub fn dependencies(&self) -> Vec<ResourceTracker> {
        self.handles(|pins, core| pins.dependencies(core))
    }

    /// The trackers whose code refers to this one's, and so keeps it, in no particular order.
    pub fn dependents(&self) -> Vec<ResourceTracker> {
        self.handles(|pins, core| pins.dependents(core))
    }

    fn handles(
        &self,
        ask: impl FnOnce(&WholeGraph<'_>, &TrackerCore) -> Vec<Arc<TrackerCore>>,
    ) -> Vec<ResourceTracker> {
        let cores = ask(&self.core.dylib().session.pins.lock(), &self.core.current());
        cores.into_iter().map(ResourceTracker::from_core).collect()
    }

    /// Adds a unit's symbols to the dylib under this tracker. Nothing is materialised before somebody looks for one.
    ///
    /// # Errors
    /// Duplicate strong definitions, a defunct tracker or dylib; the table is unchanged then.
    pub fn define(&self, unit: impl MaterializationUnit + 'static) -> Result<()> {
        materialization::define(&self.core, Box::new(unit))
    }

    /// Adds symbols that are being materialised from now on, by the caller: for who has the code at hand, and need not be
    /// [called](Self::define) for it. Of the weak ones those are left out whose names are taken. `name` is what errors call
    /// them by.
    ///
    /// # Errors
    /// As [`define`](Self::define).
    pub fn define_materializing(
        &self,
        name: &str,
        symbols: impl IntoIterator<Item = (Name, SymbolFlags)>,
    ) -> Result<MaterializationResponsibility> {
        let promise = |((name, flags), number)| ClaimedSymbol::promised(name, flags, Some(number));
        let symbols = symbols.into_iter().zip(0..).map(promise).collect();
        materialization::begin(&self.core, Arc::from(name), symbols)
    }

    /// The same, of symbols with numbers and sizes, for a caller that hears how it ends.
    pub(crate) fn begin(
        &self,
        name: Arc<str>,
        symbols: RecycledVec<ClaimedSymbol>,
    ) -> Result<MaterializationResponsibility> {
        materialization::begin(&self.core, name, symbols).map(MaterializationResponsibility::awaited)
    }

    /// Adds symbols that have an address already, ready at once.
    ///
    /// # Errors
    /// As [`define`](Self::define).
    pub fn define_absolute(&self, symbols: impl IntoIterator<Item = (Name, ExecutorAddr, SymbolFlags)>) -> Result<()> {
        materialization::define_absolute(&self.core, symbols.into_iter().collect())
    }

    /// Moves everything under this tracker to `destination`, work in flight included; this tracker is defunct then.
    /// Transferring a tracker to itself does nothing.
    ///
    /// # Errors
    /// When either is defunct, or they are of different dylibs; nothing was moved then. What is said of
    /// [managers that panic](crate::session::ResourceManager::transfer_resources), joined; everything was moved then, and this
    /// tracker is defunct.
    pub fn transfer_to(&self, destination: &ResourceTracker) -> Result<()> {
        transfer(&self.core, &destination.core, || true).and_then(Error::join)
    }

    /// The same; managers that panic are the error reporter's.
    pub(crate) fn transfer_and_report(&self, destination: &ResourceTracker) -> Result<()> {
        let failures = transfer(&self.core, &destination.core, || true)?;
        failures.into_iter().for_each(|failure| self.core.dylib().session.unheard.report(failure));
        Ok(())
    }
}

impl fmt::Debug for ResourceTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of `{}`", self.core.key(), self.core.dylib().name)
    }
}

impl Clone for ResourceTracker {
    fn clone(&self) -> ResourceTracker {
        ResourceTracker::from_core(self.core.clone())
    }
}

impl Drop for ResourceTracker {
    fn drop(&mut self) {
        // Nobody counts the handles of what is defunct.
        if !self.core.gate.is_live() || self.core.gate.handles.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        // Asked again under the gates, where a handle made meanwhile either is seen or sees the merge.
        let is_forgotten = || self.core.gate.handles.load(Ordering::Relaxed) == 0;
        // Repeats only when the default tracker was itself removed in between: there is a new one then.
        while is_forgotten() && self.core.gate.is_live() {
            let Ok(default) = self.core.dylib().default_core() else { return };
            if Arc::ptr_eq(&default, &self.core) {
                return;
            }
            let failures = transfer(&self.core, &default, is_forgotten).unwrap_or_default();
            failures.into_iter().for_each(|failure| self.core.dylib().session.unheard.report(failure));
        }
    }
}

impl TrackerCore {
    pub(crate) fn dylib(&self) -> &Arc<DylibInner> {
        self.handle.inner()
    }

    pub(crate) fn key(&self) -> ResourceKey {
        ResourceKey { dylib: self.dylib().id, tracker: self.id }
    }

    /// Called with no lock held, once the tracker's names are gone; `guards` are in the way.
    #[inline]
    pub(crate) fn tell_retired(&self, guards: usize) {
        if self.dylib().session.observers.is_heard() {
            self.tell_retired_now(guards);
        }
    }

    #[cold]
    fn tell_retired_now(&self, guards: usize) {
        let (dylib, (handles, dependants)) = (&self.handle, self.dylib().session.pins.holders(self));
        dylib.observers().tell(&Event::Retired { dylib, key: self.key(), handles, dependants, guards });
    }

    pub(crate) fn defunct(&self) -> Error {
        ErrorKind::TrackerDefunct { dylib: self.dylib().name.to_string(), tracker: self.key().to_string() }.into()
    }
}

/// Merges `source` into `destination`, if `still_wanted` says so at the gates. Managers that panic meanwhile do not hold it up;
/// returns what there is to say of them.
fn transfer(
    source: &Arc<TrackerCore>,
    destination: &Arc<TrackerCore>,
    still_wanted: impl FnOnce() -> bool,
) -> Result<Vec<Error>> {
    if Arc::ptr_eq(source, destination) {
        return if source.gate.is_live() { Ok(Vec::new()) } else { Err(source.defunct()) };
    }
    if !Arc::ptr_eq(source.dylib(), destination.dylib()) {
        return Err(ErrorKind::ForeignTracker {
            tracker: destination.key().to_string(),
            owner: destination.dylib().name.to_string(),
            dylib: source.dylib().name.to_string(),
        }
        .into());
    }
    let session = &source.dylib().session;
    // Outlives the locks: it may be the last to hold a manager.
    let mut managers = seeded_bug!("managers_listed_before_the_gates").then(|| session.managers(source.dylib()));
    // So do these: what a panic carries is the embedder's.
    let mut panics = Vec::new();
    let mut late = Vec::new();
    let dylib = &source.handle;
    let retired_record = {
        let mut state = source.dylib().state.lock();
        let mut pins = session.pins.lock();
        let merged = TrackerState::merge(source, destination, still_wanted, || {
            // Under the gates, so that nothing is recorded under either key meanwhile (S3). Listed here too: whoever
            // registers and then records has recorded before, and is listed, or records under the destination.
            let managers = managers.get_or_insert_with(|| session.managers(source.dylib()));
            let mut unmoved = Vec::new();
            for manager in managers.iter().rev() {
                // One that panics may hold things under either key now. So the others go on, and it is told of both at reclaim.
                let told = || manager.transfer_resources(dylib, destination.key(), source.key());
                if let Err(panic) = catch_unwind(AssertUnwindSafe(told)) {
                    panics.push(panic);
                    unmoved.push(UnmovedKey::new(source.key(), manager));
                }
            }
            if seeded_bug!("unmoved_noted_after_the_gates") {
                late = unmoved;
            } else if !unmoved.is_empty() || source.gate.has_unmoved() {
                session.unmoved.merge(destination.key(), source.key(), unmoved);
                destination.gate.mark_unmoved();
            }
        });
        let Some(had_dependants) = merged else {
            return Err(if source.gate.is_live() { destination.defunct() } else { source.defunct() });
        };
        pins.merge(source, destination, had_dependants);
        state.merge_tracker(source, destination)
    };
    drop(retired_record);
    // Seeded bug: the destination may have been reclaimed meanwhile.
    if !late.is_empty() {
        session.unmoved.merge(destination.key(), source.key(), late);
        destination.gate.mark_unmoved();
    }
    if session.observers.is_heard() {
        let (source, destination) = (source.key(), destination.key());
        session.observers.tell(&Event::Transferred { dylib, source, destination });
    }
    Ok(panics.into_iter().map(|panic| panicked_in_transfer(source, destination, panic)).collect())
}

#[cold]
fn panicked_in_transfer(source: &TrackerCore, destination: &TrackerCore, panic: Payload) -> Error {
    Error::other(format!(
        "a resource manager panicked while {} of `{}` was transferred to {}; the transfer is complete, and what the manager left \
         under the first key goes with the second: {}",
        source.key(),
        source.dylib().name,
        destination.key(),
        text_of(panic)
    ))
}

/// Keeps a tracker's resources from being reclaimed, as an `Arc` would. Owned function handles are made of it.
pub struct Pin {
    core: Arc<TrackerCore>,
    /// Where the session keeps what a standing pin says.
    standing: Option<StandingId>,
}

impl Pin {
    /// `None` when the tracker is defunct.
    pub(crate) fn new(core: Arc<TrackerCore>) -> Option<Pin> {
        let Ok(()) = core.pin_handle() else {
            return None;
        };
        Some(Pin { core, standing: None })
    }

    /// Also of a tracker that is retired; `None` when it is being reclaimed, or was.
    pub(crate) fn until_reclaimed(core: Arc<TrackerCore>) -> Option<Pin> {
        core.pin_until_reclaimed().ok()?;
        Some(Pin { core, standing: None })
    }

    /// Whether the tracker was not removed.
    pub(crate) fn is_live(&self) -> bool {
        self.core.is_now_live()
    }
}

impl Pin {
    /// Makes this a *standing* pin: one that goes by itself some time, or when its maker, a
    /// [`ResourceManager`](crate::session::ResourceManager), is [asked](crate::session::ResourceManager::release_pins),
    /// because nothing else holds the removed tracker. `reason` is what [`Removal::obstacles`](crate::session::Removal::obstacles) says of it; its clones are
    /// ordinary pins.
    pub fn stand(mut self, reason: impl Into<Arc<str>>) -> Pin {
        if self.standing.is_none() {
            self.standing = Some(self.core.dylib().session.standing.add(&self.core, reason.into()));
            self.core.let_pin_stand();
        }
        self
    }

    /// The pinned tracker's code refers to `symbol` from now on, and keeps that symbol's tracker: for references that no
    /// link made, such as a function that was found while running. The pinned tracker may have been removed: its code runs as
    /// long as somebody holds it.
    ///
    /// # Errors
    /// When the symbol was removed, or the pinned tracker's resources are being given back all the same.
    pub fn add_dependency(&self, symbol: &SymbolRef) -> Result<()> {
        let owner = {
            let state = symbol.dylib.state.lock();
            let found = state.table.symbol(symbol.id).and_then(|found| state.table.owner(found));
            found.cloned().ok_or_else(|| waiting::removed(&DependencyRef::of(symbol), None))?
        };
        let added = self.core.dylib().session.pins.table_of(self.core.dylib()).add_for_pinned(&self.core, &owner);
        match added {
            true => Ok(()),
            false if owner.is_now_live() => Err(self.core.current().defunct()),
            false => Err(waiting::removed(&DependencyRef::of(symbol), None)),
        }
    }
}

impl CodeHold for Pin {
    fn enter_call(&self) -> Option<CallEntry> {
        self.core.dylib().session.enter_call()
    }
}

impl Clone for Pin {
    fn clone(&self) -> Pin {
        self.core.pin_handle_again();
        Pin { core: self.core.clone(), standing: None }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(standing) = self.standing {
            self.core.dylib().session.standing.remove(standing);
        }
        let (core, left) = self.core.unpin_handle(self.standing.is_some());
        reclaim::after_unpin(core, left);
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({})", self.core.key())
    }
}

/// Runs `body` with the key of a live tracker, or says that it is defunct.
pub(crate) fn with_resource_key<R>(core: &Arc<TrackerCore>, body: impl FnOnce(ResourceKey) -> R) -> Result<R> {
    core.with_resource_key(body).map_err(|Defunct| core.defunct())
}
