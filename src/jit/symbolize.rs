//! Names for addresses of linked code: for backtraces, crash reports and profilers.

use std::fmt;

use crate::base::{ExecutorAddr, Name, SegmentKind};
use crate::jit::Jit;
use crate::sync::Arc;

/// Where an address is in linked code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeLocation {
    /// What the object is called.
    pub object: Arc<str>,
    /// The dylib that it was linked into.
    pub dylib: Arc<str>,
    /// Bytes from the start of the object's code.
    pub offset: u64,
    /// The function that others can see and that the address lies in, and how many bytes from its start. Not known inside
    /// functions of the object's own (`static`), of assembly without sizes, and once the tracker is removed.
    pub function: Option<(Name, u64)>,
}

impl Jit {
    /// What stands at addresses: for each, the object and function whose code it is, `None` where no code of this session is.
    ///
    /// The standard library's backtraces, and those of the `backtrace` crate, go through linked code, but know the names of
    /// what was loaded from files only. This names the rest: pass it what `backtrace::trace` gives. A return address belongs
    /// to the instruction before it, so pass one less. Takes time in proportion to all that is linked, whatever the number
    /// of addresses. Must not be called from a signal handler.
    pub fn locate(&self, addresses: &[ExecutorAddr]) -> Vec<Option<CodeLocation>> {
        let rooms = &*self.0;
        let functions = rooms.session.symbols_at(addresses);
        let mut tenants = [rooms.layer.tenants(), rooms.stubs.tenants(), rooms.lazy.tenants()].concat();
        tenants.sort_by_key(|tenant| tenant.segments[SegmentKind::Code.index()].0);
        let locate = |(address, function): (&ExecutorAddr, Option<crate::session::SymbolAt>)| {
            let behind = tenants.partition_point(|tenant| tenant.segments[SegmentKind::Code.index()].0 <= *address);
            let tenant = tenants.get(behind.checked_sub(1)?)?;
            let (start, size) = tenant.segments[SegmentKind::Code.index()];
            let offset = address.value() - start.value();
            let function = function.map(|found| (found.name, found.offset));
            let (object, dylib) = (tenant.name.clone(), tenant.group.clone());
            (offset < size).then_some(CodeLocation { object, dylib, offset, function })
        };
        addresses.iter().zip(functions).map(locate).collect()
    }
}

impl fmt::Display for CodeLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CodeLocation { object, dylib, offset, function } = self;
        match function {
            Some((name, offset)) => write!(f, "{name}+{offset:#x} in {object} of dylib `{dylib}`"),
            None => write!(f, "code of {object}+{offset:#x} of dylib `{dylib}`"),
        }
    }
}
