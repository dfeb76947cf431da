//! Objects that were damaged: an error or a link, never a panic, a hang or memory without bounds. Nothing is executed.

use std::time::Duration;

use jittison::error::LinkFault;
use jittison::{Error, ErrorKind, Jit, JitDylib};

use crate::support::*;

/// Real objects with everything that the reader looks at: groups, weak, common, initialisers, unwind tables, a GOT.
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
    // Variables of threads, an indirect function, bounds.
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
        gcc(&["-O2", "-fPIC", "-mcmodel=large"], large),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A session in which whatever a subject imports exists.
fn world() -> Jit {
    // A small window: what a damaged header asks for cannot be much.
    let jit = Jit::builder().window_size(64 << 20).library("libstdc++.so.6").trap_freed_code(false).build().unwrap();
    for name in ["imported", "datum"] {
        define_absolute(jit.main_dylib(), name, 0x1000);
    }
    jit
}

/// Adds, links every symbol, and removes; whether all of it went well. Everything must be given back either way.
fn try_to_link(jit: &Jit, bytes: &[u8]) -> bool {
    let dylib: &JitDylib = jit.main_dylib();
    let before = (held(jit), dylib.symbol_count());
    let tracker = dylib.create_tracker().unwrap();
    let linked = jit.add_object(&tracker, "damaged.o", bytes).is_ok()
        && ["test", "weak_one", "common_one", "table"].iter().all(|name| {
            // Names may be damaged as well: what is asked for need not be there.
            dylib.symbol_flags(name).is_none() || jit.address_of(dylib, name).inspect_err(is_refusal).is_ok()
        });
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!((held(jit), dylib.symbol_count()), before);
    linked
}

/// Whatever is wrong with the object is the object's: what is linked is linked as it says.
fn is_refusal(error: &Error) {
    let is_ours = matches!(error.root_cause().kind(), ErrorKind::Link { fault: LinkFault::SecondOpinion { .. }, .. });
    assert!(!is_ours, "{error}");
}

#[test]
fn objects_truncated_at_every_byte_are_refused() {
    for bytes in subjects() {
        let jit = world();
        assert!(try_to_link(&jit, &bytes), "whole, it links");
        for length in 0..bytes.len() {
            assert!(!try_to_link(&jit, &bytes[..length]), "{length} of {} bytes", bytes.len());
        }
        links_on(&jit);
    }
}

/// Many small damages, each on a fresh copy.
fn damage(rounds: usize, seed: u64, change: impl Fn(&mut Dice, &mut Vec<u8>)) {
    let start = processor_time();
    for (subject, bytes) in subjects().into_iter().enumerate() {
        let jit = world();
        let mut dice = Dice(seed + subject as u64);
        let mut linked = 0;
        for _ in 0..rounds {
            let mut damaged = bytes.clone();
            change(&mut dice, &mut damaged);
            linked += usize::from(try_to_link(&jit, &damaged));
        }
        assert!(linked < rounds, "some damage is seen");
        assert!(jit.memory_statistics().opened_bytes <= 80 << 20, "no more than the window");
        links_on(&jit);
    }
    assert!(processor_time() - start < Duration::from_secs(300), "something is quadratic");
}

#[test]
fn objects_with_flipped_bits_neither_panic_nor_hang_nor_leak() {
    damage(rounds(4000), 0x9e37_79b9, |dice, bytes| {
        for _ in 0..1 + dice.roll(4) {
            let at = dice.roll(bytes.len());
            bytes[at] ^= 1 << dice.roll(8);
        }
    });
}

#[test]
fn objects_with_overwritten_fields_neither_panic_nor_hang_nor_leak() {
    const VALUES: [u64; 10] = [0, 1, 7, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, i64::MAX as u64, u64::MAX];
    damage(rounds(4000), 0x1234_5678, |dice, bytes| {
        let width = [1, 2, 4, 8][dice.roll(4)];
        let at = dice.roll(bytes.len() - width) & !(width - 1);
        bytes[at..at + width].copy_from_slice(&VALUES[dice.roll(VALUES.len())].to_le_bytes()[..width]);
    });
}

#[test]
fn damage_to_the_headers_neither_panics_nor_hangs_nor_leaks() {
    // The file header, and the table of section headers that stands at the end.
    damage(rounds(4000), 0x0bad_cafe, |dice, bytes| {
        let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        let range = if dice.roll(5) == 0 { 0..64 } else { table..bytes.len() };
        let at = range.start + dice.roll(range.len());
        bytes[at] = [0, 1, 2, 4, 8, 16, 64, 0x7f, 0x80, 0xff][dice.roll(10)];
    });
}
