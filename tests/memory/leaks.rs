//! After all modules are removed, a session is as small as before: memory, mappings, names and keys.

use std::sync::Arc;

use jittison::link::ObjectBuffer;

use crate::support::*;

/// The allocated heap of the C library in KiB.
fn heap_kib() -> usize {
    // SAFETY: only reads counters.
    let heap = unsafe { libc::mallinfo2() };
    (heap.uordblks + heap.hblkhd) >> 10
}

/// The resident set of this process in KiB, after the C library has returned its free memory.
fn resident_kib() -> i64 {
    // SAFETY: returns free memory of the C library's heap to the kernel.
    unsafe { libc::malloc_trim(0) };
    (resident_bytes() >> 10) as i64
}

fn module() -> Option<ObjectBuffer> {
    let object = c("
        static long state = 7; long zero[40]; static const char *const words[] = { \"a\", \"b\" };
        long one(long x) { return x + state++; } long two(long x) { return x * 2 + zero[x]; }
        long three(long x) { return one(x) * two(x); } long (*table[])(long) = { one, two, three };
        long test(void) { return table[0](1) + table[1](2) + (words[1][0] == 'b'); }")?;
    Some(ObjectBuffer::new(Arc::<[u8]>::from(object)))
}

/// Links `modules` modules, each in its own dylib, then removes all of them.
fn link_and_remove(jit: &jittison::Jit, object: &ObjectBuffer, modules: usize) {
    let link = |_| {
        let dylib = jit.create_dylib("module").unwrap();
        let tracker = add_object(jit, &dylib, "module.o", object.clone());
        assert_eq!(long_in(jit, &dylib, "test"), 13);
        (dylib, tracker)
    };
    let live: Vec<_> = (0..modules).map(link).collect();
    for (dylib, tracker) in live {
        assert!(tracker.remove().unwrap().is_complete());
        assert!(jit.session().remove_dylib(&dylib).unwrap().is_empty());
    }
}

#[test]
fn a_session_does_not_grow_when_many_modules_are_linked_and_removed() {
    own_process!();
    let Some(object) = module() else { return };
    let jit = jittison::Jit::builder().trap_freed_code(false).build().unwrap();
    link_and_remove(&jit, &object, 100);
    jit.release_free();
    let (before, heap_before, mappings_before) = (resident_kib(), heap_kib(), mappings());
    link_and_remove(&jit, &object, rounds(40_000));
    let (full, released) = (resident_kib(), jit.release_free());
    let after = resident_kib();
    println!("{before} KiB before, {full} KiB with free memory, {after} KiB after {released:?}");
    assert!(after <= before + before / 20 + (4 << 10), "{before} -> {full} -> {after} KiB");
    assert!(heap_kib() <= heap_before + 512, "{heap_before} -> {} KiB of heap", heap_kib());
    // Only mappings of windows are compared: the heap may now consist of more mappings.
    let windows = |mappings: &[Mapping]| mappings.iter().filter(|m| m.name.contains("jittison")).count();
    assert_eq!(windows(&mappings()), windows(&mappings_before));
    assert_eq!((held(&jit), jit.layer().key_count(), jit.session().dylibs().len()), ((0, 0, 0), 0, 2));
    assert_eq!((jit.memory_statistics().resident_bytes, jit.memory_statistics().opened_bytes), (0, 0));
}

#[test]
fn a_dylib_does_not_grow_when_many_names_are_defined_and_removed() {
    own_process!();
    const SYMBOLS: usize = 500_000;
    let jit = jittison::Jit::new().unwrap();
    let dylib = jit.main_dylib();
    let before = heap_kib();
    let trackers: Vec<_> = (0..SYMBOLS / 100)
        .map(|number| {
            let tracker = dylib.create_tracker().unwrap();
            let name = |index| format!("a_name_of_some_length_{}", number * 100 + index).into();
            let symbol =
                |index| (name(index), jittison::base::ExecutorAddr::new(8), jittison::session::SymbolFlags::NONE);
            tracker.define_absolute((0..100).map(symbol)).unwrap();
            tracker
        })
        .collect();
    assert_eq!(dylib.symbol_count(), SYMBOLS);
    let full = heap_kib();
    assert!(full > before + (50 << 10), "{before} -> {full} KiB");
    for tracker in &trackers {
        tracker.remove().unwrap();
    }
    drop(trackers);
    assert_eq!(dylib.symbol_count(), 0);
    // Compare the allocated heap. How much of it is resident depends on the C library.
    let after = heap_kib();
    println!("{before} KiB before, {full} KiB with {SYMBOLS} names, {after} KiB after");
    // The symbol table keeps one or two words per 64 symbols for its empty pages.
    assert!(after <= before + 512, "{before} -> {full} -> {after} KiB");
}

#[test]
fn a_thread_caches_a_bounded_buffer_for_large_objects_until_release_free() {
    own_process!();
    let pointers = |count| asm(&format!(".globl test\n.data\ntest:\n.rept {count}\n.quad test\n.endr\n"));
    let (Some(small), Some(large), Some(huge)) = (pointers(10), pointers(40_000), pointers(200_000)) else { return };
    let jit = new_jit();
    let heap_kib_after = |object: &[u8]| {
        let tracker = add(&jit, jit.main_dylib(), "pointers.o", object);
        jit.address_of(jit.main_dylib(), "test").unwrap();
        assert!(tracker.remove().unwrap().is_complete());
        heap_kib()
    };
    let start = heap_kib_after(&small);
    for _ in 0..3 {
        let cached = heap_kib_after(&large) - start;
        assert!((900..1100).contains(&cached), "{cached} KiB; 40,000 edges take 937 KiB");
    }
    let cached = heap_kib_after(&huge) - start;
    assert!(cached <= 2048 + 64, "{cached} KiB");
    jit.release_free();
    let remaining = heap_kib().saturating_sub(start);
    assert!(remaining < 64, "{remaining} KiB");
}
