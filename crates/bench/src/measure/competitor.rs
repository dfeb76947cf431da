//! The competitors: the columns of the tables.

pub const JITTISON: &str = "jittison";
/// The object is added first, and linked when its function is looked up.
pub const JITTISON_LAZILY: &str = "jittison, lazily";
pub const ORC_AS_LLJIT: &str = "ORC as LLJIT";
pub const ORC_AT_ITS_BEST: &str = "ORC at its best";
/// The set-up at its best, with another allocator than the C library's.
pub const ORC_WITH_JEMALLOC: &str = "ORC, jemalloc";
pub const DLOPEN: &str = "dlopen";
pub const CRANELIFT_JIT: &str = "cranelift-jit";
pub const ELF_LOADER: &str = "elf_loader";

pub const KERNEL: &str = "mmap alone";
pub const COPY: &str = "one copy";
pub const READING: &str = "reading alone";
pub const COMPUTING: &str = "computing alone";
pub const MEMORY: &str = "memory alone";
/// The alternative to the session's own guards.
pub const EPOCH: &str = "crossbeam-epoch";
pub const POINTER: &str = "plain pointer";

/// They do not link; their rows only show lower bounds.
pub const NO_LINKERS: [&str; 7] = [KERNEL, COPY, READING, MEMORY, COMPUTING, EPOCH, POINTER];

/// The report's description of a competitor.
pub struct Competitor {
    pub name: &'static str,
    pub version: String,
    pub configuration: &'static str,
}
