//! Functions in machine code, for tests of graphs. They are the same functions on each architecture.

use jittison::link::{Aarch64Relocation, Edge, EdgeKind, SymbolIndex};

/// Machine code, and its edges.
pub struct MachineCode {
    pub bytes: Vec<u8>,
    pub edges: Vec<Edge>,
}

const IS_X86_64: bool = cfg!(target_arch = "x86_64");

/// What fills freed code and gaps in code.
pub const TRAP: u8 = if IS_X86_64 { 0xcc } else { 0 };

/// The signal of a thread that runs into it: `SIGTRAP` or `SIGILL`.
pub const TRAP_SIGNAL: i32 = if IS_X86_64 { 5 } else { 4 };

/// `void f(void) {}`
pub fn ret() -> Vec<u8> {
    if IS_X86_64 { vec![0xc3] } else { words(&[RET]) }
}

/// `long f(void) { return number; }`
pub fn returns(number: i32) -> Vec<u8> {
    if IS_X86_64 {
        // mov $number, %rax; ret
        [&[0x48, 0xc7, 0xc0][..], &number.to_le_bytes(), &[0xc3]].concat()
    } else {
        let half = |shift: u32| (number as u32 >> shift & 0xffff) << 5;
        // mov x0, #low; movk x0, #high, lsl 16; sxtw x0, w0
        words(&[0xd280_0000 | half(0), 0xf2a0_0000 | half(16), 0x9340_7c00, RET])
    }
}

/// `long f(void) { return callee() + 1; }`
pub fn one_more_than(callee: SymbolIndex) -> MachineCode {
    if IS_X86_64 {
        // push %rbx; call callee; inc %rax; pop %rbx; ret
        let bytes = vec![0x53, 0xe8, 0, 0, 0, 0, 0x48, 0xff, 0xc0, 0x5b, 0xc3];
        return MachineCode { bytes, edges: vec![edge(2, EdgeKind::Branch32, callee, -4)] };
    }
    // stp x29, x30, [sp, #-16]!; bl callee; add x0, x0, #1; ldp x29, x30, [sp], #16
    let bytes = words(&[0xa9bf_7bfd, 0x9400_0000, 0x9100_0400, 0xa8c1_7bfd, RET]);
    MachineCode { bytes, edges: vec![edge(4, EdgeKind::Aarch64(Aarch64Relocation::Call26), callee, 0)] }
}

/// `long f(void) { return variable; }`
pub fn load(variable: SymbolIndex) -> MachineCode {
    if IS_X86_64 {
        // mov variable(%rip), %rax; ret
        let bytes = vec![0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3];
        return MachineCode { bytes, edges: vec![edge(3, EdgeKind::Delta32, variable, -4)] };
    }
    // adrp x1, variable; ldr x0, [x1, variable]
    MachineCode { bytes: words(&[0x9000_0001, 0xf940_0020, RET]), edges: page_and_offsets(variable, &[4]) }
}

/// The same through the GOT, as position-independent code reaches a variable that another object may define.
pub fn load_by_got(variable: SymbolIndex) -> MachineCode {
    if IS_X86_64 {
        // mov variable@GOTPCREL(%rip), %rax; mov (%rax), %rax; ret
        let bytes = vec![0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x48, 0x8b, 0x00, 0xc3];
        return MachineCode { bytes, edges: vec![edge(3, EdgeKind::GotLoad32, variable, -4)] };
    }
    // adrp x1, :got:variable; ldr x1, [x1, :got_lo12:variable]; ldr x0, [x1]
    let kinds = [(0, Aarch64Relocation::AdrGotPage), (4, Aarch64Relocation::Ld64GotLo12Nc)];
    let edges = kinds.map(|(offset, kind)| edge(offset, EdgeKind::Aarch64(kind), variable, 0));
    MachineCode { bytes: words(&[0x9000_0001, 0xf940_0021, 0xf940_0020, RET]), edges: edges.to_vec() }
}

/// `long f(long n) { return variable += times * n; }`
pub fn add_to(variable: SymbolIndex, times: usize) -> MachineCode {
    if IS_X86_64 {
        // mov variable(%rip), %rax; add %rdi, %rax …; mov %rax, variable(%rip); ret
        let load = [0x48, 0x8b, 0x05, 0, 0, 0, 0];
        let add = [0x48, 0x01, 0xf8].repeat(times);
        let field = (load.len() + add.len() + 3) as u32;
        let bytes = [&load[..], &add, &[0x48, 0x89, 0x05, 0, 0, 0, 0, 0xc3]].concat();
        let edges = [3, field].map(|offset| edge(offset, EdgeKind::Delta32, variable, -4));
        return MachineCode { bytes, edges: edges.to_vec() };
    }
    // adrp x1, variable; ldr x2, [x1, variable]; add x2, x2, x0 …; str x2, [x1, variable]; mov x0, x2
    let add = vec![0x8b00_0042; times];
    let bytes = words(&[&[0x9000_0001, 0xf940_0022][..], &add, &[0xf900_0022, 0xaa02_03e0, RET]].concat());
    MachineCode { bytes, edges: page_and_offsets(variable, &[4, 8 + 4 * times as u32]) }
}

/// `long f(long a, long b, long c, long d, long e, long f, double g) { return a + b + c + d + e + f + (long) g; }`
pub fn sum_of_arguments() -> Vec<u8> {
    if IS_X86_64 {
        // rdi + rsi + rdx + rcx + r8 + r9 + (long) xmm0
        return vec![
            0x48, 0x8d, 0x04, 0x37, 0x48, 0x01, 0xd0, 0x48, 0x01, 0xc8, 0x4c, 0x01, 0xc0, 0x4c, 0x01, 0xc8, 0xf2, 0x4c,
            0x0f, 0x2c, 0xd8, 0x4c, 0x01, 0xd8, 0xc3,
        ];
    }
    // fcvtzs x6, d0; add x0, x0, x1 … x6
    let adds = (1..=6).map(|register| 0x8b00_0000 | register << 16);
    words(&[0x9e78_0006].into_iter().chain(adds).chain([RET]).collect::<Vec<u32>>())
}

const RET: u32 = 0xd65f_03c0;

fn words(instructions: &[u32]) -> Vec<u8> {
    instructions.iter().flat_map(|instruction| instruction.to_le_bytes()).collect()
}

fn edge(offset: u32, kind: EdgeKind, symbol: SymbolIndex, addend: i64) -> Edge {
    Edge { offset, kind, symbol, addend }
}

/// The edge of an ADRP at the start, and those of loads and stores of eight bytes.
fn page_and_offsets(variable: SymbolIndex, accesses: &[u32]) -> Vec<Edge> {
    let page = edge(0, EdgeKind::Aarch64(Aarch64Relocation::AdrPrelPgHi21), variable, 0);
    let access = |offset: &u32| edge(*offset, EdgeKind::Aarch64(Aarch64Relocation::Ldst64AbsLo12Nc), variable, 0);
    [page].into_iter().chain(accesses.iter().map(access)).collect()
}
