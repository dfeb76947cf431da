//! [`SectionBounds`]: which objects of a dylib have sections whose bounds can be requested, and which objects request bounds.
//!
//! `__start_X` and `__stop_X` are the bounds of the sections `X` of the object that refers to them (`src/link/bounds.rs`). With
//! a native linker they are the bounds over all objects of the program. Both are the same as long as only one object has `X`.
//! Otherwise the later object is refused:
//!
//! | the dylib has | then comes | refused |
//! |---|---|---|
//! | an object that has `X`, linked or not | the link of an object that requests the bounds of `X` | the link |
//! | a linked object that requests the bounds of `X` | an object that has `X` | its addition or its link |
//!
//! A section of a section group counts from the link on, because the group of another object may replace it. Each dylib is a
//! module of its own, like a shared object, and its objects see only their own sections. An object counts until its tracker is
//! removed. Only the few objects with such sections are registered.
//!
//! Objects that have a section and objects that request its bounds are in two tables, by registration. So a registration looks
//! at one object of the other table, however many have the same section.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::base::count_step;
use crate::error::{Error, ErrorKind, LinkFault, Result};
use crate::link::{LinkGraph, named_sections};
use crate::session::{JitDylib, MaterializationResponsibility, TrackerWatch};
use crate::sync::{Arc, Mutex};

/// The section uses of all dylibs of a session.
pub(super) struct SectionBounds {
    /// A leaf lock: no other lock is taken under it.
    table: Mutex<BoundsTable>,
}

#[derive(Default)]
struct BoundsTable {
    next_number: u64,
    /// Objects by dylib and section.
    objects: FxHashMap<(u64, Box<str>), SectionUses>,
}

/// The objects of a dylib that use one section, by the number of their registration.
#[derive(Default)]
struct SectionUses {
    defining: BTreeMap<u64, SectionUse>,
    requesting: BTreeMap<u64, SectionUse>,
}

/// How one object uses one section.
#[derive(Clone)]
struct SectionUse {
    object: Arc<str>,
    tracker: TrackerWatch,
}

/// The registered section uses of one object. Dropping it deregisters them.
pub(super) struct Registration {
    bounds: Arc<SectionBounds>,
    dylib: u64,
    number: u64,
    sections: Vec<Box<str>>,
}

/// A section, whether an object has it, and whether the object requests its bounds.
type Use = (Box<str>, bool, bool);

impl SectionBounds {
    pub(super) fn new() -> Arc<SectionBounds> {
        Arc::new(SectionBounds { table: Mutex::new(BoundsTable::default()) })
    }

    /// Registers the sections of an object that is added.
    ///
    /// # Errors
    /// [`LinkFault::BoundsAcrossObjects`].
    pub(super) fn add(
        self: &Arc<Self>,
        dylib: &JitDylib,
        tracker: TrackerWatch,
        object: &Arc<str>,
        sections: Vec<Box<str>>,
    ) -> Result<Option<Box<Registration>>> {
        let uses = sections.into_iter().map(|section| (section, true, false)).collect();
        self.register(dylib, tracker, object, uses)
    }

    /// Registers the section uses of an object that is being linked. They replace the registration `added` of its addition.
    ///
    /// # Errors
    /// [`LinkFault::BoundsAcrossObjects`].
    pub(super) fn link(
        self: &Arc<Self>,
        graph: &LinkGraph,
        responsibility: &MaterializationResponsibility,
        added: Option<Box<Registration>>,
    ) -> Result<Option<Box<Registration>>> {
        if !graph.has_named_sections && graph.requested_bounds.is_empty() {
            return Ok(None);
        }
        drop(added);
        let dylib = responsibility.dylib_handle();
        let is_defined = |section: &str| {
            ["__start_", "__stop_"].iter().any(|bound| dylib.symbol_flags(&format!("{bound}{section}")).is_some())
        };
        let mut uses: Vec<Use> = named_sections(graph).into_iter().map(|section| (section, true, false)).collect();
        // The sections are sorted by name. There may be very many, so this is a binary search.
        let own_count = uses.len();
        for requested in &graph.requested_bounds {
            match uses[..own_count].binary_search_by(|(section, ..)| section.cmp(&requested.section)) {
                Ok(at) => uses[at].2 = true,
                // The dylib defines the symbols itself, and the object refers to these definitions.
                Err(_) if !requested.has_own && is_defined(&requested.section) => {}
                Err(_) => uses.push((requested.section.clone(), false, true)),
            }
        }
        self.register(dylib, responsibility.watch_tracker(), &responsibility.unit_name, uses)
    }

    /// Registers an object, unless it conflicts with a live object of the dylib.
    fn register(
        self: &Arc<Self>,
        dylib: &JitDylib,
        tracker: TrackerWatch,
        object: &Arc<str>,
        uses: Vec<Use>,
    ) -> Result<Option<Box<Registration>>> {
        if uses.is_empty() {
            return Ok(None);
        }
        let key = |section: &str| (dylib.id(), Box::from(section));
        loop {
            let mut table = self.table.lock();
            let conflict = uses.iter().find_map(|(section, has_section, requests_bounds)| {
                let conflict = table.objects.get(&key(section))?.conflict(*has_section, *requests_bounds)?;
                Some((section, conflict))
            });
            let Some((section, Conflict { number, entry, later_has_section })) = conflict else {
                let number = table.next_number;
                table.next_number += 1;
                for (section, has_section, requests_bounds) in &uses {
                    let entry = SectionUse { object: object.clone(), tracker: tracker.clone() };
                    table.objects.entry(key(section)).or_default().add(number, &entry, *has_section, *requests_bounds);
                }
                let sections = uses.into_iter().map(|(section, ..)| section).collect();
                let registration = Registration { bounds: self.clone(), dylib: dylib.id(), number, sections };
                return Ok(Some(Box::new(registration)));
            };
            let section = section.clone();
            drop(table);
            // Outside the lock, because this takes the lock of the tracker.
            if entry.tracker.is_live() {
                return Err(conflict_error(object, &section, later_has_section, &entry.object));
            }
            // The tracker was removed, and only pins keep its memory. Its object is no longer part of the dylib.
            self.table.lock().deregister(dylib.id(), &section, number);
        }
    }
}

/// The error for `object`, the later of the two objects.
#[cold]
fn conflict_error(object: &Arc<str>, section: &str, later_has_section: bool, other: &Arc<str>) -> Error {
    let (defining, requesting) = if later_has_section { (object, other) } else { (other, object) };
    let fault = LinkFault::BoundsAcrossObjects {
        section: section.to_string(),
        requesting: requesting.to_string(),
        defining: defining.to_string(),
    };
    ErrorKind::Link { object: object.to_string(), fault }.into()
}

impl BoundsTable {
    fn deregister(&mut self, dylib: u64, section: &str, number: u64) {
        let key = (dylib, Box::from(section));
        let Some(uses) = self.objects.get_mut(&key) else { return };
        uses.defining.remove(&number);
        uses.requesting.remove(&number);
        if uses.defining.is_empty() && uses.requesting.is_empty() {
            self.objects.remove(&key);
        }
    }
}

/// An earlier object that a registration conflicts with.
struct Conflict {
    number: u64,
    entry: SectionUse,
    /// Whether the later object has the section, and the earlier one requests its bounds.
    later_has_section: bool,
}

impl SectionUses {
    /// The first object that an object with these uses conflicts with.
    fn conflict(&self, has_section: bool, requests_bounds: bool) -> Option<Conflict> {
        count_step();
        let requesting = has_section.then(|| self.requesting.first_key_value()).flatten();
        let defining = requests_bounds.then(|| self.defining.first_key_value()).flatten();
        let later_has_section = match (requesting, defining) {
            (Some((requesting, _)), Some((defining, _))) => requesting <= defining,
            (requesting, _) => requesting.is_some(),
        };
        let (number, entry) = if later_has_section { requesting } else { defining }?;
        Some(Conflict { number: *number, entry: entry.clone(), later_has_section })
    }

    fn add(&mut self, number: u64, entry: &SectionUse, has_section: bool, requests_bounds: bool) {
        if has_section {
            self.defining.insert(number, entry.clone());
        }
        if requests_bounds {
            self.requesting.insert(number, entry.clone());
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut table = self.bounds.table.lock();
        self.sections.iter().for_each(|section| table.deregister(self.dylib, section, self.number));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{sized, steps_of};
    use crate::session::ExecutionSession;

    #[test]
    fn an_object_is_registered_in_the_same_steps_among_any_number_of_objects_with_its_section() {
        let session = ExecutionSession::new();
        let (bounds, dylib) = (SectionBounds::new(), session.create_dylib("main").unwrap());
        let tracker = dylib.create_tracker().unwrap();
        let add = |_: usize| bounds.add(&dylib, tracker.watch(), &Arc::from("object"), vec!["table".into()]).unwrap();
        let steps = steps_of(|| {
            let registered: Vec<_> = (0..sized(1000, 50)).map(add).collect();
            assert!(registered.iter().all(Option::is_some));
        });
        // The first object finds no table.
        assert_eq!(steps, sized(1000, 50) - 1);
        assert!(bounds.table.lock().objects.is_empty(), "the registrations are dropped");
    }
}
