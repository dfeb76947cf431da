//! More functions than granules of text: each has its entry, and nobody else's goes.

use crate::frames::frame_of;
use crate::host::*;
use crate::support::*;

/// So many functions that there are up to 64 to a granule, each of them with an entry; the last ones call.
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
fn an_object_of_more_functions_than_granules_unwinds_through_each_of_them() {
    let Some(object) = tiny(3_000, 500) else { return };
    passes_through(&object, "tiny.o");
}

#[test]
fn each_of_many_functions_in_one_granule_is_found_and_so_are_its_neighbours_while_such_objects_go() {
    let Some(object) = tiny(1_000, 0) else { return };
    let jit = new_jit();
    let load = |index: usize| {
        let dylib = jit.create_dylib(&format!("tiny {index}")).unwrap();
        let tracker = add(&jit, &dylib, "tiny.o", &object);
        let places: Vec<u64> =
            (0..1_000).map(|index| jit.address_of(&dylib, &format!("t{index}")).unwrap().value()).collect();
        (tracker, places)
    };
    let mut live: Vec<_> = (0..6).map(load).collect();
    let all_found = |places: &[u64]| places.iter().all(|place| frame_of(*place) == Some(*place));
    assert!(live[0].1.windows(2).all(|pair| pair[1] == pair[0] + 1), "one byte each");
    while let Some((tracker, places)) = (!live.is_empty()).then(|| live.remove(live.len() / 2)) {
        assert!(all_found(&places));
        assert!(tracker.remove().unwrap().is_complete());
        assert!(places.iter().all(|place| frame_of(*place).is_none()));
        assert!(live.iter().all(|(_, places)| all_found(places)));
    }
    assert_eq!(held(&jit), (0, 0, 0));
}

#[test]
fn text_is_padded_until_each_function_has_a_slot_and_the_padding_goes_with_it() {
    let Some(object) = tiny(1_000, 0) else { return };
    let jit = new_jit();
    let tracker = add(&jit, jit.main_dylib(), "tiny.o", &object);
    jit.address_of(jit.main_dylib(), "t0").unwrap();
    // 64 bytes of text to a slot.
    let code = jit.memory_statistics().pools[0];
    assert!((1_000..1_100).contains(&code.requested) && code.reserved >= 64 * 1_000, "{code:?}");
    assert!(tracker.remove().unwrap().is_complete());
    assert_eq!(jit.memory_statistics().pools[0].reserved, 0);
}
