//! [`ForeignThreadLocals`]: thread-local blocks of objects for another machine than the executor's.
//!
//! Nothing runs such code here, so no C library has its blocks. They get the numbers and the places that the blocks of a program
//! and its libraries would have: one after the other, next to the thread pointer.

use crate::arch::Arch;
use crate::base::TlsIndex;
use crate::host::ThreadLocalBlock;
use crate::link::ThreadLocalPlan;
use crate::sync::{Mutex, Rank};

/// The thread-local blocks of a layer that links for another machine.
pub(super) struct ForeignThreadLocals(Mutex<Blocks>);

#[derive(Default)]
struct Blocks {
    /// By module number, which counts from one: distance from the thread pointer, and alignment.
    places: Vec<(i64, u64)>,
    /// Bytes next to the thread pointer that are taken.
    used: u64,
}

/// A block that no thread has a copy of.
#[derive(Debug)]
struct ForeignBlock {
    number: u32,
    static_offset: i64,
    /// The image, while it is not complete.
    image: Option<Vec<u8>>,
}

impl ForeignThreadLocals {
    pub(super) fn new() -> ForeignThreadLocals {
        ForeignThreadLocals(Mutex::ranked(Rank::Leaf, Blocks::default()))
    }

    /// Gives a block its number and its place.
    pub(super) fn add(&self, arch: Arch, plan: &ThreadLocalPlan, image: Vec<u8>) -> Box<dyn ThreadLocalBlock> {
        let mut blocks = self.0.lock();
        let Blocks { places, used } = &mut *blocks;
        let static_offset = arch.place_thread_locals(used, plan.size, plan.align);
        places.push((static_offset, plan.align));
        Box::new(ForeignBlock { number: places.len() as u32, static_offset, image: Some(image) })
    }

    /// A variable's distance from the thread pointer.
    pub(super) fn static_offset(&self, variable: TlsIndex) -> Option<i64> {
        self.place(variable.module).map(|(offset, _)| offset + i64::from(variable.offset))
    }

    /// The alignment of a block in bytes; zero for an unknown one.
    pub(super) fn alignment(&self, module: u32) -> u64 {
        self.place(module).map_or(0, |(_, align)| align)
    }

    fn place(&self, module: u32) -> Option<(i64, u64)> {
        self.0.lock().places.get((module as usize).checked_sub(1)?).copied()
    }
}

impl ThreadLocalBlock for ForeignBlock {
    fn number(&self) -> u32 {
        self.number
    }

    fn static_offset(&self) -> Option<i64> {
        Some(self.static_offset)
    }

    fn image(&mut self) -> Option<&mut [u8]> {
        self.image.as_deref_mut()
    }

    fn complete(&mut self) {
        self.image = None;
    }

    fn request_static_offset(&mut self) -> Option<i64> {
        Some(self.static_offset)
    }
}
