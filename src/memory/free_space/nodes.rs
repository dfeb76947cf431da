//! [`Nodes`]: the nodes of a free space, in pages that are freed when they are empty.
//!
//! A node is one range of the free space, in use or free. It has an index, which does not change while the node exists.
//! Indexes are reused and have no generation. So the caller must free each range only once: a second free may hit
//! another range.

use crate::prefetch::prefetch;

/// The index of no node: the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// The value of [`Node::bin_prev`] while a range is in use.
const IN_USE: u32 = u32::MAX - 1;

#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) offset: u32,
    pub(super) granules: u32,
    /// Neighbours in the address list.
    pub(super) prev: u32,
    pub(super) next: u32,
    /// Neighbours in the bin.
    pub(super) bin_prev: u32,
    pub(super) bin_next: u32,
}

impl Node {
    /// A range in use, which is in no bin.
    pub(super) fn used(offset: u32, granules: u32, prev: u32, next: u32) -> Node {
        Node { offset, granules, prev, next, bin_prev: IN_USE, bin_next: NONE }
    }

    pub(super) fn is_used(&self) -> bool {
        self.bin_prev == IN_USE
    }

    pub(super) fn mark_used(&mut self) {
        self.bin_prev = IN_USE;
    }
}

#[derive(Debug, Default)]
pub(super) struct Nodes {
    pages: Vec<NodePage>,
    /// Pages with a free slot, including pages without memory. The last of them is filled next.
    open_pages: Vec<u32>,
    /// An empty page that keeps its memory. So a single range that is allocated and freed again and again does not
    /// allocate a page each time.
    spare: Option<u32>,
}

#[derive(Debug, Default)]
struct NodePage {
    /// One bit for each node that exists.
    occupied: u64,
    nodes: Option<Box<[Node; NODES_PER_PAGE]>>,
}

impl Nodes {
    #[inline]
    pub(super) fn insert(&mut self, node: Node) -> u32 {
        let number = self.open_page();
        if self.spare == Some(number) {
            self.spare = None;
        }
        let page = &mut self.pages[number as usize];
        let nodes = page.nodes.get_or_insert_with(|| Box::new([node; NODES_PER_PAGE]));
        let slot = page.occupied.trailing_ones();
        nodes[slot as usize] = node;
        page.occupied |= 1 << slot;
        if page.occupied == u64::MAX {
            self.open_pages.pop();
        }
        number * NODES_PER_PAGE as u32 + slot
    }

    #[inline]
    pub(super) fn remove(&mut self, index: u32) {
        let (number, slot) = position(index);
        let page = &mut self.pages[number];
        if page.occupied == u64::MAX {
            self.open_pages.push(number as u32);
        }
        page.occupied &= !(1 << slot);
        if page.occupied == 0 && *self.spare.get_or_insert(number as u32) != number as u32 {
            page.nodes = None;
        }
    }

    /// The node with this index, if it exists.
    pub(super) fn get(&self, index: u32) -> Option<&Node> {
        let (number, slot) = position(index);
        let page = self.pages.get(number)?;
        if page.occupied & (1 << slot) == 0 { None } else { page.nodes.as_ref().map(|nodes| &nodes[slot]) }
    }

    /// Prefetches a node, if it exists.
    #[inline]
    pub(super) fn prefetch(&self, index: u32) {
        let (number, slot) = position(index);
        if let Some(nodes) = self.pages.get(number).and_then(|page| page.nodes.as_ref()) {
            prefetch(&nodes[slot]);
        }
    }

    /// The node with an index from the address list or a bin. Such an index always names a node.
    #[inline]
    pub(super) fn at(&self, index: u32) -> &Node {
        let (number, slot) = position(index);
        let page = &self.pages[number];
        debug_assert!(page.occupied & (1 << slot) != 0, "{LINKED}");
        &page.nodes.as_ref().expect(LINKED)[slot]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Node {
        let (number, slot) = position(index);
        let page = &mut self.pages[number];
        debug_assert!(page.occupied & (1 << slot) != 0, "{LINKED}");
        &mut page.nodes.as_mut().expect(LINKED)[slot]
    }

    /// Bytes of heap memory that the nodes use.
    pub(super) fn heap_bytes(&self) -> usize {
        let pages = self.pages.iter().filter(|page| page.nodes.is_some()).count();
        pages * size_of::<[Node; NODES_PER_PAGE]>()
            + self.pages.capacity() * size_of::<NodePage>()
            + self.open_pages.capacity() * size_of::<u32>()
    }

    /// The addresses of the pages with memory.
    #[cfg(test)]
    pub(super) fn page_addresses(&self) -> Vec<*const Node> {
        self.pages.iter().filter_map(|page| page.nodes.as_deref().map(|nodes| nodes.as_slice().as_ptr())).collect()
    }

    /// The page that gets the next node.
    fn open_page(&mut self) -> u32 {
        if let Some(page) = self.open_pages.last() {
            if self.spare.is_none() || self.pages[*page as usize].nodes.is_some() {
                return *page;
            }
            // The last page has no memory. Use the spare page, which has.
            let spare_at = self.spare.and_then(|spare| self.open_pages.iter().rposition(|number| *number == spare));
            let last = self.open_pages.len() - 1;
            self.open_pages.swap(spare_at.unwrap_or(last), last);
            return self.open_pages[last];
        }
        // Each node has at least one granule, and there are less than `IN_USE` granules. So no index reaches `IN_USE`.
        let number = self.pages.len() as u32;
        self.pages.push(NodePage::default());
        self.open_pages.push(number);
        number
    }
}

/// The page of a node, and its slot in the page.
fn position(index: u32) -> (usize, usize) {
    (index as usize / NODES_PER_PAGE, index as usize % NODES_PER_PAGE)
}

const LINKED: &str = "an index in the address list or in a bin names a node";

/// The number of bits of [`NodePage::occupied`].
const NODES_PER_PAGE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_24_bytes() {
        // A module has three nodes, one in each pool.
        assert_eq!(size_of::<Node>(), 24);
    }
}
