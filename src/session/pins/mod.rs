//! pins

pub(in crate::session) mod adjacency_set;
pub(in crate::session) mod calls;
pub(in crate::session) mod dependants;
pub(in crate::session) mod guards;
pub(in crate::session) mod pin_nodes;
pub(in crate::session) mod pin_table;
pub(in crate::session) mod revocable_pins;
pub(in crate::session) mod tracker_flags;
pub(in crate::session) mod tracker_state;
