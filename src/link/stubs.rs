//! Writes the stubs of an object.
//!
//! | object | stub | bytes |
//! |---|---|---|
//! | says that it marks its entries | begins with a mark, so that indirect branches may reach it | [`STUB_SIZE`] |
//! | any other | the jump alone | [`PLAIN_STUB_SIZE`] |
//!
//! An architecture may have marked stubs only. If an object has no marks, an indirect branch must not reach its functions either. So marks in its stubs would only
//! make the stubs larger.

use crate::arch::{PLAIN_STUB_SIZE, STUB_SIZE};
use crate::base::ExecutorAddr;
use crate::error::{Error, LinkFault};
use crate::link::graph::SymbolIndex;
use crate::link::resolved_link::ResolvedLink;

impl ResolvedLink<'_> {
    /// Writes the stubs. Each jumps through its symbol's slot.
    pub(super) fn write_stubs(&self, segment: &mut [u8]) -> Result<(), Error> {
        let (Some(block), Some(got), Some(address)) = (self.tables.stubs(), self.tables.got(), self.stubs) else {
            return Ok(());
        };
        let got = self.graph.block_address(got, self.addresses);
        let stubs = &mut segment[self.graph.blocks[block.index()].offset as usize..];
        if self.tables.stub_size() == PLAIN_STUB_SIZE as u64 {
            self.write_plain(stubs, address, got)
        } else {
            self.write_marked(stubs, address, got)
        }
    }

    // Not inlined into `apply`, because these loops would take registers from the loop there.
    #[inline(never)]
    fn write_plain(&self, stubs: &mut [u8], address: ExecutorAddr, got: ExecutorAddr) -> Result<(), Error> {
        self.write_each::<PLAIN_STUB_SIZE>(stubs, address, got, |_, distance| self.graph.arch.plain_stub(distance))
    }

    #[inline(never)]
    fn write_marked(&self, stubs: &mut [u8], address: ExecutorAddr, got: ExecutorAddr) -> Result<(), Error> {
        self.write_each::<STUB_SIZE>(stubs, address, got, |place, distance| self.graph.arch.stub(place, distance))
    }

    #[inline(always)]
    fn write_each<const SIZE: usize>(
        &self,
        stubs: &mut [u8],
        mut address: ExecutorAddr,
        got: ExecutorAddr,
        stub_of: impl Fn(ExecutorAddr, i32) -> [u8; SIZE],
    ) -> Result<(), Error> {
        let (stubs, _) = stubs.as_chunks_mut::<SIZE>();
        for (symbol, stub) in self.tables.stub_targets.iter().zip(stubs) {
            let slot = got.offset(self.tables.slot(*symbol).unwrap_or(0));
            let distance = self.graph.arch.slot_distance(address, slot);
            *stub = stub_of(address, distance.ok_or_else(|| self.stub_out_of_range(*symbol, address, slot))?);
            address = address.offset(SIZE as u64);
        }
        Ok(())
    }

    #[cold]
    fn stub_out_of_range(&self, symbol: SymbolIndex, place: ExecutorAddr, slot: ExecutorAddr) -> Error {
        let offset = self.tables.stub(symbol).unwrap_or(0);
        let symbol = self.graph.symbol_name(symbol);
        self.graph.fault(LinkFault::slot_out_of_range(place, slot, "stubs", offset, symbol))
    }
}
