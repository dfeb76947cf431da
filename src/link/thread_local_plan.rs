//! [`ThreadLocalPlan`] and [`ThreadLocalPlace`]: what a link needs for its thread-local block, and where the C library puts
//! the block.
//!
//! All thread-local sections of one object make one block. The C library sees the block as the TLS block of a module.
//! The link computes the plan (`thread_locals.rs`). The caller of the link registers the block and passes the place to
//! [`PlacedLink::set_thread_local_place`](crate::link::PlacedLink::set_thread_local_place).

/// What an object's thread-local block needs.
///
/// The terms are those of Drepper, "ELF Handling For Thread-Local Storage".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadLocalPlan {
    /// Size of the block in bytes.
    pub size: u64,
    /// Alignment of the block in bytes, a power of two.
    pub align: u64,
    /// Length of the initialisation image in bytes. The rest of the block, up to `size`, is zero.
    pub image_size: u64,
    /// Whether the object's code needs the block at one distance from the thread pointer in every thread (a static TLS
    /// model). Without that, thunks compute the distance in each thread.
    pub is_static: bool,
}

/// Where the C library put a thread-local block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadLocalPlace {
    /// The module number, as `__tls_get_addr` takes it.
    pub module: u32,
    /// Distance of the block from the thread pointer in bytes, if it is the same in every thread.
    pub static_offset: Option<i64>,
}
