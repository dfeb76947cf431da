//! What is known of a symbol: its flags, its state, and a reference to it that no later symbol can be mistaken for.

use std::fmt;
use std::ops::BitOr;

use crate::base::Name;
use crate::session::core::jit_dylib::DylibInner;
use crate::session::removal::symbol_watch::SymbolWatch;
use crate::sync::Arc;

slotmap::new_key_type! {
    /// A symbol's entry in its dylib's table.
    pub(crate) struct SymbolId;
}

/// Properties of a symbol (ORC: `JITSymbolFlags`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SymbolFlags(u8);

impl SymbolFlags {
    /// Hidden, strong, data.
    pub const NONE: SymbolFlags = SymbolFlags(0);
    /// Visible to other dylibs.
    pub const EXPORTED: SymbolFlags = SymbolFlags(1);
    /// Gives way to an earlier definition, and to a later strong one while it has not been looked up.
    pub const WEAK: SymbolFlags = SymbolFlags(2);
    /// A function.
    pub const CALLABLE: SymbolFlags = SymbolFlags(4);
    /// An address that no tracker of the session backs with memory: references to it pin nothing.
    pub const ABSOLUTE: SymbolFlags = SymbolFlags(8);
    /// Has no address: looking it up only makes its unit materialise (initialisers).
    pub const SIDE_EFFECTS_ONLY: SymbolFlags = SymbolFlags(16);

    /// Of common linkage: the largest of several counts. Goes with `WEAK` (ORC: `Common`).
    pub const COMMON: SymbolFlags = SymbolFlags(32);

    /// A thread-local variable: what it has for an address is a [`TlsIndex`](crate::base::ThreadLocal).
    pub const THREAD_LOCAL: SymbolFlags = SymbolFlags(64);

    /// Whether all of `other`'s flags are set.
    pub const fn contains(self, other: SymbolFlags) -> bool {
        self.0 & other.0 == other.0
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
        ];
        let set: Vec<_> = names.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| *name).collect();
        write!(f, "[{}]", set.join(" "))
    }
}

/// How far a symbol has come. Ordered: a later state includes the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SymbolState {
    /// Defined; nobody has looked for it.
    NeverSearched,
    /// Its unit is at work.
    Materializing,
    /// Has an address; its bytes are not final.
    Resolved,
    /// Its bytes are final; something that it refers to is not.
    Emitted,
    /// May be used.
    Ready,
}

/// One definition of one name: the next definition of the same name is another `SymbolRef`.
#[derive(Clone)]
pub struct SymbolRef {
    pub(crate) dylib: Arc<DylibInner>,
    pub(crate) id: SymbolId,
    /// For errors: the entry may be gone.
    pub(crate) name: Name,
}

impl SymbolRef {
    /// Asks later how far the definition has come, without keeping anything alive.
    pub fn watch(&self) -> SymbolWatch {
        SymbolWatch::of(self)
    }

    /// Sorts and compares by identity: dylib first, then entry.
    pub(crate) fn order(&self) -> (crate::session::core::jit_dylib::DylibId, SymbolId) {
        (self.dylib.id, self.id)
    }
}

impl fmt::Debug for SymbolRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of `{}`", self.name, self.dylib.name)
    }
}
