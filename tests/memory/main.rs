//! The promises of the storeroom: memory is packed, reused, counted and given back; code is never writable; linking and
//! removing ask the system for nothing. One file per theme.

mod accounting;
mod apart;
mod batch;
mod budget;
mod dropping;
mod environments;
mod fork;
#[path = "../support/frames.rs"]
mod frames;
mod giving_back;
mod ladder;
mod leaving;
mod map;
mod map_pictures;
mod mapper;
mod offline;
mod overheard;
mod placement;
mod process;
mod protection;
mod reach;
mod refused;
mod shards;
mod slab;
#[path = "../support/mod.rs"]
mod support;
mod syscalls;
mod totals;
mod windows;
