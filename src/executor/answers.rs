//! [`Server`]: what the executor holds, and what each request does. It acts on the process through [`InProcess`], as a session
//! does that runs its own code.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;

use crate::base::{ExecutorAddr, TlsIndex, catch};
use crate::error::{Error, Result};
use crate::executor::asking::AnswersRequests;
use crate::executor::crash_page::set_actions;
use crate::executor::passing::{call_of, result_of};
use crate::executor::questions::{RemoteCallback, RemoteTarget, RemoteView, keep_alive, run_exit_hook};
use crate::host::{
    CallShape, Executor, ExecutorHandle, HandlerScope, InProcess, LazyEntries, LazyTarget, NativeProgram, PassedCall,
    ProcessExitHook, ProcessSymbol, StaticTls, ThreadLocalBlock, ViewScope,
};
use crate::memory::{HostedWindow, Placement, WindowLayout};
use crate::os::map_marker;
use crate::sync::{Arc, Mutex, plain_thread_local, synchronize_processors};
use crate::wire::{
    Answer, Change, Facts, FoundInProcess, PlaceOfWindow, Request, StaticOffset, WindowPlacement, WindowShape,
};

/// What the executor holds for its controller.
pub(super) struct Server {
    /// This process, through the same trait as the controller reaches it.
    process: Box<dyn Executor>,
    held: Mutex<Held>,
}

struct Held {
    next: u64,
    by_number: HashMap<u64, Arc<Item>>,
}

/// What a handle stands for.
enum Item {
    ThreadLocals(Mutex<Box<dyn ThreadLocalBlock>>),
    ExitScope(Box<dyn HandlerScope>),
    Hook(Box<dyn ProcessExitHook>),
    Window(Mutex<HostedWindow>),
    /// Held and never asked.
    View(#[allow(dead_code)] Box<dyn ViewScope>),
    Lazy(#[allow(dead_code)] Box<dyn LazyEntries>),
    Marker(#[allow(dead_code)] memmap2::Mmap),
    SymbolFile(#[allow(dead_code)] ExecutorHandle),
}

/// A program and its number.
type NumberedProgram = (u64, Box<dyn NativeProgram>);

plain_thread_local! {
    /// The programs that this thread runs, by number.
    static PROGRAMS: RefCell<Vec<NumberedProgram>> = const { RefCell::new(Vec::new()) };
}

impl AnswersRequests for Server {
    fn answer(&self, request: Request, descriptors: Vec<OwnedFd>) -> Answer {
        let answer = catch(|| self.try_answer(request, descriptors));
        let answer = answer.unwrap_or_else(|panic| Err(Error::other(format!("the executor panicked: {panic}"))));
        answer.unwrap_or_else(|error| Answer::Failed(error.to_string()))
    }
}

impl Server {
    pub(super) fn new() -> Server {
        let held = Held { next: 1, by_number: HashMap::new() };
        Server { process: Box::new(InProcess), held: Mutex::new(held) }
    }

    pub(super) fn facts(&self) -> Facts {
        let functions = self.process.handler_functions();
        let functions =
            [functions.atexit, functions.on_exit, functions.thread_atexit, functions.at_quick_exit, functions.atfork];
        Facts {
            handler_functions: functions.map(ExecutorAddr::value),
            exit: self.process.exit_address().value(),
            loader_functions: self
                .process
                .loader_functions()
                .map(|function| (function.native.map(ExecutorAddr::value), function.address.value())),
            call_through: self.process.call_through_address().value(),
            process: std::process::id(),
            machine: self.process.arch().e_machine(),
            callback: self.process.callback_address().value(),
        }
    }

    fn try_answer(&self, request: Request, descriptors: Vec<OwnedFd>) -> Result<Answer> {
        Ok(match request {
            Request::Join { .. } | Request::Start { .. } | Request::OpenLane => {
                return Err(Error::other("a lane serves requests of one thread only"));
            }

            Request::ReserveWindow { shape, placement } => self.reserve_window(shape, placement)?,
            Request::MapWindow { window } => self.map_window(window, descriptors)?,
            Request::MapOwnWindow { window } => {
                let item = self.item(window)?;
                let Item::Window(window) = &*item else { return Err(other_kind(window)) };
                window.lock().map_own()?;
                Answer::Done
            }
            Request::Write { changes } => {
                let mut has_new_code = false;
                for change in changes {
                    // A thread here may already run a stub whose slot the word is.
                    if has_new_code && is_word(&change) {
                        synchronize_processors();
                        has_new_code = false;
                    }
                    has_new_code |= self.write(change)?;
                }
                synchronize_processors();
                Answer::Done
            }
            Request::ReleaseWindow { window } => self.drop_held(window),

            Request::Call { address, arguments } => self.call(address, call_of(*arguments)?)?,
            Request::RunInitializer { address } => {
                self.process.at_stack_end(&mut || self.process.run_initializer(ExecutorAddr::new(address)));
                Answer::Done
            }
            Request::StartProgram { arguments } => {
                let arguments = arguments.into_iter().map(CString::new).collect::<std::result::Result<Vec<_>, _>>();
                let arguments = arguments.map_err(|error| Error::other(error.to_string()))?;
                Answer::Handle(self.start_program(&arguments))
            }
            Request::CallMain { program, address } => Answer::Value(self.call_main(program, address)?),
            Request::EndProgram { program } => {
                drop(take_program(program));
                Answer::Done
            }

            Request::FindSymbols { names } => {
                let found = names.iter().map(|name| self.process.find_symbol(name).map(found_in_process));
                Answer::Symbols(found.collect())
            }
            Request::OpenLibrary { name } => {
                self.process.open_library(&name)?;
                Answer::Done
            }
            Request::ProgramSymbols => {
                let symbols = self.process.program_symbols()?.into_iter();
                let symbols = symbols.map(|symbol| (symbol.name.into(), symbol.address.value(), symbol.is_function));
                Answer::ProgramSymbols(symbols.collect())
            }
            Request::FindInProcess { name, version } => {
                let text = |bytes| CString::new(bytes).map_err(|error| Error::other(error.to_string()));
                let (name, version) = (text(name)?, version.map(text).transpose()?);
                let found = self.process.find_in_process(&name, version.as_deref());
                Answer::Address(found.map(ExecutorAddr::value))
            }

            Request::LoadThreadLocals { image, size, align, offset } => {
                self.load_thread_locals(&image, size, align, offset)?
            }
            Request::CompleteThreadLocals { block, image } => {
                let item = self.item(block)?;
                let Item::ThreadLocals(block) = &*item else { return Err(other_kind(block)) };
                let mut block = block.lock();
                match block.image() {
                    Some(bytes) if bytes.len() == image.len() => bytes.copy_from_slice(&image),
                    _ => return Err(Error::other("a thread-local block is complete already, or has another size")),
                }
                block.complete();
                Answer::Done
            }
            Request::WantStaticOffset { block } => {
                let item = self.item(block)?;
                let Item::ThreadLocals(block) = &*item else { return Err(other_kind(block)) };
                Answer::Offset(block.lock().request_static_offset())
            }
            Request::StaticOffset { module, offset, name } => {
                Answer::Offset(self.process.static_offset(TlsIndex { module, offset }, &name))
            }
            Request::ThreadLocalAlignment { module } => Answer::Value(self.process.thread_local_alignment(module)),

            Request::OpenExitScope => {
                let scope = self.process.open_exit_scope();
                let number = scope.number();
                Answer::Scope { handle: self.hold(Item::ExitScope(scope)), number }
            }
            Request::SetKeepAlive { scope, keep_alive: number } => {
                let item = self.item(scope)?;
                let Item::ExitScope(scope) = &*item else { return Err(other_kind(scope)) };
                scope.set_keep_alive(Arc::new(move |holder| keep_alive(number, holder)));
                Answer::Done
            }
            Request::DeregisterAtLibc { scope } => {
                let item = self.item(scope)?;
                let Item::ExitScope(scope) = &*item else { return Err(other_kind(scope)) };
                scope.deregister_at_libc();
                Answer::Done
            }
            Request::RunExitHandlers { scopes } => {
                let mut count = 0;
                self.process.at_stack_end(&mut || count = self.process.run_exit_handlers(&scopes));
                Answer::Value(count as u64)
            }
            Request::RunThreadDestructors { scopes } => {
                let mut count = 0;
                self.process.at_stack_end(&mut || count = self.process.run_thread_dtors(&scopes));
                Answer::Value(count as u64)
            }
            Request::AddExitHook { hook } => {
                let hook = self.process.add_exit_hook(Arc::new(move |status| run_exit_hook(hook, status)));
                Answer::Handle(self.hold(Item::Hook(hook)))
            }
            Request::RegisterHooksAtLibc { hook } => {
                let item = self.item(hook)?;
                let Item::Hook(hook) = &*item else { return Err(other_kind(hook)) };
                hook.register_at_libc();
                Answer::Done
            }
            Request::SetExitStatus { status } => {
                self.process.set_exit_status(status);
                Answer::Done
            }

            Request::OpenLoaderScope { view } => {
                let scope = self.process.open_loader_scope(Arc::new(RemoteView(view)));
                let number = scope.number();
                Answer::Scope { handle: self.hold(Item::View(scope)), number }
            }
            Request::RegisterLazyTargets { targets } => {
                let target = |number| -> Arc<dyn LazyTarget> { Arc::new(RemoteTarget(number)) };
                let entries = self.process.register_lazy_targets(targets.into_iter().map(target).collect());
                let numbers = (0..entries.count()).map(|index| entries.number(index)).collect();
                Answer::LazyEntries { handle: self.hold(Item::Lazy(entries)), numbers }
            }
            Request::RegisterCallback { callback, words: [register_words, stack_words, result_bytes] } => {
                let shape = CallShape::of_words(register_words, stack_words, result_bytes);
                let shape = shape.ok_or_else(|| Error::other("the executor cannot pass so many arguments back"))?;
                let entries = self.process.register_callback(Arc::new(RemoteCallback { number: callback, shape }));
                let number = entries.number(0);
                Answer::Scope { handle: self.hold(Item::Lazy(entries)), number }
            }
            Request::RegisterSymbolFile { bytes } => {
                Answer::Handle(self.hold(Item::SymbolFile(self.process.register_symbol_file(bytes))))
            }
            Request::MapMarker => {
                let Ok([file]) = <[OwnedFd; 1]>::try_from(descriptors) else {
                    return Err(Error::other("a marker is mapped from one descriptor"));
                };
                let marker = map_marker(&File::from(file)).map_err(|error| Error::other(error.to_string()))?;
                Answer::Handle(self.hold(Item::Marker(marker)))
            }
            Request::Drop { handle } => self.drop_held(handle),
        })
    }

    fn reserve_window(&self, shape: WindowShape, placement: WindowPlacement) -> Result<Answer> {
        let layout = WindowLayout::from_shape(shape.size, shape.pools);
        let layout = layout.ok_or_else(|| Error::other("the window has no such layout"))?;
        let placement = match placement {
            WindowPlacement::Anywhere => Placement::Anywhere,
            WindowPlacement::NearHost => Placement::NearHost,
            WindowPlacement::NearLibraries => Placement::NearLibraries,
            WindowPlacement::Low2GiB => Placement::Low2GiB,
        };
        let (window, place) = HostedWindow::reserve(&layout, placement)?;
        Ok(Answer::Window(PlaceOfWindow {
            window: self.hold(Item::Window(Mutex::new(window))),
            base: place.base.value(),
            preferred: place.preferred,
            nonce: place.nonce,
            is_loaded: place.is_loaded,
        }))
    }

    fn map_window(&self, window: u64, descriptors: Vec<OwnedFd>) -> Result<Answer> {
        let item = self.item(window)?;
        let Item::Window(window) = &*item else { return Err(other_kind(window)) };
        let Ok([code, data]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(Error::other("a window is mapped from two descriptors"));
        };
        window.lock().map(&File::from(code), &File::from(data))?;
        Ok(Answer::Done)
    }

    /// Writes a change. Says whether it is code.
    fn write(&self, change: Change) -> Result<bool> {
        let (Change::Bytes { window: number, offset, .. } | Change::Zeroes { window: number, offset, .. }) = change;
        // The controller may have released the window before it sent what had changed there. Numbers are not used again.
        let Ok(item) = self.item(number) else { return Ok(false) };
        let Item::Window(window) = &*item else { return Err(other_kind(number)) };
        let window = window.lock();
        // SAFETY: E3 - the pools of the controller gave the range to what it links, or it alone changes the word.
        let written = unsafe {
            match change {
                Change::Bytes { offset, bytes, .. } => window.write(offset, &bytes),
                Change::Zeroes { offset, size, .. } => window.zero(offset, size),
            }
        };
        written?;
        Ok(window.is_code(offset))
    }

    fn load_thread_locals(&self, image: &[u8], size: u64, align: u64, offset: StaticOffset) -> Result<Answer> {
        let want = match offset {
            StaticOffset::Required => StaticTls::Required,
            StaticOffset::Wanted => StaticTls::Wanted,
            StaticOffset::NotNeeded => StaticTls::NotNeeded,
        };
        let mut block = self.process.load_thread_locals(image, size, align, want).map_err(Error::other)?;
        let (number, static_offset) = (block.number(), block.static_offset());
        let has_image = block.image().is_some();
        let handle = self.hold(Item::ThreadLocals(Mutex::new(block)));
        Ok(Answer::ThreadLocals { handle, number, static_offset, has_image })
    }

    fn call(&self, address: u64, mut call: PassedCall) -> Result<Answer> {
        if address == 0 {
            return Err(Error::other("no call of a function at address 0"));
        }
        // SAFETY: E1, E2 - the controller holds the code until this is answered, and found a function there, for which it passes
        // the arguments.
        self.process.at_stack_end(&mut || unsafe { call.make(ExecutorAddr::new(address)) });
        Ok(Answer::Returned(result_of(call)))
    }

    fn start_program(&self, arguments: &[CString]) -> u64 {
        let program = self.process.start_program(arguments);
        // That has set the default actions. A crash is still reported; code that asks for the action sees a handler.
        let _ = set_actions();
        let number = self.next();
        PROGRAMS.with_borrow_mut(|programs| programs.push((number, program)));
        number
    }

    fn call_main(&self, number: u64, address: u64) -> Result<u64> {
        let mut program = take_program(number).ok_or_else(|| other_kind(number))?;
        let mut status = Ok(0);
        self.process.at_stack_end(&mut || {
            // SAFETY: E1, E2 - the controller holds the code until this is answered, and its caller promised a `main` there.
            status = unsafe { program.call_main(ExecutorAddr::new(address)) };
        });
        PROGRAMS.with_borrow_mut(|programs| programs.push((number, program)));
        status.map(|status| status as u64)
    }

    fn next(&self) -> u64 {
        let mut held = self.held.lock();
        held.next += 1;
        held.next - 1
    }

    fn hold(&self, item: Item) -> u64 {
        let number = self.next();
        self.held.lock().by_number.insert(number, Arc::new(item));
        number
    }

    fn item(&self, number: u64) -> Result<Arc<Item>> {
        self.held.lock().by_number.get(&number).cloned().ok_or_else(|| other_kind(number))
    }

    /// Drops an item, without the lock: a scope asks the controller when it is closed.
    fn drop_held(&self, number: u64) -> Answer {
        let item = self.held.lock().by_number.remove(&number);
        drop(item);
        Answer::Done
    }
}

/// A program of this thread. The caller owns it until it puts it back.
fn take_program(number: u64) -> Option<Box<dyn NativeProgram>> {
    PROGRAMS.with_borrow_mut(|programs| {
        let position = programs.iter().position(|(other, _)| *other == number)?;
        Some(programs.swap_remove(position).1)
    })
}

fn found_in_process(symbol: ProcessSymbol) -> FoundInProcess {
    match symbol {
        ProcessSymbol::Function(address) => FoundInProcess::Function(address.value()),
        ProcessSymbol::Data(address) => FoundInProcess::Data(address.value()),
        ProcessSymbol::TlsIndex(TlsIndex { module, offset }) => FoundInProcess::ThreadLocal { module, offset },
    }
}

/// Whether a change may be the slot of a stub. Code that was sent before it must be ready first.
fn is_word(change: &Change) -> bool {
    matches!(change, Change::Bytes { bytes, .. } if bytes.len() == 8)
}

fn other_kind(number: u64) -> Error {
    Error::other(format!("the executor holds nothing of that kind under number {number}"))
}
