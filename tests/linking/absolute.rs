//! Absolute symbols and GOT relaxation. Relaxation depends on the displacement, never on the address of the target. The tests
//! read the linked bytes and do not call code whose target does not exist.

use crate::support::*;

/// One of each reference that the linker may relax. The numbers are offsets of the instructions.
const REFERENCES: &str = "
    .text
    .globl test
    test:
        call target@PLT                        # 0
        call *target@GOTPCREL(%rip)            # 5
        movq target@GOTPCREL(%rip), %rax       # 11
        movl target@GOTPCREL(%rip), %eax       # 18
        addq target@GOTPCREL(%rip), %rax       # 24
        jmp *target@GOTPCREL(%rip)             # 31
    .section .note.GNU-stack";

/// The linked bytes of [`REFERENCES`], and their address.
struct Code {
    address: u64,
    bytes: Vec<u8>,
}

impl Code {
    fn link(target: u64) -> Option<(jittison::Jit, Code)> {
        let object = asm(REFERENCES)?;
        let (jit, trackers) = linked(&[&object]);
        define_absolute(jit.main_dylib(), "target", target);
        let address = jit.address_of(jit.main_dylib(), "test").unwrap().value();
        let bytes = read(address, 37);
        std::mem::forget(trackers);
        Some((jit, Code { address, bytes }))
    }

    /// The address that the 32-bit displacement at `field` refers to.
    fn target_of(&self, field: usize) -> u64 {
        let displacement = i32::from_le_bytes(self.bytes[field..field + 4].try_into().unwrap());
        self.address.wrapping_add(field as u64 + 4).wrapping_add_signed(displacement.into())
    }
}

fn word(address: u64) -> u64 {
    u64::from_le_bytes(read(address, 8).try_into().unwrap())
}

#[test]
fn a_low_absolute_target_is_reached_through_the_got_from_a_far_window() {
    if !require_x86_64() {
        return;
    }
    for target in [0x1000, 0x7fff_0000, 0xffff_ffff_8000_0000, 0] {
        let Some((_jit, code)) = Code::link(target) else { return };
        assert!(code.address > 1 << 33, "the window must be far from the target");
        // The call uses a stub, and the stub jumps through its GOT slot.
        assert_eq!(code.bytes[0], 0xe8);
        let stub = code.target_of(1);
        let stub_code = Code { address: stub, bytes: read(stub, 8) };
        assert_eq!(stub_code.bytes[..2], [0xff, 0x25]);
        assert_eq!(word(stub_code.target_of(2)), target);
        // The other instructions stay as written and use the slot.
        let written: [(usize, &[u8]); 5] = [
            (5, &[0xff, 0x15]),
            (11, &[0x48, 0x8b, 0x05]),
            (18, &[0x8b, 0x05]),
            (24, &[0x48, 0x03, 0x05]),
            (31, &[0xff, 0x25]),
        ];
        for (at, instruction) in written {
            assert_eq!(code.bytes[at..at + instruction.len()], *instruction, "at {at}");
            assert_eq!(word(code.target_of(at + instruction.len())), target, "at {at}");
        }
    }
}

#[test]
fn a_target_in_reach_is_reached_directly() {
    if !require_x86_64() {
        return;
    }
    let Some(near) = c("long near(void) { return 9; }") else { return };
    let jit = new_jit();
    let _near = add(&jit, jit.main_dylib(), "near.o", &near);
    let target = jit.address_of(jit.main_dylib(), "near").unwrap().value();
    let object = asm(REFERENCES).unwrap();
    define_absolute(jit.main_dylib(), "target", target);
    let _test = add(&jit, jit.main_dylib(), "references.o", &object);
    let address = jit.address_of(jit.main_dylib(), "test").unwrap().value();
    let code = Code { address, bytes: read(address, 37) };

    assert_eq!((code.bytes[0], code.target_of(1)), (0xe8, target));
    assert_eq!((&code.bytes[5..7], code.target_of(7)), (&[0x67, 0xe8][..], target), "addr32 call");
    assert_eq!((&code.bytes[11..14], code.target_of(14)), (&[0x48, 0x8d, 0x05][..], target), "lea");
    assert_eq!((&code.bytes[18..20], code.target_of(20)), (&[0x8d, 0x05][..], target), "lea");
    assert_eq!(code.bytes[24..27], [0x48, 0x03, 0x05], "an addition keeps its slot");
    assert_eq!(word(code.target_of(27)), target);
    assert_eq!((code.bytes[31], code.target_of(32), code.bytes[36]), (0xe9, target, 0x90), "jmp; nop");
}

#[test]
fn relaxed_calls_loads_and_jumps_run() {
    let (Some(caller), Some(callee)) = (
        asm("
            .text
            .globl test
            test:
                subq $8, %rsp
                call *callee@GOTPCREL(%rip)
                movq datum@GOTPCREL(%rip), %rcx
                addq (%rcx), %rax
                addq $8, %rsp
                movq %rax, %rdi
                jmp *finish@GOTPCREL(%rip)
            .section .note.GNU-stack"),
        c("long datum = 30; long callee(void) { return 4; } long finish(long x) { return x * 2; }"),
    ) else {
        return;
    };
    let (jit, _trackers) = linked(&[&caller, &callee]);
    assert_eq!(long(&jit, "test"), 68);
}

#[test]
fn got_loads_without_an_opcode_or_with_another_addend_are_not_relaxed() {
    if !require_x86_64() {
        return;
    }
    let Some(object) = asm("
        .text
        start: .long 0
        .reloc start, R_X86_64_GOTPCRELX, test - 4
        .globl test
        test: .byte 0x48, 0x8b, 0x05
        field: .long 0
        .reloc field, R_X86_64_REX_GOTPCRELX, test + 4
        .section .note.GNU-stack")
    else {
        return;
    };
    let (jit, _trackers) = linked(&[&object]);
    let address = jit.address_of(jit.main_dylib(), "test").unwrap().value();
    let code = Code { address: address - 4, bytes: read(address - 4, 11) };
    let slot = code.target_of(0);
    assert_eq!((word(slot), &code.bytes[4..7]), (address, &[0x48, 0x8b, 0x05][..]));
    assert_eq!(code.target_of(7), slot + 8);
}

#[test]
fn absolute_symbols_keep_their_value_and_add_no_dependency() {
    let Some(object) = asm("
        .globl fixed, test
        fixed = 0x123456789abc
        .text
        test: movabs $fixed, %rax\nret
        .section .note.GNU-stack")
    else {
        return;
    };
    let Some(user) = c("extern char fixed[]; long used(void) { return (long)fixed; }") else { return };
    let (jit, trackers) = linked(&[&object, &user]);
    assert_eq!(jit.address_of(jit.main_dylib(), "fixed").unwrap().value(), 0x1234_5678_9abc);
    assert_eq!(long(&jit, "test"), 0x1234_5678_9abc);
    assert_eq!(long(&jit, "used"), 0x1234_5678_9abc);
    assert!(trackers[0].remove().unwrap().is_complete(), "an absolute value depends on no memory");
}

#[test]
fn host_functions_are_called_by_their_address() {
    extern "C" fn triple(x: i64) -> i64 {
        x * 3
    }
    let Some(object) = c("extern long triple(long); long test(void) { return triple(triple(2)); }") else { return };
    let jit = new_jit();
    define_function(&jit, jit.main_dylib(), "triple", triple as extern "C" fn(i64) -> i64);
    let _tracker = add(&jit, jit.main_dylib(), "calls.o", &object);
    assert_eq!(long(&jit, "test"), 18);
}
