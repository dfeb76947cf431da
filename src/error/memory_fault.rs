//! [`MemoryFault`]: why code memory cannot be allocated, with the requested size and what is free.

/// Why code memory cannot be allocated.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryFault {
    /// The kernel or the loader refused a step. The operation was undone.
    #[error("{step} was refused: {problem}; the operation was undone")]
    Refused {
        /// The step: a noun phrase.
        step: String,
        /// The text of the system.
        problem: String,
    },
    /// The pool has no free range of the requested size. Remove code and retry, or configure a larger window.
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
    /// The embedder's limit on code memory is reached. Remove code and retry, or raise the limit.
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
}
