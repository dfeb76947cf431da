//! What a figure is and how it is measured.

pub mod cache;
pub mod checks;
pub mod competitor;
pub mod machine;
pub mod rows;
pub mod samples;
pub mod scenario;
pub mod workload;
pub mod workload_scenario;
