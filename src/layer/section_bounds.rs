//! [`SectionBounds`]: which objects of a dylib bring sections that may be asked for their bounds, and which ask for them.
//!
//! `__start_X` and `__stop_X` mean the sections `X` of the object that asks (`src/link/bounds.rs`). A native linker answers for
//! all objects of a program. Both answers are the same as long as one object has `X`. Otherwise the later object is refused:
//!
//! | the dylib has | then comes | refused |
//! |---|---|---|
//! | an object that brings `X`, linked or not | the link of an object that asks for the bounds of `X` | the link |
//! | a linked object that asks for the bounds of `X` | an object that brings `X` | its addition, or its link |
//!
//! Sections of section groups count from the link on, since another object's group may stand for them. Objects of other dylibs
//! are other modules, as shared objects are: each sees its own sections. An object counts until its tracker is removed.
//! Few objects have such sections, and no others are noted here.

use rustc_hash::FxHashMap;

use crate::error::{Error, ErrorKind, LinkFault, Result};
use crate::link::{LinkGraph, named_sections};
use crate::session::{JitDylib, MaterializationResponsibility, TrackerWatch};
use crate::sync::{Arc, Mutex};

/// Those of all dylibs of a session.
pub(super) struct SectionBounds {
    /// A leaf lock.
    noted: Mutex<Noted>,
}

#[derive(Default)]
struct Noted {
    next_number: u64,
    /// By dylib and section.
    objects: FxHashMap<(u64, Box<str>), Vec<Entry>>,
}

/// What one object has to do with one section.
#[derive(Clone)]
struct Entry {
    /// Of the registration.
    number: u64,
    object: Arc<str>,
    tracker: TrackerWatch,
    /// Whether it has such a section.
    brings: bool,
    /// Whether it asks for the bounds.
    asks: bool,
}

/// What one object has to do with sections; forgotten when dropped.
pub(super) struct Registration {
    bounds: Arc<SectionBounds>,
    dylib: u64,
    number: u64,
    sections: Vec<Box<str>>,
}

/// A section with what an object has to do with it: whether it brings it, and whether it asks for its bounds.
type Use = (Box<str>, bool, bool);

impl SectionBounds {
    pub(super) fn new() -> Arc<SectionBounds> {
        Arc::new(SectionBounds { noted: Mutex::new(Noted::default()) })
    }

    /// Notes the sections of an object that is added.
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
        self.note(dylib, tracker, object, uses)
    }

    /// Notes what an object that is being linked has to do with sections, in place of what is known since it was added.
    ///
    /// # Errors
    /// [`LinkFault::BoundsAcrossObjects`].
    pub(super) fn link(
        self: &Arc<Self>,
        graph: &LinkGraph,
        responsibility: &MaterializationResponsibility,
        added: Option<Box<Registration>>,
    ) -> Result<Option<Box<Registration>>> {
        if !graph.has_named_sections && graph.asked_bounds.is_empty() {
            return Ok(None);
        }
        drop(added);
        let dylib = responsibility.dylib_handle();
        let is_defined = |section: &str| {
            ["__start_", "__stop_"].iter().any(|bound| dylib.symbol_flags(&format!("{bound}{section}")).is_some())
        };
        let mut uses: Vec<Use> = named_sections(graph).into_iter().map(|section| (section, true, false)).collect();
        // Sorted by name; there may be very many.
        let own_count = uses.len();
        for asked in &graph.asked_bounds {
            match uses[..own_count].binary_search_by(|(section, ..)| section.cmp(&asked.section)) {
                Ok(at) => uses[at].2 = true,
                // Somebody defined the symbols themselves: they mean that.
                Err(_) if !asked.has_own && is_defined(&asked.section) => {}
                Err(_) => uses.push((asked.section.clone(), false, true)),
            }
        }
        self.note(dylib, responsibility.watch_tracker(), &responsibility.unit_name, uses)
    }

    fn note(
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
            let mut noted = self.noted.lock();
            let others = uses.iter().filter_map(|found| Some((found, noted.objects.get(&key(&found.0))?)));
            let mut conflicts = others.flat_map(|(found, entries)| entries.iter().map(move |entry| (found, entry)));
            let conflict = conflicts.find(|((_, brings, asks), entry)| *brings && entry.asks || *asks && entry.brings);
            let Some(((section, brings, _), entry)) = conflict else {
                let number = noted.next_number;
                noted.next_number += 1;
                for (section, brings, asks) in &uses {
                    let (object, tracker) = (object.clone(), tracker.clone());
                    let entry = Entry { number, object, tracker, brings: *brings, asks: *asks };
                    noted.objects.entry(key(section)).or_default().push(entry);
                }
                let sections = uses.into_iter().map(|(section, ..)| section).collect();
                let registration = Registration { bounds: self.clone(), dylib: dylib.id(), number, sections };
                return Ok(Some(Box::new(registration)));
            };
            let (section, brings, entry) = (section.clone(), *brings && entry.asks, entry.clone());
            drop(noted);
            // Asked outside the lock: it is the tracker's own.
            if entry.tracker.is_live() {
                return Err(refused(object, &section, brings, &entry.object));
            }
            // Removed, and held by somebody who runs it: it is no part of the dylib any more.
            self.noted.lock().forget(dylib.id(), &section, entry.number);
        }
    }
}

/// `object` is the later of the two.
#[cold]
fn refused(object: &Arc<str>, section: &str, brings: bool, other: &Arc<str>) -> Error {
    let (bringing, asking) = if brings { (object, other) } else { (other, object) };
    let fault = LinkFault::BoundsAcrossObjects {
        section: section.to_string(),
        asking: asking.to_string(),
        bringing: bringing.to_string(),
    };
    ErrorKind::Link { object: object.to_string(), fault }.into()
}

impl Noted {
    fn forget(&mut self, dylib: u64, section: &str, number: u64) {
        let key = (dylib, Box::from(section));
        let Some(entries) = self.objects.get_mut(&key) else { return };
        entries.retain(|entry| entry.number != number);
        if entries.is_empty() {
            self.objects.remove(&key);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut noted = self.bounds.noted.lock();
        self.sections.iter().for_each(|section| noted.forget(self.dylib, section, self.number));
    }
}
