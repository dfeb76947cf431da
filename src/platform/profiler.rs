//! [`Profiler`]: tells perf at which address each function is, and since when.
//!
//! | when | what happens |
//! |---|---|
//! | the profiler is made | its file is created |
//! | the relocations of a link are applied | the object's functions are appended with the current time |
//! | code is removed | nothing: neither file format can express it |
//! | the process forks | the first link of the child creates a file of its own |
//!
//! So nothing has to be undone, and the profiler is a plugin but no `ResourceManager`. If a link fails after its
//! relocations are applied, the file has functions that never run. A function that is announced later at the same
//! address replaces them.

use std::fmt;
use std::path::PathBuf;

use crate::error::Result;
use crate::host::{CodeDumpFile, Executor, InProcess, NameMapFile, Stamp};
use crate::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use crate::link::{FixedLink, LinkedFunction};
use crate::platform::jit_dump;
use crate::sync::Arc;

/// The file format for perf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// perf's jitdump: each function with its bytes, its load time, its unwind information and its source lines. If the address
    /// of removed code is reused, perf attributes each sample to the code that was there at that time.
    ///
    /// ```text
    /// JITTISON_PERF=jitdump perf record -k mono program
    /// perf inject --jit -i perf.data -o perf.jit.data
    /// perf report -i perf.jit.data
    /// ```
    ///
    /// Each session has one file `jittison-PID-N/jit-PID.dump`. It is in `JITTISON_PERF_DIR`, else in `JITDUMPDIR`, else in
    /// `~/.debug/jit`. The file contains a copy of all code that was ever linked. It is not deleted automatically.
    JitDump,
    /// Lines in `/tmp/perf-PID.map`: address, size and name of each function. The file is small, and `perf report` reads it
    /// without another step. It has no times: if an address is reused, perf has several names for it and chooses one. Use it for
    /// processes that remove little code, and where the kernel or perf does not support jitdump.
    ///
    /// perf uses these names for anonymous memory only, so [`JitBuilder::profiler`](crate::JitBuilder::profiler) maps code once,
    /// as private pages.
    PerfMap,
}

/// Writes a perf file for all linked code. Add it to the layer as a plugin, as
/// [`JitBuilder::profiler`](crate::JitBuilder::profiler) does.
///
/// Each linked object costs one system call, which writes its records. After a failed write (full disk, limits), the file gets
/// no more records, and links continue without it.
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// use jittison::Jit;
/// use jittison::platform::{Profile, Profiler};
///
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = Jit::new()?;
/// let profiler = Profiler::new(Profile::PerfMap)?;
/// jit.layer().add_plugin(profiler);
///
/// jit.link_object(&jit.main_dylib().create_tracker()?, "add.o", ADD)?;
/// let map = format!("/tmp/perf-{}.map", std::process::id());
/// let functions = std::fs::read_to_string(&map).expect("the profiler has made this file");
/// assert!(functions.lines().any(|line| line.ends_with(" add"))); // address, size and name
/// # std::fs::remove_file(map).expect("this process owns the file");
/// # Ok(()) }
/// ```
pub struct Profiler {
    file: Arc<ProfileFile>,
}

enum ProfileFile {
    Dump(Box<dyn CodeDumpFile>),
    Map(Box<dyn NameMapFile>),
}

impl Profiler {
    /// Creates the file.
    ///
    /// # Errors
    /// [`ErrorKind::File`](crate::ErrorKind::File): the file cannot be created, or it cannot be mapped executable (in a directory
    /// mounted `noexec`). perf learns the name of a jitdump from that mapping.
    pub fn new(profile: Profile) -> Result<Arc<Profiler>> {
        Profiler::with_executor(profile, &InProcess)
    }

    /// As [`new`](Self::new), for the process behind `executor`.
    pub(crate) fn with_executor(profile: Profile, executor: &dyn Executor) -> Result<Arc<Profiler>> {
        let file = match profile {
            Profile::JitDump => ProfileFile::Dump(executor.create_code_dump(&directory(), jit_dump::header)?),
            Profile::PerfMap => ProfileFile::Map(executor.open_name_map()?),
        };
        Ok(Arc::new(Profiler { file: Arc::new(file) }))
    }
}

impl Profile {
    /// Reads `JITTISON_PERF` from the environment: `jitdump` or `map`.
    #[cfg(feature = "environment")]
    pub(crate) fn from_environment() -> Option<Profile> {
        match std::env::var_os("JITTISON_PERF")?.to_str()? {
            "jitdump" => Some(Profile::JitDump),
            "map" => Some(Profile::PerfMap),
            _ => None,
        }
    }
}

/// The directory for jitdumps.
fn directory() -> PathBuf {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || named("HOME").map(|home| home.join(".debug/jit"));
    named("JITTISON_PERF_DIR").or_else(|| named("JITDUMPDIR")).or_else(home).unwrap_or_else(std::env::temp_dir)
}

impl ProfileFile {
    fn append(&self, functions: &[LinkedFunction]) {
        match self {
            ProfileFile::Dump(dump) => dump.append(functions.len() as u64, &mut |stamp: Stamp, first: u64| {
                let numbered = (first..).zip(functions);
                numbered.flat_map(|(number, function)| jit_dump::function(function, stamp, number)).collect()
            }),
            ProfileFile::Map(map) => {
                let line = |function: &LinkedFunction| {
                    let (address, size) = (function.address.value(), function.code.len());
                    format!("{address:x} {size:x} {}\n", function.name.replace(['\n', '\r'], " "))
                };
                map.append(&functions.iter().map(line).collect::<String>());
            }
        }
    }
}

impl LinkPlugin for Profiler {
    fn begin(&self, _origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(ProfilerHooks { file: self.file.clone() }))
    }
}

struct ProfilerHooks {
    file: Arc<ProfileFile>,
}

impl LinkHooks for ProfilerHooks {
    fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<()> {
        let functions = link.functions();
        if !functions.is_empty() {
            self.file.append(&functions);
        }
        Ok(())
    }
}

impl fmt::Debug for Profiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = match &*self.file {
            ProfileFile::Dump(_) => "a jitdump",
            ProfileFile::Map(_) => "a map of names",
        };
        write!(f, "profiler that writes {file}")
    }
}
