//! Names that a native linker, or the file that begins every program, defines for a program as a whole: its end, the bounds of
//! its lists of initialisers, its header.
//!
//! Linked code that comes and goes is no such whole: it has them only if somebody defines them. What the host program or one
//! of its libraries has by such a name is about that program, and is not meant.

/// Whether a native linker defines this name for a whole program.
pub(crate) fn is_linker_made(name: &[u8]) -> bool {
    LINKER_MADE.iter().any(|made| made.as_bytes() == name)
}

/// All of them, whatever the linker. Their first four bytes are what few other names begin with.
pub(crate) const LINKER_MADE: [&str; 18] = [
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
];
