//! Sections whose names have a meaning beyond their bytes, for those who add a block by name: a code generator, or a plugin. Only
//! objects get the meaning from the name alone.

/// A section with a meaning, and how a code generator gets that meaning.
pub(super) struct MeaningfulSection {
    pub(super) name: &'static str,
    pub(super) advice: &'static str,
}

/// The section with a meaning to which a block of this section would belong: that of the name, or of the name before a suffix, as
/// in `.init_array.100`.
pub(super) fn find(section: &str) -> Option<&'static MeaningfulSection> {
    if !may_have_meaning(section.as_bytes()) {
        return None;
    }
    let has_name = |known: &&MeaningfulSection| {
        section.strip_prefix(known.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    MEANINGFUL.iter().find(has_name)
}

/// A cheap test of the first bytes. If it returns false, the section has no meaning.
fn may_have_meaning(section: &[u8]) -> bool {
    matches!(
        section,
        [b'.', b'e' | b'i' | b'f' | b'p' | b'c', ..] | [b'.', b'd', b't', ..] | [b'.', b't', b'd' | b'b', ..]
    )
}

const INITIALIZERS: &str = "add the functions by `GraphBuilder::add_initializers`";
const THREAD_LOCAL: &str = "make the block by `NewBlock::thread_local`";

const MEANINGFUL: [MeaningfulSection; 10] = [
    MeaningfulSection { name: ".eh_frame", advice: "add the table by `GraphBuilder::add_eh_frame`" },
    MeaningfulSection { name: ".init_array", advice: INITIALIZERS },
    MeaningfulSection { name: ".fini_array", advice: INITIALIZERS },
    MeaningfulSection { name: ".preinit_array", advice: INITIALIZERS },
    MeaningfulSection { name: ".ctors", advice: INITIALIZERS },
    MeaningfulSection { name: ".dtors", advice: INITIALIZERS },
    MeaningfulSection { name: ".init", advice: INITIALIZERS },
    MeaningfulSection { name: ".fini", advice: INITIALIZERS },
    MeaningfulSection { name: ".tdata", advice: THREAD_LOCAL },
    MeaningfulSection { name: ".tbss", advice: THREAD_LOCAL },
];

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_section_with_a_meaning_is_found_with_and_without_a_suffix_and_no_other() {
        for known in &MEANINGFUL {
            let suffixed = format!("{}.7", known.name);
            assert!(
                [known.name, &suffixed].iter().all(|name| find(name).is_some_and(|found| found.name == known.name))
            );
            assert!(find(&format!("{}s", known.name)).is_none());
        }
        assert!([".text", ".data", ".rodata", ".bss", "init", ""].iter().all(|name| find(name).is_none()));
    }
}
