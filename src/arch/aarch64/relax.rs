//! Relaxation of GOT loads: ADRP and LDR of a slot become ADRP and ADD, which make the symbol's address without the slot
//! (AAELF64, "Relocation optimization").
//!
//! ```text
//!   adrp x0, page of the slot              →   adrp x0, page of the symbol
//!   ldr  x0, [x0, offset of the slot]      →   add  x0, x0, offset of the symbol in its page
//! ```
//!
//! The page of the slot must be used by nothing but the load. So the load follows directly, and overwrites the register with
//! the page. The caller checks that no other load of the section has its page from elsewhere: code could jump between the two.

use crate::arch::aarch64::field::Field;

/// The two instructions that make the address `target`. `place` is the address of the first one. `None` if the instructions are
/// others, or if the page of `target` is out of reach.
pub(crate) fn relax_got_pair([page, load]: [u32; 2], place: u64, target: u64) -> Option<[u32; 2]> {
    let register = page & 0x1f;
    let is_page = page & 0x9f00_0000 == 0x9000_0000;
    let is_load = load & 0xffc0_0000 == LDR;
    let is_alone = load >> 5 & 0x1f == register && load & 0x1f == register && register != ZERO_REGISTER;
    let distance = i128::from(target & !0xfff) - i128::from(place & !0xfff);
    if !(is_page && is_load && is_alone && (-(1 << 32)..1 << 32).contains(&distance)) {
        return None;
    }
    let (mut first, mut second) = (page.to_le_bytes(), (ADD | register << 5 | register).to_le_bytes());
    Field::Adrp.store(&mut first, distance);
    Field::Add.store(&mut second, target.into());
    Some([first, second].map(u32::from_le_bytes))
}

/// LDR (immediate, unsigned offset, 64 bits).
const LDR: u32 = 0xf940_0000;
/// ADD (immediate, 64 bits).
const ADD: u32 = 0x9100_0000;
/// In ADRP the zero register, in LDR the stack pointer.
const ZERO_REGISTER: u32 = 31;

#[cfg(test)]
mod tests {
    use super::*;

    /// `adrp x3, .; ldr x3, [x3, #0x7f8]`
    const PAIR: [u32; 2] = [0x9000_0003, 0xf943_fc63];

    #[test]
    fn a_got_pair_becomes_the_address_if_its_page_is_in_reach() {
        let relaxed = |target| relax_got_pair(PAIR, 0x1_2340_0ffc, target);
        // adrp x3, +1 page; add x3, x3, #0x234
        assert_eq!(relaxed(0x1_2340_1234), Some([0xb000_0003, 0x9108_d063]));
        assert_eq!(relaxed(0x1_2340_0000), Some([0x9000_0003, 0x9100_0063]));
        let last = 0x1_2340_0000 + (1 << 32) - 0x1000 + 0xfff;
        assert_eq!(relaxed(last), Some([0xf07f_ffe3, 0x913f_fc63]));
        assert_eq!(relaxed(last + 1), None);
        let first = 0x1_2340_0000 - (1 << 32);
        assert_eq!(relaxed(first), Some([0x9080_0003, 0x9100_0063]));
        assert_eq!(relaxed(first - 1), None);
    }

    #[test]
    fn a_pair_whose_page_outlives_the_load_stays() {
        let relaxed = |pair| relax_got_pair(pair, 0x1000, 0x1000);
        assert!(relaxed(PAIR).is_some());
        assert_eq!(relaxed([0x9000_0003, 0xf943_fc62]), None, "ldr x2, [x3]");
        assert_eq!(relaxed([0x9000_0003, 0xf943_fc43]), None, "ldr x3, [x2]");
        assert_eq!(relaxed([0x9000_0003, 0xb943_fc63]), None, "ldr w3, [x3]");
        assert_eq!(relaxed([0x1000_0003, 0xf943_fc63]), None, "adr x3");
        assert_eq!(relaxed([0x9000_001f, 0xf940_03ff]), None, "ldr xzr, [sp]");
    }
}
