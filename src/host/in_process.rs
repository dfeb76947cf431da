//! [`InProcess`]: the [`Executor`] for code that runs in the process that links it.
//!
//! It has no state. Each method calls the file of this room that does the work. State that calls share, such as the
//! table of exit scopes, is in statics of these files, because linked code and the C library must find it without a
//! session.

use std::ffi::{CStr, CString, c_int};
use std::path::Path;

use crate::base::{ExecutorAddr, TlsIndex};
use crate::error::Result;
use crate::host::call_through::{self, CallThrough, LazyTarget};
#[cfg(feature = "executor")]
use crate::host::callback::{self, Callback, CallbackTarget};
use crate::host::debugger_list::DebuggerEntry;
use crate::host::executor::{
    CodeDumpFile, Executor, ExecutorHandle, ExecutorResource, HandlerFunctions, HandlerScope, LazyEntries,
    LoaderFunction, NameMapFile, NativeProgram, ProcessExitHook, ThreadLocalBlock, ViewScope,
};
use crate::host::exit_handlers::{self, ExitScope};
use crate::host::exit_hook::{self, ExitHook, ExitHookFn};
use crate::host::exit_scopes::KeepAliveFn;
use crate::host::loader_scopes::{LoaderScope, LoaderView};
#[cfg(feature = "reload")]
use crate::host::native_threads::are_native_threads_counted;
use crate::host::process::{self, LoadedLibrary, ProcessSymbol};
use crate::host::profile::{CodeDump, NameMap, Stamp};
use crate::host::program::{MainFunction, ProgramStart};
#[cfg(feature = "reload")]
use crate::host::program_image::ProgramImage;
use crate::host::program_symbols::{self, ProgramSymbol};
#[cfg(feature = "reload")]
use crate::host::reload_point::{self, ReloadFunctions, ReloadHooks};
use crate::host::thread_locals::{self, StaticTls, ThreadLocalModule};
use crate::host::{call, loader_functions, stack_end, thread_exit_handlers};
use crate::os;
use crate::sync::Arc;

/// The process that links.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InProcess;

impl InProcess {
    /// Address of a thread-local variable in the calling thread. `None` if no loaded library has it, or if its block is not
    /// complete.
    ///
    /// Not a method of [`Executor`]: a thread of the process that links has no copy of a variable of another process.
    pub(crate) fn address_in_this_thread(variable: TlsIndex) -> Option<ExecutorAddr> {
        thread_locals::address_in_this_thread(variable)
    }
}

impl Executor for InProcess {
    fn find_symbol(&self, name: &str) -> Option<ProcessSymbol> {
        process::find_symbol(name)
    }

    fn open_library(&self, name: &str) -> Result<()> {
        LoadedLibrary::open(name).map(drop)
    }

    fn program_symbols(&self) -> Result<Vec<ProgramSymbol>> {
        program_symbols::program_symbols()
    }

    #[cfg(feature = "reload")]
    fn program_image(&self) -> Result<ProgramImage> {
        ProgramImage::read()
    }

    fn load_thread_locals(
        &self,
        image: &[u8],
        size: u64,
        align: u64,
        static_tls: StaticTls,
    ) -> std::result::Result<Box<dyn ThreadLocalBlock>, String> {
        Ok(Box::new(ThreadLocalModule::try_load(image, size, align, static_tls)?))
    }

    fn static_offset(&self, variable: TlsIndex, name: &str) -> Option<i64> {
        thread_locals::static_offset(variable, name)
    }

    fn thread_local_alignment(&self, module: u32) -> u64 {
        os::thread_local_alignment(module.into())
    }

    fn run_initializer(&self, address: ExecutorAddr) {
        call::run_initializer(address);
    }

    #[cfg(feature = "reload")]
    fn run_hook(&self, address: ExecutorAddr, arguments: [u64; 3]) -> Result<()> {
        call::run_hook(address, arguments);
        Ok(())
    }

    fn open_exit_scope(&self) -> Box<dyn HandlerScope> {
        Box::new(ExitScope::new())
    }

    fn run_exit_handlers(&self, scopes: &[u64]) -> usize {
        let dtor_count = thread_exit_handlers::run_thread_dtors(scopes);
        dtor_count + exit_handlers::run_registered(scopes)
    }

    fn run_thread_dtors(&self, scopes: &[u64]) -> usize {
        thread_exit_handlers::run_thread_dtors(scopes)
    }

    fn handler_functions(&self) -> HandlerFunctions {
        HandlerFunctions {
            atexit: exit_handlers::atexit_capture_address(),
            on_exit: exit_handlers::on_exit_capture_address(),
            thread_atexit: thread_exit_handlers::thread_atexit_capture_address(),
            at_quick_exit: exit_handlers::at_quick_exit_capture_address(),
            atfork: exit_handlers::atfork_capture_address(),
        }
    }

    fn add_exit_hook(&self, hook: Arc<ExitHookFn>) -> Box<dyn ProcessExitHook> {
        Box::new(ExitHook::new(hook))
    }

    fn set_exit_status(&self, status: c_int) {
        exit_handlers::set_exit_status(status);
    }

    fn exit_address(&self) -> ExecutorAddr {
        exit_hook::exit_address()
    }

    #[cfg(feature = "reload")]
    fn counts_native_threads(&self) -> bool {
        are_native_threads_counted()
    }

    #[cfg(feature = "reload")]
    fn reload_functions(&self, hooks: ReloadHooks) -> ReloadFunctions {
        reload_point::reload_functions(hooks)
    }

    fn open_loader_scope(&self, view: Arc<dyn LoaderView>) -> Box<dyn ViewScope> {
        Box::new(LoaderScope::new(view))
    }

    fn loader_functions(&self) -> [LoaderFunction; 3] {
        let functions = [
            ("dlsym", loader_functions::dlsym_address(), 2),
            ("dlvsym", loader_functions::dlvsym_address(), 3),
            ("dladdr", loader_functions::dladdr_address(), 2),
        ];
        functions.map(|(name, address, argument_count)| {
            let native = CString::new(name).ok().and_then(|name| self.find_in_process(&name, None));
            LoaderFunction { name, native, address, argument_count }
        })
    }

    fn find_in_process(&self, name: &CStr, version: Option<&CStr>) -> Option<ExecutorAddr> {
        os::process_symbol_version(name, version).map(ExecutorAddr::new)
    }

    fn register_lazy_targets(&self, targets: Vec<Arc<dyn LazyTarget>>) -> Box<dyn LazyEntries> {
        Box::new(targets.into_iter().map(CallThrough::new).collect::<Vec<_>>())
    }

    fn call_through_address(&self) -> ExecutorAddr {
        call_through::call_through_address()
    }

    #[cfg(feature = "executor")]
    fn register_callback(&self, target: Arc<dyn CallbackTarget>) -> Box<dyn LazyEntries> {
        Box::new(Callback::new(target))
    }

    #[cfg(feature = "executor")]
    fn callback_address(&self) -> ExecutorAddr {
        callback::callback_address()
    }

    fn register_symbol_file(&self, symbol_file: Vec<u8>) -> ExecutorHandle {
        Box::new(DebuggerEntry::new(symbol_file))
    }

    fn create_code_dump(&self, base: &Path, header: fn(Stamp) -> Vec<u8>) -> Result<Box<dyn CodeDumpFile>> {
        Ok(Box::new(CodeDump::create(base, header)?))
    }

    fn open_name_map(&self) -> Result<Box<dyn NameMapFile>> {
        Ok(Box::new(NameMap::open()?))
    }

    fn start_program(&self, arguments: &[CString]) -> Box<dyn NativeProgram> {
        Box::new(ProgramStart::new(arguments))
    }

    fn at_stack_end(&self, body: &mut dyn FnMut()) {
        stack_end::at_stack_end(body);
    }
}

impl ExecutorResource for DebuggerEntry {}

impl ThreadLocalBlock for ThreadLocalModule {
    fn number(&self) -> u32 {
        ThreadLocalModule::number(self)
    }

    fn static_offset(&self) -> Option<i64> {
        ThreadLocalModule::static_offset(self)
    }

    fn image(&mut self) -> Option<&mut [u8]> {
        ThreadLocalModule::image(self)
    }

    fn complete(&mut self) {
        ThreadLocalModule::complete(self);
    }

    fn request_static_offset(&mut self) -> Option<i64> {
        ThreadLocalModule::request_static_offset(self)
    }
}

impl HandlerScope for ExitScope {
    fn number(&self) -> u64 {
        ExitScope::number(self)
    }

    fn set_keep_alive(&self, keep_alive: Arc<KeepAliveFn>) {
        ExitScope::set_keep_alive(self, keep_alive);
    }

    fn deregister_at_libc(&self) {
        ExitScope::deregister_at_libc(self);
    }
}

impl ViewScope for LoaderScope {
    fn number(&self) -> u64 {
        LoaderScope::number(self)
    }
}

impl ProcessExitHook for ExitHook {
    fn register_at_libc(&self) {
        ExitHook::register_at_libc(self);
    }
}

impl LazyEntries for Vec<CallThrough> {
    fn count(&self) -> usize {
        self.len()
    }

    fn number(&self, index: usize) -> u64 {
        self[index].number()
    }
}

#[cfg(feature = "executor")]
impl LazyEntries for Callback {
    fn count(&self) -> usize {
        1
    }

    fn number(&self, _: usize) -> u64 {
        Callback::number(self)
    }
}

impl CodeDumpFile for CodeDump {
    fn append(&self, count: u64, records: &mut dyn FnMut(Stamp, u64) -> Vec<u8>) {
        CodeDump::append(self, count, records);
    }
}

impl NameMapFile for NameMap {
    fn append(&self, lines: &str) {
        NameMap::append(self, lines);
    }
}

impl NativeProgram for ProgramStart {
    unsafe fn call_main(&mut self, main: ExecutorAddr) -> Result<c_int> {
        // SAFETY: H1 - the caller promises a `main` at this address, which is not null. H2 - the caller holds its code.
        let main = unsafe { std::mem::transmute::<usize, MainFunction>(main.value() as usize) };
        Ok(self.call(main))
    }
}
