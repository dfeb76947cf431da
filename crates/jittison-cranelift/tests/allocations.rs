//! The allocations of functions that come and go one by one: exact counts, of one thread, while many functions are live. And the
//! heap memory of a live function.

// The error type is Cranelift's.
#![allow(clippy::result_large_err)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use cranelift_codegen::ir;
use cranelift_module::{FuncId, Linkage, Module, default_libcall_names};
use jittison::Jit;
use jittison_cranelift::{Grouping, JITBuilder, JITModule};
use jittison_test_support::machine_code;

/// Debug builds keep a description of each graph and check each link once more.
const DEFINITION: u64 = if cfg!(debug_assertions) { 13 } else { 4 };
const REDEFINITION: u64 = if cfg!(debug_assertions) { 16 } else { 7 };

/// Locks have ranks in debug builds.
const HEAP_BYTES: i64 = if cfg!(debug_assertions) { 418 } else { 402 };

#[test]
fn a_definition_allocates_four_times() {
    let (mut module, code) = (module(Grouping::Single), machine_code::returns(7));
    let count = median(|number| {
        let id = declare(&mut module, number);
        allocations_of(|| {
            module.define_function_bytes(id, 16, &code, &[]).unwrap();
            module.finalize_definitions().unwrap();
            assert!(!module.get_finalized_function(id).is_null());
        })
    });
    assert!(count <= DEFINITION, "{count}");
}

#[test]
fn a_removal_allocates_nothing() {
    let (mut module, code) = (module(Grouping::Single), machine_code::returns(7));
    let ids: Vec<FuncId> = (0..ROUNDS).map(|number| declare(&mut module, number)).collect();
    for id in &ids {
        module.define_function_bytes(*id, 16, &code, &[]).unwrap();
        module.finalize_definitions().unwrap();
    }
    let count = median(|number| allocations_of(|| drop(module.remove_function(ids[number]).unwrap())));
    assert_eq!(count, 0);
}

#[test]
fn a_redefinition_allocates_seven_times() {
    let (mut module, code) = (module(Grouping::Manual), machine_code::returns(7));
    let id = declare(&mut module, 0);
    let count = median(|_| {
        // Safety: the code has the signature of the declaration.
        allocations_of(|| drop(unsafe { module.redefine_function_bytes(id, 16, &code, &[]) }.unwrap()))
    });
    assert!(count <= REDEFINITION, "{count}");
}

/// Tables grow by pages, or to twice their size. So the count is that of as many functions as are live before.
#[test]
fn a_live_function_takes_few_bytes_of_heap() {
    const FUNCTIONS: usize = 1 << 12;
    let (mut module, code) = (module(Grouping::Single), machine_code::returns(7));
    let ids: Vec<FuncId> = (10_000..10_000 + 2 * FUNCTIONS).map(|number| declare(&mut module, number)).collect();
    let mut define = |ids: &[FuncId]| {
        for id in ids {
            module.define_function_bytes(*id, 16, &code, &[]).unwrap();
            module.finalize_definitions().unwrap();
        }
        LIVE_BYTES.get()
    };
    let before = define(&ids[..FUNCTIONS]);
    let bytes = (define(&ids[FUNCTIONS..]) - before) / FUNCTIONS as i64;
    assert!(bytes <= HEAP_BYTES, "{bytes}");
}

const ROUNDS: usize = 301;

/// The median of the counts that `round` returns. Tables grow in a few rounds.
fn median(round: impl FnMut(usize) -> u64) -> u64 {
    let mut counts: Vec<u64> = (0..ROUNDS).map(round).collect();
    counts.sort_unstable();
    counts[ROUNDS / 2]
}

fn module(grouping: Grouping) -> JITModule {
    let mut builder = JITBuilder::new(default_libcall_names()).unwrap();
    builder.session(&Jit::new().unwrap()).grouping(grouping).remove_on_drop(true);
    JITModule::new(builder)
}

fn declare(module: &mut JITModule, number: usize) -> FuncId {
    let mut signature = module.make_signature();
    signature.returns.push(ir::AbiParam::new(ir::types::I64));
    module.declare_function(&format!("function_{number}"), Linkage::Export, &signature).unwrap()
}

fn allocations_of(body: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    body();
    ALLOCATIONS.get() - before
}

thread_local! {
    /// The allocations of this thread so far.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// The heap memory that this thread has allocated and not freed.
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Counts an allocation of `size` bytes.
fn count_allocation(size: usize) {
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
    let _ = LIVE_BYTES.try_with(|bytes| bytes.set(bytes.get() + block_bytes(size)));
}

fn count_free(size: usize) {
    let _ = LIVE_BYTES.try_with(|bytes| bytes.set(bytes.get() - block_bytes(size)));
}

/// The bytes that the allocator of the GNU C library takes for a block: with its header, in units of 16.
fn block_bytes(size: usize) -> i64 {
    (size + 8).next_multiple_of(16).max(32) as i64
}

/// The system's allocator with counters.
struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

// SAFETY: each method calls the same method of the system's allocator. Counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_free(layout.size());
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_free(layout.size());
        count_allocation(size);
        // SAFETY: the caller keeps the contract of the same method.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
