//! The promises of the linker: objects that real compilers emit run as their source says, and what cannot be linked is
//! refused with its place, leaving nothing behind. One file per theme.
//!
//! Every object is compiled or assembled by the test that links it.

mod absolute;
mod apart;
mod archive_bytes;
mod archives;
mod at_once;
mod bad_archives;
mod bad_input;
mod bounds;
mod calls;
mod crafted;
mod data;
mod far_data;
mod found;
mod indirect;
mod indirect_branches;
mod init_fragments;
mod languages;
mod models;
mod plugins;
mod pruning;
mod read_over;
mod refusals;
mod second_opinion;
#[path = "../support/mod.rs"]
mod support;
mod symbols;
mod thread_locals;
mod told;
