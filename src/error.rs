//! [`Error`] and its kinds, each with its cause and its remedy. A message says what failed, where, what was undone and what to
//! do.
//!
//! | type | what it is |
//! |---|---|
//! | [`Error`] | one pointer wide and cheap to clone, because every query that fails for one cause gets a clone of it |
//! | [`ErrorKind`] | the kinds, for a program to match on. Each describes its meaning, its usual cause and the remedy. |
//! | [`LinkFault`] | why an object cannot be linked |
//! | [`MemoryFault`] | why code memory cannot be allocated |
//! | [`FailureChain`] | the symbols between a failure and its first cause |
//!
//! The fields are text and numbers only, so that every room can make every error. This file defines no policy: the rooms decide
//! which queries fail and what is rolled back.

mod executor_crash;
mod failed_definition;
mod failure_chain;
mod link_fault;
mod memory_fault;
mod short_text;

use std::fmt;

use crate::sync::Arc;

pub use executor_crash::ExecutorCrash;
pub use failed_definition::FailedDefinition;
use failed_definition::missing_remedy;
pub use failure_chain::{FailureChain, FailureStep};
pub use link_fault::LinkFault;
pub use memory_fault::MemoryFault;
pub(crate) use short_text::{SHOWN, listed_with};
use short_text::{defunct, dependency_gone, listed, needed, numbered, of_member, quoted, short, some_of};

/// The result of every fallible operation of the crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error with its cause. It is cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<ErrorKind>);

impl Error {
    /// Returns the kind, for matching.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// Makes an error of the embedder: of a materialisation unit, a generator or a resource manager.
    pub fn other(message: impl fmt::Display) -> Error {
        ErrorKind::Other(message.to_string()).into()
    }

    /// Joins the errors of the steps of one teardown. `Ok` when there is none.
    pub(crate) fn join(mut failures: Vec<Error>) -> Result<()> {
        match failures.len() {
            0 => Ok(()),
            1 => Err(failures.remove(0)),
            _ => Err(ErrorKind::Several(failures).into()),
        }
    }

    /// Returns the innermost cause: the first failure, which led to all the others. A missing name is a cause of its own, unless
    /// all missing names had definitions that failed before.
    pub fn root_cause(&self) -> &Error {
        let mut error = self;
        loop {
            let next = match error.kind() {
                ErrorKind::FailedToMaterialize { cause, .. } | ErrorKind::PatchRefused { cause, .. } => cause,
                _ => error.dependency_failure(),
            };
            if next.is(error) {
                return error;
            }
            error = next;
        }
    }

    /// Whether both are clones of one error.
    pub(crate) fn is(&self, other: &Error) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether the same call may succeed later without a change of its arguments. True when a limit of code memory was reached:
    /// remove code and retry.
    pub fn is_retriable(&self) -> bool {
        // A lookup of a name whose definition is gone would miss it again.
        !matches!(self.kind(), ErrorKind::SymbolsNotFound { .. })
            && matches!(
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

/// Prints the message, as `Display` does, so that `unwrap` and an error from `main` are readable. `{:#?}` prints the structure.
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
    /// The tracker is defunct: it was removed, or transferred to another tracker. Nothing was done.
    ///
    /// - *Cause*: another thread removed the tracker, or the program kept a handle after a removal or a transfer.
    /// - *Remedy*: create a new tracker, or use the destination of the transfer.
    #[error("{tracker} of dylib `{dylib}` is defunct: {}", defunct(removed_by.as_ref()))]
    TrackerDefunct {
        /// The dylib that the tracker belongs to.
        dylib: String,
        /// The tracker, as [`ResourceKey`](crate::session::ResourceKey) prints.
        tracker: String,
        /// The call that removed the tracker while its symbols were being linked, and its thread. `None` if the tracker was
        /// defunct before.
        removed_by: Option<String>,
    },
    /// `try_remove` found that the tracker is in use. Nothing was done.
    ///
    /// - *Cause*: owned handles, other code that refers to it, guards or entered calls hold it.
    /// - *Remedy*: try again later. Or call `remove`, which removes it as soon as the holders release it. Or call
    ///   `remove_cascade`, which also removes the trackers whose code refers to it.
    #[error(
        "{tracker} of dylib `{dylib}` is in use by {}; nothing was done; try again later, or call `remove`, which frees it \
         when the holders release it, or `remove_cascade`, which also removes the code that refers to it",
        listed_with(holders, *more)
    )]
    InUse {
        /// The dylib that the tracker belongs to.
        dylib: String,
        /// The tracker, as [`ResourceKey`](crate::session::ResourceKey) prints.
        tracker: String,
        /// One text per holder: owned handles, trackers whose code refers to it, guards. The first eight of them.
        holders: Vec<String>,
        /// The number of holders that `holders` does not name. [`Removal::obstacles`](crate::session::Removal::obstacles) of a
        /// removed tracker names all.
        more: usize,
    },
    /// A guard of one session was passed to a lookup of another session. No lookup was done.
    ///
    /// - *Cause*: the program mixed up two sessions. The guard would not keep the symbol in memory.
    /// - *Remedy*: enter a guard of the session that is searched.
    #[error(
        "`{symbol}` was not looked up: the guard belongs to another session and would not keep the symbol in memory; enter a \
         guard of this session"
    )]
    ForeignGuard {
        /// The name of the lookup.
        symbol: String,
    },
    /// A tracker of one dylib was passed to an operation on another dylib. Nothing was done.
    ///
    /// - *Cause*: a transfer between trackers of different dylibs, or a definition under a tracker of another dylib.
    /// - *Remedy*: use a tracker of the same dylib.
    #[error(
        "{tracker} belongs to dylib `{owner}` and not to dylib `{dylib}`; nothing was done; transfer and define only within \
         one dylib"
    )]
    ForeignTracker {
        /// The tracker.
        tracker: String,
        /// The dylib that the tracker belongs to.
        owner: String,
        /// The dylib of the operation.
        dylib: String,
    },
    /// A dylib, or a tracker or a symbol of it, was passed to an operation of another session. Nothing was done.
    ///
    /// - *Cause*: the program mixed up two sessions. No session knows that code of another one refers to its code, so it
    ///   would free that code too early.
    /// - *Remedy*: use a dylib of the same session. To use a function of another session, look it up there, keep its
    ///   handle, and define its address as an absolute symbol.
    #[error(
        "dylib `{dylib}` belongs to another session; nothing was done; use dylibs, trackers and symbols of one session only"
    )]
    ForeignSession {
        /// The dylib that was passed, or that the tracker or the symbol belongs to.
        dylib: String,
    },
    /// The dylib is defunct: it was removed, or its session has ended. Nothing was done.
    ///
    /// - *Cause*: another thread removed the dylib or ended the session, and the program still has a handle.
    /// - *Remedy*: create a new dylib.
    #[error("dylib `{dylib}` is defunct: it was removed, or its session has ended; create a new dylib")]
    DylibDefunct {
        /// The dylib.
        dylib: String,
    },
    /// A dylib was deinitialised more often than it was initialised. Nothing was done.
    ///
    /// - *Cause*: `deinitialize` without a matching `initialize`.
    /// - *Remedy*: call `deinitialize` once for each `initialize`.
    #[error(
        "dylib `{dylib}` is not initialised; nothing was done; call `deinitialize` once for each call of `initialize`"
    )]
    NotInitialized {
        /// The dylib.
        dylib: String,
    },
    /// The lookup found the symbol, but its object was then removed because an initialiser failed on another thread.
    ///
    /// - *Cause*: an initialiser of the object threw an exception or panicked.
    /// - *Remedy*: handle the exception in the thread that ran the initialiser, correct the object and add it again.
    #[error(
        "`{symbol}` of dylib `{dylib}` was removed: an initialiser of its object failed on another thread; correct the object \
         and add it again"
    )]
    InitializerFailed {
        /// The symbol.
        symbol: String,
        /// The dylib that was searched first.
        dylib: String,
    },
    /// The process that runs the code of this session has ended.
    ///
    /// - *Cause*: linked code crashed there or called `exit`, or somebody ended the process.
    /// - *Remedy*: start another executor, make a session with it and link again. Removals in this session succeed.
    #[error(
        "the executor process {process} {how}{}; nothing that was linked there runs any more; start another executor, and \
         link into a session with it",
        crash.as_ref().map(|crash| crash.to_string()).unwrap_or_default()
    )]
    ExecutorEnded {
        /// The process id.
        process: u32,
        /// How it ended, and what it did at that time.
        how: String,
        /// Where it crashed. `None` if it ended in another way.
        crash: Option<Box<ExecutorCrash>>,
    },
    /// A `Symbol`, or the address of a thread-local variable, was requested in a session whose code runs in another process. Nothing
    /// was done.
    ///
    /// - *Cause*: both are pointers of the process that links.
    /// - *Remedy*: call functions by `Jit::lookup` or `Jit::remote_function`.
    #[error(
        "the code of this session runs in another process, so this process has no pointer to it; nothing was done; call functions \
         by `Jit::lookup` or `Jit::remote_function`"
    )]
    RunsElsewhere,
    /// The session has ended. Nothing was done.
    ///
    /// - *Cause*: the program uses a handle after `ExecutionSession::end`, or after the last `Jit` was dropped.
    /// - *Remedy*: create a new session.
    #[error("the session has ended; nothing was done; create a new session")]
    SessionEnded,
    /// Required symbols have no definition in the search order. The message names the first eight, the fields all of them.
    ///
    /// - *Cause*: an object or library is missing, its dylib is not in the link order, or a name is misspelt or mangled
    ///   differently. Or a definition failed before: the field `failed` has the cause.
    /// - *Remedy*: add the definition to one of the searched dylibs, or add its dylib to the link order.
    #[error(
        "symbols not found: {}{}; searched: {}; {}",
        quoted(symbols),
        needed(needed_by),
        listed(searched, ", "),
        missing_remedy(symbols, failed)
    )]
    SymbolsNotFound {
        /// All missing names.
        symbols: Vec<String>,
        /// The object that refers to them. `None` when no link asked for them.
        needed_by: Option<String>,
        /// The dylibs that were searched, in order.
        searched: Vec<String>,
        /// Those of `symbols` whose definitions failed before, with the causes.
        failed: Vec<FailedDefinition>,
    },
    /// A dylib already has a strong definition of the name. The second definition was not added; symbol table and tracker are
    /// unchanged.
    ///
    /// - *Cause*: an object was added twice, or two objects define one global name.
    /// - *Remedy*: remove the first definition, make one of the two weak or local, or use two dylibs.
    #[error(
        "duplicate definition of `{}` in dylib `{dylib}`: first in {first}, again in {second}; the second definition was \
         not added; remove the first one, or make one of them weak or local",
        short(symbol)
    )]
    DuplicateDefinition {
        /// The name.
        symbol: String,
        /// The dylib.
        dylib: String,
        /// The unit or object that defines the name.
        first: String,
        /// The unit or object that defines it again.
        second: String,
    },
    /// A common symbol is larger than the definition that takes its place. The second definition was not added.
    ///
    /// - *Cause*: two C files declare one tentative definition with different types.
    /// - *Remedy*: make the sizes equal, or add the object with the larger one first.
    #[error(
        "common symbol `{}` of dylib `{dylib}` needs {wanted} bytes, but the definition that takes its place has {found} \
         bytes (first in {first}, again in {second}); the second definition was not added; make the sizes equal, or add the \
         larger one first",
        short(symbol)
    )]
    CommonTooSmall {
        /// The name.
        symbol: String,
        /// The dylib.
        dylib: String,
        /// The unit or object that defines the name.
        first: String,
        /// The unit or object that defines it again.
        second: String,
        /// The size of the common symbol in bytes.
        wanted: u64,
        /// The size of the definition that takes its place, in bytes.
        found: u64,
    },
    /// The materialisation unit of these symbols failed. They were removed from the symbol table.
    ///
    /// - *Cause*: the field `cause` has it, often an error of the link or of code memory.
    /// - *Remedy*: correct the cause, then define the symbols again.
    #[error("failed to materialize {} in dylib `{dylib}`{}: {cause}", some_of(symbols), through.after(dylib))]
    FailedToMaterialize {
        /// The dylib.
        dylib: String,
        /// The symbols that failed. Those that lookups waited for are first.
        symbols: Vec<String>,
        /// The symbols that failed before, each needed by the one before it. Empty if the unit of `symbols` itself failed.
        through: FailureChain,
        /// The first failure.
        #[source]
        cause: Error,
    },
    /// A symbol that the new code refers to was removed, or failed, while that code was linked. The link was undone.
    ///
    /// - *Cause*: another thread removed the tracker of the symbol. Or its own link failed: the field `cause` has the failure.
    /// - *Remedy*: define the symbol again, then add the object again.
    #[error(
        "`{}` of dylib `{dylib}` was removed while {}, which refers to it, was linked{}; the link was undone; define the symbol \
         again, then link again",
        short(symbol),
        short(dependant),
        dependency_gone(cause.as_ref())
    )]
    DependencyRemoved {
        /// The dylib that had the symbol.
        dylib: String,
        /// The symbol.
        symbol: String,
        /// The unit that refers to it.
        dependant: String,
        /// The failure of the symbol. `None` if the symbol was ready and then removed.
        #[source]
        cause: Option<Error>,
    },
    /// A materialisation responsibility was dropped although it still had symbols to emit. These symbols failed.
    ///
    /// - *Cause*: a materialisation unit returned early, or lost its responsibility in a panic.
    /// - *Remedy*: correct the unit: it must emit or fail every symbol of its responsibility.
    #[error(
        "{unit} dropped its responsibility for {} without emitting or failing them; the symbols failed; correct the unit",
        quoted(symbols)
    )]
    ResponsibilityDropped {
        /// The unit.
        unit: String,
        /// The symbols that were not emitted.
        symbols: Vec<String>,
    },
    /// A unit did not define a symbol that its interface promises, or emitted it without an address. The unit failed.
    ///
    /// - *Cause*: an error in a materialisation unit or in a plugin that changes the symbols of an object.
    /// - *Remedy*: correct the unit or its interface.
    #[error(
        "{unit} {problem} `{symbol}`, although its interface promises this symbol; correct the unit or its interface"
    )]
    InterfaceMismatch {
        /// The unit.
        unit: String,
        /// What the unit did: a verb phrase before the symbol.
        problem: &'static str,
        /// The symbol.
        symbol: String,
    },
    /// A responsibility was asked to emit, delegate or return a symbol that it does not have, or has already resolved.
    ///
    /// - *Cause*: an error in a materialisation unit, for example one symbol in two groups.
    /// - *Remedy*: correct the unit: pass only unresolved symbols of its responsibility, each once.
    #[error(
        "{unit} {problem} `{symbol}`, but is not responsible for this symbol or has already resolved it; nothing was \
         delegated; correct the unit"
    )]
    NotResponsible {
        /// The unit.
        unit: String,
        /// What the unit did: a verb phrase before the symbol.
        problem: &'static str,
        /// The symbol.
        symbol: String,
    },
    /// `remove_symbols` was called for symbols that are being materialised. Nothing was removed.
    ///
    /// - *Cause*: a lookup started the materialisation, and it has not ended.
    /// - *Remedy*: try again when the symbols are ready, or remove their tracker, which is possible at any time.
    #[error(
        "symbols of dylib `{dylib}` are being materialised: {}; nothing was removed; try again when they are ready, or remove \
         their tracker",
        quoted(symbols)
    )]
    SymbolsCouldNotBeRemoved {
        /// The dylib.
        dylib: String,
        /// The symbols that are being materialised.
        symbols: Vec<String>,
    },
    /// A chain of aliases is a cycle. The lookup failed.
    ///
    /// - *Cause*: an alias or a re-export leads, directly or through others, back to itself.
    /// - *Remedy*: remove one alias of the cycle.
    #[error(
        "alias `{symbol}` of dylib `{dylib}` leads back to itself; the lookup failed; remove one alias of the cycle"
    )]
    AliasCycle {
        /// The dylib.
        dylib: String,
        /// The alias.
        symbol: String,
    },
    /// A definition generator suspended a lookup and then dropped it. The lookup failed.
    ///
    /// - *Cause*: an error in an asynchronous generator, or a panic in it.
    /// - *Remedy*: correct the generator: it must resume every lookup that it suspends.
    #[error(
        "a definition generator of dylib `{dylib}` dropped a suspended lookup; the lookup failed; correct the generator, which \
         must resume every lookup that it suspends"
    )]
    LookupAbandoned {
        /// The dylib.
        dylib: String,
    },
    /// An object cannot be linked. Its symbols failed, and its memory was freed.
    ///
    /// - *Cause*: the field `fault` has it.
    /// - *Remedy*: see [`LinkFault`].
    #[error("cannot link {object}: {fault}")]
    Link {
        /// The object.
        object: String,
        /// What is wrong, and where.
        #[source]
        fault: LinkFault,
    },
    /// An archive is malformed or of an unsupported kind.
    ///
    /// - *Cause*: the file is damaged, was changed while it was open, or is not an `ar` archive of a supported variant.
    /// - *Remedy*: build the archive again with `ar rcs`, then add it again.
    #[error("archive {archive}, at offset {offset:#x}{}: {problem}", of_member(member))]
    Archive {
        /// The archive's path.
        archive: String,
        /// The name of the member with the fault. Empty when the fault is not in a member.
        member: String,
        /// The position of the fault in the archive, in bytes.
        offset: u64,
        /// What is wrong.
        problem: String,
    },
    /// Code memory cannot be allocated, or its protection cannot be changed.
    ///
    /// - *Cause*: the fault has it: a limit, a refusal of the kernel, or a request that no pool can serve.
    /// - *Remedy*: see [`MemoryFault`].
    #[error("code memory: {0}")]
    Memory(#[source] MemoryFault),
    /// The dylib has no redirectable stub of this name. Nothing was done.
    ///
    /// - *Cause*: the name is not that of a stub, or the stub was freed with its tracker. `Jit::stub` refuses a stub
    ///   already when its tracker was removed.
    /// - *Remedy*: create the stub with `create_stub`.
    #[error("dylib `{dylib}` has no redirectable stub `{symbol}`; nothing was done; create the stub first")]
    NoSuchStub {
        /// The dylib.
        dylib: String,
        /// The name.
        symbol: String,
    },
    /// A version of patched functions could not be linked or committed. The version was removed, and all callers still call the
    /// version that they called before.
    ///
    /// - *Cause*: the field `cause` has it, for example a missing symbol or a changed signature.
    /// - *Remedy*: correct the cause, then link a new patch.
    #[error(
        "version {version} of {} in dylib `{dylib}` was refused: {cause}; the version was removed, and all callers still call \
         the previous one",
        some_of(functions)
    )]
    PatchRefused {
        /// The dylib of the functions.
        dylib: String,
        /// The functions that may be patched together.
        functions: Vec<String>,
        /// The number of the version.
        version: u64,
        /// The failure.
        #[source]
        cause: Error,
    },
    /// A name cannot be made patchable, or a version cannot replace it. Nothing was done.
    ///
    /// - *Cause*: the field `problem` has it: the dylib already defines the name, or the version defines no such function.
    /// - *Remedy*: make the name patchable before its first definition, or correct the version.
    #[error("`{symbol}` of dylib `{dylib}` cannot be patched: {problem}")]
    NotPatchable {
        /// The dylib.
        dylib: String,
        /// The name.
        symbol: String,
        /// The reason.
        problem: &'static str,
    },
    /// A version declares another signature for a function than an earlier version did. Nothing was linked or committed.
    ///
    /// - *Cause*: the parameters or the result of a patched function changed. Existing callers would pass the old ones.
    /// - *Remedy*: give the changed function another name.
    #[error(
        "`{function}` has the signature `{expected}` since its first version, but this version declares `{found}`; existing \
         callers use the first one; give the changed function another name"
    )]
    WrongSignature {
        /// The function.
        function: String,
        /// The signature of the first version.
        expected: String,
        /// The signature of this version.
        found: String,
    },
    /// A version defines a variable larger than an earlier version did. The version was removed.
    ///
    /// - *Cause*: the type of a global variable changed. A variable keeps its memory when functions are patched.
    /// - *Remedy*: give the changed variable another name.
    #[error(
        "variable `{symbol}` has {wanted} bytes in {object}, but only {found} bytes since an earlier version; a variable keeps \
         its memory when functions are patched; give the changed variable another name"
    )]
    VariableChanged {
        /// The variable.
        symbol: String,
        /// The object that defines it again.
        object: String,
        /// Its size in that object, in bytes.
        wanted: u64,
        /// The size of its memory, in bytes.
        found: u64,
    },
    /// A new version of an object cannot replace the one that runs. Nothing was changed.
    ///
    /// - *Cause*: the field `problem` has it, for example a variable whose size changed.
    /// - *Remedy*: give what changed another name, or start the program again.
    #[error("{object} was not reloaded: `{symbol}`: {problem}; nothing was changed")]
    ReloadRefused {
        /// The object.
        object: String,
        /// What cannot follow.
        symbol: String,
        /// Why.
        problem: String,
    },
    /// The limit of replaced versions that are still in use is reached. Nothing was linked.
    ///
    /// - *Cause*: threads stay inside old versions, or handles and guards hold them.
    /// - *Remedy*: release what the field `obstacles` names, or raise the limit with `max_versions`.
    #[error(
        "{held} replaced versions of {} in dylib `{dylib}` are still in use, and the limit is {limit}; nothing was linked; \
         release the holders or raise the limit: {}",
        some_of(functions),
        listed(obstacles, "; ")
    )]
    TooManyVersions {
        /// The dylib.
        dylib: String,
        /// The functions.
        functions: Vec<String>,
        /// The number of replaced versions that are still in use.
        held: usize,
        /// The limit.
        limit: usize,
        /// The holders: one text per version.
        obstacles: Vec<String>,
    },
    /// There is no commit to roll back. Nothing was done.
    ///
    /// - *Cause*: no patch was committed, or all commits of the history were already rolled back.
    /// - *Remedy*: none is needed. A longer history can be set with `history`.
    #[error("no commit to roll back: {} in dylib `{dylib}` {problem}; nothing was done", some_of(functions))]
    NothingToRollBack {
        /// The dylib.
        dylib: String,
        /// The functions.
        functions: Vec<String>,
        /// The reason: a verb phrase after the functions.
        problem: &'static str,
    },
    /// The patchable functions were removed with all their versions, by themselves or with their dylib. Nothing was done.
    ///
    /// - *Cause*: `Patchable::remove`, or `clear` or `remove` of the dylib.
    /// - *Remedy*: call `Jit::patchable` again.
    #[error(
        "{} of dylib `{dylib}` can no longer be patched: they were removed, or the dylib was cleared or removed, and all versions \
         with it; call `patchable` again",
        some_of(functions)
    )]
    PatchableGone {
        /// The dylib.
        dylib: String,
        /// The functions.
        functions: Vec<String>,
    },
    /// A file could not be opened, read, written or loaded.
    ///
    /// - *Cause*: the field `problem` has the text of the system.
    /// - *Remedy*: depends on the text: correct the path, the permissions or the kind of the file.
    #[error("{path}: {problem}")]
    File {
        /// The path of the file.
        path: String,
        /// The text of the system, or the reason.
        problem: String,
    },
    /// Several independent steps failed. Each step was tried.
    ///
    /// - *Cause*: each error in the list has its own.
    /// - *Remedy*: see the errors in the list.
    #[error("{} failures: {}", .0.len(), numbered(.0))]
    Several(Vec<Error>),
    /// A failure of the embedder's code: a materialisation unit, a generator, a resource manager or a plugin.
    ///
    /// - *Cause*: the text has it. [`Error::other`] made the error.
    /// - *Remedy*: depends on the embedder.
    #[error("{0}")]
    Other(String),
}

impl From<MemoryFault> for Error {
    fn from(fault: MemoryFault) -> Error {
        ErrorKind::Memory(fault).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer_and_keeps_its_root_cause() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        let root = Error::other("disk on fire");
        let outer = Error::failed_to_materialize("main", vec!["foo".into()], &root);
        assert_eq!(outer.root_cause().to_string(), "disk on fire");
        assert!(outer.to_string().contains("`foo`"), "{outer}");
    }

    #[test]
    fn debug_prints_the_message_and_a_message_names_a_few_of_many_symbols() {
        let symbols = (0..300).map(|number| format!("symbol{number}")).collect();
        let error = Error::failed_to_materialize("main", symbols, &Error::other("disk on fire"));
        let message =
            "failed to materialize `symbol0`, `symbol1`, `symbol2` and 297 more in dylib `main`: disk on fire";
        assert_eq!((format!("{error}"), format!("{error:?}")), (message.to_string(), message.to_string()));
        assert!(format!("{error:#?}").contains("symbol299"), "the structure has all symbols");
    }

    #[test]
    fn joined_errors_are_all_in_the_message() {
        let joined = Error::join(vec![Error::other("one"), Error::other("two")]).unwrap_err();
        assert_eq!(joined.to_string(), "2 failures: (1) one (2) two");
        assert!(Error::join(vec![]).is_ok());
    }
}
