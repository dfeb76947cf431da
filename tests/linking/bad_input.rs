//! Damaged objects: the result is an error or a link, never a panic, a hang or unlimited memory. The tests run no linked code.

use fastrand::Rng;
use std::time::Duration;

use jittison::error::LinkFault;
use jittison::{Error, ErrorKind, Jit, JitDylib};

use crate::support::*;

/// Real objects that exercise the entire reader: groups, weak and common symbols, initialisers, unwind tables, a GOT.
fn subjects() -> Vec<Vec<u8>> {
    let c_source = "
        extern long imported(long); extern long datum;
        long weak_one(long x) __attribute__((weak)); long weak_one(long x) { return x + datum; }
        long common_one; static long zero[30];
        long (*const table[])(long) = { weak_one, imported };
        __attribute__((constructor(200))) static void set(void) { zero[3] = 1; }
        long test(void) { return imported(table[0](zero[2])) + common_one; }";
    let cpp_source = "
        template <class T> struct Box { static T value; }; template <class T> T Box<T>::value = 5;
        inline long &shared() { static long it = 3; return it; }
        extern \"C\" long imported(long);
        struct Guard { ~Guard() { shared()++; } };
        static Guard guard;
        extern \"C\" long test() { Guard local; try { return imported(Box<long>::value); } catch (int x) { return x; } }";
    let large = "extern long datum; static long own; long test(void) { return datum + own++; }";
    // Thread-local variables, an indirect function, section bounds.
    let special = "
        _Thread_local long own = 3; static _Thread_local long zero[4]; extern long datum;
        static long one(void) { return datum; } static long (*choose(void))(void) { return one; }
        long chosen(void) __attribute__((ifunc(\"choose\")));
        extern long __start_keep[], __stop_keep[]; __attribute__((section(\"keep\"), used)) static long kept = 1;
        long test(void) { return own++ + zero[1] + chosen() + (__stop_keep - __start_keep); }";
    [
        gcc(&["-O2", "-fPIC"], special),
        gcc(&["-O2", "-fPIC", "-fcommon", "-ffunction-sections"], c_source),
        gxx(&["-O1", "-fPIC", "-fno-threadsafe-statics"], cpp_source),
        gcc(&[&["-O2"], &LARGE_CODE_MODEL[..]].concat(), large),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A session that defines everything that the objects import.
fn session_with_imports() -> Jit {
    // A small window limits what a damaged header can ask for.
    let jit = Jit::builder().window_size(64 << 20).library("libstdc++.so.6").trap_freed_code(false).build().unwrap();
    for name in ["imported", "datum"] {
        define_absolute(jit.main_dylib(), name, 0x1000);
    }
    jit
}

/// Adds the object, links every symbol and removes it. True if all of that succeeded. The memory must be free in any case.
fn try_to_link(jit: &Jit, bytes: &[u8]) -> bool {
    let dylib: &JitDylib = jit.main_dylib();
    let before = (held(jit), dylib.symbol_count());
    let tracker = dylib.create_tracker().unwrap();
    let linked = jit.add_object(&tracker, "damaged.o", bytes).is_ok()
        && ["test", "weak_one", "common_one", "table"].iter().all(|name| {
            // Names may be damaged as well, so the symbol need not exist.
            dylib.symbol_flags(name).is_none() || jit.address_of(dylib, name).inspect_err(is_refusal).is_ok()
        });
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!((held(jit), dylib.symbol_count()), before);
    linked
}

/// The error must blame the object. A damaged object must never make the link verifier fail.
fn is_refusal(error: &Error) {
    let is_verifier =
        matches!(error.root_cause().kind(), ErrorKind::Link { fault: LinkFault::Verification { .. }, .. });
    assert!(!is_verifier, "{error}");
}

#[test]
fn objects_truncated_at_every_byte_are_refused() {
    for bytes in subjects() {
        let jit = session_with_imports();
        assert!(try_to_link(&jit, &bytes), "the complete object links");
        for length in 0..bytes.len() {
            assert!(!try_to_link(&jit, &bytes[..length]), "{length} of {} bytes", bytes.len());
        }
        links_on(&jit);
    }
}

/// Applies `change` to a fresh copy in each round, and links the result.
fn damage(rounds: usize, seed: u64, change: impl Fn(&mut Rng, &mut Vec<u8>)) {
    let start = processor_time();
    for (subject, bytes) in subjects().into_iter().enumerate() {
        let jit = session_with_imports();
        let mut dice = Rng::with_seed(seed + subject as u64);
        let mut linked = 0;
        for _ in 0..rounds {
            let mut damaged = bytes.clone();
            change(&mut dice, &mut damaged);
            linked += usize::from(try_to_link(&jit, &damaged));
        }
        assert!(linked < rounds, "some damage must be detected");
        assert!(jit.memory_statistics().opened_bytes <= 80 << 20, "memory is limited by the window");
        links_on(&jit);
    }
    assert!(processor_time() - start < Duration::from_secs(300), "some step takes quadratic time");
}

#[test]
fn objects_with_flipped_bits_neither_panic_nor_hang_nor_leak() {
    damage(rounds(4000), 0x9e37_79b9, |dice, bytes| {
        for _ in 0..1 + dice.usize(..4) {
            let at = dice.usize(..bytes.len());
            bytes[at] ^= 1 << dice.usize(..8);
        }
    });
}

#[test]
fn objects_with_overwritten_fields_neither_panic_nor_hang_nor_leak() {
    const VALUES: [u64; 10] = [0, 1, 7, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, i64::MAX as u64, u64::MAX];
    damage(rounds(4000), 0x1234_5678, |dice, bytes| {
        let width = [1, 2, 4, 8][dice.usize(..4)];
        let at = dice.usize(..bytes.len() - width) & !(width - 1);
        bytes[at..at + width].copy_from_slice(&VALUES[dice.usize(..VALUES.len())].to_le_bytes()[..width]);
    });
}

#[test]
fn objects_with_damaged_headers_neither_panic_nor_hang_nor_leak() {
    // The file header, and the section headers at the end of the file.
    damage(rounds(4000), 0x0bad_cafe, |dice, bytes| {
        let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        let range = if dice.usize(..5) == 0 { 0..64 } else { table..bytes.len() };
        let at = range.start + dice.usize(..range.len());
        bytes[at] = [0, 1, 2, 4, 8, 16, 64, 0x7f, 0x80, 0xff][dice.usize(..10)];
    });
}
