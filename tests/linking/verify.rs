//! The link verifier (`src/link/verify.rs`). In a debug build it checks every link, so each test of this suite that links an
//! object runs it, too. Here it checks a wide set of compiler output. It runs before plugins may change the bytes.

use std::sync::Arc;

use jittison::error::LinkFault;
use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::FixedLink;
use jittison::{Error, ErrorKind};

use crate::support::*;

/// Calls, loads, tables of functions and of labels, strings, thread-local variables, zero-fill, weak and missing
/// symbols.
const SOURCE: &str = "
    #include <stdio.h>
    #include <string.h>
    extern long elsewhere(long); extern long datum; extern _Thread_local long theirs;
    extern long missing(void) __attribute__((weak)); extern char nobody __attribute__((weak));
    static _Thread_local long mine = 3; _Thread_local char buffer[40]; static long zero[1000];
    static long *const within = &zero[17]; long (*const table[])(long) = { elsewhere, 0 };
    __attribute__((constructor)) static void set(void) { zero[17] = 1; }
    static long pick(int which) {
        switch (which) { case 0: return datum; case 1: return mine++; case 2: return theirs; case 3: return buffer[3];
                         case 4: return *within; case 5: return table[0](which); case 6: return strlen(\"seven\");
                         default: return puts(\"\") + (missing ? missing() : 0) + (&nobody != 0); } }
    long test(int which) { static void *const labels[] = { &&a, &&b }; goto *labels[which & 1];
        a: return pick(which); b: return pick(which) + elsewhere(which); }";

const OTHER: &str = "long datum = 5; _Thread_local long theirs = 6; long elsewhere(long x) { return x + datum; }
    long touch(void) { return theirs++; }";

type Compile = fn(&[&str], &str) -> Option<Vec<u8>>;

const FLAGS: [&[&str]; 12] = [
    &["-O0", "-fPIC"],
    &["-O2", "-fPIC"],
    &["-O3", "-fPIC", "-g", "-fno-plt"],
    &["-Os", "-fPIC", "-ffunction-sections", "-fdata-sections"],
    &["-O2", "-fPIC", "-mcmodel=large"],
    &["-O2", "-fPIC", "-mcmodel=medium"],
    &["-O2", "-fPIC", "-ftls-model=local-dynamic"],
    &["-O2", "-fPIC", "-ftls-model=initial-exec"],
    &["-O2", "-fPIC", "-mtls-dialect=gnu2"],
    &["-O2", "-fPIC", "-Wa,-mrelax-relocations=no"],
    &["-O2", "-fPIE"],
    &["-O2", "-fno-pic", "-mcmodel=large"],
];

#[test]
fn compiler_output_passes_the_link_verifier() {
    own_process!();
    if !require_x86_64() {
        return;
    }
    for flags in FLAGS {
        // clang 19 has no thread-local variables in the large model.
        let with_clang = !flags.contains(&"-mcmodel=large");
        let compilers = [gcc as Compile, clang].into_iter().take(if with_clang { 2 } else { 1 });
        for compile in compilers {
            let (Some(object), Some(other)) = (compile(flags, SOURCE), compile(flags, OTHER)) else { continue };
            let (jit, _trackers) = linked(&[&object, &other]);
            let address = jit.address_of(jit.main_dylib(), "test");
            assert!(address.is_ok(), "{flags:?}: {}", address.unwrap_err());
        }
    }
}

/// Changes the first byte of `.text` to a trap after fix-up.
struct Traps;

impl LinkPlugin for Traps {
    fn begin(&self, _: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(Traps))
    }
}

impl LinkHooks for Traps {
    fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<(), Error> {
        let text = link.graph().blocks().map(|(id, _)| id).find(|id| link.graph().block_name(*id) == ".text");
        if let Some(first) = text.and_then(|text| link.bytes(text).first_mut()) {
            *first = 0xcc;
        }
        Ok(())
    }
}

#[test]
fn a_plugin_may_change_bytes_after_the_verifier_has_run() {
    let Some(object) = c("long test(void) { return 1; }") else { return };
    let jit = new_jit();
    jit.layer().add_plugin(Arc::new(Traps));
    let _tracker = add(&jit, jit.main_dylib(), "trapped.o", &object);
    let at = jit.address_of(jit.main_dylib(), "test").unwrap();
    assert_eq!(read(at.value(), 1), [0xcc]);
}

#[test]
fn a_mismatch_is_reported_as_a_bug_of_jittison_with_its_place() {
    let (section, kind) = (".text".to_string(), "R_X86_64_PC32".to_string());
    let (found, expected) = ("0x1".to_string(), "0x2".to_string());
    let fault = LinkFault::Verification { section, offset: 9, kind, found, expected };
    let error = Error::from(ErrorKind::Link { object: "some.o".to_string(), fault });
    assert_says(&error, &["some.o", "bug of jittison", "`.text`", "0x9", "R_X86_64_PC32", "0x1", "0x2"]);
}

#[test]
fn the_image_of_a_thread_local_block_may_hold_an_offset_of_that_block() {
    let Some(object) = asm("
        .section .tdata,\"awT\"
        .quad 1
        x: .quad x@dtpoff
        .text
        .globl test
        test: subq $8, %rsp
              data16 leaq x@tlsgd(%rip), %rdi
              .value 0x6666
              rex64
              call __tls_get_addr@PLT
              movq (%rax), %rax
              addq $8, %rsp
              ret
        .section .note.GNU-stack
        ")
    else {
        return;
    };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "test"), 8);
}
