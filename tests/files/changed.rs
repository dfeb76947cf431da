//! Files that are truncated, rewritten or replaced between the call that adds them and the link that reads them.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use jittison::{InputFile, Jit};

use crate::support::*;

/// Larger than the read-ahead of a page fault, so that no page table has the end of a mapping.
const FILL: &str = "__attribute__((used)) static char fill[4 << 20] = { 1 };";

pub fn truncate(path: &Path, size_bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(size_bytes).unwrap();
}

/// Sets the modification time to the past, as files of a system have it.
pub fn set_old_time(path: &Path) {
    let past = SystemTime::now() - Duration::from_secs(3600);
    OpenOptions::new().write(true).open(path).unwrap().set_modified(past).unwrap();
}

pub fn write(dir: &PrivateDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.write(name, bytes);
    set_old_time(&path);
    path
}

/// A GNU archive with an index, built by `ar`.
fn archive(dir: &PrivateDir, name: &str, members: &[(&str, &[u8])]) -> Option<PathBuf> {
    let path = dir.archive("ar", &["rcs"], name, members)?;
    set_old_time(&path);
    Some(path)
}

#[test]
fn an_object_file_truncated_after_it_was_added_links_its_original_bytes() {
    own_process!();
    let Some(object) = c(&format!("{FILL} int answer(void) {{ return 42; }}")) else { return };
    let dir = PrivateDir::new();
    let path = write(&dir, "answer.o", &object);
    let jit = Jit::new().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.add_object_file(&tracker, &path).unwrap();
    truncate(&path, 100);
    let answer = function::<extern "C" fn() -> i32>(&jit, "answer");
    assert_eq!(answer.call(), 42);
}

#[test]
fn an_archive_truncated_before_a_member_is_needed_is_an_error() {
    own_process!();
    let Some(object) = c(&format!("{FILL} int answer(void) {{ return 42; }}")) else { return };
    let dir = PrivateDir::new();
    let Some(path) = archive(&dir, "libanswer.a", &[("answer.o", &object)]) else { return };
    let jit = Jit::new().unwrap();
    jit.link_static_library(jit.main_dylib(), &path).unwrap();
    truncate(&path, 300);
    let error = jit.address_of(jit.main_dylib(), "answer").unwrap_err();
    assert_says(&error, &["libanswer.a", "changed since it was opened", "300 bytes"]);
}

#[test]
fn a_whole_archive_truncated_after_it_was_added_links_its_original_bytes() {
    own_process!();
    let Some(object) = c(&format!("{FILL} int answer(void) {{ return 42; }}")) else { return };
    let dir = PrivateDir::new();
    let Some(path) = archive(&dir, "libanswer.a", &[("answer.o", &object)]) else { return };
    let jit = Jit::new().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    assert_eq!(jit.add_archive_whole(&tracker, &path).unwrap(), 1);
    truncate(&path, 300);
    let answer = function::<extern "C" fn() -> i32>(&jit, "answer");
    assert_eq!(answer.call(), 42);
}

#[test]
fn a_thin_archive_member_truncated_after_it_was_added_links_its_original_bytes() {
    own_process!();
    let Some(object) = c(&format!("{FILL} int answer(void) {{ return 42; }}")) else { return };
    let dir = PrivateDir::new();
    let member = write(&dir, "answer.o", &object);
    let text = format!("!<thin>\n{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", "answer.o/", 0, 0, 0, 644, object.len());
    let path = write(&dir, "libthin.a", text.as_bytes());
    let jit = Jit::new().unwrap();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    assert_eq!(jit.add_archive_whole(&tracker, &path).unwrap(), 1);
    truncate(&member, 100);
    let answer = function::<extern "C" fn() -> i32>(&jit, "answer");
    assert_eq!(answer.call(), 42);
}

#[test]
fn a_patch_object_truncated_after_it_was_added_links_its_original_bytes() {
    own_process!();
    let Some(first) = c("int answer(void) { return 1; }") else { return };
    let Some(second) = c(&format!("{FILL} int answer(void) {{ return 2; }}")) else { return };
    let dir = PrivateDir::new();
    let path = write(&dir, "answer.o", &second);
    let jit = Jit::new().unwrap();
    let patchable = jit.patchable(jit.main_dylib(), &["answer"]).unwrap();
    let commit = |patch: jittison::Patch| {
        // SAFETY: the objects are this test's own, and contain a function that returns a number.
        let _tickets = unsafe { patch.link() }.unwrap().commit().unwrap();
    };
    let mut patch = patchable.patch();
    patch.add_object("first.o", first).unwrap();
    commit(patch);
    let mut patch = patchable.patch();
    patch.add_object_file(&path).unwrap();
    truncate(&path, 100);
    commit(patch);
    let answer = function::<extern "C" fn() -> i32>(&jit, "answer");
    assert_eq!(answer.call(), 2);
}

#[test]
fn an_archive_rewritten_in_place_with_the_same_size_is_an_error() {
    let Some([old, new]) = two_versions() else { return };
    assert_eq!(old.len(), new.len());
    let dir = PrivateDir::new();
    let Some(path) = archive(&dir, "libanswer.a", &[("answer.o", &old)]) else { return };
    let jit = Jit::new().unwrap();
    jit.link_static_library(jit.main_dylib(), &path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len() - bytes.len() % 2;
    bytes[end - new.len()..end].copy_from_slice(&new);
    fs::write(&path, &bytes).unwrap();
    let error = jit.address_of(jit.main_dylib(), "answer").unwrap_err();
    assert_says(&error, &["libanswer.a", "changed since it was opened"]);
}

#[test]
fn an_archive_replaced_by_rename_links_its_original_bytes() {
    let Some([old, new]) = two_versions() else { return };
    let dir = PrivateDir::new();
    let Some(path) = archive(&dir, "libanswer.a", &[("answer.o", &old)]) else { return };
    let Some(other) = archive(&dir, "libother.a", &[("answer.o", &new)]) else { return };
    let jit = Jit::new().unwrap();
    jit.link_static_library(jit.main_dylib(), &path).unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(function::<extern "C" fn() -> i32>(&jit, "answer").call(), 1);
}

/// Two writes within one tick of the file system clock get the same modification time.
#[test]
fn an_archive_that_was_just_written_is_read_completely_when_it_is_added() {
    let Some([old, new]) = two_versions() else { return };
    let dir = PrivateDir::new();
    let Some(path) = archive(&dir, "libanswer.a", &[("answer.o", &old)]) else { return };
    let Some(other) = archive(&dir, "libother.a", &[("answer.o", &new)]) else { return };
    // `ar` leaves the current time.
    let now = SystemTime::now();
    OpenOptions::new().write(true).open(&path).unwrap().set_modified(now).unwrap();
    let jit = Jit::new().unwrap();
    jit.link_static_library(jit.main_dylib(), &path).unwrap();
    fs::write(&path, fs::read(&other).unwrap()).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_modified(now).unwrap();
    assert_eq!(function::<extern "C" fn() -> i32>(&jit, "answer").call(), 1);
}

#[test]
fn a_file_that_changes_while_it_is_read_is_an_error_or_complete() {
    let dir = PrivateDir::new();
    let path = dir.path("growing");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                file.set_len((1 << 20) + round % 7 * 4096).unwrap();
            }
        });
        let mut refused = 0;
        for _ in 0..300 {
            let file = InputFile::open(&path).unwrap();
            match file.read() {
                Ok(bytes) => assert_eq!(bytes.len() as u64, file.size_bytes()),
                Err(error) => {
                    assert_says(&error, &["growing", "changed since it was opened"]);
                    refused += 1;
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        println!("{refused} of 300 reads were refused");
    });
}

fn two_versions() -> Option<[Vec<u8>; 2]> {
    let version = |number| c(&format!("{FILL} int answer(void) {{ return {number}; }}"));
    Some([version(1)?, version(2)?])
}
