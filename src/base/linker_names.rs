//! [`LINKER_DEFINED`]: names that a native linker or the C start-up files (`crt1.o`, `crti.o`) define for an entire program:
//! its end, the bounds of its lists of initialisers, its ELF header, its entry.
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

/// What an error about missing symbols adds for those that a native linker would have made.
pub(crate) fn linker_made_hint(symbols: &[String]) -> String {
    let mut hint = String::new();
    let meaning = |name: &String| Some(format!("`{name}` ({})", linker_defined_meaning(name)?));
    // A few names say it all.
    let defined: Vec<String> = symbols.iter().filter_map(meaning).take(4).collect();
    if !defined.is_empty() {
        hint += "; a native linker defines for an entire program ";
        hint += &defined.join(", ");
        hint += ", and no searched dylib does";
    }
    let sections = symbols.iter().find_map(|name| name.strip_prefix("__start_").or(name.strip_prefix("__stop_")));
    if let Some(section) = sections {
        hint += &format!("; only objects of a dylib with a section `{section}` know its bounds");
    }
    hint
}

/// What such a name stands for in a program, and why no object of a session has it.
fn linker_defined_meaning(name: &str) -> Option<&'static str> {
    Some(match name {
        "_end" | "end" => "the end of its data; objects of a session are not next to each other",
        "_etext" | "etext" | "__etext" => "the end of its code; objects of a session are not next to each other",
        "_edata" | "edata" => "the end of its data with bytes; objects of a session are not next to each other",
        "__bss_start" => "the start of its zero-fill; objects of a session are not next to each other",
        "__data_start" | "data_start" => "the start of its data; objects of a session are not next to each other",
        "__executable_start" | "__ehdr_start" => "its ELF header; objects of a session have none",
        "__init_array_start" | "__init_array_end" | "__preinit_array_start" | "__preinit_array_end" => {
            "the list of its initialisers; a session runs them itself, for each object"
        }
        "__fini_array_start" | "__fini_array_end" => {
            "the list of its finalisers; a session runs them itself, for each object"
        }
        "_init" | "_fini" => "its initialiser or finaliser of old; a session runs those of each object itself",
        "_start" => "its entry; a session has none",
        "_GLOBAL_OFFSET_TABLE_" => "its GOT; each object has its own here, and finds it by relocations of a GOT only",
        _ if name.starts_with(".startof.") || name.starts_with(".sizeof.") => {
            "the address or the size of a section; use `__start_NAME` and `__stop_NAME`"
        }
        _ => return None,
    })
}

/// The names that any of the usual linkers and start-up files defines, and beginnings of such names, which end with a dot: GNU ld
/// defines the address and the size of each section. Few other names begin with the same four bytes, so a prefix filter works.
pub(crate) const LINKER_DEFINED: [&str; 23] = [
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
    "_init",
    "_fini",
    "_start",
    ".startof.",
    ".sizeof.",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_meaning() {
        let without = LINKER_DEFINED.iter().filter(|name| linker_defined_meaning(name).is_none());
        assert_eq!(without.count(), 0);
        assert_eq!(linker_defined_meaning("printf"), None);
    }
}
