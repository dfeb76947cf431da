//! Blocks: added, removed, moved to another section, with other bytes or another alignment.

use crate::base::SegmentKind;
use crate::error::Result;
use crate::link::bounds;
use crate::link::content::GivenContent;
use crate::link::graph::{Block, BlockId, Content, Edge, LinkGraph, Role, Text};
use crate::link::meaningful_sections;

impl LinkGraph {
    /// Adds a block with the bytes `content`. A name that no other block has is a new section. `align` is in bytes, a power
    /// of two. Dead-stripping keeps such a block.
    ///
    /// The link is refused after the hook if an edge is outside of the block or names no symbol of the graph, and for a
    /// name that means something to the linker: that of an unwind table, of a list of initialisers, or of a section whose
    /// bounds the object defines or asks for. No bounds (`__start_NAME`) ever enclose an added block.
    pub fn add_block(
        &mut self,
        name: &str,
        pool: SegmentKind,
        content: Vec<u8>,
        align: u64,
        edges: &[Edge],
    ) -> BlockId {
        let id = self.insert_block(name, pool, content, align, &[]);
        self.record_block(id);
        if let Some(problem) = self.section_problem(name) {
            self.note(self.invalid(id, 0, problem));
        }
        if let Err(error) = self.set_edges(id, edges) {
            self.note_error(&error);
        }
        id
    }

    /// The bytes of a block before relocations are applied. `None` for zero-fill, for a table of the linker, and for bytes that
    /// a generator writes later.
    ///
    /// # Panics
    /// If `block` is out of range.
    pub fn block_bytes(&self, block: BlockId) -> Option<&[u8]> {
        self.content(&self.blocks[block.index()])
    }

    /// Adds a block of `size` zero bytes to the data or the constants. Dead-stripping keeps it. See
    /// [`add_block`](Self::add_block).
    pub fn add_zero_block(&mut self, name: &str, pool: SegmentKind, size: u64, align: u64) -> BlockId {
        let text = self.synthetic.add_name(name);
        let id = self.push(Block { is_retained: true, ..Block::new(text, pool, Content::Zero, size, align) });
        self.record_block(id);
        if let Some(problem) = self.section_problem(name) {
            self.note(self.invalid(id, 0, problem));
        }
        if pool == SegmentKind::Code {
            self.note(self.invalid(id, 0, "a block of zeroes cannot be code".to_string()));
        }
        id
    }

    /// Removes a block. Its symbols have no address. The link is refused after the hook if an edge still refers to one of
    /// them, or if the unit has promised one. Unwind records of removed code describe nothing, as those of pruned code.
    ///
    /// # Errors
    /// For a position of another graph, a dropped block, thread-local variables, fragments of initialisers, and a block with
    /// a fixed place: a part of a split block, or one whose section has bounds.
    pub fn remove_block(&mut self, block: BlockId) -> Result<()> {
        let role = self.movable_block(block, "removed")?.role;
        if !matches!(role, Role::Plain | Role::EhFrame | Role::Initializers { .. }) {
            return self.refuse(block, 0, "the block cannot be removed: the linker has a plan for it".to_string());
        }
        self.record_block(block);
        let removed = &mut self.blocks[block.index()];
        (removed.is_dropped, removed.is_live) = (true, false);
        let unchecked = &mut self.record().unchecked;
        (unchecked.has_removed_blocks, unchecked.has_removed) = (true, true);
        Ok(())
    }

    /// Moves a block to a section, which is new if no other block has its name. `pool` is the memory that the block goes to.
    ///
    /// # Errors
    /// As [`remove_block`](Self::remove_block). Also for unwind tables and lists of initialisers, and for a name as
    /// [`add_block`](Self::add_block) refuses it.
    pub fn set_section(&mut self, block: BlockId, name: &str, pool: SegmentKind) -> Result<()> {
        let target = self.movable_block(block, "moved")?;
        let (is_plain, is_zero_fill) = (target.role == Role::Plain, target.is_zero_fill());
        if !is_plain {
            return self.refuse(block, 0, "the block cannot be moved: its section means something".to_string());
        }
        if let Some(problem) = self.section_problem(name) {
            return self.refuse(block, 0, problem);
        }
        if is_zero_fill && pool == SegmentKind::Code {
            return self.refuse(block, 0, "a block of zeroes cannot be code".to_string());
        }
        self.record_block(block);
        let name = self.synthetic.add_name(name);
        let moved = &mut self.blocks[block.index()];
        (moved.name, moved.pool) = (name, pool);
        Ok(())
    }

    /// Aligns a block more strictly. `align` is in bytes.
    ///
    /// # Errors
    /// As [`set_section`](Self::set_section); for a value that is no power of two; and for a smaller alignment, because the
    /// block's code may rely on the one that it has.
    pub fn set_alignment(&mut self, block: BlockId, align: u64) -> Result<()> {
        let Block { role, align: before, .. } = *self.movable_block(block, "aligned")?;
        let problem = if role != Role::Plain {
            "the block cannot be aligned: the linker has a plan for it".to_string()
        } else if !align.is_power_of_two() {
            format!("the alignment would be {align}, which is no power of two")
        } else if align < before {
            format!("the alignment would be {align}, and the block may rely on {before}")
        } else {
            self.record_block(block);
            self.blocks[block.index()].align = align;
            return Ok(());
        };
        self.refuse(block, 0, problem)
    }

    /// Gives a block other bytes, as many as it has or not. The edges stay: [`set_edges`](Self::set_edges) changes them.
    ///
    /// # Errors
    /// For a position of another graph, a dropped block, and a table of the linker. If the number of bytes differs, or the
    /// block was zero-filled, as [`remove_block`](Self::remove_block).
    pub fn set_content(&mut self, block: BlockId, content: Vec<u8>) -> Result<()> {
        let target = self.live_block(block)?;
        let size = content.len() as u64;
        let is_resized = target.size != size;
        if is_resized || target.is_zero_fill() {
            self.movable_block(block, "given other bytes")?;
        }
        if self.blocks[block.index()].initializer_list().is_some() && !size.is_multiple_of(8) {
            return self.refuse(block, size, "a list of initialisers has eight bytes per function".to_string());
        }
        self.record_block(block);
        // Given contents are no reason for dead-stripping to keep the block, unlike contents that the linker makes.
        let content = self.synthetic.add_given(GivenContent::owned(content));
        let changed = &mut self.blocks[block.index()];
        (changed.content, changed.size) = (content, size);
        self.record().unchecked.has_resized |= is_resized;
        Ok(())
    }

    /// Why no plugin may add a block to the section of this name.
    fn section_problem(&self, name: &str) -> Option<String> {
        if name.is_empty() || name.contains('\0') {
            return Some(format!("a section cannot have the name {name:?}"));
        }
        if let Some(known) = meaningful_sections::find(name) {
            let known = known.name;
            return Some(format!(
                "section `{name}` would have no effect: the linker reads `{known}` from objects only"
            ));
        }
        (bounds::is_identifier(name) && self.may_have_bounds(name)).then(|| {
            format!(
                "section `{name}` has bounds, because its name is a C identifier, and they would not enclose this block; \
                 use a name with a dot"
            )
        })
    }

    /// Whether the object has parts of a section whose bounds can be named, or asks for its bounds.
    fn may_have_bounds(&self, name: &str) -> bool {
        let is_own = |(id, block): (BlockId, &Block)| {
            !matches!(block.name, Text::Synthetic(_)) && !block.is_dropped && self.block_name(id) == name
        };
        self.requested_bounds.iter().any(|bounds| &*bounds.section == name) || self.blocks().any(is_own)
    }
}
