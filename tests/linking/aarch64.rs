//! Objects for AArch64, linked on any host and never run. Their bytes are those of GNU `ld`, values are exact at the limits of
//! each relocation, and what does not fit is refused with its place.
//!
//! Debug builds verify every link by a second computation, so a test that links also compares all bytes with that.

use std::collections::BTreeMap;
use std::fs;

use jittison::base::ExecutorAddr;
use jittison::link::{
    Definition, Edge, EdgeKind, FixedLink, FoundExternal, LinkGraph, PlannedLink, ThreadLocalPlace, ThreadLocalPlan,
};
use jittison::memory::OfflineMemory;
use jittison::{Error, Jit};
use object::{Object as _, ObjectSection as _};

use crate::support::*;

pub const GCC: &str = "aarch64-linux-gnu-gcc";

pub fn compiled(flags: &[&str], source: &str) -> Option<Vec<u8>> {
    build(GCC, source.as_bytes(), &[&["-x", "c", "-c"], flags, &["-o", OUTPUT, INPUT]].concat())
}

pub fn compiled_by_clang(flags: &[&str], source: &str) -> Option<Vec<u8>> {
    let target = ["--target=aarch64-linux-gnu", "-x", "c", "-c"];
    build("clang-19", source.as_bytes(), &[&target, flags, &["-o", OUTPUT, INPUT]].concat())
}

/// Assembles a source. A symbol that others see keeps its code.
pub fn assembled(source: &str) -> Option<Vec<u8>> {
    let source = format!(".text\n.globl root\nroot:\n{source}");
    build(GCC, source.as_bytes(), &["-x", "assembler", "-c", "-o", OUTPUT, INPUT])
}

/// A section after the link.
pub struct Section {
    pub name: String,
    pub address: u64,
    pub bytes: Vec<u8>,
    /// Offset and kind of each edge, and whether it leads to the GOT itself.
    pub edges: Vec<(usize, EdgeKind, bool)>,
}

/// What a link made.
#[derive(Default)]
pub struct Linked {
    pub sections: Vec<Section>,
    /// Addresses of GOT slots and of stubs, by symbol.
    pub slots: BTreeMap<String, u64>,
    pub stubs: BTreeMap<String, u64>,
}

impl Linked {
    pub fn section(&self, name: &str) -> &Section {
        self.sections.iter().find(|section| section.name == name).unwrap_or_else(|| panic!("no section {name}"))
    }

    /// The instruction at an offset of `.text`.
    fn instruction(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.section(".text").bytes[offset..offset + 4].try_into().unwrap())
    }

    fn record(&mut self, link: &mut FixedLink<'_>) {
        let ids: Vec<_> = link.graph().blocks().filter(|(_, block)| !block.is_dropped()).map(|(id, _)| id).collect();
        for id in ids {
            let (address, bytes) = (link.block_address(id).value(), link.bytes(id).to_vec());
            let graph = link.graph();
            let is_to_got = |edge: &Edge| graph.symbol_name(edge.symbol) == "_GLOBAL_OFFSET_TABLE_";
            let edges = graph.edges(id).iter().map(|edge| (edge.offset as usize, edge.kind, is_to_got(edge))).collect();
            self.sections.push(Section { name: graph.block_name(id).to_string(), address, bytes, edges });
        }
        for (index, _) in link.graph().symbols() {
            let name = link.graph().symbol_name(index).to_string();
            self.slots.extend(link.got_slot(index).map(|slot| (name.clone(), slot.value())));
            self.stubs.extend(link.stub(index).map(|stub| (name, stub.value())));
        }
    }
}

/// Where the thread-local block of an object is, as a program would have its first block.
fn first_block(plan: &ThreadLocalPlan) -> ThreadLocalPlace {
    ThreadLocalPlace { module: 1, static_offset: Some(16u64.next_multiple_of(plan.align) as i64) }
}

/// Links an object at `base`. `address_of` gives the addresses of its externals.
pub fn link(object: &[u8], base: u64, address_of: impl Fn(&str) -> u64) -> Result<Linked, Error> {
    let planned = PlannedLink::plan("object.o".into(), object.into(), |_| true, |_| Ok(()))?;
    let mut placed = planned.allocate(&OfflineMemory::new(ExecutorAddr::new(base)))?;
    if let Some(plan) = placed.thread_local_plan().copied() {
        placed.place_thread_locals(first_block(&plan));
    }
    let external = |name: &str| FoundExternal {
        address: ExecutorAddr::new(address_of(name)),
        is_callable: true,
        ..FoundExternal::default()
    };
    let found: Vec<_> = placed.externals().map(|symbol| external(symbol.name)).collect();
    let mut linked = Linked::default();
    let (_, memory) = placed.finish_in_passes(&found, None, |link| {
        linked.record(link);
        Ok(())
    })?;
    drop(memory);
    Ok(linked)
}

// ---- the native linker ----

/// Whether the field of an edge is left out of the comparison: it leads to an entry of the GOT, and the linkers order their
/// tables differently. Code of the initial-exec model and of descriptors becomes local exec in both.
fn leads_through_table(kind: EdgeKind) -> bool {
    let name = format!("{kind:?}");
    name.contains("Got") && !name.contains("Gottprel") || ["Tlsgd", "Tlsld"].iter().any(|part| name.contains(part))
}

const NOP: u32 = 0xd503_201f;

/// The address that ADR makes in `nop; adr` at an address.
fn address_of_adr(code: [u32; 2], place: u64) -> Option<u64> {
    let distance = i64::from(((code[1] >> 5 & 0x7_ffff) << 2 | code[1] >> 29 & 3) as i32) << 43 >> 43;
    (code[0] == NOP && code[1] & 0x9f00_0000 == 0x1000_0000)
        .then(|| place.wrapping_add(4).wrapping_add_signed(distance))
}

/// The address that `adrp; add` at an address make, which `ld` leaves as they are.
fn address_of_pair(code: [u32; 2], place: u64) -> u64 {
    let pages = i64::from(((code[0] >> 5 & 0x7_ffff) << 2 | code[0] >> 29 & 3) as i32) << 43 >> 43;
    (place & !0xfff).wrapping_add_signed(pages << 12) + u64::from(code[1] >> 10 & 0xfff)
}

/// The two instructions at an offset.
fn pair_at(bytes: &[u8], at: usize) -> Option<[u32; 2]> {
    let word = |at: usize| bytes.get(at..at + 4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    Some([word(at)?, word(at + 4)?])
}

/// A native linker, by its command. GNU `ld` leaves ADRP and ADD as they are, and lld makes ADR of them.
const GNU: &str = "aarch64-linux-gnu-ld";
const LLD: &str = "ld.lld-19";

/// Links an object with a native linker, with all sections at the addresses of `linked`, and returns its sections.
fn native_sections(
    linker: &str,
    object: &[u8],
    linked: &Linked,
    externals: &[(String, u64)],
) -> Option<BTreeMap<String, Vec<u8>>> {
    let directory = PrivateDir::new();
    let path = |name: &str| directory.path(name);
    fs::write(path("object.o"), object).unwrap();
    let mut script = "SECTIONS {\n".to_string();
    let is_own = |section: &&Section| {
        section.address >= BASE
            && ![".got", ".plt", ".tdata", ".tbss"].iter().any(|name| section.name.starts_with(name))
    };
    for Section { name, address, .. } in linked.sections.iter().filter(is_own) {
        script += &format!("  {name} {address:#x} : {{ *({name}) }}\n");
    }
    script += "  .tdata 0x430000 : { *(.tdata .tdata.*) }\n  .tbss : { *(.tbss .tbss.*) }\n";
    script += "  .its_got 0x410000 : { *(.got .got.plt) }\n  .its_plt 0x420000 : { *(.plt .iplt) }\n";
    script += "  /DISCARD/ : { *(.comment) *(.note*) }\n}\n";
    fs::write(path("script"), &script).unwrap();
    let options: &[&str] =
        if linker == GNU { &["--no-relax", "--no-warn-rwx-segments"] } else { &["-O0", "-z", "norelro"] };
    let mut linker = require(linker)?;
    linker.args(options).args(["-static", "-e", "0", "-o"]);
    linker.arg(path("linked")).arg("-T").arg(path("script")).arg(path("object.o"));
    linker.args(externals.iter().map(|(name, address)| format!("--defsym={name}={address:#x}")));
    let output = linker.output().unwrap();
    assert!(output.status.success(), "{}\n{script}", String::from_utf8_lossy(&output.stderr));
    let bytes = fs::read(path("linked")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let section =
        |section: object::Section<'_, '_>| (section.name().unwrap().to_string(), section.data().unwrap().to_vec());
    Some(file.sections().map(section).collect())
}

const BASE: u64 = 0x40_0000;

/// Links an object with both linkers and compares all bytes but those that lead through a table. Returns the number of fields
/// that were compared.
fn compare(linker: &str, object: &[u8], what: &str) -> Option<usize> {
    let externals = std::cell::RefCell::new(Vec::new());
    let address_of = |name: &str| {
        let mut known: std::cell::RefMut<'_, Vec<(String, u64)>> = externals.borrow_mut();
        let address = 0x44_0000 + 0x1238 * (known.len() as u64 + 1);
        known.push((name.to_string(), address));
        address
    };
    let linked = link(object, BASE, address_of).unwrap_or_else(|error| panic!("{what}: {error}"));
    let native = native_sections(linker, object, &linked, &externals.into_inner())?;
    let mut compared = 0;
    for section in &linked.sections {
        let Some(expected) = native.get(&section.name).filter(|bytes| !bytes.is_empty()) else { continue };
        // The bytes of a thread-local block are in its image.
        if section.bytes.is_empty() {
            continue;
        }
        // `ld` may shorten unwind tables.
        if section.name == ".eh_frame" && expected.len() != section.bytes.len() {
            continue;
        }
        let (mut found, mut expected) = (section.bytes.clone(), expected.clone());
        for (offset, kind, is_to_got) in &section.edges {
            // One of them may have an ADR, and the other ADRP and ADD.
            let place = section.address + *offset as u64;
            let made = |pair| address_of_adr(pair, place).unwrap_or_else(|| address_of_pair(pair, place));
            if let (Some(own), Some(its)) = (pair_at(&found, *offset), pair_at(&expected, *offset))
                && (own[0] == NOP) != (its[0] == NOP)
                && format!("{kind:?}").contains("AdrPrelPgHi21")
            {
                assert_eq!(made(own), made(its), "{what}: {offset:#x}");
                expected[*offset..offset + 8].copy_from_slice(&found[*offset..offset + 8]);
            }
            if *is_to_got || leads_through_table(*kind) {
                found[*offset..offset + 4].fill(0);
                expected[*offset..offset + 4].fill(0);
            } else {
                compared += 1;
            }
        }
        let difference = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        if let Some(at) = difference.map(|at| at & !3) {
            let edge = section.edges.iter().find(|(offset, ..)| *offset == at);
            let word = |bytes: &[u8]| format!("{:02x?}", &bytes[at..(at + 4).min(bytes.len())]);
            panic!("{what}: {}+{at:#x}: {} is not {}, {edge:?}", section.name, word(&found), word(&expected));
        }
        assert_eq!(found.len(), expected.len(), "{what}: {}", section.name);
    }
    Some(compared)
}

/// Code, data and constants that refer to each other in all ways that C has.
const PROGRAM: &str = r#"
    extern int callee(int); extern int elsewhere; extern void *far_table[];
    static char bytes[10]; static short halves[5]; int words[100] = { 5 }; long longs[7]; static const char text[] = "text";
    struct pair { long first, second; } pairs[3]; __int128 wide = 7; double number = 1.5; float small = 2.5f;
    int (*pointer)(int) = callee; const void *const table[] = { &words[3], text + 1, far_table + 1, &number };
    __attribute__((noinline)) static int own(int x) { return x * 3 + halves[2]; }
    int choose(int x) { switch (x) { case 0: return 5; case 1: return 8; case 2: return 99; case 3: return 1;
        case 4: return callee(7); case 5: return -4; case 6: return 77; } return own(x); }
    struct pair move(void) { pairs[1] = pairs[0]; return pairs[2]; }
    long all(int count, double scale) { bytes[count]++; bytes[3] += bytes[2]; halves[1] = halves[2]; longs[count] += longs[2]; words[1] = words[2];
        elsewhere += callee(count); wide = wide * 3; number *= scale; small += 1.25f;
        const char *names[] = { "one", "two", text }; return pointer(count) + choose(count) + (long)far_table[2] + names[count & 1][0] + (long)&elsewhere; }
    int tail(int x) { return callee(x + 1); }
"#;

/// Thread-local variables, as code of a program has them.
const THREAD_LOCALS: &str = r#"
    __thread int own = 3; static __thread long other; static __thread char padding[5000]; static __thread short last;
    int *address(void) { return &own; } long take(void) { return other++ + last + own + padding[4097]; } short *end(void) { return &last; }
"#;

#[test]
fn linked_bytes_are_those_of_gnu_ld() {
    compare_models(GNU, 2500);
}

#[test]
fn linked_bytes_are_those_of_lld() {
    compare_models(LLD, 2500);
}

/// Compares with a native linker for all code models, at least so many fields.
fn compare_models(linker: &str, at_least: usize) {
    let models: [&[&str]; 10] = [
        &["-fno-pic"],
        &["-fPIC"],
        &["-fpic"],
        &["-fPIE"],
        &["-fno-pic", "-mcmodel=tiny"],
        &["-fPIC", "-mcmodel=tiny"],
        &["-fno-pic", "-mcmodel=large"],
        &["-fno-pic", "-mbranch-protection=standard"],
        &["-fno-pic", "-ffunction-sections", "-fdata-sections"],
        &["-fno-pic", "-fno-asynchronous-unwind-tables", "-march=armv8.5-a"],
    ];
    let mut compared = 0;
    for level in ["-O0", "-O2", "-Os"] {
        for model in models {
            let flags = [&[level], model].concat();
            // The order of thread-local sections of different names is the linker's choice.
            let has_threads = model[0] == "-fno-pic" && !model.contains(&"-fdata-sections");
            let is_for_clang = !model.contains(&"-mcmodel=large") || level != "-O0";
            let objects = [
                compiled(&flags, PROGRAM),
                if is_for_clang { compiled_by_clang(&flags, PROGRAM) } else { compiled(&flags, PROGRAM) },
                if has_threads { compiled(&flags, THREAD_LOCALS) } else { compiled(&flags, PROGRAM) },
            ];
            for (number, object) in objects.into_iter().enumerate() {
                let Some(object) = object else { return };
                let Some(count) = compare(linker, &object, &format!("{flags:?} {number}")) else { return };
                compared += count;
            }
        }
    }
    assert!(compared > at_least, "{compared} fields");
}

/// Where the distance of a variable is fixed, code of all models becomes local exec.
#[test]
fn code_of_other_thread_local_models_becomes_that_of_the_native_linker() {
    // Shares the process: the code is linked and never runs.
    for flags in [&["-O2", "-fPIC"][..], &["-O0", "-fPIC"], &["-O2", "-fPIC", "-ftls-model=initial-exec"]] {
        let source = THREAD_LOCALS.replace("static __thread", "__thread");
        // clang 19 puts other instructions between those of a load.
        let is_for_clang = flags.len() == 2;
        for is_clang in [false, true].into_iter().filter(|is_clang| is_for_clang || !is_clang) {
            let object = if is_clang { compiled_by_clang(flags, &source) } else { compiled(flags, &source) };
            let Some(object) = object else { return };
            let what = format!("{flags:?}");
            let linked = link(&object, BASE, |_| 0).unwrap();
            let text = linked.sections.iter().find(|section| section.name.starts_with(".text")).unwrap();
            let is_move =
                |at: usize| pair_at(&text.bytes, at).is_some_and(|[first, _]| first & 0xffe0_0000 == 0xd2a0_0000);
            let moves = (0..text.bytes.len()).step_by(4).filter(|at| is_move(*at)).count();
            assert!(moves >= 5, "{what}: {moves} distances");
            for linker in [GNU, LLD] {
                let Some(compared) = compare(linker, &object, &what) else { return };
                assert!(compared >= 2 * moves, "{what}: {compared}");
            }
        }
    }
}

#[test]
fn every_size_of_a_thread_local_offset_is_that_of_the_native_linker() {
    for size in ["-mtls-size=12", "-mtls-size=24", "-mtls-size=32", "-mtls-size=48"] {
        let Some(object) = compiled(&["-O2", "-fno-pic", size], &THREAD_LOCALS.replace("5000", "500")) else { return };
        let Some(compared) = compare(GNU, &object, size) else { return };
        assert!(compared > 6, "{size}: {compared}");
    }
}

// ---- limits ----

/// What a value is made of.
#[derive(Clone, Copy, PartialEq)]
enum Value {
    /// `S + A`.
    Address,
    /// `S + A - P`.
    Distance,
    /// `Page(S + A) - Page(P)`.
    Pages,
    /// A thread-local variable's offset or distance.
    ThreadLocal,
}

/// A relocation, an instruction or field for it, its value, the first and the last one that fits, and their unit.
type Limits = (&'static str, &'static str, Value, i128, i128, i128);

const ADD: &str = ".inst 0x91000000";
const LOAD: &str = ".inst 0xf9400000";
const MOVZ: &str = ".inst 0xd2800000";

const LIMITS: [Limits; 53] = {
    use Value::*;
    const fn bits(count: u32) -> i128 {
        1 << count
    }
    [
        ("ABS32", ".long 0", Address, -bits(31), bits(32) - 1, 1),
        ("ABS16", ".short 0", Address, -bits(15), bits(16) - 1, 1),
        ("PREL32", ".long 0", Distance, -bits(31), bits(32) - 1, 1),
        ("PREL16", ".short 0", Distance, -bits(15), bits(16) - 1, 1),
        ("MOVW_UABS_G0", MOVZ, Address, 0, bits(16) - 1, 1),
        ("MOVW_UABS_G1", MOVZ, Address, 0, bits(32) - 1, 1),
        ("MOVW_UABS_G2", MOVZ, Address, 0, bits(48) - 1, 1),
        ("MOVW_SABS_G0", MOVZ, Address, -bits(16), bits(16) - 1, 1),
        ("MOVW_SABS_G1", MOVZ, Address, -bits(32), bits(32) - 1, 1),
        ("MOVW_SABS_G2", MOVZ, Address, -bits(48), bits(48) - 1, 1),
        ("MOVW_PREL_G0", MOVZ, Distance, -bits(16), bits(16) - 1, 1),
        ("MOVW_PREL_G1", MOVZ, Distance, -bits(32), bits(32) - 1, 1),
        ("MOVW_PREL_G2", MOVZ, Distance, -bits(48), bits(48) - 1, 1),
        ("LD_PREL_LO19", ".inst 0x58000000", Distance, -bits(20), bits(20) - 4, 4),
        ("ADR_PREL_LO21", ".inst 0x10000000", Distance, -bits(20), bits(20) - 1, 1),
        ("ADR_PREL_PG_HI21", ".inst 0x90000000", Pages, -bits(32), bits(32) - 4096, 4096),
        ("TLSLD_MOVW_DTPREL_G2", MOVZ, ThreadLocal, -bits(48), bits(48) - 1, 1),
        ("TLSLD_MOVW_DTPREL_G1", MOVZ, ThreadLocal, -bits(32), bits(32) - 1, 1),
        ("TLSLD_MOVW_DTPREL_G0", MOVZ, ThreadLocal, -bits(16), bits(16) - 1, 1),
        ("TLSLD_ADD_DTPREL_HI12", ADD, ThreadLocal, 0, bits(24) - 1, 1),
        ("TLSLD_ADD_DTPREL_LO12", ADD, ThreadLocal, 0, bits(12) - 1, 1),
        ("TLSLD_LDST8_DTPREL_LO12", LOAD, ThreadLocal, 0, bits(12) - 1, 1),
        ("TLSLD_LDST16_DTPREL_LO12", LOAD, ThreadLocal, 0, bits(12) - 2, 2),
        ("TLSLD_LDST32_DTPREL_LO12", LOAD, ThreadLocal, 0, bits(12) - 4, 4),
        ("TLSLD_LDST64_DTPREL_LO12", LOAD, ThreadLocal, 0, bits(12) - 8, 8),
        ("TLSLD_LDST128_DTPREL_LO12", LOAD, ThreadLocal, 0, bits(12) - 16, 16),
        ("TLSLE_MOVW_TPREL_G2", MOVZ, ThreadLocal, -bits(48), bits(48) - 1, 1),
        ("TLSLE_MOVW_TPREL_G1", MOVZ, ThreadLocal, -bits(32), bits(32) - 1, 1),
        ("TLSLE_MOVW_TPREL_G0", MOVZ, ThreadLocal, -bits(16), bits(16) - 1, 1),
        ("TLSLE_ADD_TPREL_HI12", ADD, ThreadLocal, 0, bits(24) - 1, 1),
        ("TLSLE_ADD_TPREL_LO12", ADD, ThreadLocal, 0, bits(12) - 1, 1),
        ("TLSLE_LDST8_TPREL_LO12", LOAD, ThreadLocal, 0, bits(12) - 1, 1),
        ("TLSLE_LDST16_TPREL_LO12", LOAD, ThreadLocal, 0, bits(12) - 2, 2),
        ("TLSLE_LDST32_TPREL_LO12", LOAD, ThreadLocal, 0, bits(12) - 4, 4),
        ("TLSLE_LDST64_TPREL_LO12", LOAD, ThreadLocal, 0, bits(12) - 8, 8),
        ("TLSLE_LDST128_TPREL_LO12", LOAD, ThreadLocal, 0, bits(12) - 16, 16),
        // All values fit. An unsigned and a signed 64-bit number are the same bits.
        ("ABS64", ".quad 0", Address, -bits(63), bits(63) - 1, 1),
        ("PREL64", ".quad 0", Distance, -bits(48), bits(60), 1),
        ("MOVW_UABS_G3", MOVZ, Address, 0, bits(64) - 1, 1),
        ("MOVW_PREL_G3", MOVZ, Distance, -bits(48), bits(60), 1),
        ("MOVW_UABS_G0_NC", MOVZ, Address, 0, bits(64) - 1, 1),
        ("MOVW_UABS_G1_NC", MOVZ, Address, 0, bits(64) - 1, 1),
        ("MOVW_UABS_G2_NC", MOVZ, Address, 0, bits(64) - 1, 1),
        ("MOVW_PREL_G0_NC", MOVZ, Distance, -bits(48), bits(60), 1),
        ("MOVW_PREL_G1_NC", MOVZ, Distance, -bits(48), bits(60), 1),
        ("MOVW_PREL_G2_NC", MOVZ, Distance, -bits(48), bits(60), 1),
        ("ADR_PREL_PG_HI21_NC", ".inst 0x90000000", Pages, -bits(48), bits(60), 4096),
        ("ADD_ABS_LO12_NC", ADD, Address, -bits(63), bits(63) - 1, 1),
        ("LDST8_ABS_LO12_NC", LOAD, Address, -bits(63), bits(63) - 1, 1),
        ("LDST16_ABS_LO12_NC", LOAD, Address, -bits(63), bits(63) - 2, 2),
        ("LDST32_ABS_LO12_NC", LOAD, Address, -bits(63), bits(63) - 4, 4),
        ("LDST64_ABS_LO12_NC", LOAD, Address, -bits(63), bits(63) - 8, 8),
        ("LDST128_ABS_LO12_NC", LOAD, Address, -bits(63), bits(63) - 16, 16),
    ]
};

/// Links one relocation so that its value is `value`. Without the assembler the test is skipped: `None`.
fn with_value(relocation: &str, field: &str, of: Value, value: i128) -> Option<Result<Linked, Error>> {
    // Distances in both directions are addresses of the lower half.
    const TEXT: u64 = 1 << 50;
    // A thread-local block begins 16 bytes from the thread pointer, and 0 bytes from its own start.
    let start = if relocation.contains("TPREL") && !relocation.contains("DTPREL") { 16 } else { 0 };
    let symbol = match of {
        Value::ThreadLocal => format!("own + {}", value - start),
        _ => "external".to_string(),
    };
    let block = ".section .tbss,\"awT\",@nobits\n.balign 16\nown: .skip 16\n";
    // A hidden symbol is one of an object of the same dylib, so no thunk stands for a reference that is out of range.
    let source = format!(".text\n.hidden external\n.reloc ., R_AARCH64_{relocation}, {symbol}\n{field}\n{block}");
    // GNU `as` does not know the names of all relocations.
    let target = ["--target=aarch64-linux-gnu", "-x", "assembler", "-c", "-o", OUTPUT, INPUT];
    let object = build("clang-19", format!(".globl root\nroot:\n{source}").as_bytes(), &target)?;
    let address = match of {
        Value::Address | Value::ThreadLocal => value,
        Value::Distance => i128::from(TEXT) + value,
        Value::Pages => i128::from(TEXT) + value + 0xabc,
    };
    Some(link(&object, TEXT, |_| address as u64))
}

#[test]
fn every_relocation_links_at_its_limits_and_is_refused_beyond() {
    for (relocation, field, of, min, max, unit) in LIMITS {
        let refusal = |value: i128| match with_value(relocation, field, of, value) {
            None => None,
            Some(Ok(_)) => Some(String::new()),
            Some(Err(error)) => Some(error.to_string()),
        };
        for value in [min, max] {
            let Some(refusal) = refusal(value) else { return };
            assert_eq!(refusal, "", "{relocation} of {value:#x}");
        }
        let is_checked = !relocation.contains("64") || relocation.starts_with("TLS");
        let is_checked = is_checked && !relocation.ends_with("_NC") && !relocation.ends_with("_G3");
        // A thunk stands for these, wherever the symbol is.
        let is_checked = is_checked && !matches!(relocation, "LD_PREL_LO19" | "ADR_PREL_LO21");
        for value in [min - unit, max + unit].into_iter().filter(|_| is_checked) {
            let Some(refusal) = refusal(value) else { return };
            let expected = format!("relocation R_AARCH64_{relocation} out of range (section `.text`, offset 0x0");
            assert!(refusal.contains(&expected), "{relocation} of {value:#x}: {refusal}");
        }
        if unit > 1 && of != Value::Pages {
            let Some(refusal) = refusal(max - 1) else { return };
            let expected =
                format!("relocation R_AARCH64_{relocation} to a misaligned place (section `.text`, offset 0x0");
            assert!(refusal.contains(&expected), "{relocation}: {refusal}");
            assert!(refusal.contains(&format!("is not a multiple of {unit}")), "{relocation}: {refusal}");
        }
    }
}

#[test]
fn branches_in_an_object_link_at_their_limits_and_are_refused_beyond() {
    let branches = [("tbz w0, 0,", "TSTBR14", 15), ("b.eq", "CONDBR19", 20), ("b", "JUMP26", 27), ("bl", "CALL26", 27)];
    for (instruction, name, bits) in branches {
        // The symbol is weak, so the assembler leaves the branch to the linker.
        let linked = |distance: i64| {
            let source = format!(".text\n.weak here\nhere: {instruction} here + {distance}\n");
            Some(link(&assembled(&source)?, BASE << 20, |_| 0).map(drop).map_err(|error| error.to_string()))
        };
        let end = 1i64 << bits;
        for distance in [-end, end - 4] {
            let Some(outcome) = linked(distance) else { return };
            assert_eq!(outcome, Ok(()), "{name} of {distance:#x}");
        }
        for distance in [-end - 4, end] {
            let Some(outcome) = linked(distance) else { return };
            let error = outcome.unwrap_err();
            assert!(error.contains(&format!("relocation R_AARCH64_{name} out of range")), "{error}");
            assert!(error.contains("divide its code among several objects"), "{error}");
        }
        let Some(outcome) = linked(6) else { return };
        assert!(outcome.as_ref().is_err_and(|error| error.contains("misaligned")), "{name}: {outcome:?}");
    }
}

#[test]
fn branches_to_other_objects_reach_any_address_by_a_stub() {
    let source = ".text\nbl far\nb far\nbl near\n.section .note.GNU-stack\n";
    let Some(object) = assembled(source) else { return };
    let text = 0x10_0000_0000;
    for (far, is_by_stub) in [(text + (128 << 20) - 4, false), (text + (128 << 20) + 4, true), (0x7f00_0000_0000, true)]
    {
        let linked = link(&object, text, |name| if name == "far" { far } else { text + 0x4000 }).unwrap();
        let (stub, slot) = (linked.stubs["far"], linked.slots["far"]);
        let target = if is_by_stub { stub } else { far };
        let branch = |opcode: u32, from: u64| opcode | ((target.wrapping_sub(from) >> 2) as u32 & 0x3ff_ffff);
        assert_eq!(linked.instruction(0), branch(0x9400_0000, text), "bl to {far:#x}");
        if is_by_stub {
            assert_eq!(linked.instruction(4), branch(0x1400_0000, text + 4), "b to {far:#x}");
        }
        assert_eq!(linked.instruction(8), 0x9400_0000 | (0x4000 - 8) >> 2, "bl to a symbol in reach");
        // bti c; adrp x16, slot; ldr x17, [x16, slot]; br x17
        let plt = &linked.section(".plt");
        let at = (stub - plt.address) as usize;
        let code: Vec<u32> =
            plt.bytes[at..at + 16].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        let pages = ((slot >> 12) - ((stub + 4) >> 12)) as u32;
        let adrp = 0x9000_0010 | (pages & 3) << 29 | pages >> 2 << 5;
        assert_eq!(code, [0xd503_245f, adrp, 0xf940_0211 | (slot as u32 & 0xfff) >> 3 << 10, 0xd61f_0220]);
        let got = linked.section(".got");
        assert_eq!(got.bytes[(slot - got.address) as usize..][..8], far.to_le_bytes());
    }
}

#[test]
fn a_branch_behind_the_start_of_a_symbol_never_takes_its_stub() {
    let Some(object) = assembled(".text\nbl far + 8\n") else { return };
    assert_eq!(link(&object, 1 << 32, |_| (1 << 32) + 64).unwrap().instruction(0), 0x9400_0000 | (64 + 8) >> 2);
    let error = link(&object, 1 << 32, |_| 1 << 44).err().unwrap().to_string();
    assert!(error.contains("relocation R_AARCH64_CALL26 out of range"), "{error}");
}

#[test]
fn a_conditional_branch_out_of_reach_goes_by_a_stub_that_is_in_reach() {
    let Some(object) = assembled(".text\ncbz x0, far\ntbnz x1, 40, far\n") else { return };
    let linked = link(&object, 1 << 32, |_| 1 << 44).unwrap();
    let distance = (linked.stubs["far"] - (1 << 32)) as u32;
    assert_eq!(linked.instruction(0), 0xb400_0000 | distance >> 2 << 5);
    assert_eq!(linked.instruction(4), 0xb740_0001 | (distance - 4) >> 2 << 5);
}

// ---- GOT ----

/// Links `adrp; ldr` of the GOT slot of `external`, with `more` code after it.
fn got_load(more: &str, external: u64) -> Option<Linked> {
    let pair = "adrp x3, :got:external\nldr x3, [x3, :got_lo12:external]\n";
    let object = assembled(&format!(".text\n{pair}{more}\n"))?;
    Some(link(&object, 1 << 40, |_| external).unwrap())
}

#[test]
fn a_got_load_becomes_the_address_exactly_when_its_page_is_in_reach() {
    let text = 1u64 << 40;
    // The page distance has 21 bits with a sign.
    for (external, is_relaxed) in [
        (text + 0x1238, true),
        (text + (1 << 32) - 1, true),
        (text + (1 << 32), false),
        (text - (1 << 32), true),
        (text - (1 << 32) - 1, false),
        (0x7fff_0000_0000, false),
    ] {
        let Some(linked) = got_load("", external) else { return };
        let slot = linked.slots["external"];
        let leads_to = if is_relaxed { external } else { slot };
        let pages = (leads_to >> 12).wrapping_sub(text >> 12) as u32 & 0x1f_ffff;
        assert_eq!(linked.instruction(0), 0x9000_0003 | (pages & 3) << 29 | pages >> 2 << 5, "{external:#x}");
        let low = leads_to as u32 & 0xfff;
        let second = if is_relaxed { 0x9100_0063 | low << 10 } else { 0xf940_0063 | low >> 3 << 10 };
        assert_eq!(linked.instruction(4), second, "{external:#x}");
    }
}

#[test]
fn got_loads_stay_where_another_load_could_use_the_page() {
    let others = [
        ("a load of the same page", "ldr x4, [x3, :got_lo12:external]"),
        ("a page alone", "adrp x5, :got:external"),
        ("a page and its load with code between", "adrp x5, :got:external\nnop\nldr x5, [x5, :got_lo12:external]"),
        ("another symbol's load", "adrp x5, :got:external\nldr x5, [x5, :got_lo12:other]"),
        (
            "a load in another section",
            ".section .text.cold,\"ax\"\n.globl cold\ncold: ldr x3, [x3, :got_lo12:external]",
        ),
        ("an entry at the load", ".globl entry\n.set entry, .text + 4"),
    ];
    for (what, other) in others {
        let Some(linked) = got_load(other, (1 << 40) + 0x1000) else { return };
        assert_eq!(linked.instruction(4) & 0xffc0_03ff, 0xf940_0063, "{what}: the load is still there");
    }
    let Some(linked) = got_load("adrp x5, :got:external\nldr x5, [x5, :got_lo12:external]", 1 << 40) else { return };
    assert_eq!([linked.instruction(4), linked.instruction(12)], [0x9100_0063, 0x9100_00a5], "whole pairs");
    let registers = "adrp x5, :got:external\nldr x6, [x5, :got_lo12:external]";
    let Some(linked) = got_load(registers, 1 << 40) else { return };
    assert_eq!(linked.instruction(4), 0x9100_0063, "the pair before it");
    assert_eq!(linked.instruction(12) & 0xffc0_03ff, 0xf940_00a6, "x5 outlives the load");
}

// ---- sequences ----

/// Links `adrp; add` of `external`, with `more` code after it.
fn address_pair(more: &str, external: u64) -> Option<Linked> {
    let pair = "adrp x3, external + 8\nadd x3, x3, :lo12:external + 8\n";
    let object = assembled(&format!(".text\n{pair}{more}\n"))?;
    Some(link(&object, 1 << 40, |_| external).unwrap())
}

#[test]
fn an_address_is_made_by_one_instruction_exactly_when_it_is_in_reach() {
    let text = 1u64 << 40;
    // The distance from the second instruction has 21 bits with a sign.
    for (target, is_relaxed) in [
        (text + 4 + (1 << 20) - 1, true),
        (text + 4 + (1 << 20), false),
        (text + 4 - (1 << 20), true),
        (text + 4 - (1 << 20) - 1, false),
    ] {
        let Some(linked) = address_pair("", target - 8) else { return };
        let code = [linked.instruction(0), linked.instruction(4)];
        match is_relaxed {
            true => assert_eq!(address_of_adr(code, text), Some(target), "{target:#x}: {code:#x?}"),
            false => assert_eq!(address_of_pair(code, text), target, "{target:#x}: {code:#x?}"),
        }
        assert_eq!(code[1] & 0x1f, 3);
    }
}

#[test]
fn addresses_stay_where_other_code_could_use_the_page() {
    let others = [
        ("an addition to the same page", "add x4, x3, :lo12:external + 8"),
        ("a page alone", "adrp x5, external"),
        ("a page for a load", "adrp x5, external\nldr x5, [x5, :lo12:external]"),
        ("an addition in another section", ".section .text.cold,\"ax\"\n.globl cold\ncold: add x3, x3, :lo12:external"),
        ("an entry at the addition", ".globl entry\n.set entry, .text + 4"),
    ];
    for (what, other) in others {
        let Some(linked) = address_pair(other, (1 << 40) + 0x1000) else { return };
        assert_eq!(linked.instruction(4) & 0xffc0_03ff, 0x9100_0063, "{what}: the addition is still there");
    }
    let of_another = "adrp x5, other\nldr x5, [x5, :lo12:other]";
    for other in [of_another, "adrp x5, external + 8\nadd x5, x5, :lo12:external + 8"] {
        let Some(linked) = address_pair(other, (1 << 40) + 0x1000) else { return };
        assert_eq!(linked.instruction(0), NOP, "{other}");
    }
    let addends = "adrp x5, external\nadd x5, x5, :lo12:external + 8";
    let Some(linked) = address_pair(addends, (1 << 40) + 0x1000) else { return };
    assert_ne!(linked.instruction(0), NOP, "an addition for another page");
}

#[test]
fn descriptors_and_static_loads_stay_where_other_code_could_use_their_registers() {
    let block = ".section .tdata,\"awT\",@progbits\nword: .quad 3";
    let descriptor = "adrp x0, :tlsdesc:word\nldr x1, [x0, :tlsdesc_lo12:word]\nadd x0, x0, :tlsdesc_lo12:word\n.tlsdesccall word\nblr x1\n";
    let load = "adrp x3, :gottprel:word\nldr x3, [x3, :gottprel_lo12:word]\n";
    let first = |code: &str, more: &str| {
        let object = assembled(&format!("{code}{more}\n{block}"))?;
        Some(link(&object, BASE, |_| 0).unwrap().instruction(0))
    };
    for (code, register, others) in [
        (
            descriptor,
            0,
            &[
                "ldr x1, [x0, :tlsdesc_lo12:word]",
                "adrp x0, :tlsdesc:word",
                ".globl entry\n.set entry, .text + 4",
                ".globl entry\n.set entry, .text + 8",
                ".globl entry\n.set entry, .text + 12",
            ][..],
        ),
        (
            load,
            3,
            &["ldr x4, [x3, :gottprel_lo12:word]", "adrp x3, :gottprel:word", ".globl entry\n.set entry, .text + 4"],
        ),
    ] {
        let Some(alone) = first(code, "") else { return };
        assert_eq!(alone & 0xffe0_001f, 0xd2a0_0000 | register, "movz");
        let after = format!(
            ".globl entry\n.set entry, .text + {}",
            code.lines().filter(|line| !line.starts_with('.')).count() * 4
        );
        assert_eq!(first(code, &after), Some(alone), "an entry behind it");
        for other in others {
            let Some(page) = first(code, other) else { return };
            assert_eq!(page & 0x9f00_001f, 0x9000_0000 | register, "{other}: the page is still there");
        }
    }
}

#[test]
fn data_out_of_reach_is_reached_by_a_thunk() {
    let text = 1u64 << 40;
    let functions =
        "adrp x3, external + 0x12345\nldr x3, [x3, :lo12:external + 0x12345 - 5]\nadr x4, external\nldr w5, external\n";
    let Some(object) = assembled(&format!(".text\n{functions}")) else { return };
    let near = link(&object, text, |_| text + 0x1000).unwrap();
    assert_eq!(near.instruction(0) & 0x9f00_001f, 0x9000_0003, "ADRP reaches it");
    let far = link(&object, text, |_| 0x7fff_1234_5000).unwrap();
    let (code, thunks) = (far.section(".text"), far.section(".far_code"));
    let word = |address: u64| {
        let section = if address >= thunks.address { thunks } else { code };
        let at = (address - section.address) as usize;
        u32::from_le_bytes(section.bytes[at..at + 4].try_into().unwrap())
    };
    let target = |place: u64| {
        assert_eq!(word(place) >> 26, 5, "{place:#x}: b");
        place.wrapping_add_signed((i64::from(word(place)) << 38) >> 36)
    };
    // movz and movk of x3: the page of 0x7fff12357345; the branch leads behind the ADRP.
    let thunk = target(text);
    let moves = [0, 4, 8].map(|at| word(thunk + at));
    assert_eq!(moves, [0xd280_0003 | 0x7000 << 5, 0xf2a0_0003 | 0x1235 << 5, 0xf2c0_0003 | 0x7fff << 5]);
    assert_eq!(target(thunk + 12), text + 4);
    assert_eq!(word(text + 4) >> 10 & 0xfff, 0x340 / 8, "the offset in the page stays with the load");
    let thunk = target(text + 8);
    assert_eq!((word(thunk), target(thunk + 12)), (0xd280_0004 | 0x5000 << 5, text + 12));
    let thunk = target(text + 12);
    assert_eq!((word(thunk + 12), target(thunk + 16)), (0xb940_00a5, text + 16), "ldr w5, [x5]");
}

#[test]
fn data_out_of_reach_of_what_no_thunk_does_is_refused_by_its_cause() {
    for (code, problem) in [
        ("prfm pldl1keep, external", "it is no load of a literal"),
        (".hidden external\nadrp x5, external", "compile with -fPIC"),
        (".word external - .", "compile with -fPIC"),
    ] {
        let Some(object) = assembled(code) else { return };
        let linked = link(&object, 1 << 40, |_| 0x7fff_1234_5000).map(drop);
        let error = linked.map_err(|error| error.to_string()).expect_err(code);
        assert!(error.contains(problem) && error.contains("symbol `external`"), "{code}: {error}");
    }
}

#[test]
fn got_forms_with_a_short_reach_are_refused_beyond_it_or_go_by_a_thunk() {
    let refusal = |source: &str| {
        let object = assembled(source)?;
        Some(link(&object, BASE, |_| 8).map(drop).map_err(|error| error.to_string()))
    };
    // 4,096 slots of eight bytes are in reach of 15 bits.
    let loads = |count: usize| {
        let load = |number: usize| format!("ldr x0, [x1, :gotpage_lo15:symbol{number}]\n");
        let loads: String = (0..count).map(load).collect();
        format!(".text\nadrp x1, _GLOBAL_OFFSET_TABLE_\n{loads}")
    };
    let Some(outcome) = refusal(&loads(300)) else { return };
    assert_eq!(outcome, Ok(()));
    let Some(Err(error)) = refusal(&loads(4700)) else { panic!("too many slots") };
    assert!(error.contains("relocation R_AARCH64_LD64_GOTPAGE_LO15 out of range"), "{error}");
    for (instruction, name) in [
        ("ldr x0, :got:symbol", "GOT_LD_PREL19"),
        ("adr x0, :tlsgd:variable", "TLSGD_ADR_PREL21"),
        ("adr x0, :tlsldm:variable", "TLSLD_ADR_PREL21"),
        ("ldr x0, :gottprel:variable", "TLSIE_LD_GOTTPREL_PREL19"),
        ("ldr x0, :tlsdesc:variable", "TLSDESC_LD_PREL19"),
        ("adr x0, :tlsdesc:variable", "TLSDESC_ADR_PREL21"),
    ] {
        let block = ".section .tbss,\"awT\",@nobits\nvariable: .skip 8\n";
        let source = |gap: u32| format!(".text\n{instruction}\n.skip {gap}\n{block}");
        for (gap, is_thunk) in [(0xf_f000, false), (0x10_0000, true)] {
            let Some(object) = assembled(&source(gap)) else { return };
            let first = link(&object, BASE, |_| 8).unwrap().instruction(0);
            assert_eq!(first >> 26 == 5, is_thunk, "{name}, {gap:#x}: {first:#x}");
        }
    }
}

/// The segments of an object may be further apart than code of the tiny model assumes.
#[test]
fn data_out_of_reach_of_the_tiny_code_model_is_reached_by_a_thunk() {
    for instruction in ["adr x0, data", "ldr x0, data", "ldr d0, data", "ldr q0, data"] {
        for (gap, is_thunk) in [(0xf_0000, false), (0x10_0000, true)] {
            let source = format!(".text\n{instruction}\n.skip {gap}\n.data\n.balign 16\ndata: .quad 5, 6\n");
            let Some(object) = assembled(&source) else { return };
            let first = link(&object, BASE, |_| 8).unwrap().instruction(0);
            assert_eq!(first >> 26 == 5, is_thunk, "{instruction}, {gap:#x}: {first:#x}");
        }
    }
}

#[test]
fn an_addend_to_an_entry_of_the_got_is_refused() {
    let Some(object) = assembled(".text\nadrp x0, :got:symbol + 8\n") else { return };
    let error = link(&object, BASE, |_| 8).err().unwrap().to_string();
    assert!(error.contains("unsupported addend of R_AARCH64_ADR_GOT_PAGE"), "{error}");
}

// ---- sessions ----

#[test]
fn a_session_that_runs_code_refuses_objects_for_another_machine() {
    if !require_x86_64() {
        return;
    }
    let Some(object) = compiled(&["-O2"], "long test(void) { return 1; }") else { return };
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let refusals = [
        jit.add_object(&tracker, "other.o", object.clone()).err(),
        jit.link_object(&tracker, "other.o", object).map(drop).err(),
    ];
    for error in refusals {
        let error = error.expect("a refusal").to_string();
        assert!(error.contains("e_machine is AArch64 (183), but this session links"), "{error}");
    }
}

/// A session whose code cannot be run.
fn offline() -> Jit {
    let memory = std::sync::Arc::new(OfflineMemory::new(ExecutorAddr::new(BASE)));
    Jit::builder().memory_manager(memory).build().unwrap()
}

#[test]
fn the_first_object_of_a_session_that_runs_nothing_decides_its_machine() {
    if !require_x86_64() {
        return;
    }
    let source = "long NAME(void) { return 1; }";
    let own = gcc(&["-O2"], &source.replace("NAME", "own"));
    let (Some(own), Some(other)) = (own, compiled(&["-O2"], &source.replace("NAME", "other"))) else { return };
    for (first, second) in [(&own, &other), (&other, &own)] {
        let jit = offline();
        let tracker = jit.main_dylib().create_tracker().unwrap();
        jit.add_object(&tracker, "first.o", first.clone()).unwrap();
        let error = jit.add_object(&tracker, "second.o", second.clone()).unwrap_err().to_string();
        assert!(error.contains("wrong architecture") && error.contains("second.o"), "{error}");
        jit.add_object(&jit.main_dylib().create_tracker().unwrap(), "again.o", first.clone()).unwrap_err();
    }
}

#[test]
fn what_cannot_be_linked_for_another_machine_is_refused_by_name() {
    let refusal = |source: &str| Some(link(&assembled(source)?, BASE, |_| 8).err()?.to_string());
    let Some(error) = refusal(".data\n.reloc ., R_AARCH64_RELATIVE, f\n.quad 0\n") else { return };
    assert!(error.contains("relocation R_AARCH64_RELATIVE"), "{error}");
}

#[test]
fn an_indirect_function_jumps_through_a_slot_that_first_leads_to_its_resolver() {
    let source = "extern long f, other; static void *choose(void) { return &other; }
        void f_(void) __attribute__((ifunc(\"choose\"))); void g(void) __attribute__((alias(\"f_\")));
        void *const addresses[] = {f_, g, choose};";
    let Some(object) = compiled(&["-O2"], source) else { return };
    let linked = link(&object, BASE, |_| 0x1234_5678_0000).unwrap();
    let word =
        |section: &Section, offset: usize| u64::from_le_bytes(section.bytes[offset..offset + 8].try_into().unwrap());
    let (code, slots) = (linked.section(".iplt"), linked.section(".igot"));
    let addresses = linked.sections.iter().find(|section| section.name.starts_with(".data.rel.ro")).unwrap();
    let [stub, alias, resolver] = [0, 8, 16].map(|offset| word(addresses, offset));
    assert_eq!(stub, alias, "aliases have one address");
    assert_eq!(word(slots, 0), stub + 20, "the entry comes after the stub");
    let instruction = |place: u64| {
        let offset = (place - code.address) as usize;
        u32::from_le_bytes(code.bytes[offset..offset + 4].try_into().unwrap())
    };
    // What ADRP and the addition after it make at a place, also if one instruction stands for them.
    let made = |place: u64| {
        let code = [instruction(place), instruction(place + 4)];
        address_of_adr(code, place).unwrap_or_else(|| address_of_pair(code, place))
    };
    assert_eq!(made(stub + 4), slots.address, "the stub loads the slot");
    assert_eq!(instruction(stub + 12), 0xc8df_fe11, "the load acquires what the resolver has written");
    assert_eq!(made(stub + 24), resolver);
    assert_eq!(made(stub + 32), slots.address);
    let branch = |place: u64| place.wrapping_add_signed((i64::from(instruction(place) & 0x3ff_ffff) << 38) >> 36);
    assert_eq!(branch(stub + 40), code.address, "entries share a part");
    // That part asks the C library twice.
    let calls = (code.address..stub).step_by(4).filter(|place| instruction(*place) >> 26 == 0x25);
    assert_eq!(calls.map(branch).collect::<Vec<_>>(), [linked.stubs["getauxval"]; 2]);
}

#[test]
fn the_graph_says_which_machine_it_is_for() {
    let Some(object) = compiled(&["-O2"], "long test(void) { return 1; }") else { return };
    let planned = PlannedLink::plan("object.o".into(), object.into(), |_| true, |_| Ok(())).unwrap();
    let graph: &LinkGraph = planned.graph();
    assert_eq!(graph.machine(), 183);
    assert!(graph.symbols().any(|(_, symbol)| matches!(symbol.definition, Definition::Block(..))));
}

#[test]
fn symbols_that_map_code_and_data_may_be_in_a_thread_local_section() {
    let source = "__thread int own = 3; int take(void) { return own; }";
    let Some(object) = compiled_by_clang(&["-O2", "-fno-pic"], source) else { return };
    link(&object, BASE, |_| 8).unwrap();
}
