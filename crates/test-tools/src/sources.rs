//! The source files of the repository, for tests that read them.

use std::fs;
use std::path::Path;

/// Every `.rs` file below the directory `dir` of `root`, with its path from `root` and its text. Empty without the directory.
pub fn rust_files(root: &Path, dir: &str) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(root.join(dir)) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.expect("the directory can be read").path();
        let name = format!("{dir}/{}", path.file_name().expect("an entry has a name").to_string_lossy());
        if path.is_dir() {
            files.extend(rust_files(root, &name));
        } else if name.ends_with(".rs") {
            files.push((name, fs::read_to_string(&path).expect("the source can be read")));
        }
    }
    files.sort();
    files
}
