//! [`FailedSymbols`]: the definitions of a dylib that failed, each with the cause.
//!
//! A failed symbol leaves the table, and its name may be defined again. Code that refers to the symbol, or a lookup that comes later,
//! then finds no definition. It gets the cause from here. So the first cause reaches everything that failed because of it.
//!
//! | event | effect |
//! |---|---|
//! | a symbol fails, or is removed while it is being linked | it is recorded, and replaces an earlier record of its name |
//! | its name is defined again | the record is dropped |
//! | the removed dylib becomes a new one | all records are dropped |
//!
//! The number of records is bounded. There are two generations. When the newer one is full, it becomes the older one, and the older
//! one is dropped. A generation has space for as many symbols as the dylib had at a time. The symbols of one failure stay together,
//! however many they are. A dylib without failures has no record, and its definitions and lookups cost nothing more.
//!
//! A record has the number of its failure ([`FailureNumber`]).

use hashbrown::HashTable;

use crate::base::Name;
use crate::error::Error;
use crate::session::types::failure_count::FailureNumber;
use crate::session::types::name_hash::NameHash;
use crate::session::types::request::Visibility;
use crate::session::types::symbol::{SymbolFlags, SymbolId};

/// The records of one dylib. The dylib's lock guards them.
#[derive(Default)]
pub(in crate::session) struct FailedSymbols(Option<Box<Generations>>);

#[derive(Default)]
struct Generations {
    newer: Generation,
    older: Generation,
    /// The most symbols that the table had space for.
    space: usize,
}

#[derive(Default)]
struct Generation {
    records: HashTable<FailedSymbol>,
    /// The bytes of all names.
    name_bytes: usize,
}

/// A symbol that failed.
pub(super) struct FailedSymbol {
    pub(super) id: SymbolId,
    pub(super) hash: NameHash,
    pub(super) name: Name,
    pub(super) flags: SymbolFlags,
    pub(super) cause: Error,
    pub(super) number: FailureNumber,
}

impl FailedSymbols {
    /// Records the symbols of one failure. The table of the dylib has space for `space` symbols.
    #[cold]
    pub(super) fn record(&mut self, symbols: impl Iterator<Item = FailedSymbol>, space: usize) {
        let mut symbols = symbols.peekable();
        if symbols.peek().is_none() {
            return;
        }
        let Generations { newer, older, space: most } = &mut **self.0.get_or_insert_default();
        *most = space.max(*most);
        if newer.is_full(*most) {
            *older = std::mem::take(newer);
        }
        symbols.for_each(|symbol| newer.insert(symbol));
    }

    /// Drops the record of a name that is about to be defined.
    #[inline(always)]
    pub(super) fn forget(&mut self, name: &Name, hash: NameHash) {
        if let Some(generations) = &mut self.0 {
            generations.forget(name, hash);
        }
    }

    /// Whether a failure was recorded.
    pub(super) fn has_any(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }

    /// Why the definition of a name failed that a search with this visibility would see.
    pub(super) fn of_name(&self, name: &str, visibility: Visibility) -> Option<&Error> {
        let generations = self.0.as_ref()?;
        generations
            .find(name, NameHash::of(name))
            .filter(|failed| visibility.sees(failed.flags))
            .map(|failed| &failed.cause)
    }

    /// Whether the definition of a name failed after `since`.
    pub(super) fn has_failed_since(&self, since: FailureNumber, name: &str) -> bool {
        let failed = self.0.as_ref().and_then(|generations| generations.find(name, NameHash::of(name)));
        failed.is_some_and(|failed| failed.number > since)
    }

    /// Why the definition `id` of a name failed.
    pub(super) fn of_definition(&self, id: SymbolId, name: &str) -> Option<&Error> {
        let generations = self.0.as_ref()?;
        generations.find(name, NameHash::of(name)).filter(|failed| failed.id == id).map(|failed| &failed.cause)
    }
}

impl Generations {
    #[cold]
    fn forget(&mut self, name: &Name, hash: NameHash) {
        self.newer.remove(name, hash);
        self.older.remove(name, hash);
    }

    fn find(&self, name: &str, hash: NameHash) -> Option<&FailedSymbol> {
        self.newer.find(name, hash).or_else(|| self.older.find(name, hash))
    }
}

impl Generation {
    fn is_full(&self, space: usize) -> bool {
        self.records.len() >= space && (self.records.len() >= MAX_RECORDS || self.name_bytes >= MAX_NAME_BYTES)
    }

    fn insert(&mut self, symbol: FailedSymbol) {
        self.remove(&symbol.name, symbol.hash);
        self.name_bytes += symbol.name.len();
        self.records.insert_unique(symbol.hash.spread(), symbol, |other| other.hash.spread());
    }

    fn remove(&mut self, name: &str, hash: NameHash) {
        if let Ok(found) = self.records.find_entry(hash.spread(), |failed| failed.name.as_str() == name) {
            self.name_bytes -= found.remove().0.name.len();
        }
    }

    fn find(&self, name: &str, hash: NameHash) -> Option<&FailedSymbol> {
        self.records.find(hash.spread(), |failed| failed.name.as_str() == name)
    }
}

/// The number of records at which the generation of a small dylib is full.
const MAX_RECORDS: usize = 4_096;
/// The bytes of names at which the generation of a small dylib is full.
const MAX_NAME_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::types::failure_count::FailureCount;

    fn failed(names: impl Iterator<Item = String>, cause: &Error) -> impl Iterator<Item = FailedSymbol> {
        names.map(|name| FailedSymbol {
            id: SymbolId::default(),
            hash: NameHash::of(&name),
            name: Name::from(name),
            flags: SymbolFlags::EXPORTED,
            cause: cause.clone(),
            number: FailureNumber::NONE,
        })
    }

    fn cause_of(symbols: &FailedSymbols, name: &str) -> Option<String> {
        symbols.of_name(name, Visibility::ExportedOnly).map(Error::to_string)
    }

    #[test]
    #[cfg_attr(miri, ignore = "fills tables of thousands of records")]
    fn records_are_bounded_and_the_newest_failure_is_kept_whole() {
        let mut symbols = FailedSymbols::default();
        for failure in 0..4 * MAX_RECORDS {
            symbols.record(failed([format!("f{failure}")].into_iter(), &Error::other(failure)), 0);
        }
        let last = 4 * MAX_RECORDS - 1;
        assert_eq!((cause_of(&symbols, "f0"), cause_of(&symbols, &format!("f{last}"))), (None, Some(last.to_string())));
        let count = |symbols: &FailedSymbols| {
            symbols.0.as_ref().map_or(0, |both| both.newer.records.len() + both.older.records.len())
        };
        assert!(count(&symbols) <= 2 * MAX_RECORDS);
        let many = 3 * MAX_RECORDS;
        symbols.record(failed((0..many).map(|number| format!("g{number}")), &Error::other("one failure")), 0);
        assert!((0..many).all(|number| cause_of(&symbols, &format!("g{number}")).is_some()));
        symbols.record(failed(["h".to_string()].into_iter(), &Error::other("h")), 0);
        symbols.record(failed((0..MAX_RECORDS).map(|number| format!("i{number}")), &Error::other("i")), 0);
        symbols.record(failed(["j".to_string()].into_iter(), &Error::other("j")), 0);
        assert!(count(&symbols) <= 2 * MAX_RECORDS && cause_of(&symbols, "g0").is_none());
    }

    #[test]
    fn a_name_that_fails_again_has_one_record_and_a_new_definition_drops_it() {
        let mut symbols = FailedSymbols::default();
        for failure in 0..100 {
            symbols.record(failed(["f".to_string()].into_iter(), &Error::other(failure)), 0);
        }
        assert_eq!(cause_of(&symbols, "f").as_deref(), Some("99"));
        assert_eq!(symbols.0.as_ref().map(|both| (both.newer.records.len(), both.newer.name_bytes)), Some((1, 1)));
        symbols.forget(&Name::new("f"), NameHash::of("f"));
        assert_eq!(cause_of(&symbols, "f"), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "fills tables of thousands of records")]
    fn a_dylib_that_had_more_symbols_keeps_as_many_records() {
        let (mut symbols, count) = (FailedSymbols::default(), 3 * MAX_RECORDS);
        for failure in 0..count {
            // The table shrinks while its symbols fail.
            symbols.record(failed([format!("f{failure}")].into_iter(), &Error::other(failure)), count - failure);
        }
        assert!((0..count).all(|failure| cause_of(&symbols, &format!("f{failure}")).is_some()));
    }

    #[test]
    fn a_failure_is_younger_than_lookups_that_began_before_it() {
        let (mut symbols, failures) = (FailedSymbols::default(), FailureCount::new());
        let before = failures.now();
        let number = failures.count();
        let cause = Error::other("f");
        let records = failed(["f".to_string()].into_iter(), &cause);
        symbols.record(records.map(|record| FailedSymbol { number, ..record }), 0);
        assert!(symbols.has_failed_since(before, "f") && !symbols.has_failed_since(before, "g"));
        assert!(
            !symbols.has_failed_since(failures.now(), "f") && !symbols.has_failed_since(FailureNumber::LATEST, "f")
        );
    }
}
