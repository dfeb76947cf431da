//! The office: dylibs, symbols, trackers, keys, managers, lookups, pins. It never sees machine code.
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
//! A link that finds all that it refers to ready goes from Materializing to Ready in one step. A symbol has no error state: a
//! failed symbol is gone, and may be defined again.
//!
//! # Tracker states (`tracker_state.rs`)
//!
//! ```text
//!           remove             no guard in the way         nothing pins           managers told
//!   Live ───────────► Guarded ─────────────────────► Retired ───────────► Reclaiming ────────────► Reclaimed
//!     └── transfer ──► Merged(into)
//! ```
//!
//! # Invariants
//!
//! - **S1** Who owns a symbol stands in its entry, and in the owner's list through that entry; nowhere else.
//! - **S2** A tracker turns from Live to Retired or Merged only under its dylib's lock *and* its gate. So under either
//!   of the two, a live tracker stays live.
//! - **S3** A resource is recorded under a key only inside the gate of a live tracker
//!   ([`MaterializationResponsibility::with_resource_key`]); managers learn of a removal only after the gate has closed.
//!   So a key that was never given out there has nothing under it, and managers that say so are not told of it.
//! - **S4** Managers are told to give a key's resources back at most once: exactly one thread moves its tracker to
//!   Reclaiming. Between Retired and that they may be asked to let go of their standing pins, and never after it.
//! - **S5** Nothing of the embedder's is called or dropped under a lock, with two documented exceptions: the body of
//!   `with_resource_key`, and [`ResourceManager::transfer_resources`].
//!
//! # Locks, outermost first
//!
//! waiting graph (`waiting.rs`) → one dylib's state → pin graph (`dependants.rs`: one table of it, or all in their order) → tracker gates, source before
//! destination → a manager's own (ledgers) → one query (`query.rs`). Two dylibs' states are never held together. The lists
//! of dylibs and managers are leaves, and so are what standing pins say (`revocable_pins.rs`), what waits for a guard
//! (`guards.rs`) and each dylib's index of ready symbols (`ready_index.rs`), which lookups of symbols that are looked up
//! often take instead of the dylib's.
//!
//! Observers (`observer.rs`) hear what happens, under none of these.
//!
//! This room does not link, does not allocate code memory, does not call code.

mod adjacency_set;
mod aliases;
mod calls;
mod clear_hook;
mod counted_mutex;
mod deferred_notifications;
mod dependants;
mod dispatch;
mod dylibs;
mod emission;
mod error_reporter;
mod execution_session;
mod generator;
mod guards;
mod jit_dylib;
mod ledger;
mod link_order;
mod lookup;
mod lookup_and_apply;
mod lookup_future;
mod materialization;
mod materialization_wait;
mod name_hash;
mod name_sources;
mod observer;
mod pin_nodes;
mod pin_table;
mod query;
mod ready_index;
mod ready_lookup;
mod reclaim;
mod reclaimer;
mod removal;
mod remove;
mod resource_manager;
mod resource_tracker;
mod responsibility;
mod revocable_pins;
mod search;
mod symbol;
mod symbol_at;
mod symbol_table;
mod symbol_watch;
mod tracker_flags;
mod tracker_state;
mod tracker_watch;
mod unmoved;
mod unpublish;
mod waiting;
mod worker_pool;

pub use aliases::{Alias, ReexportsGenerator};
#[cfg(loom)]
#[doc(hidden)]
pub use calls::late_binding_count;
pub(crate) use clear_hook::ClearHook;
pub(crate) use counted_mutex::{CountedMutex, KeyCount};
pub use emission::DependencyGroup;
pub use error_reporter::ErrorReporter;
pub use execution_session::{ExecutionSession, ReclaimPolicy, SessionOptions};
pub use generator::{DefinitionGenerator, SuspendedLookup, Suspension};
#[cfg(loom)]
#[doc(hidden)]
pub use guards::end_of_thread;
pub use guards::{BlockingGuard, Guard};
pub use jit_dylib::{JitDylib, Visibility};
pub use ledger::Ledger;
pub use lookup::{LookupResult, RequiredState, SymbolRequest};
pub use lookup_and_apply::LookupAndApply;
pub use lookup_future::LookupFuture;
pub use materialization::MaterializationUnit;
pub(crate) use materialization::NameSink;
pub(crate) use materialization_wait::MaterializationWait;
pub(crate) use observer::Observers;
pub use observer::{Event, Observer};
pub(crate) use ready_lookup::ReadyLookup;
pub use removal::Removal;
#[cfg(not(loom))]
pub(crate) use remove::remove_now;
#[cfg(loom)]
pub use remove::remove_now;
pub use resource_manager::ResourceManager;
pub(crate) use resource_tracker::TrackerId;
pub use resource_tracker::{Pin, ResourceKey, ResourceTracker};
pub use responsibility::{ClaimedSymbol, MaterializationResponsibility};
pub use symbol::{SymbolFlags, SymbolRef, SymbolState};
pub use symbol_at::SymbolAt;
pub use symbol_watch::{SymbolWatch, Watched};
pub use tracker_watch::TrackerWatch;
