//! work

pub(in crate::session) mod dispatch;
pub(in crate::session) mod worker_pool;
