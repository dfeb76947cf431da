//! [`MappedFile`]: files that are mapped because the caller promises not to change them.

use jittison::link::ObjectBuffer;
use jittison::{Jit, MappedFile};

use crate::support::*;

#[test]
fn a_mapped_object_is_linked_from_the_mapping() {
    let Some(object) = c("int answer(void) { return 42; }") else { return };
    let dir = PrivateDir::new();
    let path = dir.write("answer.o", &object);
    // SAFETY: the directory is this test's own, and the file does not change.
    let mapped = unsafe { MappedFile::open(&path) }.unwrap();
    let jit = Jit::new().unwrap();
    let _tracker = add_object(&jit, jit.main_dylib(), "answer.o", ObjectBuffer::new(mapped));
    std::fs::remove_file(&path).unwrap();
    assert_eq!(function::<extern "C" fn() -> i32>(&jit, "answer").call(), 42);
}

#[test]
fn files_that_cannot_be_read_cannot_be_mapped() {
    // SAFETY: nothing is mapped.
    let refused = unsafe { MappedFile::open("/dev/zero") };
    assert_says(&refused.unwrap_err(), &["/dev/zero", "it is a character device"]);
    let dir = PrivateDir::new();
    // SAFETY: nothing is mapped.
    let refused = unsafe { MappedFile::open(dir.path("missing")) };
    assert_says(&refused.unwrap_err(), &["missing", "No such file"]);
}
