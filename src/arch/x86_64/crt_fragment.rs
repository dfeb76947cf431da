//! The fragments of `crti.o` and `crtn.o` of glibc and musl.

use crate::arch::crt_fragment::CrtFragment;

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

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const SUB_8_RSP: [u8; 4] = [0x48, 0x83, 0xec, 0x08];
const ADD_8_RSP_RET: [u8; 5] = [0x48, 0x83, 0xc4, 0x08, 0xc3];
const PUSH_RAX: [u8; 1] = [0x50];
const POP_RAX_RET: [u8; 2] = [0x58, 0xc3];
/// `mov …(%rip),%rax`
const LOAD_RAX: [u8; 7] = [0x48, 0x8b, 0x05, 0, 0, 0, 0];
/// `test %rax,%rax; je 1f; call *%rax; 1:`
const CALL_IF_THERE: [u8; 7] = [0x48, 0x85, 0xc0, 0x74, 0x02, 0xff, 0xd0];
