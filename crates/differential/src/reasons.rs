//! [`reason`]: why `jittison` refuses what native linkers accept, by a part of its message.

/// Part of a message, and the reason. The first part that a message has counts.
const REASONS: [(&str, &str); 14] = [
    (
        "goes on using its own",
        "a variable of the C library that the program defines, too: the library was linked before",
    ),
    (
        "symbols not found",
        "names of a whole program (`_end`, `__ehdr_start`, …): objects come and go, and are not next to each other",
    ),
    (
        "R_X86_64_PC32 out of range",
        "a distance in data to a weak name without a definition (null), or between an object below 2 GiB and another one",
    ),
    (
        "R_X86_64_32",
        "an address above 2 GiB in 32 bits, in data or in an instruction that cannot be extended: a native linker makes a PLT entry",
    ),
    (
        "relocation R_X86_64_PC",
        "a distance in data to a library: a native linker makes a PLT entry or a copy, and then no address is that of the library",
    ),
    (
        "in the instruction",
        "the operand of this instruction cannot be moved: a native linker makes a PLT entry or a copy",
    ),
    (
        "initialisers in a COMDAT group",
        "which copy counts is known when both are linked, and then initialisers have run",
    ),
    (
        "alignment of a common symbol",
        "a definition is aligned less than a common symbol that code may rely on; GNU ld warns",
    ),
    ("common symbol", "a definition is smaller than a common symbol that code may rely on; GNU ld warns"),
    ("not in memory, or was dropped with its group", "a symbol of a section that is not loaded, or of a dropped group"),
    ("without a known size", "the size of a symbol of a library"),
    ("bounds of section", "a part of the section is in an object that is linked later, or of another kind"),
    ("is needed by files after the archive", "native linkers differ in which definition they take"),
    ("thread-local", "see `docs/native.md`"),
];

/// Why a message refuses. Empty if it is not known: then it deserves a look.
pub fn reason(message: &str) -> &'static str {
    REASONS.iter().find(|(part, _)| message.contains(part)).map_or("", |(_, reason)| reason)
}
