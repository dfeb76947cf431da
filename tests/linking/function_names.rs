//! Which of several names at one address the list of functions of a link has.

use crate::debug_info_size::collected;
use crate::support::*;

/// The order of the symbols in the table is that of the source, local ones first.
#[test]
fn of_several_names_at_one_address_a_global_one_counts_and_then_one_with_a_size() {
    let Some(object) = asm("
        .text
        .type local, @function\nlocal: .type test, @function\n.globl test\ntest: ret\n.size local, 1\n.size test, 1
        .type bare, @function\nbare: .type sized, @function\nsized: ret\n.size sized, 1
        .section .note.GNU-stack,\"\",@progbits")
    else {
        return;
    };
    let (_, functions) = collected(&object);
    let names: Vec<&str> = functions.iter().map(|function| &*function.name).collect();
    assert_eq!(names, ["test", "sized"]);
}
