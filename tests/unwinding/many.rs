//! Objects with more functions than granules of code: each function has an entry in the frame table, and a removal frees only its
//! own entries.

use crate::host::*;
use crate::support::frame_of;
use crate::support::*;

/// An object with `functions` one-byte functions, up to 64 in a granule, and with `calling` functions that call each other, the
/// last one `thrower`. Each has an unwind table.
fn tiny(functions: usize, calling: usize) -> Option<Vec<u8>> {
    let mut source = String::from(".text\n");
    for index in 0..functions {
        source += &format!(".globl t{index}\nt{index}: .cfi_startproc\nret\n.cfi_endproc\n");
    }
    for index in 0..calling {
        let name = if index == 0 { "outer".to_string() } else { format!("outer{index}") };
        let next = if index + 1 == calling { "thrower".to_string() } else { format!("outer{}", index + 1) };
        source += &format!(
            ".globl {name}\n{name}: .cfi_startproc\npush %rax\n.cfi_adjust_cfa_offset 8\ncall {next}@PLT\npop %rcx
             .cfi_adjust_cfa_offset -8\nret\n.cfi_endproc\n"
        );
    }
    asm(&(source + ".section .note.GNU-stack"))
}

#[test]
fn an_object_with_more_functions_than_granules_unwinds_through_each() {
    let Some(object) = tiny(3_000, 500) else { return };
    passes_through(&object, "tiny.o");
}

#[test]
fn every_function_of_a_crowded_granule_is_found_until_its_object_is_removed() {
    let Some(object) = tiny(1_000, 0) else { return };
    let jit = new_jit();
    let load = |index: usize| {
        let dylib = jit.create_dylib(&format!("tiny {index}")).unwrap();
        let tracker = add(&jit, &dylib, "tiny.o", &object);
        let addresses: Vec<u64> =
            (0..1_000).map(|index| jit.address_of(&dylib, &format!("t{index}")).unwrap().value()).collect();
        (tracker, addresses)
    };
    let mut live: Vec<_> = (0..6).map(load).collect();
    let all_found = |addresses: &[u64]| addresses.iter().all(|address| frame_of(*address) == Some(*address));
    assert!(live[0].1.windows(2).all(|pair| pair[1] == pair[0] + 1), "each function is one byte long");
    while let Some((tracker, addresses)) = (!live.is_empty()).then(|| live.remove(live.len() / 2)) {
        assert!(all_found(&addresses));
        assert!(tracker.remove().unwrap().is_complete());
        assert!(addresses.iter().all(|address| frame_of(*address).is_none()));
        assert!(live.iter().all(|(_, addresses)| all_found(addresses)));
    }
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn code_is_padded_until_each_function_has_a_slot_and_removal_frees_the_padding() {
    let Some(object) = tiny(1_000, 0) else { return };
    let jit = new_jit();
    let tracker = add(&jit, jit.main_dylib(), "tiny.o", &object);
    jit.address_of(jit.main_dylib(), "t0").unwrap();
    // One slot covers 64 bytes of code.
    let code = jit.memory_statistics().pools[0];
    assert!((1_000..1_100).contains(&code.requested) && code.reserved >= 64 * 1_000, "{code:?}");
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(jit.memory_statistics().pools[0].reserved, 0);
}
