//! The messages.
//!
//! A *handle* is a number that the executor gives out for something that it holds. The other numbers (`target`, `view`,
//! `hook`, `keep_alive`, `hold`) are given out by the controller for something that the executor asks about.

use serde::{Deserialize, Serialize};

use crate::arch::Arch;
use crate::wire::crash_record::Crash;
use crate::wire::passed::{PassedArguments, PassedResult};

/// A message to the process that runs code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToExecutor {
    Ask(Request),
    Answer(QuestionAnswer),
}

/// A message to the process that links code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToController {
    Ask(Question),
    Answer(Answer),
    /// On the control connection, by a network: the process is about to end by a signal. A second one, with a backtrace, may follow.
    Crashed(Crash),
    /// Likewise: the process is about to end by `exit` with this status.
    Exited(i32),
}

/// What the controller wants. The comment says which [`Answer`] fits; each request may also get [`Answer::Failed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The first one on a connection by a network: prove to be allowed, and say what the connection is for. `Done`.
    Join { token: Vec<u8>, role: Role },
    /// The first one on the control socket, or the second: restrict the process if wanted, then serve. `Facts`.
    Start { sandbox: Option<SandboxRules> },

    // ---- lanes ----
    /// Serve another lane, whose socket and shared page come with the message. `Done`.
    OpenLane,

    // ---- memory ----
    /// Reserve a window. `Window`.
    ReserveWindow { shape: WindowShape, placement: WindowPlacement },
    /// Map the pools of a reserved window. Two descriptors come with the message: the read-only one of code and constants,
    /// and the writable one of data. `Done`.
    MapWindow { window: u64 },
    /// Map files of the executor into a reserved window. `Done`.
    MapOwnWindow { window: u64 },
    /// Write into windows with files of the executor. `Done`.
    Write { changes: Vec<Change> },
    /// Unmap a window. `Done`.
    ReleaseWindow { window: u64 },

    // ---- calls ----
    /// Call a function. `Returned`.
    Call { address: u64, arguments: Box<PassedArguments> },
    /// Call an initialiser or finaliser. `Done`.
    RunInitializer { address: u64 },
    /// Set the process up for a native program. `Handle`.
    StartProgram { arguments: Vec<Vec<u8>> },
    /// Call `main` of a program. `Value`, with the status.
    CallMain { program: u64, address: u64 },
    /// End a program. `Done`.
    EndProgram { program: u64 },

    // ---- symbols ----
    /// `Symbols`, one for each name.
    FindSymbols { names: Vec<String> },
    /// `Done`.
    OpenLibrary { name: String },
    /// `ProgramSymbols`.
    ProgramSymbols,
    /// A symbol, or a version of it, as the loader knows it. `Address`.
    FindInProcess { name: Vec<u8>, version: Option<Vec<u8>> },

    // ---- thread-local storage ----
    /// Load a block. `ThreadLocals`.
    LoadThreadLocals { image: Vec<u8>, size: u64, align: u64, offset: StaticOffset },
    /// Complete a block with its image. `Done`.
    CompleteThreadLocals { block: u64, image: Vec<u8> },
    /// Request a static offset for a block. `Offset`.
    WantStaticOffset { block: u64 },
    /// The static offset of a variable. `Offset`.
    StaticOffset { module: u32, offset: u32, name: String },
    /// The alignment of the block of a module. `Value`.
    ThreadLocalAlignment { module: u32 },

    // ---- exit handlers ----
    /// `Scope`.
    OpenExitScope,
    /// Keep the code of a scope alive by this number from now on. `Done`.
    SetKeepAlive { scope: u64, keep_alive: u64 },
    /// `Done`.
    DeregisterAtLibc { scope: u64 },
    /// `Value`, with the number of calls.
    RunExitHandlers { scopes: Vec<u64> },
    /// `Value`, with the number of calls.
    RunThreadDestructors { scopes: Vec<u64> },
    /// `Handle`.
    AddExitHook { hook: u64 },
    /// `Done`.
    RegisterHooksAtLibc { hook: u64 },
    /// `Done`.
    SetExitStatus { status: i32 },

    // ---- what code asks ----
    /// `Scope`.
    OpenLoaderScope { view: u64 },
    /// `LazyEntries`.
    RegisterLazyTargets { targets: Vec<u64> },
    /// A function of the controller, and what a call of it passes: words in registers of one kind, words of the stack, and bytes of a
    /// result in memory. `Scope`.
    RegisterCallback { callback: u64, words: [u64; 3] },

    // ---- debuggers and profilers ----
    /// Map a page of a file, whose descriptor comes with the message, so that profilers find the file. `Handle`.
    MapMarker,
    /// `Handle`.
    RegisterSymbolFile { bytes: Vec<u8> },

    /// Drop what a handle stands for. `Done`.
    Drop { handle: u64 },
}

/// What the executor answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Failed(String),
    Facts(Facts),
    Value(u64),
    Returned(PassedResult),
    Address(Option<u64>),
    Offset(Option<i64>),
    Handle(u64),
    /// A handle, and the number that linked code passes.
    Scope {
        handle: u64,
        number: u64,
    },
    Symbols(Vec<Option<FoundInProcess>>),
    /// Name, address, and whether it is a function.
    ProgramSymbols(Vec<(String, u64, bool)>),
    ThreadLocals {
        handle: u64,
        number: u32,
        static_offset: Option<i64>,
        has_image: bool,
    },
    LazyEntries {
        handle: u64,
        numbers: Vec<u64>,
    },
    Window(PlaceOfWindow),
}

/// What does not change while an executor lives. It is the answer to the first request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// The id of the process.
    pub(crate) process: u32,
    /// Its architecture: `e_machine` of the ELF header.
    pub(crate) machine: u16,
    /// Functions that register handlers: `__cxa_atexit`, `on_exit`, `__cxa_thread_atexit`, `__cxa_at_quick_exit` and
    /// `__register_atfork`.
    pub(crate) handler_functions: [u64; 5],
    pub(crate) exit: u64,
    /// For `dlsym`, `dlvsym` and `dladdr`: the loader's own function, and the one for linked code.
    pub(crate) loader_functions: [(Option<u64>, u64); 3],
    pub(crate) call_through: u64,
    pub(crate) callback: u64,
}

impl Facts {
    /// The architecture of the process.
    ///
    /// # Errors
    /// Nothing is linked for it.
    pub(crate) fn arch(&self) -> Result<Arch, String> {
        Arch::of_machine(self.machine).ok_or_else(|| format!("nothing is linked for its machine ({})", self.machine))
    }
}

/// What a connection by a network is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Questions for further lanes. The first connection.
    Back,
    /// The start and the end. The second connection.
    Control,
    /// A thread of the controller.
    Lane,
    /// A thread of the executor, which has asked for it by this number.
    BackLane(u64),
    /// Bytes without frames after the answer: the standard input, output or error of the executor.
    Stream(StandardStream),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StandardStream {
    Input,
    Output,
    Error,
}

/// Bytes of a window. The offset counts from its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Change {
    Bytes { window: u64, offset: u64, bytes: Vec<u8> },
    Zeroes { window: u64, offset: u64, size: u64 },
}

/// What the process may still do. Paths, limits in bytes, seconds and descriptors, and whether it gets namespaces of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxRules {
    pub(crate) readable: Vec<Vec<u8>>,
    pub(crate) writable: Vec<Vec<u8>>,
    pub(crate) memory: Option<u64>,
    pub(crate) processor_time: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) namespaces: bool,
}

/// Where a window is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WindowPlacement {
    Anywhere,
    NearHost,
    NearLibraries,
    Low2GiB,
}

/// Whether a thread-local block needs a static offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StaticOffset {
    Required,
    Wanted,
    NotNeeded,
}

/// A symbol of the executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FoundInProcess {
    Function(u64),
    Data(u64),
    ThreadLocal { module: u32, offset: u32 },
}

/// The size of a window, and the offset and the size of its code, its constants and its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WindowShape {
    pub(crate) size: u64,
    pub(crate) pools: [(u64, u64); 3],
}

/// A reserved window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlaceOfWindow {
    pub(crate) window: u64,
    pub(crate) base: u64,
    /// The base that the header of the window was written for.
    pub(crate) preferred: u64,
    /// The random number in the header.
    pub(crate) nonce: u64,
    /// Whether the loader has opened it, so that the unwinder knows it.
    pub(crate) is_loaded: bool,
}

/// What running code wants of the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    /// A lazy function is called. `Address`, or `Failed` with the text to abort with.
    ResolveLazy { target: u64 },
    /// A function of the controller is called. `Returned`, or `Failed` with the text to abort with.
    CallBack { callback: u64, arguments: Box<PassedArguments> },
    /// `dlsym` or `dlvsym` is called. `ByView`.
    FindByView { view: u64, is_next: bool, name: Vec<u8>, version: Option<Vec<u8>> },
    /// `dladdr` is called. `Located`.
    LocateByView { view: u64, address: u64 },
    /// A destructor of a thread-local variable is registered. `Hold`.
    KeepAlive { keep_alive: u64, holder: Vec<u8> },
    /// `Done`.
    DropHold { hold: u64 },
    /// Serve a lane of a thread that the controller does not know. Its socket comes with the message; by a network, the controller opens
    /// it by this number. `Done`.
    OpenLane { number: Option<u64> },
    /// The process calls `exit`. `Done`.
    ExitHook { hook: u64, status: Option<i32> },
}

/// What the controller answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum QuestionAnswer {
    Done,
    Failed(String),
    Address(u64),
    Returned(PassedResult),
    ByView(Option<FoundByView>),
    Located(Option<LocatedByView>),
    Hold(Option<u64>),
}

/// A symbol that the objects of a link see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FoundByView {
    Address(u64),
    ThreadLocal { module: u32, offset: u32 },
}

/// A module, its start, and the symbol at an address with its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LocatedByView {
    pub(crate) module: String,
    pub(crate) base: u64,
    pub(crate) symbol: Option<(String, u64)>,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_a_machine_that_nothing_is_linked_for_is_refused() {
        let of = |machine| Facts {
            process: 1,
            machine,
            handler_functions: [0; 5],
            exit: 0,
            loader_functions: [(None, 0); 3],
            call_through: 0,
            callback: 0,
        };
        assert_eq!([62, 183].map(|machine| of(machine).arch()), [Ok(Arch::X86_64), Ok(Arch::Aarch64)]);
        assert_eq!(of(243).arch(), Err("nothing is linked for its machine (243)".to_string()));
    }
}
