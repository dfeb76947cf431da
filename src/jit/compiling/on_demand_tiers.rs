//! [`TieredFunction`] and [`OnDemandTiers`]: functions in tiers whose first tier is compiled at once, or at the first call.
//!
//! A function that is compiled at its first call has three names: its own, a lazy stub; the body of the lazy stub, which stands
//! for the third; and the stub of its tiers. The body depends on that stub, so the removal of the tiers leaves the stub in memory
//! as long as the lazy stub is.
//!
//! | state | event | next |
//! |---|---|---|
//! | not compiled | its body is looked up | begun: the tiers are declared, and the first is compiled |
//! | begun | the first tier cannot be compiled, or the body cannot be defined | removed |
//! | not compiled, begun | it is removed | removed: what is compiled meanwhile is not committed |

use std::fmt;

use crate::base::Name;
use crate::error::{Error, Result};
use crate::jit::compiling::compiler::CompileRequest;
use crate::jit::compiling::on_demand::{BodyMaker, OnDemand};
use crate::jit::compiling::tiered::{Tiered, Tiers};
use crate::jit::inner::Jit;
use crate::session::{
    JitDylib, LookupResult, MaterializationResponsibility, Removal, RequiredState, SymbolRequest, Visibility,
};
use crate::sync::{Arc, Mutex};

/// A function of a [`ReOptimizeLayer`](crate::ReOptimizeLayer), which may have no tier yet.
pub(super) struct TieredFunction {
    name: Name,
    /// Nothing is called under this lock.
    state: Mutex<State>,
}

enum State {
    NotCompiled,
    Begun(Arc<Tiered>),
    Removed,
}

impl TieredFunction {
    /// A function whose first tier is compiled.
    pub(super) fn compiled(tiered: Arc<Tiered>) -> TieredFunction {
        TieredFunction { name: Name::new(tiered.name()), state: Mutex::new(State::Begun(tiered)) }
    }

    /// A function that is compiled at its first call.
    pub(super) fn on_demand(name: &str) -> TieredFunction {
        TieredFunction { name: Name::new(name), state: Mutex::new(State::NotCompiled) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Its tiers, if it has any.
    pub(super) fn tiered(&self) -> Option<Arc<Tiered>> {
        match &*self.state.lock() {
            State::Begun(tiered) => Some(tiered.clone()),
            State::NotCompiled | State::Removed => None,
        }
    }

    /// The tier that callers reach; zero before the first.
    pub(super) fn tier(&self) -> u32 {
        self.tiered().map_or(0, |tiered| tiered.tier())
    }

    /// Removes its tiers. Nothing, if it has none.
    pub(super) fn remove(&self, jit: &Jit) -> Result<Vec<Removal>> {
        let begun = {
            let mut state = self.state.lock();
            match &*state {
                State::NotCompiled => {
                    *state = State::Removed;
                    return Ok(Vec::new());
                }
                // A second removal is an error of the tiers.
                State::Begun(tiered) => tiered.clone(),
                State::Removed => return Ok(Vec::new()),
            }
        };
        begun.remove(jit)
    }

    /// Compiles the first tier.
    fn begin(&self, jit: &Jit, tiers: &Arc<Tiers>, dylib: &JitDylib) -> Result<Arc<Tiered>> {
        let entry = format!("{}$tiers", self.name);
        let (tiered, patchable) = Tiered::declare(jit, tiers, dylib, &self.name, &entry)?;
        {
            let mut state = self.state.lock();
            match *state {
                State::NotCompiled => *state = State::Begun(tiered.clone()),
                State::Begun(_) | State::Removed => {
                    return Err(Error::other(format!("`{}` was removed before its first call", self.name)));
                }
            }
        }
        tiered.begin(&patchable, jit).inspect_err(|_| self.discard(jit)).map(|()| tiered)
    }

    /// Removes tiers that no call can reach, because the body is not defined.
    fn discard(&self, jit: &Jit) {
        let state = std::mem::replace(&mut *self.state.lock(), State::Removed);
        if let State::Begun(tiered) = state {
            // An error means that another thread has removed them.
            let _ = tiered.remove(jit);
        }
    }
}

/// Begins the tiers of functions when their bodies are looked up.
pub(super) struct OnDemandTiers {
    pub(super) tiers: Arc<Tiers>,
    pub(super) functions: Arc<[TieredFunction]>,
}

impl BodyMaker for OnDemandTiers {
    fn make(&self, _: &OnDemand, request: &CompileRequest<'_>, responsibility: MaterializationResponsibility) {
        let position = self.functions.iter().position(|function| function.name() == request.function);
        let (Some(position), Some(jit)) = (position, self.tiers.jit.upgrade().map(Jit)) else {
            return responsibility.fail(Error::other(format!("the session of `{}` has ended", request.function)));
        };
        let tiered = match self.functions[position].begin(&jit, &self.tiers, request.dylib) {
            Ok(tiered) => tiered,
            Err(error) => return responsibility.fail(error),
        };
        let order = [(request.dylib.clone(), Visibility::All)];
        let requests = [SymbolRequest::required(tiered.entry())];
        let functions = self.functions.clone();
        responsibility.lookup_in(&order, &requests, RequiredState::Ready, move |responsibility, found| {
            if stand_for(responsibility, found).is_err() {
                functions[position].discard(&jit);
            }
        });
    }
}

/// Gives the only symbol of a responsibility the address of what was found, on which it depends.
fn stand_for(responsibility: MaterializationResponsibility, found: Result<Vec<LookupResult>>) -> Result<()> {
    let resolved = found.and_then(|found| {
        let found = found.into_iter().next().ok_or_else(|| Error::other("a lookup lost its only result"))?;
        responsibility.notify_resolved(|_| Some(found.address)).map(|()| found.symbol)
    });
    match resolved {
        Ok(symbol) => responsibility.notify_emitted(symbol.into_iter().collect()),
        Err(error) => {
            responsibility.fail(error.clone());
            Err(error)
        }
    }
}

impl fmt::Debug for TieredFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in tier {}", self.name, self.tier())
    }
}
