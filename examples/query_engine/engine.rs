//! Linked queries. Everything that the engine needs from `jittison` is here.
//!
//! Each query is an object file under its own tracker, so it can be removed alone, in any order, while other queries
//! run. If a query is held when its tracker is removed, it stays callable. Its memory is released when the last
//! holder drops it.

use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_module::{FuncId, default_libcall_names};
use jittison::{Error, Function, Jit, MemoryUsage, ResourceTracker};
use jittison_cranelift::{JITBuilder, JITModule};

use crate::evictor::Evictor;

/// The signature of a compiled query; [`crate::codegen`] describes the parameters.
pub type QueryFunction = unsafe extern "C" fn(*const *const u8, *mut RowRange, *mut u8, u64) -> u64;

/// The rows that a query still has to read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RowRange {
    pub begin: u64,
    pub end: u64,
}

/// The linker that all clients share.
#[derive(Clone)]
pub struct Engine {
    jit: Jit,
    evictor: Evictor,
}

/// A linked query that can be called.
pub struct LinkedQuery {
    tracker: ResourceTracker,
    function: Function<QueryFunction>,
    code_bytes: u64,
    total_bytes: u64,
}

/// A query whose tracker is removed; only its holder keeps it mapped.
pub struct PinnedQuery {
    function: Function<QueryFunction>,
}

impl Engine {
    pub fn new() -> Result<Engine, Error> {
        let evictor = Evictor::new().map_err(Error::other)?;
        Ok(Engine { jit: Jit::new()?, evictor })
    }

    /// Links an object file of [`crate::codegen`], and looks its function up.
    pub fn link(&self, symbol: &str, object: Vec<u8>) -> Result<LinkedQuery, Error> {
        let tracker = self.jit.main_dylib().create_tracker()?;
        let linked = self.finish_link(symbol, object, &tracker);
        if linked.is_err() {
            // The link's error is the one to report.
            let _ = tracker.remove();
        }
        linked
    }

    fn finish_link(&self, symbol: &str, object: Vec<u8>, tracker: &ResourceTracker) -> Result<LinkedQuery, Error> {
        self.jit.link_object(tracker, symbol, object)?;
        // SAFETY: `codegen` compiled the object, and gives the function that it exports under this symbol exactly
        // this signature.
        let function = unsafe { self.jit.lookup::<QueryFunction>(symbol)? };
        let usage: MemoryUsage = self.jit.usage(tracker);
        Ok(LinkedQuery { tracker: tracker.clone(), function, code_bytes: usage.code, total_bytes: usage.total() })
    }

    /// Makes a module of `jittison-cranelift` for one query. Its memory is released when the module is dropped.
    pub fn module(&self, isa: OwnedTargetIsa) -> Result<JITModule, Error> {
        let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
        builder.session(&self.jit).remove_on_drop(true);
        JITModule::try_new(builder)
    }

    /// Links what a module defines, without an object file, and looks the query's function up.
    pub fn link_module(&self, module: &mut JITModule, id: FuncId) -> Result<Function<QueryFunction>, Error> {
        module.finalize_definitions().map_err(Error::other)?;
        // SAFETY: `codegen` gives the function exactly this signature.
        unsafe { module.function::<QueryFunction>(id) }
    }

    /// Lets another thread remove a query while this thread runs it.
    pub fn evict(&self, query: &LinkedQuery) {
        self.evictor.evict(query.tracker.clone());
    }

    /// The number of queries removed in this way, and of those that were running at that time.
    pub fn evictions(&self) -> (u64, u64) {
        self.evictor.counts()
    }

    /// Bytes of linked code and data in use.
    pub fn live_bytes(&self) -> u64 {
        self.jit.memory_statistics().live_bytes
    }
}

impl LinkedQuery {
    pub fn function(&self) -> &Function<QueryFunction> {
        &self.function
    }

    /// Bytes of machine code.
    pub fn code_bytes(&self) -> u64 {
        self.code_bytes
    }

    /// Bytes of machine code and of everything linked with it.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Removes the query. Returns whether all its memory is released.
    pub fn remove(self) -> Result<bool, Error> {
        drop(self.function);
        Ok(self.tracker.remove()?.is_complete())
    }

    /// Removes a query that another thread may be removing at the same time.
    pub fn remove_evicted(self) -> Result<(), Error> {
        drop(self.function);
        self.tracker.remove()?.wait()
    }

    /// Removes the query from the linker, but keeps it callable.
    pub fn remove_pinned(self) -> Result<PinnedQuery, Error> {
        self.tracker.remove()?;
        Ok(PinnedQuery { function: self.function })
    }
}

impl PinnedQuery {
    pub fn function(&self) -> &Function<QueryFunction> {
        &self.function
    }
}
