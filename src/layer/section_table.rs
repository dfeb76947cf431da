//! [`SectionTable`]: which objects of each dylib have parts of a section whose bounds can be requested, and which objects request
//! the bounds.
//!
//! Only the few objects with such sections are registered. An object counts until its tracker is removed. A thread reads what it
//! needs, decides without a lock, and [`commit`](Registration::commit)s its decision if the section did not change meanwhile. An
//! object that is added meanwhile is no change: it comes after the decision.
//!
//! | step | uses that it reads or writes |
//! |---|---|
//! | an object is added or removed, or takes its place in an area | its own |
//! | an area is made | those of objects that are not linked |
//! | bounds are requested | all |
//!
//! A dylib may have very many objects with one section, so each step releases the lock after a number of uses ([`CHUNK`]).

use std::ops::Bound;

use rustc_hash::FxHashMap;

use crate::base::{NumberMap, NumberTree};
use crate::layer::section_area::SectionArea;
use crate::layer::section_use::{Part, SectionUse};
use crate::session::JitDylib;
use crate::sync::{Arc, Mutex, Weak, seeded_bug};

/// The section uses of all dylibs of a session.
pub(super) struct SectionTable {
    /// A leaf lock: no other lock is taken under it, and nothing of the embedder is dropped under it.
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next_number: u64,
    /// By dylib and name.
    dylibs: FxHashMap<u64, FxHashMap<Box<str>, Section>>,
}

/// The uses of one section in one dylib. Never empty.
#[derive(Default)]
struct Section {
    /// Changes with every change but an addition. No two sections of one name have the same version, and none has 0.
    version: u64,
    /// By number.
    uses: NumberMap<SectionUse>,
    /// The objects that are not linked and have a part.
    unlinked: NumberTree,
    /// The objects that request the bounds.
    readers: NumberTree,
    /// Those of them that have a place in the area whose bounds they request.
    peers: NumberTree,
    /// The areas in use, by address: how many parts of linked objects are in them, and how many objects refer to their bounds.
    areas: FxHashMap<usize, usize>,
}

/// Uses of a section at one version of it.
pub(super) struct Snapshot {
    pub(super) version: u64,
    /// Sorted by number. Those of objects whose trackers are live.
    pub(super) uses: Vec<SectionUse>,
}

/// What happens to the part of another object that is not linked.
pub(super) enum PartChange {
    /// It has lost the part with its section groups.
    Lost,
    /// It has a place in this area.
    Placed(Weak<SectionArea>),
}

/// The registered section uses of one object. Dropping it deregisters them.
pub(super) struct Registration {
    table: Arc<SectionTable>,
    dylib: u64,
    pub(super) number: u64,
    sections: Vec<Box<str>>,
}

/// The number of uses that a step visits before it releases the lock.
const CHUNK: usize = 128;

impl SectionTable {
    pub(super) fn new() -> Arc<SectionTable> {
        Arc::new(SectionTable { table: Mutex::new(Table::default()) })
    }

    /// A registration without uses.
    pub(super) fn register(self: &Arc<Self>, dylib: &JitDylib) -> Box<Registration> {
        let number = self.table.lock().new_number();
        Box::new(Registration { table: self.clone(), dylib: dylib.id(), number, sections: Vec::new() })
    }

    fn deregister(&self, dylib: u64, section: &str, number: u64) {
        let removed = {
            let mut table = self.table.lock();
            let version = table.new_number();
            let Some(current) = table.section(dylib, section) else { return };
            current.version = version;
            let removed = current.remove(number);
            if current.uses.is_empty() {
                table.remove(dylib, section);
            }
            removed
        };
        // The bytes of the object may be the embedder's. They are dropped here, without the lock.
        drop(removed);
    }
}

impl Registration {
    /// Adds the use of a section by an object that is added, unless another object refers to the bounds.
    pub(super) fn append(&mut self, section: &str, own: &SectionUse) -> bool {
        let mut table = self.table.table.lock();
        if table.section(self.dylib, section).is_some_and(|current| !current.readers.is_empty()) {
            return false;
        }
        table.section_or_new(self.dylib, section).insert(own.clone());
        self.sections.push(Box::from(section));
        true
    }

    /// As [`append`](Self::append), even if another object refers to the bounds.
    pub(super) fn append_late(&mut self, section: &str, own: &SectionUse) {
        self.table.table.lock().section_or_new(self.dylib, section).insert(own.clone());
        self.sections.push(Box::from(section));
    }

    /// Marks the object as linked if it has a place in an area in use. Returns the area.
    pub(super) fn enter(&self, section: &str) -> Option<Arc<SectionArea>> {
        let (area, _entered) = {
            let mut table = self.table.table.lock();
            let current = table.section(self.dylib, section)?;
            let used = current.uses.get(self.number)?;
            let area = current.place_of(used)?;
            let entered = SectionUse { part: Part::Linked(Some(area.clone())), ..used.clone() };
            (area, current.insert(entered))
        };
        Some(area)
    }

    /// The use of a section by this object, with the version of the section, and whether it has a place in an area in use.
    pub(super) fn own(&self, section: &str) -> (u64, Option<SectionUse>, bool) {
        let mut table = self.table.table.lock();
        let Some(current) = table.section(self.dylib, section) else { return (0, None, false) };
        let own = current.uses.get(self.number);
        (current.version, own.cloned(), own.is_some_and(|own| current.place_of(own).is_some()))
    }

    /// The first other object that requests the bounds.
    pub(super) fn reader(&self, section: &str) -> Option<SectionUse> {
        self.first_live(section, |current| &current.readers)
    }

    /// The first other object that requests the bounds of an area in which it has a place.
    pub(super) fn peer(&self, section: &str) -> Option<SectionUse> {
        self.first_live(section, |current| &current.peers)
    }

    /// The first other object of a set whose tracker is live.
    fn first_live(&self, section: &str, set: impl Fn(&Section) -> &NumberTree) -> Option<SectionUse> {
        let first = || {
            let mut table = self.table.table.lock();
            let current = table.section(self.dylib, section)?;
            let number = set(current).keys().find(|number| **number != self.number)?;
            current.uses.get(*number).cloned()
        };
        loop {
            let used = first()?;
            // Without the lock, because this takes locks of trackers.
            if used.tracker.is_live() {
                return Some(used);
            }
            self.table.deregister(self.dylib, section, used.number);
        }
    }

    /// The uses of a section in this dylib.
    pub(super) fn snapshot(&self, section: &str) -> Snapshot {
        self.read(section, |current, from| {
            let uses = current.uses.range((from, Bound::Unbounded)).take(CHUNK);
            uses.map(|(number, used)| (number, Some(used.clone()))).collect()
        })
    }

    /// The uses by other objects that are not linked, have a part, and no place in an area in use.
    pub(super) fn waiting(&self, section: &str) -> Snapshot {
        self.read(section, |current, from| {
            let numbers = current.unlinked.range((from, Bound::Unbounded)).take(CHUNK);
            let waits = |used: &&SectionUse| used.number != self.number && current.place_of(used).is_none();
            numbers.map(|(number, _)| (*number, current.uses.get(*number).filter(waits).cloned())).collect()
        })
    }

    /// Collects uses in chunks. `next` returns the uses after a number, each with its number, and `None` for those that do not
    /// count. It returns none at the end.
    fn read(&self, section: &str, next: impl Fn(&Section, Bound<u64>) -> Vec<(u64, Option<SectionUse>)>) -> Snapshot {
        loop {
            let Some(snapshot) = self.try_read(section, &next) else { continue };
            let is_dead = |used: &&SectionUse| !used.tracker.is_live();
            // Without the lock, because this takes locks of trackers.
            let dead: Vec<u64> = snapshot.uses.iter().filter(is_dead).map(|used| used.number).collect();
            if dead.is_empty() {
                return snapshot;
            }
            // The trackers were removed, and only pins keep their memory. Their objects are no longer part of the dylib.
            dead.into_iter().for_each(|number| self.table.deregister(self.dylib, section, number));
        }
    }

    /// As [`read`](Self::read), with the uses of dead trackers. `None` if the section changed meanwhile.
    fn try_read(
        &self,
        section: &str,
        next: impl Fn(&Section, Bound<u64>) -> Vec<(u64, Option<SectionUse>)>,
    ) -> Option<Snapshot> {
        let mut snapshot = Snapshot { version: 0, uses: Vec::new() };
        let mut from = Bound::Unbounded;
        loop {
            let (version, chunk) = {
                let mut table = self.table.table.lock();
                let current = table.section(self.dylib, section);
                current.map_or((0, Vec::new()), |current| (current.version, next(current, from)))
            };
            if from == Bound::Unbounded {
                snapshot.version = version;
            } else if snapshot.version != version {
                return None;
            }
            let Some((last, _)) = chunk.last() else { return Some(snapshot) };
            from = Bound::Excluded(*last);
            snapshot.uses.extend(chunk.into_iter().filter_map(|(_, used)| used));
        }
    }

    /// Sets the use of the section by this object. Returns false, without a change, if the section changed after the version.
    pub(super) fn commit(&mut self, section: &str, version: u64, own: SectionUse) -> bool {
        let replaced = self.change(section, version, |current| current.insert(own));
        // What was replaced is dropped here, without the lock.
        let Some((_, replaced)) = replaced else { return false };
        if replaced.is_none() {
            self.sections.push(Box::from(section));
        }
        true
    }

    /// Changes the parts of other objects. A place counts once the area is in use. Returns the new version. `None` if the
    /// section changed after the version; places may be given then, but nobody uses their area.
    pub(super) fn commit_parts(&self, section: &str, version: u64, changes: &[(u64, PartChange)]) -> Option<u64> {
        changes.chunks(CHUNK).try_fold(version, |version, chunk| {
            let apply = |current: &mut Section| {
                chunk.iter().filter_map(|(number, change)| current.change_part(*number, change)).collect::<Vec<_>>()
            };
            let (version, _replaced) = self.change(section, version, apply)?;
            Some(version)
        })
    }

    /// Applies `edit` to a section. Returns the new version, and what `edit` returns: what it replaces, because that is dropped
    /// without the lock. `None`, without a change, if the section changed after the version.
    fn change<R>(&self, section: &str, version: u64, edit: impl FnOnce(&mut Section) -> R) -> Option<(u64, R)> {
        let mut table = self.table.table.lock();
        let current_version = table.section(self.dylib, section).map_or(0, |current| current.version);
        if current_version != version && !seeded_bug!("section_changed_since_it_was_read") {
            return None;
        }
        let new_version = table.new_number();
        let current = table.section_or_new(self.dylib, section);
        current.version = new_version;
        Some((new_version, edit(current)))
    }

    /// The sections that the object uses.
    pub(super) fn sections(&self) -> &[Box<str>] {
        &self.sections
    }
}

impl Table {
    /// A number for a registration or a version. Numbers never repeat.
    fn new_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn section(&mut self, dylib: u64, section: &str) -> Option<&mut Section> {
        self.dylibs.get_mut(&dylib)?.get_mut(section)
    }

    /// A section. If it is new, the caller adds a use.
    fn section_or_new(&mut self, dylib: u64, section: &str) -> &mut Section {
        let version = self.new_number();
        let sections = self.dylibs.entry(dylib).or_default();
        if !sections.contains_key(section) {
            sections.insert(Box::from(section), Section { version, ..Section::default() });
        }
        sections.entry(Box::from(section)).or_default()
    }

    fn remove(&mut self, dylib: u64, section: &str) {
        let Some(sections) = self.dylibs.get_mut(&dylib) else { return };
        sections.remove(section);
        if sections.is_empty() {
            self.dylibs.remove(&dylib);
        }
    }
}

impl Section {
    /// Inserts or replaces a use. Returns the use that it replaces.
    fn insert(&mut self, used: SectionUse) -> Option<SectionUse> {
        let number = used.number;
        for area in used.kept_areas() {
            *self.areas.entry(address(area)).or_default() += 1;
        }
        let replaced = self.remove(number);
        if used.requests_bounds() {
            self.readers.insert(number, 0);
        }
        if used.bounds_area().is_some_and(|area| used.is_in(area)) {
            self.peers.insert(number, 0);
        }
        if matches!(used.part, Part::Unlinked(..)) {
            self.unlinked.insert(number, 0);
        }
        self.uses.insert(number, used);
        replaced
    }

    fn remove(&mut self, number: u64) -> Option<SectionUse> {
        let removed = self.uses.remove(number)?;
        self.readers.remove(&number);
        self.peers.remove(&number);
        self.unlinked.remove(&number);
        for area in removed.kept_areas() {
            if let Some(count) = self.areas.get_mut(&address(area)) {
                *count -= 1;
                if *count == 0 {
                    self.areas.remove(&address(area));
                }
            }
        }
        Some(removed)
    }

    /// Changes the part of an object that is not linked. Returns what it replaces.
    fn change_part(&mut self, number: u64, change: &PartChange) -> Option<SectionUse> {
        let used = self.uses.get_mut(number)?;
        match (change, &mut used.part) {
            (PartChange::Placed(area), Part::Unlinked(_, place)) => {
                *place = area.clone();
                None
            }
            (PartChange::Lost, Part::Unlinked(..)) => {
                let lost = SectionUse { part: Part::Missing, ..used.clone() };
                self.insert(lost)
            }
            (_, Part::Missing | Part::Linked(_)) => None,
        }
    }

    /// The area in use in which an object has a place.
    fn place_of(&self, used: &SectionUse) -> Option<Arc<SectionArea>> {
        let area = match &used.part {
            Part::Linked(area) => area.clone()?,
            Part::Unlinked(_, area) if self.areas.contains_key(&(area.as_ptr() as usize)) => area.upgrade()?,
            Part::Unlinked(..) | Part::Missing => return None,
        };
        Some(area)
    }
}

/// The key of an area. A use that has a place in the area keeps the address from being used again.
fn address(area: &Arc<SectionArea>) -> usize {
    Arc::as_ptr(area) as usize
}

impl Snapshot {
    /// The use by the object with this number.
    pub(super) fn own(&self, number: u64) -> Option<&SectionUse> {
        let position = self.uses.binary_search_by_key(&number, |used| used.number).ok()?;
        Some(&self.uses[position])
    }

    /// The uses by other objects.
    pub(super) fn others(&self, number: u64) -> impl Iterator<Item = &SectionUse> {
        self.uses.iter().filter(move |used| used.number != number)
    }

    /// An area in use: linked objects have places in it, or refer to its bounds.
    pub(super) fn any_area(&self) -> Option<&Arc<SectionArea>> {
        let of_bounds = self.uses.iter().find_map(SectionUse::bounds_area);
        of_bounds.or_else(|| self.uses.iter().find_map(SectionUse::linked_area))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.sections.iter().for_each(|section| self.table.deregister(self.dylib, section, self.number));
    }
}
