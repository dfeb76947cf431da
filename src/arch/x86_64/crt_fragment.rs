//! The fragments of `crti.o` and `crtn.o` of glibc and musl, and the frame of the functions that jittison makes.

use crate::arch::crt_fragment::{CrtFragment, CrtFrame};
use crate::arch::x86_64::FRAMELESS_CIE;

/// Which fragment of the C library `code` is; `None` for any other code.
pub(crate) fn crt_fragment(code: &[u8]) -> Option<CrtFragment> {
    let code = code.strip_prefix(&ENDBR64).unwrap_or(code);
    if [&ADD_8_RSP_RET[..], &POP_RAX_RET].contains(&code) {
        return Some(CrtFragment::End);
    }
    let rest = [&SUB_8_RSP[..], &PUSH_RAX].into_iter().find_map(|begin| code.strip_prefix(begin))?;
    if rest.is_empty() {
        return Some(CrtFragment::Beginning);
    }
    let (load, call) = rest.split_at_checked(7)?;
    (load == LOAD_RAX && call == CALL_IF_THERE).then_some(CrtFragment::BeginningWithCall)
}

/// Whether `code` ends with instructions that remove a frame and return.
pub(crate) fn ends_with_return(code: &[u8]) -> bool {
    matches!(code, [.., LEAVE | POP_RBP | POP_RAX, RET] | [.., 0x48, 0x83, 0xc4, _, RET])
}

/// The frame of glibc's functions, with the mark for indirect branches.
pub(crate) static CRT_FRAME: CrtFrame = CrtFrame {
    beginning: &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08], // endbr64; sub $8,%rsp
    end: &ADD_8_RSP_RET,
    filler: &[0x90], // nop
    unwind,
    unwind_start: 32,
};

/// The CFA is `%rsp + 8` in the first instructions and at the return, and `%rsp + 16` between. A fragment that calls
/// while it has pushed something is described wrongly.
fn unwind(size: u32) -> Vec<u8> {
    const ADVANCE: u8 = 0x40;
    const ADVANCE_4: u8 = 0x04;
    const DEF_CFA_OFFSET: u8 = 0x0e;
    let beginning = CRT_FRAME.beginning.len() as u8;
    // From the end of the beginning to the return.
    let body = size.saturating_sub(u32::from(beginning) + 1).to_le_bytes();
    let cie = [&20u32.to_le_bytes()[..], &[0; 4], &FRAMELESS_CIE].concat();
    // Length; distance of this field from the CIE; distance of the function; its size; no augmentation data.
    let words = [24, cie.len() as u32 + 4, 0, size].map(u32::to_le_bytes).concat();
    let program = [ADVANCE | beginning, DEF_CFA_OFFSET, 16, ADVANCE_4];
    [&cie[..], &words, &[0], &program, &body, &[DEF_CFA_OFFSET, 8, 0]].concat()
}

const LEAVE: u8 = 0xc9;
const POP_RBP: u8 = 0x5d;
const POP_RAX: u8 = 0x58;
const RET: u8 = 0xc3;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const SUB_8_RSP: [u8; 4] = [0x48, 0x83, 0xec, 0x08];
const ADD_8_RSP_RET: [u8; 5] = [0x48, 0x83, 0xc4, 0x08, 0xc3];
const PUSH_RAX: [u8; 1] = [0x50];
const POP_RAX_RET: [u8; 2] = [POP_RAX, RET];
/// `mov …(%rip),%rax`
const LOAD_RAX: [u8; 7] = [0x48, 0x8b, 0x05, 0, 0, 0, 0];
/// `test %rax,%rax; je 1f; call *%rax; 1:`
const CALL_IF_THERE: [u8; 7] = [0x48, 0x85, 0xc0, 0x74, 0x02, 0xff, 0xd0];
