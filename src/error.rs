//! Every error of the crate: what failed, where, what was undone, what to do.
//!
//! [`Error`] is one pointer wide and cheap to clone, because one root cause is handed to every query that it fails.
//! [`ErrorKind`] is what a program matches on. Fields use ground words only (text and numbers), so every room may
//! name every error. This file decides no policy: who fails, who rolls back, stands in the rooms.

use std::fmt;

use crate::base::is_linker_made;
use crate::sync::Arc;

/// What every fallible operation of the crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// An error with its cause. Cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<ErrorKind>);

impl Error {
    /// What went wrong, for matching.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// Wraps a failure of the embedder's own: of a materialisation unit, a generator, a resource manager.
    pub fn other(message: impl fmt::Display) -> Error {
        ErrorKind::Other(message.to_string()).into()
    }

    /// Joins what several steps of one teardown reported; `Ok` when nothing did.
    pub(crate) fn join(mut failures: Vec<Error>) -> Result<()> {
        match failures.len() {
            0 => Ok(()),
            1 => Err(failures.remove(0)),
            _ => Err(ErrorKind::Several(failures).into()),
        }
    }

    /// The innermost cause: the failure that set all the others off.
    pub fn root_cause(&self) -> &Error {
        match self.kind() {
            ErrorKind::FailedToMaterialize { cause, .. } | ErrorKind::PatchRefused { cause, .. } => cause.root_cause(),
            _ => self,
        }
    }

    /// Whether the same call may succeed later, without anything being mended: when a limit of memory was in the way, once
    /// something has been removed.
    pub fn is_retriable(&self) -> bool {
        matches!(
            self.root_cause().kind(),
            ErrorKind::Memory(MemoryFault::PoolExhausted { .. } | MemoryFault::BudgetExceeded { .. })
        )
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error(Arc::new(kind))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The message: what a program shows that unwraps an error, or returns one from `main`. With `{:#?}`, the structure.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { fmt::Debug::fmt(&*self.0, f) } else { fmt::Display::fmt(&*self.0, f) }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// The kinds of [`Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The tracker was removed, or transferred to another; nothing more can be put under it.
    #[error(
        "{tracker} of dylib `{dylib}` is defunct (removed, or transferred away): nothing was done; use a live tracker"
    )]
    TrackerDefunct {
        /// The dylib that the tracker belongs to.
        dylib: String,
        /// The tracker, as [`ResourceKey`](crate::session::ResourceKey) prints.
        tracker: String,
    },
    /// A tracker was to be removed only if nothing holds it.
    #[error(
        "{tracker} of dylib `{dylib}` is in use, by {}: nothing was done; try again later, or use `remove`, which waits for \
         them, or `remove_cascade`, which takes along what refers to it",
        holders.join(", ")
    )]
    InUse {
        /// The dylib that the tracker belongs to.
        dylib: String,
        /// The tracker, as [`ResourceKey`](crate::session::ResourceKey) prints.
        tracker: String,
        /// Who is in the way, one each: owned handles, trackers whose code refers to it, guards.
        holders: Vec<String>,
    },
    /// A guard of one session was handed to another.
    #[error(
        "`{symbol}` was not looked up: the guard is of another session, and would not hold it; enter one of this session"
    )]
    ForeignGuard {
        /// What was to be looked up.
        symbol: String,
    },
    /// A tracker of one dylib was handed to an operation of another.
    #[error(
        "{tracker} belongs to dylib `{owner}`, not to `{dylib}`: nothing was done; transfer and define stay within one dylib"
    )]
    ForeignTracker {
        /// The tracker.
        tracker: String,
        /// The dylib that the tracker belongs to.
        owner: String,
        /// The dylib that was asked.
        dylib: String,
    },
    /// The dylib was removed.
    #[error("dylib `{dylib}` is defunct: it was removed, or its session has ended")]
    DylibDefunct {
        /// The dylib.
        dylib: String,
    },
    /// A dylib was deinitialised more often than it was initialised.
    #[error("dylib `{dylib}` is not initialised: nothing was done")]
    NotInitialized {
        /// The dylib.
        dylib: String,
    },
    /// The symbol was there, and its object was taken back while another thread initialised it: an initialiser threw.
    #[error("`{symbol}` of dylib `{dylib}` is gone: its object was taken back while it was being initialised")]
    TakenBack {
        /// The symbol.
        symbol: String,
        /// The dylib that was searched first.
        dylib: String,
    },
    /// The session has ended.
    #[error("the session has ended")]
    SessionEnded,
    /// Some required symbols have no definition in the search order. All of them are listed.
    #[error(
        "symbols not found: {}{}; searched: {}{}",
        quoted(symbols),
        needed(needed_by),
        searched.join(", "),
        linker_made(symbols)
    )]
    SymbolsNotFound {
        /// Every missing name.
        symbols: Vec<String>,
        /// The object that refers to them, when a link asked.
        needed_by: Option<String>,
        /// The dylibs that were searched, in order.
        searched: Vec<String>,
    },
    /// Two strong definitions of one name in one dylib. Neither table nor tracker was changed.
    #[error(
        "duplicate definition of `{symbol}` in dylib `{dylib}`: first in {first}, again in {second}; the second was not added"
    )]
    DuplicateDefinition {
        /// The name.
        symbol: String,
        /// The dylib.
        dylib: String,
        /// Where the name is defined.
        first: String,
        /// Where it was defined again.
        second: String,
    },
    /// A common symbol, and a definition of its name that is smaller. The second was not added.
    #[error(
        "common symbol `{symbol}` of dylib `{dylib}` needs {wanted} bytes, and the definition that counts has {found} \
         (first in {first}, again in {second}); the second was not added: make the sizes equal, or add the larger first"
    )]
    CommonTooSmall {
        /// The name.
        symbol: String,
        /// The dylib.
        dylib: String,
        /// Where the name is defined.
        first: String,
        /// Where it was defined again.
        second: String,
        /// Bytes of the common symbol.
        wanted: u64,
        /// Bytes of the definition that would stand in for it.
        found: u64,
    },
    /// The unit that was to supply these symbols failed. They are gone from the table; a new definition is welcome.
    #[error("failed to materialize {} in dylib `{dylib}`: {cause}", some_of(symbols))]
    FailedToMaterialize {
        /// The dylib.
        dylib: String,
        /// The symbols that failed.
        symbols: Vec<String>,
        /// Why.
        #[source]
        cause: Error,
    },
    /// A symbol that the emitted code refers to was removed while the code was being linked.
    #[error(
        "`{symbol}` of dylib `{dylib}` was removed while {dependant} was being linked against it: the link was undone"
    )]
    DependencyRemoved {
        /// The dylib that held the symbol.
        dylib: String,
        /// The symbol.
        symbol: String,
        /// Who refers to it.
        dependant: String,
    },
    /// A materialisation responsibility was dropped with symbols still owed.
    #[error("{unit} gave up {} without emitting or failing them", quoted(symbols))]
    ResponsibilityDropped {
        /// The unit.
        unit: String,
        /// The symbols still owed.
        symbols: Vec<String>,
    },
    /// A unit did not keep what its interface promises.
    #[error("{unit} {problem} `{symbol}`, which its interface promises")]
    InterfaceMismatch {
        /// The unit.
        unit: String,
        /// What it does, or does not do, to the symbol.
        problem: &'static str,
        /// The symbol.
        symbol: String,
    },
    /// A responsibility was asked to hand on a symbol that it does not owe.
    #[error("{unit} {problem} `{symbol}`, which it does not owe, or has resolved: nothing was handed on")]
    NotOwed {
        /// The unit.
        unit: String,
        /// What it was asked to do.
        problem: &'static str,
        /// The symbol.
        symbol: String,
    },
    /// Symbols cannot be removed one by one while they are being materialised. Nothing was removed.
    #[error("symbols of dylib `{dylib}` are being materialised and were not removed: {}", quoted(symbols))]
    SymbolsCouldNotBeRemoved {
        /// The dylib.
        dylib: String,
        /// The symbols.
        symbols: Vec<String>,
    },
    /// An alias leads back to itself.
    #[error("alias `{symbol}` of dylib `{dylib}` leads back to itself")]
    AliasCycle {
        /// The dylib.
        dylib: String,
        /// The alias.
        symbol: String,
    },
    /// A generator captured a lookup and let go of it.
    #[error("a definition generator of dylib `{dylib}` dropped a lookup that it had captured")]
    LookupAbandoned {
        /// The dylib.
        dylib: String,
    },
    /// An object cannot be linked.
    #[error("cannot link {object}: {fault}")]
    Link {
        /// The object.
        object: String,
        /// What is wrong, and where.
        #[source]
        fault: LinkFault,
    },
    /// An archive contradicts itself, or is of a kind that is not read.
    #[error("archive {archive}, at offset {offset:#x}{}: {problem}", of_member(member))]
    Archive {
        /// The archive's path.
        archive: String,
        /// The member concerned, or empty.
        member: String,
        /// Where in the archive, in bytes.
        offset: u64,
        /// What is wrong.
        problem: String,
    },
    /// Code memory cannot be had.
    #[error("code memory: {0}")]
    Memory(#[source] MemoryFault),
    /// A stub of this name does not exist in the dylib.
    #[error("no redirectable stub `{symbol}` in dylib `{dylib}`")]
    NoSuchStub {
        /// The dylib.
        dylib: String,
        /// The name.
        symbol: String,
    },
    /// A version of patched functions could not be linked or committed. It was taken back whole.
    #[error(
        "version {version} of {} in dylib `{dylib}` was refused: {cause}; it was taken back, and all callers are where they \
         were before",
        some_of(functions)
    )]
    PatchRefused {
        /// The dylib whose functions were to be patched.
        dylib: String,
        /// The functions that may be patched together.
        functions: Vec<String>,
        /// The version.
        version: u64,
        /// Why.
        #[source]
        cause: Error,
    },
    /// A name cannot be patched, or not by this.
    #[error("`{symbol}` of dylib `{dylib}` cannot be patched: {problem}")]
    NotPatchable {
        /// The dylib.
        dylib: String,
        /// The name.
        symbol: String,
        /// Why.
        problem: &'static str,
    },
    /// A version says another signature of a function than its first version did.
    #[error(
        "`{function}` is `{expected}` since its first version, and now said to be `{found}`: its callers would not know; \
         give the changed function another name"
    )]
    WrongSignature {
        /// The function.
        function: String,
        /// What its first version said.
        expected: String,
        /// What this version says.
        found: String,
    },
    /// A version defines a variable that is there already, and is smaller there.
    #[error(
        "variable `{symbol}` has {wanted} bytes in {object}, and {found} where it lives since an earlier version: \
         variables stay when functions are patched; give the changed one another name"
    )]
    VariableChanged {
        /// The variable.
        symbol: String,
        /// The object that defines it again.
        object: String,
        /// Bytes there.
        wanted: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// As many versions as are allowed have been replaced and are held all the same. Nothing was linked.
    #[error(
        "{held} replaced versions of {} in dylib `{dylib}` are still held, and {limit} may be: nothing was linked; {}",
        some_of(functions),
        obstacles.join("; ")
    )]
    TooManyVersions {
        /// The dylib.
        dylib: String,
        /// The functions.
        functions: Vec<String>,
        /// How many versions were replaced and are still held.
        held: usize,
        /// How many may be.
        limit: usize,
        /// Who holds them, a line for each version.
        obstacles: Vec<String>,
    },
    /// There is no commit to undo: none was made, or as many were undone as the history keeps.
    #[error("nothing to roll back: {} in dylib `{dylib}` {problem}; nothing was done", some_of(functions))]
    NothingToRollBack {
        /// The dylib.
        dylib: String,
        /// The functions.
        functions: Vec<String>,
        /// What there is instead.
        problem: &'static str,
    },
    /// The patched functions went with their dylib, which was cleared or removed.
    #[error(
        "{} of dylib `{dylib}` cannot be patched any more: the dylib was cleared or removed, and all versions went along; \
         ask for them to be patchable again",
        some_of(functions)
    )]
    PatchableGone {
        /// The dylib.
        dylib: String,
        /// The functions.
        functions: Vec<String>,
    },
    /// A file could not be read.
    #[error("{path}: {problem}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        problem: String,
    },
    /// Several independent steps failed; none stopped the others.
    #[error("{} failures: {}", .0.len(), numbered(.0))]
    Several(Vec<Error>),
    /// A failure of the embedder's own.
    #[error("{0}")]
    Other(String),
}

/// Why an object cannot be linked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LinkFault {
    /// The bytes are not a relocatable ELF object.
    #[error("not a relocatable ELF64 object: {0}")]
    NotAnObject(String),
    /// The object is for another machine.
    #[error("wrong architecture: e_machine is {found}, this session links {expected}")]
    WrongArchitecture {
        /// What the header says.
        found: String,
        /// What the session links.
        expected: &'static str,
    },
    /// The object contradicts itself.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The object asks for something that is not supported.
    #[error("unsupported {what} (section `{section}`, offset {offset:#x}, symbol `{symbol}`)")]
    Unsupported {
        /// The construct, by the name that the ABI gives it.
        what: String,
        /// The section.
        section: String,
        /// Offset in the section, in bytes.
        offset: u64,
        /// The symbol concerned, or empty.
        symbol: String,
    },
    /// An object asks for the bounds of a section of which another object has a part.
    #[error(
        "section `{section}` is in {bringing}, and {asking} asks for its bounds (`__start_{section}`, `__stop_{section}`), which \
         would be those of its own part only; make one object of both with `ld -r`, or add them to dylibs of their own"
    )]
    BoundsAcrossObjects {
        /// The section.
        section: String,
        /// The object that asks for the bounds.
        asking: String,
        /// The other object that has such a section.
        bringing: String,
    },
    /// A relocation's value does not fit its field.
    #[error(
        "relocation {kind} out of range (section `{section}`, offset {offset:#x}, symbol `{symbol}` at {target:#x}): \
         value {} is not in [{}, {}]; {advice}",
        signed(value),
        signed(min),
        signed(max)
    )]
    OutOfRange {
        /// The section.
        section: String,
        /// Offset in the section, in bytes.
        offset: u64,
        /// The relocation, by its psABI name.
        kind: String,
        /// The symbol.
        symbol: String,
        /// The symbol's address.
        target: u64,
        /// The value computed.
        value: i128,
        /// Smallest value that fits.
        min: i128,
        /// Largest value that fits.
        max: i128,
        /// What to do.
        advice: &'static str,
    },
    /// The linked bytes are not what the object and the addresses make them: a fault of jittison itself; debug builds only.
    #[error(
        "a second opinion differs, which is a fault of jittison itself (section `{section}`, offset {offset:#x}, {kind}): \
         found {found}, expected {expected}"
    )]
    SecondOpinion {
        /// The section, or what else was looked at.
        section: String,
        /// Offset there, in bytes, or a position in it.
        offset: u64,
        /// The relocation, by its psABI name, or what else differs.
        kind: String,
        /// What is there.
        found: String,
        /// What must be.
        expected: String,
    },
}

/// Why code memory cannot be had.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryFault {
    /// The kernel, or the loader, refused a step.
    #[error("{step} was refused: {problem}; nothing was kept")]
    Refused {
        /// The step.
        step: String,
        /// What the system said.
        problem: String,
    },
    /// The pool is full: retry after removing something.
    #[error(
        "the {pool} pool is exhausted: {requested} bytes asked, {available} of {capacity} left, largest free range {largest}; remove code and retry"
    )]
    PoolExhausted {
        /// The pool.
        pool: &'static str,
        /// Bytes asked for, with alignment.
        requested: u64,
        /// Bytes not in use, opened or not.
        available: u64,
        /// Bytes of the pool.
        capacity: u64,
        /// Largest contiguous free range.
        largest: u64,
    },
    /// The embedder's limit on code memory is reached: retry after removing something.
    #[error("the budget of {limit} bytes is used up: {requested} bytes asked, {held} held; remove code and retry")]
    BudgetExceeded {
        /// Bytes asked for, padding included.
        requested: u64,
        /// Bytes held.
        held: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The plan asks for something that no pool can give.
    #[error("cannot place {size} bytes aligned to {align} in the {pool} pool: {problem}")]
    BadPlan {
        /// The pool.
        pool: &'static str,
        /// Bytes.
        size: u64,
        /// Alignment, in bytes.
        align: u64,
        /// Why.
        problem: &'static str,
    },
}

impl From<MemoryFault> for Error {
    fn from(fault: MemoryFault) -> Error {
        ErrorKind::Memory(fault).into()
    }
}

/// Hexadecimal with a sign, as people write displacements.
fn signed(value: &i128) -> String {
    let sign = if *value < 0 { "-" } else { "" };
    format!("{sign}{:#x}", value.unsigned_abs())
}

/// What is to be said of names that a native linker makes.
fn linker_made(symbols: &[String]) -> String {
    let made: Vec<String> = symbols.iter().filter(|name| is_linker_made(name.as_bytes())).cloned().collect();
    match made.is_empty() {
        true => String::new(),
        false => {
            format!("; a native linker makes {} for a whole program: define what it is to mean here", quoted(&made))
        }
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Those that went down with one cause may be many.
fn some_of(names: &[String]) -> String {
    const SOME: usize = 3;
    match names.len().checked_sub(SOME) {
        None | Some(0) => quoted(names),
        Some(more) => format!("{} and {more} more", quoted(&names[..SOME])),
    }
}

fn of_member(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!(", member `{member}`") }
}

fn needed(by: &Option<String>) -> String {
    by.as_ref().map(|object| format!(" (needed by {object})")).unwrap_or_default()
}

fn numbered(failures: &[Error]) -> String {
    failures.iter().enumerate().map(|(i, e)| format!("({}) {e}", i + 1)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer_and_keeps_its_root_cause() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        let root = Error::other("disk on fire");
        let outer: Error =
            ErrorKind::FailedToMaterialize { dylib: "main".into(), symbols: vec!["foo".into()], cause: root }.into();
        assert_eq!(outer.root_cause().to_string(), "disk on fire");
        assert!(outer.to_string().contains("`foo`"), "{outer}");
    }

    #[test]
    fn an_error_that_is_unwrapped_is_its_message_and_names_a_few_of_many_symbols() {
        let symbols = (0..300).map(|number| format!("symbol{number}")).collect();
        let cause = Error::other("disk on fire");
        let error: Error = ErrorKind::FailedToMaterialize { dylib: "main".into(), symbols, cause }.into();
        let message =
            "failed to materialize `symbol0`, `symbol1`, `symbol2` and 297 more in dylib `main`: disk on fire";
        assert_eq!((format!("{error}"), format!("{error:?}")), (message.to_string(), message.to_string()));
        assert!(format!("{error:#?}").contains("symbol299"), "the structure has all of them");
    }

    #[test]
    fn a_value_out_of_range_is_printed_with_its_sign() {
        let fault = LinkFault::OutOfRange {
            section: ".text".into(),
            offset: 4,
            kind: "R_X86_64_PC8".into(),
            symbol: "foo".into(),
            target: 0x1000,
            value: -0x81,
            min: -0x80,
            max: 0x7f,
            advice: "move it",
        };
        assert!(fault.to_string().contains("value -0x81 is not in [-0x80, 0x7f]"), "{fault}");
    }

    #[test]
    fn joined_failures_are_all_told() {
        let joined = Error::join(vec![Error::other("one"), Error::other("two")]).unwrap_err();
        assert_eq!(joined.to_string(), "2 failures: (1) one (2) two");
        assert!(Error::join(vec![]).is_ok());
    }
}
