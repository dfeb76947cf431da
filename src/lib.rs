//! A JIT linker in which every piece of running code can be taken back: exactly, safely, at once.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod base;
pub mod error;
#[allow(unsafe_code)]
pub mod host;
#[allow(unsafe_code)]
mod jit;
pub mod layer;
pub mod link;
#[allow(unsafe_code)]
pub mod memory;
#[allow(unsafe_code)]
mod os;
pub mod platform;
#[allow(unsafe_code)]
mod prefetch;
pub mod session;
mod sync;

pub use error::{Error, ErrorKind};
pub use host::{Function, Symbol};
pub use jit::{
    CodeLocation, Committed, Jit, JitBuilder, Patch, PatchVersion, Patchable, PatchableBuilder, PreparedPatch, Program,
    ProgramEvent, RolledBack, Stub,
};
pub use memory::{MemoryMap, MemoryStatistics, MemoryUsage, PoolStatistics};
pub use os::{InputFile, MappedFile};
pub use session::{
    Event, ExecutionSession, Guard, JitDylib, Observer, ReclaimPolicy, Removal, ResourceKey, ResourceManager,
    ResourceTracker,
};
