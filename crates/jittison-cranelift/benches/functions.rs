//! One function at a time, beside cranelift-jit: `cargo bench -p jittison-cranelift`. Compile time is left out: both get the same
//! machine code (`define_function_bytes`). Names are new each time, orders are random.
//!
//! Each figure is the median of seven runs. cranelift-jit cannot free one function, so its figure there is that of a module of
//! one function. Two callers and the thread that redefines share the processors: where there are two, that thread waits for one a
//! third of the time or more, so its processor time is a row of its own. Arguments choose rows by parts of their names: `-- one,`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
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
    // First, because later rows would use again what earlier ones have freed.
    row("resident bytes a live function beyond its code", &String::new, &|| format!("{} B", resident_bytes()));
    row("one function, defined to callable", &|| us(median(peer_one)), &|| us(median(own_one)));
    row("the same of 100 in a module, each", &|| us(median(peer_hundred)), &|| us(median(own_hundred)));
    row("free one of 10,000 (peer: a module of one)", &|| us(median(peer_free)), &|| us(median(own_free)));
    row("redefine one that nobody calls", &String::new, &|| us(median(|| own_redefinition(0).wall)));
    row("redefine one under two callers", &String::new, &|| us(median(|| own_redefinition(2).wall)));
    row("the same, processor time of that thread", &String::new, &|| us(median(|| own_redefinition(2).processor)));
    row("heap allocations of one function", &|| allocations_of_one(&mut peer_module()), &|| {
        allocations_of_one(&mut own_module(&Jit::new().unwrap(), Grouping::Single))
    });
}

/// Prints a row if the arguments choose it.
fn row(what: &str, peer: &dyn Fn() -> String, own: &dyn Fn() -> String) {
    let mut chosen = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    if chosen.peek().is_none() || chosen.any(|part| what.contains(&part)) {
        println!("{what:<56} {:>14} {:>14}", peer(), own());
    }
}

fn us(time: Duration) -> String {
    format!("{:.2} µs", time.as_secs_f64() * 1e6)
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

/// The names are declared before: a declaration compiles and links nothing.
fn one(module: &mut impl Defines) -> Duration {
    let ids: Vec<FuncId> = (0..ROUNDS + 100).map(|number| declare(module, number)).collect();
    per_round(|number| {
        module.define_function_bytes(ids[number], 16, &LEAF, &[]).unwrap();
        assert!(!module.finalize(ids[number]).is_null());
    })
}

fn own_one() -> Duration {
    one(&mut own_module(&Jit::new().unwrap(), Grouping::Single))
}

fn peer_one() -> Duration {
    one(&mut peer_module())
}

/// Defines functions, each of which calls the one before.
fn define_hundred(module: &mut impl Module, ids: &[FuncId]) {
    module.define_function_bytes(ids[0], 16, &LEAF, &[]).unwrap();
    for pair in ids.windows(2) {
        let name = ModuleRelocTarget::user(0, pair[0].as_u32());
        let call = ModuleReloc { offset: 2, kind: Reloc::X86CallPCRel4, name, addend: -4 };
        module.define_function_bytes(pair[1], 16, &CALLS, &[call]).unwrap();
    }
}

/// The time of each function of modules of 100.
fn hundred(module: &mut impl Defines) -> Duration {
    let ids: Vec<FuncId> = (0..5000).map(|number| declare(module, number)).collect();
    let start = Instant::now();
    for ids in ids.chunks(100) {
        define_hundred(module, ids);
        assert!(!module.finalize(ids[99]).is_null());
    }
    start.elapsed() / 5000
}

fn own_hundred() -> Duration {
    hundred(&mut own_module(&Jit::new().unwrap(), Grouping::Manual))
}

fn peer_hundred() -> Duration {
    hundred(&mut peer_module())
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

/// The time of one redefinition.
struct Redefinition {
    wall: Duration,
    /// For which the thread had a processor.
    processor: Duration,
}

/// Redefines a function while `callers` threads call it through a handle.
fn own_redefinition(callers: usize) -> Redefinition {
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
        for _ in 0..callers {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(handle.call(), 7);
                }
            });
        }
        // The callers end also if this thread panics.
        let _end = EndOnDrop(&done);
        let mut begin = Duration::ZERO;
        let wall = per_round(|round| {
            if round == 100 {
                begin = processor_time();
            }
            redefine(&mut module);
        });
        Redefinition { wall, processor: (processor_time() - begin) / ROUNDS as u32 }
    })
}

/// How long this thread has had a processor.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time that it is given, and nothing else.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sets a flag when it is dropped.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The allocations from the declaration of a function to its address, when many are live. Those of tables that grow now and then
/// are not counted: it is the median.
fn allocations_of_one(module: &mut impl Defines) -> String {
    let mut counts: Vec<u64> = (0..1000)
        .map(|number| {
            let id = declare(module, number);
            let before = ALLOCATIONS.get();
            module.define_function_bytes(id, 16, &LEAF, &[]).unwrap();
            assert!(!module.finalize(id).is_null());
            ALLOCATIONS.get() - before
        })
        .collect();
    counts.sort_unstable();
    counts[counts.len() / 2].to_string()
}

/// Both modules have these methods.
trait Defines: Module {
    /// Finalises what is defined, and returns the address of a function.
    fn finalize(&mut self, id: FuncId) -> *const u8;
}

impl Defines for JITModule {
    fn finalize(&mut self, id: FuncId) -> *const u8 {
        self.finalize_definitions().unwrap();
        self.get_finalized_function(id)
    }
}

impl Defines for cranelift_jit::JITModule {
    fn finalize(&mut self, id: FuncId) -> *const u8 {
        self.finalize_definitions().unwrap();
        self.get_finalized_function(id)
    }
}

thread_local! {
    /// The allocations of this thread so far.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator with a counter.
struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

// SAFETY: each method calls the same method of the system's allocator. Counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The growth of the process for each of 20,000 live functions, without the memory that is reserved for their code.
fn resident_bytes() -> u64 {
    let jit = Jit::new().unwrap();
    let mut module = own_module(&jit, Grouping::Single);
    let ids: Vec<FuncId> = (0..22_000).map(|number| declare(&mut module, number)).collect();
    define_all(&mut module, &ids[..2000]);
    let code = || jit.memory_statistics().pools[0].reserved;
    let before = (resident(), code());
    define_all(&mut module, &ids[2000..]);
    (resident() - before.0 - (code() - before.1)) / 20_000
}

/// Resident bytes of the process. A page that it has mapped twice, as those of code, counts once.
fn resident() -> u64 {
    let sizes = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = sizes.lines().find(|line| line.starts_with("Pss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// A fixed order that looks random.
fn shuffle(ids: &mut [FuncId]) {
    let mut state = 1u64;
    for at in (1..ids.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ids.swap(at, (state >> 33) as usize % (at + 1));
    }
}
