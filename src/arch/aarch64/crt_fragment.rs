//! The fragments of `crti.o` and `crtn.o` of glibc and musl, and the frame of the functions that jittison makes.

use crate::arch::aarch64::FRAMELESS_CIE;
use crate::arch::aarch64::code::bytes;
use crate::arch::crt_fragment::{CrtFragment, CrtFrame};

/// Which fragment of the C library `code` is; `None` for any other code.
pub(crate) fn crt_fragment(code: &[u8]) -> Option<CrtFragment> {
    let (words, []) = code.as_chunks::<4>() else { return None };
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    match &words[..] {
        [POP_FRAME, RET] | [POP_FRAME, AUTIASP, RET] => Some(CrtFragment::End),
        [NOP | BTI_C | PACIASP, rest @ ..] => beginning(rest),
        all => beginning(all),
    }
}

fn beginning(words: &[u32]) -> Option<CrtFragment> {
    match words {
        [PUSH_FRAME, SET_FRAME] => Some(CrtFragment::Beginning),
        [PUSH_FRAME, SET_FRAME, CALL] => Some(CrtFragment::BeginningWithCall),
        _ => None,
    }
}

/// Whether `code` ends with instructions that remove a frame and return.
pub(crate) fn ends_with_return(code: &[u8]) -> bool {
    let Some((rest, last)) = code.split_last_chunk::<4>() else { return false };
    let before = rest.last_chunk::<4>().map(|word| u32::from_le_bytes(*word));
    // ldp x29, x30, [sp], #size
    let is_pop = |word: u32| word & 0xffc0_7fff == POP_FRAME & 0xffc0_7fff;
    u32::from_le_bytes(*last) == RET && before.is_some_and(|word| word == AUTIASP || is_pop(word))
}

/// The frame of glibc's functions, with the mark for indirect branches.
pub(crate) static CRT_FRAME: CrtFrame = CrtFrame {
    beginning: &bytes::<3, 12>([BTI_C, PUSH_FRAME, SET_FRAME]),
    end: &bytes::<2, 8>([POP_FRAME, RET]),
    filler: &NOP.to_le_bytes(),
    unwind,
    unwind_start: 32,
};

/// The CFA is `sp` in the first two instructions and at the return, and `x29 + 16` between.
fn unwind(size: u32) -> Vec<u8> {
    const ADVANCE: u8 = 0x40;
    const ADVANCE_4: u8 = 0x04;
    const OFFSET: u8 = 0x80;
    const RESTORE: u8 = 0xc0;
    const DEF_CFA: u8 = 0x0c;
    const DEF_CFA_REGISTER: u8 = 0x0d;
    const DEF_CFA_OFFSET: u8 = 0x0e;
    const FP: u8 = 29;
    const LR: u8 = 30;
    const SP: u8 = 31;
    let cie = [&20u32.to_le_bytes()[..], &[0; 4], &FRAMELESS_CIE].concat();
    // Length; distance of this field from the CIE; distance of the function; its size; no augmentation data.
    let words = [36, cie.len() as u32 + 4, 0, size].map(u32::to_le_bytes).concat();
    // The code alignment is 4.
    let begin = [ADVANCE | 2, DEF_CFA_OFFSET, 16, OFFSET | FP, 2, OFFSET | LR, 1, ADVANCE | 1, DEF_CFA_REGISTER, FP];
    // From the end of the beginning to the return.
    let body = (size.saturating_sub(16) / 4).to_le_bytes();
    let end = [RESTORE | FP, RESTORE | LR, DEF_CFA, SP, 0];
    [&cie[..], &words, &[0], &begin, &[ADVANCE_4], &body, &end, &[0; 3]].concat()
}

const NOP: u32 = 0xd503_201f;
const BTI_C: u32 = 0xd503_245f;
const PACIASP: u32 = 0xd503_233f;
const AUTIASP: u32 = 0xd503_23bf;
/// `stp x29, x30, [sp, #-16]!`
const PUSH_FRAME: u32 = 0xa9bf_7bfd;
/// `mov x29, sp`
const SET_FRAME: u32 = 0x9100_03fd;
/// `ldp x29, x30, [sp], #16`
const POP_FRAME: u32 = 0xa8c1_7bfd;
/// `bl`, whose target is in its relocation.
const CALL: u32 = 0x9400_0000;
const RET: u32 = 0xd65f_03c0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_is_described_from_its_first_instruction_to_its_return() {
        // Three instructions, a fragment of two, and two.
        let table = unwind(28);
        assert_eq!(table.len(), 64);
        assert_eq!([&table[..4], &table[24..28], &table[28..32]], [[20, 0, 0, 0], [36, 0, 0, 0], [28, 0, 0, 0]]);
        assert_eq!(CRT_FRAME.unwind_start, 32, "the field is zero until the function has an address");
        assert_eq!(table[32..40], [0, 0, 0, 0, 28, 0, 0, 0]);
        // As GNU `as` writes for the directives of such a function.
        let begin = [0x42, 0x0e, 16, 0x9d, 2, 0x9e, 1, 0x41, 0x0d, 29];
        assert_eq!(table[41..51], begin);
        // Three units of four bytes: the fragment and the instruction that restores the registers.
        assert_eq!(table[51..61], [0x04, 3, 0, 0, 0, 0xdd, 0xde, 0x0c, 31, 0]);
    }

    #[test]
    fn code_that_only_resembles_a_fragment_of_the_c_library_is_kept() {
        let code = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let kind = |words: &[u32]| crt_fragment(&code(words));
        assert_eq!(kind(&[PUSH_FRAME, SET_FRAME]), Some(CrtFragment::Beginning));
        assert_eq!(kind(&[NOP, PUSH_FRAME, SET_FRAME, CALL]), Some(CrtFragment::BeginningWithCall));
        assert_eq!(kind(&[POP_FRAME, RET]), Some(CrtFragment::End));
        for other in
            [&[NOP][..], &[NOP, NOP, PUSH_FRAME, SET_FRAME], &[PUSH_FRAME], &[CALL], &[PUSH_FRAME, SET_FRAME, CALL + 1]]
        {
            assert_eq!(kind(other), None, "{other:x?}");
        }
        assert_eq!(crt_fragment(&code(&[POP_FRAME, RET])[..7]), None);
        assert!(ends_with_return(&code(&[NOP, POP_FRAME, RET])) && ends_with_return(&code(&[0xa8c3_7bfd, RET])));
        assert!(
            !ends_with_return(&code(&[NOP, RET])) && !ends_with_return(&code(&[POP_FRAME])) && !ends_with_return(&[])
        );
    }
}
