//! [`NameSources`]: data that the symbols of one unit have in common, with reference counts.
//!
//! A [`NameSource`] has two strings: a text that contains the names of the symbols, and the name of the unit that
//! defines them. A symbol keeps the number of its source instead of two pointers. The last symbol of a source removes
//! it. A unit of one symbol often has its name, so only a name that differs from the text takes memory.
//!
//! [`NameSourceBatch`] adds many symbols of one unit: it updates the reference count once for a series of symbols that have
//! the same source.

use crate::base::{PagedArena, SlotNumber};
use crate::prefetch::prefetch_at;
use crate::sync::Arc;

slotmap::new_key_type! {
    pub(crate) struct NameSourceId;
    struct UnitNameId;
}

/// The sources of one symbol table.
pub(crate) struct NameSources {
    sources: PagedArena<NameSourceId, NameSource>,
    /// Names of units that differ from the text of their source.
    unit_names: PagedArena<UnitNameId, Arc<str>>,
    /// The source that was used last. Symbols of one unit are added one after the other.
    latest: Option<SlotNumber<NameSourceId>>,
}

/// What several symbols have in common.
struct NameSource {
    text: Arc<str>,
    /// The name of the unit that defines the symbols. `None` if it is `text` itself.
    unit_name: Option<SlotNumber<UnitNameId>>,
    /// The number of symbols. It fits, because a symbol table has no more than 2^32 slots.
    users: u32,
}

/// Adds symbols one after the other. Consecutive symbols mostly have the same source.
#[derive(Default)]
pub(crate) struct NameSourceBatch<'a> {
    latest: Option<(&'a Arc<str>, SlotNumber<NameSourceId>)>,
    /// Symbols of the latest source that its count does not include yet.
    pending_users: u32,
}

impl<'a> NameSourceBatch<'a> {
    /// Returns the source for one more symbol. All symbols of a batch must have the same unit name.
    #[inline(always)]
    pub(crate) fn add_user(
        &mut self,
        sources: &mut NameSources,
        text: &'a Arc<str>,
        unit_name: &Arc<str>,
    ) -> SlotNumber<NameSourceId> {
        match self.latest {
            Some((latest, number)) if Arc::ptr_eq(latest, text) => {
                self.pending_users += 1;
                number
            }
            _ => {
                self.flush(sources);
                self.latest.insert((text, sources.add_user(text, unit_name))).1
            }
        }
    }

    /// Updates the count of the latest source. Must be called before a symbol of the batch is removed, and at the end.
    pub(crate) fn flush(&mut self, sources: &mut NameSources) {
        if let Some((_, number)) = self.latest.take() {
            sources.sources[number].users += std::mem::take(&mut self.pending_users);
        }
    }
}

impl NameSources {
    pub(crate) fn new() -> NameSources {
        NameSources { sources: PagedArena::new(), unit_names: PagedArena::new(), latest: None }
    }

    /// Returns the source for one more symbol: the latest one if it has these strings, otherwise a new one.
    #[inline]
    pub(crate) fn add_user(&mut self, text: &Arc<str>, unit_name: &Arc<str>) -> SlotNumber<NameSourceId> {
        if let Some(latest) = self.latest
            && let Some(source) = self.sources.at_mut(latest)
            && Arc::ptr_eq(&source.text, text)
            && Arc::ptr_eq(source.unit_name(&self.unit_names), unit_name)
        {
            source.users += 1;
            return latest;
        }
        self.add(text, unit_name)
    }

    #[inline(never)]
    fn add(&mut self, text: &Arc<str>, unit_name: &Arc<str>) -> SlotNumber<NameSourceId> {
        let is_text = Arc::ptr_eq(text, unit_name);
        let unit_name = (!is_text).then(|| SlotNumber::of(self.unit_names.insert(unit_name.clone())));
        let source = NameSource { text: text.clone(), unit_name, users: 1 };
        *self.latest.insert(SlotNumber::of(self.sources.insert(source)))
    }

    /// Prefetches a source.
    pub(crate) fn prefetch(&self, number: SlotNumber<NameSourceId>) {
        self.sources.prefetch(number);
    }

    /// Prefetches the start of the text of a source, and its reference count.
    pub(crate) fn prefetch_text(&self, number: SlotNumber<NameSourceId>) {
        let counts = 2 * size_of::<usize>();
        prefetch_at(self.sources[number].text.as_ptr().addr().wrapping_sub(counts), counts);
    }

    /// Subtracts `symbols` from the count of a source. The last symbol removes the source. Then its text is returned.
    pub(crate) fn release(&mut self, number: SlotNumber<NameSourceId>, symbols: u32) -> Option<Arc<str>> {
        let source = &mut self.sources[number];
        source.users -= symbols;
        if source.users > 0 {
            return None;
        }
        self.latest.take_if(|latest| *latest == number);
        let (_, NameSource { text, unit_name, .. }) = self.sources.remove_at(number)?;
        unit_name.into_iter().for_each(|unit_name| self.unit_names.drop_at(unit_name, |_, _| {}));
        Some(text)
    }

    /// The text that has the names of the symbols.
    #[inline(always)]
    pub(crate) fn text(&self, number: SlotNumber<NameSourceId>) -> &Arc<str> {
        &self.sources[number].text
    }

    /// The unit that defines the symbols; for error texts.
    pub(crate) fn unit_name(&self, number: SlotNumber<NameSourceId>) -> &Arc<str> {
        self.sources[number].unit_name(&self.unit_names)
    }
}

impl NameSource {
    fn unit_name<'a>(&'a self, unit_names: &'a PagedArena<UnitNameId, Arc<str>>) -> &'a Arc<str> {
        self.unit_name.map_or(&self.text, |number| &unit_names[number])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_share_a_source_until_the_last_of_them_is_released() {
        let (text, unit_name, other_unit) = (Arc::from("foobar"), Arc::from("unit"), Arc::from("unit"));
        let mut sources = NameSources::new();
        let first = sources.add_user(&text, &unit_name);
        assert_eq!(sources.add_user(&text, &unit_name), first);
        let other = sources.add_user(&text, &other_unit);
        assert_ne!(other, first);
        assert_eq!([first, other].map(|source| Arc::ptr_eq(sources.unit_name(source), &unit_name)), [true, false]);
        sources.release(first, 1);
        assert_eq!(&**sources.text(first), "foobar");
        sources.release(first, 1);
        sources.release(other, 1);
        assert_eq!(
            (Arc::strong_count(&text), Arc::strong_count(&unit_name), Arc::strong_count(&other_unit)),
            (1, 1, 1)
        );
        // The slot of the removed source is reused for another source.
        let reused = sources.add_user(&Arc::from("other"), &unit_name);
        assert_eq!(&**sources.text(reused), "other");
    }

    #[test]
    fn a_unit_that_has_the_name_of_its_symbol_stores_it_once() {
        let name = Arc::from("foo");
        let mut sources = NameSources::new();
        let source = sources.add_user(&name, &name);
        assert_eq!(sources.add_user(&name, &name), source);
        assert!(Arc::ptr_eq(sources.unit_name(source), &name) && Arc::ptr_eq(sources.text(source), &name));
        assert_eq!((sources.unit_names.len(), Arc::strong_count(&name), size_of::<NameSource>()), (0, 2, 24));
        sources.release(source, 2);
        assert_eq!(Arc::strong_count(&name), 1);
    }
}
