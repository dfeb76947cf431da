//! Static libraries: archives whose members are linked when they are needed, or all at once.
//!
//! A dylib has one set of them, however many calls they come in: they satisfy each other's references, in either order.

use std::path::Path;

use crate::error::{ErrorKind, Result};
use crate::jit::Jit;
use crate::jit::files::open_archive;
use crate::platform::{StaticLibraries, add_whole_archive};
use crate::session::{DefinitionGenerator, JitDylib, ResourceTracker};
use crate::sync::Arc;

impl Jit {
    /// Lets links and lookups in a dylib use the members of an archive: those that are required, and what these require in
    /// turn, by the rules of [`StaticLibraries`]. The archive's list of symbols is read here, and a
    /// member when it is needed; a small archive, and one that was written in the last two seconds, is read here as a whole.
    /// The file stays open meanwhile. Another file may take its name; if it is changed itself, links that need another member
    /// fail and say so.
    ///
    /// Members go under the dylib's default tracker, or under another:
    /// [`static_libraries`](Self::static_libraries)`(dylib).`[`set_tracker`](StaticLibraries::set_tracker).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), jittison::Error> {
    /// let jit = jittison::Jit::new()?;
    /// let main = jit.main_dylib();
    /// jit.link_static_library(main, "build/libstats.a")?;
    /// // Whatever is pulled from now on goes with this tracker, and comes again when it is needed again.
    /// let tracker = main.create_tracker()?;
    /// jit.static_libraries(main)?.set_tracker(&tracker);
    /// let mean = unsafe { jit.lookup::<extern "C" fn(*const f64, usize) -> f64>("mean")? };
    /// assert_eq!(mean.call([1.0, 2.0, 6.0].as_ptr(), 3), 3.0);
    /// drop(mean);
    /// tracker.remove()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the file cannot be read, or is no archive; [`ErrorKind::Archive`](crate::ErrorKind::Archive) names the place.
    pub fn link_static_library(&self, dylib: &JitDylib, path: impl AsRef<Path>) -> Result<()> {
        self.link_static_libraries(dylib, [path])
    }

    /// As [`link_static_library`](Self::link_static_library), for several archives: all, or none. They are searched as one:
    /// the order matters only for names that several define, which are the first's.
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

    /// The static libraries of a dylib: a generator, which is attached when this is first asked for.
    ///
    /// # Errors
    /// When the dylib was removed.
    pub fn static_libraries(&self, dylib: &JitDylib) -> Result<Arc<StaticLibraries>> {
        if dylib.is_defunct() {
            return Err(ErrorKind::DylibDefunct { dylib: dylib.name().to_string() }.into());
        }
        let known = self.0.libraries.lock().get(&dylib.id()).and_then(|known| known.upgrade());
        if let Some(known) = known {
            return Ok(known);
        }
        let new = StaticLibraries::new(self.layer());
        // At work before another thread can be given it.
        dylib.add_generator(new.clone());
        let libraries = self.note_libraries(dylib, &new);
        if !Arc::ptr_eq(&libraries, &new) {
            dylib.remove_generator(&(new as Arc<dyn DefinitionGenerator>));
        }
        Ok(libraries)
    }

    /// Those that another thread has noted meanwhile, or else `new`.
    fn note_libraries(&self, dylib: &JitDylib, new: &Arc<StaticLibraries>) -> Arc<StaticLibraries> {
        let mut libraries = self.0.libraries.lock();
        if let Some(known) = libraries.get(&dylib.id()).and_then(|known| known.upgrade()) {
            return known;
        }
        // Those of dylibs that are gone.
        libraries.retain(|_, known| known.strong_count() > 0);
        libraries.insert(dylib.id(), Arc::downgrade(new));
        new.clone()
    }

    /// Adds every member of an archive under a tracker, in their order, needed or not, as the linker's `--whole-archive`
    /// does; how many there were. Each is linked when one of its symbols is looked up, and those that have initialisers by
    /// [`initialize`](Self::initialize).
    ///
    /// # Errors
    /// As [`link_static_library`](Self::link_static_library); when a member is no object that can be linked, or defines what
    /// is defined already. What was added of the archive is taken back then.
    pub fn add_archive_whole(&self, tracker: &ResourceTracker, path: impl AsRef<Path>) -> Result<usize> {
        add_whole_archive(self.layer(), tracker, &open_archive(path.as_ref())?)
    }
}
