//! Archives that are read member by member: the same members as from memory, whatever their format, and none of the bytes
//! between.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use jittison::link::{Archive, ArchiveSet, FileBytes, ObjectBuffer, OpenFile, ReadAt};
use jittison::{Error, Jit};

use crate::archive_bytes::*;
use crate::changed::age;
use crate::support::*;

/// Bytes that are handed out in parts, and what was asked for.
struct Parts {
    bytes: Vec<u8>,
    asked: Mutex<Vec<Range<u64>>>,
}

impl ReadAt for Parts {
    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, range: Range<u64>) -> Result<ObjectBuffer, Error> {
        let part = &self.bytes[range.start as usize..range.end as usize];
        self.asked.lock().unwrap().push(range);
        Ok(ObjectBuffer::from(part))
    }
}

fn open_in_parts(bytes: &[u8]) -> (Arc<Parts>, Result<Archive, Error>) {
    let parts = Arc::new(Parts { bytes: bytes.to_vec(), asked: Mutex::default() });
    let file = parts.clone();
    let open_file: Arc<OpenFile> = Arc::new(move |_: &Path| Ok(FileBytes::OnDemand(file.clone())));
    (parts, Archive::open(Path::new("libparts.a"), open_file))
}

/// Offsets, names and bytes of all members; the members that two names lead to.
fn contents(archive: Archive) -> Result<String, Error> {
    let mut told = Vec::new();
    for offset in archive.member_offsets()? {
        let member = archive.member(offset)?;
        told.push(format!("{offset} {} {:?}", member.full_name(), &*member.bytes));
    }
    let mut set = ArchiveSet::default();
    set.add(vec![archive])?;
    for name in ["first", "second", "third"] {
        let listing = set.find(name);
        told.push(format!("{name} {:?}", listing.map(|listing| set.member(listing.member()).map(|m| m.full_name()))));
    }
    Ok(told.join("\n"))
}

type Format = fn(&[(&str, &[u8])], &[(String, usize)]) -> Vec<u8>;
const FORMATS: [Format; 4] = [gnu, gnu64, bsd, bsd64];

/// More than what is read at first stands before the last member.
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
fn every_format_gives_the_same_members_in_parts_as_from_memory() {
    let members = members();
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    for format in FORMATS {
        for list in [list(), Vec::new()] {
            let bytes = format(&members, &list);
            let whole = contents(open("libparts.a", bytes.clone()).unwrap()).unwrap();
            let (_, archive) = open_in_parts(&bytes);
            assert_eq!(contents(archive.unwrap()).unwrap(), whole);
        }
    }
}

#[test]
fn a_list_longer_than_what_is_read_at_first_is_read_to_its_end() {
    let members = members();
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    let mut list: Vec<(String, usize)> = (0..20_000).map(|number| (format!("name_{number}"), 1)).collect();
    list.extend(self::list());
    for format in FORMATS {
        let bytes = format(&members, &list);
        let whole = contents(open("libparts.a", bytes.clone()).unwrap()).unwrap();
        let (_, archive) = open_in_parts(&bytes);
        assert_eq!(contents(archive.unwrap()).unwrap(), whole);
    }
}

#[test]
fn a_member_is_read_with_its_header_and_nothing_else() {
    let big = vec![3; 500_000];
    let members: [(&str, &[u8]); 3] = [("a.o", &big), ("b.o", &[4; 1000]), ("c.o", &big)];
    let bytes = gnu(&members, &[("first".to_string(), 1)]);
    let (parts, archive) = open_in_parts(&bytes);
    let archive = archive.unwrap();
    let offset = archive.member_offsets().unwrap()[1];
    parts.asked.lock().unwrap().clear();
    assert_eq!(&*archive.member(offset).unwrap().bytes, [4; 1000]);
    let asked: u64 = parts.asked.lock().unwrap().iter().map(|range| range.end - range.start).sum();
    assert_eq!(asked, 60 + 1000);
}

/// What a damaged archive is refused with does not depend on how it is read, and neither does what is let through.
#[test]
fn every_shortened_or_damaged_archive_is_treated_alike_in_parts_and_from_memory() {
    let members: [(&str, &[u8]); 3] = [("a.o", b"odd"), ("a_name_of_more_than_sixteen.o", &[5; 40]), ("b.o", b"")];
    let list: Vec<(String, usize)> = vec![("first".to_string(), 0), ("third".to_string(), 2)];
    let told = |archive: Result<Archive, Error>| archive.and_then(contents).map_err(|error| error.to_string());
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
                told(open_in_parts(&bytes).1),
                told(open("libparts.a", bytes.clone())),
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
    // A list, a member that is a hole, and an object.
    let list_size = 8 + 8 + 7 + 1;
    let hole = 8 + 60 + list_size;
    let at = hole + 60 + gap;
    let list = [&1_u64.to_be_bytes()[..], &at.to_be_bytes(), b"answer\0\0"].concat();
    assert_eq!(list.len() as u64, list_size);
    let start = [&b"!<arch>\n"[..], &member("/SYM64/", &list), &header("hole/", gap as usize)].concat();
    let file = std::fs::File::create(&path).unwrap();
    file.write_all_at(&start, 0).unwrap();
    file.write_all_at(&member("answer.o/", &object), at).unwrap();
    age(&path);
    let jit = Jit::new().unwrap();
    jit.link_static_library(jit.main_dylib(), &path).unwrap();
    assert_eq!(function::<extern "C" fn() -> i32>(&jit, "answer").call(), 42);
}
