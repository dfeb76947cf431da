//! [`SectionModel`]: section bounds for the models in `loom_tests/`, without objects. Each object has a part of eight bytes in one
//! section.

use crate::base::{ExecutorAddr, Name, SegmentKind};
use crate::error::Result;
use crate::layer::section_area::PartSize;
use crate::layer::section_bounds::{AddedObject, SectionBounds};
use crate::layer::section_claimant::{Claimant, LinkingObject, SectionLink};
use crate::layer::section_table::Registration;
use crate::layer::section_use::{ObjectParts, SectionUse, UnlinkedInput};
use crate::link::{NamedSection, ObjectBuffer, PartKind, SectionPart};
use crate::memory::{MemoryManager, Place};
use crate::session::{MaterializationResponsibility, ResourceTracker};
use crate::sync::Arc;

/// The section of all objects.
const SECTION: &str = "sets";

/// The section bounds of a session.
pub struct SectionModel {
    bounds: SectionBounds,
    memory: Arc<dyn MemoryManager>,
}

/// An object that is added.
pub struct ModelObject(Box<Registration>);

/// An object that is linked.
pub struct ModelLink {
    /// The address of its part, or the start of the bounds.
    pub start: ExecutorAddr,
    /// The end of the bounds.
    pub stop: ExecutorAddr,
    /// The anchors of the objects in the bounds.
    pub dependencies: Vec<Name>,
    _place: Option<Place>,
    _link: SectionLink,
}

impl SectionModel {
    /// Section bounds in this memory.
    pub fn new(memory: Arc<dyn MemoryManager>) -> SectionModel {
        SectionModel { bounds: SectionBounds::new(), memory }
    }

    /// Adds an object with a part. Its unit has this name, and defines the anchor.
    ///
    /// # Errors
    /// If another object refers to the bounds.
    pub fn add(&self, tracker: &ResourceTracker, name: &Arc<str>, anchor: &Name) -> Result<ModelObject> {
        let (dylib, input) = (tracker.dylib_handle(), UnlinkedInput::Object(ObjectBuffer::default()));
        let added = AddedObject { dylib, tracker: tracker.watch(), name, input, anchor };
        let section = NamedSection { name: Box::from(SECTION), is_certain: true };
        self.bounds.add(&added, vec![section]).map(ModelObject)
    }

    /// Links an object with a part.
    ///
    /// # Errors
    /// If another object refers to the bounds.
    pub fn link_part(
        &self,
        responsibility: &MaterializationResponsibility,
        anchor: &Name,
        added: ModelObject,
    ) -> Result<ModelLink> {
        let object = self.linking(responsibility, Some(anchor));
        let mut claimant = Claimant::new(&object, added.0, false, &parts_of);
        let place = claimant.place(SECTION, PartSize::of(&part()))?;
        let start = place.as_ref().map_or(ExecutorAddr::NULL, Place::address);
        Ok(ModelLink {
            start,
            stop: start.offset(8),
            dependencies: Vec::new(),
            _place: place,
            _link: claimant.into_link(),
        })
    }

    /// Links an object without a part that refers to the bounds.
    ///
    /// # Errors
    /// If a part would be outside.
    pub fn link_reader(&self, responsibility: &MaterializationResponsibility) -> Result<ModelLink> {
        let object = self.linking(responsibility, None);
        let registration = self.bounds.register(responsibility.dylib_handle());
        let mut claimant = Claimant::new(&object, registration, false, &parts_of);
        let range = claimant.bounds(SECTION)?;
        let (start, stop) = range.map_or((ExecutorAddr::NULL, ExecutorAddr::NULL), |range| (range.start, range.stop));
        let link = claimant.into_link();
        let dependencies = link.dependencies.iter().map(|part| part.anchor.clone()).collect();
        Ok(ModelLink { start, stop, dependencies, _place: None, _link: link })
    }

    fn linking<'a>(
        &'a self,
        responsibility: &'a MaterializationResponsibility,
        anchor: Option<&'a Name>,
    ) -> LinkingObject<'a> {
        LinkingObject { responsibility, anchor, memory: &*self.memory, group: 0 }
    }
}

fn parts_of(_: &SectionUse) -> Option<ObjectParts> {
    Some((vec![part()], false))
}

fn part() -> SectionPart {
    let (section, kind) = (Box::from(SECTION), PartKind::Bytes(SegmentKind::Data));
    SectionPart { section, blocks: Vec::new(), size: 8, align: 8, kind }
}
