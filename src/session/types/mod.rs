//! Small types that the whole session uses:
//!
//! - ids of dylibs and trackers ([`ids`]), flags and states of symbols ([`symbol`]), and lookup requests ([`request`]);
//! - containers that do not know a session: [`ledger`], [`counted_mutex`], [`failed_transfers`], [`name_sources`],
//!   [`name_hash`];
//! - pins that many handles share ([`shared_pins`]);
//! - which failures are younger than a lookup ([`failure_count`]);
//! - the handle to the embedder's error reporter ([`error_reporter`]).
//!
//! This sub-room imports no other sub-room. It holds no handle of a session, a dylib or a tracker.

pub(in crate::session) mod counted_mutex;
pub(in crate::session) mod error_reporter;
pub(in crate::session) mod failed_transfers;
pub(in crate::session) mod failure_count;
pub(in crate::session) mod ids;
pub(in crate::session) mod ledger;
pub(in crate::session) mod name_hash;
pub(in crate::session) mod name_sources;
pub(in crate::session) mod pending_removals;
pub(in crate::session) mod request;
pub(in crate::session) mod shared_pins;
pub(in crate::session) mod symbol;
