//! Linked queries: everything the engine asks of `jittison`.
//!
//! Each query is an object file under a tracker of its own, so that it can be
//! removed alone, in any order, while others run. A query that is still held
//! when its tracker is removed stays callable and goes when it is let go.

use jittison::{Error, Function, Jit, MemoryUsage, ResourceTracker};

use crate::evictor::Evictor;

/// What a compiled query is; see [`crate::codegen`] for its parameters.
pub type QueryFunction = unsafe extern "C" fn(*const *const u8, *mut RowRange, *mut u8, u64) -> u64;

/// The rows a query still has to look at.
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

/// A query that is linked and can be called.
pub struct LinkedQuery {
    tracker: ResourceTracker,
    function: Function<QueryFunction>,
    code_bytes: u64,
    total_bytes: u64,
}

/// A query whose tracker is gone and that only its holder keeps alive.
pub struct PinnedQuery {
    function: Function<QueryFunction>,
}

impl Engine {
    pub fn new() -> Result<Engine, Error> {
        let evictor = Evictor::new().map_err(Error::other)?;
        Ok(Engine { jit: Jit::new()?, evictor })
    }

    /// Links an object file that [`crate::codegen`] made, and finds its
    /// function.
    pub fn link(&self, symbol: &str, object: Vec<u8>) -> Result<LinkedQuery, Error> {
        let tracker = self.jit.main_dylib().create_tracker()?;
        let linked = self.finish_link(symbol, object, &tracker);
        if linked.is_err() {
            // The first error is the one worth telling.
            let _ = tracker.remove();
        }
        linked
    }

    fn finish_link(&self, symbol: &str, object: Vec<u8>, tracker: &ResourceTracker) -> Result<LinkedQuery, Error> {
        self.jit.link_object(tracker, symbol, object)?;
        // SAFETY: the object was compiled by `codegen`, which gives the
        // function it exports under this symbol exactly this signature.
        let function = unsafe { self.jit.lookup::<QueryFunction>(symbol)? };
        let usage: MemoryUsage = self.jit.usage(tracker);
        Ok(LinkedQuery { tracker: tracker.clone(), function, code_bytes: usage.code, total_bytes: usage.total() })
    }

    /// Has a query removed by another thread, from now on, while this one runs it.
    pub fn evict(&self, query: &LinkedQuery) {
        self.evictor.evict(query.tracker.clone());
    }

    /// How many queries were removed so, and how many of them while they ran.
    pub fn evictions(&self) -> (u64, u64) {
        self.evictor.counts()
    }

    /// Bytes of linked code and data that are in use now.
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

    /// Bytes of machine code and of all that was linked with it.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Removes the query now. Says whether all of it is gone.
    pub fn remove(self) -> Result<bool, Error> {
        drop(self.function);
        Ok(self.tracker.remove()?.is_complete())
    }

    /// Removes a query that another thread may be removing just now.
    pub fn remove_evicted(self) -> Result<(), Error> {
        drop(self.function);
        self.tracker.remove()?.wait()
    }

    /// Removes the query from the linker while keeping it callable.
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
