//! Makes an address that an instruction does not reach, in a thunk. Nothing but the instruction's own register changes.
//!
//! ```text
//!   adrp x0, symbol    →   b thunk          thunk: movz, movk x0, page of the symbol; b next instruction
//!   adr  x0, symbol    →   b thunk          thunk: movz, movk x0, symbol; b next instruction
//!   ldr  x0, symbol    →   b thunk          thunk: movz, movk x0, symbol; ldr x0, [x0]; b next instruction
//!   ldr  d0, symbol    →   b thunk          thunk: str x16, [sp, #-16]!; movz, movk x16, symbol; ldr d0, [x16];
//!                                                  ldr x16, [sp], #16; b next instruction
//! ```
//!
//! The symbol may be an entry of the GOT. The instructions after an ADRP add the offset in the page, as before.
//!
//! # Refused
//! A prefetch of a literal.

use crate::arch::EdgeKind;
use crate::arch::aarch64::branch::{B, branch};
use crate::arch::aarch64::field::Field;

/// The most bytes of a thunk.
pub(crate) const MAX_ADDRESS_THUNK_SIZE: usize = 32;

/// The thunk at an address for an instruction that refers to the far `address`. It goes on at `next`.
pub(super) fn build(instruction: u32, kind: EdgeKind, address: u64, thunk: u64, next: u64) -> Result<Vec<u8>, String> {
    let EdgeKind::Aarch64(relocation) = kind else { return Err("it is no operand of such an instruction".to_string()) };
    let register = instruction & 0x1f;
    let (value, load) = match (relocation.row().field, instruction & 0x9f00_0000) {
        (Field::Adrp, ADRP) => (address & !0xfff, None),
        (Field::Adr, ADR) => (address, None),
        (Field::Literal, _) => (address, Some(load_of(instruction).ok_or("it is no load of a literal")?)),
        _ => return Err("it is no operand of such an instruction".to_string()),
    };
    let is_vector = load.is_some_and(|load| load & VECTOR != 0);
    if register == ZERO_REGISTER && !is_vector {
        return Err("it has no register".to_string());
    }
    let base = if is_vector { SCRATCH } else { register };
    let part = |group: u32| (value >> (16 * group)) as u32 & 0xffff;
    let mut code = Vec::with_capacity(MAX_ADDRESS_THUNK_SIZE / 4);
    code.extend(is_vector.then_some(0xf81f_0ff0)); // str x16, [sp, #-16]!
    code.push(MOVZ | part(0) << 5 | base);
    code.extend((1..4).filter(|group| part(*group) != 0).map(|group| MOVK | group << 21 | part(group) << 5 | base));
    code.extend(load.map(|load| load | base << 5 | register));
    code.extend(is_vector.then_some(0xf841_07f0)); // ldr x16, [sp], #16
    let place = thunk.wrapping_add(4 * code.len() as u64);
    code.push(branch(B, place, next).ok_or("its thunk is out of reach")?);
    Ok(code.into_iter().flat_map(u32::to_le_bytes).collect())
}

/// The load without an offset (unsigned immediate) that does what a load of a literal does.
fn load_of(instruction: u32) -> Option<u32> {
    match instruction & 0xff00_0000 {
        0x1800_0000 => Some(0xb940_0000), // 32 bits
        0x5800_0000 => Some(0xf940_0000), // 64 bits
        0x9800_0000 => Some(0xb980_0000), // 32 bits with a sign
        0x1c00_0000 => Some(0xbd40_0000), // 32, 64 and 128 bits of a vector register
        0x5c00_0000 => Some(0xfd40_0000),
        0x9c00_0000 => Some(0x3dc0_0000),
        _ => None,
    }
}

const ADRP: u32 = 0x9000_0000;
const ADR: u32 = 0x1000_0000;
const MOVZ: u32 = 0xd280_0000;
const MOVK: u32 = 0xf280_0000;
const ZERO_REGISTER: u32 = 31;
/// The bit of a load into a vector register.
const VECTOR: u32 = 0x0400_0000;
/// The register for the address of a vector.
const SCRATCH: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Aarch64Relocation::*;

    fn built(instruction: u32, relocation: crate::arch::Aarch64Relocation, address: u64) -> Result<Vec<u32>, String> {
        let code = build(instruction, EdgeKind::Aarch64(relocation), address, 0x2000, 0x1004)?;
        assert!(code.len() <= MAX_ADDRESS_THUNK_SIZE);
        Ok(code.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
    }

    // The instructions are those of GNU `as`.

    #[test]
    fn a_thunk_makes_the_address_in_the_register_of_the_instruction() {
        let moves = [0xd28a_cf03, 0xf2a2_4683, 0xf2cf_ffe3]; // movz, movk, movk x3, 0x7fff12345678
        let page = [0xd28a_0003, 0xf2a2_4683, 0xf2cf_ffe3, 0x17ff_fbfe];
        assert_eq!(built(0x9000_0003, AdrPrelPgHi21, 0x7fff_1234_5678), Ok(page.to_vec()));
        assert_eq!(built(0xf0ff_ffe3, AdrPrelPgHi21Nc, 0x7fff_1234_5678), Ok(page.to_vec()));
        let adr = built(0x1000_0003, AdrPrelLo21, 0x7fff_1234_5678).unwrap();
        assert_eq!(adr, [&moves[..], &[0x17ff_fbfe]].concat());
        for (literal, load) in [(0x5800_0003, 0xf940_0063), (0x1800_0003, 0xb940_0063), (0x9800_0003, 0xb980_0063)] {
            let code = built(literal, LdPrelLo19, 0x7fff_1234_5678).unwrap();
            assert_eq!(code, [&moves[..], &[load, 0x17ff_fbfd]].concat());
        }
        for (literal, load) in [(0x1c00_0003, 0xbd40_0203), (0x5c00_001f, 0xfd40_021f), (0x9c00_0003, 0x3dc0_0203)] {
            // str x16, [sp, #-16]!; movz, movk, movk x16; ldr s3, [x16]; ldr x16, [sp], #16; b
            let code = built(literal, LdPrelLo19, 0x7fff_1234_5678).unwrap();
            let address = [0xd28a_cf10, 0xf2a2_4690, 0xf2cf_fff0];
            assert_eq!(code, [&[0xf81f_0ff0], &address[..], &[load, 0xf841_07f0, 0x17ff_fbfb]].concat());
        }
        let all = built(0x5c00_0003, LdPrelLo19, 0x1111_2222_3333_4444).unwrap();
        assert_eq!(all.len() * 4, MAX_ADDRESS_THUNK_SIZE);
        assert_eq!(built(0x1000_0003, AdrPrelLo21, 8), Ok(vec![0xd280_0103, 0x17ff_fc00]), "no empty part");
    }

    #[test]
    fn instructions_of_other_forms_have_no_address_thunk() {
        for (instruction, relocation, what) in [
            (0x1000_0003, AdrPrelPgHi21, "adr, for a page"),
            (0x9000_0003, AdrPrelLo21, "adrp, for an address"),
            (0x9100_0063, AdrPrelPgHi21, "add"),
            (0xd800_0003, LdPrelLo19, "prfm"),
            (0x5800_001f, LdPrelLo19, "ldr xzr"),
            (0x9000_001f, AdrPrelPgHi21, "adrp xzr"),
            (0x9100_0063, AddAbsLo12Nc, "an offset in a page"),
        ] {
            assert!(built(instruction, relocation, 8).is_err(), "{what}");
        }
    }
}
