//! Bytes of objects and archives, and what a plugin sees of a link.
//!
//! [`ObjectBuffer`] is the input of a link. A plugin gets a [`LinkGraph`], then a [`PlacedLink`], then a
//! [`FixedLink`].
//!
//! # How it is built
//!
//! A link goes from the bytes of an object to a link graph, a segment plan and fixed-up bytes (ORC: JITLink).
//!
//! `pipeline.rs` calls the phases in this order. Read it first.
//!
//! | phase | file | result |
//! |---|---|---|
//! | read | `elf/read.rs`, `elf/relocations.rs`, `use_recorder.rs` | the graph: arrays of blocks, symbols and edges; names and contents are ranges of the object |
//! | *or* build | `builder/` | the graph of a code generator, which has no object |
//! | wrap | `wrapped_names.rs` | references to wrapped symbols have new names |
//! | claim | `claim.rs` | definitions that the responsibility does not own are externals; section groups of which another object has a copy are dropped |
//! | linker services | `init_fragments.rs`, `linker_names.rs`, `indirect.rs`, `bounds.rs`, `collectors.rs` | fragments of `_init` and `_fini` are functions; indirect functions have stubs; bounds of sections are defined; runtimes whose collector cannot work are refused |
//! | *plugins change the graph* | `changes/` | what they changed is checked, and their visible definitions are claimed |
//! | prune | `prune.rs` | blocks that no root leads to are dropped |
//! | *plugins change the graph* | `changes/` | what they changed is checked |
//! | tables | `symbol_uses.rs`, `sizes.rs`, `tables.rs`, `thread_locals.rs`, `range_extension/` | every GOT slot, stub and thunk that an edge may need has a place |
//! | layout | `layout.rs`, `large_sections.rs`, `thread_locals.rs`, `veneer_plan.rs` | every block has an offset in its segment or in the thread-local block, or is a large section; the plan is known |
//! | *memory is allocated; addresses of definitions are final* | `targets.rs` | |
//! | *plugins may change bytes and redirect edges* | `changes/placed.rs` | |
//! | *the caller looks the externals up* | `found_external.rs` | |
//! | thread-local storage | `placed_thread_locals.rs`, `local_dynamic_block.rs`, `thread_local_thunks.rs`, `thunk_plan.rs` | the image is complete; distances that the C library does not fix have thunks |
//! | fix up | `fixup.rs`, `thread_local_fixup.rs`, `plain_edges.rs`, `stubs.rs`, `range_extension/` | contents are copied and edges applied; branches and GOT loads are relaxed; references that do not reach are extended |
//! | *debug builds: verify* | `verify.rs` | every byte is computed again from the object, by the psABI's formulas |
//! | *plugins may read and change bytes* | `fixed_link.rs` | |
//! | collect | `frames.rs`, `initializers.rs` | the unwind records and the lists of initialisers and finalisers |
//!
//! A plugin may ask a fixed-up link for a view for debuggers or profilers: `symbol_file.rs`, `functions.rs`,
//! `lines.rs`. A link without such a plugin does no work for them. `archive/` finds objects in archives. No phase uses
//! it. `reload/` changes objects that replace others before they are linked.
//!
//! # Promises
//! - A construct that is not supported is refused. The error names it and its place. Nothing is mislinked silently.
//! - No input makes this module panic, overflow or read out of bounds. It has no `unsafe`, and arithmetic on values of
//!   the object is checked.
//! - Time and memory are nearly proportional to the object's size. Each byte is read once: overlapping sections, groups
//!   and relocations are refused, and overlapping names are counted. No walk is nested in another. Limits apply to what
//!   a few bytes of an object can request: padding (`layout.rs`), the alignment of thread-local sections, and
//!   zero-fill, which nothing touches and which memory refuses if there is no space.
//!
//! The fuzz targets in `fuzz/` check the last two.
//!
//! The link is the same for every instruction set; what differs is in `arch`.
//!
//! This module does not look symbols up, does not allocate executable memory, and runs nothing. It knows no resource
//! keys.

mod archive;
mod block;
mod block_lines;
mod bounds;
mod buffer;
mod builder;
mod call_frames;
mod change_record;
mod changes;
mod claim;
mod collectors;
mod content;
mod definition;
mod edge;
mod edge_rules;
mod elf;
mod fixed_link;
mod fixup;
mod found_external;
mod frames;
mod functions;
mod graph;
mod graph_description;
mod graph_insertions;
mod graph_names;
mod graph_symbol;
mod indirect;
mod init_fragments;
mod initializers;
mod instructions;
mod kept_names;
mod large_sections;
mod layout;
mod lines;
mod linker_names;
mod local_dynamic_block;
mod meaningful_sections;
mod output_budget;
mod pipeline;
mod placed_thread_locals;
mod plain_edges;
mod prefix_filter;
mod prune;
mod range_extension;
mod relaxable;
#[cfg(feature = "reload")]
mod reload;
mod resolved_link;
mod section_part;
mod sizes;
mod stubs;
mod symbol_file;
mod symbol_uses;
mod tables;
mod targets;
mod thread_local_fixup;
mod thread_local_plan;
mod thread_local_thunks;
mod thread_locals;
mod thunk_plan;
mod use_recorder;
mod veneer_plan;
mod veneers;
mod verify;
mod wrapped_names;

pub use crate::arch::{Aarch64Relocation, EdgeKind};
pub use archive::{Archive, ArchiveMember, FileBytes, OpenFile, ReadAt};
pub(crate) use bounds::{bind as bind_bounds, parts as section_parts, place as place_part};
pub use buffer::ObjectBuffer;
pub use builder::{BlockContent, BuiltGraph, GraphBuilder, NewBlock, NewSymbol, SymbolScope};
pub use call_frames::CallFrame;
pub(crate) use change_record::Promise;
pub(crate) use changes::check::check as check_changes;
pub(crate) use changes::promises::{AddedDefinition, Unpromised};
pub(crate) use claim::claimed_name;
pub(crate) use elf::{NamedSection, ObjectVariable, Outline, ScannedInterface, check_machine, machine_of, variables};
pub use fixed_link::FixedLink;
pub use found_external::FoundExternal;
pub use functions::LinkedFunction;
pub use graph::{Block, BlockId, Definition, Edge, GraphSymbol, LinkGraph, SymbolIndex};
pub use initializers::{Initializer, InitializerKind, InitializerStage};
pub(crate) use kept_names::KeptNames;
#[cfg(feature = "unstable")]
pub use large_sections::LARGE_SECTION_MIN;
pub use lines::SourceLine;
pub(crate) use pipeline::{ExternalNames, ReadLink, SealedLink};
pub use pipeline::{ExternalSymbol, LinkedObject, PlacedLink};
pub(crate) use prefix_filter::PrefixFilter;
#[cfg(feature = "reload")]
pub use reload::Diff;
#[cfg(feature = "reload")]
pub(crate) use reload::{
    Globals, LiveObject, Move, NativeFunction, NativePlan, NewObject, Plan, SharedConstant, StubbedFunction, World,
    object_of_code, plan_first, plan_native,
};
pub(crate) use section_part::{PartKind, SectionPart};
pub use thread_local_plan::ThreadLocalPlan;
pub(crate) use thread_local_thunks::ThreadLocalThunks;
pub(crate) use wrapped_names::WrappedNames;

#[cfg(not(feature = "unstable"))]
pub(crate) use large_sections::LARGE_SECTION_MIN;
#[cfg(feature = "unstable")]
pub use {
    archive::{ArchiveSet, Listing, MemberId},
    elf::{InterfaceSymbol, ObjectInterface, has_low_addresses, required_names},
    pipeline::{PlanStage, PlannedLink},
    thread_local_plan::ThreadLocalPlace,
};
#[cfg(not(feature = "unstable"))]
pub(crate) use {
    archive::{ArchiveSet, Listing, MemberId},
    elf::{InterfaceSymbol, ObjectInterface, required_names},
    pipeline::PlanStage,
    thread_local_plan::ThreadLocalPlace,
};
