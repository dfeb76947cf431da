//! [`NegativeCache`]: names that lookups search for often and that the dylib does not define.
//!
//! The names are in the [`ReadyIndex`] as absent, for readers that do not lock the dylib. This type decides which names get in,
//! and tells the [`NameWatch`] of the session when the dylib defines a name. All its functions run under the dylib's lock.

use crate::base::Name;
use crate::session::symbols::name_watch::NameWatch;
use crate::session::symbols::ready_index::ReadyIndex;
use crate::session::symbols::ready_index::entry::ReadySymbol;
use crate::session::types::name_hash::NameHash;
use crate::sync::Arc;

#[derive(Default)]
pub(super) struct NegativeCache {
    /// The number of absent names in the index.
    count: u32,
    /// Hashes of names that were missed once. A hash has one possible position, and replaces the hash there.
    recent_misses: [u32; 16],
    /// Set if the dylib is watched: cached searches went through it.
    pub(super) watch: Option<Arc<NameWatch>>,
}

impl NegativeCache {
    /// Removes a name that is about to be defined.
    #[inline(always)]
    pub(super) fn remove(&mut self, ready: &ReadyIndex, name: &Name, hash: NameHash) {
        if self.count > 0 {
            self.remove_indexed(ready, name, hash);
        }
        if let Some(watch) = &self.watch {
            watch.clear(hash);
        }
    }

    /// Records a miss. Returns true if the same hash is already recorded.
    pub(super) fn record_miss(&mut self, hash: NameHash) -> bool {
        let short = hash.spread() as u32 | 1;
        std::mem::replace(&mut self.recent_misses[(short >> 28) as usize], short) == short
    }

    /// Adds a name to the index as absent.
    pub(super) fn add(&mut self, ready: &ReadyIndex, name: &str) {
        if self.count == MAX_NAMES {
            self.clear(ready);
        }
        self.count += 1;
        ready.insert_absent(name);
    }

    /// Removes all absent names from the index.
    pub(super) fn clear(&mut self, ready: &ReadyIndex) {
        if std::mem::take(&mut self.count) > 0 {
            ready.clear_absent();
        }
    }

    fn remove_indexed(&mut self, ready: &ReadyIndex, name: &Name, hash: NameHash) {
        if ready.find(name, hash, |_, symbol| symbol.is_absent()) == Some(true) {
            ready.remove(std::iter::once((name, ReadySymbol::absent().id)));
            self.count -= 1;
        }
    }
}

/// The maximum number of absent names. One more clears all of them.
const MAX_NAMES: u32 = 1024;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::session::core::jit_dylib::SymbolTable;
    use crate::sync::Arc;

    #[cfg_attr(miri, ignore = "takes minutes, and the same steps as shorter tests")]
    #[test]
    fn a_name_is_cached_at_its_second_miss_and_the_cache_is_bounded() {
        let ready = Arc::new(ReadyIndex::new());
        let mut table = SymbolTable::new(ready.clone());
        let is_cached = |name: &str| {
            let is_absent = ready.find(name, NameHash::of(name), |_, symbol| symbol.is_absent());
            is_absent == Some(true)
        };
        let names: Vec<String> = (0..5 * MAX_NAMES).map(|number| format!("name {number}")).collect();
        for name in &names {
            table.note_absent(name, NameHash::of(name));
            assert!(!is_cached(name), "it was missed once");
            table.note_absent(name, NameHash::of(name));
            assert!(is_cached(name) && table.negative_cache.count <= MAX_NAMES);
        }
        let known = names.iter().filter(|name| is_cached(name)).count();
        assert_eq!(known, table.negative_cache.count as usize);
        table.note_generator();
        assert!(table.negative_cache.count == 0 && !names.iter().any(|name| is_cached(name)));
    }
}
