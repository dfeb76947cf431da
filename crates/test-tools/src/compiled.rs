//! A cache of objects that an earlier test run compiled. Without it, most of a test's time is the start of a compiler.
//!
//! The objects are in the target directory. Their file names are hashes of compiler, flags and source. If the compiler was
//! installed again, the object is compiled again. `cargo clean` removes the cache.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::require::find;

/// The path of the cached object. `None` if the object is not cached: the compiler is missing, or a flag names a file, whose
/// content is not part of the hash.
pub fn place(tool: &str, flags: &[&str], source: &str) -> Option<PathBuf> {
    if flags.iter().any(|flag| flag.contains('/')) {
        return None;
    }
    let compiler = find(tool)?;
    let key = (tool, flags, source, compiler.size(), compiler.mtime(), compiler.ino());
    let [low, high] = [0, 1].map(|seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, &key).hash(&mut hasher);
        hasher.finish()
    });
    // For `target/debug/deps/session-0123456789abcdef` this is `target/tmp`, cargo's directory for tests. Other programs may lie
    // anywhere and have no cache.
    let program = std::env::current_exe().ok()?;
    let directory =
        program.parent().filter(|directory| directory.ends_with("deps") || directory.ends_with("examples"))?;
    let target = directory.ancestors().nth(2)?;
    Some(target.join(format!("tmp/compiled/{high:016x}{low:016x}.o")))
}

/// Stores an object for later runs. Another process sees the complete file or none. A failure, such as a full disk, is ignored.
pub fn keep(path: &PathBuf, object: &[u8]) {
    let unfinished = path.with_extension(format!("{}.{:?}", std::process::id(), std::thread::current().id()));
    let written = fs::create_dir_all(path.parent().expect("the path has a directory"))
        .and_then(|()| fs::write(&unfinished, object))
        .and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
}
