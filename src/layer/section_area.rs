//! [`SectionArea`]: the memory for the parts that several objects have of one section, next to each other.
//!
//! ```text
//!   start                                                stop
//!     ├ part of a.o ┬ padding ┬ part of b.o ┬ part of c.o ┤      in the order in which the objects were added
//! ```
//!
//! The set of objects never changes. Each takes its place when it is linked. A part whose object is gone before it was linked
//! stays zero: bounds never enclose it.

use std::ops::Range;

use crate::base::{ExecutorAddr, Name, align_up, sort_by_number};
use crate::error::{MemoryFault, Result};
use crate::link::{PartKind, SectionPart};
use crate::memory::{Area, AreaRequest, MemoryManager, Place};
use crate::sync::{Arc, Mutex};

/// The parts of one section.
pub(super) struct SectionArea {
    /// Sorted by number.
    members: Vec<Member>,
    area: Arc<Area>,
    /// By member: the place, until its link takes it.
    places: Mutex<Vec<Option<Place>>>,
}

/// One object with a part.
pub(super) struct Member {
    /// Number of the registration.
    pub(super) number: u64,
    pub(super) object: Arc<str>,
    pub(super) anchor: Option<Name>,
    pub(super) part: PartSize,
    /// Offset from the start of the area in bytes.
    offset: u64,
}

/// The memory that a part needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct PartSize {
    pub(super) size: u64,
    pub(super) align: u64,
    pub(super) kind: PartKind,
}

impl PartSize {
    pub(super) fn of(part: &SectionPart) -> PartSize {
        PartSize { size: part.size, align: part.align, kind: part.kind }
    }
}

impl Member {
    pub(super) fn new(number: u64, object: Arc<str>, anchor: Option<Name>, part: PartSize) -> Member {
        Member { number, object, anchor, part, offset: 0 }
    }
}

impl SectionArea {
    /// Allocates an area for these members. Their parts are of kinds that can be next to each other. `None` if the memory
    /// manager cannot write memory that is finalized.
    ///
    /// # Errors
    /// As [`Area::allocate`].
    pub(super) fn allocate(
        mut members: Vec<Member>,
        memory: &dyn MemoryManager,
        group: u64,
        low: bool,
    ) -> Result<Option<Arc<SectionArea>>> {
        sort_by_number(&mut members, |member| member.number.into());
        let (mut size, mut align, mut kind) = (0, 1, None);
        for Member { part, offset, .. } in &mut members {
            let end = align_up(size, part.align).and_then(|start| {
                *offset = start;
                start.checked_add(part.size)
            });
            size = end.ok_or_else(|| too_large(part))?;
            align = part.align.max(align);
            kind = Some(kind.map_or(part.kind, |kind: PartKind| kind.beside(part.kind)));
        }
        let pool = kind.and_then(PartKind::pool);
        let pool = pool.ok_or(MemoryFault::BadPlan { pool: "section", size, align, problem: "it has no kind" })?;
        let ranges: Vec<Range<u64>> = members.iter().map(Member::range).collect();
        let request = AreaRequest { pool, size, align, group, low };
        let Some((area, places)) = Area::allocate(memory, request, &ranges)? else { return Ok(None) };
        let places = Mutex::new(places.into_iter().map(Some).collect());
        Ok(Some(Arc::new(SectionArea { members, area, places })))
    }

    /// The member with this number.
    pub(super) fn member(&self, number: u64) -> Option<&Member> {
        Some(&self.members[self.position(number)?])
    }

    /// Takes the place of the member with this number.
    pub(super) fn take_place(&self, number: u64) -> Option<Place> {
        let position = self.position(number)?;
        self.places.lock()[position].take()
    }

    /// The bounds of the parts for which `is_present` returns true, and the members with these parts.
    ///
    /// # Errors
    /// The member that is not present, although its part is between two that are.
    pub(super) fn bounds(
        &self,
        is_present: impl Fn(&Member) -> bool,
    ) -> std::result::Result<(AreaRange, &[Member]), &Member> {
        let first = self.members.iter().position(&is_present).unwrap_or(0);
        let end = self.members.iter().rposition(&is_present).map_or(first, |last| last + 1);
        let members = &self.members[first..end];
        if let Some(missing) = members.iter().find(|member| !is_present(member)) {
            return Err(missing);
        }
        let address = |offset| self.area.address().offset(offset);
        let start = members.first().map_or(0, |member| member.offset);
        let stop = members.last().map_or(start, |member| member.range().end);
        Ok((AreaRange { start: address(start), stop: address(stop) }, members))
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.members.binary_search_by_key(&number, |member| member.number).ok()
    }
}

/// The addresses of the bounds of adjacent parts.
#[derive(Clone, Copy)]
pub(super) struct AreaRange {
    pub(super) start: ExecutorAddr,
    pub(super) stop: ExecutorAddr,
}

impl Member {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.part.size
    }
}

#[cold]
fn too_large(part: &PartSize) -> MemoryFault {
    let problem = "the parts of all objects add up to more than the address space";
    MemoryFault::BadPlan { pool: "section", size: part.size, align: part.align, problem }
}
