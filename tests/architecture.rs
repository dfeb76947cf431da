//! Holds the source tree to what `DESIGN.md` says about it.
//!
//! The floor table of `DESIGN.md` gives every room of `src/` a floor, the rooms
//! it may import and whether it may hold `unsafe` code. The tests at the top of
//! this file walk the tree and fail with one line for each fault: where it is,
//! what is wrong and how to mend it. Below them stand the inspectors, which work
//! on plain text, and at the bottom each inspector is shown a bad snippet, so
//! that one that has gone blind is noticed.
//!
//! Source is read as text, not as syntax: macros are not expanded, and a path
//! counts as written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LONGEST_FILE: usize = 700;
/// Outside crates that only rooms may name whose imports cell lists them.
const FENCED_CRATES: [&str; 1] = ["libc"];
const SYNC: &str = "src/sync.rs";
/// The command line: a user of the library, with what users have.
const TOOL: &str = "src/bin/";

#[test]
fn imports_obey_the_floor_table() {
    check_sources(|_, file, text, table| import_faults(file, text, table));
}

#[test]
fn unsafe_code_stays_in_the_rooms_marked_for_it() {
    check_sources(|_, file, text, table| unsafe_faults(file, text, table));
}

#[test]
fn safety_notes_cite_promises_that_their_room_makes() {
    let files = rust_files(&root(), "src");
    let rooms: BTreeSet<&str> = files.iter().map(|file| room_of(&file.0)).collect();
    let of_room = |room| files.iter().filter(move |file| room_of(&file.0) == room);
    let check = |room| safety_faults(room, &of_room(room).collect::<Vec<_>>());
    report(rooms.into_iter().flat_map(check).collect());
}

#[test]
fn only_the_sync_room_names_threads_and_locks_and_only_listed_rooms_name_libc() {
    check_sources(|_, file, text, table| outside_faults(file, text, table));
}

#[test]
fn every_path_that_the_design_names_exists() {
    report(missing_path_faults(&design(), |path| root().join(path).exists()));
}

#[test]
fn every_test_that_the_design_says_excludes_a_fault_exists() {
    let design = design();
    let faults = section(&design, "Others' faults");
    assert!(faults.lines().filter(|row| row.starts_with('|')).count() > 15, "the table of faults has gone");
    report(missing_test_faults(faults, |file| fs::read_to_string(root().join(file)).unwrap_or_default()));
}

#[test]
fn every_source_file_opens_with_its_purpose() {
    let dirs = ["src", "tests", "loom_tests", "examples"];
    let files = dirs.iter().flat_map(|dir| rust_files(&root(), dir));
    report(files.filter_map(|(file, text)| opening_fault(&file, &text)).collect());
}

#[test]
fn every_loom_test_names_the_source_it_models() {
    let models = |file: &str| file.starts_with("loom_tests/loom_");
    let files = rust_files(&root(), "loom_tests").into_iter().filter(|(file, _)| models(file));
    let exists = |path: &str| root().join(path).is_file();
    report(files.filter_map(|(file, text)| loom_fault(&file, &text, exists)).collect());
}

#[test]
fn no_source_file_is_longer_than_one_can_read() {
    check_sources(|_, file, text, _| length_fault(file, text).into_iter().collect());
}

// ---- the tree -------------------------------------------------------------

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn design() -> String {
    fs::read_to_string(root().join("DESIGN.md")).expect("DESIGN.md can be read")
}

/// Runs an inspector over all of `src/` and fails with what it found.
fn check_sources(inspect: impl Fn(&Path, &str, &str, &Table) -> Vec<String>) {
    let table = read_table(&design()).unwrap_or_else(|fault| panic!("\n{fault}\n"));
    let root = root();
    let files = rust_files(&root, "src");
    assert!(!files.is_empty(), "src/ holds no source file");
    let faults = files.iter().flat_map(|(file, text)| inspect(&root, file, text, &table));
    report(faults.collect());
}

fn report(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Every `.rs` file under `dir`, with its path from the root and its text.
fn rust_files(root: &Path, dir: &str) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(root.join(dir)) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.expect("the directory can be read").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy();
        let name = format!("{dir}/{name}");
        if path.is_dir() {
            files.extend(rust_files(root, &name));
        } else if name.ends_with(".rs") {
            files.push((name, fs::read_to_string(&path).expect("source can be read")));
        }
    }
    files.sort();
    files
}

/// The room of a file: the `os` of `src/os/x.rs`, the `sync` of `src/sync.rs`.
fn room_of(file: &str) -> &str {
    let inside = file.strip_prefix("src/").unwrap_or(file);
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs")
}

// ---- the floor table ------------------------------------------------------

struct Room {
    name: String,
    floor: u32,
    /// Names of rooms, and of outside crates.
    imports: BTreeSet<String>,
    may_be_unsafe: bool,
}

struct Table(Vec<Room>);

impl Table {
    fn room(&self, name: &str) -> Option<&Room> {
        self.0.iter().find(|room| room.name == name)
    }
}

/// The words of a text that stand in single backticks, with their lines.
fn backticked(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut fenced = false;
    for (line, row) in (1..).zip(text.lines()) {
        if row.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let spans = row.split('`').skip(1).step_by(2);
            words.extend(spans.flat_map(str::split_whitespace).map(|word| (line, word)));
        }
    }
    words
}

/// Reads the table under the first heading that has the word "Floors" and a table.
fn read_table(design: &str) -> Result<Table, String> {
    let mut rows: Vec<(usize, Vec<&str>)> = Vec::new();
    let mut under_floors = false;
    for (line, row) in (1..).zip(design.lines()) {
        let cells = row.trim().strip_prefix('|').map(|row| row.trim_end_matches('|'));
        match cells {
            Some(cells) if under_floors => {
                rows.push((line, cells.split('|').map(str::trim).collect()));
            }
            _ if !rows.is_empty() => break,
            _ if row.starts_with('#') => under_floors = row.contains("Floors"),
            _ => {}
        }
    }
    let columns = ["floor", "room", "imports", "unsafe", "speaks of"];
    if rows.len() < 3 || rows[0].1 != columns {
        let line = rows.first().map_or(1, |row| row.0);
        return Err(format!(
            "DESIGN.md:{line}: no floor table. Mend: under a heading with the word \"Floors\", \
             put a table with the columns {}",
            columns.join(" | ")
        ));
    }
    let mut rooms = Vec::new();
    let mut wishes = Vec::new();
    for (line, cells) in &rows[2..] {
        let fault = |what: String| Err(format!("DESIGN.md:{line}: {what} in the floor table"));
        let &[floor, names, imports, may, _] = &cells[..] else {
            return fault(format!("{} cells where five belong", cells.len()));
        };
        let Ok(floor) = floor.parse::<u32>() else {
            return fault(format!("floor \"{floor}\" is no number"));
        };
        let may_be_unsafe = match may.split_whitespace().next() {
            Some("yes") => true,
            Some("no") => false,
            _ => return fault(format!("unsafe is \"{may}\", neither yes nor no,")),
        };
        for (_, name) in backticked(names) {
            rooms.push(Room { name: plain(name).to_string(), floor, imports: BTreeSet::new(), may_be_unsafe });
            wishes.push((line, imports));
        }
    }
    let floors: Vec<(u32, String)> = rooms.iter().map(|room| (room.floor, room.name.clone())).collect();
    for (room, (line, wish)) in rooms.iter_mut().zip(wishes) {
        for (_, name) in backticked(wish) {
            if !floors.iter().any(|(_, known)| known == plain(name)) {
                return Err(format!("DESIGN.md:{line}: `{name}` is imported but has no row in the floor table"));
            }
            room.imports.insert(plain(name).to_string());
        }
        for item in wish.split(',').map(str::trim) {
            let number = item.parse::<u32>().ok();
            if number.is_some() || item == "all below" {
                let meant = |floor: u32| number.map_or(floor < room.floor, |number| floor == number);
                let named = floors.iter().filter(|(floor, _)| meant(*floor));
                room.imports.extend(named.map(|(_, name)| name.clone()));
            } else if !item.contains(['`', ' ']) {
                room.imports.insert(item.to_string());
            }
        }
    }
    Ok(Table(rooms))
}

/// A room's name without the slash or the ending that a table may give it.
fn plain(name: &str) -> &str {
    name.trim_end_matches('/').trim_end_matches(".rs")
}

// ---- reading source -------------------------------------------------------

/// A source text taken apart: in each part everything else is blank, and every
/// character keeps its line and place. Literals are in neither (but a `b` before one
/// counts as code, which harms nobody).
struct Layers {
    code: String,
    comments: String,
}

fn layers(text: &str) -> Layers {
    #[derive(PartialEq)]
    enum Kind {
        Code,
        Comment,
        Literal,
    }
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\n');
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let starts_word = |i: usize| i == 0 || !word(at(i - 1));
    let find =
        |from: usize, what: &dyn Fn(usize) -> bool| (from..chars.len()).find(|&i| what(i)).unwrap_or(chars.len());
    let (mut code, mut comments) = (String::new(), String::new());
    let mut i = 0;
    while i < chars.len() {
        let (kind, end) = match at(i) {
            '/' if at(i + 1) == '/' => (Kind::Comment, find(i, &|j| at(j) == '\n')),
            '/' if at(i + 1) == '*' => {
                let (mut depth, mut j) = (1, i + 2);
                while depth > 0 && j < chars.len() {
                    match (at(j), at(j + 1)) {
                        ('/', '*') => (depth, j) = (depth + 1, j + 2),
                        ('*', '/') => (depth, j) = (depth - 1, j + 2),
                        _ => j += 1,
                    }
                }
                (Kind::Comment, j)
            }
            '"' => {
                let mut j = i + 1;
                while j < chars.len() && at(j) != '"' {
                    j += if at(j) == '\\' { 2 } else { 1 };
                }
                (Kind::Literal, j + 1)
            }
            // r"…", r#"…"#, and the same after b or c; r#name is code.
            'r' if starts_word(i) || (matches!(at(i - 1), 'b' | 'c') && starts_word(i - 1)) => {
                let quote = find(i + 1, &|j| at(j) != '#');
                let hashes = quote - i - 1;
                let closes = |j: usize| at(j) == '"' && (1..=hashes).all(|k| at(j + k) == '#');
                match at(quote) {
                    '"' => (Kind::Literal, find(quote + 1, &closes) + 1 + hashes),
                    _ => (Kind::Code, i + 1),
                }
            }
            '\'' if at(i + 1) == '\\' => (Kind::Literal, find(i + 3, &|j| at(j) == '\'') + 1),
            '\'' if at(i + 2) == '\'' => (Kind::Literal, i + 3),
            _ => (Kind::Code, i + 1),
        };
        for &c in &chars[i..end.min(chars.len())] {
            let keep = |wanted: Kind| if c == '\n' || kind == wanted { c } else { ' ' };
            code.push(keep(Kind::Code));
            comments.push(keep(Kind::Comment));
        }
        i = end;
    }
    Layers { code, comments }
}

#[derive(Debug, Clone, PartialEq)]
struct Token {
    line: usize,
    text: String,
}

/// Words, `::` and single marks.
fn tokens(code: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    for (line, row) in (1..).zip(code.lines()) {
        let mut rest = row.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let length = match rest.find(|c| !word(c)).unwrap_or(rest.len()) {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                length => length,
            };
            let text = rest[..length].to_string();
            tokens.push(Token { line, text });
            rest = rest[length..].trim_start();
        }
    }
    tokens
}

/// Where the bracket that opens at `open` closes (the end, if it never does).
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i;
        }
    }
    tokens.len()
}

/// The tokens without attributes and, if asked, without the test modules (those
/// with a body that stand under `#[cfg(test)]` or `#[cfg(all(test, …))]`).
fn bare(tokens: &[Token], without_tests: bool) -> Vec<Token> {
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text.as_str());
    let (mut kept, mut for_tests, mut i) = (Vec::new(), false, 0);
    while i < tokens.len() {
        let open = i + if text(i + 1) == "!" { 2 } else { 1 };
        if text(i) == "#" && text(open) == "[" {
            let end = closing(tokens, open);
            let said: String = (open..end).map(text).collect();
            for_tests |= said == "[cfg(test)" || said.starts_with("[cfg(all(test,");
            i = end + 1;
            continue;
        }
        if for_tests && without_tests {
            let mut at = i + usize::from(text(i) == "pub");
            if at > i && text(at) == "(" {
                at = closing(tokens, at) + 1;
            }
            if text(at) == "mod" && text(at + 2) == "{" {
                i = closing(tokens, at + 2) + 1;
                for_tests = false;
                continue;
            }
        }
        for_tests = false;
        kept.push(tokens[i].clone());
        i += 1;
    }
    kept
}

/// The code of a file as tokens, without attributes.
fn code(text: &str, without_tests: bool) -> Vec<Token> {
    bare(&tokens(&layers(text).code), without_tests)
}

#[derive(Debug, PartialEq)]
struct NamedPath {
    line: usize,
    segments: Vec<String>,
    /// How many modules with a body stand around it in its file.
    depth: usize,
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Every path of two or more names, and every leaf of every `use` tree in full.
fn named_paths(tokens: &[Token]) -> Vec<NamedPath> {
    let text = |i: usize| tokens.get(i).map_or("", |token| token.text.as_str());
    let mut paths = Vec::new();
    // For each open brace, whether it opens a module.
    let mut braces: Vec<bool> = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let depth = braces.iter().filter(|&&module| module).count();
        match text(i) {
            "{" => braces.push(i >= 2 && text(i - 2) == "mod"),
            "}" => drop(braces.pop()),
            "use" if is_word(text(i + 1)) || matches!(text(i + 1), "::" | "{") => {
                i = use_tree(tokens, i + 1, &[], depth, &mut paths);
                continue;
            }
            word if is_word(word) => {
                let start = i;
                while text(i + 1) == "::" && is_word(text(i + 2)) {
                    i += 2;
                }
                let continues =
                    start >= 2 && text(start - 1) == "::" && (is_word(text(start - 2)) || text(start - 2) == ">");
                if i > start && !continues {
                    let segments = (start..=i).step_by(2).map(|i| text(i).to_string()).collect();
                    let line = tokens[start].line;
                    paths.push(NamedPath { line, segments, depth });
                }
            }
            _ => {}
        }
        i += 1;
    }
    paths
}

/// Reads one branch of a `use` tree and returns where it ends.
fn use_tree(tokens: &[Token], from: usize, prefix: &[String], depth: usize, paths: &mut Vec<NamedPath>) -> usize {
    let mut segments = prefix.to_vec();
    let mut i = from;
    while let Some(token) = tokens.get(i) {
        match token.text.as_str() {
            "{" => {
                i += 1;
                while i < tokens.len() && !matches!(tokens[i].text.as_str(), "}" | ";") {
                    let comma = usize::from(tokens[i].text == ",");
                    i = use_tree(tokens, i + comma, &segments, depth, paths);
                }
                return i + 1;
            }
            "}" | "," | ";" => break,
            "as" => i += 1,
            name if is_word(name) || name == "*" => segments.push(name.to_string()),
            _ => {}
        }
        i += 1;
    }
    if segments.len() > prefix.len() {
        let line = tokens[from].line;
        paths.push(NamedPath { line, segments, depth });
    }
    i
}

// ---- the inspectors -------------------------------------------------------

fn import_faults(file: &str, text: &str, table: &Table) -> Vec<String> {
    let room = room_of(file);
    // In a binary `crate` is the binary itself.
    if matches!(room, "lib" | "bin") {
        return Vec::new();
    }
    let Some(row) = table.room(room) else {
        return vec![format!(
            "{file}:1: room `{room}` is not in the floor table. Mend: give it a row in DESIGN.md, \
             or move the file into a room that has one"
        )];
    };
    // How far below the crate's root the file's own module lies.
    let inside = file.trim_end_matches(".rs").trim_end_matches("/mod");
    let level = inside.split('/').count() - 1;
    let mut faults = BTreeSet::new();
    for NamedPath { line, segments, depth } in named_paths(&code(text, false)) {
        let names: Vec<&str> = segments.iter().map(String::as_str).collect();
        let names = names.strip_prefix(&["self"]).unwrap_or(&names);
        let ups = names.iter().take_while(|&&name| name == "super").count();
        let target = match names.strip_prefix(&["crate"]) {
            Some(rest) => rest.first(),
            None if ups > 0 && ups == level + depth => names.get(ups),
            None => continue,
        };
        let target = target.copied().unwrap_or("self");
        let shown = names.join("::");
        if target == room || row.imports.contains(target) && table.room(target).is_some() {
            continue;
        }
        let fault = match table.room(target) {
            Some(other) => format!(
                "`{room}` (floor {}) names `{shown}`, but its imports cell does not let it into \
                 `{target}` (floor {}). Mend: move the code to the floor it belongs on, or hand \
                 what it needs down as an argument; only if the design changed, change the cell",
                row.floor, other.floor
            ),
            None => format!(
                "`{shown}` names no room of the floor table. Mend: name the item through the room \
                 it lives in, or give `{target}` a row in DESIGN.md"
            ),
        };
        faults.insert((line, fault));
    }
    let at_line = |(line, fault)| format!("{file}:{line}: {fault}");
    faults.into_iter().map(at_line).collect()
}

fn unsafe_faults(file: &str, text: &str, table: &Table) -> Vec<String> {
    let room = room_of(file);
    if table.room(room).is_some_and(|row| row.may_be_unsafe) {
        return Vec::new();
    }
    let code = code(text, true);
    let lines: BTreeSet<usize> = code.iter().filter(|token| token.text == "unsafe").map(|token| token.line).collect();
    let fault = |line| {
        format!(
            "{file}:{line}: `unsafe` in room `{room}`, which is not marked for it. Mend: put the \
             operation behind a safe function of a room marked `yes` in DESIGN.md's floor table"
        )
    };
    lines.into_iter().map(fault).collect()
}

/// The ids in a text: a capital letter and digits, standing alone.
fn ids(text: &str) -> BTreeSet<&str> {
    let is_id = |word: &&str| {
        let digits = word.strip_prefix(|c: char| c.is_ascii_uppercase()).unwrap_or("");
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
    };
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(is_id).collect()
}

/// Every `SAFETY:` note: the line it starts on, and its text with the comment
/// lines that continue it.
fn safety_notes(text: &str) -> Vec<(usize, String)> {
    let Layers { code, comments } = layers(text);
    let mut notes: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (line, (comment, code)) in (1..).zip(comments.lines().zip(code.lines())) {
        let said = comment.trim().trim_start_matches(['/', '*', '!', ' ']);
        let starts = said.get(..7).is_some_and(|word| word.eq_ignore_ascii_case("SAFETY:"));
        if starts {
            notes.push((line, said.to_string()));
        } else if open && !said.is_empty() && code.trim().is_empty() {
            notes.last_mut().expect("a note is open").1 += &format!(" {said}");
        }
        open = starts || open && !said.is_empty() && code.trim().is_empty();
    }
    notes
}

/// `files` are those of one room.
fn safety_faults(room: &str, files: &[&(String, String)]) -> Vec<String> {
    let names = [format!("src/{room}/mod.rs"), format!("src/{room}.rs")];
    // A program has no `mod.rs` above it: its `main.rs` speaks for it.
    let main = files.iter().find(|file| file.0.starts_with("src/bin/") && file.0.ends_with("/main.rs"));
    let head = names.iter().find_map(|name| files.iter().find(|file| &file.0 == name)).or(main);
    let mut defined = Vec::new();
    for (line, row) in (1..).zip(head.map_or("", |head| &head.1).lines()) {
        if row.starts_with("//!") {
            let bold = row.split("**").skip(1).step_by(2);
            defined.extend(bold.filter(|word| ids(word).contains(word)).map(|id| (line, id)));
        }
    }
    let place = head.map_or(names[0].as_str(), |head| &head.0);
    let mut faults = Vec::new();
    for (file, text) in files {
        for (line, note) in safety_notes(text) {
            if !ids(&note).iter().any(|id| defined.iter().any(|(_, known)| known == id)) {
                faults.push(format!(
                    "{file}:{line}: SAFETY note cites no promise of its room. Mend: name the one it \
                     rests on, or add it in bold (**M2**) to the //! header of {place}"
                ));
            }
        }
    }
    let cited = |id: &str| {
        files.iter().any(|(_, text)| {
            let comments = layers(text).comments;
            let mut rows = comments.lines().filter(|row| !row.trim_start().starts_with("//!"));
            rows.any(|row| ids(row).contains(id))
        })
    };
    for (line, id) in defined.iter().filter(|(_, id)| !cited(id)) {
        faults.push(format!(
            "{place}:{line}: promise {id} is cited nowhere in `{room}`. Mend: cite it in the SAFETY \
             notes that rest on it, or take it out"
        ));
    }
    faults
}

fn outside_faults(file: &str, text: &str, table: &Table) -> Vec<String> {
    let room = room_of(file);
    let code = code(text, true);
    let mut faults = BTreeSet::new();
    let mut sync_fault = |line: usize, what: &str| {
        if room != "sync" && !file.starts_with(TOOL) {
            let fault = format!("`{what}` outside {SYNC}. Mend: use what `crate::sync` offers, or add it there");
            faults.insert((line, fault));
        }
    };
    for token in &code {
        if token.text == "parking_lot" || token.text.starts_with("crossbeam") {
            sync_fault(token.line, &token.text);
        }
    }
    let paths = named_paths(&code);
    for NamedPath { line, segments, .. } in &paths {
        let second = segments.get(1).map_or("", String::as_str);
        match (segments[0].as_str(), second) {
            ("std", "sync" | "thread") | ("core", "sync") => {
                sync_fault(*line, &format!("{}::{second}", segments[0]));
            }
            ("loom", _) => sync_fault(*line, "loom"),
            _ => {}
        }
    }
    for NamedPath { line, segments, .. } in &paths {
        let outside = segments[0].as_str();
        let listed = table.room(room).is_some_and(|row| row.imports.contains(outside));
        if FENCED_CRATES.contains(&outside) && !listed {
            let fault = format!(
                "`{outside}` in room `{room}`, whose imports cell does not list it. Mend: call a \
                 function of a room that lists it in DESIGN.md's floor table"
            );
            faults.insert((*line, fault));
        }
    }
    let at_line = |(line, fault)| format!("{file}:{line}: {fault}");
    faults.into_iter().map(at_line).collect()
}

fn missing_path_faults(design: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let dirs = ["src/", "tests/", "loom_tests/", "examples/", "benches/"];
    let is_path = |word: &str| dirs.iter().any(|dir| word.starts_with(dir)) && !word.contains(['*', '{', '<', '…']);
    let missing = |&(_, word): &(usize, &str)| is_path(word) && !exists(word);
    let fault =
        |(line, word)| format!("DESIGN.md:{line}: `{word}` does not exist. Mend: write the path that the file has now");
    backticked(design).into_iter().filter(missing).map(fault).collect()
}

/// What stands under the heading that has these words, up to the next.
fn section<'a>(design: &'a str, heading: &str) -> &'a str {
    let start = design.find(heading).unwrap_or(design.len());
    let text = &design[start..];
    &text[..text.find("\n## ").unwrap_or(text.len())]
}

/// Rows of a table whose last cell does not name a test by its file and its function.
fn missing_test_faults(section: &str, read: impl Fn(&str) -> String) -> Vec<String> {
    let rows = section.lines().filter(|row| row.starts_with('|')).skip(2);
    let shown_by = |row: &str| {
        let cell = row.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or_default().to_string();
        let words: Vec<String> = backticked(&cell).into_iter().map(|(_, word)| word.to_string()).collect();
        <[String; 2]>::try_from(words).ok()
    };
    let is_there = |[file, test]: [String; 2]| read(&file).contains(&format!("#[test]\nfn {test}()"));
    let fault = |row| format!("DESIGN.md: `{row}`. Mend: name file and function of a test in the last cell");
    rows.filter(|row| !shown_by(row).is_some_and(is_there)).map(fault).collect()
}

fn opening_fault(file: &str, text: &str) -> Option<String> {
    let fault = "the file does not open with `//!`. Mend: say in its first line what it is for";
    (!text.starts_with("//!")).then(|| format!("{file}:1: {fault}"))
}

fn loom_fault(file: &str, text: &str, exists: impl Fn(&str) -> bool) -> Option<String> {
    let is_comment = |row: &&str| row.trim_start().starts_with("//");
    let rows = text.lines().skip_while(|row| row.trim().is_empty());
    let block: Vec<&str> = rows.take_while(is_comment).collect();
    let block = block.join("\n");
    let is_source = |word: &str| word.starts_with("src/") && word.ends_with(".rs");
    let names_one = backticked(&block).into_iter().any(|(_, word)| is_source(word) && exists(word));
    (!names_one).then(|| {
        format!(
            "{file}:1: the first comment names no source file that exists. Mend: name the file it \
             models, in backticks, as in `src/room/file.rs`"
        )
    })
}

fn length_fault(file: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LONGEST_FILE).then(|| {
        format!(
            "{file}:{lines}: {lines} lines, more than {LONGEST_FILE}. Mend: split it along what it \
             speaks of"
        )
    })
}

// ---- the inspectors are shown to see --------------------------------------

const DESIGN: &str = "# Design\n\n## Floors and rooms\n
| floor | room | imports | unsafe | speaks of |
|---|---|---|---|---|
| 0 | `sync.rs`, `error.rs`, `base/` | std | no | names |
| 1 | `os/` | 0, libc, memmap2 | yes | pages |
| 2 | `host/` | 0, `os` | yes | code |
| 3 | `link/` | 0, `host` | no | symbols |
| 4 | `jit.rs` | all below | no | everything |
| 5 | `bin/` | `jit.rs` and public types | no | words |
";

fn table() -> Table {
    read_table(DESIGN).unwrap_or_else(|fault| panic!("{fault}"))
}

/// The lines of the faults, and that each says how to mend it.
fn lines_of(faults: &[String]) -> Vec<usize> {
    let line = |fault: &String| {
        assert!(fault.contains("Mend: "), "{fault}");
        fault.split(':').nth(1).and_then(|line| line.parse().ok()).expect("a line number")
    };
    faults.iter().map(line).collect()
}

#[test]
fn the_table_reader_knows_numbers_rooms_crates_and_all_below() {
    let table = table();
    let imports = |room: &str| {
        let row = table.room(room).expect("the room is there");
        row.imports.iter().cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(imports("base"), "std");
    assert_eq!(imports("os"), "base error libc memmap2 sync");
    assert_eq!(imports("jit"), "base error host link os sync");
    assert_eq!(imports("bin"), "jit");
    assert!(table.room("os").is_some_and(|os| os.may_be_unsafe && os.floor == 1));
    assert!(table.room("link").is_some_and(|link| !link.may_be_unsafe));
}

#[test]
fn the_table_reader_sees_a_table_it_cannot_use() {
    let fault = |from: &str, to: &str| {
        let broken = DESIGN.replacen(from, to, 1);
        assert_ne!(broken, DESIGN);
        read_table(&broken).err().unwrap_or_else(|| panic!("{to} was not seen"))
    };
    assert!(fault("Floors", "Rooms").starts_with("DESIGN.md:1: no floor table"));
    assert!(fault("speaks of", "says").starts_with("DESIGN.md:5: no floor table"));
    assert!(fault("| 1 |", "| one |").starts_with("DESIGN.md:8: floor \"one\""));
    assert!(fault("| yes |", "| maybe |").starts_with("DESIGN.md:8: unsafe is \"maybe\""));
    assert!(fault("| pages", "").starts_with("DESIGN.md:8: 4 cells"));
    assert!(fault("0, `os`", "0, `so`").starts_with("DESIGN.md:9: `so` is imported"));
}

#[test]
fn the_stripper_blanks_comments_and_literals_and_keeps_places() {
    let text = "a /* b /* c */ d */ e \"f // \\\" g\" h // i \"\n\
                j r#\"k \" // l\"# m br\"n\\\" o 'p' q '\\'' r '\"' s<'t> u r#v 'w: x b'\\\\' y\n\"z\n\" A";
    let layers = layers(text);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(&layers.code), "a e h j m b o q r s<'t> u r#v 'w: x b y A");
    assert_eq!(words(&layers.comments), "/* b /* c */ d */ // i \"");
    assert_eq!(layers.code.lines().count(), 4);
    assert_eq!(layers.code.find('m'), Some(text.chars().take_while(|&c| c != 'm').count()));
}

#[test]
fn the_path_reader_unfolds_use_trees_and_finds_inline_paths() {
    let text = "use {a::b, crate::{c::{self, D as E}, f::*,},};\nuse ::g;\n\
                fn h() -> impl I + use<> { j::<k::L>::m; <n::O>::p(); q.r }\nmod s { use super::t; }";
    let paths = named_paths(&tokens(text));
    let shown = |path: &NamedPath| format!("{}{}", path.segments.join("::"), "'".repeat(path.depth));
    let shown: Vec<String> = paths.iter().map(shown).collect();
    let expected = ["a::b", "crate::c::self", "crate::c::D", "crate::f::*", "g", "k::L", "n::O", "super::t'"];
    assert_eq!(shown, expected);
    assert_eq!(paths.iter().map(|path| path.line).collect::<Vec<_>>(), [1, 1, 1, 1, 2, 3, 3, 4]);
}

#[test]
fn a_forbidden_import_is_seen_in_every_guise() {
    let table = table();
    let lines = |file: &str, text: &str| lines_of(&import_faults(file, text, &table));
    let good = "use crate::{base::A, os::{B, C}};\nuse crate::host::x;\n// crate::jit\nuse super::y;\n\
                const D: &str = \"crate::jit\";\npub(crate) use self::z;";
    assert_eq!(lines("src/host/file.rs", good), []);
    for bad in [
        "\nuse crate::jit;",
        "use crate::{os,\nlink::{A}, base};",
        "fn f() {\ncrate::link::g() }",
        "mod a {\nuse super::super::super::link; }",
        "\nuse super::super::link::A;",
        "#[cfg(test)] mod tests {\nuse crate::jit::Jit; }",
        "macro_rules! m { () => {\n$crate::jit::x() } }",
        "\nuse crate::*;",
        "\nuse crate::Jit;",
        "\nuse crate::cellar::X;",
    ] {
        assert_eq!(lines("src/host/file.rs", bad), [2], "{bad}");
    }
    assert_eq!(lines("src/host/mod.rs", "use super::link;"), [1]);
    assert_eq!(lines("src/error.rs", "use super::base;"), [1]);
    assert_eq!(lines("src/os/mod.rs", "use crate::libc;"), [1]);
    assert_eq!(lines("src/jit.rs", "use super::{link, host, os};"), []);
    assert_eq!(lines("src/cellar/mod.rs", ""), [1]);
    assert_eq!(lines("src/bin/tool/main.rs", "use crate::args;"), []);
}

#[test]
fn unsafe_code_outside_its_rooms_is_seen() {
    let table = table();
    let lines = |file: &str, text: &str| lines_of(&unsafe_faults(file, text, &table));
    let bad = "#![deny(unsafe_code)]\n// unsafe\nfn f() { unsafe { g() } }\nconst S: &str = \"unsafe\";\n\
               #[cfg(test)]\n#[allow(x)]\npub(crate) mod tests { fn h() { unsafe { i() } } }\n\
               unsafe fn j() {}\n#[cfg(test)]\nunsafe fn k() {}\n#[unsafe(no_mangle)] fn l() {}";
    assert_eq!(lines("src/link/a.rs", bad), [3, 8, 10]);
    assert_eq!(lines("src/lib.rs", bad), [3, 8, 10]);
    assert_eq!(lines("src/os/a.rs", bad), []);
}

#[test]
fn safety_notes_without_a_promise_and_promises_without_a_note_are_seen() {
    let file = |name: &str, text: &str| (name.to_string(), text.to_string());
    let head = file("src/os/mod.rs", "//! **O1** mapped.\n//!\n//! **O2** ours; **O3rd** O4.\nmod a;");
    let good = file("src/os/a.rs", "// SAFETY: mapped,\n// says O1\nunsafe {}\nf(); // SAFETY: (O2).\n");
    assert_eq!(safety_faults("os", &[&head, &good]), [""; 0]);
    let bad = file(
        "src/os/a.rs",
        "// SAFETY: sure\nlet o = O1;\n// O1\n// SAFETY: O3, O4\n// SAFETY: O1\n/* safety: O11, xO1 */",
    );
    let faults = safety_faults("os", &[&head, &bad]);
    assert_eq!(lines_of(&faults), [1, 4, 6, 3]);
    assert!(faults[3].starts_with("src/os/mod.rs:3: promise O2"));
    let tool = [file("src/bin/tool/main.rs", "//! **B1** typed.\n"), file("src/bin/tool/a.rs", "// SAFETY: B1\n")];
    assert_eq!(safety_faults("bin", &[&tool[0], &tool[1]]), [""; 0]);
    assert_eq!(lines_of(&safety_faults("bin", &[&tool[1]])), [1]);
    let alone = file("src/sync.rs", "//! Nothing.\n// SAFETY: S1\n");
    assert_eq!(lines_of(&safety_faults("sync", &[&alone])), [2]);
}

#[test]
fn locks_threads_and_foreign_crates_are_seen() {
    let table = table();
    let lines = |file: &str, text: &str| lines_of(&outside_faults(file, text, &table));
    let bad = "use std::{fmt, sync::Arc};\nstd::thread::spawn(f);\nuse parking_lot as p;\n\
               crossbeam_epoch::pin();\nloom::model(f);\n#[cfg(loom)]\nuse std::fmt; // std::sync\n\
               use core::sync::atomic;\n#[cfg(all(test, not(loom)))]\nmod tests { use std::sync::Arc; }";
    assert_eq!(lines("src/os/a.rs", bad), [1, 2, 3, 4, 5, 8]);
    assert_eq!(lines("src/sync.rs", bad), []);
    let bad = "use libc;\nlet libc = libc::mmap;\n// libc::a\nuse crate::libc_free;";
    assert_eq!(lines("src/host/a.rs", bad), [1, 2]);
    assert_eq!(lines("src/sync.rs", bad), [1, 2]);
    assert_eq!(lines("src/os/a.rs", bad), []);
}

#[test]
fn missing_paths_openings_models_and_long_files_are_seen() {
    let exists = |path: &str| matches!(path, "src/os/" | "src/jit.rs");
    let design = "`src/os/`, `src/so/`\nsrc/x.rs `src/jit.rs` `host/`\n```\n`src/y.rs`\n```\n`benches/a.rs -v`";
    assert_eq!(lines_of(&missing_path_faults(design, exists)), [1, 6]);

    assert_eq!(opening_fault("src/a.rs", "//! A.\n"), None);
    for bad in ["", "// A.\n", "\n//! A.\n", "#![cfg(loom)]\n//! A.\n"] {
        assert!(opening_fault("src/a.rs", bad).is_some(), "{bad}");
    }
    let rows = "| a | b |\n|---|---|\n| x | `f.rs` `t` |\n| y | `f.rs` `u` |\n| z | the same |\n";
    let read = |_: &str| "#[test]\nfn t() {}\nfn u() {}".to_string();
    assert_eq!(missing_test_faults(rows, read).len(), 2);
    assert_eq!(section("## 1. A\na\n## 2. B\nb\n## 3. C", "B"), "B\nb");
    assert_eq!(loom_fault("loom_tests/loom_a.rs", "//! A model\n//! of `src/jit.rs`.\n", exists), None);
    for bad in ["//! src/jit.rs", "//! `src/so.rs`", "//! `src/os/`", "//! A.\n\n// `src/jit.rs`"] {
        assert!(loom_fault("loom_tests/loom_a.rs", bad, exists).is_some(), "{bad}");
    }
    assert_eq!(length_fault("src/a.rs", &"\n".repeat(LONGEST_FILE)), None);
    assert!(length_fault("src/a.rs", &"\n".repeat(LONGEST_FILE + 1)).is_some());
}
