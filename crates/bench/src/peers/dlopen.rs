//! [`Dlopen`]: the system's dynamic linker. Each small module is a shared object in its own file, which is opened and
//! closed. The time for making the file does not count; a compiler that uses dlopen would have to pay for it.

use std::ffi::CString;
use std::path::PathBuf;

use jittison::base::ExecutorAddr;
use jittison_test_support::bench::objects::Instance;

use super::linker::Linker;
use super::system_library::{SystemLibrary, build_shared_object, c_path};
use crate::measure::competitor::DLOPEN;
use crate::measure::scenario::to_text;
use crate::measure::workload::Workload;

/// Opens copies of one shared object, which differ only in their file names.
pub struct Dlopen {
    directory: PathBuf,
    /// The shared object, and the name of its entry. Built from the first instance.
    module: Option<(Vec<u8>, CString)>,
    number: usize,
    // The library that the modules call. The last field: it is dropped after its users.
    _library: SystemLibrary,
}

/// A file that the loader has never opened. Dropping it removes its name; an open file needs none.
pub struct ModuleFile {
    path: PathBuf,
    name: CString,
    entry: CString,
}

impl Drop for ModuleFile {
    fn drop(&mut self) {
        // The directory is removed in the end; a failure here does not matter.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Linker for Dlopen {
    const NAME: &'static str = DLOPEN;
    /// The loader searches lists, so more live modules would take minutes.
    const MAX_LIVE: usize = 1_000;
    /// Each is looked up by its own handle.
    const NEEDS_DIFFERENT_NAMES: bool = false;
    /// It allocates from the C library's heap.
    const IS_COUNTED: bool = false;

    type Input = ModuleFile;
    type Live = SystemLibrary;

    fn new(workload: &Workload) -> Result<Dlopen, String> {
        let directory = workload.scratch.path().to_path_buf();
        let library = build_shared_object(&directory, "runtime", &workload.objects.runtime)?;
        let library = SystemLibrary::open(&c_path(&library)?, libc::RTLD_GLOBAL)?;
        Ok(Dlopen { directory, module: None, number: 0, _library: library })
    }

    fn prepare(&mut self, instance: &Instance) -> Result<ModuleFile, String> {
        let (bytes, entry) = match &mut self.module {
            Some(module) => module,
            module => {
                let path = build_shared_object(&self.directory, "module", &instance.bytes)?;
                let entry = CString::new(instance.entry.as_str()).map_err(to_text)?;
                module.insert((std::fs::read(path).map_err(to_text)?, entry))
            }
        };
        self.number += 1;
        let path = self.directory.join(format!("module-{}.so", self.number));
        std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(ModuleFile { name: c_path(&path)?, entry: entry.clone(), path })
    }

    fn link(&mut self, _: &Instance, file: &ModuleFile) -> Result<(ExecutorAddr, SystemLibrary), String> {
        let opened = SystemLibrary::open(&file.name, libc::RTLD_LOCAL)?;
        Ok((opened.symbol(&file.entry)?, opened))
    }
}
