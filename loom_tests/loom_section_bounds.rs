//! Model: objects with parts of one section are added, linked and removed, while an object that refers to the bounds is linked.
//!
//! Runs `src/layer/section_claimant.rs`, `src/layer/section_table.rs` and `src/layer/section_area.rs`. Every part is inside the
//! bounds that were given out, or its object is refused. The object with the bounds depends on names that exist.
//!
//! Seeded bugs: `section_changed_since_it_was_read`, `place_given_after_the_first_look`,
//! `objects_counted_before_they_are_defined`.

#![cfg(loom)]

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name, SegmentKind};
use jittison::error::Result;
use jittison::layer::{ModelLink, ModelObject, SectionModel};
use jittison::memory::*;
use jittison::session::*;
use loom::thread;
use support::*;

/// Memory that nobody writes. Each allocation has addresses of its own.
#[derive(Clone, Default)]
struct Memory(Arc<AtomicU64>);

struct Allocation {
    base: u64,
    bytes: Vec<u8>,
}

// SAFETY: nothing runs this memory, and nothing writes to its addresses. No two allocations have the same.
unsafe impl MemoryManager for Memory {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        let size = plan.segments[SegmentKind::Data.index()].size as usize;
        Ok(Box::new(Allocation { base: self.0.fetch_add(0x1000, Ordering::Relaxed) + 0x1000, bytes: vec![0; size] }))
    }

    fn can_run(&self) -> bool {
        false
    }

    fn statistics(&self) -> MemoryStatistics {
        unreachable!("no model reads the statistics")
    }
}

impl InFlight for Allocation {
    fn address(&self, _: SegmentKind) -> ExecutorAddr {
        ExecutorAddr::new(self.base)
    }

    fn working(&mut self, _: SegmentKind) -> &mut [u8] {
        &mut self.bytes
    }

    fn finalize(self: Box<Self>, _: Vec<Frame>) -> Result<Box<dyn Finalized>> {
        Ok(self)
    }
}

impl Finalized for Allocation {
    fn address(&self, _: SegmentKind) -> ExecutorAddr {
        ExecutorAddr::new(self.base)
    }

    fn usage(&self) -> MemoryUsage {
        MemoryUsage::default()
    }

    fn word(&self, _: u64) -> Option<&AtomicU64> {
        None
    }

    unsafe fn write(&self, _: SegmentKind, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

type Slot = Arc<Mutex<Option<MaterializationResponsibility>>>;

/// The unit of an object. It defines the anchor only.
struct Unit {
    name: Arc<str>,
    symbols: [(Name, SymbolFlags); 1],
    slot: Slot,
}

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        &self.name
    }

    fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        *self.slot.lock().unwrap() = Some(responsibility);
    }
}

/// A session, and its section bounds.
struct Sections {
    fixture: Fixture,
    model: SectionModel,
}

/// An object with a part that is added.
struct Part {
    tracker: ResourceTracker,
    anchor: Name,
    added: ModelObject,
    slot: Slot,
}

impl Sections {
    fn new() -> Arc<Sections> {
        Arc::new(Sections { fixture: Fixture::new(), model: SectionModel::new(Arc::new(Memory::default())) })
    }

    /// Adds an object with a part.
    fn add(&self, name: &str) -> Result<Part> {
        let tracker = self.fixture.main.create_tracker().unwrap();
        let (anchor, object, slot) = (Name::new(name), Arc::from(name), Slot::default());
        let added = self.model.add(&tracker, &object, &anchor)?;
        let symbols = [(anchor.clone(), SymbolFlags::NONE)];
        tracker.define(Unit { name: object, symbols, slot: slot.clone() })?;
        Ok(Part { tracker, anchor, added, slot })
    }

    /// Links an object that is added. The address of its part.
    fn link(&self, part: Part) -> Result<(ModelLink, MaterializationResponsibility)> {
        let Part { anchor, added, slot, .. } = part;
        let request = [SymbolRequest::required(anchor.as_str())];
        self.fixture.session.lookup_then(&self.fixture.search_order(), &request, RequiredState::Ready, drop);
        let responsibility = slot.lock().unwrap().take().unwrap();
        let link = self.model.link_part(&responsibility, &anchor, added)?;
        Ok((link, responsibility))
    }

    /// Whether the dylib defines everything that a link depends on.
    fn has_dependencies(&self, link: &ModelLink) -> bool {
        link.dependencies.iter().all(|name| self.fixture.main.symbol_flags(name.as_str()).is_some())
    }
}

fn length(link: &ModelLink) -> u64 {
    link.stop.value() - link.start.value()
}

#[test]
fn two_parts_that_are_linked_at_once() {
    // The second part comes directly after the first, whoever links first.
    explore("two_parts_that_are_linked_at_once", Some(3), 10, [8], || {
        let sections = Sections::new();
        let (one, two) = (sections.add("one").unwrap(), sections.add("two").unwrap());
        let other = thread::spawn({
            let sections = sections.clone();
            move || sections.link(one).unwrap()
        });
        let two = sections.link(two).unwrap();
        let one = other.join().unwrap();
        two.0.start.value() - one.0.start.value()
    });
}

#[test]
fn a_part_versus_the_bounds() {
    // The bounds are those of the part.
    explore("a_part_versus_the_bounds", Some(3), 10, [(0, 8)], || {
        let sections = Sections::new();
        let (_tracker, reader) = sections.fixture.materializing("reader");
        let part = sections.add("part").unwrap();
        let other = thread::spawn({
            let sections = sections.clone();
            move || sections.link(part).unwrap()
        });
        let bounds = sections.model.link_reader(&reader).unwrap();
        let part = other.join().unwrap();
        assert!(sections.has_dependencies(&bounds));
        (part.0.start.value() - bounds.start.value(), length(&bounds))
    });
}

#[test]
fn an_addition_versus_the_bounds() {
    // The new part is in the bounds, or its addition or its link is refused.
    let allowed = [(8, "refused"), (8, "refused when linked"), (16, "in the bounds")];
    explore("an_addition_versus_the_bounds", Some(2), 10, allowed, || {
        let sections = Sections::new();
        let (_tracker, reader) = sections.fixture.materializing("reader");
        let _one = sections.add("one").unwrap();
        let other = thread::spawn({
            let sections = sections.clone();
            move || sections.add("two")
        });
        let bounds = sections.model.link_reader(&reader).unwrap();
        assert!(sections.has_dependencies(&bounds), "the link would fail");
        let added = other.join().unwrap();
        let outcome = match added.map(|two| sections.link(two)) {
            Err(_) => "refused",
            Ok(Err(_)) => "refused when linked",
            Ok(Ok((part, _responsibility))) => {
                assert_eq!(part.stop, bounds.stop);
                "in the bounds"
            }
        };
        (length(&bounds), outcome)
    });
}

#[test]
fn a_removal_versus_the_bounds() {
    // The removed part is in the bounds, or it is not.
    explore("a_removal_versus_the_bounds", Some(2), 10, [8, 16], || {
        let sections = Sections::new();
        let (_tracker, reader) = sections.fixture.materializing("reader");
        let (_one, two) = (sections.add("one").unwrap(), sections.add("two").unwrap());
        let other = thread::spawn(move || drop(two.tracker.remove().unwrap()));
        let bounds = sections.model.link_reader(&reader).unwrap();
        other.join().unwrap();
        length(&bounds)
    });
}
