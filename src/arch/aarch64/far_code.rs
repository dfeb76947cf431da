//! Moves instructions that cannot hold what they refer to into thunks. A `b` to the thunk replaces the instruction, and the thunk
//! goes on after it.
//!
//! | reference | thunk |
//! |---|---|
//! | the page of a symbol that ADRP does not reach; an address that ADR, or a load of a literal, does not reach | `address_thunk.rs` |
//! | a distance of a thread-local variable that differs from thread to thread | `distance_thunk.rs` |

use crate::arch::aarch64::address_thunk;
use crate::arch::aarch64::branch::{B, branch};
use crate::arch::aarch64::distance_thunk::DistanceSection;
use crate::arch::far_code::{FarCode, FarCodeFault, FarReference, FarValue};

/// Moves the instruction of each reference to a thunk. Changes `bytes`, the section in memory, and appends to `thunks`.
///
/// # Errors
/// The first reference that has no thunk.
pub(crate) fn extend_code(code: &FarCode<'_>, bytes: &mut [u8], thunks: &mut Vec<u8>) -> Result<(), FarCodeFault> {
    let distances = DistanceSection::of(code);
    for (number, reference) in code.references.iter().enumerate() {
        let at = reference.offset as usize;
        let moved = move_instruction(code, reference, &distances, bytes, thunks.len());
        let instruction = at..(at + 4).min(code.content.len());
        thunks.extend(moved.map_err(|problem| FarCodeFault { reference: number, instruction, problem })?);
    }
    Ok(())
}

/// Makes the instruction of a reference a branch to its thunk, which is `used` bytes behind the first one. Returns the code of
/// the thunk. The error is the reason, as a clause.
fn move_instruction(
    code: &FarCode<'_>,
    reference: &FarReference,
    distances: &DistanceSection,
    bytes: &mut [u8],
    used: usize,
) -> Result<Vec<u8>, String> {
    let first = code.thunks.ok_or("no thunk is reserved")?;
    let old = bytes.get_mut(reference.offset as usize..).and_then(|rest| rest.first_chunk_mut::<4>());
    let old = old.ok_or("it is at the end of its section")?;
    let (place, thunk) = (code.address.wrapping_add(reference.offset.into()), first.wrapping_add(used as u64));
    let (instruction, next) = (u32::from_le_bytes(*old), place.wrapping_add(4));
    let moved = match reference.value {
        FarValue::Address(address) => address_thunk::build(instruction, reference.kind, address, thunk, next)?,
        FarValue::Distance(distance) => distances.thunk(instruction, reference.kind, &distance, thunk, next)?,
    };
    *old = branch(B, place, thunk).ok_or("its thunk is out of reach")?.to_le_bytes();
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Aarch64Relocation::{self, *};
    use crate::arch::EdgeKind;
    use crate::arch::far_code::ThreadDistance;

    const DISTANCE: ThreadDistance = ThreadDistance { variable: 0x9008, block: None, addend: 0, function: 0x3000 };

    fn words(code: &[u8]) -> Vec<u32> {
        code.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn moved(
        relocation: Aarch64Relocation,
        other: Option<Aarch64Relocation>,
        content: [u32; 2],
        thunks: Option<u64>,
    ) -> Result<(Vec<u32>, Vec<u8>), FarCodeFault> {
        let reference = |offset, relocation| FarReference {
            offset,
            kind: EdgeKind::Aarch64(relocation),
            value: FarValue::Distance(DISTANCE),
        };
        let references: Vec<FarReference> =
            [Some(reference(4, relocation)), other.map(|other| reference(0, other))].into_iter().flatten().collect();
        let mut bytes: Vec<u8> = content.into_iter().flat_map(u32::to_le_bytes).collect();
        let content = bytes.clone();
        let code =
            FarCode { content: &content, address: 0x1000, starts: &[], fields: &[], references: &references, thunks };
        let mut thunks = vec![0; 8];
        extend_code(&code, &mut bytes, &mut thunks).map(|()| (words(&bytes), thunks))
    }

    #[test]
    fn a_branch_to_the_thunk_stands_for_the_instruction() {
        let content = [0xd503_201f, 0x9100_0062];
        let (bytes, thunks) = moved(TlsleAddTprelLo12, None, content, Some(0x2000)).unwrap();
        // b 0x2008: the thunk follows the eight bytes of another one.
        assert_eq!(bytes, [0xd503_201f, 0x1400_0401]);
        // The thunk ends with a branch to the next instruction.
        let code = words(&thunks[8..]);
        assert_eq!(code.last().copied(), branch(B, 0x2008 + 4 * (code.len() as u64 - 1), 0x1008));
        let fault = |result: Result<_, FarCodeFault>| result.map(drop).unwrap_err();
        let far = fault(moved(TlsleAddTprelLo12, None, content, Some(0x1000_0000)));
        assert_eq!((far.problem.as_str(), far.instruction), ("its thunk is out of reach", 4..8));
        assert_eq!(fault(moved(TlsleAddTprelLo12, None, content, None)).problem, "no thunk is reserved");
        let beside_high = moved(TlsleAddTprelLo12, Some(TlsleAddTprelHi12), [0x9140_0062, 0x9100_0062], Some(0x2000));
        assert_eq!(fault(beside_high).problem, "another instruction has the upper bits of the distance");
        let parts = moved(TlsleAddTprelLo12Nc, Some(TlsleAddTprelHi12), [0x9140_0062, 0x9100_0062], Some(0x2000));
        assert!(parts.is_ok());
        // ptrue p0.d
        let vectors = fault(moved(TlsleAddTprelLo12, None, [0x25d8_e3e0, 0x9100_0062], Some(0x2000)));
        assert!(vectors.problem.contains("instructions of SVE"), "{}", vectors.problem);
    }
}
