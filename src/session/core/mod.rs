//! core

pub(in crate::session) mod clear_hook;
pub(in crate::session) mod deferred_notifications;
pub(in crate::session) mod dylibs;
pub(in crate::session) mod execution_session;
pub(in crate::session) mod generator;
pub(in crate::session) mod jit_dylib;
pub(in crate::session) mod materialization;
pub(in crate::session) mod observer;
pub(in crate::session) mod query;
pub(in crate::session) mod resource_manager;
pub(in crate::session) mod resource_tracker;
pub(in crate::session) mod waiting;
