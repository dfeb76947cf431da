//! materialize

pub(in crate::session) mod aliases;
pub(in crate::session) mod emission;
pub(in crate::session) mod link_order;
pub(in crate::session) mod materialization_wait;
pub(in crate::session) mod responsibility;
