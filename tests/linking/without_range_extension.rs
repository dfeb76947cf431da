//! Builds without the feature `range-extension`: a reference that needs it is refused by the name of the feature.

use crate::support::*;

#[test]
fn code_that_needs_range_extension_is_refused_by_the_name_of_the_feature() {
    let source = "#include <stdio.h>\nvoid *stream(void) { return stdout; }";
    let Some(object) = gcc(&["-O2", "-fno-pic", "-fno-pie"], source) else { return };
    let error = refused(&object, "stream");
    assert_says(&error, &["stdout", "out of reach", "feature `range-extension`", "-fPIC"]);
}

#[test]
fn the_address_of_a_library_function_is_refused_in_32_bits_and_a_call_is_not() {
    let flags = ["-O2", "-fno-pic", "-fno-pie"];
    let (Some(address), Some(call)) = (
        gcc(&flags, "extern long labs(long); void *address(void) { return labs; }"),
        gcc(&flags, "extern long labs(long); long call(void) { return labs(-3) + 1; }"),
    ) else {
        return;
    };
    assert_says(&refused(&address, "address"), &["labs", "out of reach", "feature `range-extension`", "-fPIC"]);
    let (jit, _trackers) = linked(&[&call]);
    assert_eq!(long(&jit, "call"), 4);
}
