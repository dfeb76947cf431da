//! [`SectionBounds`]: `__start_X` and `__stop_X` over all objects of a dylib.
//!
//! A native linker joins the sections `X` of all objects, in the order of its command line, and the bounds enclose all of them.
//! Here objects are linked one by one, when they are needed. So the parts of a section get their places together, before the
//! first of them has bytes:
//!
//! | the object that is linked | its part | the bounds that it refers to |
//! |---|---|---|
//! | the first that has a part or refers to the bounds | the parts of all objects that are added get places in one area (`section_area.rs`) | those of the area |
//! | has a place in an area that a linked object uses | in its place | those of the area |
//! | was added later | gets a place in another area | refused: [`LinkFault::BoundsAcrossObjects`] |
//!
//! The object that requests the bounds depends on every object in them, by a symbol that each such object claims (its
//! *anchor*). So all parts have their bytes when its code runs, and stay as long as it does. The objects with parts do not
//! depend on each other.
//!
//! An object that comes after the bounds were given out is refused. The place of an object that is removed stays empty; bounds
//! that would enclose it are refused. An area that no linked object uses is freed, and made again for the next one.
//!
//! Some parts stay in the memory of their object (`src/link/bounds.rs`), and bounds never enclose another part beside them: code
//! and thread-local variables; zero-fill beside bytes, which linkers treat differently; a part that is alone and so large that it
//! may be outside the window. A part of a section group counts if the object's copy of the group counts when the area is made.
//!
//! Each dylib is a module of its own, like a shared object, and its objects see only its own sections.

use rustc_hash::FxHashMap;

use crate::base::Name;
use crate::error::{Error, ErrorKind, LinkFault, Result};
use crate::layer::section_area::{Member, PartSize, SectionArea};
use crate::layer::section_table::{PartChange, Registration, SectionTable, Snapshot};
use crate::layer::section_use::{Bounds, Part, SectionUse};
use crate::link::{
    LARGE_SECTION_MIN, LinkGraph, NamedSection, ObjectBuffer, PartKind, ReadLink, SectionPart, bind_bounds,
    claimed_name, place_part, section_parts,
};
use crate::memory::MemoryManager;
use crate::session::{JitDylib, MaterializationResponsibility, TrackerWatch};
use crate::sync::{Arc, Weak};

/// The section bounds of all dylibs of a session.
pub(super) struct SectionBounds {
    table: Arc<SectionTable>,
}

/// An object that is added.
pub(super) struct AddedObject<'a> {
    pub(super) dylib: &'a JitDylib,
    pub(super) tracker: TrackerWatch,
    pub(super) name: &'a Arc<str>,
    pub(super) bytes: &'a ObjectBuffer,
    pub(super) anchor: &'a Name,
}

/// An object that is being linked.
pub(super) struct LinkingObject<'a> {
    pub(super) responsibility: &'a MaterializationResponsibility,
    /// The symbol that the object claims so that others can depend on it. `None` without parts.
    pub(super) anchor: Option<&'a Name>,
    pub(super) memory: &'a dyn MemoryManager,
    /// As [`SegmentPlan::group`](crate::memory::SegmentPlan::group).
    pub(super) group: u64,
}

/// What a link has to do with the sections of other objects.
pub(super) struct SectionLink {
    pub(super) registration: Box<Registration>,
    /// The anchors of the objects whose parts are in the bounds that the object refers to.
    pub(super) dependencies: Vec<Name>,
}

impl SectionBounds {
    pub(super) fn new() -> SectionBounds {
        SectionBounds { table: SectionTable::new() }
    }

    /// Registers the sections of an object that is added.
    ///
    /// # Errors
    /// [`LinkFault::BoundsAcrossObjects`], if another object has the bounds of one of them already.
    pub(super) fn add(&self, object: &AddedObject<'_>, sections: Vec<NamedSection>) -> Result<Box<Registration>> {
        let mut registration = self.table.register(object.dylib);
        let own = SectionUse {
            number: registration.number,
            object: object.name.clone(),
            tracker: object.tracker.clone(),
            anchor: Some(object.anchor.clone()),
            part: Part::Unlinked(object.bytes.clone(), Weak::new()),
            bounds: Bounds::Unused,
        };
        for NamedSection { name, is_certain } in sections {
            while !registration.append(&name, &own) {
                let Some(reader) = registration.reader(&name) else { continue };
                if is_certain {
                    return Err(across(object.name, &name, &reader.object, object.name, CAME_LATER));
                }
                // The link decides, when it knows the groups that count.
                registration.append_late(&name, &own);
                break;
            }
        }
        Ok(registration)
    }

    /// Places the parts of an object that is being linked, and binds the bounds that it refers to. `added` is the registration
    /// of its addition.
    ///
    /// # Errors
    /// [`LinkFault::BoundsAcrossObjects`]; an error of the memory manager.
    pub(super) fn link(
        &self,
        graph: &mut LinkGraph,
        object: &LinkingObject<'_>,
        added: Option<Box<Registration>>,
    ) -> Result<Option<Box<SectionLink>>> {
        let parts = section_parts(graph);
        if parts.is_empty() && graph.requested_bounds.is_empty() && added.is_none() {
            return Ok(None);
        }
        let registration = added.unwrap_or_else(|| self.table.register(object.responsibility.dylib_handle()));
        let link = SectionLink { registration, dependencies: Vec::new() };
        let mut placer = Placer { graph, object, link, other_parts: FxHashMap::default() };
        placer.withdraw_lost(&parts)?;
        parts.iter().try_for_each(|part| placer.place(part))?;
        (0..placer.graph.requested_bounds.len()).try_for_each(|number| placer.bind(number))?;
        Ok(Some(Box::new(placer.link)))
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

/// The sections of one link.
struct Placer<'a> {
    graph: &'a mut LinkGraph,
    object: &'a LinkingObject<'a>,
    link: SectionLink,
    /// The parts of other objects that are not linked yet, by number, and whether they may need memory below 2 GiB.
    other_parts: FxHashMap<u64, Option<(Vec<SectionPart>, bool)>>,
}

impl Placer<'_> {
    fn number(&self) -> u64 {
        self.link.registration.number
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

    /// Registers that the object has lost sections with their groups.
    fn withdraw_lost(&mut self, parts: &[SectionPart]) -> Result<()> {
        for section in self.link.registration.sections().to_vec() {
            // The parts are sorted by name. There may be very many, so this is a binary search.
            if parts.binary_search_by(|part| part.section.cmp(&section)).is_ok() {
                continue;
            }
            loop {
                let (version, _, has_place) = self.link.registration.own(&section);
                if has_place {
                    return Err(self.changed(&section));
                }
                let lost = self.own_use(Part::Missing, Bounds::Unused);
                if self.link.registration.commit(&section, version, lost) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Places a part of the object.
    fn place(&mut self, part: &SectionPart) -> Result<()> {
        loop {
            if let Some(area) = self.link.registration.enter(&part.section) {
                return self.enter(part, &area);
            }
            let waiting = self.waiting(&part.section);
            // After `waiting` was read: if a later object requests the bounds, nothing is committed.
            if let Some(holder) = self.link.registration.reader(&part.section) {
                let own = &self.object.responsibility.unit_name;
                return Err(across(own, &part.section, &holder.object, own, CAME_LATER));
            }
            if matches!(self.make_area(&part.section, &waiting, Some(part))?, MadeArea::None) {
                let own = self.own_use(Part::Linked(None), Bounds::Unused);
                if self.link.registration.commit(&part.section, waiting.version, own) {
                    return Ok(());
                }
            }
        }
    }

    /// Moves a part of the object to its place.
    fn enter(&mut self, part: &SectionPart, area: &SectionArea) -> Result<()> {
        let reserved = area.member(self.number()).map(|member| member.part);
        let place = if reserved == Some(PartSize::of(part)) { area.take_place(self.number()) } else { None };
        let Some(place) = place else { return Err(self.changed(&part.section)) };
        place_part(self.graph, part, place);
        Ok(())
    }

    /// Binds the bounds that the object refers to, at position `number`.
    fn bind(&mut self, number: usize) -> Result<()> {
        let requested = &self.graph.requested_bounds[number];
        let section = requested.section.clone();
        if !requested.has_own() && self.is_defined(&section) {
            return Ok(());
        }
        if self.bind_as_peer(number, &section) {
            return Ok(());
        }
        let mut made = None;
        loop {
            let snapshot = self.snapshot(&section);
            let is_current = |(version, _): &&(u64, Arc<SectionArea>)| *version == snapshot.version;
            let made_area = made.as_ref().filter(is_current).map(|(_, area)| area);
            let own_area = snapshot.own(self.number()).and_then(SectionUse::linked_area);
            let Some(area) = own_area.or(snapshot.any_area()).or(made_area) else {
                if self.has_own_bounds(&section, &snapshot)? {
                    if self.set_bounds(&section, &snapshot, Bounds::Own) {
                        return Ok(());
                    }
                    continue;
                }
                match self.make_area(&section, &self.waiting(&section), None)? {
                    MadeArea::Made(version, area) => made = Some((version, area)),
                    MadeArea::Changed => {}
                    MadeArea::None => {
                        let part = snapshot.others(self.number()).find(|used| used.has_part());
                        return Err(self.apart(&section, part));
                    }
                }
                continue;
            };
            if let Some(outside) = snapshot.uses.iter().find(|used| used.has_part() && !used.is_in(area)) {
                return Err(self.apart(&section, Some(outside)));
            }
            let is_present = |number| snapshot.own(number).is_some_and(|used| used.is_in(area));
            let bounds = area.bounds(|member| is_present(member.number));
            let (range, members) = bounds.map_err(|missing| self.refuse(&section, &missing.object, REMOVED))?;
            if self.set_bounds(&section, &snapshot, Bounds::OfArea(area.clone(), range)) {
                bind_bounds(self.graph, number, range.start, range.stop);
                let own = self.number();
                let others = members.iter().filter(|member| member.number != own);
                self.link.dependencies.extend(others.filter_map(|member| member.anchor.clone()));
                return Ok(());
            }
        }
    }

    /// Binds the bounds as another object with a part has bound them, if there is one. It depends on all other objects already,
    /// so that this object depends on it only.
    fn bind_as_peer(&mut self, number: usize, section: &str) -> bool {
        let (version, own, _) = self.link.registration.own(section);
        // After the version was read: if the peer comes later, nothing is committed.
        let Some(peer) = self.link.registration.peer(section) else { return false };
        let (Bounds::OfArea(area, range), Some(anchor)) = (&peer.bounds, &peer.anchor) else { return false };
        let part = own.map_or(Part::Missing, |own| own.part);
        let own = self.own_use(part, peer.bounds.clone());
        if own.has_part() && !own.is_in(area) || !self.link.registration.commit(section, version, own) {
            return false;
        }
        bind_bounds(self.graph, number, range.start, range.stop);
        self.link.dependencies.push(anchor.clone());
        true
    }

    /// The uses of a section by objects that count.
    fn snapshot(&self, section: &str) -> Snapshot {
        self.counted(self.link.registration.snapshot(section))
    }

    /// The objects without a place in an area in use, as [`Registration::waiting`].
    fn waiting(&self, section: &str) -> Snapshot {
        self.counted(self.link.registration.waiting(section))
    }

    /// Leaves out objects whose addition is not complete on another thread, because nothing can depend on their anchors yet.
    /// They come after this object.
    fn counted(&self, mut snapshot: Snapshot) -> Snapshot {
        let dylib = self.object.responsibility.dylib_handle();
        let is_defined = |used: &SectionUse| {
            used.anchor.as_ref().is_some_and(|anchor| dylib.is_defined_by(anchor.as_str(), &used.object))
        };
        let own = self.number();
        snapshot.uses.retain(|used| used.number == own || !used.is_unlinked() || is_defined(used));
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

    /// Whether the dylib defines the bounds of a section itself.
    fn is_defined(&self, section: &str) -> bool {
        let dylib = self.object.responsibility.dylib_handle();
        ["__start_", "__stop_"].iter().any(|bound| dylib.symbol_flags(&format!("{bound}{section}")).is_some())
    }

    /// Registers the bounds that the object refers to. Returns false if the section changed after the snapshot.
    fn set_bounds(&mut self, section: &str, snapshot: &Snapshot, bounds: Bounds) -> bool {
        let part = snapshot.own(self.number()).map_or(Part::Missing, |own| own.part.clone());
        let own = self.own_use(part, bounds);
        self.link.registration.commit(section, snapshot.version, own)
    }

    /// Makes an area for the parts of the objects that are `waiting`, and the part of this object.
    fn make_area(&mut self, section: &str, waiting: &Snapshot, own: Option<&SectionPart>) -> Result<MadeArea> {
        let own = own.map(PartSize::of);
        let (mut members, mut lost, mut kind) = (Vec::new(), Vec::new(), own.map(|own| own.kind));
        let mut low = self.graph.may_need_low_memory();
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
        let Some(version) = self.link.registration.commit_parts(section, waiting.version, &lost) else {
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
        let area = SectionArea::allocate(members, *memory, *group, low)?;
        let place = |number| (number, PartChange::Placed(Arc::downgrade(&area)));
        let places: Vec<_> = numbers.into_iter().map(place).collect();
        // If the section changes meanwhile, the area is freed.
        let Some(version) = self.link.registration.commit_parts(section, version, &places) else {
            return Ok(MadeArea::Changed);
        };
        if has_own {
            let own = self.own_use(Part::Linked(Some(area.clone())), Bounds::Unused);
            if !self.link.registration.commit(section, version, own) {
                return Ok(MadeArea::Changed);
            }
        }
        Ok(MadeArea::Made(version, area))
    }

    /// The parts of an object that is added and not linked. `None` if it cannot be read.
    fn parts_of(&mut self, used: &SectionUse) -> Option<&(Vec<SectionPart>, bool)> {
        let Part::Unlinked(bytes, _) = &used.part else { return None };
        let dylib = self.object.responsibility.dylib_handle();
        let read = || {
            let read = ReadLink::read(used.object.clone(), bytes.clone(), None).ok()?;
            let is_owned = |graph: &LinkGraph, symbol| dylib.is_defined_by(&claimed_name(graph, symbol), &used.object);
            read.section_parts(&is_owned).ok()
        };
        self.other_parts.entry(used.number).or_insert_with(read).as_ref()
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
        let section = section.to_string();
        self.graph.fault(LinkFault::Unsupported { what, section, offset: 0, symbol: String::new() })
    }
}

/// The error of `object`. The bounds that `requesting` refers to would not enclose the part of `defining`.
#[cold]
fn across(
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

const CAME_LATER: &str = "it came after the bounds were given out";
const LINKED_BEFORE: &str =
    "it was linked before the others were added, or its section is of another kind (code, thread-local, zero-fill)";
const ADDED_LATER: &str =
    "the others were linked before it was added, or its section is of another kind (code, thread-local, zero-fill)";
const REMOVED: &str = "it was removed, and its place lies between the others";
