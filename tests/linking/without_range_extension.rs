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

#[test]
fn code_of_a_static_model_is_refused_by_the_name_of_the_feature_if_its_block_has_no_static_offset() {
    own_process!();
    let source = "static _Thread_local char big[1 << 20]; long test(void) { return (long)++big[5]; }";
    let Some(object) = gcc(&["-O2", "-fPIC", "-ftls-model=initial-exec"], source) else { return };
    let Some(dynamic) = gcc(&["-O2", "-fPIC"], source) else { return };
    let jit = new_jit();
    let error = refused_in(&jit, &object, "test");
    assert_says(
        &error,
        &["R_X86_64_GOTTPOFF", "initial-exec", "`big`", "static TLS offset", "feature `range-extension`"],
    );
    let _tracker = add(&jit, jit.main_dylib(), "dynamic.o", &dynamic);
    assert_eq!(long(&jit, "test"), 1);
}
