//! Paths to other kinds of files than regular ones, and to kernel files without a size. Each gives an error that names its kind,
//! or is read to its end. No call waits.

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use jittison::{Error, InputFile, Jit};

use crate::support::*;

/// The errors of each safe method that takes a path.
fn refusals(path: &Path) -> Vec<Error> {
    let jit = Jit::new().unwrap();
    let main = jit.main_dylib();
    let tracker = main.create_tracker().unwrap();
    // Shares the process: no version is replaced.
    let patchable = jit.patchable(main, &["answer"]).unwrap();
    vec![
        jit.add_object_file(&tracker, path).unwrap_err(),
        jit.link_static_library(main, path).unwrap_err(),
        jit.add_archive_whole(&tracker, path).unwrap_err(),
        patchable.patch().add_object_file(path).map(|_| ()).unwrap_err(),
        InputFile::open(path).unwrap_err(),
    ]
}

fn assert_refused(path: &Path, what: &str) {
    for error in refusals(path) {
        assert_says(&error, &[path.to_str().unwrap(), what]);
    }
}

/// Makes a FIFO. `None` if `mkfifo` is missing; the test is then reported as skipped.
fn fifo(dir: &PrivateDir) -> Option<std::path::PathBuf> {
    let path = dir.path("fifo.o");
    assert!(require("mkfifo")?.arg(&path).status().unwrap().success());
    Some(path)
}

#[test]
fn a_fifo_without_a_writer_is_refused_without_waiting() {
    let dir = PrivateDir::new();
    let Some(path) = fifo(&dir) else { return };
    assert_refused(&path, "it is a FIFO, but only a regular file can be read");
}

#[test]
fn a_socket_a_directory_and_a_device_are_refused_by_their_kind() {
    let dir = PrivateDir::new();
    let socket = dir.path("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    assert_refused(&socket, "it is a socket, but only a regular file can be read");
    assert_refused(&dir.path(""), "it is a directory, but only a regular file can be read");
    assert_refused(Path::new("/dev/zero"), "it is a character device, but only a regular file can be read");
}

#[test]
fn a_symbolic_link_is_treated_as_its_target() {
    let dir = PrivateDir::new();
    let (to_device, to_nothing) = (dir.path("device.o"), dir.path("nothing.o"));
    std::os::unix::fs::symlink("/dev/zero", &to_device).unwrap();
    std::os::unix::fs::symlink("missing", &to_nothing).unwrap();
    assert_refused(&to_device, "it is a character device");
    assert_refused(&to_nothing, "No such file");
}

#[test]
fn a_file_that_reports_size_zero_is_read_to_its_end() {
    // Shares the process: any file of the kernel would do.
    let file = InputFile::open("/proc/self/status").unwrap();
    assert_eq!(file.size_bytes(), 0);
    let text = String::from_utf8(file.read().unwrap()).unwrap();
    assert!(text.starts_with("Name:") && text.ends_with('\n'), "{text}");
    // Bytes that are no object are refused with the name of the file.
    let jit = Jit::new().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    assert_says(&jit.add_object_file(&tracker, "/proc/self/status").unwrap_err(), &["/proc/self/status"]);
}

/// The second read returned nothing, because it began at the end of the first.
#[test]
fn every_read_of_a_file_returns_all_of_it() {
    let dir = PrivateDir::new();
    let path = dir.path("long");
    let bytes: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &bytes).unwrap();
    let file = InputFile::open(&path).unwrap();
    assert!((0..3).all(|_| file.read().unwrap() == bytes));
    std::thread::scope(|scope| {
        let readers = [(); 4].map(|()| scope.spawn(|| (0..20).all(|_| file.read().unwrap() == bytes)));
        assert!(readers.into_iter().all(|reader| reader.join().unwrap()));
    });
    let unsized_file = InputFile::open("/proc/version").unwrap();
    let first = unsized_file.read().unwrap();
    assert!(!first.is_empty() && unsized_file.read().unwrap() == first);
}

#[test]
fn an_empty_file_is_refused_by_name() {
    let dir = PrivateDir::new();
    let path = dir.path("empty.o");
    std::fs::write(&path, b"").unwrap();
    for error in &refusals_of_contents(&path) {
        assert_says(error, &["empty.o"]);
    }
}

#[test]
fn an_object_of_more_than_4_gib_is_refused_before_it_is_read() {
    let dir = PrivateDir::new();
    let path = dir.path("huge.o");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len((4 << 30) + 1).unwrap();
    let jit = Jit::new().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    let error = jit.add_object_file(&tracker, &path).unwrap_err();
    assert_says(&error, &["huge.o", "4294967297 bytes", "more than 4 GiB"]);
}

#[test]
fn a_range_beyond_the_end_is_an_error_with_the_file_size() {
    let dir = PrivateDir::new();
    let path = dir.path("short");
    std::fs::File::create(&path).unwrap().write_all(b"twelve bytes").unwrap();
    let file = InputFile::open(&path).unwrap();
    assert_eq!(file.read_at(7..12).unwrap(), b"bytes");
    for range in [7..13, 13..13, u64::MAX..u64::MAX, 0..u64::MAX] {
        assert_says(&file.read_at(range).unwrap_err(), &["short", "are not within its 12"]);
    }
    #[allow(clippy::reversed_empty_ranges)]
    let reversed = file.read_at(5..4);
    assert_says(&reversed.unwrap_err(), &["short", "are not within its 12"]);
}

fn refusals_of_contents(path: &Path) -> [Error; 2] {
    let jit = Jit::new().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    [jit.add_object_file(&tracker, path).unwrap_err(), jit.link_static_library(jit.main_dylib(), path).unwrap_err()]
}
