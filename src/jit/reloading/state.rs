//! [`State`]: what a reloader knows of the program that runs, and plans that follow from it.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, ErrorKind, Result};
use crate::jit::reloading::object_version::{CodeSize, ObjectVersion};
use crate::jit::reloading::version::Version;
use crate::link::{
    Globals, LiveObject, NativePlan, NewObject, ObjectBuffer, Plan, SharedConstant, StubbedFunction, World, plan_first,
    plan_native,
};
use crate::session::{JitDylib, Removal};

/// What a reloader knows of its program.
#[derive(Default)]
pub(super) struct State {
    pub(super) is_linked: bool,
    /// Whether the running executable has objects.
    pub(super) is_native: bool,
    /// Whether threads run code of versions outside of counted calls. Then no version is removed.
    pub(super) keeps_all: bool,
    pub(super) objects: BTreeMap<String, LiveObject>,
    globals: Globals,
    /// The functions of the objects that were added, before the link.
    pub(super) first: Vec<StubbedFunction>,
    /// The constants that the objects have now, and the version that brought this value; 0 if the home dylib has it. That version stays
    /// in memory as long as this is the value: later versions of several objects that read each other's constants would keep each
    /// other otherwise.
    constants: BTreeMap<String, (SharedConstant, u64)>,
    /// For each stub, the version that it leads to. 0 is what was added.
    pub(super) targets: BTreeMap<String, u64>,
    /// For each stub, a hash of the types of its function, if they were known when it was made.
    signatures: BTreeMap<String, u64>,
    /// The objects that have private functions: crates of Rust. So a search for one costs nothing in programs of C.
    with_private: BTreeSet<String>,
    /// For each object, its newest version.
    newest: BTreeMap<String, u64>,
    pub(super) versions: BTreeMap<u64, Version>,
    uses: Uses,
    last_version: u64,
    /// The first versions of objects that were replaced. They are freed with the program.
    replaced_first: BTreeMap<String, CodeSize>,
    /// Removed versions that may be in memory.
    retired: Vec<RetiredVersion>,
}

struct RetiredVersion {
    /// Its description, without what holds it.
    version: ObjectVersion,
    removal: Removal,
}

/// How many names need each version: of stubs that lead to it, of objects whose newest one it is, of constants that have its
/// value. So a commit costs what it changes, not what the program has.
#[derive(Default)]
struct Uses {
    counts: BTreeMap<u64, usize>,
    /// The versions that no name needs any more.
    unused: BTreeSet<u64>,
}

impl Uses {
    /// A name needs `new`, and needed `old`.
    fn replace(&mut self, old: Option<u64>, new: u64) {
        *self.counts.entry(new).or_default() += 1;
        old.into_iter().for_each(|old| self.remove(old));
    }

    fn remove(&mut self, version: u64) {
        // The objects that were added are not counted.
        let Some(count) = self.counts.get_mut(&version) else { return };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&version);
            self.unused.insert(version);
        }
    }
}

/// What the bytes of a reload have of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Whole,
    /// Some of its functions.
    Part,
}

/// The plan of a new version of an object.
pub(super) struct PlannedVersion {
    pub(super) object: String,
    pub(super) number: u64,
    pub(super) plan: Plan,
    /// Whether there is something to link: the object changed, or it needs what belongs to a version of an object that changed.
    pub(super) is_linked: bool,
}

/// Names of constants and of private functions in a version, with their sizes in bytes.
pub(super) type Constants = Vec<(String, u64)>;

impl State {
    /// Plans the first version of an object.
    pub(super) fn plan_first(&self, home: &JitDylib, name: &str, bytes: &[u8]) -> Result<Plan> {
        if self.is_linked || self.objects.contains_key(name) {
            return Err(refused(name, name, ADDED_ONCE));
        }
        self.with_world(home, &[], &BTreeSet::new(), |world| plan_first(name, bytes, world))
    }

    /// Plans an object that the running executable was linked from.
    pub(super) fn plan_native(&self, home: &JitDylib, name: &str, bytes: &[u8]) -> Result<NativePlan> {
        if self.is_linked || self.objects.contains_key(name) {
            return Err(refused(name, name, ADDED_ONCE));
        }
        self.with_world(home, &[], &BTreeSet::new(), |world| plan_native(name, bytes, world))
    }

    /// Records an object that the running executable was linked from. `functions` are those with stubs that it has.
    pub(super) fn add_native(&mut self, name: &str, plan: Plan, functions: Vec<StubbedFunction>) {
        let first = self.first.len();
        self.add(name, Plan { functions, ..plan });
        // They are not linked.
        self.first.truncate(first);
        self.is_native = true;
    }

    /// Records an object that was added.
    pub(super) fn add(&mut self, name: &str, plan: Plan) {
        self.note_signatures(&plan);
        self.targets.extend(plan.functions.iter().map(|function| (function.stub.clone(), 0)));
        let constants = plan.live.shared_constants();
        self.constants.extend(constants.map(|(name, constant)| (name.to_string(), (constant, 0))));
        self.note_private(name, &plan.live);
        self.first.extend(plan.functions);
        self.globals.extend(plan.globals);
        self.objects.insert(name.to_string(), plan.live);
    }

    /// The object that has a global function.
    ///
    /// # Errors
    /// There is none: no object has it, or it is `static`.
    pub(super) fn object_of_function(&self, function: &str) -> Result<(&str, bool)> {
        let has_stub = self.targets.contains_key(function);
        let having = self.objects.iter().filter(|(_, live)| has_stub && live.has_function(function));
        let having: Vec<(&str, bool)> =
            having.map(|(name, live)| (name.as_str(), live.defines_function(function))).collect();
        let strong = having.iter().find(|(_, is_strong)| *is_strong).or(having.first()).copied();
        strong.ok_or_else(|| refused(function, function, "no object that was added has a global function of this name"))
    }

    /// Plans new versions of objects that are reloaded together. `extent` says whether the bytes are whole objects. Versions without a difference are planned too, because they may
    /// be refused.
    ///
    /// # Errors
    /// [`ErrorKind::ReloadRefused`]; bytes that are no object.
    pub(super) fn plan(
        &self,
        home: &JitDylib,
        objects: &[(&str, ObjectBuffer)],
        extent: Extent,
    ) -> Result<Vec<PlannedVersion>> {
        let mut new = Vec::new();
        for (name, bytes) in objects {
            let before = self.objects.get(*name).filter(|_| self.is_linked);
            let before = before.ok_or_else(|| refused(name, name, "no object of this name was added and linked"))?;
            if new.iter().any(|(other, _, _)| other == name) {
                return Err(refused(name, name, "it is given twice; give each object once"));
            }
            let object = match extent {
                Extent::Whole => NewObject::read(name, bytes, before)?,
                Extent::Part => NewObject::read_part(name, bytes, before)?,
            };
            new.push((*name, before, object));
        }
        check_defined_once(&new)?;
        let linked = linked_together(&new);
        let mut planned: Vec<PlannedVersion> = Vec::new();
        for (name, before, object) in new {
            let number = self.last_version + 1 + planned.iter().filter(|other| other.is_linked).count() as u64;
            let plan = self.with_world(home, &planned, &linked, |world| object.plan(number, before, world));
            let mut plan = plan.map_err(|refusal| refused(name, &refusal.symbol, &refusal.problem))?;
            plan.stays |= self.keeps_all;
            planned.push(PlannedVersion { object: name.to_string(), number, plan, is_linked: linked.contains(name) });
        }
        Ok(planned)
    }

    /// `planned` are the plans before this one, and `linked` the objects that are linked again.
    fn with_world<R>(
        &self,
        home: &JitDylib,
        planned: &[PlannedVersion],
        linked: &BTreeSet<&str>,
        plan: impl FnOnce(&World<'_>) -> R,
    ) -> R {
        let new_global = |name: &str| planned.iter().find_map(|other| other.plan.globals.get(name)).copied();
        let others = || self.objects.iter().filter(|(name, _)| !linked.contains(name.as_str()));
        plan(&World {
            global: &|name| self.globals.get(name).copied().or_else(|| new_global(name)),
            constant: &|name| self.constants.get(name).map(|(constant, _)| *constant),
            has_stub: &|name| self.targets.contains_key(name),
            is_defined: &|name| home.symbol_flags(name).is_some() || self.constants.contains_key(name),
            defining_object: &|name| {
                others().find(|(_, live)| live.defines_function(name)).map(|(name, _)| name.clone())
            },
            is_required: &|name| others().any(|(_, live)| live.requires(name)),
            stub_signature: &|name| self.signatures.get(name).copied(),
        })
    }

    /// The constants and private functions that an object needs and that the home dylib does not have, or has with an older value.
    /// By the version that brought them. `planned` are the versions that are linked together with this one, which finds their constants itself.
    pub(super) fn constants_of_versions(&self, plan: &Plan, planned: &[PlannedVersion]) -> BTreeMap<u64, Constants> {
        let has = |live: &LiveObject, name: &str| live.shared_constant(name).is_some() || live.has_private(name);
        let is_new = |name: &str| planned.iter().any(|other| has(&other.plan.live, name));
        let mut constants: BTreeMap<u64, Constants> = BTreeMap::new();
        for name in plan.live.required() {
            match self.constants.get(name) {
                Some((constant, number)) if *number > 0 && !is_new(name) => {
                    constants.entry(*number).or_default().push((name.to_string(), constant.size));
                }
                _ if is_new(name) => {}
                _ => {
                    if let Some((number, size)) = self.private_function(name) {
                        constants.entry(number).or_default().push((name.to_string(), size));
                    }
                }
            }
        }
        constants
    }

    /// The version that has a private function, if it is not the one that was added, and the size in bytes.
    fn private_function(&self, name: &str) -> Option<(u64, u64)> {
        let mut objects = self.with_private.iter().filter_map(|object| Some((object, self.objects.get(object)?)));
        let (object, live) = objects.find(|(_, live)| live.has_private(name))?;
        let version = self.running_version(object);
        (version > 0).then(|| (version, live.function_size(name)))
    }

    fn note_signatures(&mut self, plan: &Plan) {
        for StubbedFunction { stub, .. } in &plan.functions {
            if let Some(signature) = plan.live.signature(stub).filter(|_| !self.targets.contains_key(stub)) {
                self.signatures.insert(stub.clone(), signature);
            }
        }
    }

    fn note_private(&mut self, object: &str, live: &LiveObject) {
        if live.has_any_private() {
            self.with_private.insert(object.to_string());
        }
    }

    /// Takes the numbers of versions that are linked. They are not used again, also if the link fails.
    pub(super) fn take_numbers(&mut self, planned: &[PlannedVersion]) {
        self.last_version = planned.iter().map(|new| new.number).fold(self.last_version, u64::max);
    }

    /// The number of the version of an object that runs.
    pub(super) fn running_version(&self, object: &str) -> u64 {
        self.newest.get(object).copied().unwrap_or(0)
    }

    /// Records a version to which all stubs of its functions lead.
    pub(super) fn commit(&mut self, planned: PlannedVersion, mut version: Version) {
        let PlannedVersion { object, number, plan, .. } = planned;
        version.commit();
        self.note_signatures(&plan);
        for function in plan.functions {
            self.uses.replace(self.targets.insert(function.stub, number), number);
        }
        self.globals.extend(plan.globals);
        self.update_constants(&object, &plan.live, number);
        self.note_private(&object, &plan.live);
        let (functions, bytes) = plan.linked;
        version.size = CodeSize { functions, bytes };
        let replaced = self.objects.insert(object.clone(), plan.live);
        if let Some(first) = replaced.filter(|_| !self.newest.contains_key(&object)) {
            self.replaced_first.insert(object.clone(), size_of(&first));
        }
        self.uses.replace(self.newest.insert(object, number), number);
        self.versions.insert(number, version);
    }

    fn update_constants(&mut self, object: &str, live: &LiveObject, number: u64) {
        let before = self.objects.get(object).into_iter().flat_map(|before| before.shared_constants());
        let gone = before.map(|(name, _)| name).filter(|name| live.shared_constant(name).is_none());
        for (_, version) in gone.filter_map(|name| self.constants.remove(name)) {
            self.uses.remove(version);
        }
        for (name, constant) in live.shared_constants() {
            let known = self.constants.get(name).filter(|(old, _)| *old == constant);
            if known.is_none() {
                let old = self.constants.insert(name.to_string(), (constant, number));
                self.uses.replace(old.map(|(_, version)| version), number);
            }
        }
    }

    /// Removes the versions that no name needs any more.
    pub(super) fn retire_unneeded(&mut self) -> Vec<Removal> {
        let unused = std::mem::take(&mut self.uses.unused);
        let may_go =
            unused.into_iter().filter(|number| self.versions.get(number).is_some_and(|version| !version.stays));
        let unneeded: Vec<u64> = may_go.collect();
        let mut removals = Vec::new();
        for number in unneeded {
            let Some(code) = self.versions.remove(&number) else { continue };
            let version = ObjectVersion::new(&code.object, number, code.size);
            if let Some(removal) = code.retire(None) {
                removals.push(removal.clone());
                self.retired.push(RetiredVersion { version, removal });
            }
        }
        removals
    }

    /// The number of removed versions that are still in memory.
    pub(super) fn retired_in_memory(&mut self) -> usize {
        self.retired.retain(|retired| !retired.removal.is_complete());
        self.retired.len()
    }

    /// The versions that are in memory: those that run, then the replaced ones, newest first.
    pub(super) fn list(&self) -> Vec<ObjectVersion> {
        let running = self.objects.iter();
        let mut list: Vec<ObjectVersion> = running
            .map(|(object, live)| ObjectVersion::new(object, self.running_version(object), size_of(live)))
            .collect();
        let first = self.replaced_first.iter().map(|(object, size)| {
            ObjectVersion::new(object, 0, *size).replaced(vec!["the program, which was linked with it".to_string()])
        });
        let needed = self.versions.iter().filter(|(number, version)| self.running_version(&version.object) != **number);
        let needed = needed.map(|(number, version)| {
            ObjectVersion::new(&version.object, *number, version.size).replaced(self.needs(*number, version))
        });
        let retired = self.retired.iter().filter(|retired| !retired.removal.is_complete());
        let retired = retired.map(|retired| retired.version.clone().replaced(retired.removal.obstacles()));
        let mut replaced: Vec<ObjectVersion> = first.chain(needed).chain(retired).collect();
        replaced.sort_by_key(|version| std::cmp::Reverse(version.version));
        list.append(&mut replaced);
        list
    }

    /// What needs a version that was replaced and not removed.
    fn needs(&self, number: u64, version: &Version) -> Vec<String> {
        let functions = self.targets.iter().filter(|(_, target)| **target == number).map(|(name, _)| name);
        let functions = functions.map(|name| format!("callers of `{name}`, which no newer version defines"));
        let constants = self.constants.iter().filter(|(_, (_, of))| *of == number).map(|(name, _)| name);
        let constants = constants.map(|name| format!("readers of the constant `{name}`"));
        let held = match self.keeps_all {
            true => "threads of the program, whose calls are not counted",
            false => "variables or exit handlers that it brought",
        };
        let stays = version.stays.then(|| held.to_string());
        stays.into_iter().chain(functions).chain(constants).collect()
    }
}

fn size_of(live: &LiveObject) -> CodeSize {
    CodeSize { functions: live.function_count(), bytes: live.code_bytes() }
}

/// The objects that are linked again: those that changed, and those that need what belongs to a version of one that is linked.
fn linked_together<'n>(objects: &[(&'n str, &LiveObject, NewObject<'_>)]) -> BTreeSet<&'n str> {
    let changed = objects.iter().filter(|(_, _, object)| !object.diff.is_empty());
    let mut linked: BTreeSet<&str> = changed.map(|(name, _, _)| *name).collect();
    loop {
        let is_needed = |of: &str| {
            let linked_ones = objects.iter().filter(|(name, _, _)| linked.contains(name) && *name != of);
            let object = objects.iter().find(|(name, _, _)| *name == of).map(|(_, _, object)| object);
            linked_ones
                .into_iter()
                .any(|(_, before, after)| object.is_some_and(|object| object.needs_private(before, after)))
        };
        let more: Vec<&str> =
            objects.iter().map(|(name, _, _)| *name).filter(|name| !linked.contains(name) && is_needed(name)).collect();
        if more.is_empty() {
            return linked;
        }
        linked.extend(more);
    }
}

/// Objects that are reloaded together may not define the same name.
fn check_defined_once(objects: &[(&str, &LiveObject, NewObject<'_>)]) -> Result<()> {
    if objects.len() < 2 {
        return Ok(());
    }
    let mut defined: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, _, object) in objects {
        for symbol in object.strong_definitions() {
            if let Some(other) = defined.insert(symbol, name).filter(|other| other != name) {
                return Err(refused(
                    name,
                    symbol,
                    &format!("{other} defines this name too, and both are reloaded together; define it once"),
                ));
            }
        }
    }
    Ok(())
}

const ADDED_ONCE: &str = "objects are added once, before the program is linked";

pub(super) fn refused(object: &str, symbol: &str, problem: &str) -> Error {
    let (object, symbol, problem) = (object.to_string(), symbol.to_string(), problem.to_string());
    ErrorKind::ReloadRefused { object, symbol, problem }.into()
}
