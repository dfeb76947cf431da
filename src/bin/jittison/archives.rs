//! Archives of the command line. As with GNU ld, each is searched where it stands: it adds the members that define what the
//! inputs before it require. So an object after an archive comes too late to keep a member out, and initialisers run in the
//! order of the inputs.
//!
//! A shared library that is named before an archive keeps out the members for names that it exports, as with both linkers.
//!
//! What is missing at the end is searched in all archives (`link.rs`, `pull`), so an archive may also stand before the objects
//! that need it, as with LLVM's linker. If a shared library has such a name, too, the linkers differ, and nothing is run
//! ([`check_order`]). What is missing then is searched in the support library of the compiler, with which a
//! compiler links every program ([`support_library`]).

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jittison::host::LoadedLibrary;
use jittison::link::{Archive, InterfaceSymbol, ObjectInterface, required_names};
use jittison::platform::StaticLibraries;
use jittison::session::{RequiredState, SymbolFlags, SymbolRequest};
use jittison::{Jit, JitDylib, ResourceTracker};

use crate::add::Reloaded;
use crate::output::message_of;

/// The names that the inputs of one dylib require so far.
#[derive(Default)]
pub struct Requirements {
    /// In the order in which the inputs name them.
    pub names: Vec<String>,
    known: HashSet<String>,
    /// Of each member that was added, the name for which it was.
    pub found: Vec<String>,
    /// The shared libraries that were named so far.
    pub libraries: Vec<Arc<LoadedLibrary>>,
    /// Names of members that were not added, because a library before their archive has the name.
    pub of_libraries: HashSet<String>,
    /// Names of members that are in use, so that each member has a different name in errors.
    member_names: HashSet<String>,
    /// Whether an object that holds addresses in 32 bits is looked for. One is enough, and at fixed addresses none is needed.
    pub wants_low_object: bool,
    /// A definition without a type under the name of the entry is a function: assemblers write such symbols.
    pub has_untyped_entry: bool,
}

impl Requirements {
    /// The requirements of a program whose first function is `entry`.
    pub fn of_entry(entry: &str) -> Requirements {
        let mut requirements = Requirements::default();
        requirements.add(entry);
        requirements
    }

    pub fn add(&mut self, name: &str) {
        if !self.known.contains(name) {
            self.known.insert(name.to_string());
            self.names.push(name.to_string());
        }
    }

    /// Those of the names that `dylib` does not define.
    pub fn missing_in<'a>(&'a self, dylib: &JitDylib) -> Vec<&'a str> {
        self.names.iter().map(String::as_str).filter(|name| dylib.symbol_flags(name).is_none()).collect()
    }

    /// Adds the members of an archive that define missing names, and those that these members require. Like GNU ld, goes
    /// through the symbol table of the archive until that adds no member.
    ///
    /// A common symbol counts as missing if a member has a better definition, as with GNU ld.
    pub fn search(
        &mut self,
        jit: &Jit,
        tracker: &ResourceTracker,
        archive: &Archive,
        entry: &str,
        mut reloader: Option<&mut Reloaded>,
    ) -> Result<(), String> {
        let dylib = tracker.dylib();
        let (mut added, mut problem, mut has_added) = (HashSet::new(), None, true);
        while has_added {
            has_added = false;
            let visit = &mut |name: &str, offset: u64| {
                let is_needed = match dylib.symbol_flags(name) {
                    _ if problem.is_some() || added.contains(&offset) => false,
                    None => self.known.contains(name) && !self.is_of_library(name),
                    Some(flags) if flags.contains(SymbolFlags::COMMON) => defines_data(archive, offset, name),
                    Some(_) => false,
                };
                if is_needed {
                    has_added |= added.insert(offset);
                    problem = self.add_member(jit, tracker, archive, offset, entry, reloader.as_deref_mut()).err();
                    self.found.push(name.to_string());
                }
            };
            archive.each_name(visit).map_err(message_of)?;
        }
        problem.map_or(Ok(()), Err)
    }

    /// Whether a library that was named before has a name that is needed. Then no member of an archive defines it.
    fn is_of_library(&mut self, name: &str) -> bool {
        let is_of_library = self.libraries.iter().any(|library| library.exports(name));
        if is_of_library {
            self.of_libraries.insert(name.to_string());
        }
        is_of_library
    }

    /// Searches the archives of a group until that adds no member.
    pub fn search_group(
        &mut self,
        jit: &Jit,
        tracker: &ResourceTracker,
        archives: &[Archive],
        entry: &str,
        mut reloader: Option<&mut Reloaded>,
    ) -> Result<(), String> {
        loop {
            let count = self.found.len();
            for archive in archives {
                self.search(jit, tracker, archive, entry, reloader.as_deref_mut())?;
            }
            if self.found.len() == count {
                return Ok(());
            }
        }
    }

    fn add_member(
        &mut self,
        jit: &Jit,
        tracker: &ResourceTracker,
        archive: &Archive,
        offset: u64,
        entry: &str,
        reloader: Option<&mut Reloaded>,
    ) -> Result<(), String> {
        let member = archive.member(offset).map_err(message_of)?;
        let short = member.name();
        let name = if self.member_names.insert(short.clone()) { short } else { member.full_name() };
        let had_entry = tracker.dylib().symbol_flags(entry).is_some();
        let is_reloaded = reloader.map(|reloaded| reloaded.add_member(archive, &name, &member)).transpose()?;
        if is_reloaded != Some(true) {
            jit.add_object(tracker, &name, member.bytes.clone()).map_err(message_of)?;
        }
        for required in required_names(&name, &member.bytes).map_err(message_of)? {
            self.add(jit.layer().name_of_reference(required));
        }
        if !had_entry && tracker.dylib().symbol_flags(entry).is_some() {
            self.note_entry(&ObjectInterface::scan(&name, &member.bytes).map_err(message_of)?, entry);
        }
        Ok(())
    }

    /// Records whether an object defines the entry without a type.
    pub fn note_entry(&mut self, interface: &ObjectInterface, entry: &str) {
        let mut symbols = interface.symbols.iter();
        self.has_untyped_entry |= symbols.any(|symbol| symbol.is_untyped && symbol.name.as_str() == entry);
    }
}

/// Whether a member has a global definition of the name that is neither a function nor a common symbol. GNU ld adds such a member
/// in place of a common symbol. A member that cannot be read has none, and fails if it is needed for another name.
fn defines_data(archive: &Archive, offset: u64, name: &str) -> bool {
    let Ok(member) = archive.member(offset) else { return false };
    let Ok(interface) = ObjectInterface::scan(&member.name(), &member.bytes) else { return false };
    let is_meant = |symbol: &InterfaceSymbol| symbol.name.as_str() == name && !symbol.is_weak && !symbol.is_callable;
    interface.symbols.iter().any(is_meant)
}

/// Checks that no member is needed only by files after its archive, for a name that a shared library has, too: GNU ld takes the
/// library's, because it does not come back to the archive, and LLVM's linker takes the archive's.
pub fn check_order(
    jit: &Jit,
    dylib: &JitDylib,
    libraries: &StaticLibraries,
    requirements: &Requirements,
) -> Result<(), String> {
    let archives = libraries.archives();
    let mut listed = requirements.missing_in(dylib);
    listed.retain(|name| archives.find(name).is_some() && !requirements.of_libraries.contains(*name));
    let requests: Vec<_> = listed.iter().map(|name| SymbolRequest::weak(name)).collect();
    let found = jit.process_dylib().lookup(&requests, RequiredState::Resolved).map_err(message_of)?;
    let in_both = listed.iter().zip(&found).find(|(_, found)| !found.address.is_null());
    let Some(listing) = in_both.and_then(|(name, _)| archives.find(name)) else { return Ok(()) };
    let (name, member) = (archives.name(&listing).unwrap_or_default(), archives.member(listing.member()));
    Err(format!(
        "`{name}` is needed by files after the archive that defines it, {}, and a shared library has it, too; native linkers \
         differ in which one they take; nothing was run; name the archive after these files, or all of them between \
         --start-group and --end-group",
        member.map_err(message_of)?.name()
    ))
}

/// Whether a support library of a compiler may define the name.
pub fn may_be_of_compiler(name: &str) -> bool {
    name.starts_with("__") && !name.starts_with("__start_") && !name.starts_with("__stop_")
}

/// The library of functions and variables that compilers refer to by themselves: of the newest gcc, else of the newest clang.
pub fn support_library() -> Option<PathBuf> {
    let arch = std::env::consts::ARCH;
    let of_gcc = ["/usr/lib/gcc", "/usr/lib64/gcc"].iter().flat_map(|root| entries(Path::new(root)));
    let of_gcc = of_gcc.filter(|triple| file_name(triple).starts_with(arch)).flat_map(|triple| entries(&triple));
    let of_gcc = of_gcc.map(|version| version.join("libgcc.a"));
    if let Some(found) = newest(of_gcc) {
        return Some(found);
    }
    let roots = entries(Path::new("/usr/lib")).into_iter().filter(|folder| file_name(folder).starts_with("llvm-"));
    let roots = roots.map(|folder| folder.join("lib/clang")).chain([PathBuf::from("/usr/lib/clang")]);
    let library = format!("lib/linux/libclang_rt.builtins-{arch}.a");
    newest(roots.flat_map(|root| entries(&root)).map(|version| version.join(&library)))
}

/// The existing file with the greatest version number in its path.
fn newest(files: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    files.filter(|file| file.is_file()).max_by_key(|file| numbers(&file.to_string_lossy()))
}

/// All numbers in a text.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|letter: char| !letter.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
