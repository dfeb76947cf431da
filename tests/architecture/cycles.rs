//! Imports between the files of one room: which sub-room imports which, and which files form a circle.
//!
//! An import of a name that a `mod.rs` re-exports counts as an import of the file that defines it. Re-exports of a `mod.rs`
//! are not imports of it. Test modules do not count.

use std::collections::{BTreeMap, BTreeSet};

use crate::reading::{NamedPath, code, named_paths};
use crate::table::SubRoom;

/// The files of one room and what each imports of the same room.
pub struct Imports {
    /// By module path, such as `session::pins::guards`: file, and the modules that it imports.
    modules: BTreeMap<String, (String, BTreeSet<String>)>,
}

/// The module path of a file: `session::pins` for `src/session/pins/mod.rs`, in any crate of the workspace.
fn module_of(file: &str) -> String {
    let inside = file.split_once("src/").map_or(file, |(_, inside)| inside).trim_end_matches(".rs");
    inside.trim_end_matches("/mod").replace('/', "::")
}

/// Makes a path absolute within the crate; `None` for a path that leads elsewhere.
fn absolute(module: &str, is_directory: bool, path: &NamedPath) -> Option<Vec<String>> {
    let mut place: Vec<String> = module.split("::").map(str::to_string).collect();
    let mut rest: &[String] = &path.segments;
    match rest.first().map(String::as_str) {
        Some("crate") => return Some(rest[1..].to_vec()),
        Some("self") => rest = &rest[1..],
        Some("super") => {}
        _ if is_directory => {}
        _ => return None,
    }
    let mut depth = path.depth;
    while rest.first().is_some_and(|first| first == "super") {
        match depth.checked_sub(1) {
            Some(less) => depth = less,
            None => drop(place.pop()),
        }
        rest = &rest[1..];
    }
    place.extend(rest.iter().cloned());
    Some(place)
}

impl Imports {
    /// Reads the files of a room: their paths and texts.
    pub fn read(files: &[&(String, String)]) -> Imports {
        let names: BTreeSet<String> = files.iter().map(|file| module_of(&file.0)).collect();
        let mut reexports: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
        for (file, text) in files {
            let module = module_of(file);
            let has_children = names.iter().any(|name| name.starts_with(&format!("{module}::")));
            if has_children {
                let leaves = named_paths(&code(text, true)).into_iter().filter(|path| path.depth == 0);
                let known = leaves.filter_map(|path| absolute(&module, true, &path));
                let by_name = known.filter_map(|path| Some((path.last()?.clone(), path)));
                let by_name = by_name.collect();
                reexports.insert(module, by_name);
            }
        }
        let resolve = |mut path: Vec<String>| -> Option<String> {
            for _ in 0..8 {
                let length = (1..=path.len()).rev().find(|length| names.contains(&path[..*length].join("::")))?;
                let module = path[..length].join("::");
                let Some(next) = path.get(length).and_then(|name| reexports.get(&module)?.get(name)) else {
                    return Some(module);
                };
                if *next == path {
                    return Some(module);
                }
                path = next.clone();
            }
            None
        };
        let mut modules = BTreeMap::new();
        for (file, text) in files {
            let module = module_of(file);
            let is_facade = file.ends_with("/mod.rs") || reexports.contains_key(&module) && !module.contains("::");
            let paths = if is_facade { Vec::new() } else { named_paths(&code(text, true)) };
            let imported = paths.iter().filter_map(|path| resolve(absolute(&module, false, path)?));
            let imported = imported.filter(|target| *target != module).collect();
            modules.insert(module, (file.clone(), imported));
        }
        Imports { modules }
    }

    /// Groups of files that import each other, directly or through others.
    pub fn circles(&self) -> Vec<Vec<String>> {
        let reach: BTreeMap<&String, BTreeSet<&String>> =
            self.modules.keys().map(|module| (module, self.reachable(module))).collect();
        let mut done: BTreeSet<&String> = BTreeSet::new();
        let mut circles = Vec::new();
        for module in self.modules.keys() {
            let circle: Vec<&String> =
                reach[module].iter().copied().filter(|other| reach[*other].contains(module)).collect();
            if circle.len() > 1 && !done.contains(module) {
                done.extend(&circle);
                circles.push(circle.into_iter().map(|module| self.modules[module].0.clone()).collect());
            }
        }
        circles
    }

    fn reachable(&self, from: &String) -> BTreeSet<&String> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&String> = vec![from];
        while let Some(module) = open.pop() {
            for next in self.modules.get(module).into_iter().flat_map(|(_, imported)| imported) {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen
    }

    /// Imports between sub-rooms that the table does not allow. Sub-rooms that it does not name are not checked.
    pub fn sub_room_faults(&self, table: &[SubRoom]) -> Vec<String> {
        let sub_room_of = |module: &str| {
            let path = module.replace("::", "/");
            table.iter().find(|row| path.starts_with(&format!("{}/", row.name)))
        };
        let mut faults = Vec::new();
        for (module, (file, imported)) in &self.modules {
            for target in imported {
                let (Some(from), Some(to)) = (sub_room_of(module), sub_room_of(target)) else { continue };
                if from.name != to.name && !from.imports.contains(&to.name) {
                    faults.push(format!(
                        "{file}:1: `{}` imports `{target}`, but its row in the table of sub-rooms does not list `{}`. \
                         Mend: move the code to the sub-room of its verb, or hand what it needs down as an argument",
                        from.name, to.name
                    ));
                }
            }
        }
        faults
    }
}

/// The fault of a `mod.rs` that holds code: its imports are not counted, so a circle through it is not seen.
pub fn facade_fault(file: &str, text: &str) -> Option<String> {
    const ITEMS: [&str; 7] = ["fn", "struct", "enum", "trait", "impl", "const", "static"];
    let item = code(text, true).into_iter().find(|token| ITEMS.contains(&token.text.as_str()))?;
    let is_facade = file.ends_with("/mod.rs");
    is_facade.then(|| {
        format!(
            "{file}:{}: `{}` in a `mod.rs`, whose imports are not counted. Mend: move the code into a file of its own, and \
             re-export it",
            item.line, item.text
        )
    })
}

/// One line for each circle of a room that no knot in the table of sub-rooms allows.
pub fn circle_faults(imports: &Imports, knots: &[(String, usize)]) -> Vec<String> {
    let is_allowed = |circle: &[String]| {
        knots.iter().any(|(place, most)| circle.len() <= *most && circle.iter().all(|file| file.starts_with(place)))
    };
    let fault = |circle: Vec<String>| {
        format!(
            "{}:1: {} files import each other: {}. Mend: move the type that closes the circle into a file of its own, \
             below both",
            circle[0],
            circle.len(),
            circle.join(", ")
        )
    };
    imports.circles().into_iter().filter(|circle| !is_allowed(circle)).map(fault).collect()
}
