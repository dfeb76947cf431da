//! Workload d: many modules that stay in a long-lived process, as in EVM nodes, PyMC and notebooks.
//!
//! A cycle adds all modules and removes all, as PyMC does with each step. Then come the sweeps of a node: each
//! removes up to a fifth of the modules at once and adds as many new ones. In the end one module in two hundred stays
//! held and all others are removed. This shows how much memory the few keep from being released.

mod libraries;
mod modules;
mod plan;
mod variants;

pub use variants::scenarios;
