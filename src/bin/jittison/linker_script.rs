//! Linker scripts in place of libraries: the text files `libm.so` and `libncurses.so` of many systems, which name the files
//! that a native linker links.

use std::fs;
use std::path::Path;

/// The files that a script names, in order, each as what follows `-l`: a path, a file name after a colon, or a bare name.
/// `None` if the file is no script.
///
/// Scripts may list files with `INPUT`, `GROUP` and `AS_NEEDED`. The files of `AS_NEEDED` are linked too.
pub fn read(path: &Path) -> Result<Option<Vec<String>>, String> {
    let is_small = fs::metadata(path).is_ok_and(|file| file.len() <= MAX_BYTES);
    let Some(text) = fs::read_to_string(path).ok().filter(|text| is_small && !text.starts_with("\u{7f}ELF")) else {
        return Ok(None);
    };
    let refused = |what: &str| Err(format!("{}: the linker script has {what}", path.display()));
    let Some(text) = without_comments(&text) else { return refused("a comment without an end") };
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace([',', ';'], " ");
    let (mut files, mut commands, mut last, mut has_list) = (Vec::new(), Vec::new(), None, false);
    for word in spaced.split_whitespace() {
        match (word, last.take()) {
            ("(", Some(command @ ("INPUT" | "GROUP" | "AS_NEEDED" | "OUTPUT_FORMAT"))) => {
                commands.push(command);
                has_list = true;
            }
            ("(", Some(command)) => return refused(&format!("the command `{command}`")),
            ("(", None) => return refused("a list without a command"),
            (")", file) => {
                add(&mut files, file, &commands);
                if commands.pop().is_none() {
                    return refused("a `)` too many");
                }
            }
            (word, file) => {
                if file.is_some() && commands.is_empty() {
                    return Ok(None);
                }
                add(&mut files, file, &commands);
                last = Some(word);
            }
        }
    }
    if !commands.is_empty() {
        return refused("a list without an end");
    }
    Ok(Some(files).filter(|_| has_list && last.is_none()))
}

/// Adds a file of a list to the files.
fn add(files: &mut Vec<String>, file: Option<&str>, commands: &[&str]) {
    let Some(file) = file.filter(|_| commands.last().is_some_and(|command| *command != "OUTPUT_FORMAT")) else {
        return;
    };
    let file = file.trim_matches('"');
    files.push(match file.strip_prefix("-l") {
        Some(name) => name.to_string(),
        None if file.contains('/') => file.to_string(),
        None => format!(":{file}"),
    });
}

/// `None` if a comment does not end.
fn without_comments(text: &str) -> Option<String> {
    let mut parts = text.split("/*");
    let mut kept = parts.next().unwrap_or_default().to_string();
    for part in parts {
        kept.push(' ');
        kept.push_str(part.split_once("*/")?.1);
    }
    Some(kept)
}

/// Larger files are no scripts.
const MAX_BYTES: u64 = 64 << 10;
