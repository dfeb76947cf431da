//! [`Program`]: linked objects that run as a program, from their initialisers to their exit handlers.
//!
//! A native program gets these steps from the start code of the system. A [`Program`] does them for the objects under a
//! tracker:
//!
//! ```text
//!   initialisers ─► main(argc, argv, envp) ─┬ returns ────────────────────────────┐
//!        │                                  └ exit(n), from any thread ─┐         ▼
//!        └ exit(n) ────────────────────────────────────────────────────►│ exit handlers, finalisers ─► the caller
//!                                                                       └──────── and the process ends
//! ```
//!
//! Each handler and finaliser runs once, whichever way the program ends. Nothing is removed here; the caller does that, for
//! example in its observer at [`ProgramEvent::Finalized`].
//!
//! # Pins
//! `exit` on one thread stops no other thread, so `main` and a finaliser may run when another thread reports the end.
//!
//! | thread | the pins of `main` and of the tracker |
//! |---|---|
//! | runs `main` | owns them; drops them in its last step: after `main`, or in an `exit` that never returns to `main` |
//! | any other that calls `exit` | clones them before the first handler, and drops the clone after the last finaliser |

use std::ffi::{CString, c_int};
use std::fmt;

use crate::base::{CodeHold, Name};
use crate::error::Result;
use crate::jit::inner::{Jit, not_found};
use crate::session::{Pin, RequiredState, ResourceTracker, SymbolFlags, SymbolRequest};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, ThreadId, current_thread};

/// A program of the objects under one tracker. Create it before the first object is linked, because it defines `exit`.
///
/// ```
/// # const PROGRAM: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/program.o"));
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::new()?;
/// let tracker = jit.main_dylib().create_tracker()?;
/// let program = jittison::Program::new(&jit, &tracker)?;
/// jit.add_object(&tracker, "program.o", PROGRAM)?;
///
/// let arguments = [c"program".to_owned(), c"one".to_owned()];
/// // SAFETY: the object defines a `main` of C, and it may run.
/// let status = unsafe { program.run("main", &arguments, |event| println!("{event:?}"))? };
/// assert_eq!(status, 42); // `main` returns 40 + argc.
/// assert!(tracker.remove()?.is_complete());
/// # Ok(()) }
/// ```
pub struct Program {
    jit: Jit,
    tracker: ResourceTracker,
}

/// A step that a program has completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramEvent {
    /// The initialisers have run; `main` is next.
    Initialized {
        /// The number of functions that were called.
        functions: usize,
    },
    /// `main` has returned, or `exit` was called; exit handlers and finalisers are next. Reported again if one of those
    /// calls `exit` with another status.
    Ended {
        /// The exit status. `None` if a shared library of the system ended the process.
        status: Option<c_int>,
        /// Whether `main` returned.
        has_returned: bool,
    },
    /// Exit handlers and finalisers have run. The process ends after this, unless `main` returned.
    ///
    /// The program no longer pins its code, with one exception: if another thread than that of [`Program::run`] called
    /// `exit`, `main` may still run, so its pin stays.
    Finalized,
}

impl Program {
    /// Creates a program of the objects that are under `tracker` or are added to it later.
    ///
    /// # Errors
    /// The session has ended, or the tracker is of another session.
    pub fn new(jit: &Jit, tracker: &ResourceTracker) -> Result<Program> {
        jit.0.check_own(tracker.dylib_handle())?;
        // Weak: an object may define an `exit` of its own, and an earlier program may have defined this one.
        let flags = SymbolFlags::EXPORTED | SymbolFlags::WEAK | SymbolFlags::CALLABLE;
        jit.process_dylib().define_absolute([(Name::new("exit"), jit.0.executor.exit_address(), flags)])?;
        Ok(Program { jit: jit.clone(), tracker: tracker.clone() })
    }

    /// Runs the program. Returns what `main` returned.
    ///
    /// 1. Runs the initialisers that wait in the tracker's dylib and in the dylibs that it links against.
    /// 2. Calls `entry` as `main` with `arguments`; the first one is the name of the program.
    /// 3. Runs exit handlers and finalisers of the objects under the tracker.
    ///
    /// If the program calls `exit`, handlers and finalisers run and the process ends: this call does not return. In either
    /// case `observe` is called after each step, on the thread that did the step. If another thread calls `exit`, `main` runs
    /// on, and its code stays in memory. An exception that the program does not catch ends the process, as it does in a
    /// native program. One program runs at a time.
    ///
    /// If the session has an executor, the program runs there. An `exit` of the program ends that process, and this call
    /// returns the status.
    ///
    /// # Errors
    /// As [`Jit::lookup`], before anything has run. Or the process of the executor was ended by a fault of the program.
    ///
    /// # Safety
    /// - `entry` is a function that can be called as `int main(int, char **, char **)`.
    /// - All objects that were added so far to the tracker's dylib and to the dylibs that it links against may run: their
    ///   initialisers in this call, their finalisers and exit handlers when the program ends or they are removed. Addresses that
    ///   were given as numbers stay in memory, as [`Jit::lookup_in`] says.
    pub unsafe fn run(
        self,
        entry: &str,
        arguments: &[CString],
        observe: impl FnMut(ProgramEvent) + Send + 'static,
    ) -> Result<c_int> {
        self.jit.0.check_can_run()?;
        let dylib = self.tracker.dylib();
        let missing = || not_found(&dylib, entry);
        // In the tracker's dylib only: the process has a `main` of its own.
        let found = dylib.lookup(&[SymbolRequest::required(entry)], RequiredState::Ready)?.pop().ok_or_else(missing)?;
        let pin = found.symbol.as_ref().and_then(|symbol| self.jit.session().pin(symbol)).ok_or_else(missing)?;
        // `main` may be under another tracker than the objects whose finalisers run.
        let hold = Arc::new(Hold { main: pin, _tracker: self.tracker.watch().pin() });
        // A patched function that the program reaches stays in memory until this is dropped.
        let call_entry = hold.main.enter_call();

        let shutdown = Arc::new(Shutdown {
            jit: self.jit.clone(),
            tracker: self.tracker,
            main_thread: current_thread(),
            hold: Mutex::new(Some(hold)),
            is_over: AtomicBool::new(false),
            observe: Mutex::new(Some(Box::new(observe))),
        });
        let executor = &*self.jit.0.executor;
        let mut program = executor.start_program(arguments);
        // Registered after the links have opened shared libraries, so handlers of those libraries run after the program's.
        let hook = executor.add_exit_hook(Arc::new({
            let shutdown = shutdown.clone();
            move |status| shutdown.run(status, false)
        }));
        hook.register_at_libc();
        let mut status = Ok(0);
        executor.at_stack_end(&mut || {
            let functions = self.jit.0.initializers.run_pending(&dylib);
            shutdown.report(ProgramEvent::Initialized { functions });
            // SAFETY: J1 - the caller promises that `entry`, which is at `found.address`, is a `main`. `Shutdown` owns the
            // pin of the tracker of `main`. Only this thread drops it: after the call, or in an `exit` that never
            // returns.
            status = unsafe { program.call_main(found.address) };
            // After an end by a fault, nothing of the program is left to finish.
            if let Ok(status) = status {
                shutdown.run(Some(status), true);
            }
        });
        drop((hook, call_entry));
        status.map_err(|error| self.jit.with_names(error))
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program under {:?}", self.tracker)
    }
}

type EventCallback = Box<dyn FnMut(ProgramEvent) + Send>;

/// The last steps of a program. They may start again while they run, for example if a finaliser calls `exit`; each is done
/// once.
struct Shutdown {
    jit: Jit,
    tracker: ResourceTracker,
    /// The thread that runs `main`.
    main_thread: ThreadId,
    /// `None` once the thread of `main` has ended the program.
    hold: Mutex<Option<Arc<Hold>>>,
    /// Whether the finalisers have run. The swap pairs with the Acquire load: who sees it sees what they did.
    is_over: AtomicBool,
    /// `None` while it runs.
    observe: Mutex<Option<EventCallback>>,
}

/// Keeps the program's code in memory.
struct Hold {
    main: Pin,
    /// `None` if the tracker was reclaimed before the start.
    _tracker: Option<Pin>,
}

impl Shutdown {
    fn run(&self, status: Option<c_int>, has_returned: bool) {
        // On the thread of `main` nothing is cloned: if a finaliser calls `exit`, the outer call never drops its clone.
        let is_main_thread = current_thread() == self.main_thread;
        let held = if is_main_thread { None } else { self.hold.lock().clone() };
        // After the clone: `is_over` is stored before the hold is taken, so from here on `held` holds the code.
        if self.is_over.load(Ordering::Acquire) {
            self.release(is_main_thread);
            return;
        }
        self.report(ProgramEvent::Ended { status, has_returned });
        if let Some(status) = status {
            self.jit.0.executor.set_exit_status(status);
        }
        self.jit.0.initializers.run_finalizers(self.tracker.key());
        drop(held);
        let was_over = self.is_over.swap(true, Ordering::AcqRel);
        self.release(is_main_thread);
        if !was_over {
            self.report(ProgramEvent::Finalized);
        }
    }

    /// Drops the hold, if this is the thread of `main`. On another thread that would free `main` while it runs.
    fn release(&self, is_main_thread: bool) {
        let hold = if is_main_thread { self.hold.lock().take() } else { None };
        drop(hold);
    }

    /// Calls the observer, with no lock held. An event that another thread reports during the call is dropped.
    fn report(&self, event: ProgramEvent) {
        let observe = self.observe.lock().take();
        if let Some(mut observe) = observe {
            observe(event);
            *self.observe.lock() = Some(observe);
        }
    }
}
