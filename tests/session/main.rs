//! The promises of the session, tested through its public interface: trackers, lookups, weak symbols, failure, removal,
//! waiting, managers, dependants. One file for each theme. `support.rs` has the shared test doubles.
//!
//! These tests make no machine code. Units choose their own addresses, and resources are numbers in a ledger.

mod aliases;
mod defects;
mod define_materializing;
mod dependants;
mod dropped_handles;
mod dylib;
mod edges;
mod evict;
mod failure;
mod first_cause;
mod futures;
mod generators;
mod groups;
mod guards;
mod large_counts;
mod link_order;
mod lookup;
mod lookup_and_apply;
mod managers;
mod names;
mod owning_tracker;
mod panicking_callbacks;
mod panicking_managers;
mod pins;
mod printed;
mod ready_index;
mod reentry;
mod removal_stages;
mod removal_verbs;
mod replace_and_delegate;
mod reporter;
mod resource_tracker;
mod standing_pins;
mod stress;
mod support;
mod suspended;
mod two_sessions;
mod waiting;
mod weak;
mod workers;
