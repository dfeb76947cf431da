//! Code models, and single relocation types. Each case states the value that it must have.

use crate::refusals::out_of_range;
use crate::support::*;

#[test]
fn the_small_medium_and_large_code_models_run() {
    if !require_x86_64() {
        return;
    }
    let source = "
        extern long callee(long);
        extern long elsewhere;
        long far_array[20000] = { 3 };
        static long own_array[20000];
        static long own(long x) { return x + 1; }
        static long (*pointer)(long) = own;
        static const char text[] = \"m\";
        long test(void) { own_array[7] += 5; return callee(own_array[7]) + far_array[0] + elsewhere + pointer(1) + text[0] - 'm'; }";
    let other = "long elsewhere = 1000; long callee(long x) { return x * 10000; }";
    let models: [&[&str]; 7] = [
        &["-fno-pic"],
        &["-fno-pic", "-mcmodel=medium"],
        &["-mcmodel=large"],
        &["-fPIC"],
        &["-fPIC", "-mcmodel=medium"],
        &["-fPIC", "-mcmodel=large"],
        &["-fPIC", "-mcmodel=large", "-fno-asynchronous-unwind-tables"],
    ];
    for level in ["-O0", "-O2"] {
        for model in models {
            for compile in [gcc, clang] {
                let flags = [&[level], model].concat();
                // Code with 32-bit addresses is placed low, and so must be the data that it refers to.
                let (Some(test), Some(callee)) = (compile(&flags, source), compile(&flags, other)) else { return };
                let (jit, _trackers) = linked(&[&test, &callee]);
                assert_eq!(long(&jit, "test"), 51005, "{flags:?}");
            }
        }
    }
}

/// Assembles `directives` at `place` in `.data`, and links them with `target` of another object. Returns both addresses.
fn words(directives: &str) -> Option<(jittison::Jit, u64, u64)> {
    let object = asm(&format!(
        ".data\n.balign 8\n.globl place\nplace:\n{directives}\n.section .note.GNU-stack\n
         .section .local_target,\"aw\"\n.balign 16\nlocal: .fill 40\n.size local, 40\n.type local, @object"
    ))?;
    let target = asm(
        ".data\n.balign 64\n.globl target\n.type target, @object\ntarget: .fill 24\n.size target, 24\n.section .note.GNU-stack",
    )?;
    let (jit, trackers) = linked(&[&object, &target]);
    std::mem::forget(trackers);
    let place = jit.address_of(jit.main_dylib(), "place").unwrap().value();
    let target = jit.address_of(jit.main_dylib(), "target").unwrap().value();
    Some((jit, place, target))
}

fn u64_at(address: u64) -> u64 {
    u64::from_le_bytes(read(address, 8).try_into().unwrap())
}

fn i32_at(address: u64) -> i64 {
    i32::from_le_bytes(read(address, 4).try_into().unwrap()).into()
}

#[test]
fn addresses_are_s_plus_a_and_distances_are_s_plus_a_minus_p() {
    let Some((_jit, place, target)) = words(
        ".quad target + 5             # R_X86_64_64
         .quad target - . + 3         # R_X86_64_PC64
         .long target - . - 4         # R_X86_64_PC32
         .long target@PLT + 2         # R_X86_64_PLT32",
    ) else {
        return;
    };
    assert_eq!(u64_at(place), target + 5);
    assert_eq!(u64_at(place + 8), target.wrapping_sub(place + 8).wrapping_add(3));
    assert_eq!(i32_at(place + 16), (target as i64) - (place as i64 + 16) - 4);
    assert_eq!(i32_at(place + 20), (target as i64) - (place as i64 + 20) + 2);
}

#[test]
fn size_relocations_use_the_size_of_the_symbol_and_need_its_definition() {
    let sized = "\n.globl sized\n.type sized, @object\n.size sized, 40\nsized: .fill 40\n";
    let Some((_jit, place, _)) = words(&format!(".quad sized@SIZE\n.long sized@SIZE + 2\n{sized}")) else { return };
    assert_eq!((u64_at(place), i32_at(place + 8)), (40, 42));
    // An object does not contain the size of a symbol of another object. Symptom: the size was zero.
    let Some(other) = asm(&format!(".data\n{}\n.section .note.GNU-stack\n", sized.replace("sized", "other"))) else {
        return;
    };
    for (directive, kind) in [(".quad", "R_X86_64_SIZE64"), (".long", "R_X86_64_SIZE32")] {
        let source =
            format!(".data\n.globl test\ntest: {directive} other@SIZE + 2\n.long 0\n.section .note.GNU-stack\n");
        let Some(object) = asm(&source) else { return };
        assert_says(&refused(&object, "test"), &["bad.o", "symbols not found: `other`"]);
        let (jit, _trackers) = linked(&[&object, &other]);
        assert_eq!(u64_at(jit.address_of(jit.main_dylib(), "test").unwrap().value()), 42, "{kind}");
    }
}

#[test]
fn got_relative_values_agree_with_one_another() {
    // Each line computes an address through the GOT. All must give the target.
    let Some(object) = asm("
        .text
        .globl by_gotoff, by_slot, by_gotpcrel, got_by_32, got_by_64, by_got32
        by_gotoff:   lea _GLOBAL_OFFSET_TABLE_(%rip), %rdx      # GOTPC32
                     movabs $target@GOTOFF, %rax                # GOTOFF64
                     add %rdx, %rax
                     ret
        by_slot:     lea _GLOBAL_OFFSET_TABLE_(%rip), %rdx
                     movabs $target@GOT, %rax                   # GOT64
                     mov (%rdx,%rax), %rax
                     ret
        by_got32:    lea _GLOBAL_OFFSET_TABLE_(%rip), %rdx
                     mov target@GOT(%rdx), %rax                 # GOT32
                     ret
        by_gotpcrel: mov target@GOTPCREL(%rip), %rax            # REX_GOTPCRELX
                     ret
        got_by_32:   lea _GLOBAL_OFFSET_TABLE_(%rip), %rax
                     ret
        got_by_64:   lea 1f(%rip), %rdx
                 1:  movabs $_GLOBAL_OFFSET_TABLE_ - 1b, %rax   # GOTPC64
                     add %rdx, %rax
                     ret
        .section .note.GNU-stack")
    else {
        return;
    };
    let Some(target) = c("long target[4];") else { return };
    let (jit, _trackers) = linked(&[&object, &target]);
    let address = jit.address_of(jit.main_dylib(), "target").unwrap().value() as i64;
    for by in ["by_gotoff", "by_slot", "by_got32", "by_gotpcrel"] {
        assert_eq!(long(&jit, by), address, "{by}");
    }
    assert_eq!(long(&jit, "got_by_32"), long(&jit, "got_by_64"));
}

#[test]
fn narrow_absolute_fields_hold_what_fits_and_refuse_what_does_not() {
    let fits: [(&str, u64, &[u8]); 5] = [
        (".byte tiny", 0x7f, &[0x7f]),
        (".byte tiny", 0xff, &[0xff]),
        (".short tiny", 0xffff, &[0xff, 0xff]),
        (".long tiny", 0xffff_fffe, &[0xfe, 0xff, 0xff, 0xff]),
        (".long tiny + 1", 0x7fff_ffff, &[0, 0, 0, 0x80]),
    ];
    for (directive, symbol, bytes) in fits {
        // The symbol is external, so that the assembler does not know the value.
        let Some(place) = asm(&format!(".globl place\n.data\nplace: {directive}\n.fill 8\n.section .note.GNU-stack"))
        else {
            return;
        };
        let (jit, _trackers) = linked(&[&place]);
        define_absolute(jit.main_dylib(), "tiny", symbol);
        let address = jit.address_of(jit.main_dylib(), "place").unwrap().value();
        assert_eq!(read(address, bytes.len()), bytes, "{directive} of {symbol:#x}");
    }
    let overflows = [
        (".byte tiny", 0x100, "R_X86_64_8", (-0x80, 0xff)),
        (".short tiny", 0x1_0000, "R_X86_64_16", (-0x8000, 0xffff)),
        (".long tiny", 0x1_0000_0000, "R_X86_64_32", (0, 0xffff_ffff)),
    ];
    for (directive, symbol, kind, interval) in overflows {
        let place =
            asm(&format!(".globl place\n.data\n.long 0\nplace: {directive}\n.section .note.GNU-stack")).unwrap();
        let jit = new_jit();
        define_absolute(jit.main_dylib(), "tiny", symbol);
        let error = refused_in(&jit, &place, "place");
        let value = format!("value {symbol:#x} is not in [");
        assert_says(&error, &["bad.o", "`.data`", "offset 0x4", kind, "`tiny`", &value]);
        assert_eq!(out_of_range(&error), (i128::from(symbol), interval.0, interval.1));
    }
}

#[test]
fn sign_extended_fields_hold_the_lowest_and_highest_addresses() {
    let code = asm("
        .text\n.globl test\ntest: movq $tiny, %rax      # R_X86_64_32S\nret\n.section .note.GNU-stack");
    let data = asm("
        .data\n.globl test\ntest: .long 0, 0\n.reloc test + 3, R_X86_64_32S, tiny\n.section .note.GNU-stack");
    let (Some(code), Some(data)) = (code, data) else { return };
    for value in [0x7fff_ffffu64, 0xffff_ffff_8000_0000, 5] {
        let (jit, _trackers) = linked(&[&code]);
        define_absolute(jit.main_dylib(), "tiny", value);
        assert_eq!(long(&jit, "test") as u64, value);
    }
    for value in [0x8000_0000u64, 0xffff_ffff_7fff_ffff] {
        let jit = new_jit();
        define_absolute(jit.main_dylib(), "tiny", value);
        // In code, the instruction moves to a thunk.
        let tracker = add(&jit, jit.main_dylib(), "code.o", &code);
        assert_eq!(long(&jit, "test") as u64, value);
        assert!(tracker.remove().unwrap().is_complete());
        assert_says(&refused_in(&jit, &data, "test"), &["R_X86_64_32S", "`.data`", "offset 0x3", "`tiny`"]);
    }
}
