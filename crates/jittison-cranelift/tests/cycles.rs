//! Definitions and removals leave nothing behind: not in code memory, not in the session, not in the process.

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir::{AbiParam, types};
use cranelift_module::{FuncId, Linkage, Module, ModuleReloc, ModuleRelocTarget, default_libcall_names};
use jittison::Jit;
use jittison_cranelift::{Grouping, JITBuilder, JITModule};
use jittison_test_support::machine_code;

/// The number of cycles: 6,000, or what `JITTISON_CYCLES` says. A tenth of them must be more than are live at a time.
fn cycles() -> usize {
    std::env::var("JITTISON_CYCLES").map_or(6_000, |count| count.parse().expect("a number"))
}

/// Functions that are live at a time.
const LIVE: usize = 500;

/// Resident bytes of the process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// `int f(void) { return callee() + number; }`, and the relocation of its call.
fn calls_and_adds(callee: FuncId, number: u32) -> (Vec<u8>, ModuleReloc) {
    let name = ModuleRelocTarget::user(0, callee.as_u32());
    if cfg!(target_arch = "x86_64") {
        // push %rbx; call callee; add $number, %eax; pop %rbx; ret
        let code = [&[0x53, 0xe8, 0, 0, 0, 0, 0x05][..], &number.to_le_bytes(), &[0x5b, 0xc3]].concat();
        return (code, ModuleReloc { offset: 2, kind: Reloc::X86CallPCRel4, name, addend: -4 });
    }
    let half = |shift: u32| (number >> shift & 0xffff) << 5;
    // stp x29, x30, [sp, #-16]!; bl callee; mov w1, #low; movk w1, #high, lsl 16; add w0, w0, w1; ldp x29, x30, [sp], #16; ret
    let (low, high) = (0x5280_0001 | half(0), 0x72a0_0001 | half(16));
    let code = [0xa9bf_7bfd_u32, 0x9400_0000, low, high, 0x0b01_0000, 0xa8c1_7bfd, 0xd65f_03c0];
    let code = code.iter().flat_map(|instruction| instruction.to_le_bytes()).collect();
    (code, ModuleReloc { offset: 4, kind: Reloc::Arm64Call, name, addend: 0 })
}

/// Defines, calls and removes functions of different sizes, each of which calls one that stays. `from` is the number of the first.
fn run(module: &mut JITModule, ids: &[FuncId], callee: FuncId, from: usize, count: usize) {
    for number in from..from + count {
        let id = ids[number % ids.len()];
        if number >= LIVE {
            // It is live since LIVE cycles.
            module.remove_function(id).unwrap();
        }
        let (mut code, call) = calls_and_adds(callee, number as u32);
        // What no one runs.
        code.resize(code.len() + number * 37 % 300, machine_code::TRAP);
        module.define_function_bytes(id, 16, &code, &[call]).unwrap();
        module.finalize_definitions().unwrap();
        // Safety: the code has this signature.
        let function = unsafe { module.function::<extern "C" fn() -> u32>(id).unwrap() };
        assert_eq!(function.call(), number as u32 + 7);
    }
}

#[test]
fn cycles_of_definition_and_removal_are_flat_in_memory() {
    let jit = Jit::new().unwrap();
    let mut builder = JITBuilder::new(default_libcall_names()).unwrap();
    builder.session(&jit).grouping(Grouping::Single).remove_on_drop(true);
    let mut module = JITModule::new(builder);
    let mut signature = module.make_signature();
    signature.returns.push(AbiParam::new(types::I32));
    let mut declare = |name: &str| module.declare_function(name, Linkage::Export, &signature).unwrap();
    let callee = declare("callee");
    let ids: Vec<FuncId> = (0..LIVE).map(|number| declare(&format!("cycle_{number}"))).collect();
    module.define_function_bytes(callee, 16, &machine_code::returns(7), &[]).unwrap();
    // What the first tenth needs is kept for the rest.
    let (warm, rest) = (cycles() / 10, cycles() - cycles() / 10);
    run(&mut module, &ids, callee, 0, warm);
    let (symbols, held, before) = (module.dylib().symbol_count(), jit.memory_statistics(), resident());
    run(&mut module, &ids, callee, warm, rest);
    let growth = resident().saturating_sub(before);
    println!("{} cycles: {growth} more bytes resident, {} bytes of code memory", cycles(), held.live_bytes);
    assert_eq!(module.dylib().symbol_count(), symbols);
    let now = jit.memory_statistics();
    let most = held.live_bytes + held.live_bytes / 10;
    assert!(now.live_bytes <= most, "{} live bytes after {}", now.live_bytes, held.live_bytes);
    // A few pages, wherever the heap puts them.
    assert!(growth < 512 << 10, "{growth} more bytes resident");
    ids.iter().for_each(|id| drop(module.remove_function(*id).unwrap()));
    drop(module);
    assert_eq!(jit.memory_statistics().live_bytes, 0);
}
