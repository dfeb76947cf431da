//! [`Claimant`]: how an object that is being linked gets places for its parts, and the bounds that it refers to.
//!
//! It does not see the object's graph. Each call reads a section, decides, and commits the decision. If the section changed
//! meanwhile, it starts again:
//!
//! | thread that links a part | thread that links a reader |
//! |---|---|
//! | 1. take the own place, if there is one | |
//! | 2. read the objects without a place, and the version | 1. read all objects, and the version |
//! | 3. at this version: no own place, and no object refers to the bounds, else refuse the part | 2. choose the area in use, or make one |
//! | 4. allocate an area, and give places in it | 3. refuse the bounds if a part is outside |
//! | 5. commit the own part in the area: it is in use now | 4. commit the bounds |
//!
//! One commit comes first, and the other thread then sees another version. So no part has its place outside bounds that are
//! given out, and two areas in use have no object in common. No lock is held while memory is allocated or an object is read.
//!
//! Model: `loom_tests/loom_section_bounds.rs`.

use rustc_hash::FxHashMap;

use crate::base::Name;
use crate::error::{Error, ErrorKind, LinkFault, Result};
use crate::layer::section_area::{AreaRange, Member, PartSize, SectionArea};
use crate::layer::section_table::{PartChange, Registration, Snapshot};
use crate::layer::section_use::{Bounds, ObjectParts, Part, SectionUse};
use crate::link::{LARGE_SECTION_MIN, PartKind};
use crate::memory::{MemoryManager, Place};
use crate::session::MaterializationResponsibility;
use crate::sync::{Arc, seeded_bug};

/// An object that is being linked.
pub(super) struct LinkingObject<'a> {
    pub(super) responsibility: &'a MaterializationResponsibility,
    /// The symbol that the object claims so that others can depend on it. `None` without parts.
    pub(super) anchor: Option<&'a Name>,
    pub(super) memory: &'a dyn MemoryManager,
    /// As [`SegmentPlan::group`](crate::memory::SegmentPlan::group).
    pub(super) group: u64,
}

/// The sections of one link.
pub(super) struct Claimant<'a> {
    object: &'a LinkingObject<'a>,
    registration: Box<Registration>,
    /// Whether the object itself may need memory below 2 GiB.
    low: bool,
    /// Reads the parts of another object that is not linked yet. `None` if it cannot be read.
    read_parts: &'a dyn Fn(&SectionUse) -> Option<ObjectParts>,
    /// What was read, by number.
    other_parts: FxHashMap<u64, Option<ObjectParts>>,
    dependencies: Vec<PartDependency>,
}

/// What a link has to do with the sections of other objects.
pub(super) struct SectionLink {
    pub(super) registration: Box<Registration>,
    /// The objects whose parts are in the bounds that the object refers to.
    pub(super) dependencies: Vec<PartDependency>,
}

/// An object whose part is in bounds that another object refers to.
pub(super) struct PartDependency {
    pub(super) anchor: Name,
    object: Arc<str>,
    section: Arc<str>,
}

impl SectionLink {
    /// The error of a lookup by the object `own`. Nobody knows the names of anchors, so an error about nothing else is explained.
    #[cold]
    pub(super) fn explain(&self, own: &Arc<str>, error: Error) -> Error {
        let ErrorKind::SymbolsNotFound { symbols, .. } = error.kind() else { return error };
        let parts: FxHashMap<&str, &PartDependency> =
            self.dependencies.iter().map(|part| (part.anchor.as_str(), part)).collect();
        let missing: Option<Vec<_>> = symbols.iter().map(|name| parts.get(&**name)).collect();
        match missing.as_deref() {
            Some([PartDependency { object, section, .. }, ..]) => across(own, section, own, object, REMOVED_MEANWHILE),
            _ => error,
        }
    }
}

/// The outcome of an attempt to make an area.
enum MadeArea {
    /// At this version of the section.
    Made(u64, Arc<SectionArea>),
    /// The section has changed: look again.
    Changed,
    /// No part can be in an area.
    None,
}

impl<'a> Claimant<'a> {
    pub(super) fn new(
        object: &'a LinkingObject<'a>,
        registration: Box<Registration>,
        low: bool,
        read_parts: &'a dyn Fn(&SectionUse) -> Option<ObjectParts>,
    ) -> Claimant<'a> {
        let (other_parts, dependencies) = (FxHashMap::default(), Vec::new());
        Claimant { object, registration, low, read_parts, other_parts, dependencies }
    }

    pub(super) fn into_link(self) -> SectionLink {
        SectionLink { registration: self.registration, dependencies: self.dependencies }
    }

    /// The sections that the object uses so far.
    pub(super) fn sections(&self) -> Vec<Box<str>> {
        self.registration.sections().to_vec()
    }

    /// Registers that the object has lost a section with its groups.
    ///
    /// # Errors
    /// If it has a place already.
    pub(super) fn withdraw(&mut self, section: &str) -> Result<()> {
        loop {
            let (version, _, has_place) = self.registration.own(section);
            if has_place {
                return Err(self.changed(section));
            }
            let lost = self.own_use(Part::Missing, Bounds::Unused);
            if self.registration.commit(section, version, lost) {
                return Ok(());
            }
        }
    }

    /// The place of the object's part of a section. `None` if the part stays in the object's own memory.
    ///
    /// # Errors
    /// [`LinkFault::BoundsAcrossObjects`]; an error of the memory manager.
    pub(super) fn place(&mut self, section: &str, own: PartSize) -> Result<Option<Place>> {
        loop {
            if let Some(area) = self.registration.enter(section) {
                return self.take_place(section, own, &area).map(Some);
            }
            let waiting = self.waiting(section);
            let reader = self.registration.reader(section);
            let (version, _, has_place) = self.registration.own(section);
            if version != waiting.version || has_place && !seeded_bug!("place_given_after_the_first_look") {
                continue;
            }
            if let Some(reader) = reader {
                let own = &self.object.responsibility.unit_name;
                return Err(across(own, section, &reader.object, own, CAME_LATER));
            }
            if matches!(self.make_area(section, &waiting, Some(own))?, MadeArea::None) {
                let own = self.own_use(Part::Linked(None), Bounds::Unused);
                if self.registration.commit(section, waiting.version, own) {
                    return Ok(None);
                }
            }
        }
    }

    fn take_place(&self, section: &str, own: PartSize, area: &SectionArea) -> Result<Place> {
        let reserved = area.member(self.number()).map(|member| member.part);
        let place = if reserved == Some(own) { area.take_place(self.number()) } else { None };
        place.ok_or_else(|| self.changed(section))
    }

    /// The bounds of a section that the object refers to. `None` if they are those of its own part, or if no object has a part.
    ///
    /// # Errors
    /// [`LinkFault::BoundsAcrossObjects`]; an error of the memory manager.
    pub(super) fn bounds(&mut self, section: &str) -> Result<Option<AreaRange>> {
        if let Some(range) = self.bounds_of_peer(section) {
            return Ok(Some(range));
        }
        let mut made: Option<(u64, Arc<SectionArea>, Snapshot)> = None;
        loop {
            let mut snapshot = self.snapshot(section);
            let own_area = snapshot.own(self.number()).and_then(SectionUse::linked_area);
            let area = own_area.or(snapshot.any_area()).cloned();
            let made_area = || {
                let (_, area, waiting) = made.as_ref().filter(|(version, ..)| *version == snapshot.version)?;
                // An object that was added after the area was made comes after the bounds.
                snapshot.uses.retain(|used| used.number == self.number() || waiting.own(used.number).is_some());
                Some(area.clone())
            };
            if let Some(area) = area.or_else(made_area) {
                match self.bounds_of(section, &snapshot, &area)? {
                    Some(range) => return Ok(Some(range)),
                    None => continue,
                }
            }
            if self.has_own_bounds(section, &snapshot)? {
                if self.set_bounds(section, &snapshot, Bounds::Own) {
                    return Ok(None);
                }
                continue;
            }
            let waiting = self.waiting(section);
            if waiting.version != snapshot.version {
                continue;
            }
            match self.make_area(section, &waiting, None)? {
                MadeArea::Made(version, area) => made = Some((version, area, waiting)),
                MadeArea::Changed => {}
                MadeArea::None => {
                    let part = snapshot.others(self.number()).find(|used| used.has_part());
                    return Err(self.apart(section, part));
                }
            }
        }
    }

    /// The bounds of an area, which this object refers to from now on. `None` if the section changed after the snapshot.
    fn bounds_of(&mut self, section: &str, snapshot: &Snapshot, area: &Arc<SectionArea>) -> Result<Option<AreaRange>> {
        if let Some(outside) = snapshot.uses.iter().find(|used| used.has_part() && !used.is_in(area)) {
            return Err(self.apart(section, Some(outside)));
        }
        let is_present = |number| snapshot.own(number).is_some_and(|used| used.is_in(area));
        let bounds = area.bounds(|member| is_present(member.number));
        let (range, members) = bounds.map_err(|missing| self.refuse(section, &missing.object, REMOVED))?;
        if !self.set_bounds(section, snapshot, Bounds::OfArea(area.clone(), range)) {
            return Ok(None);
        }
        let (own, section) = (self.number(), Arc::from(section));
        let dependency = |member: &Member| {
            let (object, section) = (member.object.clone(), Arc::clone(&section));
            Some(PartDependency { anchor: member.anchor.clone()?, object, section })
        };
        let others = members.iter().filter(|member| member.number != own);
        self.dependencies.extend(others.filter_map(dependency));
        Ok(Some(range))
    }

    fn number(&self) -> u64 {
        self.registration.number
    }

    fn own_use(&self, part: Part, bounds: Bounds) -> SectionUse {
        let LinkingObject { responsibility, anchor, .. } = self.object;
        SectionUse {
            number: self.number(),
            object: responsibility.unit_name.clone(),
            tracker: responsibility.watch_tracker(),
            anchor: anchor.cloned(),
            part,
            bounds,
        }
    }

    /// The bounds as another object with a part refers to them, if there is one. It depends on all other objects already, so that
    /// this object depends on it only.
    fn bounds_of_peer(&mut self, section: &str) -> Option<AreaRange> {
        let (version, own, _) = self.registration.own(section);
        // After the version was read: if the peer comes later, nothing is committed.
        let peer = self.registration.peer(section)?;
        let (Bounds::OfArea(area, range), Some(anchor)) = (&peer.bounds, &peer.anchor) else { return None };
        let own = self.own_use(own.map_or(Part::Missing, |own| own.part), peer.bounds.clone());
        if own.has_part() && !own.is_in(area) || !self.registration.commit(section, version, own) {
            return None;
        }
        let (anchor, object, section) = (anchor.clone(), peer.object.clone(), Arc::from(section));
        self.dependencies.push(PartDependency { anchor, object, section });
        Some(*range)
    }

    /// The uses of a section by objects that count.
    fn snapshot(&self, section: &str) -> Snapshot {
        self.counted(self.registration.snapshot(section))
    }

    /// The objects without a place in an area in use, as [`Registration::waiting`].
    fn waiting(&self, section: &str) -> Snapshot {
        self.counted(self.registration.waiting(section))
    }

    /// Leaves out objects whose addition is not complete on another thread, because nothing can depend on their anchors yet.
    /// They come after this object.
    fn counted(&self, mut snapshot: Snapshot) -> Snapshot {
        let dylib = self.object.responsibility.dylib_handle();
        let is_defined = |used: &SectionUse| {
            used.anchor.as_ref().is_some_and(|anchor| dylib.is_defined_by(anchor.as_str(), &used.object))
        };
        let own = self.number();
        if !seeded_bug!("objects_counted_before_they_are_defined") {
            snapshot.uses.retain(|used| used.number == own || !used.is_unlinked() || is_defined(used));
        }
        snapshot
    }

    /// Whether the bounds are those of the object's own part, or a lookup decides, because no object has a part. False if no
    /// object with a part is linked.
    fn has_own_bounds(&self, section: &str, snapshot: &Snapshot) -> Result<bool> {
        let mut others = snapshot.others(self.number()).filter(|used| used.has_part());
        let Some(first) = others.next() else { return Ok(true) };
        if snapshot.own(self.number()).is_some_and(SectionUse::has_part) {
            return Err(self.apart(section, Some(first)));
        }
        match [first].into_iter().chain(others).find(|used| used.is_linked()) {
            Some(linked) => Err(self.apart(section, Some(linked))),
            None => Ok(false),
        }
    }

    /// Registers the bounds that the object refers to. Returns false if the section changed after the snapshot.
    fn set_bounds(&mut self, section: &str, snapshot: &Snapshot, bounds: Bounds) -> bool {
        let part = snapshot.own(self.number()).map_or(Part::Missing, |own| own.part.clone());
        let own = self.own_use(part, bounds);
        self.registration.commit(section, snapshot.version, own)
    }

    /// Makes an area for the parts of the objects that are `waiting`, and the part of this object.
    fn make_area(&mut self, section: &str, waiting: &Snapshot, own: Option<PartSize>) -> Result<MadeArea> {
        let (mut members, mut lost, mut kind) = (Vec::new(), Vec::new(), own.map(|own| own.kind));
        let mut low = self.low;
        for used in &waiting.uses {
            // An object that cannot be read gets no place. Its link will say why.
            let Some((parts, needs_low)) = self.parts_of(used) else { continue };
            let Ok(position) = parts.binary_search_by(|part| (*part.section).cmp(section)) else {
                lost.push((used.number, PartChange::Lost));
                continue;
            };
            let part = PartSize::of(&parts[position]);
            let joined = kind.map_or(part.kind, |kind: PartKind| kind.beside(part.kind));
            if joined.pool().is_some() {
                kind = Some(joined);
                low |= needs_low;
                members.push(Member::new(used.number, used.object.clone(), used.anchor.clone(), part));
            }
        }
        let Some(version) = self.registration.commit_parts(section, waiting.version, &lost) else {
            return Ok(MadeArea::Changed);
        };
        if members.is_empty() && own.is_none_or(|own| own.kind.pool().is_none() || own.size >= LARGE_SECTION_MIN) {
            return Ok(if lost.is_empty() { MadeArea::None } else { MadeArea::Changed });
        }
        let numbers: Vec<u64> = members.iter().map(|member| member.number).collect();
        let LinkingObject { responsibility, anchor, memory, group } = self.object;
        let own = own.map(|own| Member::new(self.number(), responsibility.unit_name.clone(), anchor.cloned(), own));
        let has_own = own.is_some();
        members.extend(own);
        let Some(area) = SectionArea::allocate(members, *memory, *group, low)? else { return Ok(MadeArea::None) };
        let place = |number| (number, PartChange::Placed(Arc::downgrade(&area)));
        let places: Vec<_> = numbers.into_iter().map(place).collect();
        // If the section changes meanwhile, the area is freed.
        let Some(version) = self.registration.commit_parts(section, version, &places) else {
            return Ok(MadeArea::Changed);
        };
        if has_own {
            let own = self.own_use(Part::Linked(Some(area.clone())), Bounds::Unused);
            if !self.registration.commit(section, version, own) {
                return Ok(MadeArea::Changed);
            }
        }
        Ok(MadeArea::Made(version, area))
    }

    /// The parts of an object that is added and not linked. `None` if it cannot be read.
    fn parts_of(&mut self, used: &SectionUse) -> Option<&ObjectParts> {
        self.other_parts.entry(used.number).or_insert_with(|| (self.read_parts)(used)).as_ref()
    }

    /// The error that the bounds would not enclose the part of another object.
    #[cold]
    fn apart(&self, section: &str, outside: Option<&SectionUse>) -> Error {
        let own_name = &self.object.responsibility.unit_name;
        match outside {
            Some(used) => {
                self.refuse(section, &used.object, if used.is_linked() { LINKED_BEFORE } else { ADDED_LATER })
            }
            None => self.refuse(section, own_name, LINKED_BEFORE),
        }
    }

    /// The error that the bounds that this object refers to would not enclose the part of the object `defining`.
    #[cold]
    fn refuse(&self, section: &str, defining: &Arc<str>, problem: &'static str) -> Error {
        let own_name = &self.object.responsibility.unit_name;
        across(own_name, section, own_name, defining, problem)
    }

    /// The error for a part that is not as it was when its place was made.
    #[cold]
    fn changed(&self, section: &str) -> Error {
        let what = "section whose groups were replaced after the sections of all objects were placed".to_string();
        let fault = LinkFault::Unsupported { what, section: section.to_string(), offset: 0, symbol: String::new() };
        ErrorKind::Link { object: self.object.responsibility.unit_name.to_string(), fault }.into()
    }
}

/// The error of `object`. The bounds that `requesting` refers to would not enclose the part of `defining`.
#[cold]
pub(super) fn across(
    object: &Arc<str>,
    section: &str,
    requesting: &Arc<str>,
    defining: &Arc<str>,
    problem: &'static str,
) -> Error {
    let (section, requesting, defining) = (section.to_string(), requesting.to_string(), defining.to_string());
    let fault = LinkFault::BoundsAcrossObjects { section, requesting, defining, problem };
    ErrorKind::Link { object: object.to_string(), fault }.into()
}

pub(super) const CAME_LATER: &str = "it came after the bounds were given out";
const LINKED_BEFORE: &str = "it was linked before the others were added, or its section is of another kind (code, thread-local, \
                             zero-fill), or the memory manager has no `Finalized::write`";
const ADDED_LATER: &str = "the others were linked before it was added, or its section is of another kind (code, thread-local, \
                           zero-fill), or the memory manager has no `Finalized::write`";
const REMOVED_MEANWHILE: &str = "it was removed while the other object was linked";
const REMOVED: &str = "it was removed, and its place lies between the others";
