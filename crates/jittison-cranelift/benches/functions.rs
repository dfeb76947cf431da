//! One function at a time, beside cranelift-jit: `cargo bench -p jittison-cranelift`. Compile time is left out: both get the same
//! machine code (`define_function_bytes`). Names are new each time, orders are random.
//!
//! Each figure is the median of seven runs. cranelift-jit cannot free one function, so its figure there is that of a module of
//! one function.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::ir;
use cranelift_module::{FuncId, Linkage, Module, ModuleReloc, ModuleRelocTarget, default_libcall_names};
use jittison::Jit;
use jittison_cranelift::{Grouping, JITBuilder, JITModule};

/// `push %rbx; call callee; inc %rax; pop %rbx; ret`, with the callee's field at offset 2.
const CALLS: [u8; 11] = [0x53, 0xe8, 0, 0, 0, 0, 0x48, 0xff, 0xc0, 0x5b, 0xc3];
/// `mov $7, %eax; ret`
const LEAF: [u8; 6] = [0xb8, 7, 0, 0, 0, 0xc3];

fn main() {
    println!("{:<56} {:>14} {:>14}", "", "cranelift-jit", "here");
    row("one function, defined to callable", median(peer_one), median(own_one));
    row("the same of 100 in a module, each", median(peer_hundred), median(own_hundred));
    row("free one of 10,000 (peer: a module of one)", median(peer_free), median(own_free));
    let redefined = median(own_redefinition);
    println!("{:<56} {:>14} {:>11.2} µs", "redefine one under two callers", "", redefined.as_secs_f64() * 1e6);
    println!("{:<56} {:>14} {:>12} B", "resident bytes a live function, code included", "", resident_bytes());
}

fn row(what: &str, peer: Duration, own: Duration) {
    println!("{what:<56} {:>11.2} µs {:>11.2} µs", peer.as_secs_f64() * 1e6, own.as_secs_f64() * 1e6);
}

/// The median of the times that runs return.
fn median(run: impl Fn() -> Duration) -> Duration {
    let mut times: Vec<Duration> = (0..7).map(|_| run()).collect();
    times.sort();
    times[times.len() / 2]
}

fn declare(module: &mut impl Module, number: usize) -> FuncId {
    let mut signature = module.make_signature();
    signature.returns.push(ir::AbiParam::new(ir::types::I64));
    module.declare_function(&format!("function_{number}"), Linkage::Export, &signature).unwrap()
}

fn own_module(jit: &Jit, grouping: Grouping) -> JITModule {
    let mut builder = JITBuilder::new(default_libcall_names()).unwrap();
    builder.session(jit).grouping(grouping).remove_on_drop(true);
    JITModule::new(builder)
}

fn peer_module() -> cranelift_jit::JITModule {
    cranelift_jit::JITModule::new(cranelift_jit::JITBuilder::new(default_libcall_names()).unwrap())
}

const ROUNDS: usize = 2000;

/// The time of `step` in each of many rounds, after some that do not count.
fn per_round(mut step: impl FnMut(usize)) -> Duration {
    (0..100).for_each(&mut step);
    let start = Instant::now();
    (100..100 + ROUNDS).for_each(&mut step);
    start.elapsed() / ROUNDS as u32
}

fn own_one() -> Duration {
    let jit = Jit::new().unwrap();
    let mut module = own_module(&jit, Grouping::Single);
    per_round(|number| {
        let id = declare(&mut module, number);
        module.define_function_bytes(id, 16, &LEAF, &[]).unwrap();
        module.finalize_definitions().unwrap();
        assert!(!module.get_finalized_function(id).is_null());
    })
}

fn peer_one() -> Duration {
    let mut module = peer_module();
    per_round(|number| {
        let id = declare(&mut module, number);
        module.define_function_bytes(id, 16, &LEAF, &[]).unwrap();
        module.finalize_definitions().unwrap();
        assert!(!module.get_finalized_function(id).is_null());
    })
}

/// Defines 100 functions, each of which calls the one before.
fn define_hundred(module: &mut impl Module, first: usize) -> FuncId {
    let mut previous = declare(module, first);
    module.define_function_bytes(previous, 16, &LEAF, &[]).unwrap();
    for number in first + 1..first + 100 {
        let id = declare(module, number);
        let name = ModuleRelocTarget::user(0, previous.as_u32());
        let call = ModuleReloc { offset: 2, kind: Reloc::X86CallPCRel4, name, addend: -4 };
        module.define_function_bytes(id, 16, &CALLS, &[call]).unwrap();
        previous = id;
    }
    previous
}

fn own_hundred() -> Duration {
    let jit = Jit::new().unwrap();
    let mut module = own_module(&jit, Grouping::Manual);
    let start = Instant::now();
    for round in 0..50 {
        let last = define_hundred(&mut module, round * 100);
        module.finalize_definitions().unwrap();
        assert!(!module.get_finalized_function(last).is_null());
    }
    start.elapsed() / 5000
}

fn peer_hundred() -> Duration {
    let mut module = peer_module();
    let start = Instant::now();
    for round in 0..50 {
        let last = define_hundred(&mut module, round * 100);
        module.finalize_definitions().unwrap();
        assert!(!module.get_finalized_function(last).is_null());
    }
    start.elapsed() / 5000
}

/// Defines each function by itself.
fn define_all(module: &mut JITModule, ids: &[FuncId]) {
    for id in ids {
        module.define_function_bytes(*id, 16, &LEAF, &[]).unwrap();
        module.finalize_definitions().unwrap();
    }
}

fn own_free() -> Duration {
    let jit = Jit::new().unwrap();
    let mut module = own_module(&jit, Grouping::Single);
    let mut ids: Vec<FuncId> = (0..10_000).map(|number| declare(&mut module, number)).collect();
    define_all(&mut module, &ids);
    shuffle(&mut ids);
    let start = Instant::now();
    for id in &ids[..ROUNDS] {
        module.remove_function(*id).unwrap();
    }
    start.elapsed() / ROUNDS as u32
}

fn peer_free() -> Duration {
    let one = |number| {
        let mut module = peer_module();
        let id = declare(&mut module, number);
        module.define_function_bytes(id, 16, &LEAF, &[]).unwrap();
        module.finalize_definitions().unwrap();
        module
    };
    let modules: Vec<_> = (0..ROUNDS).map(one).collect();
    let start = Instant::now();
    for module in modules {
        // Safety: nothing calls its function.
        unsafe { module.free_memory() };
    }
    start.elapsed() / ROUNDS as u32
}

/// Redefines a function while two threads call it through a handle.
fn own_redefinition() -> Duration {
    let jit = Jit::new().unwrap();
    let mut module = own_module(&jit, Grouping::Manual);
    let id = declare(&mut module, 0);
    // Safety: the code has the signature of the declaration.
    let redefine =
        |module: &mut JITModule| drop(unsafe { module.redefine_function_bytes(id, 16, &LEAF, &[]) }.unwrap());
    redefine(&mut module);
    // Safety: as above.
    let handle = unsafe { jit.lookup_in::<extern "C" fn() -> i64>(module.dylib(), "function_0") }.unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(handle.call(), 7);
                }
            });
        }
        // The callers end also if this thread panics.
        let _end = EndOnDrop(&done);
        per_round(|_| redefine(&mut module))
    })
}

/// Sets a flag when it is dropped.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The growth of the process for each of 20,000 live functions.
fn resident_bytes() -> u64 {
    let jit = Jit::new().unwrap();
    let mut module = own_module(&jit, Grouping::Single);
    let ids: Vec<FuncId> = (0..22_000).map(|number| declare(&mut module, number)).collect();
    define_all(&mut module, &ids[..2000]);
    let before = resident();
    define_all(&mut module, &ids[2000..]);
    (resident() - before) / 20_000
}

/// Resident bytes of the process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// A fixed order that looks random.
fn shuffle(ids: &mut [FuncId]) {
    let mut state = 1u64;
    for at in (1..ids.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ids.swap(at, (state >> 33) as usize % (at + 1));
    }
}
