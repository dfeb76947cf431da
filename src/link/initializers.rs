//! [`Initializer`]: what an object wants called before it is used and before it goes.
//!
//! `.init_array[.N]` and `.fini_array[.N]` hold addresses in order of call; `N` is a priority, lower first, 65535 without
//! one (gABI, "Initialization and Termination Functions"). `.ctors[.N]` and `.dtors[.N]` are older: `N` counts the other
//! way, and a `.ctors` section is called from its end. Everything is brought to one order here, so that the registry
//! only sorts: by `(priority, object, position)` forwards to initialise, backwards to finalise.

use crate::base::ExecutorAddr;

/// Whether a function initialises or finalises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InitializerKind {
    /// Called before the object's code is used.
    Init,
    /// Called before the object's code is removed.
    Fini,
}

/// One function to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initializer {
    /// When.
    pub kind: InitializerKind,
    /// Lower is initialised earlier and finalised later.
    pub priority: u32,
    /// Order within the object and the priority.
    pub position: u32,
    /// The function.
    pub address: ExecutorAddr,
}

impl Initializer {
    /// The priority of those that were given none: initialised last, finalised first.
    pub const DEFAULT_PRIORITY: u32 = LAST;
}

/// Whether [`classify`] may know a section by this name: cheap, and right when it says no.
pub(crate) fn may_list(section: &[u8]) -> bool {
    matches!(
        section,
        [b'.', b'i', b'n', ..] | [b'.', b'f', b'i', ..] | [b'.', b'c' | b'd', b't', ..] | [b'.', b'p', b'r', ..]
    )
}

/// How a section lists initialisers, by its name; `None` when it does not.
pub(crate) fn classify(section: &[u8]) -> Option<(InitializerKind, u32, Direction)> {
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
        return Some((InitializerKind::Init, 0, Direction::Forward)); // ahead of all others of its module
    }
    for (name, kind, direction) in lists {
        let Some(suffix) = section.strip_prefix(name) else { continue };
        let number = match suffix.strip_prefix(b".") {
            None if suffix.is_empty() => None,
            None => continue, // another section whose name begins alike
            Some(digits) => std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok()),
        };
        let priority = match (number, direction) {
            (None, _) => LAST,
            (Some(number), Direction::Forward) => number.min(LAST),
            (Some(number), Direction::Backward) => LAST.saturating_sub(number),
        };
        return Some((kind, priority, direction));
    }
    None
}

/// In which order of a section its functions are *initialised*; finalising is the reverse of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

const LAST: u32 = 65535;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_lists_come_to_one_order() {
        use Direction::*;
        use InitializerKind::*;
        assert_eq!(classify(b".init_array"), Some((Init, 65535, Forward)));
        assert_eq!(classify(b".init_array.00101"), Some((Init, 101, Forward)));
        assert_eq!(classify(b".ctors.65434"), Some((Init, 101, Backward)));
        assert_eq!(classify(b".dtors"), Some((Fini, 65535, Backward)));
        assert_eq!(classify(b".fini_array.7"), Some((Fini, 7, Forward)));
        assert_eq!(classify(b".init_arrays"), None);
        assert_eq!(classify(b".init_array.x"), Some((Init, 65535, Forward)), "no number: as without one");
    }
}
