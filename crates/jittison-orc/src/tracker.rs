//! [`Tracker`]: `LLVMOrcResourceTrackerRef` points to one.

use std::ptr;

use jittison::{Error, ResourceTracker};

use crate::dylib::Dylib;
use crate::entry::{dispose, give, run, run_or_report};
use crate::llvm::Opaque;

/// A tracker that the program holds. Releasing it gives what a live tracker owns to the default tracker, as in ORC.
pub(crate) struct Tracker {
    pub(crate) tracker: ResourceTracker,
    dylib: *const Dylib,
}

impl Tracker {
    /// # Safety
    /// O1 for the pointer.
    pub(crate) unsafe fn of<'a>(tracker: *const Tracker) -> Result<&'a Tracker, Error> {
        // SAFETY: O1 - the caller promises it.
        unsafe { tracker.as_ref() }.ok_or_else(|| Error::other("the resource tracker is null"))
    }

    /// The dylib of the tracker. The session owns it.
    pub(crate) fn dylib(&self) -> Result<&Dylib, Error> {
        // SAFETY: O1 - the session that owns it lives while the program uses its trackers.
        unsafe { Dylib::of(self.dylib) }
    }
}

/// Makes a tracker of a dylib.
///
/// # Safety
/// O1 for the dylib.
unsafe fn tracker_of(dylib: *const Dylib, make: impl FnOnce(&Dylib) -> Result<ResourceTracker, Error>) -> *mut Tracker {
    // SAFETY: O1 - the caller promises it.
    let of = unsafe { Dylib::of(dylib) };
    let session = of.as_ref().ok().and_then(|of| of.session().ok());
    run_or_report(session.as_deref(), ptr::null_mut(), || Ok(give(Tracker { tracker: make(of?)?, dylib })))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcJITDylibCreateResourceTracker(dylib: *const Dylib) -> *mut Tracker {
    // SAFETY: O1 - the program promises it.
    unsafe { tracker_of(dylib, |of| of.dylib.create_tracker()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcJITDylibGetDefaultResourceTracker(dylib: *const Dylib) -> *mut Tracker {
    // SAFETY: O1 - the program promises it.
    unsafe { tracker_of(dylib, |of| of.dylib.default_tracker()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcReleaseResourceTracker(tracker: *mut Tracker) {
    // SAFETY: O2 - the program gives it away.
    unsafe { dispose(tracker) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcResourceTrackerTransferTo(source: *const Tracker, destination: *const Tracker) {
    // SAFETY: O1 - the program promises both.
    let (source, destination) = unsafe { (Tracker::of(source), Tracker::of(destination)) };
    let session = source.as_ref().ok().and_then(|source| source.dylib().ok()?.session().ok());
    run_or_report::<()>(session.as_deref(), (), || source?.tracker.transfer_to(&destination?.tracker));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcResourceTrackerRemove(tracker: *const Tracker) -> Opaque {
    run(|| {
        // SAFETY: O1 - the program promises it.
        let tracker = &unsafe { Tracker::of(tracker) }?.tracker;
        // A second removal does nothing, as in ORC.
        if tracker.is_defunct() { Ok(()) } else { tracker.remove().map(drop) }
    })
}
