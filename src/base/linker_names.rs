//! [`LINKER_DEFINED`]: names that a native linker or the C start-up file (`crt1.o`) defines for an entire program: its end, the
//! bounds of its lists of initialisers, its ELF header.
//!
//! A jittison session is not one program, because its objects come and go. So these names have no definition unless the
//! embedder adds one. The host program and its libraries define some of them, too, but those describe the host program.
//! A lookup never takes them from there.

/// Whether a native linker defines this name for an entire program.
pub(crate) fn is_linker_defined(name: &[u8]) -> bool {
    let is_meant = |defined: &str| match defined.as_bytes() {
        prefix @ [.., b'.'] => name.starts_with(prefix),
        defined => defined == name,
    };
    LINKER_DEFINED.iter().any(|defined| is_meant(defined))
}

/// The names that any of the usual linkers defines, and beginnings of such names, which end with a dot: GNU ld defines the
/// address and the size of each section. Few other names begin with the same four bytes, so a prefix filter works.
pub(crate) const LINKER_DEFINED: [&str; 20] = [
    "_end",
    "end",
    "_etext",
    "etext",
    "__etext",
    "_edata",
    "edata",
    "__bss_start",
    "__data_start",
    "data_start",
    "__executable_start",
    "__ehdr_start",
    "__init_array_start",
    "__init_array_end",
    "__fini_array_start",
    "__fini_array_end",
    "__preinit_array_start",
    "__preinit_array_end",
    ".startof.",
    ".sizeof.",
];
