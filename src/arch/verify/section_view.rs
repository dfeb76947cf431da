//! [`SectionView`]: one section after the link, and what its fields may refer to.

use crate::arch::verify::{FieldValue, Mismatch, Relocation};

/// One section after the link. Symbols are numbers in the object's symbol table.
pub(crate) trait SectionView {
    /// The section's bytes in the object.
    fn content(&self) -> &[u8];

    /// The section's bytes in memory.
    fn memory(&self) -> &[u8];

    /// The section's address.
    fn address(&self) -> u64;

    /// `S`: the address of a symbol.
    fn symbol_address(&self, symbol: u32) -> u64;

    /// `Z`: the size of a symbol.
    fn symbol_size(&self, symbol: u32) -> u64;

    /// Whether the section is an unwind table (`.eh_frame`).
    fn is_unwind_table(&self) -> bool;

    /// Whether a symbol is an external that is known to be a function.
    fn is_external_function(&self, symbol: u32) -> bool;

    /// `GOT`: the address of the GOT; zero if there is none.
    fn got_address(&self) -> u64;

    /// The word at an address of the GOT.
    fn got_word(&self, address: u64) -> Option<u64>;

    /// Whether the object says that it marks the entries that indirect branches may reach.
    fn marks_entries(&self) -> bool;

    /// The address of the first stub; zero if there is none.
    fn stubs_address(&self) -> u64;

    /// The bytes of the stub at an address.
    fn stub(&self, address: u64) -> Option<&[u8]>;

    /// The bytes of the veneer at an address.
    fn veneer(&self, address: u64) -> Option<&[u8]>;

    /// The bytes of the thunks from an address on.
    fn thunk(&self, address: u64) -> Option<&[u8]>;

    /// Whether the function that thunks for thread-local variables call is at an address.
    fn is_thunk_function(&self, address: u64) -> bool;

    /// The descriptor at an address that such a thunk uses: function, argument, module and offset.
    fn thunk_descriptor(&self, address: u64) -> Option<[u64; 4]>;

    /// The GOT pair of a thread-local variable: module and offset.
    fn pair(&self, symbol: u32) -> Vec<u64>;

    /// The GOT pair of the thread-local block that local-dynamic code asks for.
    fn own_block(&self) -> Vec<u64>;

    /// A variable's distance from the thread pointer. `offset` is the place to report if there is none.
    fn static_offset(&self, symbol: u32, offset: u64) -> Result<Vec<u64>, Mismatch>;

    /// The descriptor of a variable at the address `entry`: function, argument, and the pair that the argument points
    /// to.
    fn descriptor(&self, symbol: u32, entry: u64) -> Vec<u64>;

    /// A variable's distance from the start of the block that local-dynamic code asks for, also for a variable of
    /// another block.
    fn offset_from_own_block(&self, symbol: u32) -> u64;
}

impl dyn SectionView + '_ {
    pub(crate) fn expect(&self, relocation: &Relocation, found: u64, expected: u64) -> Result<(), Mismatch> {
        match found == expected {
            true => Ok(()),
            false => {
                let (found, expected) = (format!("{found:#x}"), format!("{expected:#x}"));
                Err(Mismatch::new(relocation.offset, relocation.name, found, expected))
            }
        }
    }

    /// Checks that the GOT holds `words` at the address `entry`. `offset` is the place to report.
    pub(crate) fn expect_entry(&self, offset: u64, entry: u64, words: &[u64]) -> Result<(), Mismatch> {
        for (index, word) in (0..).zip(words) {
            let found = self.got_word(entry.wrapping_add(index * 8));
            if found != Some(*word) {
                let found = found.map_or("no word of the GOT".to_string(), |found| format!("{found:#x}"));
                let kind = format!("GOT entry at {entry:#x}, word {index}");
                return Err(Mismatch::new(offset, kind, found, format!("{word:#x}")));
            }
        }
        Ok(())
    }

    /// The field of a relocation in memory, if it is inside the section.
    pub(crate) fn field(&self, relocation: &Relocation) -> Option<FieldValue> {
        let field = self.memory().get(relocation.field()).filter(|field| !field.is_empty())?;
        Some(FieldValue::of(field))
    }
}
