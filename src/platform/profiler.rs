//! [`Profiler`]: tells perf which code is where, and since when.
//!
//! | when | what |
//! |---|---|
//! | the profiler is made | its file is made |
//! | the bytes are fixed up | the object's functions are appended, with the time |
//! | the code goes | nothing: neither of perf's files has a word for it |
//! | the process forks | the child's first link makes a file of its own |
//!
//! So there is nothing to take back, and this is a plugin only. A link that fails behind fix-up has announced functions
//! that never run; whoever gets their place is announced later, and counts.

use std::fmt;
use std::path::PathBuf;

use crate::error::Result;
use crate::host::{CodeDump, NameMap};
use crate::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use crate::link::{FixedLink, LinkedFunction};
use crate::platform::jit_dump;
use crate::sync::Arc;

/// How perf is told of linked code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// perf's jitdump: each function with its bytes, the time from which on it is there, how to unwind it, and its source
    /// lines. Where code comes to stand in the place of code that was removed, each sample belongs to what was there at
    /// its time.
    ///
    /// ```text
    /// JITTISON_PERF=jitdump perf record -k mono program
    /// perf inject --jit -i perf.data -o perf.jit.data
    /// perf report -i perf.jit.data
    /// ```
    ///
    /// The file is `jittison-PID-N/jit-PID.dump`, below `JITTISON_PERF_DIR`, or else `JITDUMPDIR`, or else
    /// `~/.debug/jit`; each session has one. It holds a copy of all code ever linked. Nobody removes it.
    JitDump,
    /// Lines in `/tmp/perf-PID.map`: address, size and name of each function. `perf report` reads it by itself, and there is
    /// little to read; but it has no times, so where code was removed and its place used again, perf has several names
    /// for it and takes one of them. For processes that remove little, and kernels or perfs without jitdump.
    ///
    /// perf looks for such names in anonymous memory only, so
    /// [`JitBuilder::profiler`](crate::JitBuilder::profiler) maps code once
    /// ([`SingleMapper`](crate::memory::SingleMapper)).
    PerfMap,
}

/// Writes a profile of all code that is linked. Add it to the layer as a plugin;
/// [`JitBuilder::profiler`](crate::JitBuilder::profiler) does.
///
/// Costs a system call for each object that is linked, and the writing of its code. Once a file refuses a write (disk
/// full, limits) it gets no more, and linking goes on.
pub struct Profiler {
    file: Arc<ProfileFile>,
}

enum ProfileFile {
    Dump(CodeDump),
    Map(NameMap),
}

impl Profiler {
    /// Makes the file.
    ///
    /// # Errors
    /// [`ErrorKind::File`](crate::ErrorKind::File) when it cannot be made, or not be mapped executable (a directory mounted
    /// `noexec`), which is how perf comes to know its name.
    pub fn new(profile: Profile) -> Result<Arc<Profiler>> {
        let file = match profile {
            Profile::JitDump => ProfileFile::Dump(CodeDump::create(&directory(), jit_dump::header)?),
            Profile::PerfMap => ProfileFile::Map(NameMap::open()?),
        };
        Ok(Arc::new(Profiler { file: Arc::new(file) }))
    }
}

impl Profile {
    /// What the environment asks for: `JITTISON_PERF` is `jitdump` or `map`.
    pub(crate) fn from_environment() -> Option<Profile> {
        match std::env::var_os("JITTISON_PERF")?.to_str()? {
            "jitdump" => Some(Profile::JitDump),
            "map" => Some(Profile::PerfMap),
            _ => None,
        }
    }
}

fn directory() -> PathBuf {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || named("HOME").map(|home| home.join(".debug/jit"));
    named("JITTISON_PERF_DIR").or_else(|| named("JITDUMPDIR")).or_else(home).unwrap_or_else(std::env::temp_dir)
}

impl ProfileFile {
    fn append(&self, functions: &[LinkedFunction]) {
        match self {
            ProfileFile::Dump(dump) => dump.append(functions.len() as u64, |stamp, first| {
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
        Some(Box::new(ObjectHooks { file: self.file.clone() }))
    }
}

struct ObjectHooks {
    file: Arc<ProfileFile>,
}

impl LinkHooks for ObjectHooks {
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
