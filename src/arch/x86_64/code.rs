//! Machine code of the linker's own: stubs, entries of lazy and indirect functions, the function of TLS descriptors,
//! handlers with a handle, counters of calls.

use crate::arch::code_template::{
    CodeTemplate, CounterTarget, HandlerTarget, IndirectCode, IndirectTarget, TemplateField,
};
use crate::arch::edge_kind::EdgeKind;
use crate::arch::{PLAIN_STUB_SIZE, STUB_SIZE};

/// `int3`: fills the gaps in code.
pub(crate) const TRAP: u8 = 0xcc;

/// A stub: `endbr64; jmp *slot(%rip)`, padded with traps. `endbr64` marks the stub as a valid target of indirect
/// branches (Intel CET), so its address may serve as a function pointer.
///
/// `distance` is the address of the slot minus that of the stub. It must fit in 32 bits.
#[inline]
pub(crate) fn stub(distance: i32) -> [u8; STUB_SIZE] {
    // The displacement counts from the end of the jump.
    let [a, b, c, d] = distance.wrapping_sub(10).to_le_bytes();
    [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, a, b, c, d, TRAP, TRAP, TRAP, TRAP, TRAP, TRAP]
}

/// A stub without `endbr64`: `jmp *slot(%rip)`, padded with traps. Eight bytes at a multiple of eight: the jump touches no
/// boundary of 32 bytes, which some processors decode slowly. Twelve bytes for a marked stub would.
#[inline]
pub(crate) fn plain_stub(distance: i32) -> [u8; PLAIN_STUB_SIZE] {
    // One word, because the compiler would put an array together byte by byte.
    const JUMP: u64 = u64::from_le_bytes([0xff, 0x25, 0, 0, 0, 0, TRAP, TRAP]);
    (JUMP | u64::from(distance.wrapping_sub(6) as u32) << 16).to_le_bytes()
}

/// Whether `before` ends with the opcode of `call`, `jmp` or a conditional jump whose operand is a distance of four
/// bytes. No other instruction has such a byte directly before a distance to an address.
pub(crate) fn is_branch_operand(before: &[u8]) -> bool {
    matches!(before, [.., 0xe8 | 0xe9] | [.., 0x0f, 0x80..=0x8f])
}

/// Bytes of the entry of a lazy function.
pub(crate) const LAZY_ENTRY_SIZE: usize = 20;

/// The entry of a lazy function: `endbr64; movabs $number,%r11; jmp *slot(%rip)`. `distance` is the address of the slot
/// minus that of the entry.
pub(crate) fn lazy_entry(number: u64, distance: i32) -> [u8; LAZY_ENTRY_SIZE] {
    let mut code = [0; LAZY_ENTRY_SIZE];
    code[..6].copy_from_slice(&[0xf3, 0x0f, 0x1e, 0xfa, 0x49, 0xbb]);
    code[6..14].copy_from_slice(&number.to_le_bytes());
    code[14..16].copy_from_slice(&[0xff, 0x25]);
    code[16..].copy_from_slice(&distance.wrapping_sub(LAZY_ENTRY_SIZE as i32).to_le_bytes());
    code
}

/// The code of indirect functions. At the start of the common part, the stack has the two words that an entry pushes:
/// the slot's address on top, then the resolver's.
///
/// The common part saves the registers in which a function may get arguments (psABI 3.2.3): the general ones, `%rax`
/// (variadic calls), `%r10` (static chain), and all that `fxsave` covers. It does not save the upper parts of 256-bit
/// and 512-bit arguments.
pub(crate) static INDIRECT: IndirectCode = IndirectCode {
    common: CodeTemplate {
        bytes: &[
            0x55, // push %rbp
            0x48, 0x89, 0xe5, // mov %rsp,%rbp        %rsp is a multiple of 16 here
            0x50, 0x57, 0x56, 0x52, 0x51, // push %rax, %rdi, %rsi, %rdx, %rcx
            0x41, 0x50, 0x41, 0x51, 0x41, 0x52, // push %r8, %r9, %r10
            0x48, 0x81, 0xec, 0x00, 0x02, 0x00, 0x00, // sub $512,%rsp
            0x48, 0x0f, 0xae, 0x04, 0x24, // fxsave64 (%rsp)
            0xff, 0x55, 0x10, // call *16(%rbp)
            0x4c, 0x8b, 0x5d, 0x08, // mov 8(%rbp),%r11
            0x49, 0x89, 0x03, // mov %rax,(%r11)
            0x49, 0x89, 0xc3, // mov %rax,%r11
            0x48, 0x0f, 0xae, 0x0c, 0x24, // fxrstor64 (%rsp)
            0x48, 0x81, 0xc4, 0x00, 0x02, 0x00, 0x00, // add $512,%rsp
            0x41, 0x5a, 0x41, 0x59, 0x41, 0x58, // pop %r10, %r9, %r8
            0x59, 0x5a, 0x5e, 0x5f, 0x58, // pop %rcx, %rdx, %rsi, %rdi, %rax
            0x5d, // pop %rbp
            0x48, 0x83, 0xc4, 0x10, // add $16,%rsp
            0x41, 0xff, 0xe3, // jmp *%r11
            TRAP, TRAP, TRAP, TRAP, TRAP,
        ],
        fields: &[],
    },
    stub_and_entry: CodeTemplate {
        bytes: &[
            0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 0, 0, 0, // endbr64; jmp *slot(%rip)
            TRAP, TRAP, TRAP, TRAP, TRAP, TRAP, 0xf3, 0x0f, 0x1e, 0xfa, // endbr64
            0x4c, 0x8d, 0x1d, 0, 0, 0, 0, 0x41, 0x53, // lea resolver(%rip),%r11; push %r11
            0x4c, 0x8d, 0x1d, 0, 0, 0, 0, 0x41, 0x53, // lea slot(%rip),%r11; push %r11
            0xe9, 0, 0, 0, 0, // jmp common
        ],
        fields: &[
            field(6, EdgeKind::Delta32, IndirectTarget::Slot),
            field(23, EdgeKind::Delta32, IndirectTarget::Resolver),
            field(32, EdgeKind::Delta32, IndirectTarget::Slot),
            field(39, EdgeKind::Delta32, IndirectTarget::Common),
        ],
    },
    entry: 16,
};

/// The function that TLS descriptors point to. On entry, `%rax` is the address of the descriptor, whose second word is
/// the address of the pair that `__tls_get_addr` takes. On return, `%rax` is the variable's distance from the thread
/// pointer. All other registers are kept, but not the flags.
pub(crate) fn tls_descriptor() -> &'static CodeTemplate<()> {
    if has_xsave() { &TLS_DESCRIPTOR_XSAVE } else { &TLS_DESCRIPTOR_FXSAVE }
}

#[cfg(target_arch = "x86_64")]
fn has_xsave() -> bool {
    std::is_x86_feature_detected!("xsave")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_xsave() -> bool {
    true
}

/// Saves the state of x87, SSE, AVX and AVX-512. The area has 2,688 bytes without compaction (Intel SDM, volume 1,
/// chapter 13); the bytes of its header that `xsave` does not write must be zero.
static TLS_DESCRIPTOR_XSAVE: CodeTemplate<()> = CodeTemplate {
    bytes: &[
        0xf3, 0x0f, 0x1e, 0xfa, // endbr64
        0x55, 0x48, 0x89, 0xe5, // push %rbp; mov %rsp,%rbp
        0x57, 0x56, 0x52, 0x51, // push %rdi, %rsi, %rdx, %rcx
        0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53, // push %r8, %r9, %r10, %r11
        0x48, 0x83, 0xe4, 0xc0, // and $-64,%rsp
        0x48, 0x81, 0xec, 0xc0, 0x0a, 0x00, 0x00, // sub $2752,%rsp
        0x48, 0x8b, 0x78, 0x08, // mov 8(%rax),%rdi
        0x31, 0xd2, // xor %edx,%edx
        0x48, 0x89, 0x94, 0x24, 0x00, 0x02, 0x00, 0x00, // mov %rdx,512(%rsp)
        0x48, 0x89, 0x94, 0x24, 0x08, 0x02, 0x00, 0x00, // mov %rdx,520(%rsp)
        0x48, 0x89, 0x94, 0x24, 0x10, 0x02, 0x00, 0x00, // mov %rdx,528(%rsp)
        0xb8, 0xe7, 0x00, 0x00, 0x00, // mov $0xe7,%eax
        0x48, 0x0f, 0xae, 0x24, 0x24, // xsave64 (%rsp)
        0xe8, 0, 0, 0, 0, // call __tls_get_addr
        0x64, 0x48, 0x2b, 0x04, 0x25, 0, 0, 0, 0, // sub %fs:0,%rax
        0x48, 0x89, 0xc7, // mov %rax,%rdi
        0xb8, 0xe7, 0x00, 0x00, 0x00, // mov $0xe7,%eax
        0x31, 0xd2, // xor %edx,%edx
        0x48, 0x0f, 0xae, 0x2c, 0x24, // xrstor64 (%rsp)
        0x48, 0x89, 0xf8, // mov %rdi,%rax
        0x48, 0x8d, 0x65, 0xc0, // lea -64(%rbp),%rsp
        0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58, // pop %r11, %r10, %r9, %r8
        0x59, 0x5a, 0x5e, 0x5f, // pop %rcx, %rdx, %rsi, %rdi
        0x5d, 0xc3, // pop %rbp; ret
    ],
    fields: &[field(72, EdgeKind::Branch32, ())],
};

/// The same for a processor without `xsave`, which has no AVX.
static TLS_DESCRIPTOR_FXSAVE: CodeTemplate<()> = CodeTemplate {
    bytes: &[
        0xf3, 0x0f, 0x1e, 0xfa, // endbr64
        0x55, 0x48, 0x89, 0xe5, // push %rbp; mov %rsp,%rbp
        0x57, 0x56, 0x52, 0x51, // push %rdi, %rsi, %rdx, %rcx
        0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53, // push %r8, %r9, %r10, %r11
        0x48, 0x83, 0xe4, 0xc0, // and $-64,%rsp
        0x48, 0x81, 0xec, 0x00, 0x02, 0x00, 0x00, // sub $512,%rsp
        0x48, 0x0f, 0xae, 0x04, 0x24, // fxsave64 (%rsp)
        0x48, 0x8b, 0x78, 0x08, // mov 8(%rax),%rdi
        0xe8, 0, 0, 0, 0, // call __tls_get_addr
        0x64, 0x48, 0x2b, 0x04, 0x25, 0, 0, 0, 0, // sub %fs:0,%rax
        0x48, 0x0f, 0xae, 0x0c, 0x24, // fxrstor64 (%rsp)
        0x48, 0x8d, 0x65, 0xc0, // lea -64(%rbp),%rsp
        0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58, // pop %r11, %r10, %r9, %r8
        0x59, 0x5a, 0x5e, 0x5f, // pop %rcx, %rdx, %rsi, %rdi
        0x5d, 0xc3, // pop %rbp; ret
        TRAP, TRAP, TRAP, TRAP,
    ],
    fields: &[field(41, EdgeKind::Branch32, ())],
};

/// `atexit(f)` as `__cxa_atexit(f, 0, &__dso_handle)`:
/// `endbr64; xor %esi,%esi; lea handle(%rip),%rdx; jmp function`.
pub(crate) static ATEXIT: CodeTemplate<HandlerTarget> = CodeTemplate {
    bytes: &[0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xf6, 0x48, 0x8d, 0x15, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0],
    fields: &[
        field(9, EdgeKind::Delta32, HandlerTarget::Handle),
        field(14, EdgeKind::Branch32, HandlerTarget::Function),
    ],
};

/// Calls a function with the handle as its second, third or fourth argument: `endbr64; lea handle(%rip),%reg; jmp
/// function`.
pub(crate) static WITH_HANDLE: [CodeTemplate<HandlerTarget>; 3] = [
    CodeTemplate {
        bytes: &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8d, 0x35, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0], // %rsi
        fields: &WITH_HANDLE_FIELDS,
    },
    CodeTemplate {
        bytes: &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8d, 0x15, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0], // %rdx
        fields: &WITH_HANDLE_FIELDS,
    },
    CodeTemplate {
        bytes: &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8d, 0x0d, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0], // %rcx
        fields: &WITH_HANDLE_FIELDS,
    },
];

const WITH_HANDLE_FIELDS: [TemplateField<HandlerTarget>; 2] =
    [field(7, EdgeKind::Delta32, HandlerTarget::Handle), field(12, EdgeKind::Branch32, HandlerTarget::Function)];

/// Counts a call, and goes to the function: `endbr64; subq $1,counter(%rip); je 1f; jmp function; 1: jmp *entry(%rip)`.
///
/// The flags and `%r11`, which the entry uses, are free at the start of a function (psABI 3.2.1). The subtraction is not atomic,
/// because a lost count does no harm: each thread subtracts one from what it has read, so some call reaches zero. Calls on two
/// threads may reach it at once.
pub(crate) static COUNTER_STUB: CodeTemplate<CounterTarget> = CodeTemplate {
    bytes: &[
        0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0x2d, 0, 0, 0, 0, 1, 0x74, 5, 0xe9, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0,
    ],
    fields: &[
        // One byte of the instruction follows the field.
        TemplateField { offset: 7, kind: EdgeKind::Delta32, addend: -5, target: CounterTarget::Counter },
        field(15, EdgeKind::Branch32, CounterTarget::Function),
        field(21, EdgeKind::Delta32, CounterTarget::Entry),
    ],
};

/// A four-byte field at the end of its instruction, which counts from there.
const fn field<T>(offset: u32, kind: EdgeKind, target: T) -> TemplateField<T> {
    TemplateField { offset, kind, addend: -4, target }
}
