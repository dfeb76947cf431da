//! symbols

pub(in crate::session) mod ready_index;
pub(in crate::session) mod symbol_table;
