//! [`FieldVerifier`]: one section after the link, as the architecture's formulas see it.

use std::ops::Range;

use super::input_view::InputView;
use super::memory_snapshot::MemorySnapshot;
use crate::arch::STUB_SIZE;
use crate::arch::verify::{FieldValue, Mismatch, Relocation, SectionView};
use crate::link::graph::{BlockId, Definition, Role, SymbolIndex};
use crate::link::resolved_link::ResolvedLink;

/// Checks the fields of one section.
pub(super) struct FieldVerifier<'a> {
    pub(super) link: &'a ResolvedLink<'a>,
    pub(super) snapshot: &'a MemorySnapshot,
    pub(super) object: &'a InputView<'a>,
    /// The section's bytes in the object.
    pub(super) content: &'a [u8],
    /// The section's bytes in memory.
    pub(super) memory: &'a [u8],
    /// The section's address.
    pub(super) address: u64,
    /// What the link does with the section.
    pub(super) role: Role,
}

/// Where a thread-local variable is.
struct ThreadLocalLocation {
    module: u64,
    /// Offset in the module's block.
    offset: u64,
    from_thread_pointer: Option<i64>,
}

impl FieldVerifier<'_> {
    /// Checks the field of a relocation. Returns the range of bytes that the relocation explains.
    pub(super) fn check(&self, relocation: &Relocation) -> Result<Range<usize>, Mismatch> {
        if self.definition(relocation.symbol) == Definition::Nowhere {
            let field = self.memory.get(relocation.field()).filter(|field| !field.is_empty());
            let is_zero = field.is_some_and(|field| field.iter().all(|byte| *byte == 0));
            let mismatch = || Mismatch::new(relocation.offset, relocation.name, "another value or no field", "zero");
            return is_zero.then(|| relocation.field()).ok_or_else(mismatch);
        }
        if self.leads_to_slot(relocation) {
            return Ok(relocation.field());
        }
        self.link.graph.arch.check_field(self, relocation)
    }

    /// Whether `stub` is the address of a stub whose slot holds `target`.
    pub(super) fn is_stub_for(&self, stub: u64, target: u64) -> bool {
        self.link.graph.arch.is_stub_for(self, stub, target)
    }

    /// Checks that the GOT holds `words` at the address `entry`. `offset` is the place to report.
    pub(super) fn expect_entry(&self, offset: u64, entry: u64, words: &[u64]) -> Result<(), Mismatch> {
        (self as &dyn SectionView).expect_entry(offset, entry, words)
    }

    /// A block's address and its bytes.
    pub(super) fn block(&self, id: Option<BlockId>) -> Option<(u64, &[u8])> {
        let block = &self.link.graph.blocks[id?.index()];
        let start = self.link.addresses.segments[block.pool.index()].value();
        Some((start.wrapping_add(block.offset), self.snapshot.bytes(block)?))
    }

    fn definition(&self, symbol: u32) -> Definition {
        definition(self.link, symbol)
    }

    fn thread_local_location(&self, symbol: u32) -> ThreadLocalLocation {
        let own = self.link.addresses.thread_locals;
        match self.definition(symbol) {
            Definition::Block(id, offset) if self.link.graph.blocks[id.index()].role == Role::ThreadLocal => {
                let offset = self.link.graph.blocks[id.index()].offset + offset;
                let start = own.and_then(|own| own.static_offset);
                let from_thread_pointer = start.map(|start| start.wrapping_add_unsigned(offset));
                ThreadLocalLocation { module: own.map_or(0, |own| own.module.into()), offset, from_thread_pointer }
            }
            _ => {
                // The address of an external variable has the module number in its upper half, the offset in its lower
                // half.
                let found = self.link.found(SymbolIndex(symbol)).copied().unwrap_or_default();
                let (module, offset) = (found.address.value() >> 32, found.address.value() & 0xffff_ffff);
                ThreadLocalLocation { module, offset, from_thread_pointer: found.thread_local.flatten() }
            }
        }
    }
}

impl SectionView for FieldVerifier<'_> {
    fn content(&self) -> &[u8] {
        self.content
    }

    fn memory(&self) -> &[u8] {
        self.memory
    }

    fn address(&self) -> u64 {
        self.address
    }

    fn symbol_address(&self, symbol: u32) -> u64 {
        match self.definition(symbol) {
            Definition::Absolute(value) => value,
            Definition::External => self.link.found(SymbolIndex(symbol)).map_or(0, |found| found.address.value()),
            Definition::Nowhere => 0,
            Definition::Block(id, offset) => {
                let block = &self.link.graph.blocks[id.index()];
                let start = match block.large_index {
                    Some(number) => self.link.addresses.large_sections[number as usize].value(),
                    None => self.link.addresses.segments[block.pool.index()].value().wrapping_add(block.offset),
                };
                start.wrapping_add(offset)
            }
        }
    }

    fn symbol_size(&self, symbol: u32) -> u64 {
        match self.definition(symbol) {
            // Another object has the definition.
            Definition::External => self.link.graph.symbols[symbol as usize].size,
            _ if self.link.graph.is_changed_symbol(SymbolIndex(symbol)) => {
                self.link.graph.symbols[symbol as usize].size
            }
            _ => self.object.symbol_size(symbol),
        }
    }

    fn is_unwind_table(&self) -> bool {
        self.role == Role::EhFrame
    }

    fn is_external_function(&self, symbol: u32) -> bool {
        self.link.found(SymbolIndex(symbol)).is_some_and(|found| found.is_callable)
    }

    fn got_address(&self) -> u64 {
        self.block(self.link.tables.got()).map_or(0, |(address, _)| address)
    }

    fn got_word(&self, address: u64) -> Option<u64> {
        let (start, bytes) = self.block(self.link.tables.got())?;
        let offset = usize::try_from(address.wrapping_sub(start)).ok().filter(|offset| offset % 8 == 0)?;
        Some(FieldValue::of(bytes.get(offset..offset.checked_add(8)?)?).unsigned)
    }

    fn marks_entries(&self) -> bool {
        self.object.marks_entries()
    }

    fn stubs_address(&self) -> u64 {
        self.block(self.link.tables.stubs()).map_or(0, |(address, _)| address)
    }

    fn stub(&self, address: u64) -> Option<&[u8]> {
        let (start, bytes) = self.block(self.link.tables.stubs())?;
        let size = self.link.tables.stub_size() as usize;
        let offset = usize::try_from(address.wrapping_sub(start)).ok().filter(|offset| offset.is_multiple_of(size))?;
        bytes.get(offset..offset.checked_add(size)?)
    }

    fn veneer(&self, address: u64) -> Option<&[u8]> {
        self.link.tables.veneers.blocks().iter().find_map(|id| {
            let (start, bytes) = self.block(Some(*id))?;
            let offset =
                usize::try_from(address.wrapping_sub(start)).ok().filter(|offset| offset.is_multiple_of(16))?;
            bytes.get(offset..offset.checked_add(16)?)
        })
    }

    fn thunk(&self, address: u64) -> Option<&[u8]> {
        let far = self.block(self.link.tables.range_extension.thunks());
        let far = far.and_then(|(start, bytes)| from_address(bytes, start, address));
        far.or_else(|| from_address(&self.snapshot.thunk_code, self.link.thunks?.code.value(), address))
    }

    fn is_thunk_function(&self, address: u64) -> bool {
        let (arch, Some(thunks)) = (self.link.graph.arch, self.link.thunks) else { return false };
        let (function, code) = (arch.tls_descriptor(), &self.snapshot.thunk_code[..]);
        let start = (thunks.first_thunk().value() - thunks.code.value()) as usize;
        let stub_at = start - STUB_SIZE;
        let mut expected = function.bytes.to_vec();
        for field in function.fields {
            let at = field.offset as usize;
            let old = FieldValue::of(&expected[at..at + 4]).unsigned as u32;
            let Some(call) = arch.verified_call(old, stub_at as i64 - at as i64) else { return false };
            expected[at..at + 4].copy_from_slice(&call.to_le_bytes());
        }
        expected.resize(stub_at, arch.trap());
        let to_slot = thunks.words.value().wrapping_sub(thunks.code.value() + stub_at as u64);
        expected.extend(arch.stub(thunks.code.offset(stub_at as u64), to_slot as i32));
        let slot = self.snapshot.thunk_words.get(..8).map(|word| FieldValue::of(word).unsigned);
        address == thunks.code.value()
            && code.get(..start) == Some(&expected[..])
            && slot == Some(thunks.get_address.value())
    }

    fn thunk_descriptor(&self, address: u64) -> Option<[u64; 4]> {
        let at = usize::try_from(address.wrapping_sub(self.link.thunks?.words.value())).ok()?;
        let words = self.snapshot.thunk_words.get(at..at.checked_add(32)?)?;
        Some([0, 8, 16, 24].map(|word| FieldValue::of(&words[word..word + 8]).unsigned))
    }

    fn pair(&self, symbol: u32) -> Vec<u64> {
        let ThreadLocalLocation { module, offset, .. } = self.thread_local_location(symbol);
        vec![module, offset]
    }

    fn own_block(&self) -> Vec<u64> {
        vec![self.link.local_dynamic_block.map_or(0, |block| block.module.into()), 0]
    }

    fn static_offset(&self, symbol: u32, offset: u64) -> Result<Vec<u64>, Mismatch> {
        match self.thread_local_location(symbol).from_thread_pointer {
            Some(distance) => Ok(vec![distance as u64]),
            // No instruction reads the slot: all that did are in thunks.
            None if self.link.thunks.is_some() => Ok(vec![0]),
            None => Err(Mismatch::new(
                offset,
                "thread-local variable",
                "a fixed distance",
                "a refusal: the variable has none",
            )),
        }
    }

    fn descriptor(&self, symbol: u32, entry: u64) -> Vec<u64> {
        let function = self.link.graph.descriptor_function.map_or(0, |function| self.symbol_address(function.0));
        let ThreadLocalLocation { module, offset, .. } = self.thread_local_location(symbol);
        vec![function, entry.wrapping_add(16), module, offset]
    }

    fn offset_from_own_block(&self, symbol: u32) -> u64 {
        let ThreadLocalLocation { module, offset, from_thread_pointer } = self.thread_local_location(symbol);
        match (self.link.local_dynamic_block, from_thread_pointer) {
            (Some(block), Some(distance)) if u64::from(block.module) != module => {
                distance.wrapping_sub(block.static_offset.unwrap_or(0)) as u64
            }
            _ => offset,
        }
    }
}

/// The rest of `bytes`, which begin at `start`, from an address on.
fn from_address(bytes: &[u8], start: u64, address: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(address.wrapping_sub(start)).ok()?..)
}

/// The definition of a symbol of the object, by its number.
pub(super) fn definition(link: &ResolvedLink<'_>, symbol: u32) -> Definition {
    link.graph.symbols.get(symbol as usize).map_or(Definition::Nowhere, |symbol| symbol.definition)
}
