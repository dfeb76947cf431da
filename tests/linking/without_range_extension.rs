//! Builds without the feature `range-extension`: a reference that needs it is refused by the name of the feature.

use crate::support::*;

#[test]
fn code_that_needs_range_extension_is_refused_by_the_name_of_the_feature() {
    let source = "#include <stdio.h>\nvoid *stream(void) { return stdout; }";
    let Some(object) = gcc(&["-O2", "-fno-pic", "-fno-pie"], source) else { return };
    let error = refused(&object, "stream");
    assert_says(&error, &["stdout", "out of reach", "feature `range-extension`", "-fPIC"]);
}
