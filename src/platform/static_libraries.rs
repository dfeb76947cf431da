//! [`StaticLibraries`]: a generator that adds those members of archives that are needed.
//!
//! The rules are lld's, for archives that stand between `--start-group` and `--end-group`:
//!
//! | a name that | has its member added |
//! |---|---|
//! | is required, and the dylib does not define | yes: of the first archive that lists it |
//! | a weak undefined symbol asks for | no; it gets the definition of a member that is there for other reasons |
//! | the dylib defines, be it weak or common | no |
//!
//! Whatever an added member requires is added with it, depth first, before anything is linked: so a strong definition
//! comes in time for the weak one that it overrides, a weak undefined symbol sees what a program would have, and all
//! initialisers are known. What a member requires is looked for in the dylib, then in these archives, and in other
//! generators and dylibs only when it is linked.
//!
//! One thread adds at a time, so each member is added once; others that need one wait. Members whose tracker was removed, or
//! that failed to link, are added again when they are needed again.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::base::ReentrantLock;
use crate::error::Result;
use crate::layer::ObjectLinkingLayer;
use crate::link::{Archive, ArchiveMember, ArchiveSet, Listing, MemberId, required_names};
use crate::session::{DefinitionGenerator, JitDylib, ResourceTracker, SymbolRequest, SymbolWatch};
use crate::sync::{Arc, Mutex};

/// Supplies definitions out of archives (ORC: `StaticLibraryDefinitionGenerator`, for any number of libraries at once).
pub struct StaticLibraries {
    layer: Arc<ObjectLinkingLayer>,
    books: Mutex<Books>,
    /// Whoever adds members has the turn. One that is called back while it adds may do so again.
    turns: ReentrantLock,
}

struct Books {
    /// Copied when it is changed while somebody reads it.
    archives: Arc<ArchiveSet>,
    tracker: Option<ResourceTracker>,
    /// Which members were added to which dylib, each with a definition of its own that shows whether it is still there.
    added: FxHashMap<(u64, MemberId), Option<SymbolWatch>>,
    /// How many of them there may be before those that are gone are forgotten.
    sweep_at: usize,
    /// What members are called in errors, so that no two are called the same.
    names: FxHashMap<String, MemberId>,
}

impl StaticLibraries {
    /// A generator without archives. What it adds goes under the default tracker of the dylib that asks.
    pub fn new(layer: &Arc<ObjectLinkingLayer>) -> Arc<StaticLibraries> {
        let books = Books {
            archives: Arc::default(),
            tracker: None,
            added: FxHashMap::default(),
            sweep_at: 1024,
            names: FxHashMap::default(),
        };
        Arc::new(StaticLibraries { layer: layer.clone(), books: Mutex::new(books), turns: ReentrantLock::new() })
    }

    /// Puts members that are added from now on under `tracker`, as long as that is live and of the dylib that asks; under
    /// the dylib's default tracker otherwise. Members that are removed with it are added again when they are needed again.
    pub fn set_tracker(&self, tracker: &ResourceTracker) {
        let old = self.books.lock().tracker.replace(tracker.clone());
        // Outside the lock: the last handle of a tracker hands over what it owns.
        drop(old);
    }

    /// Adds archives behind those that are there: a name that an earlier one lists is that one's. Nothing of them is linked
    /// yet.
    ///
    /// # Errors
    /// [`ErrorKind::Archive`](crate::ErrorKind::Archive) when a list of symbols is damaged; none was added then.
    pub fn add(&self, archives: Vec<Archive>) -> Result<()> {
        Arc::make_mut(&mut self.books.lock().archives).add(archives)
    }

    /// The archives as they are now.
    pub fn archives(&self) -> Arc<ArchiveSet> {
        self.books.lock().archives.clone()
    }

    /// Whether a member was added to a dylib and has not left it.
    fn is_there(&self, dylib: &JitDylib, member: MemberId) -> bool {
        let watch = match self.books.lock().added.get(&(dylib.id(), member)) {
            None => return false,
            Some(watch) => watch.clone(),
        };
        // Outside the lock: it asks the dylib. A member that does not define what its archive says shows nothing.
        watch.is_none_or(|watch| !watch.is_gone())
    }

    fn note_added(&self, dylib: &JitDylib, member: MemberId, watch: Option<SymbolWatch>) {
        let mut books = self.books.lock();
        books.added.insert((dylib.id(), member), watch);
        if books.added.len() < books.sweep_at {
            return;
        }
        // Outside the lock, as above.
        let all = std::mem::take(&mut books.added);
        drop(books);
        let is_left = |watch: &Option<SymbolWatch>| watch.as_ref().is_none_or(|watch| !watch.is_gone());
        let left: FxHashMap<_, _> = all.into_iter().filter(|(_, watch)| is_left(watch)).collect();
        let mut books = self.books.lock();
        books.sweep_at = 2 * left.len().max(512);
        books.added.extend(left);
    }

    fn tracker_for(&self, dylib: &JitDylib) -> Result<ResourceTracker> {
        let chosen = self.books.lock().tracker.clone();
        match chosen.filter(|tracker| !tracker.is_defunct() && tracker.dylib() == *dylib) {
            Some(tracker) => Ok(tracker),
            None => dylib.default_tracker(),
        }
    }

    /// The member's short name, unless another has it.
    fn name_of(&self, id: MemberId, member: &ArchiveMember) -> String {
        let name = member.name();
        let mut books = self.books.lock();
        if *books.names.entry(name.clone()).or_insert(id) == id { name } else { member.full_name() }
    }
}

impl DefinitionGenerator for StaticLibraries {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        let archives = self.archives();
        let required = missing.iter().filter(|request| request.required);
        let listed: Vec<Listing> = required.filter_map(|request| archives.find(request.name)).collect();
        if listed.is_empty() {
            return Ok(());
        }
        let _turn = self.turns.take();
        let tracker = self.tracker_for(dylib)?;
        let adding = Adding { libraries: self, archives, dylib, tracker, added: FxHashSet::default() };
        adding.run(listed)
    }
}

impl fmt::Debug for StaticLibraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "static libraries: {:?}", self.archives())
    }
}

/// One answer: the members that were asked for, and those that they require.
struct Adding<'a> {
    libraries: &'a StaticLibraries,
    archives: Arc<ArchiveSet>,
    dylib: &'a JitDylib,
    tracker: ResourceTracker,
    added: FxHashSet<MemberId>,
}

impl Adding<'_> {
    fn run(mut self, asked: Vec<Listing>) -> Result<()> {
        // The next to look at last, so that what a member requires comes before its neighbours, as with lld.
        let mut wanted = asked;
        wanted.reverse();
        while let Some(listing) = wanted.pop() {
            if self.is_needed(&listing) {
                let others = wanted.len();
                self.add(&listing, &mut wanted)?;
                wanted[others..].reverse();
            }
        }
        Ok(())
    }

    fn is_needed(&self, listing: &Listing) -> bool {
        let is_missing = |name: &str| self.dylib.symbol_flags(name).is_none();
        !self.added.contains(&listing.member())
            && self.archives.name(listing).is_some_and(is_missing)
            && !self.libraries.is_there(self.dylib, listing.member())
    }

    /// Adds the member that defines a name, and to `wanted` what it requires.
    fn add(&mut self, listing: &Listing, wanted: &mut Vec<Listing>) -> Result<()> {
        let id = listing.member();
        let member = self.archives.member(id)?;
        let name = self.libraries.name_of(id, &member);
        let required = required_names(&name, &member.bytes)?;
        self.libraries.layer.add(&self.tracker, &name, member.bytes.clone())?;
        let own = self.archives.name(listing).and_then(|name| self.dylib.watch(name));
        self.libraries.note_added(self.dylib, id, own);
        self.added.insert(id);
        let listed = required.into_iter().filter_map(|name| self.archives.find(name));
        wanted.extend(listed.filter(|listing| !self.added.contains(&listing.member())));
        Ok(())
    }
}

/// Adds every member of an archive under a tracker, in their order, as `--whole-archive` does; how many there were.
///
/// # Errors
/// When a member cannot be read, is no object that can be linked, or defines what is defined already. What was added of
/// the archive is taken back then.
pub fn add_whole_archive(
    layer: &Arc<ObjectLinkingLayer>,
    tracker: &ResourceTracker,
    archive: &Archive,
) -> Result<usize> {
    let own = tracker.dylib().create_tracker()?;
    let added = add_members(layer, &own, archive).and_then(|count| own.transfer_and_report(tracker).map(|()| count));
    if added.is_err() {
        // Nothing of it has run, so nobody has anything to report.
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
