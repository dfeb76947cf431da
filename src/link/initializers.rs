//! [`Initializer`]: a function that an object wants called before its code is used, or before its code is removed.
//!
//! | section | order of calls | `N` |
//! |---|---|---|
//! | `.preinit_array` | forward, before all others | no suffix |
//! | `.init` (`init_fragments.rs`) | by object, after `.preinit_array` and before all lists below | – |
//! | `.fini` (same) | by object, after all lists below | – |
//! | `.init_array[.N]` (gABI, "Initialization and Termination Functions") | forward | priority, lower first; 65536 without a suffix |
//! | `.fini_array[.N]` (same) | backward | priority, higher first; 65536 without a suffix |
//! | `.ctors[.N]` (older compilers) | backward | 65535 − priority; 65536 without a suffix |
//! | `.dtors[.N]` (older compilers) | forward | 65535 − priority; 65536 without a suffix |
//!
//! [`classify`] maps all lists to one order. The registry only sorts by `(stage, priority, rank, object, position)`: forward to
//! initialise, backward to finalise. As with native linkers, a list without a suffix comes after all lists with one; a suffix
//! that is no number has no effect, as with lld. Lists of one priority are in the order of their sections' names, as with
//! GNU ld (`SORT_BY_INIT_PRIORITY` in its default script): `.ctors.65335`, `.init_array.00200`, `.init_array.200`.

use crate::base::ExecutorAddr;

/// Whether a function initialises or finalises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InitializerKind {
    /// Called before the object's code is used.
    Init,
    /// Called before the object's code is removed.
    Fini,
}

/// The stage in which a function is called. Initialisers are called in this order, finalisers in the reverse order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InitializerStage {
    /// The lists that come before everything else (`.preinit_array`).
    Preinit,
    /// The functions that the linker makes of code fragments (`.init`, `.fini`). Of several objects, finalisers are called in
    /// the order of the objects, too.
    Fragments,
    /// The other lists.
    Lists,
}

/// A function to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initializer {
    /// Whether the function initialises or finalises.
    pub kind: InitializerKind,
    /// The stage in which the function is called.
    pub stage: InitializerStage,
    /// The priority within the stage: 0 to 65535, or [`DEFAULT_PRIORITY`](Self::DEFAULT_PRIORITY). A lower one is initialised
    /// earlier and finalised later.
    pub priority: u32,
    /// The order among the lists of one priority, whatever their objects: that of the names of their sections. 0 without an
    /// explicit priority.
    pub rank: u8,
    /// The order among the functions of one object, one priority and one rank.
    pub position: u32,
    /// The address of the function.
    pub address: ExecutorAddr,
}

impl Initializer {
    /// The priority of a function without an explicit one. It is initialised last and finalised first.
    pub const DEFAULT_PRIORITY: u32 = MAX_PRIORITY + 1;
    /// The rank of a list `.init_array.N` or `.fini_array.N` whose number begins with another digit than zero.
    pub(crate) const RANK_WITHOUT_ZEROS: u8 = u8::MAX;
}

/// Whether [`classify`] may accept this section name. A cheap test of the first bytes: if it returns false, `classify`
/// returns `None`.
pub(crate) fn may_list(section: &[u8]) -> bool {
    matches!(
        section,
        [b'.', b'i', b'n', ..] | [b'.', b'f', b'i', ..] | [b'.', b'c' | b'd', b't', ..] | [b'.', b'p', b'r', ..]
    )
}

/// What the name of a section says about the list in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InitializerList {
    pub(crate) kind: InitializerKind,
    pub(crate) stage: InitializerStage,
    pub(crate) priority: u32,
    /// See [`Initializer::rank`].
    pub(crate) rank: u8,
    /// Whether the functions are *initialised* from the end of the list to its beginning. Finalisers run in the reverse order.
    pub(crate) backward: bool,
}

/// The list in a section, by the section's name. `None` if the section is no such list.
pub(crate) fn classify(section: &[u8]) -> Option<InitializerList> {
    if !may_list(section) {
        return None;
    }
    let lists: [(&[u8], _, _); 4] = [
        (b".init_array", InitializerKind::Init, false),
        (b".fini_array", InitializerKind::Fini, false),
        (b".ctors", InitializerKind::Init, true),
        (b".dtors", InitializerKind::Fini, true),
    ];
    if section == b".preinit_array" {
        let (kind, stage) = (InitializerKind::Init, InitializerStage::Preinit);
        return Some(InitializerList { kind, stage, priority: 0, rank: 0, backward: false });
    }
    let stage = InitializerStage::Lists;
    for (name, kind, backward) in lists {
        let Some(suffix) = section.strip_prefix(name) else { continue };
        let digits = match suffix.strip_prefix(b".") {
            None if suffix.is_empty() => None,
            None => continue, // another section, such as `.init_arrays`
            Some(digits) => std::str::from_utf8(digits).ok(),
        };
        let number = digits.and_then(|digits| digits.parse::<u32>().ok());
        let priority = match number {
            None => Initializer::DEFAULT_PRIORITY,
            Some(number) if backward => MAX_PRIORITY.saturating_sub(number),
            Some(number) => number.min(MAX_PRIORITY),
        };
        let rank = digits.filter(|_| number.is_some()).map_or(0, |digits| rank_of(digits, backward));
        return Some(InitializerList { kind, stage, priority, rank, backward });
    }
    None
}

/// The rank of a list whose section has these digits as its suffix. Of equal numbers, the one with more zeros before it is the
/// first by name, and the names of the old lists come before those of the new ones.
fn rank_of(digits: &str, is_old: bool) -> u8 {
    let zeros = digits.bytes().take_while(|digit| *digit == b'0').count().min(127) as u8;
    let rank_of_new = Initializer::RANK_WITHOUT_ZEROS - zeros;
    if is_old { rank_of_new - 128 } else { rank_of_new }
}

/// The greatest priority that a section's name can have.
const MAX_PRIORITY: u32 = 65535;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_lists_map_to_one_order() {
        use InitializerKind::*;
        use InitializerStage::*;
        let list = |section: &[u8]| {
            classify(section).map(|InitializerList { kind, stage, priority, backward, .. }| {
                (kind, stage, priority, if backward { "backward" } else { "forward" })
            })
        };
        assert_eq!(list(b".init_array"), Some((Init, Lists, 65536, "forward")));
        assert_eq!(list(b".init_array.65535"), Some((Init, Lists, 65535, "forward")));
        assert_eq!(list(b".init_array.00101"), Some((Init, Lists, 101, "forward")));
        assert_eq!(list(b".ctors.65434"), Some((Init, Lists, 101, "backward")));
        assert_eq!(list(b".dtors"), Some((Fini, Lists, 65536, "backward")));
        assert_eq!(list(b".fini_array.7"), Some((Fini, Lists, 7, "forward")));
        assert_eq!(list(b".preinit_array"), Some((Init, Preinit, 0, "forward")));
        assert_eq!(list(b".init_arrays"), None);
        let no_number = list(b".init_array.x");
        assert_eq!(no_number, Some((Init, Lists, 65536, "forward")), "a suffix that is no number has no effect");
    }

    #[test]
    fn lists_of_one_priority_are_in_the_order_of_their_names_and_lists_without_one_are_not() {
        let order = |section: &[u8]| classify(section).map(|list| (list.priority, list.rank));
        let names: [&[u8]; 5] =
            [b".ctors.065335", b".ctors.65335", b".init_array.00200", b".init_array.0200", b".init_array.200"];
        let ranks = names.map(order);
        assert!(ranks.is_sorted_by(|one, other| one < other), "{ranks:?}");
        assert!(ranks.iter().all(|order| order.is_some_and(|(priority, _)| priority == 200)));
        let without: [&[u8]; 3] = [b".ctors", b".init_array", b".init_array.name"];
        assert!(without.iter().all(|section| order(section) == Some((65536, 0))));
    }
}
