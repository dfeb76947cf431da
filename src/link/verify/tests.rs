//! Tests of the link verifier: links whose bytes are changed after fix-up, and graphs that do not agree with their
//! object.

use super::*;
use crate::arch::EdgeKind;
use crate::base::ExecutorAddr;
use crate::error::{ErrorKind, Result};
use crate::link::fixed_link::FixedLink;
use crate::link::graph::{Edge, LinkGraph, SymbolIndex};
use crate::link::pipeline::{PlacedLink, PlannedLink};
use crate::link::{FoundExternal, ThreadLocalPlace};
use crate::memory::OfflineMemory;
use crate::sync::Arc;
use jittison_test_tools::{INPUT, OUTPUT, asm, build};

/// Every kind of reference: `near` is in reach, `far` is not.
const ALL_REFERENCES: &str = "
    .text
    .globl test
    test:
        call far@PLT                           # 1: through a stub
        call near@PLT                          # 6: direct
        call *near@GOTPCREL(%rip)              # 12: addr32 call
        movq near@GOTPCREL(%rip), %rax         # 19: lea
        movq far@GOTPCREL(%rip), %rax          # 26: through the slot
        addq near@GOTPCREL(%rip), %rax         # 33: through the slot
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
    dead: call far@PLT                         # unreachable: not in memory
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

/// The note of an object whose functions begin with `endbr64`.
const MARKS_ENTRIES: &str = "
    .section .note.gnu.property,\"a\",@note
    .balign 8
    .long 4, 16, 5
    .asciz \"GNU\"
    .long 0xc0000002, 4, 1, 0
    ";

/// A section that is large enough for a mapping of its own.
const LARGE_SECTION: &str = "
    .section .fat,\"aw\"
    fat: .quad near
    .fill 1 << 20, 1, 3
    .data
    .globl fatter
    fatter: .quad fat
    .section .note.GNU-stack
    ";

fn planned(object: &[u8], prepare: impl FnOnce(&mut LinkGraph) -> Result<()>) -> Result<PlannedLink> {
    PlannedLink::plan(Arc::from("changed.o"), object.into(), |_| true, prepare)
}

fn placed(planned: PlannedLink) -> Result<PlacedLink> {
    let mut placed = planned.allocate(&OfflineMemory::new(ExecutorAddr::new(BASE)))?;
    placed.thread_local_image()?;
    placed.set_thread_local_place(ThreadLocalPlace { module: 7, static_offset: Some(-64) });
    Ok(placed)
}

fn finish(placed: PlacedLink, pass: impl FnOnce(&mut FixedLink<'_>) -> Result<()>) -> Result<()> {
    let address = |name| ExecutorAddr::new(if name == "near" { BASE + 0x10_0000 } else { 1 << 40 });
    let found = |name| FoundExternal { address: address(name), is_callable: true, ..FoundExternal::default() };
    let found: Vec<_> = placed.externals().map(|external| found(external.name)).collect();
    placed.finish_in_passes(&found, None, pass).map(drop)
}

/// Links `object` and runs `test` on the fixed link.
fn with_link(object: &[u8], test: impl FnOnce(&mut FixedLink<'_>)) {
    let test = |link: &mut FixedLink<'_>| {
        test(link);
        Ok(())
    };
    finish(placed(planned(object, |_| Ok(())).unwrap()).unwrap(), test).unwrap();
}

/// The mismatch that the verifier reports for a link.
fn mismatch(link: &mut FixedLink<'_>) -> Option<String> {
    reported(check(&link.resolved, link.memory, None, None))
}

/// The place and kind of the mismatch that an outcome reports.
fn reported(outcome: Result<()>) -> Option<String> {
    let error = outcome.err()?;
    match error.kind() {
        ErrorKind::Link { fault: LinkFault::Verification { section, offset, kind, .. }, .. } => {
            Some(format!("{section}+{offset}: {kind}"))
        }
        _ => panic!("another fault: {error}"),
    }
}

fn block(link: &FixedLink<'_>, name: &str) -> BlockId {
    link.graph().blocks().find(|(id, _)| link.graph().block_name(*id) == name).unwrap().0
}

/// The mismatch that the verifier reports while `bytes` stand at an offset of a block.
fn mismatch_with(link: &mut FixedLink<'_>, block: BlockId, offset: usize, bytes: &[u8]) -> Option<String> {
    let range = offset..offset + bytes.len();
    let before = link.bytes(block)[range.clone()].to_vec();
    link.bytes(block)[range.clone()].copy_from_slice(bytes);
    let reported = mismatch(link);
    link.bytes(block)[range].copy_from_slice(&before);
    reported
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn every_changed_byte_of_a_link_is_reported() {
    for note in ["", MARKS_ENTRIES] {
        let Some(object) = asm(&format!("{ALL_REFERENCES}{note}")) else { return };
        with_link(&object, |link| {
            for pool in SegmentKind::ALL {
                for at in 0..link.memory.working(pool).len() {
                    for damage in [0x01, 0x80, 0xff] {
                        link.memory.working(pool)[at] ^= damage;
                        assert!(mismatch(link).is_some(), "{} {at:#x} ^ {damage:#x}", pool.name());
                        link.memory.working(pool)[at] ^= damage;
                    }
                }
            }
            assert_eq!(mismatch(link), None, "unchanged");
        });
    }
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn stubs_of_the_wrong_form_are_reported() {
    for note in ["", MARKS_ENTRIES] {
        let Some(object) = asm(&format!("{ALL_REFERENCES}{note}")) else { return };
        assert_eq!(mismatch_of_graph(&object, |_| {}), None);
        let report = mismatch_of_graph(&object, |graph| graph.marks_entries = !graph.marks_entries);
        assert_eq!(report.unwrap(), ".text+1: R_X86_64_PLT32");
    }
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn a_changed_byte_of_a_large_section_is_reported() {
    let Some(object) = asm(LARGE_SECTION) else { return };
    with_link(&object, |link| {
        for at in [0, 7, 8, 1 << 19, (1 << 20) + 7] {
            link.memory.large_section(0)[at] ^= 4;
            assert!(mismatch(link).unwrap().starts_with(".fat+"), "{at:#x}");
            link.memory.large_section(0)[at] ^= 4;
        }
        let data = block(link, ".data");
        assert_eq!(mismatch_with(link, data, 3, &[1]).unwrap(), ".data+0: R_X86_64_64");
    });
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn every_changed_byte_of_a_thread_local_image_is_reported() {
    let Some(object) = asm(ALL_REFERENCES) else { return };
    let (mut image, is_complete) = placed(planned(&object, |_| Ok(())).unwrap()).unwrap().thread_local_image().unwrap();
    assert!(is_complete && image.len() == 40);
    with_link(&object, |link| {
        for at in 0..image.len() {
            image[at] ^= 1;
            assert!(reported(check(&link.resolved, link.memory, Some(&image), None)).is_some(), "{at}");
            assert!(reported(check_own_image(&link.resolved, &image)).is_some(), "{at}");
            image[at] ^= 1;
        }
        assert_eq!(reported(check(&link.resolved, link.memory, Some(&image), None)), None);
    });
}

/// A variable of a block without a static offset, which a thunk reaches.
#[cfg(feature = "range-extension")]
#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn a_changed_thunk_of_a_thread_local_variable_is_reported() {
    let source = ".globl test\ntest: mov %fs:outside@tpoff+8, %eax\nret\n.section .note.GNU-stack\n";
    let Some(object) = asm(source) else { return };
    check_changed_thunks(&object, ".text+4: R_X86_64_TPOFF32");
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn a_changed_thunk_of_another_architecture_is_reported() {
    for (instruction, relocation) in [
        ("ldr x0, [x1, :tprel_lo12_nc:outside + 8]", "TLSLE_LDST64_TPREL_LO12_NC"),
        ("add x0, x1, :tprel_hi12:outside + 0x12348", "TLSLE_ADD_TPREL_HI12"),
        ("movz x1, :tprel_g1:outside", "TLSLE_MOVW_TPREL_G1"),
        ("ldr x0, [x1, :gottprel_lo12:outside]", "TLSIE_LD64_GOTTPREL_LO12_NC"),
    ] {
        let source = format!(".globl test\ntest: {instruction}\nret\n");
        let arguments = ["-x", "assembler", "-c", "-o", OUTPUT, INPUT];
        let Some(object) = build("aarch64-linux-gnu-gcc", source.as_bytes(), &arguments) else { return };
        check_changed_thunks(&object, &format!(".text+0: R_AARCH64_{relocation}"));
    }
}

/// Changes each byte of what the thunk of an object calls, of the branch at its end, and of its descriptor. The report must be
/// `expected`.
fn check_changed_thunks(object: &[u8], expected: &str) {
    let memory = OfflineMemory::new(ExecutorAddr::new(BASE));
    let mut placed = planned(object, |_| Ok(())).unwrap().allocate(&memory).unwrap();
    let address = crate::base::TlsIndex { module: 9, offset: 16 }.to_address();
    let found = [FoundExternal { address, thread_local: Some(None), ..FoundExternal::default() }];
    let get_address = || Some(ExecutorAddr::new(1 << 40));
    let allocated = placed.allocate_thunks(&found, &memory, get_address).unwrap().unwrap();
    let (mut thunks, plan) = (allocated.memory, allocated.plan);
    let PlacedLink { link, mut memory } = placed;
    let resolved = link.resolved(&found).with_thunks(Some(&plan));
    resolved.apply(&mut *memory, &link.contents, None, Some(&mut *thunks)).unwrap();
    let mut outcome = |thunks: &mut dyn InFlight| reported(check(&resolved, &mut *memory, None, Some(thunks)));
    assert_eq!(outcome(&mut *thunks), None);
    let first = (plan.first_thunk().value() - plan.code.value()) as usize;
    // The function, its stub, and the jump back at the end of the thunk.
    let trap = link.graph.arch.trap();
    let end = thunks.working(SegmentKind::Code).iter().rposition(|byte| *byte != trap).unwrap() + 1;
    for at in (0..first).chain(end - 4..end) {
        thunks.working(SegmentKind::Code)[at] ^= 1;
        assert_eq!(outcome(&mut *thunks).as_deref(), Some(expected), "{at}");
        thunks.working(SegmentKind::Code)[at] ^= 1;
    }
    // The address of the function that it calls, and the descriptor.
    for at in (0..8).chain(16..48) {
        thunks.working(SegmentKind::ReadOnly)[at] ^= 1;
        assert!(outcome(&mut *thunks).is_some(), "{at}");
        thunks.working(SegmentKind::ReadOnly)[at] ^= 1;
    }
    assert_eq!(outcome(&mut *thunks), None);
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn wrong_fields_slots_stubs_and_gaps_are_reported_with_their_place() {
    let Some(object) = asm(ALL_REFERENCES) else { return };
    with_link(&object, |link| {
        let (text, got, stubs) = (block(link, ".text"), block(link, ".got"), block(link, ".plt"));
        let field = |link: &mut FixedLink<'_>, at: usize| link.bytes(text)[at..at + 4].to_vec();
        // A load through the slot of another symbol.
        let distance_of_loads = 7i32;
        let other = i32::from_le_bytes(field(link, 33).try_into().unwrap()) + distance_of_loads;
        let report = mismatch_with(link, text, 26, &other.to_le_bytes()).unwrap();
        assert!(report.starts_with(".text+26: GOT entry"), "{report}");
        // A load that was rewritten although its target is out of reach: the field is truncated.
        let low = (1u64 << 40).wrapping_sub(link.block_address(text).value() + 30) as u32;
        let lea = [&[0x8d, 0x05][..], &low.to_le_bytes()].concat();
        assert_eq!(mismatch_with(link, text, 24, &lea).unwrap(), ".text+26: R_X86_64_REX_GOTPCRELX");
        // An instruction that was rewritten without its field; and the reverse.
        assert!(mismatch_with(link, text, 24, &[0x8d]).is_some());
        assert!(mismatch_with(link, text, 17, &[0x8b]).unwrap().starts_with(".text+19: GOT entry"));
        // A branch to the wrong stub, or into the middle of a stub.
        let stub = i32::from_le_bytes(field(link, 1).try_into().unwrap());
        for wrong in [stub + 8, stub + 4, stub + 2, stub - 8] {
            let report = mismatch_with(link, text, 1, &wrong.to_le_bytes()).unwrap();
            assert_eq!(report, ".text+1: R_X86_64_PLT32");
        }
        // A field with the bytes of the object.
        assert_eq!(mismatch_with(link, text, 46, &[0; 8]).unwrap(), ".text+46: R_X86_64_64");
        // A slot with a wrong address, a broken stub, a byte of an instruction, a gap without traps.
        let report = mismatch_with(link, got, 0, &(BASE + 1).to_le_bytes()).unwrap();
        assert!(report.contains("GOT entry") || report.contains("PLT32"), "{report}");
        assert!(mismatch_with(link, stubs, 0, &[0x90]).is_some());
        assert_eq!(mismatch_with(link, text, 0, &[0xe9]).unwrap(), ".text+0: bytes without a relocation");
        let end = link.bytes(text).len();
        link.memory.working(SegmentKind::Code)[end] = 0x90;
        assert!(mismatch(link).unwrap().contains("gap between blocks"));
    });
}

/// The mismatch that a link reports whose graph was changed.
fn mismatch_of_graph(object: &[u8], change: impl FnOnce(&mut LinkGraph)) -> Option<String> {
    let planned = planned(object, |graph| {
        change(graph);
        graph.use_recorder.mark_stale();
        Ok(())
    });
    reported(
        planned
            .and_then(placed)
            .and_then(|placed| finish(placed, |link| check(&link.resolved, link.memory, None, None))),
    )
}

fn edge_at(graph: &mut LinkGraph, offset: u32) -> &mut Edge {
    // `.text` is the first section of the object.
    graph.edges.iter_mut().find(|edge| edge.offset == offset).unwrap()
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn a_graph_that_differs_from_its_object_is_reported() {
    let Some(object) = asm(ALL_REFERENCES) else { return };
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
    assert_eq!(mismatch_of_graph(&object, |_| ()), None);
    for (expected, change) in changes {
        let report = mismatch_of_graph(&object, change).unwrap_or_else(|| panic!("{expected}: not reported"));
        assert!(report.starts_with(expected), "{report} instead of {expected}");
    }
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn overlapping_blocks_are_reported() {
    let Some(object) = asm(ALL_REFERENCES) else { return };
    let planned = planned(&object, |_| Ok(())).unwrap();
    let mut placed = placed(planned).unwrap();
    let zero_fill = placed.graph().blocks().find(|(id, _)| placed.graph().block_name(*id) == ".bss").unwrap().0;
    placed.link.graph.blocks[zero_fill.index()].offset = 0;
    assert_eq!(
        reported(finish(placed, |link| check(&link.resolved, link.memory, None, None))).unwrap(),
        "data+24: zero-fill"
    );
}

#[cfg_attr(miri, ignore = "starts an assembler")]
#[test]
fn overlapping_relocations_are_counted_and_not_checked() {
    let source = ".data\n.globl test\ntest: .quad 0, 0\n.reloc test, R_X86_64_64, test\n
        .reloc test + 4, R_X86_64_32, 5\n.reloc test + 12, R_X86_64_PC32, test\n.section .note.GNU-stack\n";
    let Some(object) = asm(source) else { return };
    with_link(&object, |link| {
        let data = block(link, ".data");
        assert_eq!(mismatch(link), None);
        assert_eq!(mismatch_with(link, data, 0, &[0xaa]), None, "no defined value");
        assert_eq!(mismatch_with(link, data, 12, &[0xaa]).unwrap(), ".data+12: R_X86_64_PC32");
        assert!(mismatch_with(link, data, 8, &[0xaa]).unwrap().contains("without a relocation"));
    });
}

const BASE: u64 = 0x4000_0000;

#[test]
fn a_gap_of_any_size_is_filled_up_to_its_last_byte() {
    for size in [0usize, 1, 511, 512, 513, 1500] {
        let mut segment = vec![0x6b; size + 20];
        let range = 10..10 + size as u64;
        (segment[9], segment[10 + size]) = (1, 1);
        assert!(check_filled(&segment, range.clone(), 0x6b).is_ok(), "{size}");
        for at in (0..size).filter(|at| at % 37 == 0 || size - at < 3) {
            segment[10 + at] = 0;
            let Mismatch { offset, found, expected, .. } = check_filled(&segment, range.clone(), 0x6b).unwrap_err();
            assert_eq!((offset, &*found, &*expected), (10 + at as u64, "0x00", "0x6b"), "{size}");
            segment[10 + at] = 0x6b;
        }
    }
}
