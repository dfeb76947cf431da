//! The promises of the session room, kept through its public interface: trackers, lookups, weak symbols, failure,
//! removal, waiting, managers, dependants. One file per theme; `support.rs` holds the doubles they share.
//!
//! No machine code is made here: units give themselves addresses, and resources are numbers in a ledger.

mod defects;
mod dependants;
mod dylib;
mod failure;
mod forgetting;
mod generators;
mod lookup;
mod managers;
mod pins;
mod removal_stages;
mod resource_tracker;
mod stress;
mod support;
mod waiting;
mod weak;
