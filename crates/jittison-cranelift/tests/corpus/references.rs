//! References of each kind: to the host, to libraries, to data, and from machine code that the test writes itself.

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{InstBuilder, Type, types};
use cranelift_codegen::isa::CallConv;
use cranelift_module::{DataDescription, DataId, FuncId, Linkage, Module, ModuleReloc, ModuleRelocTarget};
use jittison_test_support::machine_code;

use crate::IS_X86_64;
use crate::calls::calls;
use crate::code::{Corpus, Fill, load, store};

/// An address below 2 GiB, which code may hold in four bytes. Nothing reads it.
const LOW: usize = 0x1234_5678;

static HOST_DATA: [u64; 2] = [0x1111_2222_3333_4444, 0x5555_6666_7777_8888];

extern "C" fn host_i8(a: i8, b: i8) -> i8 {
    a.wrapping_sub(b)
}

extern "C" fn host_i16(a: i16, b: i16) -> i16 {
    a.wrapping_sub(b)
}

extern "C" fn host_i32(a: i32, b: i32) -> i32 {
    a.wrapping_sub(b)
}

extern "C" fn host_i64(a: i64, b: i64) -> i64 {
    a.wrapping_sub(b)
}

extern "C" fn host_f32(a: f32, b: f32) -> f32 {
    f32::from_bits(a.to_bits() ^ b.to_bits())
}

extern "C" fn host_f64(a: f64, b: f64) -> f64 {
    f64::from_bits(a.to_bits() ^ b.to_bits())
}

fn host_functions() -> [(Type, *const u8); 6] {
    [
        (types::I8, host_i8 as *const u8),
        (types::I16, host_i16 as *const u8),
        (types::I32, host_i32 as *const u8),
        (types::I64, host_i64 as *const u8),
        (types::F32, host_f32 as *const u8),
        (types::F64, host_f64 as *const u8),
    ]
}

/// The functions of the mathematical library, which may not be loaded.
fn library_functions() -> [(&'static str, *const u8); 10] {
    extern "C" fn ceilf(x: f32) -> f32 {
        x.ceil()
    }
    extern "C" fn ceil(x: f64) -> f64 {
        x.ceil()
    }
    extern "C" fn floorf(x: f32) -> f32 {
        x.floor()
    }
    extern "C" fn floor(x: f64) -> f64 {
        x.floor()
    }
    extern "C" fn truncf(x: f32) -> f32 {
        x.trunc()
    }
    extern "C" fn trunc(x: f64) -> f64 {
        x.trunc()
    }
    extern "C" fn nearbyintf(x: f32) -> f32 {
        x.round_ties_even()
    }
    extern "C" fn nearbyint(x: f64) -> f64 {
        x.round_ties_even()
    }
    extern "C" fn fmaf(x: f32, y: f32, z: f32) -> f32 {
        x.mul_add(y, z)
    }
    extern "C" fn fma(x: f64, y: f64, z: f64) -> f64 {
        x.mul_add(y, z)
    }
    [
        ("ceilf", ceilf as *const u8),
        ("ceil", ceil as *const u8),
        ("floorf", floorf as *const u8),
        ("floor", floor as *const u8),
        ("truncf", truncf as *const u8),
        ("trunc", trunc as *const u8),
        ("nearbyintf", nearbyintf as *const u8),
        ("nearbyint", nearbyint as *const u8),
        ("fmaf", fmaf as *const u8),
        ("fma", fma as *const u8),
    ]
}

/// The symbols of the host that the corpus refers to.
pub fn host_symbols() -> Vec<(String, *const u8)> {
    let library = library_functions().map(|(name, address)| (name.to_string(), address));
    let functions = host_functions().map(|(kind, address)| (format!("host_{kind}"), address));
    let data = [("host_data".to_string(), (&raw const HOST_DATA).cast()), ("low".to_string(), LOW as *const u8)];
    functions.into_iter().chain(data).chain(library).collect()
}

/// Makes the functions of all references.
pub fn add(corpus: &mut Corpus<'_>) {
    for (kind, _) in host_functions() {
        let name = format!("calls_host_{kind}");
        corpus.case(&name, |corpus| host_call(corpus, &name, kind));
    }
    for (name, make) in CASES {
        corpus.case(name, |corpus| make(corpus, name));
    }
}

/// Makes functions whose code has no instructions for what it does, and calls libraries instead. The module is for a processor
/// with the oldest instructions only.
pub fn add_library_calls(corpus: &mut Corpus<'_>) {
    for kind in [types::F32, types::F64] {
        let name = format!("library_{kind}");
        corpus.case(&name, |corpus| {
            corpus.entry(&name, &|_, code, values| {
                let [a, b, c] = [0, 1, 2].map(|index| load(code, kind, values[0], index));
                let results = [
                    code.ins().ceil(a),
                    code.ins().floor(a),
                    code.ins().trunc(a),
                    code.ins().nearest(a),
                    code.ins().fma(a, b, c),
                ];
                results.into_iter().zip(0..).for_each(|(result, index)| store(code, result, values[1], index));
            });
        });
    }
}

type Make = fn(&mut Corpus<'_>, &str);

const CASES: [(&str, Make); 10] = [
    ("memory_of_libraries", memory_calls),
    ("library_function_by_name", |corpus, name| imported(corpus, name, "labs")),
    ("reads_host_data", |corpus, name| reads(corpus, name, "host_data", Linkage::Import)),
    ("reads_local_data", |corpus, name| reads(corpus, name, "local_data", Linkage::Local)),
    ("reads_exported_data", |corpus, name| reads(corpus, name, "exported_data", Linkage::Export)),
    ("data_that_points_to_data", pointers),
    ("aligned_data", aligned),
    ("variable", variable),
    ("bytes_that_call", bytes_that_call),
    ("bytes_with_addresses", bytes_with_addresses),
];

fn host_call(corpus: &mut Corpus<'_>, name: &str, kind: Type) {
    let signature = corpus.signature(CallConv::SystemV, &[kind, kind], &[kind]);
    let callee = corpus.declare(&format!("host_{kind}"), Linkage::Import, &signature);
    calls(corpus, name, kind, callee);
}

/// `memcpy`, `memmove`, `memset` and `memcmp`.
fn memory_calls(corpus: &mut Corpus<'_>, name: &str) {
    corpus.entry(name, &|module, code, values| {
        let (config, size) = (module.target_config(), code.ins().iconst(types::I64, 40));
        code.call_memcpy(config, values[1], values[0], size);
        let moved = code.ins().iadd_imm_s(values[1], 8);
        code.call_memmove(config, moved, values[1], size);
        let (byte, few) = (code.ins().iconst(types::I8, 0x5a), code.ins().iconst(types::I64, 5));
        code.call_memset(config, values[1], byte, few);
        let order = code.call_memcmp(config, values[0], values[1], size);
        let is_less = code.ins().ushr_imm_u(order, 31);
        store(code, is_less, values[1], 20);
    });
}

fn imported(corpus: &mut Corpus<'_>, name: &str, callee: &str) {
    let signature = corpus.signature(CallConv::SystemV, &[types::I64], &[types::I64]);
    let callee = corpus.declare(callee, Linkage::Import, &signature);
    corpus.entry(name, &|module, code, values| {
        let argument = load(code, types::I64, values[0], 0);
        let callee = module.declare_func_in_func(callee, code.func);
        let call = code.ins().call(callee, &[argument]);
        let result = code.inst_results(call)[0];
        store(code, result, values[1], 0);
    });
}

fn data(corpus: &mut Corpus<'_>, name: &str, linkage: Linkage, is_writable: bool, content: &[u8]) -> DataId {
    let id = corpus.module.declare_data(name, linkage, is_writable, false).unwrap();
    if linkage != Linkage::Import {
        let mut description = DataDescription::new();
        description.define(content.into());
        corpus.module.define_data(id, &description).unwrap();
    }
    id
}

fn reads(corpus: &mut Corpus<'_>, name: &str, object: &str, linkage: Linkage) {
    let object = data(corpus, object, linkage, false, &[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3]);
    corpus.entry(name, &|module, code, values| {
        let object = module.declare_data_in_func(object, code.func);
        let address = code.ins().symbol_value(types::I64, object);
        for index in [0, 1] {
            let number = load(code, types::I64, address, index);
            store(code, number, values[1], index);
        }
    });
}

/// A table that points into other data, and to itself.
fn pointers(corpus: &mut Corpus<'_>, name: &str) {
    let numbers: Vec<u8> = (100u64..104).flat_map(u64::to_le_bytes).collect();
    let numbers = data(corpus, "pointed_to", Linkage::Local, false, &numbers);
    let table = corpus.module.declare_data("pointers", Linkage::Export, true, false).unwrap();
    let mut description = DataDescription::new();
    description.define_zeroinit(32);
    let numbers = corpus.module.declare_data_in_data(numbers, &mut description);
    let itself = corpus.module.declare_data_in_data(table, &mut description);
    description.write_data_addr(0, numbers, 0);
    description.write_data_addr(8, numbers, 16);
    description.write_data_addr(24, itself, 8);
    corpus.module.define_data(table, &description).unwrap();
    corpus.entry(name, &|module, code, values| {
        let table = module.declare_data_in_func(table, code.func);
        let table = code.ins().symbol_value(types::I64, table);
        let (first, itself) = (load(code, types::I64, table, 0), load(code, types::I64, table, 3));
        let second = load(code, types::I64, itself, 0);
        for (address, index) in [(first, 0), (second, 1)] {
            let number = load(code, types::I64, address, 0);
            store(code, number, values[1], index);
        }
    });
}

fn aligned(corpus: &mut Corpus<'_>, name: &str) {
    let objects: Vec<DataId> = [64, 4096, 1, 16]
        .into_iter()
        .map(|align| {
            let object = corpus.module.declare_data(&format!("aligned_{align}"), Linkage::Local, true, false).unwrap();
            let mut description = DataDescription::new();
            description.define(vec![align as u8; 24].into());
            description.set_align(align);
            corpus.module.define_data(object, &description).unwrap();
            object
        })
        .collect();
    corpus.entry(name, &|module, code, values| {
        for ((object, align), index) in objects.iter().zip([64, 4096, 1, 16]).zip(0..) {
            let object = module.declare_data_in_func(*object, code.func);
            let address = code.ins().symbol_value(types::I64, object);
            let rest = code.ins().band_imm_u(address, align - 1);
            store(code, rest, values[1], index);
        }
    });
}

/// A variable that keeps its value from call to call.
fn variable(corpus: &mut Corpus<'_>, name: &str) {
    let variable = data(corpus, "counter", Linkage::Local, true, &5u64.to_le_bytes());
    corpus.entry(name, &|module, code, values| {
        let variable = module.declare_data_in_func(variable, code.func);
        let address = code.ins().symbol_value(types::I64, variable);
        let old = load(code, types::I64, address, 0);
        let new = code.ins().imul_imm_s(old, 3);
        store(code, new, address, 0);
        store(code, old, values[1], 0);
    });
}

/// Defines machine code with relocations, under a signature of no parameters and one number.
fn bytes(corpus: &mut Corpus<'_>, name: &str, code: &[u8], relocations: &[ModuleReloc]) -> FuncId {
    let signature = corpus.signature(CallConv::SystemV, &[], &[types::I64]);
    let id = corpus.declare(name, Linkage::Export, &signature);
    corpus.module.define_function_bytes(id, 16, code, relocations).unwrap();
    corpus.relocations.extend(relocations.iter().map(|relocation| format!("{:?}", relocation.kind)));
    id
}

fn stores_results(corpus: &mut Corpus<'_>, name: &str, callees: &[FuncId]) {
    let fill: Fill<'_> = &|module, code, values| {
        for (callee, index) in callees.iter().zip(0..) {
            let callee = module.declare_func_in_func(*callee, code.func);
            let call = code.ins().call(callee, &[]);
            let result = code.inst_results(call)[0];
            store(code, result, values[1], index);
        }
    };
    corpus.entry(name, fill);
}

fn function_target(id: FuncId) -> ModuleRelocTarget {
    ModuleRelocTarget::user(0, id.as_u32())
}

fn bytes_that_call(corpus: &mut Corpus<'_>, name: &str) {
    let leaf = bytes(corpus, "bytes_leaf", &machine_code::returns(7), &[]);
    if !IS_X86_64 {
        // stp x29, x30, [sp, #-16]!; bl leaf; add x0, x0, #1; ldp x29, x30, [sp], #16; ret
        let calls = words(&[0xa9bf_7bfd, 0x9400_0000, 0x9100_0400, 0xa8c1_7bfd, 0xd65f_03c0]);
        let call = ModuleReloc { offset: 4, kind: Reloc::Arm64Call, name: function_target(leaf), addend: 0 };
        let near = bytes(corpus, "bytes_near", &calls, &[call]);
        return stores_results(corpus, name, &[leaf, near]);
    }
    // push %rbx; call leaf; inc %rax; pop %rbx; ret
    let calls = [0x53, 0xe8, 0, 0, 0, 0, 0x48, 0xff, 0xc0, 0x5b, 0xc3];
    let relocation = |kind| ModuleReloc { offset: 2, kind, name: function_target(leaf), addend: -4 };
    let near = bytes(corpus, "bytes_near", &calls, &[relocation(Reloc::X86CallPCRel4)]);
    let far = bytes(corpus, "bytes_relative", &calls, &[relocation(Reloc::X86PCRel4)]);
    stores_results(corpus, name, &[leaf, near, far]);
}

fn bytes_with_addresses(corpus: &mut Corpus<'_>, name: &str) {
    let number = data(corpus, "number_of_bytes", Linkage::Export, false, &77u64.to_le_bytes());
    let (low, data_name) =
        (data(corpus, "low", Linkage::Import, false, &[]), ModuleRelocTarget::user(1, number.as_u32()));
    if !IS_X86_64 {
        return words_with_addresses(corpus, name, low, data_name);
    }
    // mov $low + 1, %eax; ret
    let low = ModuleReloc { offset: 1, kind: Reloc::Abs4, name: ModuleRelocTarget::user(1, low.as_u32()), addend: 1 };
    let narrow = bytes(corpus, "bytes_narrow", &[0xb8, 0, 0, 0, 0, 0xc3], &[low]);
    // movabs $number, %rax; mov (%rax), %rax; ret
    let wide = ModuleReloc { offset: 2, kind: Reloc::Abs8, name: data_name, addend: 0 };
    let wide = bytes(corpus, "bytes_wide", &[0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0x48, 0x8b, 0x00, 0xc3], &[wide]);
    // The four bytes of `bytes_narrow` after its opcode: movabs $bytes_narrow + 1, %rax; movslq (%rax), %rax; ret
    let inside =
        ModuleReloc { offset: 2, kind: Reloc::Abs8, name: ModuleRelocTarget::FunctionOffset(narrow, 1), addend: 0 };
    let inside =
        bytes(corpus, "bytes_inside", &[0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0x48, 0x63, 0x00, 0xc3], &[inside]);
    stores_results(corpus, name, &[narrow, wide, inside]);
}

fn words_with_addresses(corpus: &mut Corpus<'_>, name: &str, low: DataId, number: ModuleRelocTarget) {
    // ldr w0, . + 8; ret; .word low + 1
    let low = ModuleReloc { offset: 8, kind: Reloc::Abs4, name: ModuleRelocTarget::user(1, low.as_u32()), addend: 1 };
    let narrow = bytes(corpus, "bytes_narrow", &words(&[0x1800_0040, 0xd65f_03c0, 0]), &[low]);
    // ldr x0, . + 16; ldr x0, [x0]; ret; nop; .quad number
    let code = words(&[0x5800_0080, 0xf940_0000, 0xd65f_03c0, 0xd503_201f, 0, 0]);
    let wide = ModuleReloc { offset: 16, kind: Reloc::Abs8, name: number, addend: 0 };
    let wide = bytes(corpus, "bytes_wide", &code, &[wide]);
    // The word of `bytes_narrow`: ldr x0, . + 16; ldrsw x0, [x0]; ret; nop; .quad bytes_narrow + 8
    let code = words(&[0x5800_0080, 0xb980_0000, 0xd65f_03c0, 0xd503_201f, 0, 0]);
    let inside =
        ModuleReloc { offset: 16, kind: Reloc::Abs8, name: ModuleRelocTarget::FunctionOffset(narrow, 8), addend: 0 };
    let inside = bytes(corpus, "bytes_inside", &code, &[inside]);
    stores_results(corpus, name, &[narrow, wide, inside]);
}

fn words(instructions: &[u32]) -> Vec<u8> {
    instructions.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
}
