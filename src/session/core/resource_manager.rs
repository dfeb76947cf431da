//! [`ResourceManager`]: the seam through which removal reaches whoever owns something.

use crate::error::Result;
use crate::session::{JitDylib, ResourceKey};

/// Owns resources per key: memory, stubs, initialisers, whatever an embedder hangs on code (ORC: `ResourceManager`).
///
/// Register with [`ExecutionSession::register_manager`](crate::session::ExecutionSession::register_manager). Managers are
/// told newest first, so one built upon another lets go before it.
pub trait ResourceManager: Send + Sync {
    /// The key's tracker was removed and nothing pins it: give back everything under `key`.
    ///
    /// Called once per key, with no lock held; may call back into the session. A failure, or a panic, stops no other manager; it is
    /// returned by the call that completes the removal, or else told to the session's
    /// [error reporter](crate::session::SessionOptions::error_reporter).
    fn remove_resources(&self, dylib: &JitDylib, key: ResourceKey) -> Result<()>;

    /// Whether the session may leave out [`remove_resources`](Self::remove_resources) for a key that nobody was given to record
    /// under: by
    /// [`MaterializationResponsibility::with_resource_key`](crate::session::MaterializationResponsibility::with_resource_key) or
    /// [`ResourceTracker::with_resource_key`](crate::session::ResourceTracker::with_resource_key), for the key's own tracker or
    /// one that was transferred to it. True of whoever records nowhere else, and has nothing to do for what it holds nothing
    /// under. Called at such a key's removal, with no lock held.
    fn skips_unused_keys(&self) -> bool {
        false
    }

    /// Bytes of code memory that stand under `key`, for whoever wants to know: [tickets](crate::session::Removal::bytes), and
    /// [observers](crate::session::Observer), where there are any. Zero for managers that hold none.
    fn held_bytes(&self, key: ResourceKey) -> u64 {
        let _ = key;
        0
    }

    /// The key's tracker was removed, and nothing holds it any more but [standing pins](crate::session::Pin::stand): let go
    /// of those that this manager has made for the key, and can let go of on the calling thread.
    ///
    /// Called with no lock held; may run code, and may call back into the session. May be called several times for one
    /// key, and never after [`remove_resources`](Self::remove_resources).
    fn release_pins(&self, dylib: &JitDylib, key: ResourceKey) {
        let _ = (dylib, key);
    }

    /// Everything under `source` now belongs to `destination`.
    ///
    /// Called under locks of the session, so that no resource can be recorded under either key meanwhile. Move
    /// bookkeeping only ([`Ledger::transfer`](crate::session::Ledger::transfer)); do not call back into the session.
    ///
    /// A panic does not undo the transfer. The session and the other managers complete it, the panic is an error of
    /// [`transfer_to`](crate::session::ResourceTracker::transfer_to) or goes to the error reporter, and the session takes it that
    /// this manager holds things under both keys. So when the tracker of `destination`, or one that it is transferred to, is
    /// reclaimed, this manager is called for `source` too: by [`remove_resources`](Self::remove_resources), once, after the
    /// call for the tracker's own key; by [`release_pins`](Self::release_pins); by [`held_bytes`](Self::held_bytes).
    /// It is not asked again to transfer `source`.
    fn transfer_resources(&self, dylib: &JitDylib, destination: ResourceKey, source: ResourceKey);
}
