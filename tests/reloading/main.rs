//! Tests of reloading: objects of a program are replaced while it runs. Each line of the table in `docs/watch.md` has a test
//! here that it names.

mod following;
mod functions;
mod lifetimes;
mod moving;
mod random;
mod random_rust;
mod refusing;
mod reload_points;
mod state;
mod together;
mod types;
#[cfg(feature = "watch")]
mod watcher;

use jittison_test_support as support;

use jittison::{Error, Function, Jit, Reload, Reloader, ResourceTracker};

type Long = extern "C" fn() -> i64;

/// The flags that `docs/watch.md` advises.
const FLAGS: [&str; 4] = ["-O1", "-fPIC", "-ffunction-sections", "-fdata-sections"];

fn c(source: &str) -> Option<Vec<u8>> {
    support::gcc(&FLAGS, source)
}

fn cpp(source: &str) -> Option<Vec<u8>> {
    support::gxx(&FLAGS, source)
}

/// A program whose objects are reloaded.
struct Program {
    jit: Jit,
    tracker: ResourceTracker,
    reloader: Reloader,
}

impl Program {
    fn new(objects: &[(&str, &[u8])]) -> Program {
        let jit = support::new_jit();
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let reloader = Reloader::new(&jit, &tracker).unwrap();
        for (name, bytes) in objects {
            reloader.add_object(name, *bytes).unwrap();
        }
        reloader.link().unwrap();
        Program { jit, tracker, reloader }
    }

    fn find(&self, name: &str) -> Function<Long> {
        support::function::<Long>(&self.jit, name)
    }

    fn call(&self, name: &str) -> i64 {
        self.find(name).call()
    }

    fn try_reload(&self, name: &str, bytes: &[u8]) -> Result<Reload, Error> {
        // SAFETY: the objects belong to the tests. Their functions keep their signatures, and no test uses an address of a
        // version that may be freed.
        unsafe { self.reloader.reload(name, bytes) }
    }

    fn try_reload_all(&self, objects: &[(&str, &[u8])]) -> Result<Vec<Reload>, Error> {
        // SAFETY: as above.
        unsafe { self.reloader.reload_all(objects.iter().copied()) }
    }

    fn reload_all(&self, objects: &[(&str, &[u8])]) -> Vec<Reload> {
        self.try_reload_all(objects).unwrap()
    }

    fn reload(&self, name: &str, bytes: &[u8]) -> Reload {
        self.try_reload(name, bytes).unwrap()
    }

    /// Memory, symbols, keys and dylibs, which a refused reload may not change.
    fn state(&self) -> ((usize, u64, u64), usize, usize, usize) {
        let (jit, dylibs) = (&self.jit, self.jit.session().dylibs());
        let others = dylibs.iter().filter(|dylib| *dylib != jit.process_dylib());
        (support::held(jit), others.map(|dylib| dylib.symbol_count()).sum(), jit.layer().key_count(), dylibs.len())
    }

    /// A reload that is refused. Checks that nothing changed, and that the error says this.
    fn refused(&self, name: &str, bytes: &[u8], says: &[&str]) {
        self.all_refused(&[(name, bytes)], says);
    }

    /// As [`refused`](Self::refused), for objects that are reloaded together.
    fn all_refused(&self, objects: &[(&str, &[u8])], says: &[&str]) {
        let before = self.state();
        let error = self.try_reload_all(objects).unwrap_err();
        support::assert_says(&error, says);
        assert_eq!(self.state(), before);
    }
}
