//! Lookups: the search through dylibs and their generators, the query that is attached to what was found, the lazy unit
//! that is taken out of the table, and the ways to receive the answer.
//!
//! | file | holds |
//! |---|---|
//! | `ready_lookup.rs` | lookups that need no wait: every symbol is far enough along |
//! | `ready_definitions.rs` | what one dylib defines of a few names, if all of that is ready |
//! | `pinned_lookup.rs` | lookups for owned handles of ready symbols |
//! | `search.rs`, `searched.rs` | step 1: find every name, in the dylibs of an order |
//! | `origin.rs` | who looks the names up, and since when |
//! | `long_order.rs` | which dylibs of a long link order matter for a name |
//! | `begin.rs` | steps 2 and 3: attach the query, dispatch the units |
//! | `lazy_unit.rs`, `ready_alias.rs` | what of a lazy unit is dispatched; aliases that need no dispatch |
//! | `not_found.rs` | the error for missing names, with the causes of those whose definitions failed |
//! | `blocking.rs`, `lookup_future.rs`, `lookup_and_apply.rs` | the public methods |
//!
//! Imports `core` and the sub-rooms below it. A lookup starts materialisation through the dispatcher; it does not do
//! it.

pub(in crate::session) mod begin;
pub(in crate::session) mod blocking;
pub(in crate::session) mod lazy_unit;
pub(in crate::session) mod long_order;
pub(in crate::session) mod lookup_and_apply;
pub(in crate::session) mod lookup_future;
pub(in crate::session) mod not_found;
pub(in crate::session) mod origin;
pub(in crate::session) mod pinned_lookup;
pub(in crate::session) mod ready_alias;
pub(in crate::session) mod ready_definitions;
pub(in crate::session) mod ready_lookup;
pub(in crate::session) mod search;
pub(in crate::session) mod searched;
pub(in crate::session) mod symbol_at;
