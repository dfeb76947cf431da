//! [`LookupAndApply`]: all-or-nothing use of several symbols. Either every name is found and every part is applied, or
//! nothing is.
//!
//! Parts are put together first, each with the names that it needs and what it does with them; one lookup asks for all
//! of their names; only when it has succeeded are the parts applied, in the order in which they were added. A part
//! cannot fail, so no part is ever applied without the others.
//!
//! Nothing keeps the addresses valid: a part that needs that [pins](ExecutionSession::pin) the symbols that it is given.

use std::fmt;

use crate::base::ExecutorAddr;
use crate::error::Result;
use crate::session::core::execution_session::ExecutionSession;
use crate::session::core::jit_dylib::{JitDylib, Visibility};
use crate::session::lookup::blocking::{LookupResult, RequiredState, SymbolRequest};

/// Names to look up, and what to do with all of them once all are found (ORC: `lookupAndApply`).
///
/// ```
/// # use jittison::base::ExecutorAddr;
/// # use jittison::session::{ExecutionSession, LookupAndApply, RequiredState, SymbolFlags, SymbolRequest};
/// # fn main() -> Result<(), jittison::Error> {
/// # let session = ExecutionSession::new();
/// # let dylib = session.create_dylib("main")?;
/// # dylib.define_absolute([("start".into(), ExecutorAddr::new(8), SymbolFlags::EXPORTED)])?;
/// let (mut start, mut stop) = (ExecutorAddr::NULL, ExecutorAddr::NULL);
/// LookupAndApply::new()
///     .record(SymbolRequest::required("start"), &mut start)
///     .record(SymbolRequest::weak("stop"), &mut stop)
///     .run(&session, &dylib.search_order(), RequiredState::Ready)?;
/// assert_eq!((start, stop), (ExecutorAddr::new(8), ExecutorAddr::NULL));
/// # Ok(()) }
/// ```
#[derive(Default)]
#[must_use = "nothing is looked up before it is run or started"]
pub struct LookupAndApply<'d> {
    /// Names, and whether they are required, of all parts one after the other.
    names: Vec<(String, bool)>,
    parts: Vec<Part<'d>>,
}

/// What is done with some of the results.
struct Part<'d> {
    name_count: usize,
    apply: Apply<'d>,
}

type Apply<'d> = Box<dyn FnOnce(&[LookupResult]) + Send + 'd>;

impl<'d> LookupAndApply<'d> {
    /// Nothing to look up, nothing to do.
    pub fn new() -> LookupAndApply<'d> {
        LookupAndApply::default()
    }

    /// Adds a part that stores one symbol's address: null when the symbol is not required and not found.
    pub fn record(self, request: SymbolRequest<'_>, destination: &'d mut ExecutorAddr) -> LookupAndApply<'d> {
        self.apply(&[request], |found| *destination = found[0].address)
    }

    /// Adds a part that needs `requests` and is given what was found for them, in their order.
    ///
    /// It is called with no lock held, and may call back into the session. If it panics, the parts behind it are not
    /// applied.
    pub fn apply(
        mut self,
        requests: &[SymbolRequest<'_>],
        apply: impl FnOnce(&[LookupResult]) + Send + 'd,
    ) -> LookupAndApply<'d> {
        self.names.extend(requests.iter().map(|request| (request.name.to_string(), request.required)));
        self.parts.push(Part { name_count: requests.len(), apply: Box::new(apply) });
        self
    }

    /// Looks everything up in `order`, waits, and applies all parts on this thread.
    ///
    /// # Errors
    /// As [`ExecutionSession::lookup`]; no part was applied then.
    pub fn run(
        self,
        session: &ExecutionSession,
        order: &[(JitDylib, Visibility)],
        required: RequiredState,
    ) -> Result<()> {
        let found = session.lookup(order, &requests(&self.names), required)?;
        apply_all(self.parts, &found);
        Ok(())
    }
}

impl LookupAndApply<'static> {
    /// As [`run`](Self::run), without waiting: the parts are applied, and then `on_applied` is called, on whichever
    /// thread has the answer.
    pub fn start(
        self,
        session: &ExecutionSession,
        order: &[(JitDylib, Visibility)],
        required: RequiredState,
        on_applied: impl FnOnce(Result<()>) + Send + 'static,
    ) {
        let LookupAndApply { names, parts } = self;
        session.lookup_then(order, &requests(&names), required, move |outcome| {
            on_applied(outcome.map(|found| apply_all(parts, &found)));
        });
    }
}

fn requests(names: &[(String, bool)]) -> Vec<SymbolRequest<'_>> {
    names.iter().map(|(name, required)| SymbolRequest { name, required: *required }).collect()
}

/// Gives each part its share of what was found for all of them.
fn apply_all(parts: Vec<Part<'_>>, mut found: &[LookupResult]) {
    for part in parts {
        let (own, others) = found.split_at(part.name_count);
        found = others;
        (part.apply)(own);
    }
}

impl fmt::Debug for LookupAndApply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names to look up for {} parts", self.names.len(), self.parts.len())
    }
}
