//! [`Build`]: how a program that is watched is built: by whoever, by a command, or from a compile database.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use notify::RecursiveMode;

use crate::database::Database;
use crate::follower::hash_of;
use crate::inputs::ObjectFile;

/// How the objects of a program are built.
pub enum Build {
    /// Whoever writes the objects. They are watched.
    Elsewhere,
    /// A command, when a file below a folder was saved.
    Command(BuildCommand),
    /// The commands of a compile database, when a file that one of them reads was saved.
    Database(Database),
}

/// The command of `--build`.
pub struct BuildCommand {
    command: String,
    sources: Vec<PathBuf>,
    /// A hash of each source that was saved.
    seen: HashMap<PathBuf, u64>,
}

/// What a build that failed says.
pub struct BuildFailure {
    pub status: String,
    /// The output of the compilers.
    pub output: String,
}

/// What a build that succeeded may have changed.
pub enum Built {
    /// Any object.
    Any,
    /// These, by the paths of the objects.
    These(BTreeSet<PathBuf>),
}

impl Build {
    /// The objects of the program that it knows.
    pub fn objects(&self) -> Vec<ObjectFile> {
        match self {
            Build::Elsewhere | Build::Command(_) => Vec::new(),
            Build::Database(database) => database.objects(),
        }
    }

    /// The folders of sources to watch.
    pub fn folders(&self) -> Vec<(PathBuf, RecursiveMode)> {
        match self {
            Build::Elsewhere => Vec::new(),
            Build::Command(build) => {
                build.sources.iter().map(|folder| (folder.clone(), RecursiveMode::Recursive)).collect()
            }
            Build::Database(database) => {
                database.folders().into_iter().map(|folder| (folder, RecursiveMode::NonRecursive)).collect()
            }
        }
    }

    /// The sources that were saved after a compiler may have read them, as far as this is known.
    pub fn saved_since_built(&self) -> Vec<PathBuf> {
        match self {
            Build::Elsewhere | Build::Command(_) => Vec::new(),
            Build::Database(database) => database.saved_since_compiled(),
        }
    }

    /// Whether a file is a source that was saved with other bytes. Notes the bytes.
    pub fn is_changed_source(&mut self, path: &Path) -> bool {
        match self {
            Build::Elsewhere => false,
            Build::Command(build) => build.is_changed_source(path),
            Build::Database(database) => database.is_changed_source(path),
        }
    }

    /// Builds.
    ///
    /// # Errors
    /// A command failed.
    pub fn run(&mut self) -> Result<Built, BuildFailure> {
        match self {
            Build::Elsewhere => Ok(Built::Any),
            Build::Command(build) => build.run().map(|()| Built::Any),
            Build::Database(database) => database.compile().map(Built::These),
        }
    }
}

impl BuildCommand {
    pub fn new(command: String, sources: Vec<PathBuf>) -> BuildCommand {
        BuildCommand { command, sources, seen: HashMap::new() }
    }

    fn is_changed_source(&mut self, path: &Path) -> bool {
        let is_meant = self.sources.iter().any(|folder| path.starts_with(folder)) && !is_product(path);
        is_meant && is_changed(&mut self.seen, path)
    }

    fn run(&self) -> Result<(), BuildFailure> {
        let output = Command::new("sh").args(["-c", &self.command]).stdin(Stdio::null()).output();
        BuildFailure::check(output.map_err(|problem| format!("sh: {problem}")))
    }
}

impl BuildFailure {
    /// A command that could not be run.
    pub fn not_run(problem: String) -> BuildFailure {
        BuildFailure { output: format!("{problem}\n"), status: problem }
    }

    /// Whether a command succeeded.
    ///
    /// # Errors
    /// It failed, or could not be run.
    pub fn check(output: Result<Output, String>) -> Result<(), BuildFailure> {
        let output = output.map_err(BuildFailure::not_run)?;
        if output.status.success() {
            return Ok(());
        }
        let text = [output.stdout, output.stderr].concat();
        Err(BuildFailure { status: output.status.to_string(), output: String::from_utf8_lossy(&text).into_owned() })
    }
}

/// Whether a file has other bytes than when it was seen last.
pub fn is_changed(seen: &mut HashMap<PathBuf, u64>, path: &Path) -> bool {
    let Ok(bytes) = std::fs::read(path) else { return false };
    let hash = hash_of(&bytes);
    seen.insert(path.to_path_buf(), hash) != Some(hash)
}

/// Whether a file is a product of a build or a temporary file of an editor.
fn is_product(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || name.ends_with('~') || PRODUCTS.contains(&&*extension)
}

const PRODUCTS: [&str; 9] = ["o", "a", "so", "d", "lo", "gch", "tmp", "swp", "swx"];
