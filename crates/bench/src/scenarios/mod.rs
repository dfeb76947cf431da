//! The measurements of each competitor.

pub mod calls;
pub mod floor;
pub mod handles;
pub mod large;
mod memory_manager;
mod million;
pub mod programs;
pub mod registry;
mod sizes;
pub mod system_calls;
mod tableless;
