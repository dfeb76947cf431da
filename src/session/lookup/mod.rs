//! lookup

pub(in crate::session) mod blocking;
pub(in crate::session) mod lookup_and_apply;
pub(in crate::session) mod lookup_future;
pub(in crate::session) mod ready_lookup;
pub(in crate::session) mod search;
pub(in crate::session) mod symbol_at;
