//! [`ForeignThreadLocals`]: thread-local blocks of objects that are linked and never run.
//!
//! No C library has such blocks. They get the places that the blocks of a program and its libraries would have: one after the other,
//! next to the thread pointer. Their numbers are none of the process, whose variables the code may name, too.

use crate::arch::Arch;
use crate::base::TlsIndex;
use crate::host::ThreadLocalBlock;
use crate::link::ThreadLocalPlan;
use crate::sync::{Mutex, Rank};

/// The thread-local blocks of a layer whose code never runs.
pub(super) struct ForeignThreadLocals(Mutex<Blocks>);

#[derive(Default)]
struct Blocks {
    /// By module number, which counts from [`FIRST_NUMBER`]: distance from the thread pointer, and alignment.
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
        let number = FIRST_NUMBER + (places.len() - 1) as u32;
        Box::new(ForeignBlock { number, static_offset, image: Some(image) })
    }

    /// A variable's distance from the thread pointer. `None` for a variable of the process.
    pub(super) fn static_offset(&self, variable: TlsIndex) -> Option<i64> {
        self.place(variable.module).map(|(offset, _)| offset + i64::from(variable.offset))
    }

    /// The alignment of a block in bytes. `None` for a block of the process.
    pub(super) fn alignment(&self, module: u32) -> Option<u64> {
        self.place(module).map(|(_, align)| align)
    }

    fn place(&self, module: u32) -> Option<(i64, u64)> {
        let index = module.checked_sub(FIRST_NUMBER)? as usize;
        self.0.lock().places.get(index).copied()
    }
}

/// More than the C library gives its blocks.
const FIRST_NUMBER: u32 = 1 << 20;

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
