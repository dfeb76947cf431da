//! Variables: which of a new version are which of the version before, and which sections keep their place.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::link::reload::live_object::{FindGlobal, LiveObject, LiveSection, LiveVariable};
use crate::link::reload::object_file::{Class, ObjectFile, Symbol, VariableKind};
use crate::link::reload::refusal::Refusal;

/// The section of a new version that holds variables.
pub(super) struct NewSection {
    pub(super) index: usize,
    pub(super) kind: VariableKind,
    pub(super) variables: Vec<LiveVariable>,
    /// The symbols of the variables.
    pub(super) symbols: Vec<usize>,
}

/// What becomes of a section of a new version.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is not linked. References go to the section that is in memory.
    Reused {
        base: String,
        /// What to add to an offset in the new section.
        delta: i64,
    },
    /// It is not linked. Only global names refer to it.
    Known,
    /// It is linked. Of its variables, those at these positions exist already.
    Linked { existing: Vec<usize> },
}

/// The sections with variables of an object.
pub(super) fn sections_of(file: &ObjectFile<'_>) -> Vec<NewSection> {
    let mut users = users(file);
    let section = |(index, kind)| {
        let symbols: Vec<(usize, &Symbol<'_>)> = file.data_symbols(index).collect();
        let variable = |(number, symbol): &(usize, &Symbol<'_>)| LiveVariable {
            key: symbol.key().to_string(),
            is_global: !symbol.is_local(),
            offset: symbol.value,
            size: symbol.size,
            users: users.remove(number).unwrap_or_default(),
        };
        let variables = symbols.iter().map(variable).collect();
        NewSection { index, kind, variables, symbols: symbols.iter().map(|(number, _)| *number).collect() }
    };
    file.variable_sections().map(section).collect()
}

/// For each local variable, by symbol: the functions that refer to it.
fn users(file: &ObjectFile<'_>) -> BTreeMap<usize, BTreeSet<String>> {
    let mut users: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for (section, relocation) in file.loaded_relocations() {
        let Some((target, offset)) = file.target(relocation) else { continue };
        if !matches!(file.sections[target].class, Class::Variables(_)) {
            continue;
        }
        let Some(function) = file.function_at(section, relocation.offset) else { continue };
        let Ok(offset) = u64::try_from(offset) else { continue };
        if let Some((variable, _)) = file.symbol_at(target, offset, Symbol::is_local) {
            users.entry(variable).or_default().insert(function.name.to_string());
        }
    }
    users
}

/// Where a variable is in memory: the section and the position there.
type Position = (usize, usize);
/// The variable in memory that a new one is.
type Match = Option<Position>;
/// A variable in memory.
type Old<'a> = (&'a LiveVariable, Position);

/// A variable that gets another place, to which a hook brings its value.
pub(super) struct Moved {
    pub(super) key: String,
    /// Where it is in memory.
    pub(super) from: Position,
    /// The index of its new section, and its offset in bytes there.
    pub(super) to: (usize, u64),
}

/// For each variable of each new section: the live variable that it is. Then those that a hook moves. `has_hook` says whether the
/// reload brings a hook for a name.
///
/// # Errors
/// A `static` variable that may be one of several, and a variable whose size or kind of memory changed and that no hook moves.
pub(super) fn match_all(
    sections: &[NewSection],
    live: &LiveObject,
    global: FindGlobal<'_>,
    has_hook: impl Fn(&str) -> bool,
) -> Result<(Vec<Vec<Match>>, Vec<Moved>), Refusal> {
    let namesakes = Namesakes::new(sections, live);
    let (mut all, mut moved) = (Vec::new(), Vec::new());
    for section in sections {
        let mut matches = Vec::new();
        for variable in &section.variables {
            let found = match variable.is_global {
                true => namesakes.globals.get(variable.key.as_str()).copied(),
                false => namesakes.match_local(variable)?,
            };
            let known = match (variable.is_global, found) {
                (true, _) => global(&variable.key).map(|global| (global.size, global.kind)),
                (false, Some((at, position))) => {
                    Some((live.sections[at].variables[position].size, live.sections[at].kind))
                }
                (false, None) => None,
            };
            if let Some(from) = found.filter(|_| has_hook(&variable.key)) {
                check_movable(variable, section.kind, live.sections[from.0].kind)?;
                moved.push(Moved { key: variable.key.clone(), from, to: (section.index, variable.offset) });
                matches.push(None);
                continue;
            }
            if let Some((size, kind)) = known {
                let same = check_same(&variable.key, (variable.size, section.kind), (size, kind));
                same.map_err(|refusal| if variable.is_global { refusal } else { refusal.with_hint_of_hook() })?;
            }
            matches.push(found);
        }
        all.push(matches);
    }
    Ok((all, moved))
}

/// Checks that a hook can move a variable: nobody else has its address by name, and there is one of it.
fn check_movable(variable: &LiveVariable, new: VariableKind, old: VariableKind) -> Result<(), Refusal> {
    let problem = match () {
        () if variable.is_global => "it is global: other objects and running code have its address; make it `static`",
        () if new.is_thread_local() || old.is_thread_local() => "it is thread-local: each thread has one",
        () => return Ok(()),
    };
    Err(Refusal::new(&variable.key, format!("`{HOOK}{}` cannot move it: {problem}", variable.key)))
}

/// What the name of a hook begins with. The name of its variable follows.
pub(super) const HOOK: &str = "jittison_migrate_";

/// Checks that a variable has the same size and kind of memory as before.
pub(super) fn check_same(name: &str, new: (u64, VariableKind), old: (u64, VariableKind)) -> Result<(), Refusal> {
    if new.0 != old.0 {
        return Err(Refusal::new(name, format!("it has {} bytes, and {} in memory", new.0, old.0)));
    }
    if new.1 != old.1 {
        let (new, old) = (new.1.section(), old.1.section());
        return Err(Refusal::new(name, format!("it is in {new}, and was in {old}")));
    }
    Ok(())
}

/// The variables of the new version and those in memory, by name.
#[derive(Default)]
struct Namesakes<'a> {
    /// The first of each name in memory.
    globals: HashMap<&'a str, Position>,
    new: HashMap<&'a str, Vec<&'a LiveVariable>>,
    old: HashMap<&'a str, Vec<Old<'a>>>,
}

impl<'a> Namesakes<'a> {
    fn new(sections: &'a [NewSection], live: &'a LiveObject) -> Namesakes<'a> {
        let mut namesakes = Namesakes::default();
        for variable in sections.iter().flat_map(|section| &section.variables).filter(|variable| !variable.is_global) {
            namesakes.new.entry(&variable.key).or_default().push(variable);
        }
        for (at, section) in live.sections.iter().enumerate() {
            for (position, variable) in section.variables.iter().enumerate() {
                match variable.is_global {
                    true => {
                        namesakes.globals.entry(&variable.key).or_insert((at, position));
                    }
                    false => namesakes.old.entry(&variable.key).or_default().push((variable, (at, position))),
                }
            }
        }
        namesakes
    }

    /// Variables of one name are told apart by the functions that use them.
    fn match_local(&self, variable: &LiveVariable) -> Result<Match, Refusal> {
        let key = variable.key.as_str();
        let new = self.new.get(key).map(Vec::as_slice).unwrap_or_default();
        let old = self.old.get(key).map(Vec::as_slice).unwrap_or_default();
        let users_of_new = |users: &BTreeSet<String>| new.iter().filter(|other| other.users == *users).count();
        let users_of_old = |users: &BTreeSet<String>| old.iter().filter(|(other, _)| other.users == *users).count();
        let is_paired = |users: &BTreeSet<String>| users_of_new(users) == 1 && users_of_old(users) == 1;
        if let ([_], [(_, place)]) = (new, old) {
            return Ok(Some(*place));
        }
        if is_paired(&variable.users) {
            return Ok(old.iter().find(|(other, _)| other.users == variable.users).map(|(_, place)| *place));
        }
        match old.iter().filter(|(other, _)| !is_paired(&other.users)).count() {
            0 => Ok(None),
            _ => Err(Refusal::new(
                key,
                "several `static` variables have this name, and the functions that use them changed too; give them different names",
            )),
        }
    }
}

/// What becomes of a section. `is_by_name` says that only global names refer to it.
///
/// # Errors
/// Variables moved in a section whose variables cannot be told apart.
pub(super) fn fate(
    file: &ObjectFile<'_>,
    section: &NewSection,
    matches: &[Match],
    (live, global): (&LiveObject, FindGlobal<'_>),
    is_by_name: bool,
) -> Result<Fate, Refusal> {
    let (size, name) = (file.sections[section.index].size, file.sections[section.index].name);
    if section.variables.is_empty() {
        let same_name = |old: &&LiveSection| old.name == name && old.variables.is_empty();
        return match live.sections.iter().rev().find(same_name) {
            Some(old) if (old.size, old.kind) == (size, section.kind) => {
                Ok(Fate::Reused { base: old.base.clone(), delta: 0 })
            }
            Some(_) => Err(Refusal::new(name, "it holds data without names, and its size changed")),
            None => Ok(Fate::Linked { existing: Vec::new() }),
        };
    }
    // The section that has the first variable has all of them, at the same distances.
    if let [Some((at, first)), ..] = matches {
        let old = &live.sections[*at];
        let delta = old.variables[*first].offset.wrapping_sub(section.variables[0].offset) as i64;
        let is_same_place = |(variable, found): (&LiveVariable, &Match)| {
            found.is_some_and(|(other, position)| {
                other == *at && old.variables[position].offset.wrapping_sub(variable.offset) as i64 == delta
            })
        };
        let is_whole = old.variables.len() == section.variables.len() && old.size == size && delta == 0;
        let are_same = section.variables.iter().zip(matches).all(is_same_place);
        if are_same && (is_whole || section.variables.len() == 1) {
            return Ok(Fate::Reused { base: old.base.clone(), delta });
        }
    }
    let exists = |position: &usize| {
        let variable = &section.variables[*position];
        matches[*position].is_some() || variable.is_global && global(&variable.key).is_some()
    };
    let existing: Vec<usize> = (0..section.variables.len()).filter(exists).collect();
    match existing.len() {
        0 => Ok(Fate::Linked { existing }),
        count if is_by_name && count == section.variables.len() => Ok(Fate::Known),
        _ if is_by_name => Ok(Fate::Linked { existing }),
        _ => {
            let moved =
                (0..section.variables.len()).find(|position| !existing.contains(position)).unwrap_or(existing[0]);
            Err(Refusal::new(
                &section.variables[moved].key,
                format!(
                    "variables of `{name}` came, went or moved, and the compiler refers to them by their place in it; compile with \
                     -fdata-sections"
                ),
            ))
        }
    }
}
