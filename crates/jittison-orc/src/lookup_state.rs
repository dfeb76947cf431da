//! [`LookupState`]: `LLVMOrcLookupStateRef` points to one. A generator that keeps it suspends its lookup.
//!
//! | the callback returns | `LLVMOrcLookupStateContinueLookup` | what happens |
//! |---|---|---|
//! | and leaves the pointer | never | its own error is the outcome |
//! | and has taken the pointer | after that | the lookup is suspended, and continues with that call |
//! | and has taken the pointer | before that, from any thread | the outcome is known, and nothing is suspended |
//!
//! A lookup that cannot be suspended waits on its thread.

use std::sync::Arc;

use jittison::Error;
use jittison::session::{SuspendedLookup, Suspension};
use parking_lot::{Condvar, Mutex};

use crate::entry::run_or_report;
use crate::llvm::Opaque;
use crate::llvm_error::from_llvm;

/// The state of a lookup while a generator of the program works for it.
pub(crate) struct LookupState {
    state: Mutex<State>,
    is_continued: Condvar,
}

enum State {
    /// The callback has not returned.
    Running,
    /// The lookup is suspended.
    Captured(SuspendedLookup),
    /// The outcome is known.
    Continued(Result<(), Error>),
    Done,
}

impl LookupState {
    /// Calls a generator with a pointer that it may take, and suspends the lookup if it does.
    pub(crate) fn run(
        suspension: Option<&Suspension>,
        call: impl FnOnce(*mut *const LookupState) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let state = Arc::new(LookupState { state: Mutex::new(State::Running), is_continued: Condvar::new() });
        let given = Arc::into_raw(state.clone());
        let mut pointer = given;
        let outcome = call(&mut pointer);
        if !pointer.is_null() {
            // SAFETY: O2 - the callback has left the reference that it was given.
            drop(unsafe { Arc::from_raw(given) });
            return outcome;
        }
        outcome?;
        state.suspend(suspension)
    }

    /// The callback has taken the pointer.
    fn suspend(&self, suspension: Option<&Suspension>) -> Result<(), Error> {
        let mut state = self.state.lock();
        if matches!(*state, State::Running)
            && let Some(captured) = suspension.and_then(Suspension::capture)
        {
            *state = State::Captured(captured);
            return Ok(());
        }
        while matches!(*state, State::Running) {
            self.is_continued.wait(&mut state);
        }
        match std::mem::replace(&mut *state, State::Done) {
            State::Continued(outcome) => outcome,
            _ => Err(Error::other("a lookup was continued twice")),
        }
    }

    fn continue_with(&self, outcome: Result<(), Error>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Done) {
            State::Captured(captured) => {
                // The lookup goes on in this call, and may call generators.
                drop(state);
                captured.resume(outcome);
            }
            State::Running => {
                *state = State::Continued(outcome);
                self.is_continued.notify_one();
            }
            other => *state = other,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcLookupStateContinueLookup(state: *const LookupState, error: Opaque) {
    // SAFETY: O2 - the program gives the error away.
    let outcome = unsafe { from_llvm(error) };
    if state.is_null() {
        return;
    }
    // SAFETY: O2 - the generator took this reference, and gives it back.
    let state = unsafe { Arc::from_raw(state) };
    run_or_report::<()>(None, (), || {
        state.continue_with(outcome);
        Ok(())
    });
}
