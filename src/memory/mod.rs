//! Code memory: windows, pools, budgets, maps, fork policy.
//!
//! [`SlabPool`] is the memory manager that sessions use. Implement [`MemoryManager`] for another one, or
//! [`MemoryMapper`] for other mappings. This room knows no symbols.
//!
//! # A window
//!
//! A *window* is one reserved range of addresses, 2 GiB at most. It has three *pools*, one for each protection:
//!
//! ```text
//!  base                                                                            2 GiB at most
//!   ├ header ┬ frame table ───────┬ guard ┬◄─ code pool ┬ guard ┬◄─ read-only ┬ guard ┬◄─ data pool  ┤
//!   │ ELF    │ 8 B per 64 B of text        │ r-x          │       │ r--         │       │ rw- private  │
//!   └────────┴─────────── one shared file, mapped from a read-only descriptor ──┘       └ anonymous ───┘
//!                     │ the same file, mapped again elsewhere, rw-: the working view │
//! ```
//!
//! - The dynamic loader opens the window as a shared object. So unwinders find its frames, and no module is registered
//!   (`frame_table.rs`). Collectors find the open part of the data pool (`data_segment.rs`).
//! - The protection of a pool never changes. So a link or a removal makes no system call. If the system forbids such a
//!   mapping, `system_mapper.rs` takes the next best one.
//! - Allocations are aligned to 64 bytes of code and to 16 bytes of other memory, not to pages.
//! - A pool grows by *slabs*, from its end downwards (`growth.rs`). Each slab belongs to one *shard* of the window
//!   (`shard.rs`). Threads that link at the same time use different shards.
//! - Free pages return to the kernel late, or on request (`purge.rs`).
//! - New pages are populated several at a time, because the first write to each page costs a page fault
//!   ([`MappedWindow::pages_to_populate`]).
//!
//! # The states of an allocation
//!
//! 1. A [`SegmentPlan`] says what a link needs.
//! 2. [`MemoryManager::allocate`] returns an [`InFlight`] allocation: its final addresses and a writable view.
//! 3. [`InFlight::finalize`] turns it into a [`Finalized`] allocation.
//!
//! If either is dropped, its memory is free again. So no error path leaks.
//!
//! A plan may also ask for large sections outside the window (`large_sections.rs`), and for scratch memory until the
//! link is finalized (`extended.rs`). Many allocations can be finalized as one batch (`batch.rs`). Several links can fill
//! one allocation (`area.rs`).
//!
//! # Invariants
//!
//! SAFETY notes of this room cite these ids.
//!
//! - **M1** Every range of a pool has exactly one owner: the free space, an allocation in flight, a finalized
//!   allocation, or a purge that returns its pages to the kernel.
//! - **M2** No mapping is writable and executable at the same time. Code and constants are written through the working
//!   view only.
//! - **M3** Only the running code, [`Finalized::word`], which is atomic, and [`Finalized::write`] write the bytes of a
//!   finalized allocation.
//! - **M4** A window lives longer than every allocation in it, because each allocation holds an `Arc` of its window.
//! - **M5** Slot *i* of the frame table belongs to the owner of granule *i* of the code pool.
//! - **M6** Every raw access is in bounds: the same function has checked its range against the layout of the window, or
//!   the free space has handed out its range.
//! - **M7** In a forked child, the addresses of a window and of its working view, and its descriptor, still belong to
//!   the window. Nothing uses the working view of a child before the handlers of `fork_guard.rs` have run.
//! - **M8** An allocation of any manager keeps the contract of [`MemoryManager`]: its memory stays, at the same addresses,
//!   until it is dropped.
//! - **M9** [`Finalized::write`] writes a range that no code uses yet, and one call at a time writes an allocation.
//!
//! # Locks
//!
//! `growth` of a window comes before the lock of a shard. The lock of a shard is a leaf: a thread that holds it makes
//! no system call and touches no page of the window.
//!
//! # Limits
//!
//! This room does not know what its memory holds, and it never calls into it. Observers (`events.rs`) are called with
//! no lock held.

mod allocation;
mod area;
mod batch;
mod budget;
#[cfg(feature = "executor")]
mod copy_mapper;
mod data_segment;
mod dual_mapper;
mod events;
mod extended;
mod fork_gate;
mod fork_guard;
mod fragmentation;
mod frame;
mod frame_slots;
mod frame_table;
mod free_space;
mod group_counts;
mod growth;
#[cfg(feature = "executor")]
mod hosted_window;
mod large_sections;
mod layout;
mod loaded_window;
mod manager;
mod map_svg;
mod map_text;
mod mapper;
mod memory_map;
mod offline;
mod options;
mod page_set;
#[cfg(feature = "executor")]
mod peer_mapper;
mod placement;
mod plan;
mod process_marker;
mod purge;
mod purge_scan;
mod purge_thread;
mod quarantine;
mod report;
mod shard;
mod single_mapper;
mod slab_allocation;
mod slab_pool;
mod statistics;
mod system_mapper;
mod window;
mod window_image;
mod window_map;
mod windows;
mod word;
mod working_view;

pub use allocation::{Finalized, InFlight};
pub(crate) use area::{Area, AreaRequest, Place, PlacedBlocks, with_places};
#[cfg(feature = "executor")]
pub(crate) use copy_mapper::{CopyMapper, CopyPeer};
#[cfg(feature = "unstable")]
pub use dual_mapper::{DualMapper, PlainDualMapper};
pub use events::MemoryObserver;
pub(crate) use extended::keep_with;
#[cfg(loom)]
pub use fork_gate::{Closed, ForkGate};
pub use fragmentation::SlabFragmentation;
pub use frame::Frame;
#[cfg(loom)]
pub use frame_slots::{FrameSlots, Slot};
#[cfg(feature = "executor")]
pub(crate) use hosted_window::HostedWindow;
pub use layout::{PoolRange, WindowLayout};
pub use manager::{MemoryManager, Released};
pub use mapper::{ForkPolicy, MappedWindow, MemoryMapper, Placement};
pub use memory_map::{MemoryMap, MemoryRange, PoolMap, SlabMap, Tenant, WindowMap};
pub use offline::OfflineMemory;
pub use options::{OnFull, SlabPoolOptions};
#[cfg(feature = "executor")]
pub(crate) use peer_mapper::{HoldsWindows, PeerMapper, PeerPlace, WindowPeer};
pub use plan::{LargeRequest, SegmentPlan, SegmentRequest};
#[cfg(loom)]
pub use purge_thread::PurgeThread;
pub(crate) use quarantine::QuarantineManager;
#[cfg(feature = "unstable")]
pub use single_mapper::SingleMapper;
#[cfg(not(feature = "unstable"))]
pub(crate) use single_mapper::SingleMapper;
pub use slab_pool::SlabPool;
pub use statistics::{MemoryStatistics, MemoryUsage, PoolStatistics};
pub use system_mapper::SystemMapper;
pub(crate) use word::Word;
