//! The workshop: bytes of an object → link graph → segment plan → fixed-up bytes. It never sees a key.
//!
//! # Phases
//!
//! | phase | file | afterwards |
//! |---|---|---|
//! | read | `elf/read.rs`, `elf/relocations.rs`, `use_recorder.rs` | blocks, symbols and edges stand in arrays; names and contents are ranges of the object |
//! | claim | `claim.rs` | definitions that others made are externals; section groups without a claimed symbol are gone |
//! | services of a linker | `indirect.rs`, `bounds.rs` | indirect functions have stubs, bounds of sections are defined |
//! | *plugins may add blocks and define externals* | | *no new symbols after this* |
//! | prune | `prune.rs` | what nothing leads to is gone |
//! | tables | `symbol_uses.rs`, `tables.rs`, `thread_locals.rs`, `far_data/` | every GOT slot, stub and thunk that an edge may need has a place |
//! | layout | `layout.rs`, `large_sections.rs`, `thread_locals.rs` | every block has an offset in its pool's segment or the thread-local block, or a place apart; the plan is known |
//! | *memory is allocated; addresses of definitions are final* | `targets.rs` | |
//! | *externals are looked up* | | |
//! | fix up | `fixup.rs`, `x86_64.rs`, `far_data/` | contents copied, edges applied, branches and GOT loads relaxed by displacement, what is too short redirected |
//! | *debug builds: a second opinion* | `verify.rs` | every byte was derived again from the object, by the psABI's formulas |
//! | collect | `frames.rs`, `initializers.rs` | what the unwinder and the init/fini registry must know |
//!
//! A plugin may ask a fixed-up link for what debuggers and profilers want: `symbol_file.rs`, `functions.rs`, `lines.rs`. A
//! link that is not asked spends nothing on it.
//!
//! `pipeline.rs` calls them in this order and is the story to read first. Objects that lie in archives are found by
//! `archive/`, which no phase knows.
//!
//! What is not supported is refused with its name and place; nothing is mislinked in silence. No input makes this room
//! panic, overflow or read out of bounds: it holds no `unsafe`, and arithmetic on values of the object is checked.
//! Time and memory are in proportion to the object's size, nearly: what stands in it once is read once (sections, groups
//! and relocations that overlap are refused, overlapping names are counted), no walk is nested in another, and what an
//! object asks for without having it is bounded: padding (`layout.rs`), alignment of thread-local sections, and zero-fill,
//! which nothing touches and memory refuses when it has no room. `fuzz/` holds it to that.
//!
//! This room does not look symbols up, does not allocate, and runs nothing.

mod archive;
mod bounds;
mod buffer;
mod call_frames;
mod claim;
mod elf;
mod fixup;
mod frames;
mod functions;
mod graph;
mod indirect;
mod init_fragments;
mod initializers;
mod large_sections;
mod layout;
mod lines;
mod linker_names;
mod pipeline;
mod prune;
mod range_extension;
mod symbol_file;
mod symbol_uses;
mod tables;
mod targets;
mod thread_locals;
mod use_recorder;
mod verify;
mod x86_64;

pub use archive::{Archive, ArchiveMember, ArchiveSet, FileBytes, Listing, MemberId, OpenFile, ReadAt};
pub(crate) use bounds::named_sections;
pub use buffer::ObjectBuffer;
pub use call_frames::CallFrame;
pub use elf::{InterfaceSymbol, ObjectInterface, required_names};
pub(crate) use elf::{Outline, Seen, Variable, variables};
pub use fixup::FoundExternal;
pub use functions::LinkedFunction;
pub use graph::{Block, BlockId, Definition, Edge, LinkGraph, Symbol, SymbolIndex};
pub use initializers::{Initializer, InitializerKind};
pub use large_sections::LARGE_SECTION_MIN;
pub use lines::SourceLine;
pub(crate) use pipeline::{ExternalNames, ReadLink};
pub use pipeline::{ExternalSymbol, FixedLink, LinkedObject, PlacedLink, PlanStage, PlannedLink};
pub use thread_locals::{ThreadLocalPlace, ThreadLocalPlan};
pub(crate) use x86_64::ENDBR64;
pub use x86_64::EdgeKind;
