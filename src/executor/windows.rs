//! The code memory of an executor: [`WindowPeer`] by requests, and [`ExecutorMemory`], the manager over its windows.

use std::os::fd::BorrowedFd;

use crate::arch::Arch;
use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::{Error, MemoryFault, Result};
use crate::executor::changes::{Changes, MESSAGE_BYTES};
use crate::executor::process::ExecutorProcess;
use crate::executor::requests::Remote;
use crate::memory::{
    CopyMapper, CopyPeer, Finalized, Frame, HoldsWindows, InFlight, MemoryManager, MemoryMap, MemoryMapper,
    MemoryStatistics, PeerMapper, PeerPlace, Placement, Released, SegmentPlan, SlabPool, WindowLayout, WindowPeer,
};
use crate::sync::Arc;
use crate::wire::{Answer, Change, PlaceOfWindow, Request, WindowPlacement, WindowShape};

impl WindowPeer for Remote {
    fn reserve(&self, layout: &WindowLayout, placement: Placement) -> std::result::Result<PeerPlace, MemoryFault> {
        let pools = SegmentKind::ALL.map(|pool| (layout.pool(pool).offset, layout.pool(pool).size));
        let shape = WindowShape { size: layout.size(), pools };
        let answer = self.0.ask(Request::ReserveWindow { shape, placement: wire_placement(placement) });
        match answer.map_err(refused("reserving a window"))? {
            Answer::Window(PlaceOfWindow { window, base, preferred, nonce, is_loaded }) => {
                Ok(PeerPlace { window, base: ExecutorAddr::new(base), preferred, nonce, is_loaded })
            }
            other => Err(refused("reserving a window")(self.0.unexpected(&other))),
        }
    }

    fn map(&self, window: u64, code: BorrowedFd<'_>, data: BorrowedFd<'_>) -> std::result::Result<(), MemoryFault> {
        let answer = self.0.ask_with(Request::MapWindow { window }, &[code, data]);
        match answer.map_err(refused("mapping a window"))? {
            Answer::Done => Ok(()),
            other => Err(refused("mapping a window")(self.0.unexpected(&other))),
        }
    }
}

impl HoldsWindows for Remote {
    fn release(&self, window: u64) {
        // If the executor has ended, so has the window.
        let _ = self.0.tell(Request::ReleaseWindow { window });
    }
}

fn refused(step: &str) -> impl FnOnce(Error) -> MemoryFault {
    let step = format!("{step} in the executor");
    move |error| MemoryFault::Refused { step, problem: error.to_string() }
}

fn wire_placement(placement: Placement) -> WindowPlacement {
    match placement {
        Placement::Anywhere => WindowPlacement::Anywhere,
        Placement::NearHost => WindowPlacement::NearHost,
        Placement::NearLibraries => WindowPlacement::NearLibraries,
        Placement::Low2GiB => WindowPlacement::Low2GiB,
    }
}

impl CopyPeer for Remote {
    fn arch(&self) -> Arch {
        self.0.arch
    }

    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> std::result::Result<PeerPlace, MemoryFault> {
        let place = self.reserve(layout, placement)?;
        match self.0.ask(Request::MapOwnWindow { window: place.window }).map_err(refused("mapping a window"))? {
            Answer::Done => Ok(place),
            other => Err(refused("mapping a window")(self.0.unexpected(&other))),
        }
    }

    fn write(&self, window: u64, offset: u64, bytes: &[u8]) {
        let Some(changes) = &self.0.changes else { return };
        for (index, part) in bytes.chunks(MESSAGE_BYTES).enumerate() {
            let offset = offset + (index * MESSAGE_BYTES) as u64;
            changes.push(Change::Bytes { window, offset, bytes: part.to_vec() });
        }
    }

    fn zero(&self, window: u64, offset: u64, size: u64) {
        if let Some(changes) = &self.0.changes {
            changes.push(Change::Zeroes { window, offset, size });
        }
    }

    fn send_if_many(&self) {
        if self.0.changes.as_ref().is_some_and(Changes::are_many) {
            CopyPeer::send(self);
        }
    }

    fn send(&self) {
        // If the executor has ended, nobody runs the code.
        let _ = self.0.send_changes();
    }
}

/// The code memory of a session with an executor. `pool` makes a pool over the mapper that it gets.
pub(crate) fn executor_memory(
    executor: &ExecutorProcess,
    pool: impl FnOnce(Arc<dyn MemoryMapper>) -> Result<SlabPool>,
) -> Result<Arc<dyn MemoryManager>> {
    let remote = Arc::new(Remote::new(executor));
    let mapper: Arc<dyn MemoryMapper> = match executor.is_copied() {
        true => Arc::new(CopyMapper(remote)),
        false => Arc::new(PeerMapper(remote)),
    };
    Ok(Arc::new(ExecutorMemory(pool(mapper)?)))
}

/// A pool whose windows run elsewhere. It has no large sections, because a pool maps them in this process.
struct ExecutorMemory(SlabPool);

// SAFETY: E3 - the pool makes all allocations and keeps the contract, in the process of the executor.
unsafe impl MemoryManager for ExecutorMemory {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>> {
        if let Some(section) = plan.large_sections.first() {
            return Err(MemoryFault::BadPlan {
                pool: "large section",
                size: section.size,
                align: section.align,
                problem: "the memory of an executor has no large sections; request a segment",
            }
            .into());
        }
        self.0.allocate(plan)
    }

    fn finalize_all(&self, batch: Vec<(Box<dyn InFlight>, Vec<Frame>)>) -> Result<Vec<Box<dyn Finalized>>> {
        self.0.finalize_all(batch)
    }

    fn has_large_sections(&self) -> bool {
        false
    }

    fn statistics(&self) -> MemoryStatistics {
        self.0.statistics()
    }

    fn release_free(&self) -> Released {
        self.0.release_free()
    }

    fn release_free_slabs(&self) -> usize {
        self.0.release_free_slabs()
    }

    fn memory_map(&self) -> Option<MemoryMap> {
        self.0.memory_map()
    }
}
