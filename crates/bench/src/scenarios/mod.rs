//! The measurements of each competitor.

mod calls;
mod fixture;
mod floor;
mod handles;
pub mod large;
mod linkers;
mod memory_manager;
mod million;
mod orc;
mod ours;
pub mod programs;
pub mod registry;
mod sizes;
pub mod start;
pub mod system_calls;
mod tableless;
