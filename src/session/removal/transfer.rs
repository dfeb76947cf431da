//! Transfer: everything that one tracker owns goes to another tracker of its dylib.
//!
//! When the last handle of a live tracker is dropped, its resources go to the default tracker of the dylib. So a forgotten
//! handle never frees running code.
//!
//! Symbols change their owner at once, and go to its list in pieces (`symbols/symbol_table/unfinished.rs`): other threads get the
//! dylib's lock after each piece. A thread that removes the destination meanwhile removes what is still on its way.
//!
//! Managers move their resources under the locks of both trackers. A manager may panic; then the transfer is completed, and
//! `failed_transfers.rs` records the key. Models: `loom_tests/loom_transfer_remove.rs`, `loom_tests/loom_transfer_panic.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::{Payload, text_of};
use crate::error::{Error, ErrorKind, Result};
use crate::session::core::jit_dylib::DylibState;
use crate::session::core::observer::Event;
use crate::session::core::resource_tracker::{ResourceTracker, TrackerCore};
use crate::session::pins::tracker_state::TrackerState;
use crate::session::types::failed_transfers::FailedTransferKey;
use crate::sync::{Arc, Ordering, seeded_bug};

impl ResourceTracker {
    /// Moves everything under this tracker to `destination`, including work in progress. This tracker is defunct afterwards.
    /// A transfer of a tracker to itself does nothing.
    ///
    /// # Errors
    /// If either tracker is defunct or they are of different dylibs, nothing was moved. If [managers
    /// panicked](crate::session::ResourceManager::transfer_resources), everything was moved, this tracker is defunct, and the
    /// error joins one for each of these managers.
    pub fn transfer_to(&self, destination: &ResourceTracker) -> Result<()> {
        transfer(self.core(), destination.core(), || true).and_then(Error::join)
    }

    /// Like [`transfer_to`](Self::transfer_to). The error reporter gets the panics of managers.
    pub(crate) fn transfer_and_report(&self, destination: &ResourceTracker) -> Result<()> {
        let failures = transfer(self.core(), destination.core(), || true)?;
        failures.into_iter().for_each(|failure| self.core().dylib().session.error_reporter.report(failure));
        Ok(())
    }
}

impl Drop for ResourceTracker {
    fn drop(&mut self) {
        // The handles of a defunct tracker are not counted.
        if !self.core().state.is_live() || self.core().state.handles.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        // Repeated under the locks of both trackers: a new handle either is counted there, or finds the merged tracker.
        let has_no_handle = || self.core().state.handles.load(Ordering::Relaxed) == 0;
        // Repeats if the default tracker is removed in between; then there is a new one.
        while has_no_handle() && self.core().state.is_live() {
            let Ok(default) = self.core().dylib().default_core() else { return };
            if Arc::ptr_eq(&default, self.core()) {
                return;
            }
            let failures = transfer(self.core(), &default, has_no_handle).unwrap_or_default();
            failures.into_iter().for_each(|failure| self.core().dylib().session.error_reporter.report(failure));
        }
    }
}

/// Merges `source` into `destination`, if `still_valid` returns true under their locks. A panic of a manager does not stop the
/// transfer. Returns an error for each panic.
fn transfer(
    source: &Arc<TrackerCore>,
    destination: &Arc<TrackerCore>,
    still_valid: impl FnOnce() -> bool,
) -> Result<Vec<Error>> {
    if Arc::ptr_eq(source, destination) {
        return if source.state.is_live() { Ok(Vec::new()) } else { Err(source.defunct()) };
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
    // Dropped after the locks are released: this may be the last reference to a manager.
    let mut managers = seeded_bug!("managers_listed_before_the_gates").then(|| session.managers(source.dylib()));
    // Also dropped later: the payload of a panic is the embedder's.
    let mut panics = Vec::new();
    let mut late = Vec::new();
    let dylib = &source.handle;
    let mut record = None;
    {
        let mut state = source.dylib().state.lock();
        state.release_shared_pin(source);
        let merged = TrackerState::merge(&source.state, (destination, &destination.state), still_valid, || {
            // Under the locks of both trackers, so nothing is recorded under either key meanwhile (S3). The managers are listed
            // here too. A manager that records under the source was registered before, and is listed. One that is registered
            // later records under the destination.
            let managers = managers.get_or_insert_with(|| session.managers(source.dylib()));
            let mut failed_keys = Vec::new();
            for manager in managers.iter().rev() {
                // A manager that panics may hold resources under either key. The other managers continue, and this one is
                // called for both keys when the destination is reclaimed.
                let call = || manager.transfer_resources(dylib, destination.key(), source.key());
                if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
                    panics.push(panic);
                    failed_keys.push(FailedTransferKey::new(source.key(), manager));
                }
            }
            if seeded_bug!("unmoved_noted_after_the_gates") {
                late = failed_keys;
            } else if !failed_keys.is_empty() || source.state.has_failed_transfers() {
                session.failed_transfers.merge(destination.key(), source.key(), failed_keys);
                destination.state.mark_failed_transfer();
            }
        });
        let Some(had_dependants) = merged else {
            return Err(if source.state.is_live() { destination.defunct() } else { source.defunct() });
        };
        session.pins.merge(source, destination, had_dependants);
        state.begin_transfer(source, destination);
        while !state.table.move_piece(source.id, &mut record) {
            state.unlock_fair();
            state = source.dylib().state.lock();
        }
    }
    drop(record);
    // Seeded bug: the destination may have been reclaimed before this.
    if !late.is_empty() {
        session.failed_transfers.merge(destination.key(), source.key(), late);
        destination.state.mark_failed_transfer();
    }
    if session.observers.is_active() {
        let (source, destination) = (source.key(), destination.key());
        session.observers.deliver(&Event::Transferred { dylib, source, destination });
    }
    Ok(panics.into_iter().map(|panic| panicked_in_transfer(source, destination, panic)).collect())
}

#[cold]
fn panicked_in_transfer(source: &TrackerCore, destination: &TrackerCore, panic: Payload) -> Error {
    Error::other(format!(
        "a resource manager panicked while {} of `{}` was transferred to {}; the transfer is complete, and what the manager still \
         holds under the first key is released with the second: {}",
        source.key(),
        source.dylib().name,
        destination.key(),
        text_of(panic)
    ))
}

impl DylibState {
    /// Makes `destination` the owner of the symbols of `source`.
    fn begin_transfer(&mut self, source: &TrackerCore, destination: &TrackerCore) {
        self.clear_default_tracker(source);
        self.shared_pins.transfer(source.id, destination.id);
        self.table.begin_transfer(source.id, destination.id);
    }
}
