//! Objects that a compiler made in an earlier run of the tests: most of what a test costs is the start of a compiler.
//!
//! They lie in the target directory, by a hash of compiler, flags and source. A compiler that was installed anew compiles
//! anew. `cargo clean` removes them.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Where the object lies, or is to lie. `None` if it is not kept: the compiler is absent, or a flag names a file, whose
/// content the hash does not know.
pub fn place(tool: &str, flags: &[&str], source: &str) -> Option<PathBuf> {
    if flags.iter().any(|flag| flag.contains('/')) {
        return None;
    }
    let path = std::env::var_os("PATH")?;
    let compiler = std::env::split_paths(&path).find_map(|directory| fs::metadata(directory.join(tool)).ok())?;
    let key = (tool, flags, source, compiler.size(), compiler.mtime(), compiler.ino());
    let [low, high] = [0, 1].map(|seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, &key).hash(&mut hasher);
        hasher.finish()
    });
    Some(PathBuf::from(option_env!("CARGO_TARGET_TMPDIR")?).join(format!("compiled/{high:016x}{low:016x}.o")))
}

/// Keeps an object for later runs. Another process sees all of it or nothing. A disk that is full costs time, and no test.
pub fn keep(place: &PathBuf, object: &[u8]) {
    let unfinished = place.with_extension(format!("{}.{:?}", std::process::id(), std::thread::current().id()));
    let written = fs::create_dir_all(place.parent().expect("it lies in a directory"))
        .and_then(|()| fs::write(&unfinished, object))
        .and_then(|()| fs::rename(&unfinished, place));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
}
