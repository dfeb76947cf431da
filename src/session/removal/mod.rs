//! Removal of trackers, symbols and dylibs: unpublish, reclaim, transfer, the tickets of removals, and watches.
//!
//! | file | holds |
//! |---|---|
//! | `remove.rs` | `remove`, `try_remove`, `remove_cascade`, `remove_all`, `clear`, `remove_now` |
//! | `unpublish.rs` | removal of symbols from a table, and failure of what waits for them |
//! | `reclaim.rs` | release of the resources by the managers, and the drop of a pin |
//! | `ticket.rs` | [`Removal`](crate::session::Removal) |
//! | `owning_tracker.rs` | [`OwningTracker`](crate::session::OwningTracker), whose drop removes a tracker |
//! | `transfer.rs` | transfer of a tracker, and the drop of its last handle |
//! | `symbols.rs`, `dylib.rs` | removal of single symbols, of dylibs, and the end of a session |
//! | `symbol_watch.rs`, `tracker_watch.rs` | weak references to a definition and to a tracker |
//!
//! The `Drop` impls of [`Pin`](crate::session::Pin), [`ResourceTracker`](crate::session::ResourceTracker) and the session are
//! here, since each of them may complete a removal. The sub-room imports `lookup`, `core` and what is below them. It does not
//! resolve, emit or fail symbols of a responsibility.

pub(in crate::session) mod dylib;
pub(in crate::session) mod owning_tracker;
pub(in crate::session) mod reclaim;
pub(in crate::session) mod remove;
pub(in crate::session) mod symbol_watch;
pub(in crate::session) mod symbols;
pub(in crate::session) mod ticket;
pub(in crate::session) mod tracker_watch;
pub(in crate::session) mod transfer;
pub(in crate::session) mod unpublish;
