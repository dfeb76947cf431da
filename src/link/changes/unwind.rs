//! Unwind records after a change: each must be readable, and lie within code that is still one piece.
//!
//! The frame table takes the start and the size of a function from its record. A record that covers more than its code
//! would describe the code behind it.

use crate::base::sort_by_number;
use crate::error::Result;
use crate::link::change_record::Unchecked;
use crate::link::frames;
use crate::link::graph::{BlockId, Definition, LinkGraph, Role};

impl LinkGraph {
    /// Checks the unwind tables that were changed, or all of them if a block has another size than before.
    pub(super) fn check_unwind(&self, unchecked: &Unchecked) -> Result<()> {
        let is_table = |id: &BlockId| {
            let block = &self.blocks[id.index()];
            block.role == Role::EhFrame && !block.is_dropped
        };
        let is_concerned = |id: &BlockId| unchecked.has_resized || unchecked.blocks.binary_search(id).is_ok();
        let tables = self.special.iter().filter(|id| is_table(id) && is_concerned(id));
        tables.copied().try_for_each(|table| {
            let is_changed = unchecked.blocks.binary_search(&table).is_ok();
            self.check_unwind_table(table, is_changed)
        })
    }

    /// An object may have records without an edge. A table that a plugin changed may not.
    fn check_unwind_table(&self, table: BlockId, is_changed: bool) -> Result<()> {
        let Some(content) = self.content(&self.blocks[table.index()]) else { return Ok(()) };
        let records = match frames::records(content) {
            Ok(records) => records,
            Err(problem) => return self.refuse(table, 0, format!("the unwind table cannot be read: {problem}")),
        };
        let mut edges: Vec<_> = self.edges(table).to_vec();
        sort_by_number(&mut edges, |edge| edge.offset.into());
        for (at, size) in records {
            // The function's start follows the record's length and the distance to its CIE.
            let start = at + 8;
            let edge = edges.binary_search_by_key(&start, |edge| edge.offset.into()).ok().map(|found| edges[found]);
            let Some(edge) = edge else {
                if !is_changed {
                    continue;
                }
                return self.refuse(table, at, "the unwind record has no edge to its function".to_string());
            };
            let Definition::Block(code, offset) = self.definition(edge.symbol) else { continue };
            let end = offset.checked_add_signed(edge.addend).and_then(|offset| offset.checked_add(size));
            let available = self.adjacent_size(code);
            if end.is_none_or(|end| end > available) {
                let problem = format!(
                    "the unwind record covers {size:#x} bytes, which are not in block `{}` of {available:#x} bytes",
                    self.block_name(code)
                );
                return Err(self.edge_error(table, &edge, problem));
            }
        }
        Ok(())
    }

    /// Bytes from the start of a block to the end of the last block that must follow it.
    fn adjacent_size(&self, block: BlockId) -> u64 {
        let (mut size, mut next) = (0u64, Some(block));
        while let Some(id) = next {
            let block = &self.blocks[id.index()];
            size = size.saturating_add(block.size);
            next = block.followed_by;
        }
        size
    }
}
