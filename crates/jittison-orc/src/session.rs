//! [`Session`]: an execution session of ORC, which is a [`Jit`] here.
//!
//! The `Jit` is made when it is first needed. Before that, object layers say whether debuggers and profilers are to know linked
//! code, and which memory it goes to. A program asks for layers while its `LLJIT` is built, so nothing is known earlier.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock, Weak};

use jittison::base::ExecutorAddr;
use jittison::host::LazyFailureHandler;
use jittison::memory::MemoryManager;
use jittison::platform::{Debugger, Profile, Profiler};
use jittison::{Error, Jit, JitDylib};
use parking_lot::Mutex;

use crate::dylib::Dylib;
use crate::llvm::{self, Opaque};
use crate::llvm_error::to_llvm;
use crate::modules;

/// `LLVMOrcErrorReporterFunction`.
type Report = unsafe extern "C-unwind" fn(*mut c_void, Opaque);

/// `LLVMOrcExecutionSessionRef` points to one. It is owned by its `LLJIT` and by responsibilities that are not disposed of.
pub(crate) struct Session {
    this: Weak<Session>,
    jit: OnceLock<Jit>,
    /// Locked while the `Jit` is made.
    options: Mutex<Options>,
    /// By the id of the dylib. An entry has its address until the session goes.
    dylibs: Mutex<HashMap<u64, Box<Dylib>>>,
    /// A function and its context.
    reporter: Mutex<Option<(Report, usize)>>,
    /// Where a call continues whose lazy function cannot be linked: by dylib and name.
    lazy_failures: Mutex<HashMap<(String, String), u64>>,
}

/// What layers ask for before the `Jit` is made.
#[derive(Default)]
struct Options {
    is_debugged: bool,
    is_profiled: bool,
    memory: Option<Arc<dyn MemoryManager>>,
}

impl Session {
    pub(crate) fn new() -> Arc<Session> {
        let session = Arc::new_cyclic(|this| Session {
            this: this.clone(),
            jit: OnceLock::new(),
            options: Mutex::default(),
            dylibs: Mutex::default(),
            reporter: Mutex::default(),
            lazy_failures: Mutex::default(),
        });
        modules::record(&session.this);
        session
    }

    /// The session of jittison, if it is made already.
    pub(crate) fn linked(&self) -> Option<&Jit> {
        self.jit.get()
    }

    /// The session behind a pointer of the program.
    ///
    /// # Safety
    /// O1 for the pointer.
    pub(crate) unsafe fn of(session: *const Session) -> Result<Arc<Session>, Error> {
        // SAFETY: O1 - the caller promises it.
        let session = unsafe { session.as_ref() };
        session.and_then(|session| session.this.upgrade()).ok_or_else(|| Error::other("the execution session is null"))
    }

    /// The session of jittison. The first call makes it.
    pub(crate) fn jit(&self) -> Result<&Jit, Error> {
        if let Some(jit) = self.jit.get() {
            return Ok(jit);
        }
        let mut options = self.options.lock();
        if self.jit.get().is_none() {
            let jit = self.build(std::mem::take(&mut *options))?;
            let _ = self.jit.set(jit);
        }
        drop(options);
        self.jit()
    }

    fn build(&self, options: Options) -> Result<Jit, Error> {
        let (reported, failed) = (self.this.clone(), self.this.clone());
        // SAFETY: O3, O5 - the address is one that the program gave for calls of this name, as ORC takes it.
        let lazy_failures = unsafe {
            LazyFailureHandler::new(move |failure| {
                let session = failed.upgrade()?;
                Session::report_to(Some(&session), &Error::other(failure));
                let key = (failure.dylib.to_string(), failure.symbol.to_string());
                session.lazy_failures.lock().get(&key).copied().map(ExecutorAddr::new)
            })
        };
        let mut builder = Jit::builder()
            // No thread of the library may take a signal of the program.
            .returns_memory(false)
            .lazy_failure_handler(lazy_failures)
            .error_reporter(Arc::new(move |error| Session::report_to(reported.upgrade().as_deref(), &error)));
        if options.is_debugged {
            builder = builder.debugger(true);
        }
        if options.is_profiled {
            builder = builder.profiler(Some(Profile::JitDump));
        }
        if let Some(memory) = options.memory {
            builder = builder.memory_manager(memory);
        }
        let jit = builder.build()?;
        if !links_process_symbols() {
            jit.main_dylib().set_link_order(&[])?;
        }
        Ok(jit)
    }

    /// Registers linked code with debuggers from now on.
    pub(crate) fn debug(&self) -> Result<(), Error> {
        let mut options = self.options.lock();
        match self.jit.get() {
            None => options.is_debugged = true,
            Some(jit) => {
                let debugger = Debugger::new();
                debugger.register(jit.session());
                jit.layer().add_plugin(debugger);
            }
        }
        Ok(())
    }

    /// Writes a dump for perf from now on.
    pub(crate) fn profile(&self) -> Result<(), Error> {
        let mut options = self.options.lock();
        match self.jit.get() {
            None => options.is_profiled = true,
            Some(jit) => jit.layer().add_plugin(Profiler::new(Profile::JitDump)?),
        }
        Ok(())
    }

    /// Links into `memory`.
    ///
    /// # Errors
    /// The session has memory already.
    pub(crate) fn set_memory(&self, memory: Arc<dyn MemoryManager>) -> Result<(), Error> {
        let mut options = self.options.lock();
        if self.jit.get().is_some() {
            return Err(Error::other(
                "memory callbacks must be set by the object layer with which an LLJIT is created",
            ));
        }
        options.memory = Some(memory);
        Ok(())
    }

    /// The entry of a dylib of this session.
    pub(crate) fn dylib(&self, dylib: &JitDylib) -> *const Dylib {
        let mut dylibs = self.dylibs.lock();
        let made = dylibs.entry(dylib.id()).or_insert_with(|| Box::new(Dylib::new(dylib.clone(), self.this.clone())));
        &**made
    }

    /// A call of `symbol` in `dylib` continues at `address` if the function cannot be linked.
    pub(crate) fn set_lazy_failure(&self, dylib: &str, symbol: &str, address: u64) {
        let key = (dylib.to_string(), symbol.to_string());
        let mut failures = self.lazy_failures.lock();
        if address == 0 {
            failures.remove(&key)
        } else {
            failures.insert(key, address)
        };
    }

    /// Ends the session. What is left of it needs no memory of linked code.
    pub(crate) fn end(&self) -> Result<(), Error> {
        self.jit.get().map_or(Ok(()), |jit| jit.session().end())
    }

    /// Gives an error that no caller receives to the program's reporter. Without one it goes to the standard error, as in ORC.
    pub(crate) fn report_to(session: Option<&Session>, error: &Error) {
        let reporter = session.and_then(|session| *session.reporter.lock());
        match reporter {
            // SAFETY: O3 - the program promises both.
            Some((report, context)) => unsafe { report(context as *mut c_void, to_llvm(error)) },
            None => eprintln!("JIT session error: {error}"),
        }
    }
}

/// Whether the main dylib sees symbols of the process without a generator: since LLVM 17.
fn links_process_symbols() -> bool {
    llvm::version() >= 17
}

/// The name that LLVM 17 and newer give the dylib of process symbols.
pub(crate) const PROCESS_SYMBOLS: &str = "<Process Symbols>";

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcExecutionSessionSetErrorReporter(
    session: *const Session,
    report: Option<Report>,
    context: *mut c_void,
) {
    // SAFETY: O1 - the program promises it.
    if let Ok(session) = unsafe { Session::of(session) } {
        *session.reporter.lock() = report.map(|report| (report, context as usize));
    }
}
