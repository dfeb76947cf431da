//! [`Program`]: linked objects run as a program, from its initialisers to its exit handlers.
//!
//! What the system's start code does for a native program is done here for one whose objects stand under a tracker:
//!
//! ```text
//!   initialisers ─► main(argc, argv, envp) ─┬ returns ────────────────────────────┐
//!        │                                  └ exit(n), from any thread ─┐         ▼
//!        └ exit(n) ────────────────────────────────────────────────────►│ exit handlers, finalisers ─► the caller
//!                                                                       └──────── and the process ends
//! ```
//!
//! Each handler and finaliser runs once, whichever way the program ends. Nothing is removed here: that is the caller's.

use std::ffi::{CString, c_int};
use std::fmt;

use crate::base::Name;
use crate::error::Result;
use crate::host::{self, ExitHook, Function, MainFunction, ProgramStart};
use crate::jit::{Jit, not_found};
use crate::session::{RequiredState, ResourceTracker, SymbolFlags, SymbolRequest};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering};

/// A program whose objects stand under one tracker. Make it before the first object is linked: it binds `exit`.
pub struct Program {
    jit: Jit,
    tracker: ResourceTracker,
}

/// How far a program has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramEvent {
    /// The initialisers have run; `main` is next.
    Initialized {
        /// How many functions were called.
        functions: usize,
    },
    /// `main` has returned, or `exit` was called; exit handlers and finalisers are next. Told again when one of those
    /// calls `exit` with another status.
    Ended {
        /// The exit status; `None` when a library of the system's ended the process.
        status: Option<c_int>,
        /// Whether `main` returned.
        has_returned: bool,
    },
    /// Exit handlers and finalisers have run, and the program's own hold on its code is gone. Unless `main` returned,
    /// the process ends after this.
    Finalized,
}

impl Program {
    /// A program of what is, or comes, under `tracker`.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn new(jit: &Jit, tracker: &ResourceTracker) -> Result<Program> {
        // Weak, so that an object may define an `exit` of its own, and that it may be there already.
        let flags = SymbolFlags::EXPORTED | SymbolFlags::WEAK | SymbolFlags::CALLABLE;
        jit.process_dylib().define_absolute([(Name::new("exit"), host::exit_address(), flags)])?;
        Ok(Program { jit: jit.clone(), tracker: tracker.clone() })
    }

    /// Runs the initialisers that wait in the tracker's dylib, calls `entry` as `main` with `arguments`, the first of
    /// which is the program's name, and runs exit handlers and finalisers of what is under the tracker. Gives what
    /// `main` returned.
    ///
    /// Does not return if the program calls `exit`: then handlers and finalisers run, and the process ends. `observe` is
    /// told of each step either way, on the thread that takes it. An exception that nobody catches ends the process as it
    /// does a native program. One program runs at a time.
    ///
    /// # Errors
    /// As [`Jit::lookup`], before anything was run.
    ///
    /// # Safety
    /// - `entry` is a function that may be called as `int main(int, char **, char **)`.
    /// - The objects under the tracker may run.
    pub unsafe fn run(
        self,
        entry: &str,
        arguments: &[CString],
        observe: impl FnMut(ProgramEvent) + Send + 'static,
    ) -> Result<c_int> {
        let dylib = self.tracker.dylib();
        let missing = || not_found(&dylib, entry);
        // Here only: the process has a `main` of its own.
        let found = dylib.lookup(&[SymbolRequest::required(entry)], RequiredState::Ready)?.pop().ok_or_else(missing)?;
        let pin = found.symbol.as_ref().and_then(|symbol| self.jit.session().pin(symbol)).ok_or_else(missing)?;
        // SAFETY: J1 - the caller's word; the code is held by the function, which `end` drops.
        let main = unsafe { Function::<MainFunction>::with_hold(found.address, Some(Arc::new(pin))) };
        let entry = main.enter();
        // SAFETY: J1 - called while `Shutdown` holds the function, and entered.
        let pointer = unsafe { main.as_ptr() };

        let ending = Arc::new(Shutdown {
            jit: self.jit.clone(),
            tracker: self.tracker,
            main: Mutex::new(Some(main)),
            is_over: AtomicBool::new(false),
            observe: Mutex::new(Some(Box::new(observe))),
        });
        let mut start = ProgramStart::new(arguments);
        // Behind all libraries that linking has opened: their own handlers run after the program's.
        let hook = ExitHook::new({
            let ending = ending.clone();
            move |status| ending.end(status, false)
        });
        hook.tell_the_c_library();
        let status = host::at_stack_end(|| {
            let functions = self.jit.0.initializers.run_pending(&dylib);
            ending.tell(ProgramEvent::Initialized { functions });
            let status = start.call(pointer);
            ending.end(Some(status), true);
            status
        });
        drop((hook, entry));
        Ok(status)
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program under {:?}", self.tracker)
    }
}

type Observer = Box<dyn FnMut(ProgramEvent) + Send>;

/// What is left to do when a program ends. May be started over from within: each step is done once.
struct Shutdown {
    jit: Jit,
    tracker: ResourceTracker,
    main: Mutex<Option<Function<MainFunction>>>,
    is_over: AtomicBool,
    /// Taken out while it is called.
    observe: Mutex<Option<Observer>>,
}

impl Shutdown {
    fn end(&self, status: Option<c_int>, has_returned: bool) {
        if self.is_over.load(Ordering::Acquire) {
            return;
        }
        self.tell(ProgramEvent::Ended { status, has_returned });
        if let Some(status) = status {
            host::set_exit_status(status);
        }
        self.jit.0.initializers.run_finalizers(self.tracker.key());
        if !self.is_over.swap(true, Ordering::AcqRel) {
            let main = self.main.lock().take();
            drop(main);
            self.tell(ProgramEvent::Finalized);
        }
    }

    /// No lock is held while the observer runs. What another thread has to tell meanwhile is not heard.
    fn tell(&self, event: ProgramEvent) {
        let observe = self.observe.lock().take();
        if let Some(mut observe) = observe {
            observe(event);
            *self.observe.lock() = Some(observe);
        }
    }
}
