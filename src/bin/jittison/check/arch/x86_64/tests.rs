//! The operand lists are those of LLVM's disassembler.

use super::{Decoded, Operand};

/// An instruction, its bytes, and LLVM's list with `r` for a register. Made with
/// `llvm-mc-19 -triple=x86_64-linux-gnu -disassemble -show-inst`. The number of a branch is relative to its end.
#[rustfmt::skip]
const LISTED_BY_LLVM: &[(&str, &str, &str)] = &[
    ("callq 0x1000", "e8fb0f0000", "0xffb"),
    ("jmp 0x1000", "e9fb0f0000", "0xffb"),
    ("jmp 0x10", "eb0e", "0xe"),
    ("jne 0x1000", "0f85fa0f0000", "0xffa 0x5"),
    ("jne 0x10", "750e", "0xe 0x5"),
    ("jrcxz 0x10", "e30e", "0xe"),
    ("addr32 callq 0x1000", "67e8fb0f0000", "0xffb"),
    ("movl 0x1234(%rip), %eax", "8b0534120000", "r r 0x1 r 0x1234 r"),
    ("movq 0x1234(%rip), %rax", "488b0534120000", "r r 0x1 r 0x1234 r"),
    ("movq -0x1234(%rip), %rax", "488b05ccedffff", "r r 0x1 r -0x1234 r"),
    ("movq %rax, 0x1234(%rip)", "48890534120000", "r 0x1 r 0x1234 r r"),
    ("movl $0xfffffff0, %eax", "b8f0ffffff", "r 0xfffffff0"),
    ("movl $0x12345678, 0x1234(%rip)", "c7053412000078563412", "r 0x1 r 0x1234 r 0x12345678"),
    ("movq $-0x10, %rax", "48c7c0f0ffffff", "r -0x10"),
    ("movq $-0x10, 0x1234(%rip)", "48c70534120000f0ffffff", "r 0x1 r 0x1234 r -0x10"),
    ("movb $-0x10, 0x1234(%rip)", "c60534120000f0", "r 0x1 r 0x1234 r -0x10"),
    ("movb $-0x10, %al", "b0f0", "r -0x10"),
    ("movw $0xfff0, %ax", "66b8f0ff", "r 0xfff0"),
    ("movabsq $0x123456789abcdef0, %rax", "48b8f0debc9a78563412", "r 0x123456789abcdef0"),
    ("movabsq 0x123456789abcdef0, %rax", "48a1f0debc9a78563412", "0x123456789abcdef0 r"),
    ("movabsq %rax, 0x123456789abcdef0", "48a3f0debc9a78563412", "0x123456789abcdef0 r"),
    ("movabsl 0x123456789abcdef0, %eax", "a1f0debc9a78563412", "0x123456789abcdef0 r"),
    ("movl 0x1234, %eax", "8b042534120000", "r r 0x1 r 0x1234 r"),
    ("movl -0x10(%rbp,%rcx,4), %eax", "8b448df0", "r r 0x4 r -0x10 r"),
    ("movl %fs:0x10, %eax", "648b042510000000", "r r 0x1 r 0x10 r"),
    ("movl 0x1234(%eip), %eax", "678b0534120000", "r r 0x1 r 0x1234 r"),
    ("movl -0x10(%ebx), %eax", "678b43f0", "r r 0x1 r -0x10 r"),
    ("movslq 0x1234(%rip), %rax", "48630534120000", "r r 0x1 r 0x1234 r"),
    ("movzbl 0x1234(%rip), %eax", "0fb60534120000", "r r 0x1 r 0x1234 r"),
    ("movsbl 0x1234(%rip), %eax", "0fbe0534120000", "r r 0x1 r 0x1234 r"),
    ("leaq 0x1234(%rip), %rdi", "488d3d34120000", "r r 0x1 r 0x1234 r"),
    ("leal 0x1234(%rip), %edi", "8d3d34120000", "r r 0x1 r 0x1234 r"),
    ("cmpq 0x1234(%rip), %rax", "483b0534120000", "r r 0x1 r 0x1234 r"),
    ("cmpq %rax, 0x1234(%rip)", "48390534120000", "r 0x1 r 0x1234 r r"),
    ("cmpl $-0x10, 0x1234(%rip)", "833d34120000f0", "r 0x1 r 0x1234 r -0x10"),
    ("cmpl $0x12345678, 0x1234(%rip)", "813d3412000078563412", "r 0x1 r 0x1234 r 0x12345678"),
    ("cmpb $-0x10, 0x1234(%rip)", "803d34120000f0", "r 0x1 r 0x1234 r -0x10"),
    ("cmpl $0x12345678, %eax", "3d78563412", "0x12345678"),
    ("cmpb $-0x10, %al", "3cf0", "-0x10"),
    ("testl %eax, 0x1234(%rip)", "850534120000", "r 0x1 r 0x1234 r r"),
    ("testq %rax, 0x1234(%rip)", "48850534120000", "r 0x1 r 0x1234 r r"),
    ("testl $0x12345678, 0x1234(%rip)", "f7053412000078563412", "r 0x1 r 0x1234 r 0x12345678"),
    ("testb $-0x10, 0x1234(%rip)", "f60534120000f0", "r 0x1 r 0x1234 r -0x10"),
    ("testb %al, %al", "84c0", "r r"),
    ("addq 0x1234(%rip), %rax", "48030534120000", "r r r 0x1 r 0x1234 r"),
    ("addq %rax, 0x1234(%rip)", "48010534120000", "r 0x1 r 0x1234 r r"),
    ("addq $-0x10, %rax", "4883c0f0", "r r -0x10"),
    ("addq $0x12345678, %rcx", "4881c178563412", "r r 0x12345678"),
    ("addl $0x12345678, %eax", "0578563412", "0x12345678"),
    ("addq $-0x12345678, %rax", "480588a9cbed", "-0x12345678"),
    ("adcq 0x1234(%rip), %rax", "48130534120000", "r r r 0x1 r 0x1234 r"),
    ("andq 0x1234(%rip), %rax", "48230534120000", "r r r 0x1 r 0x1234 r"),
    ("orq 0x1234(%rip), %rax", "480b0534120000", "r r r 0x1 r 0x1234 r"),
    ("sbbq 0x1234(%rip), %rax", "481b0534120000", "r r r 0x1 r 0x1234 r"),
    ("subq 0x1234(%rip), %rax", "482b0534120000", "r r r 0x1 r 0x1234 r"),
    ("xorq 0x1234(%rip), %rax", "48330534120000", "r r r 0x1 r 0x1234 r"),
    ("xorl %eax, %eax", "31c0", "r r r"),
    ("xorl %eax, %ecx", "31c1", "r r r"),
    ("imulq 0x1234(%rip), %rax", "480faf0534120000", "r r r 0x1 r 0x1234 r"),
    ("imulq $0x12345678, 0x1234(%rip), %rax", "4869053412000078563412", "r r 0x1 r 0x1234 r 0x12345678"),
    ("imulq $-0x10, %rcx, %rax", "486bc1f0", "r r -0x10"),
    ("incl 0x1234(%rip)", "ff0534120000", "r 0x1 r 0x1234 r"),
    ("negq %rax", "48f7d8", "r r"),
    ("mulq 0x1234(%rip)", "48f72534120000", "r 0x1 r 0x1234 r"),
    ("shlq $0xf0, %rax", "48c1e0f0", "r r 0xf0"),
    ("shlq %cl, %rax", "48d3e0", "r r"),
    ("shlq %rax", "48d1e0", "r r"),
    ("shlq $0xf0, 0x1234(%rip)", "48c12534120000f0", "r 0x1 r 0x1234 r 0xf0"),
    ("btq $0xf0, 0x1234(%rip)", "480fba2534120000f0", "r 0x1 r 0x1234 r 0xf0"),
    ("cmovneq 0x1234(%rip), %rax", "480f450534120000", "r r r 0x1 r 0x1234 r 0x5"),
    ("cmovnel 0x1234(%rip), %eax", "0f450534120000", "r r r 0x1 r 0x1234 r 0x5"),
    ("setne 0x1234(%rip)", "0f950534120000", "r 0x1 r 0x1234 r 0x5"),
    ("setne %al", "0f95c0", "r 0x5"),
    ("pushq 0x1234(%rip)", "ff3534120000", "r 0x1 r 0x1234 r"),
    ("pushq $-0x10", "6af0", "-0x10"),
    ("pushq $0x12345678", "6878563412", "0x12345678"),
    ("pushq %rax", "50", "r"),
    ("popq %rax", "58", "r"),
    ("popq 0x1234(%rip)", "8f0534120000", "r 0x1 r 0x1234 r"),
    ("callq *0x1234(%rip)", "ff1534120000", "r 0x1 r 0x1234 r"),
    ("callq *%rax", "ffd0", "r"),
    ("jmpq *0x1234(%rip)", "ff2534120000", "r 0x1 r 0x1234 r"),
    ("jmpq *%rax", "ffe0", "r"),
    ("jmpq *0x1234(,%rax,8)", "ff24c534120000", "r 0x8 r 0x1234 r"),
    ("notrack jmpq *%rax", "3effe0", "r"),
    ("retq", "c3", ""),
    ("ud2", "0f0b", ""),
    ("nop", "90", ""),
    ("nopw 0x1234(%rax,%rax)", "660f1f840034120000", "r 0x1 r 0x1234 r"),
    ("endbr64", "f30f1efa", ""),
    ("int $0xf0", "cdf0", "0xf0"),
    ("cltq", "4898", ""),
    ("movss 0x1234(%rip), %xmm0", "f30f100534120000", "r r 0x1 r 0x1234 r"),
    ("movsd 0x1234(%rip), %xmm0", "f20f100534120000", "r r 0x1 r 0x1234 r"),
    ("movsd %xmm0, 0x1234(%rip)", "f20f110534120000", "r 0x1 r 0x1234 r r"),
    ("movsd %xmm1, %xmm0", "f20f10c1", "r r r"),
    ("movaps 0x1234(%rip), %xmm0", "0f280534120000", "r r 0x1 r 0x1234 r"),
    ("movups %xmm0, 0x1234(%rip)", "0f110534120000", "r 0x1 r 0x1234 r r"),
    ("movdqa 0x1234(%rip), %xmm0", "660f6f0534120000", "r r 0x1 r 0x1234 r"),
    ("movq 0x1234(%rip), %xmm0", "f30f7e0534120000", "r r 0x1 r 0x1234 r"),
    ("addsd 0x1234(%rip), %xmm0", "f20f580534120000", "r r r 0x1 r 0x1234 r"),
    ("mulps 0x1234(%rip), %xmm0", "0f590534120000", "r r r 0x1 r 0x1234 r"),
    ("ucomisd 0x1234(%rip), %xmm0", "660f2e0534120000", "r r 0x1 r 0x1234 r"),
    ("cvtsi2sdq 0x1234(%rip), %xmm0", "f2480f2a0534120000", "r r r 0x1 r 0x1234 r"),
    ("cvttsd2si 0x1234(%rip), %rax", "f2480f2c0534120000", "r r 0x1 r 0x1234 r"),
    ("sqrtsd 0x1234(%rip), %xmm0", "f20f510534120000", "r r r 0x1 r 0x1234 r"),
    ("xorps %xmm0, %xmm0", "0f57c0", "r r r"),
    ("andpd 0x1234(%rip), %xmm0", "660f540534120000", "r r r 0x1 r 0x1234 r"),
    ("pshufd $0xf0, 0x1234(%rip), %xmm0", "660f700534120000f0", "r r 0x1 r 0x1234 r 0xf0"),
    ("cmpltsd 0x1234(%rip), %xmm0", "f20fc2053412000001", "r r r 0x1 r 0x1234 r 0x1"),
    ("pxor 0x1234(%rip), %xmm0", "660fef0534120000", "r r r 0x1 r 0x1234 r"),
    ("vmovaps 0x1234(%rip), %ymm0", "c5fc280534120000", "r r 0x1 r 0x1234 r"),
    ("vmovsd 0x1234(%rip), %xmm0", "c5fb100534120000", "r r 0x1 r 0x1234 r"),
    ("vaddsd 0x1234(%rip), %xmm1, %xmm0", "c5f3580534120000", "r r r 0x1 r 0x1234 r"),
    ("vfmadd213sd 0x1234(%rip), %xmm1, %xmm0", "c4e2f1a90534120000", "r r r r 0x1 r 0x1234 r"),
    ("vbroadcastss 0x1234(%rip), %ymm0", "c4e27d180534120000", "r r 0x1 r 0x1234 r"),
    ("vpshufb 0x1234(%rip), %ymm1, %ymm0", "c4e275000534120000", "r r r 0x1 r 0x1234 r"),
    ("vblendvps %xmm2, 0x1234(%rip), %xmm1, %xmm0", "c4e3714a053412000020", "r r r 0x1 r 0x1234 r r"),
    ("vpermq $0xf0, 0x1234(%rip), %ymm0", "c4e3fd000534120000f0", "r r 0x1 r 0x1234 r 0xf0"),
    ("flds 0x1234(%rip)", "d90534120000", "r 0x1 r 0x1234 r"),
    ("fstpl 0x1234(%rip)", "dd1d34120000", "r 0x1 r 0x1234 r"),
];

#[test]
fn operands_are_numbered_as_llvm_numbers_them() {
    for (instruction, bytes, list) in LISTED_BY_LLVM {
        let bytes = from_hex(bytes);
        let decoded = Decoded::from_bytes(&bytes).unwrap_or_else(|| panic!("{instruction} is not decoded"));
        assert_eq!(decoded.length(), Some(bytes.len() as u64), "{instruction}");
        assert_eq!(decoded.operands(), Some(from_list(list)), "{instruction}");
    }
}

#[test]
fn instructions_with_other_rules_in_llvm_have_no_list() {
    let others = [
        ("lock addl %eax, 0x1234(%rip)", "f0010534120000"),
        ("rep movsb", "f3a4"),
        ("movsb", "a4"),
        ("xchgl %eax, 0x1234(%rip)", "870534120000"),
        ("lock cmpxchgl %ecx, 0x1234(%rip)", "f00fb10d34120000"),
        ("faddp %st, %st(1)", "dec1"),
        ("vgatherdps %xmm0, 0x10(%rax,%xmm1,4), %xmm2", "c4e27992548810"),
        ("vaddpd 0x1234(%rip), %zmm1, %zmm0", "62f1f548580534120000"),
        ("data16 jmp", "66e9fb0f0000"),
        ("xlatb", "d7"),
    ];
    for (instruction, bytes) in others {
        let decoded = Decoded::from_bytes(&from_hex(bytes)).unwrap_or_else(|| panic!("{instruction} is not decoded"));
        assert_eq!(decoded.operands(), None, "{instruction}");
    }
}

#[test]
fn an_instruction_with_a_separate_prefix_has_no_length() {
    let decoded = Decoded::from_bytes(&from_hex("f0010534120000")).expect("lock addl");
    assert_eq!(decoded.length(), None);
}

#[test]
fn an_incomplete_instruction_is_not_decoded() {
    assert!(Decoded::from_bytes(&[]).is_none());
    assert!(Decoded::from_bytes(&[0x48, 0x8b, 0x05, 0]).is_none());
    assert!(Decoded::from_bytes(&[0x06]).is_none());
}

/// Any bytes give a result or `None`, and never a panic.
#[test]
fn no_bytes_make_the_decoder_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bytes = u128::from(state).wrapping_mul(0x0123_4567_89ab_cdef_0f1e_2d3c).to_le_bytes();
        if let Some(decoded) = Decoded::from_bytes(&bytes) {
            let _ = (decoded.length(), decoded.operands(), decoded.to_string());
        }
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn from_list(text: &str) -> Vec<Operand> {
    text.split_whitespace().map(from_entry).collect()
}

fn from_entry(entry: &str) -> Operand {
    if entry == "r" {
        return Operand::Register;
    }
    let digits = entry.trim_start_matches("-0x").trim_start_matches("0x");
    let value = u64::from_str_radix(digits, 16).expect("hexadecimal digits");
    Operand::Number(if entry.starts_with('-') { value.wrapping_neg() } else { value })
}
