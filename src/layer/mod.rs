//! The object layer, and plugins that take part in links.
//!
//! [`ObjectLinkingLayer`] links objects for a session. Implement [`LinkPlugin`] to read or change objects
//! while they are linked.
//!
//! # How it is built
//!
//! Session, link and memory meet here.
//!
//! An object that is added becomes a materialisation unit. Its link runs when one of its symbols is looked up. The memory of a
//! finished link is recorded under the key of its tracker, and freed with that key.
//!
//! | file | content |
//! |---|---|
//! | `object_layer.rs` | [`ObjectLinkingLayer`], the public type |
//! | `object_link.rs` | the link of one object, step by step |
//! | `emitted_graph.rs` | the link of a graph whose symbols a unit has claimed |
//! | `claim_map.rs`, `added_definitions.rs` | which symbol of the graph defines each claimed symbol; claims of what plugins added |
//! | `external_lookup.rs`, `found_externals.rs` | the lookup of what the object refers to; what the link reads of the results |
//! | `group_members.rs`, `symbol_set.rs`, `link_report.rs` | members of COMDAT groups, a set of symbols, what observers hear of a link |
//! | `hidden_names.rs` | weak names that some object of a dylib declares hidden, which are hidden for all |
//! | `layer_inner.rs` | what the layer and its links share, which is the resource manager; the memory of one linked object |
//! | `machine.rs`, `foreign_thread_locals.rs` | the machine that the layer links for; thread-local blocks of code that never runs |
//! | `memory_ledger.rs` | `MemoryLedger`: memory per key, with totals |
//! | `plugin.rs`, `plugins.rs`, `hooks.rs` | the plugin traits, the list of plugins, the hooks of one link |
//! | `link_report.rs` | what observers get to know about a link |
//! | `registered_sessions.rs` | the sessions that the layer is registered with |
//! | `section_bounds.rs` | `__start_X` and `__stop_X` over all objects of a dylib |
//! | `section_claimant.rs`, `section_table.rs`, `section_use.rs`, `section_area.rs` | who gets which place; the uses of each section; the memory of the parts |
//! | `section_model.rs` | the same for models |
//! | `thread_locals.rs` | thread-local blocks |
//!
//! This module runs no code and does not know the services that plug into it.

mod added_definitions;
mod claim_map;
mod emitted_graph;
mod external_lookup;
mod foreign_thread_locals;
mod found_externals;
mod group_members;
mod hidden_names;
mod hooks;
mod layer_inner;
mod link_report;
mod machine;
mod memory_ledger;
mod object_layer;
mod object_link;
mod plugin;
mod plugins;
mod registered_sessions;
mod section_area;
mod section_bounds;
mod section_claimant;
#[cfg(loom)]
mod section_model;
mod section_table;
mod section_use;
mod symbol_set;
mod thread_locals;

pub(crate) use memory_ledger::{HasMemory, MemoryLedger};
pub use object_layer::ObjectLinkingLayer;
pub use plugin::{LinkHooks, LinkOrigin, LinkPlugin};
#[cfg(loom)]
pub use section_model::{ModelLink, ModelObject, SectionModel};
