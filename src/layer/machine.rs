//! [`LinkedMachine`]: the machine that a layer links for.
//!
//! | memory | machine |
//! |---|---|
//! | can run | that of the executor |
//! | [can not](crate::memory::MemoryManager::can_run) | that of the first object that the layer gets |
//!
//! Addresses of one machine mean nothing to code of another. So every object of a layer is for one machine.

use crate::arch::Arch;
use crate::error::Result;
use crate::link::{BuiltGraph, check_machine, machine_of};
use crate::sync::{GuardedU32, Ordering};

/// The machine that a layer links for.
pub(super) struct LinkedMachine {
    /// `e_machine`. Zero as long as no object has decided. Nothing is published by it, so `Relaxed` is enough.
    number: GuardedU32,
}

impl LinkedMachine {
    /// `arch` is that of the executor.
    pub(super) fn new(can_run: bool, arch: Arch) -> LinkedMachine {
        let number = if can_run { arch.e_machine().into() } else { 0 };
        LinkedMachine { number: GuardedU32::new(number) }
    }

    /// Checks that an object is for the machine. The first object decides, if the layer has no machine yet. Bytes that are no
    /// object are not refused here.
    ///
    /// # Errors
    /// [`LinkFault::WrongArchitecture`](crate::error::LinkFault::WrongArchitecture).
    #[inline]
    pub(super) fn check(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match machine_of(bytes) {
            Some(found) => self.check_number(name, found),
            None => Ok(()),
        }
    }

    /// As [`check`](Self::check), for the graph of a generator.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    #[inline]
    pub(super) fn check_graph(&self, graph: &BuiltGraph) -> Result<()> {
        self.check_number(&graph.name, graph.read.graph().machine())
    }

    #[inline]
    fn check_number(&self, name: &str, found: u16) -> Result<()> {
        match self.number.load(Ordering::Relaxed) {
            expected if expected == u32::from(found) => Ok(()),
            expected => self.decide(name, found, expected),
        }
    }

    #[cold]
    fn decide(&self, name: &str, found: u16, expected: u32) -> Result<()> {
        // A machine that nothing links decides nothing: the reader of the object refuses it.
        let is_known = Arch::of_machine(found).is_some();
        let expected = match (expected, is_known) {
            (0, false) => return Ok(()),
            (0, true) => {
                let decided = self.number.compare_exchange(0, found.into(), Ordering::Relaxed, Ordering::Relaxed);
                decided.err().unwrap_or(found.into())
            }
            (expected, _) => expected,
        };
        check_machine(name, found, expected as u16)
    }
}
