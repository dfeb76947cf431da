//! The inspectors. Each takes text and returns one line for each fault: where it is, what is wrong, and how to mend it.

use std::collections::BTreeSet;

use crate::reading::{Layers, NamedPath, Token, code, layers, named_paths, tokens as tokens_of};
use crate::table::{Room, Table, backticked};
use crate::tree::room_of;
use crate::{FENCED_CRATES, HOST_NAMES, LONGEST_FILE, NATIVE_FILES, SYNC, TOOL};

/// Imports of rooms that the floor table does not allow.
pub fn import_faults(file: &str, text: &str, table: &Table) -> Vec<String> {
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

/// The imports in a row of the floor table that lead to the same floor or a higher one.
pub fn upward_faults(room: &Room, table: &Table) -> Vec<String> {
    let is_upward = |import: &&Room| import.floor >= room.floor && room.floor > 0;
    let upward = room.imports.iter().filter_map(|import| table.room(import)).filter(is_upward);
    let fault = |import: &Room| {
        format!(
            "DESIGN.md:1: the floor table lets `{}` (floor {}) import `{}` (floor {}). Mend: a room imports lower floors \
             only; move what both need to a lower floor",
            room.name, room.floor, import.name, import.floor
        )
    };
    upward.map(fault).collect()
}

pub fn unsafe_faults(file: &str, text: &str, table: &Table) -> Vec<String> {
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
pub fn ids(text: &str) -> BTreeSet<&str> {
    let is_id = |word: &&str| {
        let digits = word.strip_prefix(|c: char| c.is_ascii_uppercase()).unwrap_or("");
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
    };
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(is_id).collect()
}

/// Every `SAFETY:` note: the line on which it starts, and its text with the comment lines that continue it.
pub fn safety_notes(text: &str) -> Vec<(usize, String)> {
    let Layers { code, comments } = layers(text);
    let mut notes: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (line, (comment, code)) in (1..).zip(comments.lines().zip(code.lines())) {
        // A note in an example of the documentation is the note of the user, and cites no promise of this crate.
        let is_documentation = ["///", "//!"].iter().any(|mark| comment.trim().starts_with(mark));
        let said = if is_documentation { "" } else { comment.trim().trim_start_matches(['/', '*', '!', ' ']) };
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

/// `SAFETY:` notes that cite no promise of the room, and promises that no note cites. `files` are those of the room.
pub fn safety_faults(room: &str, files: &[&(String, String)]) -> Vec<String> {
    let names = [format!("src/{room}/mod.rs"), format!("src/{room}.rs")];
    // A program has no `mod.rs`. Its promises are in the header of its `main.rs`.
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
            let is_defined = |id: &&str| defined.iter().any(|(_, known)| known == id);
            if !ids(&note).iter().any(is_defined) {
                faults.push(format!(
                    "{file}:{line}: SAFETY note cites no promise of its room. Mend: name the one it \
                     rests on, or add it in bold (**M2**) to the //! header of {place}"
                ));
            } else if let Some(id) = ids(&note).iter().find(|id| !is_defined(id)) {
                faults.push(format!(
                    "{file}:{line}: SAFETY note cites {id}, which {place} does not define. Mend: cite the promise by the id \
                     that it has"
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

/// Locks and threads that do not come from the sync room, and fenced crates in rooms that do not list them.
pub fn outside_faults(file: &str, text: &str, table: &Table) -> Vec<String> {
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

/// Ways to the process that runs linked code that do not lead through `Executor`, in the rooms above `host`.
pub fn executor_faults(file: &str, text: &str) -> Vec<String> {
    // A `tests.rs` is a test module in a file of its own.
    if !matches!(room_of(file), "layer" | "platform" | "jit") || file.ends_with("/tests.rs") {
        return Vec::new();
    }
    let tokens = code(text, true);
    let mut faults = BTreeSet::new();
    for NamedPath { line, segments, .. } in named_paths(&tokens) {
        let names: Vec<&str> = segments.iter().map(String::as_str).collect();
        let names = names.strip_prefix(&["crate"]).unwrap_or(&names);
        let is_allowed = match names {
            ["host", name, ..] => HOST_NAMES.contains(name),
            ["host"] => false,
            ["os", name, ..] => *name == "InputFile",
            ["InProcess", name] => *name == "address_in_this_thread",
            _ => true,
        };
        if !is_allowed {
            faults.insert((line, names.join("::")));
        }
    }
    for pair in tokens.windows(2).filter(|pair| pair[0].text == "InProcess" && pair[1].text == ".") {
        faults.insert((pair[0].line, "InProcess.".to_string()));
    }
    let fault = |(line, what)| {
        format!(
            "{file}:{line}: `{what}` acts on this process. Mend: call a method of the `Executor` that the session has; a new \
             type or trait of `host` that acts on no process goes into HOST_NAMES in tests/architecture/main.rs"
        )
    };
    faults.into_iter().map(fault).collect()
}

/// Words and bytes of one instruction set outside `arch/`.
pub fn architecture_faults(file: &str, text: &str) -> Vec<String> {
    if file.contains("/arch/") {
        return Vec::new();
    }
    let tokens = code(text, true);
    let words: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
    // The type's name is part of the public names of the crate.
    let is_named = |word: &str| {
        let word = word.to_ascii_lowercase();
        word.contains("x86") || word.contains("aarch64") && word != "aarch64relocation"
    };
    let is_trap = |word: &str| word.eq_ignore_ascii_case("0xcc");
    let endbr64 = ["0xf3", ",", "0x0f", ",", "0x1e", ",", "0xfa"];
    let mut faults = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        if is_named(&token.text) || is_trap(&token.text) || words[at..].starts_with(&endbr64) {
            faults.insert((token.line, token.text.clone()));
        }
    }
    // `code` leaves attributes out.
    for token in tokens_of(&layers(text).code).into_iter().filter(|token| token.text == "target_arch") {
        faults.insert((token.line, token.text));
    }
    let fault = |(line, what)| {
        format!(
            "{file}:{line}: `{what}` depends on the instruction set. Mend: make it a method of `Arch` in src/arch/mod.rs, \
             with the value in the folder of the architecture"
        )
    };
    faults.into_iter().map(fault).collect()
}

/// Uses of this process's architecture for what an executor may run.
pub fn native_faults(file: &str, text: &str) -> Vec<String> {
    let rooms = ["src/session/", "src/link/", "src/layer/", "src/platform/", "src/jit/", "src/jit.rs"];
    let is_test = file.ends_with("/tests.rs");
    if is_test || !rooms.iter().any(|room| file.starts_with(room)) || NATIVE_FILES.contains(&file) {
        return Vec::new();
    }
    let fault = |token: Token| {
        format!(
            "{file}:{}: `NATIVE` is the architecture of this process. Mend: take that of the graph, or `Executor::arch`",
            token.line
        )
    };
    code(text, true).into_iter().filter(|token| token.text == "NATIVE").map(fault).collect()
}

pub fn missing_path_faults(document: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let dirs = ["src/", "tests/", "loom_tests/", "examples/", "benches/", "crates/", "docs/", "fuzz/", ".ci/"];
    let is_path = |word: &str| dirs.iter().any(|dir| word.starts_with(dir)) && !word.contains(['*', '{', '<', '…']);
    let missing = |&(_, word): &(usize, &str)| is_path(word) && !exists(word);
    let fault = |(line, word)| {
        format!("{document}:{line}: `{word}` does not exist. Mend: write the path that the file has now")
    };
    backticked(text).into_iter().filter(missing).map(fault).collect()
}

/// Dependencies of the manifest that the design's table of crates does not justify, and crates of the table that are no
/// dependency. Dependencies of optional tools (`cli`, `tracing`) do not count.
pub fn dependency_faults(design: &str, manifest: &str) -> Vec<String> {
    let section = manifest.split("[dependencies]").nth(1).unwrap_or_default().split("\n[").next().unwrap_or_default();
    let is_counted = |row: &&str| {
        let is_of_range_extension = row.starts_with("iced-x86");
        !row.is_empty() && !row.starts_with('#') && (!row.contains("optional = true") || is_of_range_extension)
    };
    let name = |row: &str| row.split(['=', '.', ' ']).next().unwrap_or_default().to_string();
    let used: BTreeSet<String> = section.lines().filter(is_counted).map(name).collect();
    let rows = design.lines().skip_while(|row| !row.starts_with("| crate | why |")).skip(2);
    let rows = rows.take_while(|row| row.starts_with('|'));
    let cells: String = rows.filter_map(|row| row.split('|').nth(1)).collect::<Vec<_>>().join("\n");
    let listed =
        backticked(&cells).into_iter().map(|(_, word)| word.to_string()).filter(|word| word != "range-extension");
    let listed: BTreeSet<String> = listed.collect();
    let missing = used.difference(&listed).map(|name| {
        format!("DESIGN.md:1: the table of crates lacks `{name}`. Mend: say in one line why the crate is needed")
    });
    let stale = listed.difference(&used).map(|name| {
        format!("DESIGN.md:1: `{name}` is no dependency of the default build. Mend: take it out of the table of crates")
    });
    missing.chain(stale).collect()
}

/// Models that no row of the design names.
pub fn missing_model_faults(design: &str, models: &[String]) -> Vec<String> {
    let listed: BTreeSet<&str> = backticked(design).into_iter().map(|(_, word)| word).collect();
    let missing = models.iter().filter(|model| !listed.contains(model.as_str()));
    let fault = |model| format!("{model}:1: the table of protocols in DESIGN.md lacks this model. Mend: add a row");
    missing.map(fault).collect()
}

/// Functions of this crate that a suppression names and that do not exist. Such a suppression hides nothing.
pub fn suppression_faults(suppressions: &str, read: impl Fn(&str) -> String) -> Vec<String> {
    let named =
        (1..).zip(suppressions.lines()).filter_map(|(line, row)| Some((line, row.strip_prefix("race:jittison::")?)));
    let is_missing = |(_, path): &(usize, &str)| {
        let (module, function) = path.rsplit_once("::").unwrap_or(("lib", path));
        !read(&format!("src/{}.rs", module.replace("::", "/"))).contains(&format!("fn {function}("))
    };
    let fault =
        |(line, path)| format!(".ci/tsan.supp:{line}: `{path}` is no function. Mend: write the name that it has now");
    named.filter(is_missing).map(fault).collect()
}

/// Rows of a table whose last cell does not name a test by its file and its function.
pub fn missing_test_faults(section: &str, read: impl Fn(&str) -> String) -> Vec<String> {
    let rows = section.lines().filter(|row| row.starts_with('|')).skip(2);
    let shown_by = |row: &str| {
        let cell = row.trim_end().trim_end_matches('|').rsplit('|').next().unwrap_or_default().to_string();
        let words: Vec<String> = backticked(&cell).into_iter().map(|(_, word)| word.to_string()).collect();
        <[String; 2]>::try_from(words).ok()
    };
    let is_there = |[file, test]: [String; 2]| read(&file).contains(&format!("#[test]\nfn {test}()"));
    let fault = |row| format!("docs/orc-defects.md: `{row}`. Mend: name file and function of a test in the last cell");
    rows.filter(|row| !shown_by(row).is_some_and(is_there)).map(fault).collect()
}

pub fn opening_fault(file: &str, text: &str) -> Option<String> {
    let fault = "the file does not open with `//!`. Mend: say in its first line what it is for";
    (!text.starts_with("//!")).then(|| format!("{file}:1: {fault}"))
}

pub fn loom_fault(file: &str, text: &str, exists: impl Fn(&str) -> bool) -> Option<String> {
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

pub fn length_fault(file: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LONGEST_FILE).then(|| {
        format!(
            "{file}:{lines}: {lines} lines, more than {LONGEST_FILE}. Mend: split it along what it \
             speaks of"
        )
    })
}
