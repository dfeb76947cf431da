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
//! # Tracker states (`pins/tracker_state.rs`)
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
//! waiting graph (`core/waiting.rs`) → one dylib's state → pin graph (`pins/dependants.rs`: one table of it, or all in their order) → tracker gates, source before
//! destination → a manager's own (ledgers) → one query (`core/query.rs`). Two dylibs' states are never held together. The lists
//! of dylibs and managers are leaves, and so are what standing pins say (`pins/revocable_pins.rs`), what waits for a guard
//! (`pins/guards.rs`) and each dylib's index of ready symbols (`symbols/ready_index.rs`), which lookups of symbols that are looked up
//! often take instead of the dylib's.
//!
//! Observers (`core/observer.rs`) hear what happens, under none of these.
//!
//! This room does not link, does not allocate code memory, does not call code.

mod core;
mod lookup;
mod materialize;
mod pins;
mod removal;
mod symbols;
mod types;
mod work;

pub(crate) use core::clear_hook::ClearHook;
pub use core::execution_session::{ExecutionSession, ReclaimPolicy, SessionOptions};
pub use core::generator::{DefinitionGenerator, SuspendedLookup, Suspension};
pub use core::jit_dylib::{JitDylib, Visibility};
pub use core::materialization::MaterializationUnit;
pub(crate) use core::materialization::NameSink;
pub(crate) use core::observer::Observers;
pub use core::observer::{Event, Observer};
pub use core::resource_manager::ResourceManager;
pub(crate) use core::resource_tracker::TrackerId;
pub use core::resource_tracker::{Pin, ResourceKey, ResourceTracker};
pub use lookup::blocking::{LookupResult, RequiredState, SymbolRequest};
pub use lookup::lookup_and_apply::LookupAndApply;
pub use lookup::lookup_future::LookupFuture;
pub(crate) use lookup::ready_lookup::ReadyLookup;
pub use lookup::symbol_at::SymbolAt;
pub use materialize::aliases::{Alias, ReexportsGenerator};
pub use materialize::emission::DependencyGroup;
pub(crate) use materialize::materialization_wait::MaterializationWait;
pub use materialize::responsibility::{ClaimedSymbol, MaterializationResponsibility};
#[cfg(loom)]
#[doc(hidden)]
pub use pins::calls::late_binding_count;
#[cfg(loom)]
#[doc(hidden)]
pub use pins::guards::end_of_thread;
pub use pins::guards::{BlockingGuard, Guard};
#[cfg(not(loom))]
pub(crate) use removal::remove::remove_now;
#[cfg(loom)]
pub use removal::remove::remove_now;
pub use removal::symbol_watch::{SymbolWatch, Watched};
pub use removal::ticket::Removal;
pub use removal::tracker_watch::TrackerWatch;
pub(crate) use types::counted_mutex::{CountedMutex, KeyCount};
pub use types::error_reporter::ErrorReporter;
pub use types::ledger::Ledger;
pub use types::symbol::{SymbolFlags, SymbolRef, SymbolState};
