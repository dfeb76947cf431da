//! [`Nodes`]: the records of a free space, in pages that are given back when nothing is in them.
//!
//! A record keeps its number, and numbers are used again. Numbers say nothing of who had them before: that a range is
//! given back once is the caller's care.

use crate::prefetch::prefetch;

/// "No node": the end of every list.
pub(super) const NONE: u32 = u32::MAX;

/// What stands in place of the first neighbour in the bin while a range is in use.
const IN_USE: u32 = u32::MAX - 1;

#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) offset: u32,
    pub(super) granules: u32,
    /// Neighbours in the row.
    pub(super) before: u32,
    pub(super) after: u32,
    /// Neighbours in the bin.
    pub(super) bin_before: u32,
    pub(super) bin_after: u32,
}

impl Node {
    /// A range that is in use, and so in no bin.
    pub(super) fn used(offset: u32, granules: u32, before: u32, after: u32) -> Node {
        Node { offset, granules, before, after, bin_before: IN_USE, bin_after: NONE }
    }

    pub(super) fn is_used(&self) -> bool {
        self.bin_before == IN_USE
    }

    pub(super) fn mark_used(&mut self) {
        self.bin_before = IN_USE;
    }
}

#[derive(Debug, Default)]
pub(super) struct Nodes {
    pages: Vec<Page>,
    /// Pages with room, those without memory among them; the last one is filled next.
    with_room: Vec<u32>,
    /// A page that is empty and keeps its memory, so that a range that comes and goes costs no allocation.
    spare: Option<u32>,
}

#[derive(Debug, Default)]
struct Page {
    /// One bit for each record in use.
    occupied: u64,
    nodes: Option<Box<[Node; PER_PAGE]>>,
}

impl Nodes {
    #[inline]
    pub(super) fn insert(&mut self, node: Node) -> u32 {
        let number = self.page_with_room();
        if self.spare == Some(number) {
            self.spare = None;
        }
        let page = &mut self.pages[number as usize];
        let nodes = page.nodes.get_or_insert_with(|| Box::new([node; PER_PAGE]));
        let at = page.occupied.trailing_ones();
        nodes[at as usize] = node;
        page.occupied |= 1 << at;
        if page.occupied == u64::MAX {
            self.with_room.pop();
        }
        number * PER_PAGE as u32 + at
    }

    #[inline]
    pub(super) fn remove(&mut self, index: u32) {
        let (number, at) = place(index);
        let page = &mut self.pages[number];
        if page.occupied == u64::MAX {
            self.with_room.push(number as u32);
        }
        page.occupied &= !(1 << at);
        if page.occupied == 0 && *self.spare.get_or_insert(number as u32) != number as u32 {
            page.nodes = None;
        }
    }

    /// The record with this number, if there is one.
    pub(super) fn get(&self, index: u32) -> Option<&Node> {
        let (number, at) = place(index);
        let page = self.pages.get(number)?;
        if page.occupied & (1 << at) == 0 { None } else { page.nodes.as_ref().map(|nodes| &nodes[at]) }
    }

    /// Asks for a record ahead of its use, if there is one.
    #[inline]
    pub(super) fn prefetch(&self, index: u32) {
        let (number, at) = place(index);
        if let Some(nodes) = self.pages.get(number).and_then(|page| page.nodes.as_ref()) {
            prefetch(&nodes[at]);
        }
    }

    /// The record with a number that stands in the row or in a bin: there is one.
    #[inline]
    pub(super) fn at(&self, index: u32) -> &Node {
        let (number, at) = place(index);
        let page = &self.pages[number];
        debug_assert!(page.occupied & (1 << at) != 0, "{LINKED}");
        &page.nodes.as_ref().expect(LINKED)[at]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Node {
        let (number, at) = place(index);
        let page = &mut self.pages[number];
        debug_assert!(page.occupied & (1 << at) != 0, "{LINKED}");
        &mut page.nodes.as_mut().expect(LINKED)[at]
    }

    /// Bytes of memory that the records take.
    pub(super) fn heap_bytes(&self) -> usize {
        let pages = self.pages.iter().filter(|page| page.nodes.is_some()).count();
        pages * size_of::<[Node; PER_PAGE]>()
            + self.pages.capacity() * size_of::<Page>()
            + self.with_room.capacity() * size_of::<u32>()
    }

    /// Where the pages are that have memory.
    #[cfg(test)]
    pub(super) fn page_addresses(&self) -> Vec<*const Node> {
        self.pages.iter().filter_map(|page| page.nodes.as_deref().map(|nodes| nodes.as_slice().as_ptr())).collect()
    }

    fn page_with_room(&mut self) -> u32 {
        if let Some(top) = self.with_room.last() {
            if self.spare.is_none() || self.pages[*top as usize].nodes.is_some() {
                return *top;
            }
            // Rather the empty page that has memory than one that would have to get some.
            let at = self.spare.and_then(|spare| self.with_room.iter().rposition(|number| *number == spare));
            let last = self.with_room.len() - 1;
            self.with_room.swap(at.unwrap_or(last), last);
            return self.with_room[last];
        }
        // Every record stands for at least one of fewer than `IN_USE` granules, so a number never reaches that.
        let number = self.pages.len() as u32;
        self.pages.push(Page::default());
        self.with_room.push(number);
        number
    }
}

fn place(index: u32) -> (usize, usize) {
    (index as usize / PER_PAGE, index as usize % PER_PAGE)
}

const LINKED: &str = "numbers in the row and in the bins are of records";

/// As many as a word has bits.
const PER_PAGE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_takes_few_bytes_since_a_module_has_three() {
        assert_eq!(size_of::<Node>(), 24);
    }
}
