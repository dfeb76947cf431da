//! [`NativeObjects`]: objects that the running executable was linked from, and the hooks at the entries of their functions.
//!
//! ```text
//!   compiled callers ─► entry of `step` ─ hooked ─► jump before the entry ─► stub ─┬─► `step.code` of version 3
//!   versions ──────────►                                                          └┄► body of `step`, behind its room
//! ```
//!
//! The address of a function stays that of its entry, for versions, too. So pointers to functions compare as before. Its stub has
//! a name of its own and leads to the body at first. An entry is hooked in the first reload of its object, before any stub is redirected:
//! until then nothing changes for callers.
//!
//! | in the executable | for a version |
//! |---|---|
//! | a function with room at its entry | its code, if the version has the function |
//! | a function without room | stays; a reload that changes it is refused |
//! | a function of which a copy is left out or inlined everywhere | the code of the version that needs it |
//! | a variable | keeps its address |
//!
//! # Limits
//! Unless the threads of the program are counted (`NativeThreads`), nobody knows when one has left a version.
//! Then versions are not freed.

use std::collections::BTreeMap;

use crate::arch::{ENTRY_BYTES, EntryHook};
use crate::base::{ExecutorAddr, Name, TlsIndex};
use crate::error::{Error, Result};
use crate::host::{CodeWrite, ImageObject, ImageSymbol, ImageSymbolKind, ProgramImage};
use crate::jit::reloading::home::{Home, Redirects};
use crate::jit::reloading::state::refused;
use crate::link::{NativeFunction, NativePlan, Plan, StubbedFunction};
use crate::session::{RequiredState, SymbolFlags, SymbolRequest};
use crate::sync::Arc;

/// The objects of the running executable.
#[derive(Default)]
pub(super) struct NativeObjects {
    image: Option<Arc<ProgramImage>>,
    /// For each object, its functions in the executable, by symbol.
    objects: BTreeMap<String, BTreeMap<String, Found>>,
    /// The functions of the executable, by the names that plans have for their stubs.
    entries: BTreeMap<String, Entry>,
    /// The function with an entry at each address, by its name in `entries`.
    by_address: BTreeMap<ExecutorAddr, String>,
}

/// Whether a version can replace a function of the executable.
enum Found {
    Follows,
    /// Why not.
    Stays(&'static str),
}

/// The entry of a function.
struct Entry {
    /// `None` without room.
    hook: Option<EntryHook>,
    /// The function with the same entry whose stub a hook leads to.
    same_as: Option<String>,
    is_hooked: bool,
}

impl NativeObjects {
    /// The executable, read once. Its global symbols are found from then on.
    ///
    /// # Errors
    /// It was stripped, or cannot be read or changed.
    pub(super) fn image(&mut self, home: &Home) -> Result<Arc<ProgramImage>> {
        if let Some(image) = &self.image {
            return Ok(image.clone());
        }
        let arch = home.jit.0.executor.arch();
        if arch.room_before_entry().is_none() {
            let problem = "functions of a program that was started normally are hooked on x86-64 only, and this is";
            return Err(Error::other(format!("{problem} {}", arch.name())));
        }
        let image = Arc::new(home.jit.0.executor.program_image()?);
        home.jit.add_program_symbols(&home.dylib)?;
        self.image = Some(image.clone());
        Ok(image)
    }

    /// Finds what an object has in the executable, and defines it in the home dylib. Returns the functions with stubs that are there.
    ///
    /// # Errors
    /// The executable was not linked from this object, or has no names of its `static` functions and variables.
    pub(super) fn add(
        &mut self,
        home: &Home,
        object: &str,
        (image, native): (&ProgramImage, &NativePlan),
    ) -> Result<Vec<StubbedFunction>> {
        let locals = find_locals(object, image, native)?;
        let find = |name: &str, is_local: bool| match is_local {
            true => locals.and_then(|locals| locals.symbols.get(name).copied()),
            false => image.global(name),
        };
        let mut addition = Addition::default();
        for function in &native.functions {
            let Some(symbol) = find(&function.symbol, function.is_local) else { continue };
            if !function.is_weak && !is_linked_as(function, image, symbol)? {
                return Err(refused(object, &function.symbol, OTHER_CODE));
            }
            self.add_function(home, (image, function, symbol), &mut addition)?;
        }
        for name in &native.globals {
            find(name, false).into_iter().for_each(|symbol| addition.define(name, symbol.address, symbol.kind));
        }
        for section in &native.sections {
            let mut starts = section.symbols.iter().filter_map(|(name, is_local, offset)| {
                let symbol = find(name, *is_local)?;
                Some((name, ExecutorAddr::new(symbol.address.value().wrapping_sub(*offset)), symbol.kind))
            });
            let Some((_, start, kind)) = starts.next() else { continue };
            if let Some((name, ..)) = starts.find(|(_, other, _)| *other != start) {
                return Err(refused(object, name, OTHER_CODE));
            }
            addition.define(&section.base, start, kind);
        }
        self.commit(home, object, native, addition)
    }

    fn add_function(
        &self,
        home: &Home,
        (image, function, symbol): (&ProgramImage, &NativeFunction, ImageSymbol),
        addition: &mut Addition,
    ) -> Result<()> {
        let name = function.symbol.clone();
        let Some(stub) = &function.stub else {
            let found = if is_copy(&name) { Found::Stays(COPY) } else { Found::Follows };
            addition.functions.insert(name, found);
            return Ok(());
        };
        addition.define(stub, symbol.address, symbol.kind);
        let arch = home.jit.0.executor.arch();
        let room = arch.room_before_entry().unwrap_or(0);
        let start = ExecutorAddr::new(symbol.address.value().wrapping_sub(room));
        // Where nothing is mapped is no room.
        let bytes = image.bytes(start, room + ENTRY_BYTES).unwrap_or_default();
        let split = bytes.split_at_checked(room as usize);
        let hook = split.and_then(|(before, at)| arch.entry_hook(symbol.address, before, at));
        let found = if hook.is_some() { Found::Follows } else { Found::Stays(NO_ROOM) };
        let known = addition.by_address.get(&symbol.address).or_else(|| self.by_address.get(&symbol.address));
        let same_as = known.filter(|other| *other != stub).cloned();
        addition.by_address.entry(symbol.address).or_insert_with(|| stub.clone());
        addition.entries.insert(stub.clone(), Entry { hook, same_as, is_hooked: false });
        addition.functions.insert(name, found);
        Ok(())
    }

    fn commit(
        &mut self,
        home: &Home,
        object: &str,
        native: &NativePlan,
        mut addition: Addition,
    ) -> Result<Vec<StubbedFunction>> {
        // Weak functions of several objects are one function.
        addition.entries.retain(|stub, _| !self.entries.contains_key(stub));
        addition.definitions.retain(|name, _| home.dylib.symbol_flags(name).is_none());
        let own = addition.entries.iter().filter_map(|(stub, entry)| Some((hook_stub(stub), entry.own_hook()?.body)));
        let names: Vec<(String, ExecutorAddr)> = own.collect();
        let stubs: Vec<(&str, ExecutorAddr)> = names.iter().map(|(name, body)| (name.as_str(), *body)).collect();
        let tracker = home.dylib.create_tracker()?;
        let symbols = addition.definitions.iter().map(|(name, (address, flags))| (Name::new(name), *address, *flags));
        let defined = tracker.define_absolute(symbols).and_then(|()| home.jit.0.stubs.create(&tracker, &stubs));
        if let Err(error) = defined.and_then(|()| tracker.transfer_to(&home.program)) {
            drop(tracker.remove());
            return Err(error);
        }
        let is_there = |function: &&StubbedFunction| addition.definitions.contains_key(&function.stub);
        let functions = native.plan.functions.iter().filter(is_there).cloned().collect();
        self.objects.insert(object.to_string(), addition.functions);
        self.entries.extend(addition.entries);
        self.by_address.extend(addition.by_address);
        Ok(functions)
    }

    /// Checks that the functions which a version changes can follow.
    ///
    /// # Errors
    /// The first one that cannot.
    pub(super) fn check(&self, object: &str, plan: &Plan) -> Result<()> {
        let Some(functions) = self.objects.get(object) else { return Ok(()) };
        let stays = |name: &&String| matches!(functions.get(*name), Some(Found::Stays(_)));
        let mut changed = plan.diff.changed.iter().chain(plan.diff.removed.iter().filter(|name| is_copy(name)));
        let read_by = || functions.keys().find(stays).filter(|_| plan.diff.constants_changed);
        match changed.find(stays).or_else(read_by) {
            Some(name) => match functions.get(name) {
                Some(Found::Stays(problem)) => Err(refused(object, name, problem)),
                _ => Ok(()),
            },
            None => Ok(()),
        }
    }

    /// Hooks the entries of functions that a reload redirects. Their stubs lead to what runs now, so callers stay there.
    ///
    /// # Errors
    /// Two functions have one entry, and versions with different code; or code of the program cannot be changed. Then nothing is.
    pub(super) fn hook(&mut self, home: &Home, object: &str, redirects: &Redirects) -> Result<()> {
        let Some(image) = &self.image else { return Ok(()) };
        let target = |name: &str| redirects.iter().find(|(stub, _)| stub == name).map(|(_, target)| *target);
        let (mut jumps, mut switches, mut hooked) = (Vec::new(), Vec::new(), Vec::new());
        for (name, to) in redirects {
            let Some(entry) = self.entries.get(name) else { continue };
            if let Some(other) = &entry.same_as {
                if target(other) != Some(*to) {
                    return Err(refused(object, name, SHARED_ENTRY));
                }
                continue;
            }
            let Some(hook) = entry.hook.filter(|_| !entry.is_hooked) else { continue };
            let stub = hook_stub(name);
            let found = home.dylib.lookup(&[SymbolRequest::required(&stub)], RequiredState::Ready)?;
            let stub = found.first().map_or(hook.body, |found| found.address);
            jumps.push(CodeWrite { at: hook.jump_at, bytes: hook.jump(stub).to_vec() });
            switches.push(CodeWrite { at: hook.switch.0, bytes: vec![hook.switch.1] });
            hooked.push(name.clone());
        }
        if hooked.is_empty() {
            return Ok(());
        }
        // The jumps are there for every processor before the first entry leads to one.
        image.write_code(&jumps)?;
        image.write_code(&switches)?;
        for name in hooked {
            self.entries.entry(name).and_modify(|entry| entry.is_hooked = true);
        }
        Ok(())
    }

    /// Redirects by the names of the stubs. A function of the executable has one of another name, or none.
    pub(super) fn by_stub(&self, redirects: Redirects) -> Redirects {
        let own = redirects.into_iter().filter_map(|(name, target)| match self.entries.get(&name) {
            Some(entry) => entry.own_hook().map(|_| (hook_stub(&name), target)),
            None => Some((name, target)),
        });
        own.collect()
    }
}

impl Entry {
    /// The hook that leads to the stub of this function.
    fn own_hook(&self) -> Option<EntryHook> {
        self.hook.filter(|_| self.same_as.is_none())
    }
}

/// What an object adds.
#[derive(Default)]
struct Addition {
    functions: BTreeMap<String, Found>,
    entries: BTreeMap<String, Entry>,
    by_address: BTreeMap<ExecutorAddr, String>,
    definitions: BTreeMap<String, (ExecutorAddr, SymbolFlags)>,
}

impl Addition {
    fn define(&mut self, name: &str, address: ExecutorAddr, kind: ImageSymbolKind) {
        let (address, flag) = match kind {
            ImageSymbolKind::Function => (address, SymbolFlags::CALLABLE),
            ImageSymbolKind::Variable => (address, SymbolFlags::NONE),
            ImageSymbolKind::ThreadLocal => {
                let variable = TlsIndex { module: MODULE_OF_PROGRAM, offset: address.value() as u32 };
                (variable.to_address(), SymbolFlags::THREAD_LOCAL)
            }
        };
        self.definitions.insert(name.to_string(), (address, SymbolFlags::EXPORTED | flag));
    }
}

/// The local symbols that an object has in the executable: those of a source of its name, if there is no other symbol among them.
fn find_locals<'i>(object: &str, image: &'i ProgramImage, native: &NativePlan) -> Result<Option<&'i ImageObject>> {
    if native.locals.is_empty() {
        return Ok(None);
    }
    let is_of_object = |found: &&ImageObject| {
        let is_same = |name: &str| native.locals.binary_search_by(|local| local.as_str().cmp(name)).is_ok();
        !found.symbols.is_empty() && found.symbols.keys().all(|name| is_same(name))
    };
    let mut all = image.objects_of(&native.source).filter(is_of_object);
    let problem = match (all.next(), all.next()) {
        (Some(only), None) => return Ok(Some(only)),
        (None, _) => {
            "the program has no names for the `static` functions and variables of this source; link it from this object, without -x"
        }
        (Some(_), Some(_)) => {
            "the program has two objects with these `static` functions and variables; rename one of the sources"
        }
    };
    Err(refused(object, &native.source, problem))
}

/// Whether the executable has the code of a function, apart from what a linker writes.
fn is_linked_as(function: &NativeFunction, image: &ProgramImage, symbol: ImageSymbol) -> Result<bool> {
    Ok(symbol.size == function.size() && function.is_linked_as(&image.bytes(symbol.address, symbol.size)?))
}

/// Whether a compiler made this copy or part of a function, which other callers have with another signature. A cold part has no entry: it
/// belongs to its function.
fn is_copy(name: &str) -> bool {
    name.contains('.') && !name.contains(".cold")
}

/// The name of the stub to which the hook of a function leads.
fn hook_stub(stub: &str) -> String {
    format!("{stub}.hook")
}

/// The number of the executable with the C library.
const MODULE_OF_PROGRAM: u32 = 1;
const NO_ROOM: &str =
    "the program has no room for a hook at its entry; compile with -fpatchable-function-entry=114,112";
const COPY: &str = "it is a copy that the compiler made of a function; compile with -flive-patching=inline-only-static";
const OTHER_CODE: &str = "the program was linked from another object; build both from the same source";
const SHARED_ENTRY: &str = "the program has the same code for another function, and the new version has not; link without folding of equal functions";
