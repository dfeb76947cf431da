//! Links, as the callbacks of a plugin see and change them.
//!
//! A handle of a link is valid during one callback, on its thread. It names the graph, or the link with its addresses, by
//! how far the link is:
//!
//! | callback | stage | what may change |
//! |---|---|---|
//! | `prepare`, `pruned` | [`Stage::Graph`] | blocks, symbols, edges |
//! | `placed` | [`Stage::Placed`] | bytes, targets of edges |
//! | `bind` | [`Stage::Bound`] | nothing: the callback changes what was found |
//! | `fixed_up` | [`Stage::Fixed`] | bytes |

use std::ffi::c_void;
use std::ptr::NonNull;

use jittison::Error;
use jittison::base::ExecutorAddr;
use jittison::link::{BlockId, Definition, Edge, FixedLink, LinkGraph, PlacedLink, SymbolIndex};

use crate::entry::{check_optional_out, check_out, put, put_bytes, put_if_wanted, run};
use crate::error::{ErrorObject, Failure};
use crate::graph::{
    BlockRequest, PLACE_ABSOLUTE, PLACE_BLOCK, PLACE_EXTERNAL, PLACE_NOWHERE, RawEdge, read_pool, read_scope,
    read_symbol,
};
use crate::handle::{Kind, OwnedTable, Table};
use crate::memory::put_sized;
use crate::session::{Handle, choice};
use crate::text::{Str, Text, read_slice};

/// `jittison_link`.
pub(crate) type LinkHandle = Handle<State>;
static LINKS: OwnedTable<State> = Table::owned(Kind::Link);

/// A link during one callback: how far it is, and its positions.
pub(crate) struct State {
    stage: Stage,
    blocks: Vec<BlockId>,
    symbols: Vec<SymbolIndex>,
}

/// What the hook got.
pub(crate) enum Stage {
    Graph(NonNull<LinkGraph>),
    Placed(NonNull<PlacedLink>),
    Bound(NonNull<PlacedLink>),
    Fixed(NonNull<FixedLink<'static>>),
}

impl Stage {
    /// For [`during`], whose caller keeps the borrow.
    pub(crate) fn fixed(link: &mut FixedLink<'_>) -> Stage {
        Stage::Fixed(NonNull::from(link).cast())
    }
}

/// Calls `callback` with a handle of a link. The handle names nothing afterwards.
///
/// # Safety
/// C6: what `stage` points to is borrowed, as the hook has it, until this function returns.
pub(crate) unsafe fn during(stage: Stage, callback: impl FnOnce(LinkHandle) -> Result<(), Error>) -> Result<(), Error> {
    let state = State { stage, blocks: Vec::new(), symbols: Vec::new() };
    let bits = LINKS.insert_owned(|| Ok(state)).map_err(Error::other)?;
    /// Ends the handle, also if the callback panics.
    struct End(u64);
    impl Drop for End {
        fn drop(&mut self) {
            // The callback has no function that ends it, and no function that uses it outlives the callback.
            let ended = LINKS.release_owned(self.0);
            debug_assert!(ended.is_ok(), "the link is not used after its callback");
        }
    }
    let _end = End(bits);
    callback(Handle::new(bits))
}

impl State {
    fn graph(&self) -> &LinkGraph {
        match &self.stage {
            // SAFETY: C6 - the hook lends it during the callback, and this thread has the only use of it.
            Stage::Graph(graph) => unsafe { graph.as_ref() },
            // SAFETY: C6 - as above.
            Stage::Placed(link) | Stage::Bound(link) => unsafe { link.as_ref() }.graph(),
            // SAFETY: C6 - as above. The lifetime is longer than the real one, and nothing of it leaves the call.
            Stage::Fixed(link) => unsafe { link.as_ref() }.graph(),
        }
    }

    /// The graph, while all of it may change.
    fn graph_mut(&mut self) -> Result<&mut LinkGraph, Failure> {
        match &mut self.stage {
            // SAFETY: C6 - the hook lends it during the callback, and this thread has the only use of it.
            Stage::Graph(graph) => Ok(unsafe { graph.as_mut() }),
            _ => Err(self.too_late("the graph changes in `prepare` and `pruned` only")),
        }
    }

    fn placed_mut(&mut self) -> Option<&mut PlacedLink> {
        match &mut self.stage {
            // SAFETY: C6 - as in `graph_mut`.
            Stage::Placed(link) => Some(unsafe { link.as_mut() }),
            _ => None,
        }
    }

    fn fixed_mut(&mut self) -> Result<&mut FixedLink<'static>, Failure> {
        match &mut self.stage {
            // SAFETY: C6 - as in `graph_mut`. The lifetime is longer than the real one; callers keep nothing of it.
            Stage::Fixed(link) => Ok(unsafe { link.as_mut() }),
            _ => Err(self.too_late("the final bytes are there in `fixed_up` only")),
        }
    }

    fn too_late(&self, when: &str) -> Failure {
        let now = match self.stage {
            Stage::Graph(_) => "its graph is made",
            Stage::Placed(_) => "it is placed",
            Stage::Bound(_) => "its externals are found",
            Stage::Fixed(_) => "it is fixed up",
        };
        Failure::argument(format!("{when}, and of this link {now}; nothing was done"))
    }

    /// The block at a position.
    fn block(&mut self, position: u32) -> Result<BlockId, Failure> {
        if self.blocks.len() <= position as usize {
            self.blocks = self.graph().blocks().map(|(id, _)| id).collect();
        }
        let found = self.blocks.get(position as usize).copied();
        found.ok_or_else(|| Failure::argument(format!("the link has no block {position}; nothing was done")))
    }

    /// The symbol at a position.
    fn symbol(&mut self, position: u32) -> Result<SymbolIndex, Failure> {
        if self.symbols.len() <= position as usize {
            self.symbols = self.graph().symbols().map(|(index, _)| index).collect();
        }
        let found = self.symbols.get(position as usize).copied();
        found.ok_or_else(|| Failure::argument(format!("the link has no symbol {position}; nothing was done")))
    }

    /// # Safety
    /// C1 for the edges.
    unsafe fn read_edges(&mut self, edges: *const RawEdge, count: usize) -> Result<Vec<Edge>, Failure> {
        // SAFETY: C1 - the caller promises it.
        let edges = unsafe { read_slice(edges, count, "edges")? };
        let mut read = Vec::with_capacity(edges.len());
        for edge in edges {
            let symbol = self.symbol(edge.symbol())?;
            read.push(edge.read(|_| Ok(symbol))?);
        }
        Ok(read)
    }

    fn address_of_block(&self, block: BlockId) -> Option<ExecutorAddr> {
        match &self.stage {
            Stage::Graph(_) => None,
            // SAFETY: C6 - as in `graph`.
            Stage::Placed(link) | Stage::Bound(link) => Some(unsafe { link.as_ref() }.block_address(block)),
            // SAFETY: C6 - as in `graph`.
            Stage::Fixed(link) => Some(unsafe { link.as_ref() }.block_address(block)),
        }
    }

    fn address_of_symbol(&self, symbol: SymbolIndex) -> Option<ExecutorAddr> {
        match &self.stage {
            Stage::Graph(_) => None,
            // SAFETY: C6 - as in `graph`.
            Stage::Placed(link) | Stage::Bound(link) => unsafe { link.as_ref() }.definition_address(symbol),
            // SAFETY: C6 - as in `graph`.
            Stage::Fixed(link) => Some(unsafe { link.as_ref() }.symbol_address(symbol)),
        }
    }
}

/// Runs the body of a function with the state of a link.
fn with(link: LinkHandle, body: impl FnOnce(&mut State) -> Result<(), Failure>) -> *mut ErrorObject {
    run(|| body(&mut *LINKS.borrow_mut(link.bits)?))
}

// ---- what a link has --------------------------------------------------------

/// `jittison_block`.
#[repr(C)]
struct BlockInfo {
    size: usize,
    byte_count: u64,
    align: u64,
    address: u64,
    edge_count: usize,
    pool: u32,
    flags: u32,
}

/// `jittison_symbol`.
#[repr(C)]
struct SymbolInfo {
    size: usize,
    place: u32,
    block: u32,
    offset: u64,
    symbol_size: u64,
    address: u64,
    got_slot: u64,
    stub: u64,
    is_local: u32,
    is_weak: u32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_object(link: LinkHandle, out: *mut *mut Text) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    with(link, |link| unsafe { Text::give(link.graph().name(), out) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_counts(link: LinkHandle, blocks: *mut u32, symbols: *mut u32) -> *mut ErrorObject {
    with(link, |link| {
        check_optional_out(blocks, "blocks")?;
        check_optional_out(symbols, "symbols")?;
        let (block_count, symbol_count) = (link.graph().blocks().count(), link.graph().symbols().count());
        // SAFETY: C1 - the caller promises both.
        unsafe {
            put_if_wanted(blocks, block_count as u32);
            put_if_wanted(symbols, symbol_count as u32);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_block(link: LinkHandle, block: u32, out: *mut c_void) -> *mut ErrorObject {
    with(link, |link| {
        let id = link.block(block)?;
        let address = link.address_of_block(id).map_or(0, ExecutorAddr::value);
        let graph = link.graph();
        let Some((_, block)) = graph.blocks().nth(id.index()) else { return Ok(()) };
        let flags =
            [block.is_dropped(), block.is_zero_fill(), block.is_synthetic(), block.is_large()].into_iter().enumerate();
        let info = |size| BlockInfo {
            size,
            byte_count: block.size,
            align: block.align,
            address: if block.is_dropped() { 0 } else { address },
            edge_count: graph.edges(id).len(),
            pool: block.pool.index() as u32,
            flags: flags.map(|(bit, is_set)| u32::from(is_set) << bit).sum(),
        };
        // SAFETY: C1 - the caller promises it.
        unsafe { put_sized(out, info) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_block_section(
    link: LinkHandle,
    block: u32,
    out: *mut *mut Text,
) -> *mut ErrorObject {
    with(link, |link| {
        let block = link.block(block)?;
        // SAFETY: C1 - the caller promises it.
        unsafe { Text::give(link.graph().block_name(block), out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_block_bytes(
    link: LinkHandle,
    block: u32,
    bytes: *mut *const u8,
    size: *mut usize,
) -> *mut ErrorObject {
    with(link, |link| {
        let block = link.block(block)?;
        let content = link.graph().block_bytes(block).unwrap_or_default();
        // SAFETY: C1 - the caller promises both.
        unsafe { put_bytes(bytes, size, (content.as_ptr(), content.len())) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_final_bytes(
    link: LinkHandle,
    block: u32,
    bytes: *mut *mut u8,
    size: *mut usize,
) -> *mut ErrorObject {
    with(link, |link| {
        let block = link.block(block)?;
        let content = link.fixed_mut()?.bytes(block);
        // SAFETY: C1 - the caller promises both.
        unsafe { put_bytes(bytes, size, (content.as_mut_ptr(), content.len())) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_edges(
    link: LinkHandle,
    block: u32,
    edges: *mut RawEdge,
    capacity: usize,
    count: *mut usize,
) -> *mut ErrorObject {
    with(link, |link| {
        check_out(count, "count")?;
        if capacity > 0 {
            check_out(edges, "edges")?;
        }
        let block = link.block(block)?;
        let all = link.graph().edges(block);
        for (position, edge) in all.iter().take(capacity).enumerate() {
            // SAFETY: C1 - the caller promises `capacity` edges.
            unsafe { edges.add(position).write(RawEdge::of(edge)) };
        }
        // SAFETY: C1 - the caller promises it.
        unsafe { put(count, "count", || Ok(all.len())) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_symbol(link: LinkHandle, symbol: u32, out: *mut c_void) -> *mut ErrorObject {
    with(link, |link| {
        let index = link.symbol(symbol)?;
        let address = link.address_of_symbol(index);
        let (got_slot, stub) = match link.fixed_mut() {
            Ok(fixed) => (fixed.got_slot(index), fixed.stub(index)),
            Err(_) => (None, None),
        };
        let Some((_, symbol)) = link.graph().symbols().nth(index.index()) else { return Ok(()) };
        let (place, block, offset) = match symbol.definition {
            Definition::Block(block, offset) => (PLACE_BLOCK, block.index() as u32, offset),
            Definition::Absolute(value) => (PLACE_ABSOLUTE, 0, value),
            Definition::External => (PLACE_EXTERNAL, 0, 0),
            Definition::Nowhere => (PLACE_NOWHERE, 0, 0),
        };
        let value = |address: Option<ExecutorAddr>| address.map_or(0, ExecutorAddr::value);
        let info = |size| SymbolInfo {
            size,
            place,
            block,
            offset,
            symbol_size: symbol.size,
            address: value(address),
            got_slot: value(got_slot),
            stub: value(stub),
            is_local: symbol.is_local().into(),
            is_weak: symbol.is_weak().into(),
        };
        // SAFETY: C1 - the caller promises it.
        unsafe { put_sized(out, info) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_symbol_name(link: LinkHandle, symbol: u32, out: *mut *mut Text) -> *mut ErrorObject {
    with(link, |link| {
        let symbol = link.symbol(symbol)?;
        // SAFETY: C1 - the caller promises it.
        unsafe { Text::give(link.graph().symbol_name(symbol), out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_find(link: LinkHandle, name: Str, out: *mut u32) -> *mut ErrorObject {
    with(link, |link| {
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("name")? };
        let graph = link.graph();
        let defined = || graph.symbols().find(|(index, _)| graph.name_bytes(*index) == name.as_bytes());
        let found = graph.find_external(name).or_else(|| defined().map(|(index, _)| index));
        // SAFETY: C1 - the caller promises it.
        unsafe {
            put(out, "out", || Ok(found.filter(|_| !name.is_empty()).map_or(u32::MAX, |index| index.index() as u32)))
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_symbol_file(link: LinkHandle, out: *mut *mut Text) -> *mut ErrorObject {
    with(link, |link| {
        check_out(out, "out")?;
        let file = link.fixed_mut()?.symbol_file();
        // SAFETY: C1 - the caller promises it.
        unsafe { Text::give_bytes(&file, out) }
    })
}

// ---- changes ----------------------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_add_block(
    link: LinkHandle,
    block: *const c_void,
    edges: *const RawEdge,
    count: usize,
    out: *mut u32,
) -> *mut ErrorObject {
    with(link, |link| {
        check_out(out, "out")?;
        // SAFETY: C1 - the caller promises both.
        let (request, edges) = unsafe { (BlockRequest::read(block)?, link.read_edges(edges, count)?) };
        if !request.is_plain() {
            return Err(Failure::argument("a plugin adds blocks with `content` or zeroes, and without flags"));
        }
        let BlockRequest { section, pool, align, content, size, .. } = request;
        let graph = link.graph_mut()?;
        let added = match content {
            Some(content) => graph.add_block(section, pool, content.to_vec(), align, &edges),
            None if count > 0 => return Err(Failure::argument("a block of zeroes has no edges")),
            None => graph.add_zero_block(section, pool, size, align),
        };
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", || Ok(added.index() as u32)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_add_symbol(
    link: LinkHandle,
    symbol: *const c_void,
    out: *mut u32,
) -> *mut ErrorObject {
    with(link, |link| {
        check_out(out, "out")?;
        // Reads positions of blocks before the graph is borrowed.
        let blocks: Vec<_> = link.graph().blocks().map(|(id, _)| id).collect();
        let block_at = |position: u32| {
            let found = blocks.get(position as usize).copied();
            found.ok_or_else(|| Failure::argument(format!("the link has no block {position}; nothing was done")))
        };
        // SAFETY: C1 - the caller promises it.
        let symbol = unsafe { read_symbol(symbol, block_at)? };
        let added = link.graph_mut()?.add_symbol(symbol);
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", || Ok(added.index() as u32)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_add_external(
    link: LinkHandle,
    name: Str,
    kind: u32,
    out: *mut u32,
) -> *mut ErrorObject {
    with(link, |link| {
        check_out(out, "out")?;
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("name")? };
        const KINDS: [fn(&mut LinkGraph, &str) -> SymbolIndex; 2] =
            [LinkGraph::add_external, LinkGraph::add_weak_external];
        let added = choice("kind", kind, &KINDS)?(link.graph_mut()?, name);
        // SAFETY: C1 - the caller promises it.
        unsafe { put(out, "out", || Ok(added.index() as u32)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_remove_block(link: LinkHandle, block: u32) -> *mut ErrorObject {
    with(link, |link| {
        let block = link.block(block)?;
        Ok(link.graph_mut()?.remove_block(block)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_set_section(
    link: LinkHandle,
    block: u32,
    section: Str,
    pool: u32,
) -> *mut ErrorObject {
    with(link, |link| {
        let (block, pool) = (link.block(block)?, read_pool(pool)?);
        // SAFETY: C1 - the caller promises it.
        let section = unsafe { section.read("section")? };
        Ok(link.graph_mut()?.set_section(block, section, pool)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_set_alignment(link: LinkHandle, block: u32, align: u64) -> *mut ErrorObject {
    with(link, |link| {
        let block = link.block(block)?;
        Ok(link.graph_mut()?.set_alignment(block, align)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_set_content(
    link: LinkHandle,
    block: u32,
    bytes: *const u8,
    size: usize,
) -> *mut ErrorObject {
    with(link, |link| {
        let block = link.block(block)?;
        // SAFETY: C1 - the caller promises it.
        let content = unsafe { read_slice(bytes, size, "bytes")? }.to_vec();
        match link.placed_mut() {
            Some(placed) => Ok(placed.set_content(block, content)?),
            None => Ok(link.graph_mut()?.set_content(block, content)?),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_set_edges(
    link: LinkHandle,
    block: u32,
    edges: *const RawEdge,
    count: usize,
) -> *mut ErrorObject {
    with(link, |link| {
        let block = link.block(block)?;
        // SAFETY: C1 - the caller promises it.
        let edges = unsafe { link.read_edges(edges, count)? };
        Ok(link.graph_mut()?.set_edges(block, &edges)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_redirect_edge(
    link: LinkHandle,
    block: u32,
    position: usize,
    symbol: u32,
) -> *mut ErrorObject {
    with(link, |link| {
        let (block, symbol) = (link.block(block)?, link.symbol(symbol)?);
        match link.placed_mut() {
            Some(placed) => Ok(placed.redirect_edge(block, position, symbol)?),
            None => Ok(link.graph_mut()?.redirect_edge(block, position, symbol)?),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_split_block(
    link: LinkHandle,
    block: u32,
    at: *const u64,
    count: usize,
    parts: *mut u32,
) -> *mut ErrorObject {
    with(link, |link| {
        let block = link.block(block)?;
        check_optional_out(parts, "parts")?;
        // SAFETY: C1 - the caller promises it.
        let at = unsafe { read_slice(at, count, "at")? };
        let split = link.graph_mut()?.split_block(block, at)?;
        if !parts.is_null() {
            for (position, part) in split.iter().enumerate().take(count) {
                // SAFETY: C1 - the caller promises a place for each offset.
                unsafe { parts.add(position).write(part.index() as u32) };
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_rename(link: LinkHandle, symbol: u32, name: Str) -> *mut ErrorObject {
    with(link, |link| {
        let symbol = link.symbol(symbol)?;
        // SAFETY: C1 - the caller promises it.
        let name = unsafe { name.read("name")? };
        Ok(link.graph_mut()?.rename(symbol, name)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_set_scope(
    link: LinkHandle,
    symbol: u32,
    scope: u32,
    is_weak: bool,
) -> *mut ErrorObject {
    with(link, |link| {
        let (symbol, scope) = (link.symbol(symbol)?, read_scope(scope)?);
        Ok(link.graph_mut()?.set_scope(symbol, scope, is_weak)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_redefine(
    link: LinkHandle,
    symbol: u32,
    place: u32,
    block: u32,
    offset: u64,
    symbol_size: u64,
) -> *mut ErrorObject {
    with(link, |link| {
        let symbol = link.symbol(symbol)?;
        let definition = match place {
            PLACE_BLOCK => Definition::Block(link.block(block)?, offset),
            PLACE_ABSOLUTE => Definition::Absolute(offset),
            PLACE_EXTERNAL => Definition::External,
            other => return Err(Failure::argument(format!("a symbol cannot be moved to the place {other}"))),
        };
        Ok(link.graph_mut()?.redefine(symbol, definition, symbol_size)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_link_remove_symbol(link: LinkHandle, symbol: u32) -> *mut ErrorObject {
    with(link, |link| {
        let symbol = link.symbol(symbol)?;
        Ok(link.graph_mut()?.remove_symbol(symbol)?)
    })
}
