//! types

pub(in crate::session) mod counted_mutex;
pub(in crate::session) mod error_reporter;
pub(in crate::session) mod ledger;
pub(in crate::session) mod name_hash;
pub(in crate::session) mod name_sources;
pub(in crate::session) mod symbol;
