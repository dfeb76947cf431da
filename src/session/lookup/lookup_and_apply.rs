//! [`LookupAndApply`]: looks several symbols up, and uses all of them or none.
//!
//! 1. Add parts. Each has the names that it needs, and a function that receives their results.
//! 2. One lookup asks for the names of all parts.
//! 3. If it succeeds, the parts are applied in the order in which they were added. A part cannot fail, so no part is
//!    applied without the others.
//!
//! Nothing keeps the addresses valid. A part that needs that [pins](ExecutionSession::pin) the symbols that it
//! receives.

use std::fmt;

use crate::base::ExecutorAddr;
use crate::error::Result;
use crate::session::core::execution_session::ExecutionSession;
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::symbol_ref::LookupResult;
use crate::session::types::request::{RequiredState, SymbolRequest, Visibility};

/// Names to look up, and functions that receive the results once all names are found (ORC: `lookupAndRecordAddrs`).
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
    /// The names of all parts, one part after the other, and whether they are required.
    names: Vec<(String, bool)>,
    parts: Vec<Part<'d>>,
}

/// A function that receives some of the results.
struct Part<'d> {
    name_count: usize,
    apply: Apply<'d>,
}

type Apply<'d> = Box<dyn FnOnce(&[LookupResult]) + Send + 'd>;

impl<'d> LookupAndApply<'d> {
    /// An empty set of parts.
    pub fn new() -> LookupAndApply<'d> {
        LookupAndApply::default()
    }

    /// Adds a part that stores the address of one symbol: null when the symbol is optional and was not found.
    pub fn record(self, request: SymbolRequest<'_>, destination: &'d mut ExecutorAddr) -> LookupAndApply<'d> {
        self.apply(&[request], |found| *destination = found[0].address)
    }

    /// Adds a part that needs `requests`. `apply` receives their results, in their order.
    ///
    /// It is called with no lock held, and may call back into the session.
    ///
    /// # Panics
    /// If a part panics, the later parts are not applied. The panic leaves [`run`](Self::run); after
    /// [`start`](Self::start), the [error reporter](crate::session::SessionOptions::error_reporter) gets it, and
    /// `on_applied` is not called.
    pub fn apply(
        mut self,
        requests: &[SymbolRequest<'_>],
        apply: impl FnOnce(&[LookupResult]) + Send + 'd,
    ) -> LookupAndApply<'d> {
        self.names.extend(requests.iter().map(|request| (request.name.to_string(), request.required)));
        self.parts.push(Part { name_count: requests.len(), apply: Box::new(apply) });
        self
    }

    /// Looks up all names in `order`, waits, and applies all parts on this thread.
    ///
    /// # Errors
    /// As [`ExecutionSession::lookup`]; no part is applied then.
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
    /// As [`run`](Self::run), without waiting. The thread that completes the lookup applies the parts, and then calls
    /// `on_applied`.
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

/// Calls each part with its own results.
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
