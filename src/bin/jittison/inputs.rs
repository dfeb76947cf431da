//! What `run` was given, in its order: objects, archives, libraries, and the dylibs that they go to.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use jittison::InputFile;
use jittison::host::LoadedLibrary;

use crate::args::RunArgs;
use crate::process::open_library;

/// One thing to link.
pub enum Input {
    Object(PathBuf),
    /// Members as they are needed.
    Archive(PathBuf),
    /// All members.
    WholeArchive(PathBuf),
}

/// What goes to one dylib.
pub struct Group {
    pub name: String,
    pub inputs: Vec<Input>,
}

/// What the command line says.
pub struct Inputs {
    /// The first is `main`.
    pub groups: Vec<Group>,
    /// The group that comes next.
    current: usize,
    /// Libraries of the system's that were named; open as long as this lives.
    pub libraries: Vec<LoadedLibrary>,
}

/// Sorts what was typed, and opens the libraries.
pub fn gather(args: &RunArgs, matches: &ArgMatches) -> Result<Inputs, String> {
    let main = Group { name: "main".to_string(), inputs: Vec::new() };
    let mut inputs = Inputs { groups: vec![main], current: 0, libraries: Vec::new() };
    for word in words(args, matches) {
        match word {
            Word::Dylib(name) => inputs.enter(name),
            Word::File(path) if is_archive(path) => inputs.add(Input::Archive(path.to_path_buf())),
            Word::File(path) => inputs.add(Input::Object(path.to_path_buf())),
            Word::Whole(path) => inputs.add(Input::WholeArchive(path.to_path_buf())),
            Word::Library(name) => match find_library(&name, &args.library_paths) {
                Some(path) if is_archive(&path) => inputs.add(Input::Archive(path)),
                Some(path) => inputs.libraries.push(open_library(&path.to_string_lossy())?),
                None => inputs.libraries.push(open_library(&name)?),
            },
        }
    }
    Ok(inputs)
}

impl Group {
    pub fn has_archives(&self) -> bool {
        self.inputs.iter().any(|input| matches!(input, Input::Archive(_)))
    }
}

impl Inputs {
    /// Bytes of all files that are linked, or of which something may be.
    pub fn size_bytes(&self) -> u64 {
        let paths = self.groups.iter().flat_map(|group| &group.inputs).map(|input| match input {
            Input::Object(path) | Input::Archive(path) | Input::WholeArchive(path) => path,
        });
        paths.filter_map(|path| fs::metadata(path).ok()).map(|file| file.len()).sum()
    }

    fn enter(&mut self, name: &str) {
        let known = self.groups.iter().position(|group| group.name == name);
        self.current = known.unwrap_or(self.groups.len());
        if known.is_none() {
            self.groups.push(Group { name: name.to_string(), inputs: Vec::new() });
        }
    }

    fn add(&mut self, input: Input) {
        self.groups[self.current].inputs.push(input);
    }
}

enum Word<'a> {
    File(&'a Path),
    Whole(&'a Path),
    Library(String),
    Dylib(&'a str),
}

/// Everything whose order counts, in its order.
fn words<'a>(args: &'a RunArgs, matches: &ArgMatches) -> Vec<Word<'a>> {
    let places = |name| matches.indices_of(name).into_iter().flatten();
    let mut words: Vec<(usize, Word)> = Vec::new();
    words.extend(places("files").zip(args.files.iter().map(|path| Word::File(path))));
    words.extend(places("whole_archive").zip(args.whole_archive.iter().map(|path| Word::Whole(path))));
    words.extend(
        places("libraries").zip(args.libraries.iter().map(|name| Word::Library(name.to_string_lossy().into()))),
    );
    words.extend(places("dylib").zip(args.dylib.iter().map(|name| Word::Dylib(name))));
    words.sort_by_key(|(place, _)| *place);
    words.into_iter().map(|(_, word)| word).collect()
}

/// By what the file begins with: names tell nothing.
fn is_archive(path: &Path) -> bool {
    let read = InputFile::open(path).and_then(|file| file.read_at(0..8));
    read.is_ok_and(|magic| magic == b"!<arch>\n" || magic == b"!<thin>\n")
}

/// The file that `-l NAME` means, if it is in one of the directories, or an archive in one of the system's. Shared libraries
/// of the system's are found by its loader.
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
    if open_library(name).is_ok() {
        return None;
    }
    let archives = SYSTEM.iter().map(|directory| Path::new(directory).join(format!("lib{name}.a")));
    archives.into_iter().find(|path| path.is_file())
}

/// Where the system's linker looks.
const SYSTEM: [&str; 5] =
    ["/usr/local/lib", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib"];
