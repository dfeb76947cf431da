//! Fuzz target: the input is a series of calls of `GraphBuilder`. A graph is linked completely, in memory that never runs,
//! or refused.
//!
//! Each call takes its arguments from the input. Positions of blocks and symbols may be those of another graph.

#![no_main]

mod limits;

use jittison::base::{ExecutorAddr, SegmentKind, TlsIndex};
use jittison::link::{
    BlockContent, BlockId, BuiltGraph, Edge, EdgeKind, FoundExternal, GraphBuilder, InitializerKind, NewBlock,
    NewSymbol, PlacedLink, PlannedLink, SymbolIndex, SymbolScope, ThreadLocalPlace,
};
use jittison::memory::{MemoryManager, OfflineMemory};
use libfuzzer_sys::fuzz_target;

use limits::Limits;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::start();
    for is_owner in [true, false] {
        if let Ok(graph) = build(&mut Input(bytes)) {
            let _ = link(graph, is_owner);
        }
    }
    limits.check(bytes.len());
});

/// The rest of the input. Zeroes follow it.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// Mostly a small number.
    fn number(&mut self) -> u32 {
        match self.byte() {
            255 => self.word(),
            small => small.into(),
        }
    }

    fn bytes(&mut self, size: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(size.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn name(&mut self) -> &'a str {
        const NAMES: [&str; 12] = [
            "f",
            "g",
            "main",
            "",
            ".text",
            "section",
            "__start_section",
            "__stop_section",
            "_GLOBAL_OFFSET_TABLE_",
            "__tls_get_addr",
            "DW.ref.f",
            "_end",
        ];
        match self.byte() {
            known @ 0..240 => NAMES[known as usize % NAMES.len()],
            _ => {
                let size = self.byte().into();
                std::str::from_utf8(self.bytes(size)).unwrap_or("not UTF-8")
            }
        }
    }
}

/// Positions that are valid in the graph, and some that are not.
struct Positions {
    blocks: Vec<BlockId>,
    symbols: Vec<SymbolIndex>,
}

impl Positions {
    fn foreign() -> Positions {
        let mut other = GraphBuilder::new("other");
        let blocks: Vec<_> = (0..40).map(|_| other.add_block(NewBlock::zeroes(1))).collect();
        let symbols = (0..40).map(|_| other.add_external("x")).collect::<Vec<_>>();
        Positions { blocks: blocks[39..].to_vec(), symbols: symbols[39..].to_vec() }
    }

    fn block(&self, input: &mut Input<'_>) -> BlockId {
        self.blocks[input.byte() as usize % self.blocks.len()]
    }

    fn symbol(&self, input: &mut Input<'_>) -> SymbolIndex {
        self.symbols[input.byte() as usize % self.symbols.len()]
    }

    fn edges(&self, input: &mut Input<'_>) -> Vec<Edge> {
        let count = input.byte() % 32;
        let edge = |_| Edge {
            offset: input.number(),
            kind: KINDS[input.byte() as usize % KINDS.len()],
            symbol: self.symbol(input),
            addend: i64::from(input.number() as i32) << (input.byte() % 64),
        };
        (0..count).map(edge).collect()
    }
}

fn build(input: &mut Input<'_>) -> Result<BuiltGraph, jittison::Error> {
    let mut graph = GraphBuilder::new("fuzzed");
    let mut at = Positions::foreign();
    for _ in 0..200 {
        if input.0.is_empty() {
            break;
        }
        match input.byte() % 12 {
            0..3 => at.blocks.push(graph.add_block(block(input))),
            3 => {
                let (block, offset) = (at.block(input), input.number().into());
                at.symbols.push(graph.add_symbol(symbol(input, |name| NewSymbol::new(name, block, offset))));
            }
            4 => {
                let value = ExecutorAddr::new(u64::from(input.number()) << (input.byte() % 64));
                at.symbols.push(graph.add_symbol(symbol(input, |name| NewSymbol::absolute(name, value))));
            }
            5 => at.symbols.push(match input.byte() % 3 {
                0 => graph.add_external(input.name()),
                1 => graph.add_weak_external(input.name()),
                _ => graph.add_hidden_external(input.name()),
            }),
            6 | 7 => {
                let block = at.block(input);
                graph.set_edges(block, &at.edges(input));
            }
            8 => graph.set_comdat(at.block(input), at.symbol(input)),
            9 => {
                let kind = if input.byte() & 1 == 0 { InitializerKind::Init } else { InitializerKind::Fini };
                let functions = [at.symbol(input), at.symbol(input)];
                at.blocks.push(graph.add_initializers(kind, input.number(), &functions));
            }
            10 => {
                let size = input.byte().into();
                graph.add_unwind(at.symbol(input), input.number(), input.bytes(size));
            }
            _ => {
                let size = input.byte().into();
                let content = input.bytes(size);
                at.blocks.push(graph.add_eh_frame(content, &at.edges(input)));
            }
        }
        if input.byte() == 99 {
            graph.marks_indirect_entries();
            graph.add_lines(at.block(input), "file", &[(input.number(), input.number())]);
        }
    }
    graph.finish()
}

fn block<'a>(input: &mut Input<'a>) -> NewBlock<'a> {
    let size = input.number();
    let content: BlockContent<'a> = match input.byte() % 4 {
        0 => BlockContent::zeroes(size.into()),
        1 => input.bytes(size as usize).into(),
        2 => input.bytes(size as usize).to_vec().into(),
        _ => {
            let fill = input.byte();
            BlockContent::written(u64::from(size % 4096), move |memory| memory.fill(fill))
        }
    };
    let section = input.name();
    let block = match input.byte() % 4 {
        0 => NewBlock::new(section, SegmentKind::ReadOnly, content),
        1 => NewBlock::new(section, SegmentKind::Data, content),
        2 => NewBlock::thread_local(content),
        _ => NewBlock::new(section, SegmentKind::Code, content),
    };
    let block = block.with_align(match input.byte() {
        strange @ 250.. => u64::from(strange) << (strange % 60),
        shift => 1 << (shift % 13),
    });
    if input.byte() & 7 == 0 { block.retained() } else { block }
}

fn symbol<'a>(input: &mut Input<'a>, make: impl FnOnce(&'a str) -> NewSymbol<'a>) -> NewSymbol<'a> {
    let symbol = make(input.name()).with_size(input.number().into());
    let symbol = if input.byte() & 3 == 0 { symbol.weak() } else { symbol };
    symbol.with_scope(match input.byte() % 3 {
        0 => SymbolScope::Exported,
        1 => SymbolScope::Hidden,
        _ => SymbolScope::Local,
    })
}

/// Links a graph with the steps that `layer` uses.
fn link(graph: BuiltGraph, is_owner: bool) -> Result<(), jittison::Error> {
    let memory = OfflineMemory::new(ExecutorAddr::new(BASE));
    let linked = link_in(&memory, graph, is_owner);
    let statistics = memory.statistics();
    assert_eq!((statistics.allocations, statistics.live_bytes), (0, 0), "the link frees its memory");
    linked
}

fn link_in(memory: &OfflineMemory, graph: BuiltGraph, is_owner: bool) -> Result<(), jittison::Error> {
    let mut placed = PlannedLink::plan_graph(graph, |name| is_owner || name.len() % 2 == 0)?.allocate(memory)?;
    let mut image = place_thread_locals(&mut placed)?;
    let found: Vec<FoundExternal> = placed.externals().map(|external| made_up(external.name)).collect();
    let (_, sealed) = placed.finish_in_passes(&found, image.as_deref_mut(), |fixed| {
        std::hint::black_box((fixed.symbol_file(), fixed.functions()));
        Ok(())
    })?;
    drop(sealed);
    Ok(())
}

/// Places the thread-local block. Returns its image if the fix-up has to complete it.
fn place_thread_locals(placed: &mut PlacedLink) -> Result<Option<Vec<u8>>, jittison::Error> {
    let Some(plan) = placed.thread_local_plan().copied() else { return Ok(None) };
    let (image, is_complete) = placed.thread_local_image()?;
    let static_offset = plan.is_static.then_some(-4096 - plan.size as i64);
    placed.place_thread_locals(ThreadLocalPlace { module: 3, static_offset });
    Ok((!is_complete).then_some(image))
}

/// A made-up definition of an external symbol: near, far, null or thread-local. The name decides which.
fn made_up(name: &str) -> FoundExternal {
    let address = match name.len() % 4 {
        0 => BASE + (64 << 20),
        1 => 0x7fff_0000_0000,
        2 => return FoundExternal::default(),
        _ => {
            let address = TlsIndex { module: 4, offset: 8 }.to_address();
            return FoundExternal { address, is_callable: false, thread_local: Some(Some(-0x10_0000)), block_align: 1 };
        }
    };
    FoundExternal { address: ExecutorAddr::new(address), is_callable: true, thread_local: None, block_align: 0 }
}

const KINDS: [EdgeKind; 31] = {
    use EdgeKind::*;
    [
        Pointer64,
        Pointer32,
        Pointer32Signed,
        Pointer16,
        Pointer8,
        Delta64,
        Delta32,
        Delta16,
        Delta8,
        Branch32,
        GotLoad32,
        GotLoad32Relaxable,
        GotLoad32RexRelaxable,
        GotLoad32Apx,
        GotLoad64,
        GotSlot64,
        GotSlot32,
        GotOffset64,
        GotBase32,
        GotBase64,
        Size32,
        Size64,
        ThreadLocalPair32,
        ThreadLocalBlock32,
        ThreadLocalOffset32,
        ThreadLocalOffset64,
        StaticLoad32,
        StaticOffset32,
        StaticOffset64,
        ThreadLocalDescriptor32,
        Delta32,
    ]
};

/// Below 2 GiB, so that code of all code models links.
const BASE: u64 = 0x1000_0000;
