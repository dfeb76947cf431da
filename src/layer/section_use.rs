//! [`SectionUse`]: how one object uses a section whose bounds can be requested: its part of the section, and the bounds that it
//! refers to.

use crate::base::Name;
use crate::layer::section_area::{AreaRange, SectionArea};
use crate::link::{ObjectBuffer, SectionPart};
use crate::session::TrackerWatch;
use crate::sync::{Arc, Weak};

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
    Unlinked(UnlinkedInput, Weak<SectionArea>),
    /// The object is linked, or is being linked. Without an area, the part is in the object's own memory.
    Linked(Option<Arc<SectionArea>>),
}

/// What tells the parts of an object that is added and not linked.
#[derive(Clone)]
pub(super) enum UnlinkedInput {
    Object(ObjectBuffer),
    /// The parts of the graph of a generator, with all its groups.
    Graph(Arc<ObjectParts>),
}

/// The parts of an object, sorted by name, and whether the object may need memory below 2 GiB.
pub(super) type ObjectParts = (Vec<SectionPart>, bool);

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

impl SectionUse {
    pub(super) fn has_part(&self) -> bool {
        !matches!(self.part, Part::Missing)
    }

    pub(super) fn is_unlinked(&self) -> bool {
        matches!(self.part, Part::Unlinked(..))
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
    pub(super) fn linked_area(&self) -> Option<&Arc<SectionArea>> {
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

    /// The areas that this use keeps.
    pub(super) fn kept_areas(&self) -> impl Iterator<Item = &Arc<SectionArea>> {
        self.bounds_area().into_iter().chain(self.linked_area())
    }
}
