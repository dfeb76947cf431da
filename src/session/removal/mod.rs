//! removal

pub(in crate::session) mod reclaim;
pub(in crate::session) mod reclaimer;
pub(in crate::session) mod remove;
pub(in crate::session) mod symbol_watch;
pub(in crate::session) mod ticket;
pub(in crate::session) mod tracker_watch;
pub(in crate::session) mod unmoved;
pub(in crate::session) mod unpublish;
