//! [`Initializer`]: a function that an object wants called before its code is used, or before its code is removed.
//!
//! | section | order of calls | `N` |
//! |---|---|---|
//! | `.preinit_array` | forward, before all others | no suffix: rank 0 |
//! | `.init_array[.N]` (gABI, "Initialization and Termination Functions") | forward | priority, lower first; 65536 without a suffix |
//! | `.fini_array[.N]` (same) | backward | priority, higher first; 65536 without a suffix |
//! | `.ctors[.N]` (older compilers) | backward | 65535 − priority; 65536 without a suffix |
//! | `.dtors[.N]` (older compilers) | forward | 65535 − priority; 65536 without a suffix |
//!
//! [`classify`] maps all of them to one order, of ranks. The registry only sorts by `(rank, object, position)`: forward to
//! initialise, backward to finalise. As with native linkers, a list without a suffix comes after all lists with one; a suffix
//! that is no number has no effect, as with lld.

use crate::base::ExecutorAddr;

/// Whether a function initialises or finalises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InitializerKind {
    /// Called before the object's code is used.
    Init,
    /// Called before the object's code is removed.
    Fini,
}

/// A function to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initializer {
    /// Whether the function initialises or finalises.
    pub kind: InitializerKind,
    /// The priority: 0 to 65535, or [`DEFAULT_PRIORITY`](Self::DEFAULT_PRIORITY). A lower one is initialised earlier and
    /// finalised later.
    pub priority: u32,
    /// Whether the function is of `.preinit_array`. It is called before those of all priorities, and has the priority 0.
    pub is_preinit: bool,
    /// The order among the functions of one object and one priority.
    pub position: u32,
    /// The address of the function.
    pub address: ExecutorAddr,
}

impl Initializer {
    /// The priority of a function without an explicit one. It is initialised last and finalised first.
    pub const DEFAULT_PRIORITY: u32 = MAX_PRIORITY + 1;

    /// The rank of the function among all objects.
    pub(crate) fn rank(&self) -> Rank {
        if self.is_preinit { Rank::PREINIT } else { Rank::of_priority(self.priority) }
    }
}

/// When a list of initialisers is called: a lower rank is initialised earlier and finalised later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(u32);

impl Rank {
    /// `.preinit_array`.
    pub(crate) const PREINIT: Rank = Rank(0);
    /// A list without a number.
    pub(crate) const DEFAULT: Rank = Rank::of_priority(Initializer::DEFAULT_PRIORITY);

    const fn of_priority(priority: u32) -> Rank {
        Rank(priority + 1)
    }

    /// The priority: zero for `.preinit_array`.
    pub(crate) fn priority(self) -> u32 {
        self.0.saturating_sub(1)
    }
}

/// Whether [`classify`] may accept this section name. A cheap test of the first bytes: if it returns false, `classify`
/// returns `None`.
pub(crate) fn may_list(section: &[u8]) -> bool {
    matches!(
        section,
        [b'.', b'i', b'n', ..] | [b'.', b'f', b'i', ..] | [b'.', b'c' | b'd', b't', ..] | [b'.', b'p', b'r', ..]
    )
}

/// The kind, rank and direction of a section's list, by the section's name. `None` if the section is no such list.
pub(crate) fn classify(section: &[u8]) -> Option<(InitializerKind, Rank, Direction)> {
    if !may_list(section) {
        return None;
    }
    let lists: [(&[u8], _, _); 4] = [
        (b".init_array", InitializerKind::Init, Direction::Forward),
        (b".fini_array", InitializerKind::Fini, Direction::Forward),
        (b".ctors", InitializerKind::Init, Direction::Backward),
        (b".dtors", InitializerKind::Fini, Direction::Backward),
    ];
    if section == b".preinit_array" {
        return Some((InitializerKind::Init, Rank::PREINIT, Direction::Forward));
    }
    for (name, kind, direction) in lists {
        let Some(suffix) = section.strip_prefix(name) else { continue };
        let number = match suffix.strip_prefix(b".") {
            None if suffix.is_empty() => None,
            None => continue, // another section, such as `.init_arrays`
            Some(digits) => std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok()),
        };
        let priority = match (number, direction) {
            (None, _) => Initializer::DEFAULT_PRIORITY,
            (Some(number), Direction::Forward) => number.min(MAX_PRIORITY),
            (Some(number), Direction::Backward) => MAX_PRIORITY.saturating_sub(number),
        };
        return Some((kind, Rank::of_priority(priority), direction));
    }
    None
}

/// The order in which the functions of a section are *initialised*. Finalisers run in the reverse order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// The greatest priority that a section's name can have.
const MAX_PRIORITY: u32 = 65535;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_lists_map_to_one_order() {
        use Direction::*;
        use InitializerKind::*;
        assert_eq!(classify(b".init_array"), Some((Init, Rank::DEFAULT, Forward)));
        assert_eq!(classify(b".init_array.65535"), Some((Init, Rank::of_priority(65535), Forward)));
        assert_eq!(classify(b".init_array.00101"), Some((Init, Rank::of_priority(101), Forward)));
        assert_eq!(classify(b".ctors.65434"), Some((Init, Rank::of_priority(101), Backward)));
        assert_eq!(classify(b".dtors"), Some((Fini, Rank::DEFAULT, Backward)));
        assert_eq!(classify(b".fini_array.7"), Some((Fini, Rank::of_priority(7), Forward)));
        assert_eq!(classify(b".init_arrays"), None);
        assert_eq!(classify(b".preinit_array"), Some((Init, Rank::PREINIT, Forward)));
        assert!(Rank::PREINIT < Rank::of_priority(0));
        assert_eq!(
            classify(b".init_array.x"),
            Some((Init, Rank::DEFAULT, Forward)),
            "a suffix that is no number has no effect"
        );
    }
}
