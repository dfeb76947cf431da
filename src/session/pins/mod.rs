//! Everything that keeps the resources of a removed tracker:
//!
//! | part | file |
//! |---|---|
//! | the state of a tracker, and its pin counts | `tracker_state.rs`, `tracker_flags.rs`, `pinned.rs` |
//! | the pin graph: whose code refers to whose | `dependants.rs`, `pin_table.rs`, `pin_nodes.rs`, `adjacency_set.rs` |
//! | what holds a retired tracker, and what is free | `witnesses.rs`, `claim_search.rs` |
//! | the order of a batch | `unload_order.rs` |
//! | the reasons of revocable pins | `revocable_pins.rs` |
//! | guards and calls that threads have entered | `guards.rs`, `guard.rs`, `calls.rs` |
//!
//! The sub-room is generic over the tracker ([`Pinned`](pinned::Pinned)), so it knows no session and no dylib. It imports
//! `types` only. It decides what may be reclaimed; `removal` reclaims it. Items that were deferred for a guard go back to
//! `removal` through [`Deferred`](guards::Deferred).

pub(in crate::session) mod adjacency_set;
pub(in crate::session) mod calls;
pub(in crate::session) mod claim_search;
pub(in crate::session) mod dependants;
pub(in crate::session) mod guard;
pub(in crate::session) mod guards;
pub(in crate::session) mod pin_nodes;
pub(in crate::session) mod pin_table;
pub(in crate::session) mod pinned;
pub(in crate::session) mod revocable_pins;
pub(in crate::session) mod tracker_flags;
pub(in crate::session) mod tracker_state;
pub(in crate::session) mod unload_order;
pub(in crate::session) mod witnesses;
