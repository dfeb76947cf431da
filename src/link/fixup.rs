//! Fix-up: copies the contents of blocks to their memory and applies the edges.
//!
//! # Order
//! 1. Each segment: copy each block that has contents, fill the gaps, apply the block's edges. Then write the stubs
//!    (code, `stubs.rs`) or the GOT slots (read-only data).
//! 2. Large sections, which are in no segment, in the same way.
//! 3. The image of the thread-local block, and the GOT entries of thread-local variables (`thread_local_fixup.rs`).
//! 4. Thunks and slots of far references (`range_extension/`), and thunks for thread-local variables
//!    (`thread_local_thunks.rs`).
//!
//! # How an edge is applied
//! | case | action | code |
//! |---|---|---|
//! | the target is plain and the value fits | quick loop over consecutive edges | `plain_edges.rs` |
//! | branch to a target out of reach | branch to the symbol's stub, or to a veneer | [`ResolvedLink::apply_branch_by_stub`], `veneer_plan.rs` |
//! | GOT load of a target in reach | rewrite the instruction to do without the slot | [`Arch::relax_got_load`] |
//! | instructions that cheaper ones can stand for | rewrite them together | `instructions.rs`, `relaxable.rs` |
//! | any other | the psABI's formula | [`ResolvedLink::edge_value`], `instructions.rs` |
//! | the value still does not fit | the stub of a known function that is only called, else a far reference | [`ResolvedLink::value_by_stub`], `range_extension/` |
//!
//! # Addresses of functions
//! A stub has another address than its function, and code may compare the addresses of functions. So a stub stands for
//! a function only in a branch, and in an unwind table, which names the personality routine.
//!
//! A value that does not fit its field is an error. It is never truncated. Every write is inside the block's own bytes;
//! the reader of the object checked every offset.
//!
//! Debug builds check the result byte by byte: `verify.rs`.

use crate::arch::{Arch, Base, EdgeKind, Frame};
use crate::base::{ExecutorAddr, SegmentKind, TlsIndex};
use crate::error::{Error, LinkFault};
use crate::link::found_external::FoundExternal;
use crate::link::graph::{Block, BlockId, Definition, Edge, Role, SymbolIndex};
use crate::link::layout::Contents;
use crate::link::plain_edges::{apply_plain_edges, instruction_at, store};
use crate::link::range_extension::extender::RangeExtender;
use crate::link::resolved_link::ResolvedLink;
use crate::link::tables::SLOT_SIZE;
use crate::link::targets::is_near_zero;
use crate::memory::InFlight;

impl ResolvedLink<'_> {
    /// Writes the link into `memory`, its thunks into `thunks`, if it needs some, and its thread-local image into `image`,
    /// if there is one to complete.
    ///
    /// # Errors
    /// [`LinkFault::OutOfRange`] for a value that does not fit, [`LinkFault::Unsupported`] for a reference that has no
    /// value.
    pub(crate) fn apply(
        &self,
        memory: &mut dyn InFlight,
        contents: &Contents,
        image: Option<&mut [u8]>,
        thunks: Option<&mut dyn InFlight>,
    ) -> Result<(), Error> {
        self.check_lost_commons()?;
        let mut extender = RangeExtender::new();
        // `ObjectBuffer::deref` is a virtual call; it is made once per link.
        let object: &[u8] = &self.graph.bytes;
        for pool in SegmentKind::ALL {
            let segment = memory.working(pool);
            if !segment.is_empty() {
                self.apply_segment(pool, object, segment, contents, &mut extender)?;
                match pool {
                    SegmentKind::Code => self.write_stubs(segment)?,
                    SegmentKind::ReadOnly => self.write_slots(segment),
                    SegmentKind::Data => {}
                }
            }
        }
        if !self.addresses.large_sections.is_empty() {
            self.apply_large_sections(object, memory, &mut extender)?;
        }
        if let Some(image) = image {
            self.complete_image(image)?;
        }
        self.write_thread_local_entries(memory)?;
        extender.write(self, memory, thunks);
        Ok(())
    }

    /// Writes the image of the thread-local block again, with the addresses of the externals.
    pub(crate) fn complete_image(&self, image: &mut [u8]) -> Result<(), Error> {
        self.apply_image(&self.graph.bytes, image, |_| true)
    }

    /// Refuses a definition that replaces a common symbol of the object and is aligned less strictly. A native linker
    /// gives all of them the strictest alignment.
    fn check_lost_commons(&self) -> Result<(), Error> {
        let is_misaligned = |(symbol, align): &&(SymbolIndex, u64)| !self.is_aligned(*symbol, *align);
        let Some((symbol, align)) = self.graph.lost_commons.iter().find(is_misaligned) else { return Ok(()) };
        let place = match self.found(*symbol).filter(|found| found.thread_local.is_some()) {
            None => self.address(*symbol).to_string(),
            Some(found) => {
                let offset = TlsIndex::from_address(found.address).offset;
                format!("offset {offset:#x} of a thread-local block that is aligned to {} bytes", found.block_align)
            }
        };
        Err(self.graph.fault(LinkFault::Unsupported {
            what: format!(
                "alignment of a common symbol: it needs {align} bytes, and the definition that counts is at {place}; give \
                 all definitions of the symbol one alignment"
            ),
            section: "COMMON".to_string(),
            offset: 0,
            symbol: self.graph.symbol_name(*symbol).to_string(),
        }))
    }

    /// Whether the definition that counts is aligned to `align` bytes, in every thread.
    fn is_aligned(&self, symbol: SymbolIndex, align: u64) -> bool {
        let is_block_aligned = |found: &FoundExternal| found.thread_local.is_none() || found.block_align >= align;
        // The address of a thread-local variable has its offset in the lower half. An alignment is less than 4 GiB.
        self.address(symbol).value().is_multiple_of(align) && self.found(symbol).is_none_or(is_block_aligned)
    }

    fn apply_segment(
        &self,
        pool: SegmentKind,
        object: &[u8],
        segment: &mut [u8],
        contents: &Contents,
        extender: &mut RangeExtender,
    ) -> Result<(), Error> {
        let mut written = 0;
        for (id, block) in contents.of(self.graph, pool) {
            let (start, end) = (block.offset as usize, (block.offset + block.size) as usize);
            // The memory of a gap may hold old bytes. Traps in code stop whatever runs into a gap.
            if written < start {
                segment[written..start].fill(if pool == SegmentKind::Code { self.graph.arch.trap() } else { 0 });
            }
            written = end;
            let bytes = &mut segment[start..end];
            match self.graph.content_in(object, block) {
                Some(content) => bytes.copy_from_slice(content),
                // Tables are written when their segment is complete.
                None => self.graph.write_given(block, bytes),
            }
            if !block.edges.is_empty() {
                let address = self.addresses.segments[pool.index()].offset(block.offset);
                self.apply_block(id, block, address, bytes, extender)?;
            }
        }
        Ok(())
    }

    /// Writes the image that every thread's copy of the thread-local block starts from, before the externals are known:
    /// applies the edges to the object's own definitions. Returns whether these are all.
    ///
    /// # Errors
    /// As [`apply`](Self::apply). Also for an edge whose value depends on its own address, since every copy has another
    /// address.
    pub(crate) fn own_image(&self, image: &mut [u8]) -> Result<bool, Error> {
        let mut is_complete = true;
        self.apply_image(&self.graph.bytes, image, |edge| {
            let is_known = self.graph.definition(edge.symbol) != Definition::External;
            is_complete &= is_known;
            is_known
        })?;
        Ok(is_complete)
    }

    fn apply_image(
        &self,
        object: &[u8],
        image: &mut [u8],
        mut is_known: impl FnMut(&Edge) -> bool,
    ) -> Result<(), Error> {
        let blocks = self.graph.special().filter(|(_, block)| block.role == Role::ThreadLocal && !block.is_dropped);
        for (id, block) in blocks {
            if block.is_zero_fill() {
                continue;
            }
            let bytes = &mut image[block.offset as usize..(block.offset + block.size) as usize];
            match self.graph.content_in(object, block) {
                Some(content) => bytes.copy_from_slice(content),
                None => self.graph.write_given(block, bytes),
            }
            for edge in self.graph.edges(id) {
                if edge.kind.depends_on_place() {
                    let what =
                        format!("{} in the image of a thread-local block", self.graph.relocation_name(edge.kind));
                    return Err(self.unsupported(id, edge, what));
                }
                if is_known(edge)
                    && let EdgeOutcome::OutOfReach(value) =
                        self.apply_edge(id, block, edge, ExecutorAddr::NULL, bytes)?
                {
                    return Err(self.out_of_range(id, edge, value));
                }
            }
        }
        Ok(())
    }

    /// As [`apply_segment`](Self::apply_segment), for the sections that are in no segment.
    fn apply_large_sections(
        &self,
        object: &[u8],
        memory: &mut dyn InFlight,
        extender: &mut RangeExtender,
    ) -> Result<(), Error> {
        for (id, block) in self.graph.blocks() {
            let Some(index) = block.large_index else { continue };
            if block.is_zero_fill() {
                continue;
            }
            let bytes = memory.large_section(index as usize);
            match self.graph.content_in(object, block) {
                Some(content) => bytes.copy_from_slice(content),
                None => self.graph.write_given(block, bytes),
            }
            self.apply_block(id, block, self.addresses.large_sections[index as usize], bytes, extender)?;
        }
        Ok(())
    }

    /// Applies all edges of a block at `address`, whose contents are in `bytes`.
    fn apply_block(
        &self,
        id: BlockId,
        block: &Block,
        address: ExecutorAddr,
        bytes: &mut [u8],
        extender: &mut RangeExtender,
    ) -> Result<(), Error> {
        let mut edges = &self.graph.edges[block.edges.start as usize..block.edges.end as usize];
        // If the sum is near zero, all fields are, because the offset of an edge has 32 bits.
        let is_near = is_near_zero(address.value().saturating_add(u64::from(u32::MAX)));
        let is_quick = is_near && self.graph.arch == Arch::QUICK;
        let mut far = Vec::new();
        loop {
            if is_quick {
                edges = apply_plain_edges(edges, self.targets.all(), address.value(), bytes);
            } else if self.graph.arch != Arch::QUICK {
                let count = self.relax_sequence(id, edges, address, bytes);
                edges = &edges[count..];
                if count > 0 {
                    continue;
                }
            }
            let Some((edge, rest)) = edges.split_first() else { break };
            edges = rest;
            if !(is_quick && self.apply_branch_by_stub(edge, address, bytes)) {
                self.apply_or_collect(id, block, edge, address, bytes, &mut far)?;
            }
        }
        // Last, because a far reference may share an instruction or an exception table with other edges, and changes
        // it.
        if far.is_empty() { Ok(()) } else { self.extend_block(id, bytes, far, extender) }
    }

    #[cold]
    fn extend_block(
        &self,
        id: BlockId,
        bytes: &mut [u8],
        far: Vec<Edge>,
        extender: &mut RangeExtender,
    ) -> Result<(), Error> {
        extender.extend_block(self, id, bytes, far)
    }

    /// Applies an edge, or adds it to `far`, if its target is out of reach and the range extension covers it, or if a
    /// thunk has to compute its value.
    #[inline(never)]
    fn apply_or_collect(
        &self,
        id: BlockId,
        block: &Block,
        edge: &Edge,
        address: ExecutorAddr,
        bytes: &mut [u8],
        far: &mut Vec<Edge>,
    ) -> Result<(), Error> {
        if self.thunks.is_some() && edge.kind.has_fixed_distance() && self.needs_thunk(id, edge)? {
            far.push(*edge);
            return Ok(());
        }
        if let EdgeOutcome::OutOfReach(value) = self.apply_edge(id, block, edge, address, bytes)? {
            if !self.tables.range_extension.covers(self.graph, id, edge) {
                return Err(self.out_of_range(id, edge, value));
            }
            far.push(*edge);
        }
        Ok(())
    }

    /// Makes a branch whose target is out of reach go to the target's stub. Returns false, and writes nothing, for any
    /// other edge and for a stub that is out of reach. The block is near zero.
    fn apply_branch_by_stub(&self, edge: &Edge, block_address: ExecutorAddr, bytes: &mut [u8]) -> bool {
        let (EdgeKind::Branch32, Some(stubs)) = (edge.kind, self.stubs) else { return false };
        let (Some(_), Some(offset)) = (self.targets.plain(edge.symbol), self.tables.stub(edge.symbol)) else {
            return false;
        };
        let (stub, place) = (stubs.offset(offset), block_address.offset(edge.offset.into()));
        let distance = stub.value().wrapping_add_signed(edge.addend).wrapping_sub(place.value()) as i64;
        is_near_zero(stub.value())
            && i32::try_from(distance).is_ok_and(|value| store(bytes, edge.offset as usize, value.to_le_bytes()))
    }

    /// Applies one edge of any kind. `block_address` is the address of its block.
    fn apply_edge(
        &self,
        id: BlockId,
        block: &Block,
        edge: &Edge,
        block_address: ExecutorAddr,
        bytes: &mut [u8],
    ) -> Result<EdgeOutcome, Error> {
        let place = block_address.offset(edge.offset.into());
        let (start, end) = (edge.offset as usize, edge.offset as usize + edge.kind.width());
        let field = &mut bytes[start..end];
        if self.graph.definition(edge.symbol) == Definition::Nowhere {
            self.apply_to_nowhere(id, block, edge, field)?;
            return Ok(EdgeOutcome::Applied);
        }
        let target = self.address(edge.symbol);
        self.check_thread_local_use(id, edge)?;
        let to_target = wide(target) + i128::from(edge.addend) - wide(place);
        if let Ok(displacement) = i64::try_from(to_target)
            && edge.addend == -4
            && let Some((before, code)) = instruction_at(bytes, start)
            && self.graph.arch.relax_got_load(edge.kind, before, code, displacement)
        {
            return Ok(EdgeOutcome::Applied);
        }
        let mut value = self.edge_value(id, edge, target, to_target, place)?;
        if let Some((min, max)) = edge.kind.range()
            && !(min..=max).contains(&value)
        {
            let stub = self.value_by_stub(block, edge, place, &bytes[..start]);
            let stub = stub.filter(|value| (min..=max).contains(value)).or_else(|| self.value_by_veneer(edge, place));
            let Some(stub) = stub else { return Ok(EdgeOutcome::OutOfReach(value)) };
            value = stub;
        }
        let multiple = edge.kind.multiple();
        if multiple > 1 && value.rem_euclid(multiple.into()) != 0 {
            return Err(self.misaligned(id, edge, value, multiple));
        }
        edge.kind.store(&mut bytes[start..end], value);
        Ok(EdgeOutcome::Applied)
    }

    /// The value of an edge by the psABI's formula (4.4.1; see [`EdgeKind`]): `target` is `S`, `place` is `P`, and
    /// `to_target` is `S + A - P`.
    fn edge_value(
        &self,
        id: BlockId,
        edge: &Edge,
        target: ExecutorAddr,
        to_target: i128,
        place: ExecutorAddr,
    ) -> Result<i128, Error> {
        use EdgeKind::*;
        if let Some(formula) = edge.kind.formula() {
            return self.formula_value(id, edge, formula, place);
        }
        let addend = i128::from(edge.addend);
        let got = || self.tables.got().map_or(0, |got| wide(self.graph.block_address(got, self.addresses)));
        // The tables were built from these edges, so a slot that an edge needs is there.
        let slot = || got() + i128::from(self.tables.slot(edge.symbol).unwrap_or(0));
        Ok(match edge.kind.general() {
            Pointer64 => i128::from(target.value().wrapping_add_signed(edge.addend)),
            Pointer32 | Pointer32Signed | Pointer16 | Pointer8 => absolute(target, edge.kind) + addend,
            Delta64 | Delta32 | Delta16 | Delta8 | Branch32 => to_target,
            GotLoad32 | GotLoad32Relaxable | GotLoad32RexRelaxable | GotLoad32Apx | GotLoad64 => {
                slot() + addend - wide(place)
            }
            GotSlot64 | GotSlot32 => slot() + addend - got(),
            GotOffset64 => wide(target) + addend - got(),
            GotBase32 | GotBase64 => got() + addend - wide(place),
            Size32 | Size64 => i128::from(self.graph.symbols[edge.symbol.0 as usize].size) + addend,
            ThreadLocalPair32 | ThreadLocalBlock32 | StaticLoad32 | ThreadLocalDescriptor32 => {
                let entry = edge.kind.thread_local_entry();
                let offset = entry.and_then(|entry| self.tables.thread_local(edge.symbol, entry)).unwrap_or(0);
                got() + i128::from(offset) + addend - wide(place)
            }
            ThreadLocalOffset32 | ThreadLocalOffset64 => {
                let offset = self.offset_in_local_dynamic_block(edge.symbol);
                i128::from(offset.ok_or_else(|| self.not_static(id, edge))?) + addend
            }
            StaticOffset32 | StaticOffset64 => {
                let distance = self.thread_local_location(edge.symbol).static_offset;
                i128::from(distance.ok_or_else(|| self.not_static(id, edge))?) + addend
            }
            // It has a formula.
            _ => to_target,
        })
    }

    /// The value with the symbol's stub for `S`, if the stub may stand for the symbol (see the head of the file).
    /// `before` are the bytes of the block before the field.
    fn value_by_stub(&self, block: &Block, edge: &Edge, place: ExecutorAddr, before: &[u8]) -> Option<i128> {
        use EdgeKind::*;
        let is_function = || self.found(edge.symbol).is_some_and(|found| found.is_callable);
        let is_called = match edge.kind.general() {
            // A stub leads to the start of its symbol only.
            Branch32 => edge.addend == 0 || !self.graph.arch.addend_is_distance(edge.kind),
            Delta32 if block.pool == SegmentKind::Code => self.graph.arch.is_branch_operand(before) && is_function(),
            Delta32 | Pointer32 | Pointer32Signed => block.role == Role::EhFrame && is_function(),
            _ => false,
        };
        if !is_called {
            return None;
        }
        let (stubs, offset) = (self.tables.stubs()?, self.tables.stub(edge.symbol)?);
        let value = wide(self.graph.block_address(stubs, self.addresses).offset(offset)) + i128::from(edge.addend);
        Some(if edge.kind.depends_on_place() { value - wide(place) } else { value })
    }

    /// Applies an edge to a symbol whose section is not in memory: a zero field in an unwind table or an exception
    /// table, which has entries for dropped functions; an error elsewhere.
    fn apply_to_nowhere(&self, id: BlockId, block: &Block, edge: &Edge, field: &mut [u8]) -> Result<(), Error> {
        let name = self.graph.block_name(id);
        if block.role == Role::EhFrame || name.starts_with(".gcc_except_table") {
            field.fill(0);
            return Ok(());
        }
        let what = format!(
            "{} to a section that is not in memory, or was dropped with its group",
            self.graph.relocation_name(edge.kind)
        );
        Err(self.unsupported(id, edge, what))
    }

    pub(super) fn unsupported(&self, id: BlockId, edge: &Edge, what: String) -> Error {
        self.graph.fault(LinkFault::Unsupported {
            what,
            section: self.graph.block_name(id).to_string(),
            offset: edge.offset.into(),
            symbol: self.graph.symbol_name(edge.symbol).to_string(),
        })
    }

    /// Writes each symbol's address into its GOT slot.
    fn write_slots(&self, segment: &mut [u8]) {
        let Some(got) = self.tables.got() else { return };
        let start = self.graph.blocks[got.index()].offset as usize;
        let (slots, _) = segment[start..].as_chunks_mut::<SLOT_SIZE>();
        for (symbol, slot) in self.tables.slots.iter().zip(slots) {
            *slot = self.address(*symbol).value().to_le_bytes();
        }
    }

    fn out_of_range(&self, id: BlockId, edge: &Edge, value: i128) -> Error {
        let (min, max) = edge.kind.range().unwrap_or_default();
        let advice = match edge.kind {
            EdgeKind::Pointer32 | EdgeKind::Pointer32Signed => {
                "the code must be placed below 2 GiB: compile it with -fPIC"
            }
            kind if kind == EdgeKind::Delta32 || is_distance(kind) => {
                "the symbol is out of reach: compile with -fPIC, so that the reference goes through the GOT"
            }
            kind if kind.general() == EdgeKind::Branch32 => {
                "neither the symbol nor a stub of the object is in reach: divide its code among several objects"
            }
            _ => "the field is too narrow for this value",
        };
        self.graph.fault(LinkFault::OutOfRange {
            section: self.graph.block_name(id).to_string(),
            offset: edge.offset.into(),
            kind: self.graph.relocation_name(edge.kind).to_string(),
            symbol: self.graph.symbol_name(edge.symbol).to_string(),
            target: self.address(edge.symbol).value(),
            value,
            min,
            max,
            advice,
        })
    }
}

/// The outcome of an edge.
enum EdgeOutcome {
    Applied,
    /// The value, which does not fit. Nothing was written.
    OutOfReach(i128),
}

/// Whether an instruction holds the distance to a symbol.
fn is_distance(kind: EdgeKind) -> bool {
    kind.formula().is_some_and(|formula| {
        formula.base == Base::Symbol && matches!(formula.frame, Frame::Place | Frame::Page) && kind.width() == 4
    })
}

pub(super) fn wide(address: ExecutorAddr) -> i128 {
    address.value().into()
}

/// An address as the value of an absolute field. A sign-extended field holds an address of the upper half of the
/// address space as a negative number.
fn absolute(target: ExecutorAddr, kind: EdgeKind) -> i128 {
    if kind == EdgeKind::Pointer32Signed { i128::from(target.value() as i64) } else { wide(target) }
}
