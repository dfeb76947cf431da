//! [`NegativeCache`]: the names that a dylib is asked for again and again, and does not define.
//!
//! They stand in the index of what is ready, for readers without the dylib's lock. Everything here happens under that lock.

use super::SymbolTable;
use crate::base::Name;
use crate::session::symbols::ready_index::ReadyIndex;
use crate::session::types::name_hash::NameHash;

#[derive(Default)]
pub(super) struct NegativeCache {
    /// How many are in the index.
    count: u32,
    /// Hashes of names that were asked for once, each at a place of its own, until another comes there.
    asked: [u32; 16],
}

impl NegativeCache {
    /// A name is about to be defined.
    #[inline(always)]
    pub(super) fn forget(&mut self, ready: &ReadyIndex, name: &Name, hash: NameHash) {
        if self.count > 0 {
            self.forget_one(ready, name, hash);
        }
    }

    fn forget_one(&mut self, ready: &ReadyIndex, name: &Name, hash: NameHash) {
        if ready.find(name, hash, |_, symbol| symbol.is_absent()) == Some(true) {
            ready.remove(std::iter::once(name));
            self.count -= 1;
        }
    }
}

impl SymbolTable {
    /// Takes note that a name was looked for that is not here, and that no generator would add; at the second time it comes
    /// into the index.
    pub(crate) fn note_absent(&mut self, name: &str, hash: NameHash) {
        let short = hash.spread() as u32 | 1;
        let asked = std::mem::replace(&mut self.absents.asked[(short >> 28) as usize], short);
        let is_known =
            || self.ready.find(name, hash, |_, _| ()).is_some() || self.find_hashed(name.as_bytes(), hash).is_some();
        if asked != short || is_known() {
            return;
        }
        if self.absents.count == MOST {
            self.forget_absents();
        }
        self.absents.count += 1;
        self.ready.insert_absent(name);
    }

    /// Names that are not here may be from now on, whether defined or not.
    pub(crate) fn forget_absents(&mut self) {
        if std::mem::take(&mut self.absents.count) > 0 {
            self.ready.forget_absents();
        }
    }
}

/// Names at once: who asks for more begins anew.
const MOST: u32 = 1024;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Arc;

    #[cfg_attr(miri, ignore = "takes minutes, and the same steps as shorter tests")]
    #[test]
    fn names_that_are_asked_for_again_and_again_are_known_and_never_more_than_so_many() {
        let ready = Arc::new(ReadyIndex::new());
        let mut table = SymbolTable::new(ready.clone());
        let is_known = |name: &str| {
            let is_absent = ready.find(name, NameHash::of(name), |_, symbol| symbol.is_absent());
            is_absent == Some(true)
        };
        let names: Vec<String> = (0..5 * MOST).map(|number| format!("name {number}")).collect();
        for name in &names {
            table.note_absent(name, NameHash::of(name));
            assert!(!is_known(name), "it was asked for once");
            table.note_absent(name, NameHash::of(name));
            assert!(is_known(name) && table.absents.count <= MOST);
        }
        let known = names.iter().filter(|name| is_known(name)).count();
        assert_eq!(known, table.absents.count as usize);
        table.forget_absents();
        assert!(table.absents.count == 0 && !names.iter().any(|name| is_known(name)));
    }
}
