//! [`ResourceTracker`]: a handle to the resources that are added together and removed together. [`Pin`]: keeps them
//! after the removal.
//!
//! A removal has two steps:
//!
//! 1. *Unpublish*, at once: the tracker's state changes, its names leave the table, and the lookups that wait for them
//!    fail.
//! 2. *Reclaim*, when nothing pins the tracker, which is mostly before `remove` returns: the managers release what they
//!    recorded, in the order of release (`removal/reclaim.rs`).
//!
//! Dropping the last handle of a live tracker does not remove anything. It transfers what the tracker owns to the
//! dylib's default tracker, so that a lost handle never frees running code (`removal/transfer.rs`).

use std::fmt;

use crate::base::{CallEntry, CodeHold, PrefetchHints};
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::jit_dylib::{DylibInner, JitDylib};
use crate::session::core::observer::Event;
use crate::session::core::symbol_ref::{DependencyRef, SymbolRef};
use crate::session::core::waiting;
use crate::session::pins::dependants::PinGraph;
use crate::session::pins::pinned::{Defunct, Pinned};
use crate::session::pins::revocable_pins::RevocablePinId;
use crate::session::pins::tracker_state::TrackerState;
use crate::session::symbols::symbol_table::Owner;
use crate::session::symbols::symbol_table::owned::OwnedSymbols;
use crate::session::types::ids::{ResourceKey, TrackerId};
use crate::sync::{Arc, Ordering, describe_thread};

/// The shared part of a tracker's handles.
pub(crate) struct TrackerCore {
    pub(crate) id: TrackerId,
    /// A cycle: the dylib's table refers back here. It is broken when the tracker is reclaimed or merged. A handle, so
    /// that a caller can be lent a `&JitDylib` without a count.
    pub(crate) handle: JitDylib,
    pub(crate) owned: OwnedSymbols,
    pub(crate) state: TrackerState<TrackerCore>,
    /// Addresses that a removal of this tracker will touch.
    pub(crate) prefetch_hints: PrefetchHints,
}

/// A handle to one tracker (ORC: `ResourceTracker`). Clones share the tracker. When the last clone of a live tracker is
/// dropped, the dylib's default tracker becomes the owner of its resources.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// let tracker = jit.main_dylib().create_tracker()?;
/// jit.link_object(&tracker, "add.o", ADD)?;
/// assert!(jit.usage(&tracker).code > 0);
///
/// assert!(tracker.remove()?.is_complete());
/// assert!(tracker.is_defunct());
/// assert_eq!(jit.usage(&tracker).code, 0);
/// # Ok(()) }
/// ```
pub struct ResourceTracker {
    core: Arc<TrackerCore>,
}

impl ResourceTracker {
    /// The first handle of a new tracker. The plain store is enough: the tracker owns nothing yet, so no other thread
    /// can find it and make a handle.
    pub(crate) fn new(core: Arc<TrackerCore>) -> ResourceTracker {
        core.state.handles.store(1, Ordering::Relaxed);
        ResourceTracker { core }
    }

    /// Another handle of a tracker.
    pub(crate) fn from_core(core: Arc<TrackerCore>) -> ResourceTracker {
        // Relaxed: the drop of the last handle locks the tracker's state and reads the count again; see `drop`
        // (`removal/transfer.rs`).
        core.state.handles.fetch_add(1, Ordering::Relaxed);
        ResourceTracker { core }
    }

    pub(crate) fn core(&self) -> &Arc<TrackerCore> {
        &self.core
    }

    /// Whether the tracker was transferred.
    pub(crate) fn is_merged(&self) -> bool {
        self.core.state.is_merged()
    }

    /// The key under which managers record this tracker's resources. Use it to look records up, and in logs. The
    /// tracker may be removed at any time; to record a resource, use
    /// [`MaterializationResponsibility::with_resource_key`](crate::session::MaterializationResponsibility::with_resource_key).
    pub fn key(&self) -> ResourceKey {
        self.core.key()
    }

    /// The dylib that the tracker belongs to.
    pub fn dylib(&self) -> JitDylib {
        self.dylib_handle().clone()
    }

    /// The dylib, without a new reference count.
    pub(crate) fn dylib_handle(&self) -> &JitDylib {
        &self.core.handle
    }

    /// A serial number for an added object: higher than that of every object that was added to the dylib before.
    pub(crate) fn next_object_serial(&self) -> u64 {
        self.core.dylib().objects_added.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the tracker was removed or transferred.
    pub fn is_defunct(&self) -> bool {
        !self.core.state.is_live()
    }

    /// Runs `record` with the tracker's key. The tracker can be neither removed nor transferred meanwhile. See
    /// [`MaterializationResponsibility::with_resource_key`](crate::session::MaterializationResponsibility::with_resource_key)
    /// for what `record` may do.
    ///
    /// # Errors
    /// [`ErrorKind::TrackerDefunct`] when the tracker was removed or transferred; `record` is not run then.
    pub fn with_resource_key<R>(&self, record: impl FnOnce(ResourceKey) -> R) -> Result<R> {
        if self.is_defunct() {
            return Err(self.core.defunct());
        }
        with_resource_key(&self.core, record)
    }

    /// The trackers that this tracker's code refers to. This tracker keeps them. In no particular order.
    pub fn dependencies(&self) -> Vec<ResourceTracker> {
        self.collect_handles(PinGraph::dependencies)
    }

    /// The trackers whose code refers to this tracker's. They keep this tracker. In no particular order.
    pub fn dependents(&self) -> Vec<ResourceTracker> {
        self.collect_handles(PinGraph::dependents)
    }

    fn collect_handles(
        &self,
        neighbours: impl FnOnce(&PinGraph<TrackerCore>, &TrackerCore) -> Vec<Arc<TrackerCore>>,
    ) -> Vec<ResourceTracker> {
        let cores = neighbours(&self.core.dylib().session.pins, &self.core.current());
        cores.into_iter().map(ResourceTracker::from_core).collect()
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

impl Owner for TrackerCore {
    #[inline(always)]
    fn id(&self) -> TrackerId {
        self.id
    }

    #[inline(always)]
    fn owned(&self) -> &OwnedSymbols {
        &self.owned
    }
}

impl Pinned for TrackerCore {
    #[inline(always)]
    fn state(&self) -> &TrackerState<TrackerCore> {
        &self.state
    }

    #[inline]
    fn key(&self) -> ResourceKey {
        TrackerCore::key(self)
    }

    #[inline]
    fn dylib_serial(&self) -> u64 {
        self.dylib().id.number()
    }

    #[inline]
    fn serial(&self) -> u64 {
        self.state.serial()
    }
}

impl TrackerCore {
    pub(crate) fn dylib(&self) -> &Arc<DylibInner> {
        self.handle.inner()
    }

    pub(crate) fn key(&self) -> ResourceKey {
        ResourceKey { dylib: self.dylib().id, tracker: self.id }
    }

    /// Delivers [`Event::Retired`], if there is an observer. Called with no lock held, after the tracker's names are
    /// gone. `guards` is the number of guards that defer the removal.
    #[inline]
    pub(crate) fn deliver_retired(&self, guards: usize) {
        if self.dylib().session.observers.is_active() {
            self.deliver_retired_unchecked(guards);
        }
    }

    #[cold]
    fn deliver_retired_unchecked(&self, guards: usize) {
        let (dylib, (handles, dependants)) = (&self.handle, self.holders());
        dylib.observers().deliver(&Event::Retired { dylib, key: self.key(), handles, dependants, guards });
    }

    /// The numbers of `(owned handles, dependent trackers)` that hold the tracker. Called with no lock held.
    pub(crate) fn holders(&self) -> (usize, usize) {
        let (pins, dependants) = self.dylib().session.pins.holders(self);
        (pins.saturating_add_signed(self.extra_handles()), dependants)
    }

    /// How many more handles the tracker has than pins, because handles share pins.
    pub(crate) fn extra_handles(&self) -> isize {
        self.dylib().state.lock().shared_pins.extra_handles(self.id)
    }

    /// Whether the tracker's code is a version of functions that are reached through stubs.
    pub(crate) fn is_version(&self) -> bool {
        self.dylib().has_versions.load(Ordering::Relaxed)
    }

    /// The error that this tracker was removed or transferred.
    pub(crate) fn defunct(&self) -> Error {
        self.defunct_by(None)
    }

    /// The error that the calling thread removes this tracker with `verb`, a method, while symbols of the tracker are being
    /// linked.
    #[cold]
    pub(crate) fn removed_by(&self, verb: &str) -> Error {
        self.defunct_by(Some(format!("`{verb}` on {}", describe_thread())))
    }

    fn defunct_by(&self, removed_by: Option<String>) -> Error {
        let (dylib, tracker) = (self.dylib().name.to_string(), self.key().to_string());
        ErrorKind::TrackerDefunct { dylib, tracker, removed_by }.into()
    }
}

/// Keeps a tracker's resources from being reclaimed, as an `Arc` keeps its value. Owned function handles contain one.
pub struct Pin {
    pub(crate) core: Arc<TrackerCore>,
    /// Set for a revocable pin: the entry of its reason in the session's list.
    pub(crate) revocable: Option<RevocablePinId>,
}

impl Pin {
    /// Pins a live tracker. `None` when the tracker is defunct.
    pub(crate) fn new(core: Arc<TrackerCore>) -> Option<Pin> {
        let Ok(()) = core.pin_handle() else {
            return None;
        };
        Some(Pin { core, revocable: None })
    }

    /// Pins a live or a retired tracker. `None` when it is being reclaimed, or is reclaimed.
    pub(crate) fn until_reclaimed(core: Arc<TrackerCore>) -> Option<Pin> {
        core.dylib().session.pins.pin_until_reclaimed(&core).ok()?;
        Some(Pin { core, revocable: None })
    }

    /// Whether the tracker is not removed.
    pub(crate) fn is_live(&self) -> bool {
        self.core.is_current_live()
    }
}

impl Pin {
    /// Makes this a *revocable* pin: its maker drops it on request, or earlier. The maker is a
    /// [`ResourceManager`](crate::session::ResourceManager). The session [asks the
    /// maker](crate::session::ResourceManager::release_pins) when the tracker is removed and only revocable pins hold
    /// it.
    ///
    /// [`Removal::obstacles`](crate::session::Removal::obstacles) reports `reason`. A clone of a revocable pin is an
    /// ordinary pin. On a pin that is already revocable this does nothing.
    pub fn into_revocable(mut self, reason: impl Into<Arc<str>>) -> Pin {
        if self.revocable.is_none() {
            self.revocable = Some(self.core.dylib().session.revocable_pins.add(&self.core, reason.into()));
            self.core.make_pin_revocable();
        }
        self
    }

    /// Records that the pinned tracker's code refers to `symbol` from now on, so that it keeps that symbol's tracker.
    /// Use it for references that no link made, such as a function that the code looked up at run time. The pinned
    /// tracker may be removed: its code runs as long as it is pinned.
    ///
    /// # Errors
    /// [`ErrorKind::ForeignSession`] when the symbol is of another session; [`ErrorKind::DependencyRemoved`] when the symbol
    /// was removed; [`ErrorKind::TrackerDefunct`] when the resources
    /// of the pinned tracker are being released in spite of the pin.
    pub fn add_dependency(&self, symbol: &SymbolRef) -> Result<()> {
        symbol.dylib.check_session(&self.core.dylib().session)?;
        let owner = {
            let state = symbol.dylib.state.lock();
            let found = state.table.symbol(symbol.id).and_then(|found| state.table.owner(found));
            found.cloned().ok_or_else(|| waiting::dependency_removed(Some(&state), &DependencyRef::of(symbol), None))?
        };
        let added =
            self.core.dylib().session.pins.table_of(self.core.dylib().id.number()).add_for_pinned(&self.core, &owner);
        match added {
            true => Ok(()),
            false if owner.is_current_live() => Err(self.core.current().defunct()),
            false => Err(waiting::dependency_removed(None, &DependencyRef::of(symbol), None)),
        }
    }
}

impl Pin {
    /// Records that the pinned tracker's code refers to the tracker that `other` pins. False, and nothing is recorded, if that
    /// tracker was removed, or if the resources of this one are being released in spite of the pin. Both are of one session.
    pub(crate) fn depend_on(&self, other: &Pin) -> bool {
        let dylib = self.core.dylib();
        dylib.session.pins.table_of(dylib.id.number()).add_for_pinned(&self.core, &other.core)
    }
}

impl CodeHold for Pin {
    fn enter_call(&self) -> Option<CallEntry> {
        self.core.dylib().session.calls.enter_if_enabled()
    }
}

impl Clone for Pin {
    fn clone(&self) -> Pin {
        self.core.pin_handle_again();
        Pin { core: self.core.clone(), revocable: None }
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({})", self.core.key())
    }
}

/// Runs `body` with the key of a live tracker, or returns the error that the tracker is defunct.
pub(crate) fn with_resource_key<R>(core: &Arc<TrackerCore>, body: impl FnOnce(ResourceKey) -> R) -> Result<R> {
    core.with_resource_key(body).map_err(|Defunct| core.defunct())
}
