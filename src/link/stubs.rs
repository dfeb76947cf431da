//! Writes the stubs of an object.
//!
//! | object | stub | bytes |
//! |---|---|---|
//! | says that it marks its entries | begins with a mark, so that indirect branches may reach it | [`STUB_SIZE`] |
//! | any other | the jump alone | [`PLAIN_STUB_SIZE`] |
//!
//! An indirect branch must not reach the own functions of an object without marks either. So marks in its stubs would
//! only make them larger.

use crate::arch::{PLAIN_STUB_SIZE, STUB_SIZE};
use crate::base::ExecutorAddr;
use crate::link::resolved_link::ResolvedLink;

impl ResolvedLink<'_> {
    /// Writes the stubs. Each jumps through its symbol's slot.
    pub(super) fn write_stubs(&self, segment: &mut [u8]) {
        let (Some(block), Some(got), Some(address)) = (self.tables.stubs(), self.tables.got(), self.stubs) else {
            return;
        };
        let got = self.graph.block_address(got, self.addresses);
        let stubs = &mut segment[self.graph.blocks[block.index()].offset as usize..];
        if self.graph.marks_entries {
            self.write_marked(stubs, address, got);
        } else {
            self.write_plain(stubs, address, got);
        }
    }

    // Not into `apply`, whose own loop would lose registers to these two.
    #[inline(never)]
    fn write_plain(&self, stubs: &mut [u8], address: ExecutorAddr, got: ExecutorAddr) {
        self.write_each::<PLAIN_STUB_SIZE>(stubs, address, got, |distance| self.graph.arch.plain_stub(distance));
    }

    #[inline(never)]
    fn write_marked(&self, stubs: &mut [u8], address: ExecutorAddr, got: ExecutorAddr) {
        self.write_each::<STUB_SIZE>(stubs, address, got, |distance| self.graph.arch.stub(distance));
    }

    #[inline(always)]
    fn write_each<const SIZE: usize>(
        &self,
        stubs: &mut [u8],
        mut address: ExecutorAddr,
        got: ExecutorAddr,
        stub_of: impl Fn(i32) -> [u8; SIZE],
    ) {
        let (stubs, _) = stubs.as_chunks_mut::<SIZE>();
        for (symbol, stub) in self.tables.stub_targets.iter().zip(stubs) {
            let slot = got.offset(self.tables.slot(*symbol).unwrap_or(0));
            // Code and read-only data are in one window, within which every address reaches every other.
            *stub = stub_of(slot.distance_from(address) as i32);
            address = address.offset(SIZE as u64);
        }
    }
}
