//! The front desk: where session, link and memory meet. Objects become materialisation units; finished links are recorded
//! under their tracker's key and given back by it.
//!
//! Things that are not about marrying the three belong elsewhere. This room runs no code, and knows no services.

mod hooks;
mod memory_ledger;
mod object_layer;
mod object_link;
mod plugin;
mod plugins;
mod section_bounds;
mod thread_locals;

pub use memory_ledger::{HasMemory, MemoryLedger};
pub use object_layer::ObjectLinkingLayer;
pub use plugin::{LinkHooks, LinkOrigin, LinkPlugin};
