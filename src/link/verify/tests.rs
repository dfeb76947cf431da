//! What the second opinion would see: links that are tampered with after fix-up, and graphs that are not their object.

#[path = "../../../tests/support/process.rs"]
#[allow(dead_code)]
mod process;

use std::process::Command;

use super::*;
use crate::base::ExecutorAddr;
use crate::error::{ErrorKind, Result};
use crate::link::graph::SymbolIndex;
use crate::link::graph::{Edge, LinkGraph};
use crate::link::pipeline::{FixedLink, PlacedLink, PlannedLink};
use crate::link::x86_64::EdgeKind;
use crate::link::{FoundExternal, ThreadLocalPlace};
use crate::memory::OfflineMemory;
use crate::sync::Arc;

/// Every way that a reference may take: `near` is in reach, `far` is not.
const EVERYTHING: &str = "
    .text
    .globl test
    test:
        call far@PLT                           # 1: by a stub
        call near@PLT                          # 6: straight
        call *near@GOTPCREL(%rip)              # 12: addr32 call
        movq near@GOTPCREL(%rip), %rax         # 19: lea
        movq far@GOTPCREL(%rip), %rax          # 26: by the slot
        addq near@GOTPCREL(%rip), %rax         # 33: by the slot
        leaq own(%rip), %rax                   # 40
        movabs $own, %rcx                      # 46
        movabs $own@GOTOFF, %rcx               # 56
        leaq _GLOBAL_OFFSET_TABLE_(%rip), %rcx # 67
        leaq x@tlsgd(%rip), %rdi               # 74
        leaq x@tlsld(%rip), %rdi               # 81
        leaq y@dtpoff(%rax), %rax              # 88
        movq y@gottpoff(%rip), %rax            # 95
        leaq x@tlsdesc(%rip), %rax             # 102
        call *x@tlscall(%rax)
        leaq y@tpoff(%rax), %rax               # 111
        jmp *near@GOTPCREL(%rip)               # 117: jmp; nop
    .section .text.two,\"ax\"
    .balign 64
    .globl two
    two: ret
    .section .text.dead,\"ax\"
    dead: call far@PLT                         # nothing leads to it: not in memory
    .section .rodata,\"a\"
    .globl table
    table: .long 7, own - .
    .byte 9
    .section .rodata.more,\"a\"
    .balign 16
    .globl more
    more: .quad own + 5
    .data
    own: .quad own + 1, far, near
    .bss
    .globl zero
    zero: .zero 64
    .section .tdata,\"awT\"
    x: .quad own
    .balign 32
    y: .quad 3
    .section .note.GNU-stack
    ";

/// A section that is large enough to stand apart.
const FAT: &str = "
    .section .fat,\"aw\"
    fat: .quad near
    .fill 1 << 20, 1, 3
    .data
    .globl fatter
    fatter: .quad fat
    .section .note.GNU-stack
    ";

/// Assembles; `None`, and a line that says so, without a compiler.
fn assembled(test: &str, source: &str) -> Option<Vec<u8>> {
    let directory = std::env::temp_dir().join(format!("jittison-opinion-{}-{test}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let (input, output) = (directory.join("input.s"), directory.join("output.o"));
    std::fs::write(&input, source).unwrap();
    let status = Command::new("gcc").arg("-c").arg(&input).arg("-o").arg(&output).status();
    let object = status.map(|status| status.success().then(|| std::fs::read(&output).unwrap()));
    std::fs::remove_dir_all(&directory).unwrap();
    match object {
        Ok(object) => Some(object.expect("it assembles")),
        Err(_) => {
            process::skip("gcc");
            None
        }
    }
}

fn planned(object: &[u8], prepare: impl FnOnce(&mut LinkGraph) -> Result<()>) -> Result<PlannedLink> {
    PlannedLink::plan(Arc::from("tampered.o"), object.into(), |_| true, prepare)
}

fn placed(planned: PlannedLink) -> Result<PlacedLink> {
    let mut placed = planned.allocate(&OfflineMemory::new(ExecutorAddr::new(BASE)))?;
    placed.thread_local_image()?;
    placed.place_thread_locals(ThreadLocalPlace { module: 7, static_offset: Some(-64) });
    Ok(placed)
}

fn finish(placed: PlacedLink, pass: impl FnOnce(&mut FixedLink<'_>) -> Result<()>) -> Result<()> {
    let address = |name| ExecutorAddr::new(if name == "near" { BASE + 0x10_0000 } else { 1 << 40 });
    let found = |name| FoundExternal { address: address(name), is_callable: true, thread_local: None };
    let found: Vec<_> = placed.externals().map(|external| found(external.name)).collect();
    placed.finish_in_passes(&found, None, pass).map(drop)
}

/// Links, and hands what is linked to `look`.
fn linked(object: &[u8], look: impl FnOnce(&mut FixedLink<'_>)) {
    let look = |link: &mut FixedLink<'_>| {
        look(link);
        Ok(())
    };
    finish(placed(planned(object, |_| Ok(())).unwrap()).unwrap(), look).unwrap();
}

/// What the second opinion says.
fn opinion(link: &mut FixedLink<'_>) -> Option<String> {
    told(check(&link.fixup, link.memory, None))
}

fn told(outcome: Result<()>) -> Option<String> {
    let error = outcome.err()?;
    match error.kind() {
        ErrorKind::Link { fault: LinkFault::SecondOpinion { section, offset, kind, .. }, .. } => {
            Some(format!("{section}+{offset}: {kind}"))
        }
        _ => panic!("another fault: {error}"),
    }
}

fn block(link: &FixedLink<'_>, name: &str) -> BlockId {
    link.graph().blocks().find(|(id, _)| link.graph().block_name(*id) == name).unwrap().0
}

/// Overwrites some bytes for as long as it takes to ask.
fn opinion_after(link: &mut FixedLink<'_>, block: BlockId, offset: usize, bytes: &[u8]) -> Option<String> {
    let range = offset..offset + bytes.len();
    let before = link.bytes(block)[range.clone()].to_vec();
    link.bytes(block)[range.clone()].copy_from_slice(bytes);
    let opinion = opinion(link);
    link.bytes(block)[range].copy_from_slice(&before);
    opinion
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn no_byte_of_a_link_can_be_changed_unseen() {
    let Some(object) = assembled("bytes", EVERYTHING) else { return };
    linked(&object, |link| {
        for pool in SegmentKind::ALL {
            for at in 0..link.memory.working(pool).len() {
                for damage in [0x01, 0x80, 0xff] {
                    link.memory.working(pool)[at] ^= damage;
                    assert!(opinion(link).is_some(), "{} {at:#x} ^ {damage:#x}", pool.name());
                    link.memory.working(pool)[at] ^= damage;
                }
            }
        }
        assert_eq!(opinion(link), None, "as it was");
    });
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn a_section_apart_is_looked_at_as_the_others_are() {
    let Some(object) = assembled("apart", FAT) else { return };
    linked(&object, |link| {
        for at in [0, 7, 8, 1 << 19, (1 << 20) + 7] {
            link.memory.apart(0)[at] ^= 4;
            assert!(opinion(link).unwrap().starts_with(".fat+"), "{at:#x}");
            link.memory.apart(0)[at] ^= 4;
        }
        let data = block(link, ".data");
        assert_eq!(opinion_after(link, data, 3, &[1]).unwrap(), ".data+0: R_X86_64_64");
    });
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn no_byte_of_a_thread_local_image_can_be_changed_unseen() {
    let Some(object) = assembled("image", EVERYTHING) else { return };
    let (mut image, is_whole) = placed(planned(&object, |_| Ok(())).unwrap()).unwrap().thread_local_image().unwrap();
    assert!(is_whole && image.len() == 40);
    linked(&object, |link| {
        for at in 0..image.len() {
            image[at] ^= 1;
            assert!(told(check(&link.fixup, link.memory, Some(&image))).is_some(), "{at}");
            assert!(told(check_own_image(&link.fixup, &image)).is_some(), "{at}");
            image[at] ^= 1;
        }
        assert_eq!(told(check(&link.fixup, link.memory, Some(&image))), None);
    });
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn fields_slots_stubs_and_gaps_that_lead_elsewhere_are_told_with_their_place() {
    let Some(object) = assembled("kinds", EVERYTHING) else { return };
    linked(&object, |link| {
        let (text, got, stubs) = (block(link, ".text"), block(link, ".got"), block(link, ".plt"));
        let field = |link: &mut FixedLink<'_>, at: usize| link.bytes(text)[at..at + 4].to_vec();
        // A load by the slot of another symbol.
        let distance_of_loads = 7i32;
        let other = i32::from_le_bytes(field(link, 33).try_into().unwrap()) + distance_of_loads;
        let told = opinion_after(link, text, 26, &other.to_le_bytes()).unwrap();
        assert!(told.starts_with(".text+26: GOT entry"), "{told}");
        // A load that was rewritten although its target is out of reach, as far as the field goes.
        let low = (1u64 << 40).wrapping_sub(link.block_address(text).value() + 30) as u32;
        let lea = [&[0x8d, 0x05][..], &low.to_le_bytes()].concat();
        assert_eq!(opinion_after(link, text, 24, &lea).unwrap(), ".text+26: R_X86_64_REX_GOTPCRELX");
        // An instruction that was rewritten, and its field left; and the reverse.
        assert!(opinion_after(link, text, 24, &[0x8d]).is_some());
        assert!(opinion_after(link, text, 17, &[0x8b]).unwrap().starts_with(".text+19: GOT entry"));
        // A branch to the wrong stub, or into the middle of one.
        let stub = i32::from_le_bytes(field(link, 1).try_into().unwrap());
        for wrong in [stub + 16, stub + 8, stub + 4, stub + 2, stub - 16] {
            let told = opinion_after(link, text, 1, &wrong.to_le_bytes()).unwrap();
            assert_eq!(told, ".text+1: R_X86_64_PLT32");
        }
        // A field that nobody wrote: as in the object.
        assert_eq!(opinion_after(link, text, 46, &[0; 8]).unwrap(), ".text+46: R_X86_64_64");
        // A slot that holds another's address, a stub that is none, a byte of an instruction, a gap that could be run.
        let told = opinion_after(link, got, 0, &(BASE + 1).to_le_bytes()).unwrap();
        assert!(told.contains("GOT entry") || told.contains("PLT32"), "{told}");
        assert!(opinion_after(link, stubs, 0, &[0x90]).is_some());
        assert_eq!(opinion_after(link, text, 0, &[0xe9]).unwrap(), ".text+0: bytes that no relocation is for");
        let end = link.bytes(text).len();
        link.memory.working(SegmentKind::Code)[end] = 0x90;
        assert!(opinion(link).unwrap().contains("gap between blocks"));
    });
}

/// What the link itself says when its graph is not the object's.
fn opinion_of_graph(object: &[u8], change: impl FnOnce(&mut LinkGraph)) -> Option<String> {
    let planned = planned(object, |graph| {
        change(graph);
        graph.uses.forget();
        Ok(())
    });
    told(planned.and_then(placed).and_then(|placed| finish(placed, |link| check(&link.fixup, link.memory, None))))
}

fn edge_at(graph: &mut LinkGraph, offset: u32) -> &mut Edge {
    // `.text` is the first section of the object.
    graph.edges.iter_mut().find(|edge| edge.offset == offset).unwrap()
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn a_graph_that_was_misread_is_found_out() {
    let Some(object) = assembled("graph", EVERYTHING) else { return };
    type Change = fn(&mut LinkGraph);
    let changes: [(&str, Change); 14] = [
        (".text+6: R_X86_64_PLT32", |graph| edge_at(graph, 6).addend += 1),
        (".text+40: R_X86_64_PC32", |graph| edge_at(graph, 40).symbol = SymbolIndex(0)),
        (".text+46: R_X86_64_64", |graph| edge_at(graph, 46).kind = EdgeKind::Delta64),
        (".text+26: R_X86_64_REX_GOTPCRELX", |graph| edge_at(graph, 26).symbol = edge_at(graph, 33).symbol),
        (".text+56: R_X86_64_GOTOFF64", |graph| edge_at(graph, 56).kind = EdgeKind::GotSlot64),
        (".text+95: GOT entry", |graph| edge_at(graph, 95).symbol = edge_at(graph, 74).symbol),
        (".text+111: R_X86_64_TPOFF32", |graph| edge_at(graph, 111).kind = EdgeKind::ThreadLocalOffset32),
        (".text+40: R_X86_64_PC32", |graph| edge_at(graph, 40).offset = 41),
        (".text+0: number of relocations", |graph| graph.blocks[0].edges.end -= 1),
        ("symbol table+", |graph| {
            let test = graph.symbols().position(|(index, _)| graph.symbol_name(index) == "test").unwrap();
            graph.symbols[test].definition = Definition::Block(BlockId(0), 1);
        }),
        ("section table+0: size and alignment", |graph| graph.blocks[0].align *= 2),
        ("section table+0: range of the object", |graph| {
            if let crate::link::graph::Content::Object(range) = &mut graph.blocks[0].content {
                *range = range.start + 1..range.end + 1;
            }
        }),
        ("section table+0: name", |graph| graph.blocks[0].name = graph.blocks[1].name.clone()),
        ("section table+0: pool", |graph| graph.blocks[0].pool = SegmentKind::Data),
    ];
    assert_eq!(opinion_of_graph(&object, |_| ()), None);
    for (expected, change) in changes {
        let told = opinion_of_graph(&object, change).unwrap_or_else(|| panic!("{expected}: not seen"));
        assert!(told.starts_with(expected), "{told}, and not {expected}");
    }
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn blocks_that_lie_on_each_other_are_found_out() {
    let Some(object) = assembled("overlap", EVERYTHING) else { return };
    let planned = planned(&object, |_| Ok(())).unwrap();
    let mut placed = placed(planned).unwrap();
    let zero_fill = placed.graph().blocks().find(|(id, _)| placed.graph().block_name(*id) == ".bss").unwrap().0;
    placed.link.graph.blocks[zero_fill.index()].offset = 0;
    assert_eq!(told(finish(placed, |link| check(&link.fixup, link.memory, None))).unwrap(), "data+24: zero-fill");
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn relocations_that_lie_on_each_other_are_counted_and_not_judged() {
    let source = ".data\n.globl test\ntest: .quad 0, 0\n.reloc test, R_X86_64_64, test\n
        .reloc test + 4, R_X86_64_32, 5\n.reloc test + 12, R_X86_64_PC32, test\n.section .note.GNU-stack\n";
    let Some(object) = assembled("entangled", source) else { return };
    linked(&object, |link| {
        let data = block(link, ".data");
        assert_eq!(opinion(link), None);
        assert_eq!(opinion_after(link, data, 0, &[0xaa]), None, "no one value");
        assert_eq!(opinion_after(link, data, 12, &[0xaa]).unwrap(), ".data+12: R_X86_64_PC32");
        assert!(opinion_after(link, data, 8, &[0xaa]).unwrap().contains("no relocation"));
    });
}

const BASE: u64 = 0x4000_0000;
