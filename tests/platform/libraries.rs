//! Shared libraries of the system that linked code refers to.

use std::path::PathBuf;

use jittison::{Jit, ResourceTracker};

use crate::support::*;

/// Builds a shared library, which is a file of `dir`.
fn shared_library(dir: &PrivateDir, name: &str, source: &str) -> Option<PathBuf> {
    let args = ["-x", "c", "-shared", "-fPIC", "-nostdlib", "-o", OUTPUT, INPUT];
    let path = dir.path(name);
    std::fs::write(&path, build("gcc", source.as_bytes(), &args)?).unwrap();
    Some(path)
}

/// A session with a library, and an object that refers to the library and defines `test`.
struct World {
    jit: Jit,
    tracker: ResourceTracker,
    object: Vec<u8>,
    _dir: PrivateDir,
}

impl World {
    fn new(library: &str, object: &str) -> Option<World> {
        let dir = PrivateDir::new();
        let library = shared_library(&dir, "libvalue.so", library)?;
        let object = c(object)?;
        let jit = Jit::builder().library(library.to_str().unwrap()).build().unwrap();
        let tracker = add(&jit, jit.main_dylib(), "o.o", &object);
        Some(World { jit, tracker, object, _dir: dir })
    }
}

type Test = extern "C" fn() -> i64;

#[test]
fn code_that_is_held_calls_its_library_after_the_session_has_ended() {
    own_process!();
    let source = "extern long library_value(void); long test(void) { return library_value() + 1; }";
    let Some(world) = World::new("long library_value(void) { return 5; }", source) else { return };
    let linked = function::<Test>(&world.jit, "test");
    let absolute = function::<Test>(&world.jit, "library_value");
    // Another session finds the library in the process, and does not open it.
    let other = new_jit();
    let _other_tracker = add(&other, other.main_dylib(), "o.o", &world.object);
    assert_eq!((linked.call(), long(&other, "test")), (6, 6));
    drop((world.tracker, world.jit));
    assert_eq!((linked.call(), absolute.call(), long(&other, "test")), (6, 5, 6));
}

/// Symptom: the number of the library's thread-local block was free, and a new thread crashed.
#[test]
fn code_that_is_held_finds_thread_locals_of_its_library_after_the_session_has_ended() {
    own_process!();
    // The size prevents a static offset, so each thread asks for its block.
    let library = "__thread long library_variable[2000] = {5};";
    let source = "extern __thread long library_variable[]; long test(void) { return library_variable[0] + 1; }";
    let Some(world) = World::new(library, source) else { return };
    let linked = function::<Test>(&world.jit, "test");
    drop((world.tracker, world.jit));
    std::thread::scope(|scope| drop(scope.spawn(|| assert_eq!(linked.call(), 6))));
    assert_eq!(linked.call(), 6);
}
