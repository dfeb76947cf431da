//! Indirect functions (`STT_GNU_IFUNC`): a resolver in the program chooses the function when the program runs.
//!
//! Each indirect function that the object defines gets a stub. The symbol's address is the stub's, for calls and for
//! comparisons of pointers. The stub jumps through a slot. At first the slot leads to an entry that calls the resolver,
//! stores the result in the slot and jumps to it.
//!
//! ```text
//!   stub:    endbr64; jmp *slot(%rip)                 slot: .quad entry, later the result
//!   entry:   endbr64; push resolver; push &slot; jmp common
//!   common:  save argument registers; call resolver; store; restore; jmp result
//! ```
//!
//! So a resolver runs at the first call, in the calling thread, when everything that it needs is linked and
//! initialised. Several threads may run it at once; they store the same result.
//!
//! # Limits
//! The common part saves the registers in which a function may get arguments (psABI 3.2.3): the general ones, `%rax`
//! (variadic calls), `%r10` (static chain), and all that `fxsave` covers. It does not save the upper halves of 256-bit
//! arguments. A resolver that uses such registers overwrites them.

use crate::base::SegmentKind;
use crate::link::graph::{BlockId, Definition, Edge, LinkGraph, SymbolIndex};
use crate::link::x86_64::{EdgeKind, TRAP};

/// Adds a stub for each indirect function that the object defines, and makes the stub the definition of the symbol.
pub(crate) fn build_stubs(graph: &mut LinkGraph) {
    let indirect = std::mem::take(&mut graph.indirect);
    let defined: Vec<(SymbolIndex, BlockId, u64)> = indirect
        .into_iter()
        .filter_map(|symbol| match graph.definition(symbol) {
            Definition::Block(block, offset) => Some((symbol, block, offset)),
            _ => None, // another object's definition replaces this one
        })
        .collect();
    if defined.is_empty() {
        return;
    }
    let slots = graph.add_block(".igot", SegmentKind::Data, vec![0; defined.len() * 8], 8, &[]);
    let code = graph.add_block(".iplt", SegmentKind::Code, Vec::new(), 16, &[]);
    let mut bytes = COMMON.to_vec();
    let (mut code_edges, mut slot_edges) = (Vec::new(), Vec::new());
    for (number, (symbol, block, offset)) in defined.into_iter().enumerate() {
        let resolver = graph.add_local("", block, offset);
        let slot = graph.add_local("", slots, number as u64 * 8);
        bytes.resize(bytes.len().next_multiple_of(16), TRAP);
        let stub = bytes.len() as u64;
        let entry = graph.add_local("", code, stub + ENTRY);
        bytes.extend(STUB_AND_ENTRY);
        let end = bytes.len() as u32;
        let field = bytes.len() - 4;
        bytes[field..].copy_from_slice(&0u32.wrapping_sub(end).to_le_bytes());
        let edge =
            |offset: u64, symbol| Edge { offset: (stub + offset) as u32, kind: EdgeKind::Delta32, symbol, addend: -4 };
        code_edges.extend([edge(STUB_SLOT, slot), edge(ENTRY_RESOLVER, resolver), edge(ENTRY_SLOT, slot)]);
        slot_edges.push(Edge { offset: number as u32 * 8, kind: EdgeKind::Pointer64, symbol: entry, addend: 0 });
        graph.symbols[symbol.index()].definition = Definition::Block(code, stub);
    }
    graph.fill_block(code, bytes, &code_edges);
    graph.fill_block(slots, vec![0; slot_edges.len() * 8], &slot_edges);
}

/// The common part, at the start of the block. The stack has the two words that an entry pushes: the slot's address on
/// top, then the resolver's.
const COMMON: [u8; 76] = [
    0x55, // push %rbp
    0x48, 0x89, 0xe5, // mov %rsp,%rbp        %rsp is a multiple of 16 here
    0x50, 0x57, 0x56, 0x52, 0x51, // push %rax, %rdi, %rsi, %rdx, %rcx
    0x41, 0x50, 0x41, 0x51, 0x41, 0x52, // push %r8, %r9, %r10
    0x48, 0x81, 0xec, 0x00, 0x02, 0x00, 0x00, // sub $512,%rsp
    0x48, 0x0f, 0xae, 0x04, 0x24, // fxsave64 (%rsp)
    0xff, 0x55, 0x10, // call *16(%rbp)
    0x4c, 0x8b, 0x5d, 0x08, // mov 8(%rbp),%r11
    0x49, 0x89, 0x03, // mov %rax,(%r11)
    0x49, 0x89, 0xc3, // mov %rax,%r11
    0x48, 0x0f, 0xae, 0x0c, 0x24, // fxrstor64 (%rsp)
    0x48, 0x81, 0xc4, 0x00, 0x02, 0x00, 0x00, // add $512,%rsp
    0x41, 0x5a, 0x41, 0x59, 0x41, 0x58, // pop %r10, %r9, %r8
    0x59, 0x5a, 0x5e, 0x5f, 0x58, // pop %rcx, %rdx, %rsi, %rdi, %rax
    0x5d, // pop %rbp
    0x48, 0x83, 0xc4, 0x10, // add $16,%rsp
    0x41, 0xff, 0xe3, // jmp *%r11
    TRAP, TRAP, TRAP, TRAP, TRAP,
];

/// The stub: `endbr64; jmp *slot(%rip)`, padded. Then the entry:
/// `endbr64; lea resolver(%rip),%r11; push %r11; lea slot(%rip),%r11; push %r11; jmp common`.
const STUB_AND_ENTRY: [u8; 43] = [
    0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 0, 0, 0, TRAP, TRAP, TRAP, TRAP, TRAP, TRAP, // stub
    0xf3, 0x0f, 0x1e, 0xfa, // entry
    0x4c, 0x8d, 0x1d, 0, 0, 0, 0, 0x41, 0x53, // resolver
    0x4c, 0x8d, 0x1d, 0, 0, 0, 0, 0x41, 0x53, // slot
    0xe9, 0, 0, 0, 0, // jump to the common part, at the start of the block
];
// Offsets of the entry and of the fields, from the start of the stub.
const STUB_SLOT: u64 = 6;
const ENTRY: u64 = 16;
const ENTRY_RESOLVER: u64 = 23;
const ENTRY_SLOT: u64 = 32;
