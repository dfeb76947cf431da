//! [`NameSources`]: what symbols of one table have in common: the text that their names are stretches of, and where they were
//! defined. Kept once for all symbols of a unit, and counted here: a symbol needs a number instead of two pointers.

use crate::base::{PagedArena, SlotNumber};
use crate::sync::Arc;

slotmap::new_key_type! {
    pub(crate) struct NameSourceId;
}

pub(crate) struct NameSources {
    origins: PagedArena<NameSourceId, NameSource>,
    /// The one that was asked for last: symbols of a unit come one after the other.
    latest: Option<SlotNumber<NameSourceId>>,
}

pub(crate) struct NameSource {
    pub(crate) text: Arc<str>,
    /// For errors.
    pub(crate) place: Arc<str>,
    /// Symbols, of which there are no more than their table has slots.
    users: u32,
}

/// Symbols that come one after the other, and mostly have one origin: who of them share it is told to it once.
#[derive(Default)]
pub(crate) struct NameSourceBatch<'a> {
    latest: Option<(&'a Arc<str>, SlotNumber<NameSourceId>)>,
    /// Symbols of the latest that it has not been told of.
    untold: u32,
}

impl<'a> NameSourceBatch<'a> {
    /// The origin of one more symbol. All that come in one run are of one place.
    #[inline(always)]
    pub(crate) fn share(
        &mut self,
        origins: &mut NameSources,
        text: &'a Arc<str>,
        place: &Arc<str>,
    ) -> SlotNumber<NameSourceId> {
        match self.latest {
            Some((latest, number)) if Arc::ptr_eq(latest, text) => {
                self.untold += 1;
                number
            }
            _ => {
                self.end(origins);
                self.latest.insert((text, origins.share(text, place))).1
            }
        }
    }

    /// Before symbols of the run are taken out again, and when there are no more.
    pub(crate) fn end(&mut self, origins: &mut NameSources) {
        if let Some((_, number)) = self.latest.take() {
            origins.origins[number].users += std::mem::take(&mut self.untold);
        }
    }
}

impl NameSources {
    pub(crate) fn new() -> NameSources {
        NameSources { origins: PagedArena::new(), latest: None }
    }

    /// The origin of one more symbol.
    #[inline]
    pub(crate) fn share(&mut self, text: &Arc<str>, place: &Arc<str>) -> SlotNumber<NameSourceId> {
        if let Some(latest) = self.latest
            && let Some(origin) = self.origins.at_mut(latest)
            && Arc::ptr_eq(&origin.text, text)
            && Arc::ptr_eq(&origin.place, place)
        {
            origin.users += 1;
            return latest;
        }
        self.add(text, place)
    }

    #[inline(never)]
    fn add(&mut self, text: &Arc<str>, place: &Arc<str>) -> SlotNumber<NameSourceId> {
        let origin = NameSource { text: text.clone(), place: place.clone(), users: 1 };
        *self.latest.insert(SlotNumber::of(self.origins.insert(origin)))
    }

    /// Asks for an origin ahead of its use.
    pub(crate) fn prefetch(&self, number: SlotNumber<NameSourceId>) {
        self.origins.prefetch(number);
    }

    /// So many symbols of it are gone.
    pub(crate) fn let_go(&mut self, number: SlotNumber<NameSourceId>, symbols: u32) {
        let origin = &mut self.origins[number];
        origin.users -= symbols;
        if origin.users == 0 {
            self.latest.take_if(|latest| *latest == number);
            self.origins.remove_at(number);
        }
    }

    pub(crate) fn of(&self, number: SlotNumber<NameSourceId>) -> &NameSource {
        &self.origins[number]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_unit_shares_is_kept_once_and_until_its_last_symbol_goes() {
        let (text, place, elsewhere) = (Arc::from("foobar"), Arc::from("unit"), Arc::from("unit"));
        let mut origins = NameSources::new();
        let first = origins.share(&text, &place);
        assert_eq!(origins.share(&text, &place), first);
        let other = origins.share(&text, &elsewhere);
        assert_ne!(other, first);
        origins.let_go(first, 1);
        assert_eq!(&*origins.of(first).text, "foobar");
        origins.let_go(first, 1);
        origins.let_go(other, 1);
        assert_eq!((Arc::strong_count(&text), Arc::strong_count(&place), Arc::strong_count(&elsewhere)), (1, 1, 1));
        // The slot of what was shared last is used again for something else.
        let reused = origins.share(&Arc::from("other"), &place);
        assert_eq!(&*origins.of(reused).text, "other");
    }
}
