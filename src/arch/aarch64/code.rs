//! Machine code of the linker's own: stubs, entries of indirect functions, the function of TLS descriptors, handlers with a handle,
//! counters of calls.
//!
//! Each piece that an indirect branch may reach begins with `bti c`, which does nothing on processors without branch target
//! identification. Veneers and stubs may change `x16` and `x17` (AAPCS64, 6.1.1).

use crate::arch::STUB_SIZE;
use crate::arch::aarch64::field::Field;
use crate::arch::aarch64::relocation::Aarch64Relocation;
use crate::arch::code_template::{
    CodeTemplate, CounterTarget, HandlerTarget, IndirectCode, IndirectTarget, TemplateField, VeneerCode,
};
use crate::arch::edge_kind::EdgeKind;

/// Fills the gaps in code. Four such bytes are `udf #0`, which is undefined for ever.
pub(crate) const TRAP: u8 = 0;

/// A stub: `bti c; adrp x16, slot; ldr x17, [x16, slot]; br x17`. `place` is the address of the stub, and `distance` leads from
/// there to the slot, which is a multiple of eight. The slot keeps its value, so a plain load is enough.
pub(crate) fn stub(place: u64, distance: i32) -> [u8; STUB_SIZE] {
    let (place, slot) = (i128::from(place), i128::from(place) + i128::from(distance));
    let [bti, mut page, mut load, jump] = [BTI_C, ADRP_X16, LDR_X17_X16, BR_X17].map(u32::to_le_bytes);
    Field::Adrp.store(&mut page, (slot & !0xfff) - ((place + 4) & !0xfff));
    Field::LoadStore(3).store(&mut load, slot);
    let mut code = [0; STUB_SIZE];
    for (bytes, instruction) in code.chunks_exact_mut(4).zip([bti, page, load, jump]) {
        bytes.copy_from_slice(&instruction);
    }
    code
}

/// Bytes of a redirectable stub, with the gap after it.
pub(crate) const REDIRECTABLE_STUB_SIZE: usize = 24;

/// A stub whose slot changes while threads run it: `bti c; adrp x16, slot; add x16, x16, slot; ldar x17, [x16]; br x17`.
///
/// The load acquires. After a plain load, the code at the target could read what was in memory before the slot was stored: a
/// branch orders no later load.
pub(crate) fn redirectable_stub(place: u64, distance: i32) -> [u8; REDIRECTABLE_STUB_SIZE] {
    let (place, slot) = (i128::from(place), i128::from(place) + i128::from(distance));
    let [bti, mut page, mut low, load, jump] =
        [BTI_C, ADRP_X16, ADD_X16_X16, LDAR_X17_X16, BR_X17].map(u32::to_le_bytes);
    Field::Adrp.store(&mut page, (slot & !0xfff) - ((place + 4) & !0xfff));
    Field::Add.store(&mut low, slot);
    let mut code = [TRAP; REDIRECTABLE_STUB_SIZE];
    for (bytes, instruction) in code.chunks_exact_mut(4).zip([bti, page, low, load, jump]) {
        bytes.copy_from_slice(&instruction);
    }
    code
}

/// Bytes of the entry of a lazy function.
pub(crate) const LAZY_ENTRY_SIZE: usize = 40;

/// The entry of a lazy function. It finds its slot by a distance, and jumps there with its number in `x17`:
/// `bti c; adr x16, entry; ldrsw x17, distance; ldr x16, [x16, x17]; ldr x17, number; br x16`, then number and distance.
///
/// `distance` is the address of the slot minus that of the entry.
pub(crate) fn lazy_entry(number: u64, distance: i32) -> [u8; LAZY_ENTRY_SIZE] {
    const INSTRUCTIONS: [u8; 24] = bytes([
        BTI_C,
        0x10ff_fff0, // adr x16, -4
        0x9800_00d1, // ldrsw x17, +24
        0xf871_6a10, // ldr x16, [x16, x17]
        0x5800_0051, // ldr x17, +8
        0xd61f_0200, // br x16
    ]);
    let mut code = [0; LAZY_ENTRY_SIZE];
    code[..24].copy_from_slice(&INSTRUCTIONS);
    code[24..32].copy_from_slice(&number.to_le_bytes());
    code[32..36].copy_from_slice(&distance.to_le_bytes());
    code
}

/// The code of indirect functions. At the start of the common part, `x16` is the resolver's address and `x17` the slot's.
///
/// A resolver gets the features of the processor that runs it: `AT_HWCAP` with bit 62 set, and the address of a record of its
/// size, `AT_HWCAP` and `AT_HWCAP2` (System V ABI for the Arm 64-bit Architecture, "GNU C Library IFUNC interface"). The common
/// part asks the C library of the process that runs the code.
///
/// The common part saves the registers in which a function may get arguments (AAPCS64, 6.8.2): `x0` to `x8`, `q0` to `q7`, and
/// `x15` and `x18`, in which compilers pass static chains. A function of the vector variant keeps `q8` to `q23` for its caller, so
/// these are saved, too. What SVE registers have beyond 128 bits is not saved, nor are predicates.
pub(crate) static INDIRECT: IndirectCode = IndirectCode {
    common: CodeTemplate {
        bytes: &bytes::<66, 264>([
            0xa9bf_7bfd, // stp x29, x30, [sp, #-16]!
            0x9100_03fd, // mov x29, sp
            0xa9bf_47f0, // stp x16, x17, [sp, #-16]!
            0xa9bf_07e0, // x0, x1
            0xa9bf_0fe2, // x2, x3
            0xa9bf_17e4, // x4, x5
            0xa9bf_1fe6, // x6, x7
            0xa9bf_27e8, // x8, x9
            0xa9bf_2fea, // x10, x11
            0xa9bf_37ec, // x12, x13
            0xa9bf_3fee, // x14, x15
            0xf81f_0ff2, // str x18, [sp, #-16]!
            0xadbf_07e0, // stp q0, q1, [sp, #-32]!
            0xadbf_0fe2, // q2, q3
            0xadbf_17e4, // q4, q5
            0xadbf_1fe6, // q6, q7
            0xadbf_27e8, // q8, q9
            0xadbf_2fea, // q10, q11
            0xadbf_37ec, // q12, q13
            0xadbf_3fee, // q14, q15
            0xadbf_47f0, // q16, q17
            0xadbf_4ff2, // q18, q19
            0xadbf_57f4, // q20, q21
            0xadbf_5ff6, // q22, q23
            0xd100_83ff, // sub sp, sp, #32
            0xd280_0200, // mov x0, #16: AT_HWCAP
            0x9400_0000, // bl getauxval
            0xf900_07e0, // str x0, [sp, #8]
            0xd280_0340, // mov x0, #26: AT_HWCAP2
            0x9400_0000, // bl getauxval
            0xf900_0be0, // str x0, [sp, #16]
            0xd280_0300, // mov x0, #24: the size of the record
            0xf900_03e0, // str x0, [sp]
            0xf940_07e0, // ldr x0, [sp, #8]
            0xb242_0000, // orr x0, x0, #1 << 62: there is a second argument
            0x9100_03e1, // mov x1, sp
            0xf85f_03b0, // ldr x16, [x29, #-16]: resolver
            0xd63f_0200, // blr x16
            0xf85f_83b1, // ldr x17, [x29, #-8]: slot
            0xc89f_fe20, // stlr x0, [x17], which pairs with the ldar of the stub
            0xaa00_03f0, // mov x16, x0
            0x9100_83ff, // add sp, sp, #32
            0xacc1_5ff6, // ldp q22, q23, [sp], #32
            0xacc1_57f4, // q20, q21
            0xacc1_4ff2, // q18, q19
            0xacc1_47f0, // q16, q17
            0xacc1_3fee, // q14, q15
            0xacc1_37ec, // q12, q13
            0xacc1_2fea, // q10, q11
            0xacc1_27e8, // q8, q9
            0xacc1_1fe6, // q6, q7
            0xacc1_17e4, // q4, q5
            0xacc1_0fe2, // q2, q3
            0xacc1_07e0, // q0, q1
            0xf841_07f2, // ldr x18, [sp], #16
            0xa8c1_3fee, // ldp x14, x15, [sp], #16
            0xa8c1_37ec, // x12, x13
            0xa8c1_2fea, // x10, x11
            0xa8c1_27e8, // x8, x9
            0xa8c1_1fe6, // x6, x7
            0xa8c1_17e4, // x4, x5
            0xa8c1_0fe2, // x2, x3
            0xa8c1_07e0, // x0, x1
            0x9100_43ff, // add sp, sp, #16
            0xa8c1_7bfd, // ldp x29, x30, [sp], #16
            0xd61f_0200, // br x16, the function
        ]),
        fields: &[
            field(104, Aarch64Relocation::Call26, "getauxval"),
            field(116, Aarch64Relocation::Call26, "getauxval"),
        ],
    },
    stub_and_entry: CodeTemplate {
        bytes: &bytes::<11, 44>([
            BTI_C,
            ADRP_X16,    // adrp x16, slot
            ADD_X16_X16, // add x16, x16, slot
            LDAR_X17_X16,
            BR_X17,
            BTI_C,
            ADRP_X16,    // adrp x16, resolver
            ADD_X16_X16, // add x16, x16, resolver
            0x9000_0011, // adrp x17, slot
            0x9100_0231, // add x17, x17, slot
            B,           // b common
        ]),
        fields: &[
            field(4, Aarch64Relocation::AdrPrelPgHi21, IndirectTarget::Slot),
            field(8, Aarch64Relocation::AddAbsLo12Nc, IndirectTarget::Slot),
            field(24, Aarch64Relocation::AdrPrelPgHi21, IndirectTarget::Resolver),
            field(28, Aarch64Relocation::AddAbsLo12Nc, IndirectTarget::Resolver),
            field(32, Aarch64Relocation::AdrPrelPgHi21, IndirectTarget::Slot),
            field(36, Aarch64Relocation::AddAbsLo12Nc, IndirectTarget::Slot),
            field(40, Aarch64Relocation::Jump26, IndirectTarget::Common),
        ],
    },
    entry: 20,
};

/// The veneers between the sections of a long object. They reach ±4 GiB.
pub(crate) static VENEERS: VeneerCode = VeneerCode {
    reach: 128 << 20,
    group: 112 << 20,
    branches: &[EdgeKind::Aarch64(Aarch64Relocation::Jump26), EdgeKind::Aarch64(Aarch64Relocation::Call26)],
    direct: CodeTemplate {
        bytes: &bytes::<4, 16>([
            BTI_C,
            ADRP_X16,    // adrp x16, target
            0x9100_0211, // add x17, x16, target
            BR_X17,
        ]),
        fields: &[field(4, Aarch64Relocation::AdrPrelPgHi21, ()), field(8, Aarch64Relocation::AddAbsLo12Nc, ())],
    },
    through_slot: CodeTemplate {
        bytes: &bytes::<4, 16>([BTI_C, ADRP_X16, LDR_X17_X16, BR_X17]),
        fields: &[field(4, Aarch64Relocation::AdrGotPage, ()), field(8, Aarch64Relocation::Ld64GotLo12Nc, ())],
    },
};

/// `atexit(f)` as `__cxa_atexit(f, 0, &__dso_handle)`.
pub(crate) static ATEXIT: CodeTemplate<HandlerTarget> = CodeTemplate {
    bytes: &bytes::<5, 20>([
        BTI_C,
        0xaa1f_03e1, // mov x1, xzr
        0x9000_0002, // adrp x2, handle
        0x9100_0042, // add x2, x2, handle
        B,
    ]),
    fields: &[
        field(8, Aarch64Relocation::AdrPrelPgHi21, HandlerTarget::Handle),
        field(12, Aarch64Relocation::AddAbsLo12Nc, HandlerTarget::Handle),
        field(16, Aarch64Relocation::Jump26, HandlerTarget::Function),
    ],
};

/// Calls a function with the handle as one more argument: `adrp; add; b function`, with `x1`, `x2` or `x3`.
pub(crate) static WITH_HANDLE: [CodeTemplate<HandlerTarget>; 3] = [
    CodeTemplate { bytes: &bytes::<4, 16>([BTI_C, 0x9000_0001, 0x9100_0021, B]), fields: &HANDLE_FIELDS },
    CodeTemplate { bytes: &bytes::<4, 16>([BTI_C, 0x9000_0002, 0x9100_0042, B]), fields: &HANDLE_FIELDS },
    CodeTemplate { bytes: &bytes::<4, 16>([BTI_C, 0x9000_0003, 0x9100_0063, B]), fields: &HANDLE_FIELDS },
];

const HANDLE_FIELDS: [TemplateField<HandlerTarget>; 3] = [
    field(4, Aarch64Relocation::AdrPrelPgHi21, HandlerTarget::Handle),
    field(8, Aarch64Relocation::AddAbsLo12Nc, HandlerTarget::Handle),
    field(12, Aarch64Relocation::Jump26, HandlerTarget::Function),
];

/// Counts a call, and goes to the function, or to the entry when the count is used up. The subtraction is not atomic, because a
/// lost count does no harm.
pub(crate) static COUNTER_STUB: CodeTemplate<CounterTarget> = CodeTemplate {
    bytes: &bytes::<10, 40>([
        BTI_C,
        ADRP_X16,    // adrp x16, counter
        LDR_X17_X16, // ldr x17, [x16, counter]
        0xd100_0631, // sub x17, x17, #1
        0xf900_0211, // str x17, [x16, counter]
        0xb400_0051, // cbz x17, 1f
        B,           // b function
        ADRP_X16,    // 1: adrp x16, entry
        LDR_X17_X16, // ldr x17, [x16, entry]
        BR_X17,
    ]),
    fields: &[
        field(4, Aarch64Relocation::AdrPrelPgHi21, CounterTarget::Counter),
        field(8, Aarch64Relocation::Ldst64AbsLo12Nc, CounterTarget::Counter),
        field(16, Aarch64Relocation::Ldst64AbsLo12Nc, CounterTarget::Counter),
        field(24, Aarch64Relocation::Jump26, CounterTarget::Function),
        field(28, Aarch64Relocation::AdrPrelPgHi21, CounterTarget::Entry),
        field(32, Aarch64Relocation::Ldst64AbsLo12Nc, CounterTarget::Entry),
    ],
};

/// The function that TLS descriptors point to. On entry, `x0` is the address of the descriptor, whose second word is the address
/// of the pair that `__tls_get_addr` takes. On return, `x0` is the variable's distance from the thread pointer. All other
/// registers are kept, but not the flags and not what SVE registers have beyond 128 bits.
pub(crate) static TLS_DESCRIPTOR: CodeTemplate<()> = CodeTemplate {
    bytes: &bytes::<59, 236>([
        BTI_C,
        0xa9bf_7bfd, // stp x29, x30, [sp, #-16]!
        0x9100_03fd, // mov x29, sp
        0xa9bf_0be1, // stp x1, x2, [sp, #-16]!
        0xa9bf_13e3, // x3, x4
        0xa9bf_1be5, // x5, x6
        0xa9bf_23e7, // x7, x8
        0xa9bf_2be9, // x9, x10
        0xa9bf_33eb, // x11, x12
        0xa9bf_3bed, // x13, x14
        0xa9bf_43ef, // x15, x16
        0xa9bf_4bf1, // x17, x18
        0xadbf_07e0, // stp q0, q1, [sp, #-32]!
        0xadbf_0fe2, // q2, q3
        0xadbf_17e4, // q4, q5
        0xadbf_1fe6, // q6, q7
        0xadbf_47f0, // q16, q17
        0xadbf_4ff2, // q18, q19
        0xadbf_57f4, // q20, q21
        0xadbf_5ff6, // q22, q23
        0xadbf_67f8, // q24, q25
        0xadbf_6ffa, // q26, q27
        0xadbf_77fc, // q28, q29
        0xadbf_7ffe, // q30, q31
        0xadbf_27e8, // q8, q9
        0xadbf_2fea, // q10, q11
        0xadbf_37ec, // q12, q13
        0xadbf_3fee, // q14, q15
        0xf940_0400, // ldr x0, [x0, #8]
        0x9400_0000, // bl __tls_get_addr
        0xd53b_d041, // mrs x1, tpidr_el0
        0xcb01_0000, // sub x0, x0, x1
        0xacc1_3fee, // ldp q14, q15, [sp], #32
        0xacc1_37ec, // q12, q13
        0xacc1_2fea, // q10, q11
        0xacc1_27e8, // q8, q9
        0xacc1_7ffe, // q30, q31
        0xacc1_77fc, // q28, q29
        0xacc1_6ffa, // q26, q27
        0xacc1_67f8, // q24, q25
        0xacc1_5ff6, // q22, q23
        0xacc1_57f4, // q20, q21
        0xacc1_4ff2, // q18, q19
        0xacc1_47f0, // q16, q17
        0xacc1_1fe6, // q6, q7
        0xacc1_17e4, // q4, q5
        0xacc1_0fe2, // q2, q3
        0xacc1_07e0, // q0, q1
        0xa8c1_4bf1, // ldp x17, x18, [sp], #16
        0xa8c1_43ef, // x15, x16
        0xa8c1_3bed, // x13, x14
        0xa8c1_33eb, // x11, x12
        0xa8c1_2be9, // x9, x10
        0xa8c1_23e7, // x7, x8
        0xa8c1_1be5, // x5, x6
        0xa8c1_13e3, // x3, x4
        0xa8c1_0be1, // x1, x2
        0xa8c1_7bfd, // x29, x30
        0xd65f_03c0, // ret
    ]),
    fields: &[field(116, Aarch64Relocation::Call26, ())],
};

const BTI_C: u32 = 0xd503_245f;
const ADRP_X16: u32 = 0x9000_0010;
const ADD_X16_X16: u32 = 0x9100_0210;
const LDR_X17_X16: u32 = 0xf940_0211;
const LDAR_X17_X16: u32 = 0xc8df_fe11;
const BR_X17: u32 = 0xd61f_0220;
const B: u32 = 0x1400_0000;

const fn field<T>(offset: u32, relocation: Aarch64Relocation, target: T) -> TemplateField<T> {
    TemplateField { offset, kind: EdgeKind::Aarch64(relocation), addend: 0, target }
}

/// Instructions as bytes. `SIZE` is four times `COUNT`.
pub(super) const fn bytes<const COUNT: usize, const SIZE: usize>(instructions: [u32; COUNT]) -> [u8; SIZE] {
    assert!(SIZE == 4 * COUNT);
    let mut bytes = [0; SIZE];
    let mut at = 0;
    while at < SIZE {
        bytes[at] = (instructions[at / 4] >> (8 * (at % 4))) as u8;
        at += 1;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instructions(code: &[u8]) -> Vec<u32> {
        code.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn a_lazy_entry_finds_its_number_and_its_slot_behind_its_instructions() {
        let code = lazy_entry(0x1122_3344_5566_7788, -8);
        let expected = [0xd503_245f, 0x10ff_fff0, 0x9800_00d1, 0xf871_6a10, 0x5800_0051, 0xd61f_0200];
        assert_eq!(instructions(&code[..24]), expected);
        assert_eq!(code[24..32], 0x1122_3344_5566_7788_u64.to_le_bytes());
        assert_eq!(code[32..36], (-8i32).to_le_bytes());
    }

    #[test]
    fn a_stub_whose_slot_changes_acquires_what_was_written_before_the_slot() {
        let code = instructions(&redirectable_stub(0x40_0000, 0x2ff8));
        assert_eq!(code, [0xd503_245f, 0xd000_0010, 0x913f_e210, 0xc8df_fe11, 0xd61f_0220, 0]);
        // The ADRP is in the page after that of the stub, and so is the slot.
        let code = instructions(&redirectable_stub(0x40_0ffc, 4));
        assert_eq!(code, [0xd503_245f, 0x9000_0010, 0x9100_0210, 0xc8df_fe11, 0xd61f_0220, 0]);
        let indirect = instructions(INDIRECT.stub_and_entry.bytes);
        assert_eq!(indirect[3..5], [0xc8df_fe11, 0xd61f_0220], "the stub of an indirect function");
    }

    #[test]
    fn a_stub_loads_its_slot_by_the_page_of_the_load() {
        // The ADRP is in the page after that of the stub, and so is the slot.
        let code = instructions(&stub(0x40_0ffc, 4));
        assert_eq!(code, [0xd503_245f, 0x9000_0010, 0xf940_0211, 0xd61f_0220]);
        let code = instructions(&stub(0x40_0000, 0x2ff8));
        assert_eq!(code, [0xd503_245f, 0xd000_0010, 0xf947_fe11, 0xd61f_0220]);
        let code = instructions(&stub(0x40_0000, -8));
        assert_eq!(code, [0xd503_245f, 0xf0ff_fff0, 0xf947_fe11, 0xd61f_0220]);
    }
}
