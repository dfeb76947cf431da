//! The central types of a session, and the traits that an embedder implements: session, dylib, tracker, pin,
//! responsibility and query; unit, generator, manager and observer.
//!
//! These files import each other in a cycle: the public traits name the handles, the handles lead to the session, and
//! the session holds the objects that implement the traits. It is the only cycle of files in the session. A file
//! belongs here only if it needs the cycle. The methods of these types are in the sub-room that does the work, as an
//! `impl` block: `ResourceTracker::remove` is in `removal/`.
//!
//! Imports `types`, `pins`, `work` and `symbols`.

pub(in crate::session) mod clear_hook;
pub(in crate::session) mod deferred_notifications;
pub(in crate::session) mod dylibs;
pub(in crate::session) mod execution_session;
pub(in crate::session) mod generator;
pub(in crate::session) mod jit_dylib;
pub(in crate::session) mod materialization;
pub(in crate::session) mod observer;
pub(in crate::session) mod order_cache;
pub(in crate::session) mod query;
pub(in crate::session) mod resource_manager;
pub(in crate::session) mod resource_tracker;
pub(in crate::session) mod responsibility;
pub(in crate::session) mod symbol_ref;
pub(in crate::session) mod waiting;
