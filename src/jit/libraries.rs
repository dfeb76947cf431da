//! Static libraries: archives whose members are linked when they are needed, or all at once.
//!
//! A dylib has at most one [`StaticLibraries`], which holds its archives in the order in which they were added. So archives
//! satisfy each other's references in either direction, whichever calls added them.

use std::path::Path;

use crate::error::{ErrorKind, Result};
use crate::jit::files::open_archive;
use crate::jit::inner::Jit;
use crate::jit::session_inputs::InputSource;
use crate::link::Archive;
use crate::platform::{StaticLibraries, add_whole_archive};
use crate::session::{DefinitionGenerator, JitDylib, ResourceTracker};
use crate::sync::Arc;

impl Jit {
    /// Makes the members of an archive available to links and lookups in a dylib. A member is linked when it defines a
    /// required symbol, and so are the members that it requires. [`StaticLibraries`] has the rules.
    ///
    /// This call reads the archive's list of symbols; a member is read when it is needed. Small archives, and archives that
    /// were written in the last two seconds, are read entirely here. Other archives stay open, and another file may take
    /// the name. If such an archive is changed, a link that needs another of its members fails.
    ///
    /// Members go under the default tracker of the dylib, or under the tracker that
    /// [`set_tracker`](StaticLibraries::set_tracker) of its [`static_libraries`](Self::static_libraries) sets.
    ///
    /// ```
    /// # const LIBRARY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/libadd.a");
    /// # fn main() -> Result<(), jittison::Error> {
    /// let jit = jittison::Jit::new()?;
    /// let main = jit.main_dylib();
    /// jit.link_static_library(main, LIBRARY)?;
    ///
    /// // Members that are added from here on go under this tracker.
    /// let tracker = main.create_tracker()?;
    /// jit.static_libraries(main)?.set_tracker(&tracker);
    /// // SAFETY: `add` has this signature, and the members of the library may run.
    /// let add = unsafe { jit.lookup::<extern "C" fn(i32, i32) -> i32>("add")? };
    /// assert_eq!(add.call(2, 3), 5);
    ///
    /// // The member is removed. A later lookup adds it again.
    /// drop(add);
    /// assert!(tracker.remove()?.is_complete());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The file cannot be read, or it is not an archive; [`ErrorKind::Archive`](crate::ErrorKind::Archive) names the
    /// position.
    pub fn link_static_library(&self, dylib: &JitDylib, path: impl AsRef<Path>) -> Result<()> {
        self.link_static_libraries(dylib, [path])
    }

    /// As [`link_static_library`](Self::link_static_library), for several archives: either all or none. Their order matters
    /// only for names that several archives define: the first one has precedence.
    ///
    /// # Errors
    /// As [`link_static_library`](Self::link_static_library).
    pub fn link_static_libraries(
        &self,
        dylib: &JitDylib,
        paths: impl IntoIterator<Item = impl AsRef<Path>>,
    ) -> Result<()> {
        let archives = paths.into_iter().map(|path| open_archive(path.as_ref())).collect::<Result<_>>()?;
        self.static_libraries(dylib)?.add(archives)
    }

    /// The static libraries of a dylib. The first call attaches them to the dylib as a generator.
    ///
    /// # Errors
    /// The dylib was removed.
    pub fn static_libraries(&self, dylib: &JitDylib) -> Result<Arc<StaticLibraries>> {
        self.0.check_own(dylib)?;
        if dylib.is_defunct() {
            return Err(ErrorKind::DylibDefunct { dylib: dylib.name().to_string() }.into());
        }
        let known = self.0.static_libraries.lock().get(&dylib.id()).and_then(|known| known.upgrade());
        if let Some(known) = known {
            return Ok(known);
        }
        let new = StaticLibraries::new(self.layer());
        // Attach first. Otherwise another thread could get libraries that no lookup uses yet.
        dylib.add_generator(new.clone());
        let libraries = self.get_or_insert_libraries(dylib, &new);
        if !Arc::ptr_eq(&libraries, &new) {
            dylib.remove_generator(&(new as Arc<dyn DefinitionGenerator>));
        }
        Ok(libraries)
    }

    /// Inserts `new`, unless another thread inserted libraries for this dylib first. Returns those that are in the table.
    fn get_or_insert_libraries(&self, dylib: &JitDylib, new: &Arc<StaticLibraries>) -> Arc<StaticLibraries> {
        let mut libraries = self.0.static_libraries.lock();
        if let Some(known) = libraries.get(&dylib.id()).and_then(|known| known.upgrade()) {
            return known;
        }
        // Drop the entries of removed dylibs.
        libraries.retain(|_, known| known.strong_count() > 0);
        libraries.insert(dylib.id(), Arc::downgrade(new));
        new.clone()
    }

    /// Adds every member of an archive under a tracker, in order, as the linker's `--whole-archive` does. Returns their
    /// number. Each is linked when one of its symbols is looked up, and those with initialisers by
    /// [`initialize`](Self::initialize).
    ///
    /// # Errors
    /// As [`link_static_library`](Self::link_static_library). Also if a member is not an object that can be linked, or
    /// defines a symbol again. Then the members that were added are removed.
    pub fn add_archive_whole(&self, tracker: &ResourceTracker, path: impl AsRef<Path>) -> Result<usize> {
        self.0.check_own(tracker.dylib_handle())?;
        let name = path.as_ref().display().to_string();
        self.add_open_archive_whole(tracker, &name, Arc::new(open_archive(path.as_ref())?))
    }

    /// As [`add_archive_whole`](Self::add_archive_whole), for an archive that is open.
    pub(in crate::jit) fn add_open_archive_whole(
        &self,
        tracker: &ResourceTracker,
        name: &str,
        archive: Arc<Archive>,
    ) -> Result<usize> {
        let source = |archive: &Arc<_>| InputSource::WholeArchive(Arc::clone(archive));
        self.0
            .add_recorded(tracker, name, archive, source, |archive| add_whole_archive(self.layer(), tracker, &archive))
    }
}
