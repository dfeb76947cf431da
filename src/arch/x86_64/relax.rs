//! Relaxation of GOT loads (psABI B.2): rewrites an instruction that reads a GOT slot to reach the symbol directly.

use crate::arch::edge_kind::EdgeKind;

/// Rewrites the instruction of a GOT load to reach the symbol without its slot (psABI B.2), if the displacement fits.
/// Returns false, and changes nothing, otherwise.
///
/// | instruction | becomes |
/// |---|---|
/// | `mov slot(%rip), %reg` | `lea symbol(%rip), %reg` |
/// | `call *slot(%rip)` | `addr32 call symbol` |
/// | `jmp *slot(%rip)` | `jmp symbol; nop` |
///
/// `code` is the four-byte field and the two bytes before it. `before` is the byte before `code`, if there is one.
/// `displacement` is `S + A - P`, with the addend −4 that such loads carry.
///
/// The test is whether the *displacement* fits. A low target address is not enough, because the code may be far away
/// from it. Linkers that test the address rewrite loads that do not reach.
///
/// A call with a `rex.W` prefix stays as it is. In `data16 rex.W call *__tls_get_addr` (general dynamic without PLT)
/// the `addr32` prefix would take the place of `rex.W`, and AMD processors read `data16 call` as a call of 16 bits.
#[inline]
pub(crate) fn relax_got_load(kind: EdgeKind, before: Option<u8>, code: &mut [u8; 6], displacement: i64) -> bool {
    let fits = |displacement: i64| i32::try_from(displacement).ok().map(i32::to_le_bytes);
    let has_no_prefix = kind == EdgeKind::GotLoad32Relaxable;
    let [first, second, field @ ..] = code;
    match (*first, *second) {
        // mov slot(%rip), %reg → lea symbol(%rip), %reg
        (0x8b, modrm) if is_rip_relative(modrm) && is_relaxable(kind) => {
            let Some(displacement) = fits(displacement) else { return false };
            *first = 0x8d;
            *field = displacement;
            true
        }
        // call *slot(%rip) → addr32 call symbol
        (0xff, 0x15) if has_no_prefix && before != Some(0x48) => {
            let Some(displacement) = fits(displacement) else { return false };
            (*first, *second) = (0x67, 0xe8);
            *field = displacement;
            true
        }
        // jmp *slot(%rip) → jmp symbol; nop. The field moves one byte down, so the displacement grows by one.
        (0xff, 0x25) if has_no_prefix => {
            let Some([a, b, c, d]) = displacement.checked_add(1).and_then(fits) else { return false };
            (*first, *second) = (0xe9, a);
            *field = [b, c, d, 0x90];
            true
        }
        _ => false,
    }
}

/// Whether [`relax_got_load`] may rewrite the instruction.
#[inline]
pub(crate) fn is_relaxable(kind: EdgeKind) -> bool {
    matches!(kind, EdgeKind::GotLoad32Relaxable | EdgeKind::GotLoad32RexRelaxable)
}

fn is_rip_relative(modrm: u8) -> bool {
    modrm & 0xc7 == 0x05
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the instruction is rewritten, and its bytes afterwards.
    fn relaxed(kind: EdgeKind, instruction: [u8; 2], displacement: i64) -> (bool, [u8; 6]) {
        let mut code = [instruction[0], instruction[1], 0, 0, 0, 0];
        (relax_got_load(kind, Some(0x66), &mut code, displacement), code)
    }

    #[test]
    fn a_got_load_is_relaxed_by_displacement_not_by_the_targets_address() {
        let load = |displacement| relaxed(EdgeKind::GotLoad32RexRelaxable, [0x8b, 0x05], displacement);
        assert_eq!(load(-(1 << 40)), (false, [0x8b, 0x05, 0, 0, 0, 0]), "a low target that is out of reach");
        assert_eq!(load(-5), (true, [0x8d, 0x05, 0xfb, 0xff, 0xff, 0xff]));
    }

    #[test]
    fn calls_and_jumps_through_the_got_become_direct() {
        let branch = |instruction, displacement| relaxed(EdgeKind::GotLoad32Relaxable, instruction, displacement);
        assert_eq!(branch([0xff, 0x15], 0x1000), (true, [0x67, 0xe8, 0, 0x10, 0, 0]));
        assert_eq!(branch([0xff, 0x25], 0x1000), (true, [0xe9, 0x01, 0x10, 0, 0, 0x90]));
        let (is_relaxed, code) = branch([0xff, 0x25], i64::from(i32::MAX));
        assert_eq!((is_relaxed, code), (false, [0xff, 0x25, 0, 0, 0, 0]), "the displacement plus one does not fit");
    }

    #[test]
    fn a_call_with_a_rex_w_prefix_stays_a_call_through_the_got() {
        let mut code = [0xff, 0x15, 0, 0, 0, 0];
        assert!(!relax_got_load(EdgeKind::GotLoad32Relaxable, Some(0x48), &mut code, 0x1000));
        assert_eq!(code, [0xff, 0x15, 0, 0, 0, 0]);
        assert!(
            relax_got_load(EdgeKind::GotLoad32Relaxable, None, &mut code, 0x1000),
            "the call is at the start of the section"
        );
    }

    #[test]
    fn plain_got_loads_and_unknown_instructions_are_not_rewritten() {
        assert!(!relaxed(EdgeKind::GotLoad32, [0x8b, 0x05], 0).0);
        assert!(!relaxed(EdgeKind::GotLoad32Apx, [0xff, 0x15], 0).0);
        assert!(!relaxed(EdgeKind::GotLoad32RexRelaxable, [0xff, 0x15], 0).0, "a call with a prefix");
        assert!(!relaxed(EdgeKind::GotLoad32RexRelaxable, [0x03, 0x05], 0).0, "add");
    }
}
