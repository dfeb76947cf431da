//! [`StaticLibraries`]: a generator that adds members of archives when a lookup needs their definitions.
//!
//! The rules are those of lld for archives between `--start-group` and `--end-group`:
//!
//! | name | is the member added? |
//! |---|---|
//! | required, and not defined by the dylib | yes: the member of the first archive that lists the name |
//! | referred to by a weak undefined symbol only | no; but it gets the definition of a member that is added for another name |
//! | defined by the dylib, also if weak or common | no |
//!
//! Everything that an added member requires is added with it, depth first, before anything is linked. So a strong definition
//! comes in time to override a weak one, a weak undefined symbol gets what it would get in a program, and all initialisers are
//! known. A name that a member requires is searched in the dylib and in these archives at that time. It is searched in other
//! generators and dylibs only when the member is linked.
//!
//! One thread adds members at a time, so each member is added once. Other threads that need a member wait. A member whose
//! tracker was removed, or that failed to link, is added again when it is needed again, unless the caller says that it should
//! not be.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::ReentrantLock;
use crate::error::Result;
use crate::layer::ObjectLinkingLayer;
use crate::link::{Archive, ArchiveMember, ArchiveSet, Listing, MemberId, required_names};
use crate::session::{DefinitionGenerator, JitDylib, ResourceTracker, SymbolRequest, SymbolWatch};
use crate::sync::{Arc, Mutex};

/// Supplies definitions out of archives (ORC: `StaticLibraryDefinitionGenerator`, for any number of libraries at once).
///
/// [`Jit::static_libraries`](crate::Jit::static_libraries) has the generator of a dylib. The example makes one for archives that
/// the program opens itself.
///
/// ```
/// # const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/libadd.a");
/// use std::path::Path;
/// use std::sync::Arc;
///
/// use jittison::Jit;
/// use jittison::link::{Archive, FileBytes, OpenFile};
/// use jittison::platform::StaticLibraries;
///
/// # fn main() -> Result<(), jittison::Error> {
/// let open: Arc<OpenFile> = Arc::new(|path: &Path| FileBytes::open(path));
/// let archive = Archive::open(Path::new(LIBRARY), open)?;
///
/// let jit = Jit::new()?;
/// let libraries = StaticLibraries::new(jit.layer());
/// libraries.add(vec![archive])?;
/// jit.main_dylib().add_generator(libraries);
///
/// // The lookup misses `add`. The generator adds the member that defines it.
/// // SAFETY: `add` has this signature, and the members of the library may run.
/// let add = unsafe { jit.lookup::<extern "C" fn(i32, i32) -> i32>("add")? };
/// assert_eq!(add.call(2, 3), 5);
/// # Ok(()) }
/// ```
pub struct StaticLibraries {
    layer: Arc<ObjectLinkingLayer>,
    state: Mutex<LibrariesState>,
    /// Held by the thread that adds members. That thread may lock it again, because adding can call generators again.
    adding: ReentrantLock,
}

struct LibrariesState {
    /// Copied on a change while a reader has it.
    archives: Arc<ArchiveSet>,
    tracker: Option<ResourceTracker>,
    /// Members that were added, by dylib. The watch of one of its definitions says whether a member is still there.
    added: FxHashMap<(u64, MemberId), Option<SymbolWatch>>,
    /// Size of `added` at which members that are gone are removed from it.
    sweep_at: usize,
    /// Whether members that are gone are added again.
    adds_again: bool,
    /// Names for which no member is added.
    excluded: FxHashSet<Box<str>>,
    /// Short names that are in use, so that each member has a different name in errors.
    names: FxHashMap<String, MemberId>,
}

impl StaticLibraries {
    /// A generator without archives. It adds members under the default tracker of the dylib that needs them.
    pub fn new(layer: &Arc<ObjectLinkingLayer>) -> Arc<StaticLibraries> {
        let state = LibrariesState {
            archives: Arc::default(),
            tracker: None,
            added: FxHashMap::default(),
            sweep_at: 1024,
            adds_again: true,
            excluded: FxHashSet::default(),
            names: FxHashMap::default(),
        };
        Arc::new(StaticLibraries { layer: layer.clone(), state: Mutex::new(state), adding: ReentrantLock::new() })
    }

    /// Sets the tracker for members that are added from now on. It is used while it is live, and for its own dylib. Otherwise
    /// members go to the default tracker of the dylib. Members that are removed are added again when they are needed again.
    pub fn set_tracker(&self, tracker: &ResourceTracker) {
        let old = self.state.lock().tracker.replace(tracker.clone());
        // Outside the lock, because the last handle of a tracker transfers its resources when it is dropped.
        drop(old);
    }

    /// Adds archives after the existing ones. If several archives list a name, the first one supplies it. This links nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Archive`](crate::ErrorKind::Archive): a symbol table is damaged. Then no archive is added.
    pub fn add(&self, archives: Vec<Archive>) -> Result<()> {
        Arc::make_mut(&mut self.state.lock().archives).add(archives)
    }

    /// Takes the archives of `other`, unless this generator has some.
    #[cfg(feature = "executor")]
    pub(crate) fn share_archives(&self, other: &StaticLibraries) {
        let archives = other.current_archives();
        let mut state = self.state.lock();
        if state.archives.is_empty() {
            state.archives = archives;
        }
    }

    /// Sets whether members that were removed, or that failed to link, are added again when they are needed again. At first they
    /// are. If they are not, each member fails at most once, and what needs it gets the cause of that.
    #[cfg(feature = "unstable")]
    pub fn set_adds_again(&self, adds_again: bool) {
        self.state.lock().adds_again = adds_again;
    }

    /// Names for which no member is added from now on.
    #[cfg(feature = "unstable")]
    pub fn exclude<'a>(&self, names: impl IntoIterator<Item = &'a String>) {
        self.state.lock().excluded.extend(names.into_iter().map(|name| Box::from(name.as_str())));
    }

    fn is_excluded(&self, name: &str) -> bool {
        self.state.lock().excluded.contains(name)
    }

    /// Records that the caller has added the member that defines `name` to `dylib`.
    #[cfg(feature = "unstable")]
    pub fn note_added(&self, dylib: &JitDylib, name: &str) {
        if let Some(listing) = self.current_archives().find(name) {
            self.insert_added(dylib, listing.member(), dylib.watch(name));
        }
    }

    /// The current archives.
    #[cfg(feature = "unstable")]
    pub fn archives(&self) -> Arc<ArchiveSet> {
        self.current_archives()
    }

    fn current_archives(&self) -> Arc<ArchiveSet> {
        self.state.lock().archives.clone()
    }

    /// Whether a member was added to a dylib and is still there, or need not be.
    fn is_added(&self, dylib: &JitDylib, member: MemberId) -> bool {
        let watch = {
            let state = self.state.lock();
            match state.added.get(&(dylib.id(), member)) {
                None => return false,
                Some(_) if !state.adds_again => return true,
                Some(watch) => watch.clone(),
            }
        };
        // Outside the lock, because the watch locks the dylib. Without a watch (the member does not define what its archive
        // lists) the member counts as added.
        watch.is_none_or(|watch| !watch.is_gone())
    }

    /// Records that a member was added. Sometimes removes the records of members that are gone.
    fn insert_added(&self, dylib: &JitDylib, member: MemberId, watch: Option<SymbolWatch>) {
        let mut state = self.state.lock();
        state.added.insert((dylib.id(), member), watch);
        if state.added.len() < state.sweep_at || !state.adds_again {
            return;
        }
        // Checked outside the lock, because the watches lock the dylib.
        let all = std::mem::take(&mut state.added);
        drop(state);
        let is_present = |watch: &Option<SymbolWatch>| watch.as_ref().is_none_or(|watch| !watch.is_gone());
        let present: FxHashMap<_, _> = all.into_iter().filter(|(_, watch)| is_present(watch)).collect();
        let mut state = self.state.lock();
        state.sweep_at = 2 * present.len().max(512);
        state.added.extend(present);
    }

    fn tracker_for(&self, dylib: &JitDylib) -> Result<ResourceTracker> {
        let chosen = self.state.lock().tracker.clone();
        match chosen.filter(|tracker| !tracker.is_defunct() && tracker.dylib() == *dylib) {
            Some(tracker) => Ok(tracker),
            None => dylib.default_tracker(),
        }
    }

    /// The member's short name. The full name if another member has the short one.
    fn name_of(&self, id: MemberId, member: &ArchiveMember) -> String {
        let name = member.name();
        let mut state = self.state.lock();
        if *state.names.entry(name.clone()).or_insert(id) == id { name } else { member.full_name() }
    }
}

impl DefinitionGenerator for StaticLibraries {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        let archives = self.current_archives();
        let required = missing.iter().filter(|request| request.required);
        let listed: Vec<Listing> = required.filter_map(|request| archives.find(request.name)).collect();
        if listed.is_empty() {
            return Ok(());
        }
        let _guard = self.adding.lock();
        let tracker = self.tracker_for(dylib)?;
        let addition = Addition { libraries: self, archives, dylib, tracker, added: FxHashSet::default() };
        addition.run(listed)
    }
}

impl fmt::Debug for StaticLibraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "static libraries: {:?}", self.current_archives())
    }
}

/// One run of the generator: adds the members that a lookup needs, and those that they require.
struct Addition<'a> {
    libraries: &'a StaticLibraries,
    archives: Arc<ArchiveSet>,
    dylib: &'a JitDylib,
    tracker: ResourceTracker,
    added: FxHashSet<MemberId>,
}

impl Addition<'_> {
    fn run(mut self, mut wanted: Vec<Listing>) -> Result<()> {
        // A stack: the requirements of a member are processed before the names after it, as in lld.
        wanted.reverse();
        while let Some(listing) = wanted.pop() {
            if self.is_needed(&listing) {
                let old_len = wanted.len();
                self.add(&listing, &mut wanted)?;
                wanted[old_len..].reverse();
            }
        }
        Ok(())
    }

    fn is_needed(&self, listing: &Listing) -> bool {
        let is_missing = |name: &str| self.dylib.symbol_flags(name).is_none() && !self.libraries.is_excluded(name);
        !self.added.contains(&listing.member())
            && self.archives.name(listing).is_some_and(is_missing)
            && !self.libraries.is_added(self.dylib, listing.member())
    }

    /// Adds the member that defines a name, and pushes what it requires to `wanted`.
    fn add(&mut self, listing: &Listing, wanted: &mut Vec<Listing>) -> Result<()> {
        let id = listing.member();
        let member = self.archives.member(id)?;
        let name = self.libraries.name_of(id, &member);
        let required = required_names(&name, &member.bytes)?;
        self.libraries.layer.add(&self.tracker, &name, member.bytes.clone())?;
        let own = self.archives.name(listing).and_then(|name| self.dylib.watch(name));
        self.libraries.insert_added(self.dylib, id, own);
        self.added.insert(id);
        let layer = &self.libraries.layer;
        let listed = required.into_iter().filter_map(|name| self.archives.find(layer.name_of_reference(name)));
        wanted.extend(listed.filter(|listing| !self.added.contains(&listing.member())));
        Ok(())
    }
}

/// Adds every member of an archive under a tracker, in order, as `--whole-archive` does. Returns the number of members.
///
/// # Errors
/// A member cannot be read, is no object that can be linked, or defines a name that is already defined. Then all members that
/// were added before it are removed.
pub fn add_whole_archive(
    layer: &Arc<ObjectLinkingLayer>,
    tracker: &ResourceTracker,
    archive: &Archive,
) -> Result<usize> {
    let own = tracker.dylib().create_tracker()?;
    let added = add_members(layer, &own, archive).and_then(|count| own.transfer_and_report(tracker).map(|()| count));
    if added.is_err() {
        // No code of these members has run, so the removal has nothing to report.
        let _ = own.remove();
    }
    added
}

fn add_members(layer: &Arc<ObjectLinkingLayer>, tracker: &ResourceTracker, archive: &Archive) -> Result<usize> {
    let mut names = FxHashSet::default();
    let offsets = archive.member_offsets()?;
    for offset in &offsets {
        let member = archive.member(*offset)?;
        let short = member.name();
        let name = if names.insert(short.clone()) { short } else { member.full_name() };
        layer.add(tracker, &name, member.bytes)?;
    }
    Ok(offsets.len())
}
