//! Tests of the memory manager: it packs, reuses and counts memory and returns free pages to the kernel. Code is never
//! writable. Warm linking and removing make no system call. One file per theme.
//!
//! Shared helpers: `slab.rs` (plans and pools), `mapping_modes.rs` (every [`MemoryMapper`](jittison::memory::MemoryMapper)),
//! `intercepting_mapper.rs` (a mapper that refuses calls), `fork.rs` (child processes).

mod accounting;
mod batch;
mod budget;
mod dropping;
mod environments;
mod far_apart;
mod fork;
mod fork_areas;
mod fork_namespaces;
mod intercepting_mapper;
mod large_sections;
mod leaks;
mod map;
mod map_pictures;
mod mapper;
mod mapping_modes;
mod offline;
mod placement;
mod process;
mod protection;
mod purge;
mod reach;
mod refused;
mod shards;
mod slab;
mod syscalls;
mod totals;
mod windows;

use jittison_test_support as support;
