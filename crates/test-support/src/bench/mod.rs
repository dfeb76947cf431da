//! Helpers of several benchmarks: objects to link, a session, an object as a memory manager sees it, durations, and resident memory.

pub mod bed;
pub mod installed;
pub mod objects;
pub mod resident;
pub mod times;
