//! Tests of the seam to the process: an executor that writes down each call shows what reaches the process, and when.

use std::ffi::{CStr, CString, c_int, c_long};
use std::path::Path;

use jittison_test_tools::{gcc, own_process, require_that};

use crate::arch::Arch;
use crate::base::{ExecutorAddr, Name, TlsIndex};
use crate::error::Result;
#[cfg(feature = "executor")]
use crate::host::CallbackTarget;
use crate::host::{
    CodeDumpFile, Executor, ExecutorHandle, ExecutorResource, ExitHookFn, HandlerFunctions, HandlerScope, InProcess,
    KeepAliveFn, LazyEntries, LazyTarget, LoaderFunction, LoaderView, NameMapFile, NativeProgram, ProcessExitHook,
    ProcessSymbol, ProgramSymbol, Stamp, StaticTls, ThreadLocalBlock, ViewScope,
};
use crate::jit::inner::Jit;
use crate::jit::program::Program;
use crate::platform::Profile;
use crate::session::{Alias, SymbolFlags};
use crate::sync::{Arc, StaticMutex};

/// An object with a thread-local variable, an initialiser, a finaliser and an exit handler.
const OBJECT: &str = "
    int atexit(void (*)(void));
    _Thread_local long counter = 5;
    volatile int ended;
    static void at_exit(void) {}
    __attribute__((constructor)) static void start(void) { atexit(at_exit); }
    __attribute__((destructor)) static void end(void) { ended = 1; }
    long next(void) { return ++counter; }";

/// An object whose code needs the static offset of the variable.
const USER: &str = "extern _Thread_local long counter; long peek(void) { return counter; }";

#[test]
#[cfg_attr(miri, ignore = "runs machine code")]
fn linked_code_reaches_the_process_only_through_the_executor() {
    own_process!();
    let compile = |source| gcc(&["-O2", "-fPIC", "-ftls-model=initial-exec"], source);
    let (Some(object), Some(user_object)) = (compile(OBJECT), compile(USER)) else { return };
    let log = Log::default();
    let builder = Jit::builder().run_through(Arc::new(Recorder(log.clone()))).library("libm.so.6");
    let jit = builder.debugger(true).profiler(Some(Profile::JitDump)).build().unwrap();
    assert_eq!(log.take(), ["add_exit_hook", "create_code_dump"]);

    let main = jit.main_dylib();
    let tracker = main.create_tracker().unwrap();
    jit.link_object(&tracker, "object.o", object).unwrap();
    let linked = log.take();
    for call in ["open_exit_scope", "handler_functions", "load_thread_locals", "append to the code dump"] {
        assert!(linked.contains(&call), "{call} is not in {linked:?}");
    }
    assert!(linked.ends_with(&["set_keep_alive", "register_symbol_file"]), "{linked:?}");

    // SAFETY: J1 - `next` has this signature, and the object may run.
    let next = unsafe { jit.lookup::<extern "C" fn() -> c_long>("next").unwrap() };
    assert_eq!(log.take(), ["register_at_libc", "run_initializer"]);
    assert_eq!((next.call(), next.call()), (6, 7));
    drop(next);

    let user = main.create_tracker().unwrap();
    jit.link_object(&user, "user.o", user_object).unwrap();
    assert_eq!(log.take(), ["static_offset", "append to the code dump", "register_symbol_file"]);

    let alias = Alias { name: Name::new("lazy"), aliasee: Name::new("next"), flags: SymbolFlags::EXPORTED };
    let lazy = main.create_tracker().unwrap();
    jit.lazy_reexport(&lazy, main, &[alias]).unwrap();
    assert_eq!(log.take(), ["call_through_address", "register_lazy_targets", "number of an entry"]);
    // SAFETY: J1 - `lazy` stands for `next`.
    assert_eq!(unsafe { jit.lookup::<extern "C" fn() -> c_long>("lazy").unwrap() }.call(), 8);

    assert!(jit.address_of(main, "no_such_symbol").is_err());
    assert_eq!(log.take(), ["find_symbol", "open_library", "find_symbol"]);
    jit.add_program_symbols(main).unwrap();
    assert_eq!(log.take(), ["program_symbols"]);

    assert!(lazy.remove().unwrap().is_complete());
    assert_eq!(log.take(), ["drop lazy entries"]);
    assert!(user.remove().unwrap().is_complete());
    assert_eq!(log.take(), ["drop symbol file"]);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(
        log.take(),
        [
            "run_exit_handlers",
            "run_initializer",
            "run_exit_handlers",
            "drop exit scope",
            "drop symbol file",
            "drop thread-local block"
        ]
    );
    drop((lazy, user, tracker, jit));
    let mut ended = log.take();
    ended.sort_unstable();
    assert_eq!(ended, ["drop code dump", "drop exit hook"]);
}

#[test]
#[cfg_attr(miri, ignore = "runs machine code")]
fn a_program_starts_and_ends_only_through_the_executor() {
    own_process!();
    let object: &[u8] = include_bytes!("../../../docs/examples/program.o");
    if !require_that(object[18..20] == Arch::NATIVE.e_machine().to_le_bytes(), "the machine of program.o") {
        return;
    }
    let log = Log::default();
    let jit = Jit::builder().run_through(Arc::new(Recorder(log.clone()))).build().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let program = Program::new(&jit, &tracker).unwrap();
    jit.add_object(&tracker, "program.o", object).unwrap();
    log.take();
    // SAFETY: J1 - the object defines a `main` of C, and it may run.
    let status = unsafe { program.run("main", &[c"program".to_owned()], |_| {}).unwrap() };
    assert_eq!(status, 41);
    let calls = log.take();
    let expected = [
        "start_program",
        "add_exit_hook",
        "register_at_libc",
        "at_stack_end",
        "call_main",
        "set_exit_status",
        "run_exit_handlers",
        "drop exit hook",
        "drop program",
    ];
    assert_eq!(calls, expected);
}

// ---- the executor -----------------------------------------------------------

/// The calls so far.
#[derive(Debug, Clone, Default)]
struct Log(Arc<StaticMutex<Vec<&'static str>>>);

impl Log {
    fn note(&self, call: &'static str) {
        self.0.lock().push(call);
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock())
    }

    fn handle<T>(&self, name: &'static str, value: T) -> Noted<T> {
        Noted { value, dropped: name, log: self.clone() }
    }
}

/// Passes each call on to this process.
#[derive(Debug)]
struct Recorder(Log);

/// A handle of the process, whose drop is noted.
#[derive(Debug)]
struct Noted<T> {
    value: T,
    dropped: &'static str,
    log: Log,
}

impl<T> Drop for Noted<T> {
    fn drop(&mut self) {
        self.log.note(self.dropped);
    }
}

impl Executor for Recorder {
    fn find_symbol(&self, name: &str) -> Option<ProcessSymbol> {
        self.0.note("find_symbol");
        InProcess.find_symbol(name)
    }

    fn open_library(&self, name: &str) -> Result<()> {
        self.0.note("open_library");
        InProcess.open_library(name)
    }

    fn program_symbols(&self) -> Result<Vec<ProgramSymbol>> {
        self.0.note("program_symbols");
        InProcess.program_symbols()
    }

    fn load_thread_locals(
        &self,
        image: &[u8],
        size: u64,
        align: u64,
        static_tls: StaticTls,
    ) -> std::result::Result<Box<dyn ThreadLocalBlock>, String> {
        self.0.note("load_thread_locals");
        let block = InProcess.load_thread_locals(image, size, align, static_tls)?;
        Ok(Box::new(self.0.handle("drop thread-local block", block)))
    }

    fn static_offset(&self, variable: TlsIndex, name: &str) -> Option<i64> {
        self.0.note("static_offset");
        InProcess.static_offset(variable, name)
    }

    fn thread_local_alignment(&self, module: u32) -> u64 {
        self.0.note("thread_local_alignment");
        InProcess.thread_local_alignment(module)
    }

    #[cfg(feature = "reload")]
    fn run_hook(&self, address: ExecutorAddr, arguments: [u64; 3]) -> Result<()> {
        InProcess.run_hook(address, arguments)
    }

    fn run_initializer(&self, address: ExecutorAddr) {
        self.0.note("run_initializer");
        InProcess.run_initializer(address);
    }

    fn open_exit_scope(&self) -> Box<dyn HandlerScope> {
        self.0.note("open_exit_scope");
        Box::new(self.0.handle("drop exit scope", InProcess.open_exit_scope()))
    }

    fn run_exit_handlers(&self, scopes: &[u64]) -> usize {
        self.0.note("run_exit_handlers");
        InProcess.run_exit_handlers(scopes)
    }

    fn run_thread_dtors(&self, scopes: &[u64]) -> usize {
        self.0.note("run_thread_dtors");
        InProcess.run_thread_dtors(scopes)
    }

    fn handler_functions(&self) -> HandlerFunctions {
        self.0.note("handler_functions");
        InProcess.handler_functions()
    }

    fn add_exit_hook(&self, hook: Arc<ExitHookFn>) -> Box<dyn ProcessExitHook> {
        self.0.note("add_exit_hook");
        Box::new(self.0.handle("drop exit hook", InProcess.add_exit_hook(hook)))
    }

    fn set_exit_status(&self, status: c_int) {
        self.0.note("set_exit_status");
        InProcess.set_exit_status(status);
    }

    fn exit_address(&self) -> ExecutorAddr {
        self.0.note("exit_address");
        InProcess.exit_address()
    }

    fn open_loader_scope(&self, view: Arc<dyn LoaderView>) -> Box<dyn ViewScope> {
        self.0.note("open_loader_scope");
        Box::new(self.0.handle("drop loader scope", InProcess.open_loader_scope(view)))
    }

    fn loader_functions(&self) -> [LoaderFunction; 3] {
        self.0.note("loader_functions");
        InProcess.loader_functions()
    }

    fn find_in_process(&self, name: &CStr, version: Option<&CStr>) -> Option<ExecutorAddr> {
        self.0.note("find_in_process");
        InProcess.find_in_process(name, version)
    }

    fn register_lazy_targets(&self, targets: Vec<Arc<dyn LazyTarget>>) -> Box<dyn LazyEntries> {
        self.0.note("register_lazy_targets");
        Box::new(self.0.handle("drop lazy entries", InProcess.register_lazy_targets(targets)))
    }

    fn call_through_address(&self) -> ExecutorAddr {
        self.0.note("call_through_address");
        InProcess.call_through_address()
    }

    #[cfg(feature = "executor")]
    fn register_callback(&self, target: Arc<dyn CallbackTarget>) -> Box<dyn LazyEntries> {
        self.0.note("register_callback");
        Box::new(self.0.handle("drop callback", InProcess.register_callback(target)))
    }

    #[cfg(feature = "executor")]
    fn callback_address(&self) -> ExecutorAddr {
        self.0.note("callback_address");
        InProcess.callback_address()
    }

    fn register_symbol_file(&self, symbol_file: Vec<u8>) -> ExecutorHandle {
        self.0.note("register_symbol_file");
        Box::new(self.0.handle("drop symbol file", InProcess.register_symbol_file(symbol_file)))
    }

    /// Makes no file.
    fn create_code_dump(&self, _: &Path, _: fn(Stamp) -> Vec<u8>) -> Result<Box<dyn CodeDumpFile>> {
        self.0.note("create_code_dump");
        Ok(Box::new(self.0.handle("drop code dump", ())))
    }

    fn open_name_map(&self) -> Result<Box<dyn NameMapFile>> {
        self.0.note("open_name_map");
        InProcess.open_name_map()
    }

    fn start_program(&self, arguments: &[CString]) -> Box<dyn NativeProgram> {
        self.0.note("start_program");
        Box::new(self.0.handle("drop program", InProcess.start_program(arguments)))
    }

    fn at_stack_end(&self, body: &mut dyn FnMut()) {
        self.0.note("at_stack_end");
        InProcess.at_stack_end(body);
    }
}

impl ExecutorResource for Noted<ExecutorHandle> {}

impl ThreadLocalBlock for Noted<Box<dyn ThreadLocalBlock>> {
    fn number(&self) -> u32 {
        self.value.number()
    }

    fn static_offset(&self) -> Option<i64> {
        self.value.static_offset()
    }

    fn image(&mut self) -> Option<&mut [u8]> {
        self.value.image()
    }

    fn complete(&mut self) {
        self.value.complete();
    }

    fn request_static_offset(&mut self) -> Option<i64> {
        self.value.request_static_offset()
    }
}

impl HandlerScope for Noted<Box<dyn HandlerScope>> {
    fn number(&self) -> u64 {
        self.value.number()
    }

    fn set_keep_alive(&self, keep_alive: Arc<KeepAliveFn>) {
        self.log.note("set_keep_alive");
        self.value.set_keep_alive(keep_alive);
    }

    fn deregister_at_libc(&self) {
        self.log.note("deregister_at_libc");
        self.value.deregister_at_libc();
    }
}

impl ViewScope for Noted<Box<dyn ViewScope>> {
    fn number(&self) -> u64 {
        self.value.number()
    }
}

impl ProcessExitHook for Noted<Box<dyn ProcessExitHook>> {
    fn register_at_libc(&self) {
        self.log.note("register_at_libc");
        self.value.register_at_libc();
    }
}

impl LazyEntries for Noted<Box<dyn LazyEntries>> {
    fn count(&self) -> usize {
        self.value.count()
    }

    fn number(&self, index: usize) -> u64 {
        self.log.note("number of an entry");
        self.value.number(index)
    }
}

impl CodeDumpFile for Noted<()> {
    fn append(&self, _: u64, _: &mut dyn FnMut(Stamp, u64) -> Vec<u8>) {
        self.log.note("append to the code dump");
    }
}

impl NativeProgram for Noted<Box<dyn NativeProgram>> {
    unsafe fn call_main(&mut self, main: ExecutorAddr) -> Result<c_int> {
        self.log.note("call_main");
        // SAFETY: J1 - the caller makes the same promises.
        unsafe { self.value.call_main(main) }
    }
}
