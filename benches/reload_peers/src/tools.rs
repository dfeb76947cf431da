//! [`Tool`]: what reloads a function. Each is set up as its own documentation says.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use hot_lib_reloader::LibReloader;
use jittison::{Function, Jit, Reloader};
use object::{Object as _, ObjectSymbol as _};
use subsecond::HotFn;
use subsecond_types::JumpTable;

use crate::Versions;

pub type Step = extern "C" fn(i64) -> i64;

pub trait Tool {
    fn name(&self) -> &str;

    /// Whether it waits on purpose.
    fn waits(&self) -> bool {
        false
    }

    /// Loads a version and calls it.
    fn reload(&mut self, versions: &Versions, number: usize) -> Times;
}

pub struct Times {
    /// To link a library.
    pub link: Duration,
    /// From there to the first call.
    pub load: Duration,
}

impl Times {
    pub fn all(&self) -> Duration {
        self.link + self.load
    }
}

fn timed(body: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    body();
    begin.elapsed()
}

/// `Reloader`, as in its documentation.
pub struct Jittison {
    reloader: Reloader,
    pub step: Function<Step>,
    _jit: Jit,
}

impl Jittison {
    pub fn start(versions: &Versions) -> Jittison {
        let jit = Jit::new().expect("a session");
        let program = jit.main_dylib().create_tracker().expect("a tracker");
        let reloader = Reloader::new(&jit, &program).expect("a reloader");
        reloader.add_object("step.o", std::fs::read(versions.object(1)).expect("the object")).expect("it is added");
        reloader.link().expect("it is linked");
        // SAFETY: every version of `step` has this signature.
        let step = unsafe { jit.lookup::<Step>("step") }.expect("it has `step`");
        Jittison { reloader, step, _jit: jit }
    }

    pub fn replace(&self, object: &Path) {
        let object = std::fs::read(object).expect("the object");
        // SAFETY: every version of a function has the same signature, and nobody keeps an address of code or of a constant.
        unsafe { self.reloader.reload("step.o", object) }.expect("it is reloaded");
    }
}

impl Tool for Jittison {
    fn name(&self) -> &str {
        "jittison"
    }

    fn reload(&mut self, versions: &Versions, number: usize) -> Times {
        let object = versions.object(number);
        let load = timed(|| {
            self.replace(&object);
            assert_eq!(self.step.call(0), Versions::expected(number));
        });
        Times { link: Duration::ZERO, load }
    }
}

/// A loop of `dlopen` and `dlclose`. Nobody may be in the library meanwhile.
pub struct Dlopen {
    library: Option<libloading::Library>,
}

impl Dlopen {
    pub fn start(_: &Versions) -> Dlopen {
        Dlopen { library: None }
    }
}

impl Tool for Dlopen {
    fn name(&self) -> &str {
        "dlopen, dlsym, dlclose"
    }

    fn reload(&mut self, versions: &Versions, number: usize) -> Times {
        let path = versions.folder.path().join(format!("dlopen{number}.so"));
        let link = timed(|| versions.link(number, &path));
        let load = timed(|| {
            drop(self.library.take());
            // SAFETY: the library has no initialisers.
            let library = unsafe { libloading::Library::new(&path) }.expect("the library");
            // SAFETY: every version of `step` has this signature.
            let step = unsafe { library.get::<Step>("step") }.expect("it has `step`");
            assert_eq!(step(0), Versions::expected(number));
            self.library = Some(library);
        });
        Times { link, load }
    }
}

/// `subsecond`: the program calls `step` by a `HotFn`, and its tool sends a table of addresses for each patch.
pub struct Subsecond;

fn step(n: i64) -> i64 {
    std::hint::black_box(n) + 1
}

impl Subsecond {
    pub fn start(_: &Versions) -> Subsecond {
        Subsecond
    }
}

impl Tool for Subsecond {
    fn name(&self) -> &str {
        "subsecond"
    }

    fn reload(&mut self, versions: &Versions, number: usize) -> Times {
        let path = versions.folder.path().join(format!("subsecond{number}.so"));
        let link = timed(|| versions.link(number, &path));
        // Its tool has read the symbols when it sends the table.
        let (main, new_step) = (address_in(&path, "main"), address_in(&path, "step"));
        let old: fn(i64) -> i64 = step;
        let reference = subsecond::aslr_reference() as u64;
        let table = JumpTable {
            lib: path,
            map: [(old as usize as u64, new_step)].into_iter().collect(),
            aslr_reference: reference,
            new_base_address: main,
            ifunc_count: 0,
        };
        let load = timed(|| {
            // SAFETY: both functions take and return an integer, in the same registers.
            unsafe { subsecond::apply_patch(table) }.expect("it is patched");
            assert_eq!(HotFn::current(old).call((0,)), Versions::expected(number));
        });
        Times { link, load }
    }
}

fn address_in(library: &Path, name: &str) -> u64 {
    let bytes = std::fs::read(library).expect("the library");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let found = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name));
    found.expect("the library exports it").address()
}

/// `hot-lib-reloader`, which watches a file.
pub struct HotLib {
    name: &'static str,
    reloader: LibReloader,
    changes: Receiver<()>,
    library: PathBuf,
    _folder: tempfile::TempDir,
}

impl HotLib {
    pub fn start(versions: &Versions, name: &'static str, debounce: Option<Duration>) -> HotLib {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let library = folder.path().join("libstep.so");
        versions.link(1, &library);
        let mut reloader = LibReloader::new(folder.path(), "step", debounce, None).expect("a reloader");
        let changes = reloader.subscribe_to_file_changes();
        HotLib { name, reloader, changes, library, _folder: folder }
    }
}

impl Tool for HotLib {
    fn name(&self) -> &str {
        self.name
    }

    fn waits(&self) -> bool {
        true
    }

    fn reload(&mut self, versions: &Versions, number: usize) -> Times {
        let link = timed(|| versions.link(number, &self.library));
        let load = timed(|| {
            self.changes.recv().expect("it watches");
            while !self.reloader.update().expect("it is reloaded") {}
            // SAFETY: every version of `step` has this signature.
            let step = unsafe { self.reloader.get_symbol::<Step>(b"step\0") }.expect("it has `step`");
            assert_eq!(step(0), Versions::expected(number));
        });
        Times { link, load }
    }
}
