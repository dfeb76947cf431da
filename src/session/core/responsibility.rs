//! [`MaterializationResponsibility`] and [`ClaimedSymbol`]: the types, and what all users of them need.
//!
//! The operations (resolve, emit, fail, delegate) are in `materialize/`.

use crate::base::{ExecutorAddr, Name, RecycledVec, impl_recycle};
use crate::session::core::execution_session::SessionInner;
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::observer::Observers;
use crate::session::core::resource_tracker::TrackerCore;
use crate::session::types::failure_count::FailureNumber;
use crate::session::types::symbol::{SymbolFlags, SymbolId};
use crate::sync::Arc;

/// The duty to resolve and emit some symbols, or to fail them (ORC: `MaterializationResponsibility`).
///
/// Dropping a responsibility fails its symbols.
#[must_use = "dropping a responsibility fails its symbols"]
pub struct MaterializationResponsibility {
    pub(crate) core: Arc<TrackerCore>,
    pub(crate) unit_name: Arc<str>,
    pub(crate) claimed: RecycledVec<ClaimedSymbol>,
    /// Whether the caller that began the materialisation receives its outcome. If so, a failure is not reported to the
    /// session's error reporter, even if no lookup waits for a symbol.
    pub(crate) caller_gets_outcome: bool,
    /// When the lookup began for which the symbols are materialised: its failures are those after this one.
    pub(in crate::session) since: FailureNumber,
}

impl_recycle!(ClaimedSymbol);

/// A symbol that a responsibility has to define.
#[derive(Debug, Clone)]
pub struct ClaimedSymbol {
    /// The name.
    pub name: Name,
    /// The flags that its definition declared.
    pub flags: SymbolFlags,
    pub(crate) id: SymbolId,
    /// The number by which its definer knows the symbol. By default the position among the symbols of the unit.
    pub(crate) number: Option<u32>,
    /// The size in bytes; zero when unknown.
    pub(crate) size: u64,
    /// Null until the symbol is [located](MaterializationResponsibility::locate), and for a symbol without an address.
    pub(crate) address: ExecutorAddr,
}

impl ClaimedSymbol {
    /// A symbol that is in no table yet, of unknown size and without an address.
    #[inline(always)] // Built in place in the vector.
    pub(crate) fn with_flags(name: Name, flags: SymbolFlags, number: Option<u32>) -> ClaimedSymbol {
        ClaimedSymbol { name, flags, id: SymbolId::default(), number, size: 0, address: ExecutorAddr::NULL }
    }

    /// Whether the symbol has an address once it is resolved.
    pub(crate) fn has_address(&self) -> bool {
        !self.flags.contains(SymbolFlags::SIDE_EFFECTS_ONLY)
    }
}

impl MaterializationResponsibility {
    pub(crate) fn new(core: Arc<TrackerCore>, unit_name: Arc<str>, claimed: RecycledVec<ClaimedSymbol>) -> Self {
        let since = core.dylib().session.failures.now();
        MaterializationResponsibility { core, unit_name, claimed, caller_gets_outcome: false, since }
    }

    /// Promises that the caller receives the outcome: its failure is not reported to the error reporter.
    pub(crate) fn with_outcome_to_caller(self) -> Self {
        let mut responsibility = self;
        responsibility.caller_gets_outcome = true;
        responsibility
    }

    pub(crate) fn session(&self) -> &Arc<SessionInner> {
        &self.core.dylib().session
    }

    /// The observers of the session.
    #[inline]
    pub(crate) fn observers(&self) -> &Observers {
        &self.session().observers
    }

    /// The dylib that defines the symbols (ORC: `getTargetJITDylib`).
    pub fn dylib(&self) -> JitDylib {
        self.dylib_handle().clone()
    }

    /// The dylib, without a new reference count.
    pub(crate) fn dylib_handle(&self) -> &JitDylib {
        &self.core.handle
    }
}
