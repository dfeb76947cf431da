//! The quick loop of fix-up: applies consecutive edges of the few kinds that nearly all edges have. For [`Arch::QUICK`] only.

use crate::arch::{Arch, EdgeKind};
use crate::link::graph::Edge;
use crate::link::targets::Target;

/// Applies edges of the few kinds that nearly all edges have, while their targets are plain and their values fit. The
/// block starts and ends [near zero](is_near_zero). The outcome is that of
/// `ResolvedLink::apply_edge`.
///
/// Returns the rest, from the first edge on that needs more than this. Nothing is written for that edge.
#[inline(never)] // a loop that has the registers to itself
pub(super) fn apply_plain_edges<'e>(
    mut edges: &'e [Edge],
    targets: &[Target],
    start: u64,
    bytes: &mut [u8],
) -> &'e [Edge] {
    while let Some((edge, rest)) = edges.split_first() {
        let Some(target) = targets.get(edge.symbol.index()).and_then(Target::plain) else { break };
        if !apply_plain_edge(edge, target, start, bytes) {
            break;
        }
        edges = rest;
    }
    edges
}

/// A four-byte field with the two bytes before it, as one array; and the byte before those, if there is one.
#[inline(always)]
pub(super) fn instruction_at(bytes: &mut [u8], field: usize) -> Option<(Option<u8>, &mut [u8; 6])> {
    let (before, code) = bytes.split_at_mut_checked(field.checked_sub(2)?)?;
    Some((before.last().copied(), code.first_chunk_mut()?))
}

/// Applies one edge as [`apply_plain_edges`] does. Returns false, and writes nothing, if the edge needs more than that.
#[inline(always)]
fn apply_plain_edge(edge: &Edge, target: u64, start: u64, bytes: &mut [u8]) -> bool {
    let (value, offset) = (target.wrapping_add_signed(edge.addend), edge.offset as usize);
    // Exact if it fits into four bytes: see `is_near_zero`.
    let distance = value.wrapping_sub(start).wrapping_sub(u64::from(edge.offset)) as i64;
    if matches!(edge.kind, EdgeKind::Delta32 | EdgeKind::Branch32) {
        let short = distance as i32;
        i64::from(short) == distance && store(bytes, offset, short.to_le_bytes())
    } else if matches!(edge.kind, EdgeKind::Pointer64) {
        store(bytes, offset, value.to_le_bytes())
    } else if Arch::QUICK.is_relaxable(edge.kind) && edge.addend == -4 {
        let code = instruction_at(bytes, offset);
        code.is_some_and(|(before, code)| Arch::QUICK.relax_got_load(edge.kind, before, code, distance))
    } else {
        false
    }
}

/// Stores a field. Returns false, and writes nothing, if the field is not inside the block.
#[inline]
pub(super) fn store<const WIDTH: usize>(bytes: &mut [u8], offset: usize, value: [u8; WIDTH]) -> bool {
    let field = bytes.get_mut(offset..offset + WIDTH);
    field.map(|field| field.copy_from_slice(&value)).is_some()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::link::graph::SymbolIndex;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Draws distances near the limits of four bytes, and any others.
        #[test]
        fn the_quick_loop_writes_a_distance_exactly_when_it_fits(
            (target, start) in (0..1u64 << 62, 0..1u64 << 61),
            addend in any::<Option<i64>>(),
            (miss, offset) in (-5_000_000_000..5_000_000_000i64, 0..64u32),
        ) {
            let addend = addend.unwrap_or_else(|| (start as i64).wrapping_sub(target as i64).wrapping_add(miss));
            let exact = i128::from(target) + i128::from(addend) - i128::from(start) - i128::from(offset);
            let edge = Edge { offset, kind: EdgeKind::Delta32, symbol: SymbolIndex(0), addend };
            let (mut bytes, mut expected) = ([0xaa; 68], [0xaa; 68]);
            let fits = i32::try_from(exact).ok();
            if let Some(value) = fits {
                expected[offset as usize..offset as usize + 4].copy_from_slice(&value.to_le_bytes());
            }
            prop_assert_eq!(apply_plain_edge(&edge, target, start, &mut bytes), fits.is_some());
            prop_assert_eq!(bytes, expected);
        }
    }
}
