//! Sessions, dylibs, symbols, trackers, lookups, removal and guards.
//!
//! Implement [`MaterializationUnit`] to define symbols lazily, [`DefinitionGenerator`] to define them when a lookup
//! misses them, and [`ResourceManager`] to own what belongs to code.
//!
//! # How it is built
//!
//! The session never reads machine code.
//!
//! A session decides *when* code is linked, made ready, removed and reclaimed. Layers above it (linking, patching,
//! stubs) do the work: they implement its traits ([`MaterializationUnit`], [`DefinitionGenerator`],
//! [`ResourceManager`], [`Observer`]), and the session calls them.
//!
//! # Symbol states
//!
//! ```text
//!               lookup            notify_resolved      notify_emitted       last dependency ready
//!  NeverSearched ────► Materializing ────► Resolved ────► Emitted ────────────────► Ready
//!        │                  │                 │              │                        │
//!        └──────────────────┴───── remove, fail: the entry leaves the table ──────────┘
//! ```
//!
//! [`replace`](MaterializationResponsibility::replace) moves a symbol back from Materializing to NeverSearched.
//! A symbol whose dependencies are all ready goes from Materializing to Ready in one step. There is no error state: a
//! failed symbol leaves the table, and its name may be defined again.
//!
//! # Tracker states (`pins/tracker_state.rs`)
//!
//! ```text
//!           remove             no guard defers it         no pin is left       managers have released
//!   Live ───────────► Guarded ─────────────────────► Retired ───────────► Reclaiming ────────────► Reclaimed
//!     └── transfer ──► Merged(into)
//! ```
//!
//! # Invariants
//!
//! - **S1** The owner of a symbol is recorded in the symbol's table entry, and in the owner's list, which links that
//!   entry. There is no other record, except while a transfer or a removal works at the list in pieces
//!   (`symbols/symbol_table/unfinished.rs`).
//! - **S2** A tracker changes from Live to Guarded, Reclaiming or Merged only under its dylib's lock *and* the lock of its
//!   `TrackerState`. A live tracker therefore stays live while a thread holds either lock.
//! - **S3** A resource is recorded under a key only under the state lock of a live tracker
//!   ([`MaterializationResponsibility::with_resource_key`]). Managers learn of a removal only after the state has
//!   changed. Therefore nothing is recorded under a key that was never handed out this way, and managers with
//!   [`skips_unused_keys()`](ResourceManager::skips_unused_keys) are not called for it.
//! - **S4** Managers release the resources of a key at most once: exactly one thread moves its tracker to Reclaiming.
//!   Managers may be asked to release their revocable pins between Retired and Reclaiming, and never later;
//!   only `remove_now` on another thread may overtake such a request.
//! - **S5** The session calls and drops no object of the embedder while it holds a lock. There are two documented
//!   exceptions: the body of `with_resource_key`, and [`ResourceManager::transfer_resources`].
//! - **S6** Link orders, searches, aliases and dependencies stay within one session: each is checked when it is made
//!   (`DylibInner::check_session`). Each session has its own locks, and would free what only another one refers to.
//!
//! # Locks, outermost first
//!
//! 1. the waiting graph (`core/waiting.rs`);
//! 2. the state of one dylib; the states of two dylibs are never held together;
//! 3. the pin graph (`pins/dependants.rs`): the witness forest, then one of the tables;
//! 4. the state locks of trackers, the source of a transfer before its destination;
//! 5. a manager's own lock (ledgers);
//! 6. one query (`core/query.rs`).
//!
//! These locks are leaves: the lists of dylibs and of managers, the reasons of revocable pins
//! (`pins/revocable_pins.rs`), the batches that guards defer (`pins/guards.rs`), and each dylib's index of ready
//! symbols (`symbols/ready_index.rs`). Each dylib's copy of the list of managers has a rank between a query and the
//! leaves (`Growth`), and so has the cache of its link order (`core/order_cache.rs`). A lookup of a symbol that is looked
//! up often reads the index and does not take the dylib's lock.
//!
//! Observers (`core/observer.rs`) are called with none of these locks held.
//!
//! # Sub-rooms
//!
//! Each sub-room imports only those above it in this table; `pins` and `work` do not import each other. A type is in
//! the highest sub-room that has everything it needs. Its methods are in the sub-room that does the work, as an `impl`
//! block: `ResourceTracker::remove` is in `removal/`.
//!
//! | sub-room | holds |
//! |---|---|
//! | `types/` | ids, flags, requests, ledgers |
//! | `pins/` | tracker states, the pin graph, guards, calls |
//! | `work/` | tasks, worker threads, blocking waits |
//! | `symbols/` | the symbol table of a dylib, and its index of ready symbols |
//! | `core/` | the handles, and the traits that an embedder implements; the only cycle of files |
//! | `lookup/` | searches, and queries in progress |
//! | `removal/` | remove, transfer, reclaim, tickets, watches |
//! | `materialize/` | define, resolve, emit, fail, aliases |
//! | files beside this one | public methods of sessions and dylibs that belong to no sub-room |
//!
//! The session does not link, does not allocate code memory, and does not call linked code.

mod background_work;
mod calls;
mod core;
mod execution_session;
mod jit_dylib;
mod link_order;
mod lookup;
mod materialize;
mod pins;
#[cfg(feature = "reload")]
mod reload_point;
mod removal;
mod symbols;
mod types;
mod work;

pub(crate) use background_work::BackgroundWork;
#[cfg(loom)]
#[doc(hidden)]
pub use calls::{late_binding_count, load_as_stub, note_late_binding, reloaded_dylib};
pub(crate) use core::clear_hook::ClearHook;
pub use core::execution_session::{ExecutionSession, ReclaimPolicy, SessionOptions};
pub use core::generator::{DefinitionGenerator, SuspendedLookup, Suspension};
pub use core::jit_dylib::JitDylib;
pub use core::materialization::MaterializationUnit;
pub(crate) use core::materialization::{NameSink, UnitSymbol};
pub(crate) use core::observer::Observers;
pub use core::observer::{Event, Observer};
pub(crate) use core::resource_manager::ManagerRank;
pub use core::resource_manager::ResourceManager;
pub use core::resource_tracker::{Pin, ResourceTracker};
pub use core::responsibility::{ClaimedSymbol, MaterializationResponsibility};
pub use core::symbol_ref::{LookupResult, SymbolRef};
pub use lookup::lookup_and_apply::LookupAndApply;
pub use lookup::lookup_future::LookupFuture;
pub(crate) use lookup::not_found::not_found_in;
pub(crate) use lookup::ready_definitions::{ReadyDefinition, ReadyDefinitions};
pub(crate) use lookup::ready_lookup::{FoundSymbol, ReadyLookup};
pub use lookup::symbol_at::SymbolAt;
pub use materialize::aliases::{Alias, ReexportsGenerator};
pub use materialize::emission::DependencyGroup;
pub(crate) use materialize::materialization_wait::MaterializationWait;
#[cfg(feature = "executor")]
pub(crate) use pins::calls::enable_calls_elsewhere;
#[cfg(feature = "reload")]
pub(crate) use pins::calls::hold_in_host_call;
pub use pins::guard::Guard;
#[cfg(loom)]
#[doc(hidden)]
pub use pins::guards::end_of_thread;
#[cfg(feature = "reload")]
pub(crate) use reload_point::pass_reload_point;
#[cfg(all(loom, feature = "reload"))]
#[doc(hidden)]
pub use reload_point::pass_reload_point_with;
pub use removal::owning_tracker::OwningTracker;
#[cfg(not(loom))]
pub(crate) use removal::remove::remove_now;
#[cfg(loom)]
pub use removal::remove::remove_now;
pub use removal::symbol_watch::{SymbolWatch, Watched};
pub use removal::ticket::{BlockingGuard, Removal};
pub use removal::tracker_watch::TrackerWatch;
pub(crate) use types::counted_mutex::{CountedMutex, KeyCount};
pub use types::error_reporter::ErrorReporter;
pub use types::ids::ResourceKey;
pub(crate) use types::ids::{DylibId, TrackerId};
pub use types::ledger::Ledger;
pub use types::request::{RequiredState, SymbolRequest, Visibility};
pub(crate) use types::symbol::SymbolId;
pub use types::symbol::{SymbolFlags, SymbolState};
