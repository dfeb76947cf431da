//! Tests of the linker. Objects from real compilers run as their source says. What cannot be linked is refused with its place
//! and leaves nothing behind. One file per theme.
//!
//! Every test compiles or assembles the objects that it links.

mod aarch64;
mod absolute;
mod archives;
mod at_once;
mod bad_archives;
mod bad_input;
mod bounds;
mod bounds_across;
mod bounds_over_time;
mod calls;
mod changing_plugin;
mod compact_relocations;
mod crafted;
mod data;
mod debug_info_size;
mod first_cause;
mod found;
#[cfg(feature = "range-extension")]
mod function_addresses;
mod function_names;
mod graphs;
mod groups;
mod hidden;
mod indirect;
mod indirect_branches;
mod init_fragments;
mod languages;
mod large_sections;
mod long_names;
mod models;
mod plugin_changes;
mod plugin_refusals;
mod plugins;
mod pruning;
#[cfg(feature = "range-extension")]
mod range_extension;
mod read_over;
mod refusals;
mod shared_names;
mod symbols;
#[cfg(feature = "range-extension")]
mod thread_local_models;
mod thread_locals;
mod unloaded_sections;
mod veneers;
mod verify;
#[cfg(not(feature = "range-extension"))]
mod without_range_extension;
mod wrap;

use jittison_test_support as support;

#[global_allocator]
static ALLOCATOR: support::CountingAllocator = support::CountingAllocator;
