//! [`SectionTable`]: which objects of each dylib have parts of a section whose bounds can be requested, and which objects request
//! the bounds.
//!
//! Only the few objects with such sections are registered. An object counts until its tracker is removed. A thread reads a
//! [`Snapshot`] of a section, decides without a lock, and [`commit`](SectionTable::commit)s its decision if the section did not
//! change meanwhile.

use rustc_hash::FxHashMap;

use crate::base::Name;
use crate::layer::section_area::{AreaRange, SectionArea};
use crate::link::ObjectBuffer;
use crate::session::{JitDylib, TrackerWatch};
use crate::sync::{Arc, Mutex, Weak};

/// The section uses of all dylibs of a session.
pub(super) struct SectionTable {
    /// A leaf lock: no other lock is taken under it, and nothing of the embedder is dropped under it.
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next_number: u64,
    /// By dylib and name.
    sections: FxHashMap<(u64, Box<str>), Section>,
}

#[derive(Default)]
struct Section {
    /// Changes with every change of the section. No two sections of one name have the same version.
    version: u64,
    uses: Vec<SectionUse>,
}

/// How one object uses one section.
#[derive(Clone)]
pub(super) struct SectionUse {
    /// Number of the registration. A later object has a higher number.
    pub(super) number: u64,
    pub(super) object: Arc<str>,
    pub(super) tracker: TrackerWatch,
    /// The symbol by which other objects depend on this one. Every object with a part has one.
    pub(super) anchor: Option<Name>,
    pub(super) part: Part,
    pub(super) bounds: Bounds,
}

/// The part that an object has of a section.
#[derive(Clone)]
pub(super) enum Part {
    /// It has none, or lost it with its section groups.
    Missing,
    /// The object is added and not linked. It may have a place in an area that other objects keep.
    Unlinked(ObjectBuffer, Weak<SectionArea>),
    /// The object is linked, or is being linked. Without an area, the part is in the object's own memory.
    Linked(Option<Arc<SectionArea>>),
}

/// The bounds that a linked object refers to.
#[derive(Clone)]
pub(super) enum Bounds {
    /// It refers to none.
    Unused,
    /// Those of its own part. If it has none, a lookup decides.
    Own,
    /// Those of an area, and where they are.
    OfArea(Arc<SectionArea>, AreaRange),
}

/// The uses of one section at one time.
pub(super) struct Snapshot {
    pub(super) version: u64,
    /// The uses of objects whose trackers are live.
    pub(super) uses: Vec<SectionUse>,
}

/// The registered section uses of one object. Dropping it deregisters them.
pub(super) struct Registration {
    table: Arc<SectionTable>,
    dylib: u64,
    pub(super) number: u64,
    sections: Vec<Box<str>>,
}

impl SectionTable {
    pub(super) fn new() -> Arc<SectionTable> {
        Arc::new(SectionTable { table: Mutex::new(Table::default()) })
    }

    /// A registration without uses.
    pub(super) fn register(self: &Arc<Self>, dylib: &JitDylib) -> Box<Registration> {
        let mut table = self.table.lock();
        let number = table.next_number;
        table.next_number += 1;
        Box::new(Registration { table: self.clone(), dylib: dylib.id(), number, sections: Vec::new() })
    }

    fn snapshot(&self, dylib: u64, section: &str) -> Snapshot {
        let table = self.table.lock();
        let section = table.sections.get(&(dylib, Box::from(section)));
        section.map_or(Snapshot { version: 0, uses: Vec::new() }, |section| Snapshot {
            version: section.version,
            uses: section.uses.clone(),
        })
    }

    /// Applies `edit` to the uses of a section, and returns what it returns. `None`, without a change, if the section changed
    /// after the version. `edit` returns what it replaces, because that is dropped without the lock.
    fn commit<R>(
        &self,
        dylib: u64,
        section: &str,
        version: u64,
        edit: impl FnOnce(&mut Vec<SectionUse>) -> R,
    ) -> Option<R> {
        let mut table = self.table.lock();
        let table = &mut *table;
        let key = (dylib, Box::from(section));
        if table.sections.get(&key).map_or(0, |current| current.version) != version {
            return None;
        }
        let current = table.sections.entry(key).or_default();
        // The numbers never repeat, so neither do the versions of a section that was removed and added again.
        table.next_number += 1;
        current.version = table.next_number;
        Some(edit(&mut current.uses))
    }

    fn deregister(&self, dylib: u64, section: &str, number: u64) {
        let removed: Vec<SectionUse> = {
            let mut table = self.table.lock();
            let table = &mut *table;
            let key = (dylib, Box::from(section));
            let Some(current) = table.sections.get_mut(&key) else { return };
            let removed = current.uses.extract_if(.., |used| used.number == number).collect();
            table.next_number += 1;
            current.version = table.next_number;
            if current.uses.is_empty() {
                table.sections.remove(&key);
            }
            removed
        };
        drop(removed);
    }
}

/// Steps that read the other uses and copy none of them: a dylib may have very many objects with the same section.
impl Registration {
    /// Adds the use of a section by an object that is added, unless another object refers to the bounds.
    pub(super) fn append(&mut self, section: &str, own: &SectionUse) -> bool {
        let mut table = self.table.table.lock();
        let table = &mut *table;
        let current = table.sections.entry((self.dylib, Box::from(section))).or_default();
        if current.uses.iter().any(SectionUse::requests_bounds) {
            return false;
        }
        table.next_number += 1;
        current.version = table.next_number;
        current.uses.push(own.clone());
        self.sections.push(Box::from(section));
        true
    }

    /// Marks the object as linked if it has a place in an area in use. Returns the area.
    pub(super) fn enter(&self, section: &str) -> Option<Arc<SectionArea>> {
        let (area, entered) = {
            let mut table = self.table.table.lock();
            let table = &mut *table;
            let current = table.sections.get_mut(&(self.dylib, Box::from(section)))?;
            let position = current.uses.iter().position(|used| used.number == self.number)?;
            let area = areas(&current.uses).find(|area| current.uses[position].is_in(area))?.clone();
            let entered = std::mem::replace(&mut current.uses[position].part, Part::Linked(Some(area.clone())));
            table.next_number += 1;
            current.version = table.next_number;
            (area, entered)
        };
        // The bytes of the object may be the embedder's. They are dropped here, without the lock.
        drop(entered);
        Some(area)
    }

    /// The version of the section, the part of this object, and an object with a part that refers to the bounds that this
    /// object would see.
    pub(super) fn peer(&self, section: &str) -> Option<(u64, Part, SectionUse)> {
        let table = self.table.table.lock();
        let current = table.sections.get(&(self.dylib, Box::from(section)))?;
        let own = current.uses.iter().find(|used| used.number == self.number);
        let is_peer = |used: &&SectionUse| {
            used.number != self.number
                && used
                    .bounds_area()
                    .is_some_and(|area| used.is_in(area) && own.is_none_or(|own| !own.has_part() || own.is_in(area)))
        };
        let peer = current.uses.iter().find(is_peer)?.clone();
        Some((current.version, own.map_or(Part::Missing, |own| own.part.clone()), peer))
    }
}

impl Registration {
    /// The uses of a section in this dylib, at one time.
    pub(super) fn snapshot(&self, section: &str) -> Snapshot {
        loop {
            let snapshot = self.table.snapshot(self.dylib, section);
            // Without the lock of the table, because this takes locks of trackers.
            let dead: Vec<u64> =
                snapshot.uses.iter().filter(|used| !used.tracker.is_live()).map(|used| used.number).collect();
            if dead.is_empty() {
                return snapshot;
            }
            // The trackers were removed, and only pins keep their memory. Their objects are no longer part of the dylib.
            dead.into_iter().for_each(|number| self.table.deregister(self.dylib, section, number));
        }
    }

    /// Sets the use of the section by this object, and the parts of other objects. Returns false, without a change, if the
    /// section changed after the version.
    pub(super) fn commit(
        &mut self,
        section: &str,
        version: u64,
        own: Option<SectionUse>,
        mut parts: Vec<(u64, Part)>,
    ) -> bool {
        let committed = self.table.commit(self.dylib, section, version, |uses| {
            for (number, part) in &mut parts {
                if let Some(used) = uses.iter_mut().find(|used| used.number == *number) {
                    std::mem::swap(&mut used.part, part);
                }
            }
            let Some(mut own) = own else { return (false, None) };
            match uses.iter_mut().find(|used| used.number == own.number) {
                Some(used) => {
                    std::mem::swap(used, &mut own);
                    (false, Some(own))
                }
                None => {
                    uses.push(own);
                    (true, None)
                }
            }
        });
        // `parts` and the replaced use are dropped here, without the lock.
        let Some((is_new, _replaced)) = committed else { return false };
        if is_new {
            self.sections.push(Box::from(section));
        }
        true
    }

    /// The sections that the object uses.
    pub(super) fn sections(&self) -> &[Box<str>] {
        &self.sections
    }
}

impl SectionUse {
    pub(super) fn has_part(&self) -> bool {
        !matches!(self.part, Part::Missing)
    }

    pub(super) fn is_linked(&self) -> bool {
        matches!(self.part, Part::Linked(_))
    }

    /// Whether the object has a place in this area.
    pub(super) fn is_in(&self, area: &Arc<SectionArea>) -> bool {
        match &self.part {
            Part::Unlinked(_, other) => other.as_ptr() == Arc::as_ptr(area),
            Part::Linked(other) => other.as_ref().is_some_and(|other| Arc::ptr_eq(area, other)),
            Part::Missing => false,
        }
    }

    /// The area that keeps the part of a linked object.
    fn linked_area(&self) -> Option<&Arc<SectionArea>> {
        match &self.part {
            Part::Linked(area) => area.as_ref(),
            Part::Unlinked(..) | Part::Missing => None,
        }
    }

    pub(super) fn requests_bounds(&self) -> bool {
        !matches!(self.bounds, Bounds::Unused)
    }

    /// The area whose bounds the object refers to.
    pub(super) fn bounds_area(&self) -> Option<&Arc<SectionArea>> {
        match &self.bounds {
            Bounds::OfArea(area, _) => Some(area),
            Bounds::Unused | Bounds::Own => None,
        }
    }
}

impl Snapshot {
    /// The use by the object with this number.
    pub(super) fn own(&self, number: u64) -> Option<&SectionUse> {
        self.uses.iter().find(|used| used.number == number)
    }

    /// The uses by other objects.
    pub(super) fn others(&self, number: u64) -> impl Iterator<Item = &SectionUse> {
        self.uses.iter().filter(move |used| used.number != number)
    }

    /// The areas in use: linked objects have places in them, or refer to their bounds.
    pub(super) fn areas(&self) -> impl Iterator<Item = &Arc<SectionArea>> {
        areas(&self.uses)
    }

    /// The area in use in which an object has a place.
    pub(super) fn area_of(&self, used: &SectionUse) -> Option<&Arc<SectionArea>> {
        self.areas().find(|area| used.is_in(area))
    }
}

fn areas(uses: &[SectionUse]) -> impl Iterator<Item = &Arc<SectionArea>> {
    let of_bounds = uses.iter().filter_map(SectionUse::bounds_area);
    of_bounds.chain(uses.iter().filter_map(SectionUse::linked_area))
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.sections.iter().for_each(|section| self.table.deregister(self.dylib, section, self.number));
    }
}
