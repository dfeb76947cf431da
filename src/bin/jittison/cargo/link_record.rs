//! [`LinkRecord`]: the inputs of a program, in the order in which rustc gave them to its linker.
//!
//! The record is written to the path of the program. So it is always that of the build that Cargo takes for the newest one, also if
//! nothing had to be compiled.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::inputs::{BuiltInput, ObjectFile};

/// What a program consists of.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRecord {
    pub inputs: Vec<LinkInput>,
    /// The folders of `-L`.
    pub library_paths: Vec<PathBuf>,
}

/// An input of the linker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkInput {
    /// An object of a crate that follows its sources.
    Crate {
        name: String,
        path: PathBuf,
    },
    /// Another object.
    Object {
        path: PathBuf,
    },
    Archive {
        path: PathBuf,
    },
    WholeArchive {
        path: PathBuf,
    },
    /// A name of `-l`, or the path of a shared library.
    Library {
        name: String,
    },
}

impl LinkRecord {
    pub fn read(path: &Path) -> Result<LinkRecord, String> {
        let in_file = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
        let text = std::fs::read(path).map_err(|problem| in_file(&problem))?;
        serde_json::from_slice(&text).map_err(|problem| in_file(&problem))
    }

    /// Writes the record in the place of a program.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let in_file = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
        let text = serde_json::to_vec_pretty(self).map_err(|problem| in_file(&problem))?;
        // Cargo links the file to another name. That name keeps its bytes until Cargo links it again.
        let _ = std::fs::remove_file(path);
        std::fs::write(path, text).map_err(|problem| in_file(&problem))
    }

    /// The inputs for a link.
    pub fn built_inputs(&self) -> Vec<BuiltInput> {
        let input = |input: &LinkInput| match input.clone() {
            LinkInput::Crate { name, path } => BuiltInput::Object(ObjectFile { name, path, follows: true }),
            LinkInput::Object { path } => BuiltInput::Object(ObjectFile { follows: false, ..ObjectFile::new(path) }),
            LinkInput::Archive { path } => BuiltInput::Archive(path),
            LinkInput::WholeArchive { path } => BuiltInput::WholeArchive(path),
            LinkInput::Library { name } => BuiltInput::Library { name, directories: self.library_paths.clone() },
        };
        self.inputs.iter().map(input).collect()
    }

    /// An input that only one of two records has, a library before others.
    pub fn difference<'a>(&'a self, other: &'a LinkRecord) -> Option<&'a LinkInput> {
        let only_in = |one: &'a LinkRecord, other: &'a LinkRecord| {
            one.inputs.iter().filter(|input| !other.inputs.contains(input))
        };
        let is_object = |input: &&LinkInput| matches!(input, LinkInput::Crate { .. } | LinkInput::Object { .. });
        only_in(self, other).chain(only_in(other, self)).min_by_key(is_object)
    }
}

impl LinkInput {
    /// As a person would name it.
    pub fn name(&self) -> String {
        match self {
            LinkInput::Crate { name, .. } | LinkInput::Library { name } => name.clone(),
            LinkInput::Object { path } | LinkInput::Archive { path } | LinkInput::WholeArchive { path } => {
                path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
        }
    }
}
