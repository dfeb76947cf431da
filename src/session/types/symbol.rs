//! The flags and the state of a symbol: [`SymbolFlags`] and [`SymbolState`], and the id of a symbol's entry in its table.

use std::fmt;
use std::ops::BitOr;

slotmap::new_key_type! {
    /// Names the entry of a symbol in the table of its dylib. Generational: the id of a removed symbol is not found.
    pub(crate) struct SymbolId;
}

/// Properties of a symbol (ORC: `JITSymbolFlags`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SymbolFlags(u8);

impl SymbolFlags {
    /// No flag: a hidden, strong definition of data.
    pub const NONE: SymbolFlags = SymbolFlags(0);
    /// Visible to other dylibs.
    pub const EXPORTED: SymbolFlags = SymbolFlags(1);
    /// Not added if the name is already defined. A later strong definition replaces it, unless a lookup has asked for
    /// it.
    pub const WEAK: SymbolFlags = SymbolFlags(2);
    /// A function.
    pub const CALLABLE: SymbolFlags = SymbolFlags(4);
    /// An address in memory that no tracker of the session owns. A reference to it pins no tracker.
    ///
    /// The session sets this flag; a caller cannot. Absolute are the symbols of
    /// [`define_absolute`](crate::session::ResourceTracker::define_absolute), absolute symbols of ELF objects, and aliases
    /// of absolute symbols. All other methods that define symbols ignore the flag.
    pub const ABSOLUTE: SymbolFlags = SymbolFlags(8);
    /// Has no address. A lookup of it only starts the materialisation of its unit (used for initialisers).
    pub const SIDE_EFFECTS_ONLY: SymbolFlags = SymbolFlags(16);

    /// Of common linkage: of several definitions, the largest is used. Set together with `WEAK` (ORC: `Common`).
    pub const COMMON: SymbolFlags = SymbolFlags(32);

    /// A thread-local variable. Its address is the address of a [`TlsIndex`](crate::base::TlsIndex).
    pub const THREAD_LOCAL: SymbolFlags = SymbolFlags(64);

    /// Stands for a COMDAT section group. It is not added if a symbol that stands for another object's group has the name.
    pub(crate) const COMDAT: SymbolFlags = SymbolFlags(128);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: SymbolFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags that a caller may declare for a definition of its own: without `ABSOLUTE`. With that flag, lookups would
    /// not pin the definition, and links would not depend on it.
    pub(crate) const fn declared(self) -> SymbolFlags {
        self.without(SymbolFlags::ABSOLUTE)
    }

    /// These flags if `is_set`, no flag otherwise.
    #[inline]
    pub(crate) const fn only_if(self, is_set: bool) -> SymbolFlags {
        SymbolFlags(self.0 * is_set as u8)
    }

    /// These flags without those of `other`.
    pub(crate) const fn without(self, other: SymbolFlags) -> SymbolFlags {
        SymbolFlags(self.0 & !other.0)
    }

    pub(crate) fn is_weak(self) -> bool {
        self.contains(SymbolFlags::WEAK)
    }
}

impl BitOr for SymbolFlags {
    type Output = SymbolFlags;
    fn bitor(self, other: SymbolFlags) -> SymbolFlags {
        SymbolFlags(self.0 | other.0)
    }
}

impl fmt::Debug for SymbolFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (SymbolFlags::EXPORTED, "exported"),
            (SymbolFlags::WEAK, "weak"),
            (SymbolFlags::CALLABLE, "callable"),
            (SymbolFlags::ABSOLUTE, "absolute"),
            (SymbolFlags::SIDE_EFFECTS_ONLY, "side-effects-only"),
            (SymbolFlags::COMMON, "common"),
            (SymbolFlags::THREAD_LOCAL, "thread-local"),
            (SymbolFlags::COMDAT, "comdat"),
        ];
        let set: Vec<_> = names.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| *name).collect();
        write!(f, "[{}]", set.join(" "))
    }
}

/// The progress of a symbol. States are ordered: a later state includes the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SymbolState {
    /// The symbol is defined, and no lookup asked for it.
    NeverSearched,
    /// Its unit is being materialised.
    Materializing,
    /// The address is known. The bytes are not final.
    Resolved,
    /// The bytes are final. Something that they refer to is not ready.
    Emitted,
    /// The symbol and everything that it refers to may be used.
    Ready,
}
