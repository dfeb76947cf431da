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
//! | was added later | gets a place in another area | refused: [`LinkFault::BoundsAcrossObjects`](crate::error::LinkFault::BoundsAcrossObjects) |
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
//! may be outside the window; all parts, if the memory manager cannot write memory that is finalized. A part of a section group
//! counts if the object's copy of the group counts when the area is made.
//!
//! Each dylib is a module of its own, like a shared object, and its objects see only its own sections.

use crate::base::Name;
use crate::error::Result;
use crate::layer::section_area::PartSize;
use crate::layer::section_claimant::{CAME_LATER, Claimant, LinkingObject, SectionLink, across};
use crate::layer::section_table::{Registration, SectionTable};
use crate::layer::section_use::{Bounds, ObjectParts, Part, SectionUse, UnlinkedInput};
use crate::link::{LinkGraph, NamedSection, ReadLink, bind_bounds, claimed_name, place_part, section_parts};
use crate::session::{JitDylib, TrackerWatch};
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
    pub(super) input: UnlinkedInput,
    pub(super) anchor: &'a Name,
}

impl SectionBounds {
    pub(super) fn new() -> SectionBounds {
        SectionBounds { table: SectionTable::new() }
    }

    /// A registration without sections.
    pub(super) fn register(&self, dylib: &JitDylib) -> Box<Registration> {
        self.table.register(dylib)
    }

    /// Registers the sections of an object that is added.
    ///
    /// # Errors
    /// [`LinkFault::BoundsAcrossObjects`](crate::error::LinkFault::BoundsAcrossObjects), if another object has the bounds of one of
    /// them already.
    pub(super) fn add(&self, object: &AddedObject<'_>, sections: Vec<NamedSection>) -> Result<Box<Registration>> {
        let mut registration = self.register(object.dylib);
        let own = SectionUse {
            number: registration.number,
            object: object.name.clone(),
            tracker: object.tracker.clone(),
            anchor: Some(object.anchor.clone()),
            part: Part::Unlinked(object.input.clone(), Weak::new()),
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
    /// As [`Claimant::place`] and [`Claimant::bounds`].
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
        let dylib = object.responsibility.dylib_handle();
        let registration = added.unwrap_or_else(|| self.register(dylib));
        let read_parts = |used: &SectionUse| read_parts(dylib, used);
        let mut claimant = Claimant::new(object, registration, graph.may_need_low_memory(), &read_parts);
        for section in claimant.sections() {
            // The parts are sorted by name. There may be very many, so this is a binary search.
            if parts.binary_search_by(|part| part.section.cmp(&section)).is_err() {
                claimant.withdraw(&section)?;
            }
        }
        for part in &parts {
            if let Some(place) = claimant.place(&part.section, PartSize::of(part))? {
                place_part(graph, part, place);
            }
        }
        for number in 0..graph.requested_bounds.len() {
            let requested = &graph.requested_bounds[number];
            if !requested.has_own() && is_defined(dylib, &requested.section) {
                continue;
            }
            if let Some(range) = claimant.bounds(&requested.section)? {
                bind_bounds(graph, number, range.start, range.stop);
            }
        }
        Ok(Some(Box::new(claimant.into_link())))
    }
}

/// Whether the dylib defines the bounds of a section itself.
fn is_defined(dylib: &JitDylib, section: &str) -> bool {
    ["__start_", "__stop_"].iter().any(|bound| dylib.symbol_flags(&format!("{bound}{section}")).is_some())
}

/// The parts of an object that is added and not linked. `None` if it cannot be read.
fn read_parts(dylib: &JitDylib, used: &SectionUse) -> Option<ObjectParts> {
    let Part::Unlinked(input, _) = &used.part else { return None };
    let bytes = match input {
        UnlinkedInput::Object(bytes) => bytes,
        UnlinkedInput::Graph(parts) => return Some(ObjectParts::clone(parts)),
    };
    let read = ReadLink::read(used.object.clone(), bytes.clone(), None).ok()?;
    let is_owned = |graph: &LinkGraph, symbol| dylib.is_defined_by(&claimed_name(graph, symbol), &used.object);
    read.section_parts(&is_owned).ok()
}
