//! [`Remote`]: the trait [`Executor`] by requests to another process, and the handles of what that process holds.
//!
//! Methods that cannot report an error find nothing or do nothing once the executor has ended. [`Executor::check`] reports that.

use std::ffi::{CStr, CString, c_int};
use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use crate::arch::Arch;
use crate::base::{ExecutorAddr, TlsIndex};
use crate::error::{Error, Result};
use crate::executor::passing::{arguments_of, set_result};
use crate::executor::process::{ExecutorProcess, Peer};
use crate::executor::registered::{Entry, Registration};
use crate::host::{
    CallbackTarget, CodeDump, CodeDumpFile, Executor, ExecutorHandle, ExecutorResource, ExitHookFn, HandlerFunctions,
    HandlerScope, InProcess, KeepAliveFn, LazyEntries, LazyTarget, LoaderFunction, LoaderView, NameMapFile,
    NativeProgram, PassedCall, ProcessExitHook, ProcessSymbol, ProgramSymbol, Stamp, StaticTls, ThreadLocalBlock,
    ViewScope,
};
use crate::sync::{Arc, Mutex};
use crate::wire::{Answer, FoundInProcess, Request, StaticOffset};

/// The process behind a peer.
#[derive(Clone)]
pub(crate) struct Remote(pub(super) Arc<Peer>);

impl Remote {
    pub(crate) fn new(process: &ExecutorProcess) -> Remote {
        Remote(process.0.clone())
    }

    /// The answer to a request, or `None` if the executor has ended or refuses.
    fn ask(&self, request: Request) -> Option<Answer> {
        self.0.ask(request).ok()
    }

    /// Sends a request whose failure leaves nothing to do: what it undoes has ended with the executor.
    fn tell(&self, request: Request) {
        let _ = self.0.tell(request);
    }

    fn count(&self, request: Request) -> usize {
        match self.ask(request) {
            Some(Answer::Value(count)) => count as usize,
            _ => 0,
        }
    }

    fn offset(&self, request: Request) -> Option<i64> {
        match self.ask(request) {
            Some(Answer::Offset(offset)) => offset,
            _ => None,
        }
    }

    /// A handle of the executor. Number 0, which no executor gives out, if it has ended.
    fn handle(&self, request: Request) -> RemoteHandle {
        let number = match self.ask(request) {
            Some(Answer::Handle(number)) => number,
            _ => 0,
        };
        RemoteHandle { remote: self.clone(), number }
    }

    /// A handle and the number of a scope. Both are 0 if the executor has ended.
    fn scope(&self, request: Request) -> (RemoteHandle, u64) {
        let (handle, number) = match self.ask(request) {
            Some(Answer::Scope { handle, number }) => (handle, number),
            _ => (0, 0),
        };
        (RemoteHandle { remote: self.clone(), number: handle }, number)
    }
}

impl Executor for Remote {
    fn is_this_process(&self) -> bool {
        false
    }

    fn arch(&self) -> Arch {
        self.0.arch
    }

    fn check(&self) -> Result<()> {
        self.0.check()
    }

    fn call(&self, address: ExecutorAddr, call: &mut PassedCall) -> Result<()> {
        let request = Request::Call { address: address.value(), arguments: arguments_of(call) };
        match self.0.ask(request)? {
            Answer::Returned(result) if result.memory.len() == call.result.len() => {
                set_result(call, result);
                Ok(())
            }
            other => Err(self.0.unexpected(&other)),
        }
    }

    fn find_symbol(&self, name: &str) -> Option<ProcessSymbol> {
        self.find_symbols(&[name]).pop().flatten()
    }

    fn find_symbols(&self, names: &[&str]) -> Vec<Option<ProcessSymbol>> {
        let request = Request::FindSymbols { names: names.iter().map(|name| name.to_string()).collect() };
        let mut found = match self.ask(request) {
            Some(Answer::Symbols(found)) => found,
            _ => Vec::new(),
        };
        // One for each name, whatever was answered.
        found.resize(names.len(), None);
        found.into_iter().map(|symbol| symbol.map(process_symbol)).collect()
    }

    fn open_library(&self, name: &str) -> Result<()> {
        self.0.tell(Request::OpenLibrary { name: name.to_string() })
    }

    fn program_symbols(&self) -> Result<Vec<ProgramSymbol>> {
        match self.0.ask(Request::ProgramSymbols)? {
            Answer::ProgramSymbols(symbols) => Ok(symbols
                .into_iter()
                .map(|(name, address, is_function)| ProgramSymbol {
                    name: name.into(),
                    address: ExecutorAddr::new(address),
                    is_function,
                })
                .collect()),
            other => Err(self.0.unexpected(&other)),
        }
    }

    fn load_thread_locals(
        &self,
        image: &[u8],
        size: u64,
        align: u64,
        static_tls: StaticTls,
    ) -> std::result::Result<Box<dyn ThreadLocalBlock>, String> {
        let offset = match static_tls {
            StaticTls::Required => StaticOffset::Required,
            StaticTls::Wanted => StaticOffset::Wanted,
            StaticTls::NotNeeded => StaticOffset::NotNeeded,
        };
        let request = Request::LoadThreadLocals { image: image.to_vec(), size, align, offset };
        match self.0.ask(request).map_err(|error| error.to_string())? {
            Answer::ThreadLocals { handle, number, static_offset, has_image } => Ok(Box::new(RemoteBlock {
                handle: RemoteHandle { remote: self.clone(), number: handle },
                number,
                static_offset,
                image: has_image.then(|| image.to_vec()),
            })),
            other => Err(self.0.unexpected(&other).to_string()),
        }
    }

    fn static_offset(&self, variable: TlsIndex, name: &str) -> Option<i64> {
        let TlsIndex { module, offset } = variable;
        self.offset(Request::StaticOffset { module, offset, name: name.to_string() })
    }

    fn thread_local_alignment(&self, module: u32) -> u64 {
        match self.ask(Request::ThreadLocalAlignment { module }) {
            Some(Answer::Value(alignment)) => alignment,
            _ => 0,
        }
    }

    fn run_initializer(&self, address: ExecutorAddr) {
        self.tell(Request::RunInitializer { address: address.value() });
    }

    #[cfg(feature = "reload")]
    fn run_hook(&self, address: ExecutorAddr, arguments: [u64; 3]) -> Result<()> {
        self.call(address, &mut PassedCall::of_integers(self.arch(), &arguments))
    }

    fn open_exit_scope(&self) -> Box<dyn HandlerScope> {
        let (handle, number) = self.scope(Request::OpenExitScope);
        Box::new(RemoteExitScope { handle, number, keep_alive: Mutex::new(None) })
    }

    fn run_exit_handlers(&self, scopes: &[u64]) -> usize {
        if scopes.is_empty() { 0 } else { self.count(Request::RunExitHandlers { scopes: scopes.to_vec() }) }
    }

    fn run_thread_dtors(&self, scopes: &[u64]) -> usize {
        if scopes.is_empty() { 0 } else { self.count(Request::RunThreadDestructors { scopes: scopes.to_vec() }) }
    }

    fn handler_functions(&self) -> HandlerFunctions {
        let [atexit, on_exit, thread_atexit, at_quick_exit, atfork] =
            self.0.facts.handler_functions.map(ExecutorAddr::new);
        HandlerFunctions { atexit, on_exit, thread_atexit, at_quick_exit, atfork }
    }

    fn add_exit_hook(&self, hook: Arc<ExitHookFn>) -> Box<dyn ProcessExitHook> {
        let registration = Registration::new(&self.0.registered, Entry::Hook(hook));
        let handle = self.handle(Request::AddExitHook { hook: registration.number });
        Box::new(RemoteHook { handle, _registration: registration })
    }

    fn set_exit_status(&self, status: c_int) {
        self.tell(Request::SetExitStatus { status });
    }

    fn exit_address(&self) -> ExecutorAddr {
        ExecutorAddr::new(self.0.facts.exit)
    }

    fn open_loader_scope(&self, view: Arc<dyn LoaderView>) -> Box<dyn ViewScope> {
        let registration = Registration::new(&self.0.registered, Entry::View(view));
        let (handle, number) = self.scope(Request::OpenLoaderScope { view: registration.number });
        Box::new(RemoteViewScope { _handle: handle, number, _registration: registration })
    }

    fn loader_functions(&self) -> [LoaderFunction; 3] {
        let mut functions = InProcess.loader_functions();
        for (function, (native, address)) in functions.iter_mut().zip(self.0.facts.loader_functions) {
            function.native = native.map(ExecutorAddr::new);
            function.address = ExecutorAddr::new(address);
        }
        functions
    }

    fn find_in_process(&self, name: &CStr, version: Option<&CStr>) -> Option<ExecutorAddr> {
        let (name, version) = (name.to_bytes().to_vec(), version.map(|version| version.to_bytes().to_vec()));
        match self.ask(Request::FindInProcess { name, version })? {
            Answer::Address(address) => address.map(ExecutorAddr::new),
            _ => None,
        }
    }

    fn register_lazy_targets(&self, targets: Vec<Arc<dyn LazyTarget>>) -> Box<dyn LazyEntries> {
        let register = |target| Registration::new(&self.0.registered, Entry::Lazy(target));
        let registrations: Vec<_> = targets.into_iter().map(register).collect();
        let targets = registrations.iter().map(|registration| registration.number).collect();
        let (handle, mut numbers) = match self.ask(Request::RegisterLazyTargets { targets }) {
            Some(Answer::LazyEntries { handle, numbers }) => (handle, numbers),
            _ => (0, Vec::new()),
        };
        // One for each target, whatever was answered. No executor gives out 0.
        numbers.resize(registrations.len(), 0);
        let handle = RemoteHandle { remote: self.clone(), number: handle };
        Box::new(RemoteEntries { _handle: handle, numbers, _registrations: registrations })
    }

    fn call_through_address(&self) -> ExecutorAddr {
        ExecutorAddr::new(self.0.facts.call_through)
    }

    fn register_callback(&self, target: Arc<dyn CallbackTarget>) -> Box<dyn LazyEntries> {
        let words = target.shape().words();
        let registration = Registration::new(&self.0.registered, Entry::Callback(target));
        let (handle, number) = self.scope(Request::RegisterCallback { callback: registration.number, words });
        Box::new(RemoteEntries { _handle: handle, numbers: vec![number], _registrations: vec![registration] })
    }

    fn callback_address(&self) -> ExecutorAddr {
        ExecutorAddr::new(self.0.facts.callback)
    }

    fn register_symbol_file(&self, symbol_file: Vec<u8>) -> ExecutorHandle {
        Box::new(self.handle(Request::RegisterSymbolFile { bytes: symbol_file }))
    }

    /// This process writes the file, and the executor maps its marker.
    fn create_code_dump(&self, base: &Path, header: fn(Stamp) -> Vec<u8>) -> Result<Box<dyn CodeDumpFile>> {
        if self.0.is_far() || self.arch() != Arch::NATIVE {
            return Err(Error::other(
                "files for perf are written for executors of this machine and its architecture; nothing was done; build the session \
                 without a profiler",
            ));
        }
        let mut marker = None;
        let file = CodeDump::create_for(self.0.id(), base, header, |file| {
            match self.0.ask_with(Request::MapMarker, &[file.as_fd()]) {
                Ok(Answer::Handle(number)) => marker = Some(RemoteHandle { remote: self.clone(), number }),
                Ok(other) => return Err(io::Error::other(self.0.unexpected(&other).to_string())),
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
            Ok(())
        })?;
        Ok(Box::new(RemoteDump { file, _marker: marker }))
    }

    fn open_name_map(&self) -> Result<Box<dyn NameMapFile>> {
        Err(no_profile())
    }

    fn start_program(&self, arguments: &[CString]) -> Box<dyn NativeProgram> {
        let arguments = arguments.iter().map(|argument| argument.to_bytes().to_vec()).collect();
        let program = match self.ask(Request::StartProgram { arguments }) {
            Some(Answer::Handle(program)) => program,
            _ => 0,
        };
        Box::new(RemoteProgram { remote: self.clone(), program })
    }

    /// Each request that runs code has the end of a stack below it there.
    fn at_stack_end(&self, body: &mut dyn FnMut()) {
        body();
    }
}

fn process_symbol(found: FoundInProcess) -> ProcessSymbol {
    match found {
        FoundInProcess::Function(address) => ProcessSymbol::Function(ExecutorAddr::new(address)),
        FoundInProcess::Data(address) => ProcessSymbol::Data(ExecutorAddr::new(address)),
        FoundInProcess::ThreadLocal { module, offset } => ProcessSymbol::TlsIndex(TlsIndex { module, offset }),
    }
}

fn no_profile() -> Error {
    Error::other(
        "perf reads no map of names for the shared memory of an executor; nothing was done; build the session with \
         `Profile::JitDump` or without a profiler",
    )
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "executor process {}", self.0.id())
    }
}

/// Something that the executor holds until this is dropped.
#[derive(Debug)]
struct RemoteHandle {
    remote: Remote,
    number: u64,
}

impl Drop for RemoteHandle {
    fn drop(&mut self) {
        if self.number != 0 {
            self.remote.tell(Request::Drop { handle: self.number });
        }
    }
}

impl ExecutorResource for RemoteHandle {}

#[derive(Debug)]
struct RemoteBlock {
    handle: RemoteHandle,
    number: u32,
    static_offset: Option<i64>,
    /// `Some` until the block is complete.
    image: Option<Vec<u8>>,
}

impl ThreadLocalBlock for RemoteBlock {
    fn number(&self) -> u32 {
        self.number
    }

    fn static_offset(&self) -> Option<i64> {
        self.static_offset
    }

    fn image(&mut self) -> Option<&mut [u8]> {
        self.image.as_deref_mut()
    }

    fn complete(&mut self) {
        if let Some(image) = self.image.take() {
            self.handle.remote.tell(Request::CompleteThreadLocals { block: self.handle.number, image });
        }
    }

    fn request_static_offset(&mut self) -> Option<i64> {
        let offset = self.handle.remote.offset(Request::WantStaticOffset { block: self.handle.number });
        self.static_offset = self.static_offset.or(offset);
        offset
    }
}

/// The fields drop in order: the executor closes the scope before the closure is removed.
struct RemoteExitScope {
    handle: RemoteHandle,
    number: u64,
    keep_alive: Mutex<Option<Registration>>,
}

impl HandlerScope for RemoteExitScope {
    fn number(&self) -> u64 {
        self.number
    }

    fn set_keep_alive(&self, keep_alive: Arc<KeepAliveFn>) {
        let registration = Registration::new(&self.handle.remote.0.registered, Entry::KeepAlive(keep_alive));
        let number = registration.number;
        self.handle.remote.tell(Request::SetKeepAlive { scope: self.handle.number, keep_alive: number });
        let old = self.keep_alive.lock().replace(registration);
        drop(old);
    }

    fn deregister_at_libc(&self) {
        self.handle.remote.tell(Request::DeregisterAtLibc { scope: self.handle.number });
    }
}

impl fmt::Debug for RemoteExitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit scope {} of {:?}", self.number, self.handle.remote)
    }
}

struct RemoteHook {
    handle: RemoteHandle,
    _registration: Registration,
}

impl ProcessExitHook for RemoteHook {
    fn register_at_libc(&self) {
        self.handle.remote.tell(Request::RegisterHooksAtLibc { hook: self.handle.number });
    }
}

impl fmt::Debug for RemoteHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit hook of {:?}", self.handle.remote)
    }
}

struct RemoteViewScope {
    _handle: RemoteHandle,
    number: u64,
    _registration: Registration,
}

impl ViewScope for RemoteViewScope {
    fn number(&self) -> u64 {
        self.number
    }
}

impl fmt::Debug for RemoteViewScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loader scope {}", self.number)
    }
}

struct RemoteEntries {
    _handle: RemoteHandle,
    numbers: Vec<u64>,
    _registrations: Vec<Registration>,
}

impl LazyEntries for RemoteEntries {
    fn count(&self) -> usize {
        self.numbers.len()
    }

    fn number(&self, index: usize) -> u64 {
        self.numbers[index]
    }
}

/// A file for the code of the executor.
struct RemoteDump {
    file: CodeDump,
    _marker: Option<RemoteHandle>,
}

impl CodeDumpFile for RemoteDump {
    fn append(&self, count: u64, records: &mut dyn FnMut(Stamp, u64) -> Vec<u8>) {
        self.file.append(count, records);
    }
}

struct RemoteProgram {
    remote: Remote,
    program: u64,
}

impl NativeProgram for RemoteProgram {
    unsafe fn call_main(&mut self, main: ExecutorAddr) -> Result<c_int> {
        match self.remote.0.ask(Request::CallMain { program: self.program, address: main.value() }) {
            Ok(Answer::Value(status)) => Ok(status as c_int),
            Ok(other) => Err(self.remote.0.unexpected(&other)),
            // The program has called `exit`.
            Err(error) => self.remote.0.exit_status().ok_or(error),
        }
    }
}

impl Drop for RemoteProgram {
    fn drop(&mut self) {
        self.remote.tell(Request::EndProgram { program: self.program });
    }
}
