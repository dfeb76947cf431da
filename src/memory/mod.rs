//! The storeroom: windows, pools, free space, allocations in flight and finalized. It never sees a symbol.
//!
//! # A window
//!
//! ```text
//!  base                                                                            2 GiB at most
//!   ├ header ┬ frame table ───────┬ guard ┬◄─ code pool ┬ guard ┬◄─ read-only ┬ guard ┬◄─ data pool  ┤
//!   │ ELF    │ 8 B per 64 B of text        │ r-x          │       │ r--         │       │ rw- private  │
//!   └────────┴─────────── one shared file, mapped from a read-only descriptor ──┘       └ anonymous ───┘
//!                     │ the same file, mapped again elsewhere, rw-: the working view │
//! ```
//!
//! The loader has opened the window as a shared object, so unwinders find its frames without any registration
//! (`frame_table.rs`). Each pool has one protection for life: linking and removing make no system call. Objects are
//! packed at 64 bytes of text and 16 bytes of data, not at pages. Where a system does not allow all of this, the next best
//! way of mapping is taken (`system_mapper.rs`).
//!
//! Pools are opened by slabs, from the end downwards, each slab for one of the window's shards (`shard.rs`), so that
//! threads link side by side. Pages that nothing lives in go back to the kernel late, or when asked (`purge.rs`).
//! Fresh pages are backed some at a time, as far as a shard has use for so many ([`MappedWindow::pages_at_once`]): the
//! first write to each would cost a page fault.
//!
//! # Plan → in flight → finalized
//!
//! A [`SegmentPlan`] says what a link needs. [`MemoryManager::allocate`] answers with an [`InFlight`] allocation: final
//! addresses and a writable view. [`InFlight::finalize`] seals it into a [`Finalized`] one. Dropping either gives the
//! memory back, so no error path can leak.
//!
//! Beside its places in the pools a plan may ask for sections that live apart, outside the window (`large_sections.rs`), and for
//! scratch memory until the link is finalized (`extended.rs`). Many allocations can be sealed as one batch (`batch.rs`).
//!
//! # Invariants
//!
//! - **M1** A range has one owner: the free space, an allocation in flight, or a finalized one.
//! - **M2** No view is writable and executable. Code and constants are written through the working view only.
//! - **M3** The bytes of a finalized allocation are written by nobody but the running code, and by
//!   [`Finalized::word`], which is atomic.
//! - **M4** A window outlives every allocation cut from it: each holds an `Arc` of it.
//! - **M5** Slot *i* of the frame table belongs to the owner of text granule *i*.
//! - **M6** Every raw access is to a range that was checked against the window's layout in the same function, or that
//!   the free space gave out.
//! - **M7** In a forked child, a window's address range, that of its working view and its descriptor are the window's, as
//!   in the parent. Until the handlers of `fork_guard.rs` are through, nobody uses the working view.
//!
//! Locks: growth before a shard's; a shard's is a leaf, under which no system call is made and no page of the window is
//! touched.
//!
//! This room does not know what it stores, and calls nothing that it stores. Who listens (`events.rs`) is told what becomes
//! of memory, under no lock.

mod batch;
mod budget;
mod dual_mapper;
mod events;
mod extended;
mod fork_gate;
mod fork_guard;
mod fragmentation;
mod frame_slots;
mod frame_table;
mod free_space;
mod large_sections;
mod layout;
mod loaded_window;
mod manager;
mod map_svg;
mod map_text;
mod mapper;
mod memory_map;
mod offline;
mod page_set;
mod placement;
mod plan;
mod purge;
mod quarantine;
mod report;
mod shard;
mod single_mapper;
mod slab_allocation;
mod slab_pool;
mod system_mapper;
mod window;
mod window_image;
mod windows;
mod word;

pub use dual_mapper::{DualMapper, PlainDualMapper};
pub use events::MemoryObserver;
#[cfg(loom)]
pub use fork_gate::{Closed, ForkGate};
pub use fragmentation::SlabFragmentation;
#[cfg(loom)]
pub use frame_slots::{FrameSlots, Slot};
pub use frame_table::Frame;
pub use layout::{PoolRange, WindowLayout};
pub use manager::{Finalized, InFlight, MemoryManager, MemoryStatistics, MemoryUsage, PoolStatistics, Released};
pub use mapper::{ForkPolicy, MappedWindow, MemoryMapper, Placement};
pub use memory_map::{MemoryMap, MemoryRange, PoolMap, SlabMap, Tenant, WindowMap};
pub use offline::OfflineMemory;
pub use plan::{LargeRequest, SegmentPlan, SegmentRequest};
pub(crate) use quarantine::QuarantineManager;
pub use single_mapper::SingleMapper;
pub use slab_pool::{OnFull, SlabPool, SlabPoolOptions};
pub use system_mapper::SystemMapper;
pub(crate) use word::Word;
