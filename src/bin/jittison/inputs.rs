//! [`Inputs`]: what `run` has to link, in the order of the command line: objects, archives, libraries, and their dylibs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ArgMatches;
use jittison::InputFile;
use jittison::host::LoadedLibrary;

use crate::args::RunArgs;
use crate::linker_script;
use crate::process::open_library;

/// One file to link, or a mark between files.
pub enum Input {
    Object(ObjectFile),
    /// An archive of which the needed members are linked.
    Archive(ArchiveFile),
    /// An archive of which every member is linked.
    WholeArchive(ArchiveFile),
    /// A shared library. It defines what the files around it need, and no archive after it does.
    Library(Arc<LoadedLibrary>),
    /// The archives between the marks are searched until that adds no member.
    GroupStart,
    GroupEnd,
}

/// An object file.
#[derive(Clone)]
pub struct ObjectFile {
    /// As messages name it.
    pub name: String,
    pub path: PathBuf,
    /// Whether `watch` reloads it.
    pub follows: bool,
}

/// An archive.
pub struct ArchiveFile {
    pub path: PathBuf,
    /// Whether `watch` reloads its members.
    pub follows: bool,
}

/// An input that a build has made, or has named.
pub enum BuiltInput {
    Object(ObjectFile),
    /// An archive of which the needed members are linked. They are not reloaded.
    Archive(PathBuf),
    /// An archive of which every member is linked. They are not reloaded.
    WholeArchive(PathBuf),
    /// What `-l NAME` means, with the folders of `-L`.
    Library {
        name: String,
        directories: Vec<PathBuf>,
    },
}

/// The inputs of one dylib.
pub struct Group {
    pub name: String,
    pub inputs: Vec<Input>,
}

/// All inputs of the command line.
pub struct Inputs {
    /// One per dylib. The first is `main`.
    pub groups: Vec<Group>,
    /// The index of the group that the next argument goes to.
    current: usize,
}

/// Sorts the arguments into groups, and opens the shared libraries. Those of a build come before all files of the command line.
pub fn gather(args: &RunArgs, matches: &ArgMatches, built: Vec<BuiltInput>) -> Result<Inputs, String> {
    let main = Group { name: "main".to_string(), inputs: Vec::new() };
    let mut inputs = Inputs { groups: vec![main], current: 0 };
    for input in built {
        match input {
            BuiltInput::Object(object) => inputs.add(Input::Object(object)),
            BuiltInput::Archive(path) => inputs.add(Input::Archive(ArchiveFile { path, follows: false })),
            BuiltInput::WholeArchive(path) => inputs.add(Input::WholeArchive(ArchiveFile { path, follows: false })),
            BuiltInput::Library { name, directories } => inputs.add_library(&name, &directories, 0)?,
        }
    }
    for argument in ordered_arguments(args, matches) {
        match argument {
            Argument::Dylib(name) => inputs.select_group(name),
            Argument::File(path) if is_archive(path) => inputs.add(Input::Archive(ArchiveFile::new(path))),
            Argument::File(path) => inputs.add(Input::Object(ObjectFile::new(path.to_path_buf()))),
            Argument::WholeArchive(path) => inputs.add(Input::WholeArchive(ArchiveFile::new(path))),
            Argument::Library(name) => inputs.add_library(&name, &args.library_paths, 0)?,
            Argument::GroupStart => inputs.add(Input::GroupStart),
            Argument::GroupEnd => inputs.add(Input::GroupEnd),
        }
    }
    Ok(inputs)
}

impl ObjectFile {
    pub fn new(path: PathBuf) -> ObjectFile {
        ObjectFile { name: path.display().to_string(), path, follows: true }
    }
}

impl ArchiveFile {
    fn new(path: &Path) -> ArchiveFile {
        ArchiveFile { path: path.to_path_buf(), follows: true }
    }
}

impl Group {
    pub fn has_archives(&self) -> bool {
        self.inputs.iter().any(|input| matches!(input, Input::Archive(_)))
    }
}

impl Inputs {
    /// The size of all files in bytes, including archives of which only some members are linked.
    pub fn size_bytes(&self) -> u64 {
        let paths = self.groups.iter().flat_map(|group| &group.inputs).filter_map(|input| match input {
            Input::Object(object) => Some(&object.path),
            Input::Archive(archive) | Input::WholeArchive(archive) => Some(&archive.path),
            Input::Library(_) | Input::GroupStart | Input::GroupEnd => None,
        });
        paths.filter_map(|path| fs::metadata(path).ok()).map(|file| file.len()).sum()
    }

    /// Lets the next inputs go to the group of this name; creates the group if it does not exist.
    fn select_group(&mut self, name: &str) {
        let known = self.groups.iter().position(|group| group.name == name);
        self.current = known.unwrap_or(self.groups.len());
        if known.is_none() {
            self.groups.push(Group { name: name.to_string(), inputs: Vec::new() });
        }
    }

    fn add(&mut self, input: Input) {
        self.groups[self.current].inputs.push(input);
    }

    /// Adds what `-l NAME` means. `depth` is the number of linker scripts that led to this library.
    fn add_library(&mut self, name: &str, directories: &[PathBuf], depth: usize) -> Result<(), String> {
        let Some(path) = find_library(name, directories) else {
            let library = open_library(name.strip_prefix(':').unwrap_or(name))?;
            self.add(Input::Library(Arc::new(library)));
            return Ok(());
        };
        if is_archive(&path) {
            self.add(Input::Archive(ArchiveFile::new(&path)));
            return Ok(());
        }
        match linker_script::read(&path)? {
            Some(_) if depth == MAX_SCRIPTS => {
                Err(format!("{}: too many linker scripts in each other", path.display()))
            }
            Some(files) => files.iter().try_for_each(|file| self.add_library(file, directories, depth + 1)),
            None => {
                self.add(Input::Library(Arc::new(open_library(&path.to_string_lossy())?)));
                Ok(())
            }
        }
    }
}

/// An argument whose position on the command line matters.
enum Argument<'a> {
    File(&'a Path),
    WholeArchive(&'a Path),
    Library(String),
    Dylib(&'a str),
    GroupStart,
    GroupEnd,
}

/// The arguments whose position matters, in the order of the command line.
fn ordered_arguments<'a>(args: &'a RunArgs, matches: &ArgMatches) -> Vec<Argument<'a>> {
    let positions = |name| matches.indices_of(name).into_iter().flatten();
    let mut arguments: Vec<(usize, Argument)> = Vec::new();
    arguments.extend(positions("files").zip(args.files.iter().map(|path| Argument::File(path))));
    arguments
        .extend(positions("whole_archive").zip(args.whole_archive.iter().map(|path| Argument::WholeArchive(path))));
    arguments.extend(
        positions("libraries").zip(args.libraries.iter().map(|name| Argument::Library(name.to_string_lossy().into()))),
    );
    arguments.extend(positions("dylib").zip(args.dylib.iter().map(|name| Argument::Dylib(name))));
    arguments.extend(positions("start_group").map(|position| (position, Argument::GroupStart)));
    arguments.extend(positions("end_group").map(|position| (position, Argument::GroupEnd)));
    arguments.sort_by_key(|(position, _)| *position);
    arguments.into_iter().map(|(_, argument)| argument).collect()
}

/// Whether a file is an archive, by its first bytes. File names are not reliable.
fn is_archive(path: &Path) -> bool {
    let read = InputFile::open(path).and_then(|file| file.read_at(0..8));
    read.is_ok_and(|magic| magic == b"!<arch>\n" || magic == b"!<thin>\n")
}

/// Finds the file that `-l NAME` means: first in the given directories, then as an archive in the system's directories.
/// `None` if the system's loader has to find it, as a shared library.
fn find_library(name: &str, directories: &[PathBuf]) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name));
    }
    let names = match name.strip_prefix(':') {
        Some(exact) => vec![exact.to_string()],
        None if name.contains(".so") => vec![name.to_string()],
        None => vec![format!("lib{name}.so"), format!("lib{name}.a")],
    };
    let found = directories.iter().flat_map(|directory| names.iter().map(|name| directory.join(name)));
    if let Some(path) = found.into_iter().find(|path| path.is_file()) {
        return Some(path);
    }
    let name = name.strip_prefix(':').unwrap_or(name);
    if open_library(name).is_ok() {
        return None;
    }
    let archive = if name.ends_with(".a") { name.to_string() } else { format!("lib{name}.a") };
    let mut archives = system_directories().into_iter().map(|directory| directory.join(&archive));
    archives.find(|path| path.is_file())
}

/// The directories in which the system's linker searches.
fn system_directories() -> [PathBuf; 5] {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    [
        "/usr/local/lib".into(),
        Path::new("/lib").join(&triple),
        Path::new("/usr/lib").join(&triple),
        "/lib64".into(),
        "/usr/lib".into(),
    ]
}

/// The depth to which linker scripts may name each other.
const MAX_SCRIPTS: usize = 8;
