//! The promises of the session room, kept through its public interface: trackers, lookups, weak symbols, failure,
//! removal, waiting, managers, dependants. One file per theme; `support.rs` holds the doubles they share.
//!
//! No machine code is made here: units give themselves addresses, and resources are numbers in a ledger.

mod aliases;
mod begun;
mod defects;
mod dependants;
mod dylib;
mod evict;
mod failure;
mod forgetting;
mod futures;
mod generators;
mod groups;
mod guards;
mod handing_on;
mod holders;
mod link_order;
mod lookup;
mod lookup_and_apply;
mod managers;
mod many;
mod names;
mod often_looked_up;
mod panicking_managers;
mod pins;
mod printed;
mod reentry;
mod removal_stages;
mod reporter;
mod resource_tracker;
mod standing_pins;
mod stress;
mod support;
mod suspended;
mod verbs;
mod waiting;
mod weak;
mod workers;
