//! Archives that are read on demand, member by member. In every format they give the same members as an archive in memory, and
//! no other bytes are read.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use jittison::link::{Archive, ArchiveSet, FileBytes, ObjectBuffer, OpenFile, ReadAt};
use jittison::{Error, Jit};

use crate::changed::set_old_time;
use crate::support::*;
use jittison_test_support::archive_bytes::*;

/// A file in memory that records which ranges were read.
struct RecordedReads {
    bytes: Vec<u8>,
    ranges: Mutex<Vec<Range<u64>>>,
}

impl ReadAt for RecordedReads {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, range: Range<u64>) -> Result<ObjectBuffer, Error> {
        let part = &self.bytes[range.start as usize..range.end as usize];
        self.ranges.lock().unwrap().push(range);
        Ok(ObjectBuffer::from(part))
    }
}

fn open_on_demand(bytes: &[u8]) -> (Arc<RecordedReads>, Result<Archive, Error>) {
    let reads = Arc::new(RecordedReads { bytes: bytes.to_vec(), ranges: Mutex::default() });
    let file = reads.clone();
    let open_file: Arc<OpenFile> = Arc::new(move |_: &Path| Ok(FileBytes::OnDemand(file.clone())));
    (reads, Archive::open(Path::new("libparts.a"), open_file))
}

/// Offsets, names and bytes of all members, and the members that the index has for three names.
fn contents(archive: Archive) -> Result<String, Error> {
    let mut lines = Vec::new();
    for offset in archive.member_offsets()? {
        let member = archive.member(offset)?;
        lines.push(format!("{offset} {} {:?}", member.full_name(), &*member.bytes));
    }
    let mut set = ArchiveSet::default();
    set.add(vec![archive])?;
    for name in ["first", "second", "third"] {
        let listing = set.find(name);
        lines.push(format!("{name} {:?}", listing.map(|listing| set.member(listing.member()).map(|m| m.full_name()))));
    }
    Ok(lines.join("\n"))
}

type Format = fn(&[(&str, &[u8])], &[(String, usize)]) -> Vec<u8>;
const FORMATS: [Format; 4] = [gnu, gnu64, bsd, bsd64];

/// The first read does not reach the last member.
fn members() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("a.o", b"odd".to_vec()),
        ("a_name_of_more_than_sixteen_letters.o", vec![1; 100_000]),
        ("b.o", Vec::new()),
        ("another_name_of_more_than_sixteen_letters.o", vec![2; 70_001]),
    ]
}

fn list() -> Vec<(String, usize)> {
    [("first", 0), ("second", 1), ("third", 3)].map(|(name, member)| (name.to_string(), member)).to_vec()
}

#[test]
fn members_read_on_demand_equal_members_read_from_memory() {
    let members = members();
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    for format in FORMATS {
        for list in [list(), Vec::new()] {
            let bytes = format(&members, &list);
            let expected = contents(open("libparts.a", bytes.clone()).unwrap()).unwrap();
            let (_, archive) = open_on_demand(&bytes);
            assert_eq!(contents(archive.unwrap()).unwrap(), expected);
        }
    }
}

#[test]
fn an_index_longer_than_the_first_read_is_read_to_its_end() {
    let members = members();
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    let mut list: Vec<(String, usize)> = (0..20_000).map(|number| (format!("name_{number}"), 1)).collect();
    list.extend(self::list());
    for format in FORMATS {
        let bytes = format(&members, &list);
        let expected = contents(open("libparts.a", bytes.clone()).unwrap()).unwrap();
        let (_, archive) = open_on_demand(&bytes);
        assert_eq!(contents(archive.unwrap()).unwrap(), expected);
    }
}

#[test]
fn a_member_is_read_with_its_header_and_nothing_else() {
    let big = vec![3; 500_000];
    let members: [(&str, &[u8]); 3] = [("a.o", &big), ("b.o", &[4; 1000]), ("c.o", &big)];
    let bytes = gnu(&members, &[("first".to_string(), 1)]);
    let (reads, archive) = open_on_demand(&bytes);
    let archive = archive.unwrap();
    let offset = archive.member_offsets().unwrap()[1];
    reads.ranges.lock().unwrap().clear();
    assert_eq!(&*archive.member(offset).unwrap().bytes, [4; 1000]);
    let bytes_read: u64 = reads.ranges.lock().unwrap().iter().map(|range| range.end - range.start).sum();
    assert_eq!(bytes_read, 60 + 1000);
}

/// The error for a damaged archive does not depend on how it is read. Neither does the content of an accepted one.
#[test]
fn damaged_archives_give_the_same_result_on_demand_and_from_memory() {
    let members: [(&str, &[u8]); 3] = [("a.o", b"odd"), ("a_name_of_more_than_sixteen.o", &[5; 40]), ("b.o", b"")];
    let list: Vec<(String, usize)> = vec![("first".to_string(), 0), ("third".to_string(), 2)];
    let result = |archive: Result<Archive, Error>| archive.and_then(contents).map_err(|error| error.to_string());
    for format in FORMATS {
        let bytes = format(&members, &list);
        let mut damaged: Vec<Vec<u8>> = (0..bytes.len()).map(|size| bytes[..size].to_vec()).collect();
        for at in 0..bytes.len() {
            for byte in [b'9', b'/', 0xff] {
                let mut other = bytes.clone();
                other[at] = byte;
                damaged.push(other);
            }
        }
        for bytes in damaged {
            assert_eq!(
                result(open_on_demand(&bytes).1),
                result(open("libparts.a", bytes.clone())),
                "{}",
                bytes.escape_ascii()
            );
        }
    }
}

#[test]
fn a_member_beyond_4_gib_is_linked() {
    use std::os::unix::fs::FileExt as _;
    let Some(object) = c("int answer(void) { return 42; }") else { return };
    let dir = PrivateDir::new();
    let path = dir.path("libhuge.a");
    let gap = 5_u64 << 30;
    // An index, a member that is a hole in the file, and an object.
    let list_size = 8 + 8 + 7 + 1;
    let hole = 8 + 60 + list_size;
    let at = hole + 60 + gap;
    let list = [&1_u64.to_be_bytes()[..], &at.to_be_bytes(), b"answer\0\0"].concat();
    assert_eq!(list.len() as u64, list_size);
    let start = [&b"!<arch>\n"[..], &member("/SYM64/", &list), &header("hole/", gap as usize)].concat();
    let file = std::fs::File::create(&path).unwrap();
    file.write_all_at(&start, 0).unwrap();
    file.write_all_at(&member("answer.o/", &object), at).unwrap();
    set_old_time(&path);
    let jit = Jit::new().unwrap();
    jit.link_static_library(jit.main_dylib(), &path).unwrap();
    assert_eq!(function::<extern "C" fn() -> i32>(&jit, "answer").call(), 42);
}
