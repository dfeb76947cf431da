//! [`CodeLocation`]: names for addresses of linked code, for backtraces, crash reports and profilers.
//!
//! [`Jit::locate`] sorts all linked code by address and searches it. Function names come from the symbol tables of the
//! dylibs, so they cover only functions that other objects can see, and only while their tracker is not removed.

use std::fmt;

use crate::base::{ExecutorAddr, Name, SegmentKind, sort_by_number};
use crate::error::{Error, ErrorKind, ExecutorCrash, Result};
use crate::jit::inner::Jit;
use crate::session::SymbolAt;
use crate::sync::Arc;

/// Where an address is in linked code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeLocation {
    /// The name of the object.
    pub object: Arc<str>,
    /// The dylib that the object was linked into.
    pub dylib: Arc<str>,
    /// Offset in bytes from the start of the object's code.
    pub offset: u64,
    /// The function that contains the address, and the offset from its start in bytes. `None` for functions that only their
    /// object sees (`static`), for assembly without symbol sizes, and after the tracker was removed.
    pub function: Option<(Name, u64)>,
}

impl Jit {
    /// Finds the object and the function that contain each address. `None` for addresses outside the code of this session.
    ///
    /// Backtraces of the standard library and of the crate `backtrace` walk through linked code, but they know no names in
    /// it. Pass this function the addresses that `backtrace::trace` returns. A return address may be the first byte of the
    /// next function, so subtract one from it.
    ///
    /// The time grows with all that is linked, and hardly with the number of addresses. Do not call this from a signal
    /// handler.
    pub fn locate(&self, addresses: &[ExecutorAddr]) -> Vec<Option<CodeLocation>> {
        let inner = &*self.0;
        let functions = inner.session.symbols_at(addresses);
        let mut tenants = [inner.layer.tenants(), inner.stubs.tenants(), inner.lazy.tenants()].concat();
        // A tenant without code has the address of the pool, where another tenant may have its code.
        tenants.retain(|tenant| tenant.segments[SegmentKind::Code.index()].1 != 0);
        sort_by_number(&mut tenants, |tenant| tenant.segments[SegmentKind::Code.index()].0.value().into());
        let locate = |(address, function): (&ExecutorAddr, Option<SymbolAt>)| {
            let next = tenants.partition_point(|tenant| tenant.segments[SegmentKind::Code.index()].0 <= *address);
            let tenant = tenants.get(next.checked_sub(1)?)?;
            let (start, size) = tenant.segments[SegmentKind::Code.index()];
            let offset = address.value() - start.value();
            let function = function.map(|found| (found.name, found.offset));
            let (object, dylib) = (tenant.name.clone(), tenant.group.clone());
            (offset < size).then_some(CodeLocation { object, dylib, offset, function })
        };
        addresses.iter().zip(functions).map(locate).collect()
    }
}

impl Jit {
    /// Checks that the process of an executor still runs, if the session has one. Called after code has run there.
    ///
    /// # Errors
    /// How it has ended, with the functions of the session.
    pub(in crate::jit) fn check_executor(&self) -> Result<()> {
        self.0.executor.check().map_err(|error| self.with_names(error))
    }

    /// Adds the names of functions and objects to the backtrace of an executor that has crashed.
    pub(in crate::jit) fn with_names(&self, error: Error) -> Error {
        let ErrorKind::ExecutorEnded { process, how, crash: Some(crash) } = error.kind() else { return error };
        // A return address may be that of the next function.
        let before = |(index, address): (usize, &ExecutorAddr)| {
            ExecutorAddr::new(address.value().saturating_sub(if index == 0 { 0 } else { 1 }))
        };
        let addresses: Vec<_> = crash.backtrace.iter().enumerate().map(before).collect();
        let located = self.locate(&addresses).into_iter().map(|found| found.map(|found| found.to_string())).collect();
        let crash = Some(Box::new(ExecutorCrash { located, ..(**crash).clone() }));
        ErrorKind::ExecutorEnded { process: *process, how: how.clone(), crash }.into()
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
