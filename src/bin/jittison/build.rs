//! [`Build`]: how a program that is watched is built: by whoever, by a command, from a compile database, or by Cargo.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

use notify::RecursiveMode;

use crate::cargo::CargoBuild;
use crate::database::Database;
use crate::follower::hash_of;
use crate::inputs::BuiltInput;

/// How the objects of a program are built.
pub enum Build {
    /// Whoever writes the objects. They are watched.
    Elsewhere,
    /// A command, when a file below a folder was saved.
    Command(BuildCommand),
    /// The commands of a compile database, when a file that one of them reads was saved.
    Database(Database),
    /// Cargo, when a source of a package was saved.
    Cargo(Box<CargoBuild>),
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
    /// The objects do not fit to what else the program was linked with. A sentence that says why.
    AnotherProgram(String),
}

impl Build {
    /// The inputs of the program that it knows.
    pub fn inputs(&self) -> Vec<BuiltInput> {
        match self {
            Build::Elsewhere | Build::Command(_) => Vec::new(),
            Build::Database(database) => database.objects().into_iter().map(BuiltInput::Object).collect(),
            Build::Cargo(cargo) => cargo.inputs(),
        }
    }

    /// The path that the program gets as its own one. `None` for that of the first file of the command line.
    pub fn program(&self) -> Option<PathBuf> {
        match self {
            Build::Elsewhere | Build::Command(_) => None,
            Build::Database(database) => database.objects().into_iter().next().map(|object| object.path),
            Build::Cargo(cargo) => Some(cargo.program().to_path_buf()),
        }
    }

    /// The folder in which the program starts, if it is not that of this process.
    pub fn start_folder(&self) -> Option<PathBuf> {
        match self {
            Build::Elsewhere | Build::Command(_) | Build::Database(_) => None,
            Build::Cargo(cargo) => cargo.start_folder().map(Path::to_path_buf),
        }
    }

    /// Whether objects may change without a build.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Build::Elsewhere | Build::Command(_))
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
            Build::Cargo(cargo) => cargo.folders(),
        }
    }

    /// The sources that were saved after a compiler may have read them, as far as this is known.
    pub fn saved_since_built(&self) -> Vec<PathBuf> {
        match self {
            Build::Elsewhere | Build::Command(_) => Vec::new(),
            Build::Database(database) => database.saved_since_compiled(),
            Build::Cargo(cargo) => cargo.saved_since_built(),
        }
    }

    /// Whether a file is a source that was saved with other bytes. Notes the bytes.
    pub fn is_changed_source(&mut self, path: &Path) -> bool {
        match self {
            Build::Elsewhere => false,
            Build::Command(build) => build.is_changed_source(path),
            Build::Database(database) => database.is_changed_source(path),
            Build::Cargo(cargo) => cargo.is_changed_source(path),
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
            Build::Cargo(cargo) => cargo.run(),
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

/// Those of some files that were saved at this time or later.
pub fn saved_since<'f>(files: impl Iterator<Item = &'f PathBuf>, since: SystemTime) -> Vec<PathBuf> {
    let is_later = |file: &Path| {
        let saved = std::fs::metadata(file).and_then(|file| file.modified());
        saved.is_ok_and(|saved| saved >= since)
    };
    files.filter(|file| is_later(file)).cloned().collect()
}

/// Whether a file is a product of a build or a temporary file of an editor.
fn is_product(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    name.starts_with('.') || name.ends_with('~') || PRODUCTS.contains(&&*extension)
}

const PRODUCTS: [&str; 9] = ["o", "a", "so", "d", "lo", "gch", "tmp", "swp", "swx"];
