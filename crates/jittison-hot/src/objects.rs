//! [`Objects`]: the objects that `JITTISON_HOT` names, with the bytes that the program was linked from.
//!
//! | entry of the list, which colons divide | meaning |
//! |---|---|
//! | `step.o` | an object |
//! | `build` | all objects (`.o`) in a folder, and in the folders below it |
//! | `build/compile_commands.json` | the outputs of a compile database |

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Objects of the program, by path without links, in its order.
pub struct Objects(pub BTreeMap<PathBuf, Object>);

/// An object of the program.
pub struct Object {
    /// As a person would name it.
    pub name: String,
    pub bytes: Vec<u8>,
}

impl Objects {
    /// Reads the objects of a list.
    ///
    /// # Errors
    /// A file cannot be read, or the list names no object.
    pub fn read(list: &OsStr) -> Result<Objects, String> {
        let mut paths = Vec::new();
        for entry in env::split_paths(list).filter(|entry| !entry.as_os_str().is_empty()) {
            match () {
                () if entry.is_dir() => find_below(&entry, &mut paths)?,
                () if has_extension(&entry, "json") => paths.extend(outputs_of(&entry)?),
                () => paths.push(entry),
            }
        }
        let mut objects = BTreeMap::new();
        let current = env::current_dir().and_then(|current| current.canonicalize()).unwrap_or_default();
        for path in paths {
            let real = path.canonicalize().map_err(|problem| at(&path, &problem))?;
            let bytes = std::fs::read(&real).map_err(|problem| at(&path, &problem))?;
            let name = real.strip_prefix(&current).unwrap_or(&real).display().to_string();
            objects.insert(real, Object { name, bytes });
        }
        match objects.is_empty() {
            true => Err(format!("JITTISON_HOT names no object: {}", list.display())),
            false => Ok(Objects(objects)),
        }
    }
}

fn find_below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in std::fs::read_dir(folder).map_err(|problem| at(folder, &problem))? {
        let path = entry.map_err(|problem| at(folder, &problem))?.path();
        match () {
            // A link may lead to a folder above.
            () if path.is_dir() && !path.is_symlink() => find_below(&path, found)?,
            () if path.is_file() && has_extension(&path, "o") => found.push(path),
            () => {}
        }
    }
    Ok(())
}

/// The objects that the commands of a compile database write.
fn outputs_of(database: &Path) -> Result<Vec<PathBuf>, String> {
    let text = std::fs::read(database).map_err(|problem| at(database, &problem))?;
    let entries: Value = serde_json::from_slice(&text).map_err(|problem| at(database, &problem))?;
    let entries = entries.as_array().ok_or_else(|| at(database, &"it is not a list of commands"))?;
    let outputs = entries.iter().map(|entry| {
        let directory = Path::new(entry["directory"].as_str().unwrap_or_default());
        let output = output_of(entry).ok_or_else(|| at(database, &"a command does not say what it writes"))?;
        Ok(directory.join(output))
    });
    outputs.collect()
}

/// The output that an entry names, or its command.
fn output_of(entry: &Value) -> Option<String> {
    if let Some(output) = entry["output"].as_str() {
        return Some(output.to_string());
    }
    let arguments: Vec<String> = match entry["arguments"].as_array() {
        Some(arguments) => arguments.iter().filter_map(|argument| argument.as_str().map(String::from)).collect(),
        None => shlex::split(entry["command"].as_str()?)?,
    };
    let position = arguments.iter().position(|argument| argument == "-o")?;
    arguments.get(position + 1).cloned()
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|other| other == extension)
}

fn at(path: &Path, problem: &dyn std::fmt::Display) -> String {
    format!("{}: {problem}", path.display())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_output_of_a_command_is_the_one_that_it_names() {
        for (entry, output) in [
            (json!({ "output": "a.o", "command": "gcc -o b.o -c b.c" }), Some("a.o")),
            (json!({ "command": "gcc -c 'b c.c' -o 'b c.o'" }), Some("b c.o")),
            (json!({ "arguments": ["gcc", "-o", "d.o", "-c", "d.c"] }), Some("d.o")),
            (json!({ "command": "gcc -c d.c" }), None),
        ] {
            assert_eq!(output_of(&entry).as_deref(), output, "{entry}");
        }
    }
}
