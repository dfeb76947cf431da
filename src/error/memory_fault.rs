//! [`MemoryFault`]: why code memory cannot be allocated, with the requested size and what is free.

/// Why code memory cannot be allocated.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryFault {
    /// The kernel or the loader refused a step. The operation was undone.
    ///
    /// - *Cause*: the field `problem` has the text of the system: often a limit of the process, its sandbox, or full memory.
    /// - *Remedy*: raise the limit or allow the system call. A smaller window (`JitBuilder::window_size`) needs less address space.
    #[error("{step} was refused: {problem}; the operation was undone")]
    Refused {
        /// The step: a noun phrase.
        step: String,
        /// The text of the system.
        problem: String,
    },
    /// The pool has no free range of the requested size.
    ///
    /// - *Cause*: live code fills the window, or free memory is in ranges that are too small.
    /// - *Remedy*: remove code and retry. Or set a larger window (`JitBuilder::window_size`), or let the pool open more of them
    ///   ([`OnFull::OpenAnother`](crate::memory::OnFull::OpenAnother)).
    #[error(
        "the {pool} pool is exhausted: {requested} bytes were requested, {available} of {capacity} bytes are free, and the \
         largest free range has {largest} bytes; remove code and retry"
    )]
    PoolExhausted {
        /// The pool.
        pool: &'static str,
        /// The requested bytes, including alignment.
        requested: u64,
        /// The bytes that are not in use, in open slabs or outside of them.
        available: u64,
        /// The size of the pool in bytes.
        capacity: u64,
        /// The size of the largest free range in bytes.
        largest: u64,
    },
    /// The embedder's limit on code memory is reached.
    ///
    /// - *Cause*: live code, and removed code that something still pins, hold `held` bytes.
    /// - *Remedy*: remove code, release its pins and retry. Or raise the limit (`JitBuilder::memory_budget`).
    #[error(
        "the budget of {limit} bytes is exceeded: {requested} bytes were requested and {held} bytes are in use; remove code and \
         retry"
    )]
    BudgetExceeded {
        /// The requested bytes, including padding.
        requested: u64,
        /// The bytes that are in use.
        held: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// No pool can serve the request, whatever is removed.
    ///
    /// - *Cause*: the object is larger than the pool, or its alignment is larger than a window supports.
    /// - *Remedy*: split the object or lower its alignment, or set a larger window (`JitBuilder::window_size`).
    #[error("cannot place {size} bytes aligned to {align} in the {pool} pool: {problem}")]
    BadPlan {
        /// The pool.
        pool: &'static str,
        /// The size in bytes.
        size: u64,
        /// The alignment in bytes.
        align: u64,
        /// The reason.
        problem: &'static str,
    },
    /// A [`MemoryMapper`](crate::memory::MemoryMapper) returned a window that the pool cannot use.
    ///
    /// - *Cause*: a defect of the mapper: it returned a window that it keeps or has returned before, or one of another layout.
    /// - *Remedy*: let the mapper map a new window of the requested layout for each call.
    #[error("the memory mapper returned an unusable window: {problem}; this is a defect of the mapper")]
    BadWindow {
        /// The reason.
        problem: &'static str,
    },
    /// A call would run linked code, but the memory of the session is for links that are never run. Nothing was run.
    ///
    /// - *Cause*: the memory manager of the session says so ([`MemoryManager::can_run`](crate::memory::MemoryManager::can_run)),
    ///   as [`OfflineMemory`](crate::memory::OfflineMemory) does.
    /// - *Remedy*: use another memory manager. To inspect a link, use `Jit::address_of`.
    #[error(
        "the memory manager of this session is for links that are never run; nothing was run; use another memory manager, \
         or `address_of` to inspect the link"
    )]
    NeverRuns,
}
