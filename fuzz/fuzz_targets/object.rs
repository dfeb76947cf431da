//! Fuzz target: the input is an object. The target scans its interface and links it completely, in memory that never
//! runs.
//!
//! It runs every step that depends on the object: reading, claiming, layout, fix-up, unwind tables, initialisers. The
//! other inputs of a link are made up: the addresses of external symbols, and the place of the thread-local block, for
//! which the C library would otherwise load a module.

#![no_main]

mod limits;
mod mutator;

use std::sync::Arc;

use jittison::base::{ExecutorAddr, TlsIndex};
use jittison::link::{
    FixedLink, FoundExternal, LinkedObject, ObjectBuffer, ObjectInterface, PlacedLink, PlannedLink, ThreadLocalPlace,
};
use jittison::memory::{MemoryManager, OfflineMemory};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

use limits::Limits;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::start();
    let _ = ObjectInterface::scan("fuzzed.o", bytes);
    let object = ObjectBuffer::from(bytes);
    // First the object owns all its definitions; then other objects own some of them.
    let _ = link(object.clone(), |_| true);
    let _ = link(object, |name| hash(name) & 1 == 0);
    limits.check(bytes.len());
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutator::mutate(data, size, max_size, seed)
});

/// Links the object with the steps that `layer` uses.
fn link(object: ObjectBuffer, is_owned: impl Fn(&str) -> bool) -> Result<LinkedObject, jittison::Error> {
    let memory = OfflineMemory::new(ExecutorAddr::new(BASE));
    let linked = link_in(&memory, object, is_owned);
    let statistics = memory.statistics();
    assert_eq!((statistics.allocations, statistics.live_bytes), (0, 0), "the link frees its memory");
    linked
}

fn link_in(
    memory: &OfflineMemory,
    object: ObjectBuffer,
    is_owned: impl Fn(&str) -> bool,
) -> Result<LinkedObject, jittison::Error> {
    let planned = PlannedLink::plan(Arc::from("fuzzed.o"), object, is_owned, |_| Ok(()))?;
    let _ = (planned.got_slot_count(), planned.stub_count(), planned.segment_plan().requested_bytes());
    let mut placed = planned.allocate(memory)?;
    let image = place_thread_locals(&mut placed)?;
    for (name, address) in placed.definitions() {
        std::hint::black_box((name, address));
    }
    let found: Vec<FoundExternal> =
        placed.externals().map(|external| made_up(external.name, external.required)).collect();
    let mut image = image;
    let (linked, sealed) = placed.finish_in_passes(&found, image.as_deref_mut(), |fixed| {
        inspect(fixed);
        Ok(())
    })?;
    drop(sealed);
    Ok(linked)
}

/// Places the thread-local block. Returns its image if the fix-up has to complete it.
fn place_thread_locals(placed: &mut PlacedLink) -> Result<Option<Vec<u8>>, jittison::Error> {
    let Some(plan) = placed.thread_local_plan().copied() else { return Ok(None) };
    let (image, is_complete) = placed.thread_local_image()?;
    let static_offset = (plan.is_static || plan.size < 128).then_some(-4096 - plan.size as i64);
    placed.place_thread_locals(ThreadLocalPlace { module: OWN_MODULE, static_offset });
    Ok((!is_complete).then_some(image))
}

/// Calls what a plugin may call.
fn inspect(fixed: &mut FixedLink<'_>) {
    let symbols: Vec<_> = fixed.graph().symbols().map(|(index, _)| index).collect();
    for symbol in symbols {
        std::hint::black_box((fixed.symbol_address(symbol), fixed.got_slot(symbol), fixed.stub(symbol)));
    }
    let blocks: Vec<_> = fixed.graph().blocks().map(|(id, _)| id).collect();
    for block in blocks {
        std::hint::black_box((fixed.block_address(block), fixed.bytes(block).len()));
    }
}

/// A made-up definition of an external symbol: near, far, low, null or thread-local. The name decides which.
fn made_up(name: &str, required: bool) -> FoundExternal {
    let hash = hash(name);
    let function = |address: u64| FoundExternal {
        address: ExecutorAddr::new(address),
        is_callable: hash & 64 == 0,
        thread_local: None,
        block_align: 0,
    };
    match hash % 8 {
        0 if !required => FoundExternal::default(),
        0 | 1 => function(0x1000 + hash % 4096),
        2 => function(0x7fff_0000_0000 + hash % 4096),
        3 => function(u64::MAX - hash % 4096),
        4 => FoundExternal {
            address: TlsIndex { module: OWN_MODULE + 1, offset: hash as u32 }.to_address(),
            is_callable: false,
            thread_local: Some((hash & 64 == 0).then_some(-0x10_0000)),
            block_align: 1 << (hash % 16),
        },
        _ => function(BASE + (64 << 20) + hash % 4096),
    }
}

/// FNV-1a, which is the same in every run.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Below 2 GiB, so that code of all code models links.
const BASE: u64 = 0x1000_0000;
const OWN_MODULE: u32 = 3;
