//! [`read`]: the inputs on the command line that rustc gives its linker.
//!
//! rustc talks to `cc` here (`-C linker-flavor=gcc`). Options that only shape an output file are left out.

use std::path::{Path, PathBuf};

/// The command line of a linker.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LinkerLine {
    pub output: PathBuf,
    pub inputs: Vec<LineInput>,
    pub library_paths: Vec<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum LineInput {
    /// An object that rustc compiled.
    CrateObject(PathBuf),
    Object(PathBuf),
    Archive(PathBuf),
    WholeArchive(PathBuf),
    Library(String),
    /// A static library of which every member is linked.
    WholeLibrary(String),
}

/// Reads a command line.
///
/// # Errors
/// It has no output, or names a file of arguments that cannot be read.
pub fn read(arguments: &[String]) -> Result<LinkerLine, String> {
    let mut arguments = expanded(arguments)?.into_iter();
    let (mut line, mut is_whole, mut output) = (LinkerLine::default(), false, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-o" => output = arguments.next(),
            "-L" => line.library_paths.extend(arguments.next().map(PathBuf::from)),
            "-l" => line.inputs.extend(arguments.next().map(|name| library(name, is_whole))),
            // What follows is no input.
            "-z" | "-B" | "-T" | "-u" | "-Xlinker" | "-rpath" => drop(arguments.next()),
            "-Wl,--whole-archive" => is_whole = true,
            "-Wl,--no-whole-archive" => is_whole = false,
            _ => match (argument.strip_prefix("-L"), argument.strip_prefix("-l")) {
                (Some(path), _) => line.library_paths.push(PathBuf::from(path)),
                (_, Some(name)) => line.inputs.push(library(name.to_string(), is_whole)),
                _ if argument.starts_with('-') => {}
                _ => line.inputs.extend(file(PathBuf::from(argument), is_whole)),
            },
        }
    }
    line.output = output.ok_or("the command line of the linker names no output")?.into();
    Ok(line)
}

fn library(name: String, is_whole: bool) -> LineInput {
    if is_whole { LineInput::WholeLibrary(name) } else { LineInput::Library(name) }
}

fn file(path: PathBuf, is_whole: bool) -> Option<LineInput> {
    let name = path.file_name()?.to_str()?;
    Some(match () {
        () if name.ends_with(".rcgu.o") => LineInput::CrateObject(path),
        () if name.ends_with(".o") => LineInput::Object(path),
        () if name.ends_with(".rlib") || name.ends_with(".a") => {
            if is_whole {
                LineInput::WholeArchive(path)
            } else {
                LineInput::Archive(path)
            }
        }
        () if name.ends_with(".so") || name.contains(".so.") => LineInput::Library(path.to_str()?.to_string()),
        () => return None,
    })
}

/// The arguments, with those of files (`@file`). rustc writes one if the line is too long: an argument a line, in which a backslash
/// escapes a space or a backslash.
fn expanded(arguments: &[String]) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for argument in arguments {
        match argument.strip_prefix('@') {
            None => all.push(argument.clone()),
            Some(path) => {
                let text = std::fs::read_to_string(Path::new(path)).map_err(|problem| format!("{path}: {problem}"))?;
                all.extend(text.lines().map(unescaped));
            }
        }
    }
    Ok(all)
}

fn unescaped(line: &str) -> String {
    let (mut text, mut characters) = (String::new(), line.chars());
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inputs_of_a_line_keep_their_order_and_options_are_left_out() {
        let line = "-m64 /t/rustcX/symbols.o p-1.cgu.rcgu.o -Wl,--as-needed -Wl,-Bstatic /deps/liba-2.rlib -Wl,--whole-archive \
                    libw.a -lwhole -Wl,--no-whole-archive -lz -l m -L /n -L/k -z noexecstack -o /deps/p-1 -pie x.so";
        let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
        let line = read(&arguments).unwrap();
        assert_eq!(line.output, Path::new("/deps/p-1"));
        assert_eq!(line.library_paths, [Path::new("/n"), Path::new("/k")]);
        assert_eq!(
            line.inputs,
            [
                LineInput::Object("/t/rustcX/symbols.o".into()),
                LineInput::CrateObject("p-1.cgu.rcgu.o".into()),
                LineInput::Archive("/deps/liba-2.rlib".into()),
                LineInput::WholeArchive("libw.a".into()),
                LineInput::WholeLibrary("whole".to_string()),
                LineInput::Library("z".to_string()),
                LineInput::Library("m".to_string()),
                LineInput::Library("x.so".to_string()),
            ]
        );
        assert!(read(&[]).is_err());
        assert_eq!(unescaped("a\\ b\\\\c"), "a b\\c");
    }
}
