//! The unwind tables of gcc, clang and rustc, with the options that change them. `tests/linking` covers those of Cranelift.

use crate::host::*;
use crate::support::*;

/// `outer` calls through frames of several kinds: with destructors, with a stack of variable size, and split into a hot and a
/// cold part. The cold part throws.
const FRAMES: &str = "
    extern \"C\" long thrower(long);
    extern \"C\" void warn(long) __attribute__((cold));
    static long count;
    struct Guard { long step; ~Guard() { count += step; } };
    void warn(long) { count++; }
    __attribute__((noinline)) static long split(long x) {
        Guard guard{3};
        if (__builtin_expect(x != 0, 0)) { warn(x); return thrower(x) + 1; }
        return 0;
    }
    __attribute__((noinline)) static long varying(long x) {
        volatile char buffer[40 + (x & 15)];
        buffer[0] = 0;
        long own[4] __attribute__((aligned(64))) = { x, x + 1, x + 2, x + 3 };
        asm volatile(\"\" : : \"r\"(own) : \"memory\");
        return split(x) + buffer[0] + own[0] - x;
    }
    __attribute__((noinline)) static long caught(long x) {
        try { Guard guard{5}; return varying(x); } catch (int) { return -1; }
    }
    extern \"C\" long outer(long x) { Guard guard{7}; return caught(x); }
    extern \"C\" long destroyed(void) { long all = count; count = 0; return all; }";

type Compile = fn(&[&str], &str) -> Option<Vec<u8>>;

fn clangxx(flags: &[&str], source: &str) -> Option<Vec<u8>> {
    let fixed = ["-x", "c++", "-c"];
    build("clang++-19", source.as_bytes(), &[&fixed, flags, &["-o", OUTPUT, INPUT]].concat())
}

const COMPILERS: [(&str, Compile); 2] = [("g++", gxx), ("clang++", clangxx)];

/// Links a compiled [`FRAMES`], throws and panics through it, and counts the destructors that ran.
fn assert_frames_unwind(object: &[u8], what: &str) {
    let Some(crossing) = crossing() else { return };
    let jit = new_jit();
    install(jit.main_dylib());
    let trackers = [add(&jit, jit.main_dylib(), "crossing.o", crossing), add(&jit, jit.main_dylib(), what, object)];
    passes_through_linked(&jit, jit.main_dylib(), what);
    // One call without an exception, then three exceptions and three panics, each through the cold part.
    assert_eq!(long(&jit, "destroyed"), 15 + 6 * 16, "{what}");
    assert!(trackers[0].remove().unwrap().is_complete() | trackers[1].remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0), "{what}");
}

#[test]
fn tables_of_gcc_and_clang_are_read_for_every_code_model_and_option() {
    let options: [&[&str]; 11] = [
        &["-O0", "-fPIC"],
        &["-O1", "-fPIC", "-fno-omit-frame-pointer"],
        &["-O2", "-fPIC", "-ffunction-sections"],
        &["-O3", "-fPIC", "-fno-plt", "-g"],
        &["-Os", "-fPIE"],
        &["-O2", "-fno-pic"],
        &["-O2", "-fno-pic", "-mcmodel=medium"],
        &["-O2", "-fno-pic", "-mcmodel=large"],
        &["-O2", "-fPIC", "-mcmodel=medium"],
        &["-O2", "-fPIC", "-mcmodel=large"],
        &["-O2", "-fPIC", "-fno-asynchronous-unwind-tables"],
    ];
    for (compiler, compile) in COMPILERS {
        for flags in options {
            let Some(object) = compile(flags, FRAMES) else { break };
            assert_frames_unwind(&object, &format!("{compiler} {flags:?}"));
        }
    }
}

#[test]
fn tables_assembled_with_other_cie_versions_are_read() {
    for version in if is_llvm() { &["3"][..] } else { &["3", "4"] } {
        let Some(object) = gxx(&["-O2", "-fPIC", &format!("-Wa,--gdwarf-cie-version={version}")], FRAMES) else {
            return;
        };
        assert_frames_unwind(&object, version);
    }
}

#[test]
fn functions_split_into_hot_and_cold_parts_unwind_from_both() {
    let Some(object) = gxx(&["-O2", "-fPIC", "-freorder-blocks-and-partition"], FRAMES) else { return };
    let has = |text: &str| object.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    assert!(has(".text.unlikely") && has("split") && has(".cold"), "gcc splits functions at this level");
    assert_frames_unwind(&object, "split");
    let Some(object) = clangxx(&["-O2", "-fPIC", "-ffunction-sections", "-mllvm", "-hot-cold-split"], FRAMES) else {
        return;
    };
    assert_frames_unwind(&object, "split by clang");
}

#[test]
fn unwind_sections_of_both_elf_types_are_read() {
    let Some(object) = clangxx(&["-O2", "-fPIC"], FRAMES) else { return };
    // SHT_X86_64_UNWIND; SHT_PROGBITS.
    let types = [0x7000_0001u32, 1].map(u32::to_le_bytes);
    let shoff = u64::from_le_bytes(object[40..48].try_into().unwrap()) as usize;
    let mut headers = (shoff..object.len()).step_by(64);
    let at =
        headers.find(|header| object[header + 4..header + 8] == types[0]).expect("clang gives the section its type");
    assert_frames_unwind(&object, "X86_64_UNWIND");
    let mut common = object.clone();
    common[at + 4..at + 8].copy_from_slice(&types[1]);
    assert_frames_unwind(&common, "PROGBITS");
}

#[test]
fn a_rust_object_catches_its_own_panics() {
    let Some(mut rustc) = rustc() else { return };
    let output = rustc.args(["--print", "target-libdir"]).output().unwrap();
    let directory = String::from_utf8(output.stdout).unwrap();
    let is_std = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libstd-"))
            && path.extension().is_some_and(|extension| extension == "so")
    };
    let entries = std::fs::read_dir(directory.trim()).unwrap();
    let library = entries.map(|entry| entry.unwrap().path()).find(is_std);
    require_that(library.is_some(), "the standard library of Rust as a shared library");
    let Some(library) = library else { return };
    let Some(object) = rust(
        &["-C", "panic=unwind", "-C", "prefer-dynamic"],
        "use std::panic::{catch_unwind, resume_unwind};
        struct Guard<'a>(&'a mut i64);
        impl Drop for Guard<'_> { fn drop(&mut self) { *self.0 += 100; } }
        #[inline(never)] fn inner(x: i64, dropped: &mut i64) -> i64 {
            let guard = Guard(dropped);
            if x > 0 { resume_unwind(Box::new(x)); }
            *guard.0
        }
        #[no_mangle] pub extern \"C\" fn test(x: i64) -> i64 {
            let mut dropped = 0;
            let result = catch_unwind(std::panic::AssertUnwindSafe(|| inner(x, &mut dropped)));
            match result { Ok(value) => value, Err(caught) => *caught.downcast::<i64>().unwrap() * 1000 + dropped }
        }",
    ) else {
        return;
    };
    let jit = jittison::Jit::builder().library(library.to_str().unwrap()).trap_freed_code(true).build().unwrap();
    let tracker = add(&jit, jit.main_dylib(), "panics.o", &object);
    let test = function::<extern "C" fn(i64) -> i64>(&jit, "test");
    assert_eq!(test.call(0), 0);
    for x in 1..50 {
        assert_eq!(test.call(x), x * 1000 + 100);
    }
    drop(test);
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(held(&jit), (0, 0, 0));
}
