//! Damaged and lying archives: the result is an error or a link, never a panic, a hang or a read out of bounds. The tests run
//! no linked code.

use fastrand::Rng;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jittison::link::{Archive, ObjectBuffer, OpenFile};
use jittison::{Error, ErrorKind, Jit};

use crate::support::*;
use jittison_test_support::archive_bytes::*;

const LONG_NAME: &str = "the name of this member is long.o";

/// Three members, each of which needs the next.
fn members() -> Option<[(&'static str, Vec<u8>); 3]> {
    Some([
        ("test.o", asm(".globl test\ntest: jmp middle")?),
        (LONG_NAME, asm(".globl middle\nmiddle: jmp last")?),
        ("last.o", asm(".globl last\nlast: ret")?),
    ])
}

/// One archive of each format.
fn subjects() -> Vec<Vec<u8>> {
    let Some(owned) = members() else { return Vec::new() };
    let members: Vec<(&str, &[u8])> = owned.iter().map(|(name, bytes)| (*name, &**bytes)).collect();
    let list = list_of(&members);
    vec![gnu(&members, &list), gnu(&members, &[]), gnu64(&members, &list), bsd(&members, &list), bsd64(&members, &list)]
}

/// Opens the archive, links what it can and removes everything. Fails if the lookup of `test` fails.
fn try_to_link(jit: &Jit, bytes: Vec<u8>) -> Result<(), Error> {
    let dylib = jit.create_dylib("damaged").unwrap();
    let linked = open("libdamaged.a", bytes.clone()).and_then(|archive| {
        jit.static_libraries(&dylib)?.add(vec![archive])?;
        jit.address_of(&dylib, "test").map(drop)
    });
    let whole = jit.create_dylib("whole").unwrap();
    let tracker = whole.create_tracker().unwrap();
    let _ = open("libdamaged.a", bytes)
        .and_then(|archive| jittison::platform::add_whole_archive(jit.layer(), &tracker, &archive));
    drop(tracker);
    for dylib in [dylib, whole] {
        assert!(jit.session().remove_dylib(&dylib).unwrap().is_empty());
    }
    assert_eq!(held(jit), (0, 0, 0));
    linked
}

#[test]
fn archives_truncated_at_every_byte_are_refused() {
    for bytes in subjects() {
        let jit = Jit::builder().window_size(64 << 20).build().unwrap();
        try_to_link(&jit, bytes.clone()).expect("the complete archive links");
        for length in 0..bytes.len() {
            try_to_link(&jit, bytes[..length].to_vec()).expect_err("a truncated archive is refused");
        }
    }
}

/// Applies `change` to a fresh copy in each round, and links the result.
fn damage(rounds: usize, seed: u64, change: impl Fn(&mut Rng, &mut Vec<u8>)) {
    let start = processor_time();
    for (subject, bytes) in subjects().into_iter().enumerate() {
        let jit = Jit::builder().window_size(64 << 20).build().unwrap();
        let mut dice = Rng::with_seed(seed + subject as u64);
        let damaged = || {
            let mut damaged = bytes.clone();
            change(&mut dice, &mut damaged);
            try_to_link(&jit, damaged).is_ok()
        };
        let linked = std::iter::repeat_with(damaged).take(rounds).filter(|linked| *linked).count();
        assert!(linked < rounds, "some damage must be detected");
    }
    assert!(processor_time() - start < Duration::from_secs(300), "some step takes quadratic time");
}

#[test]
fn archives_with_flipped_bits_neither_panic_nor_hang_nor_leak() {
    damage(rounds(2000), 0x9e37_79b9, |dice, bytes| {
        for _ in 0..1 + dice.usize(..4) {
            let at = dice.usize(..bytes.len());
            bytes[at] ^= 1 << dice.usize(..8);
        }
    });
}

#[test]
fn damaged_headers_and_indexes_neither_panic_nor_hang_nor_leak() {
    damage(rounds(2000), 0x0bad_cafe, |dice, bytes| {
        let at = dice.usize(..240);
        let values = [b' ', b'/', b'#', b'0', b'1', b'9', b'`', b'\n', 0, 0x7f, 0x80, 0xff];
        for at in at..(at + 1 + dice.usize(..10)).min(bytes.len()) {
            bytes[at] = values[dice.usize(..values.len())];
        }
    });
}

/// The error of the lookup in an archive whose index `list` has changed.
fn error_with(list: impl Fn(&mut Vec<u8>)) -> Error {
    let jit = Jit::new().unwrap();
    let mut bytes = subjects().swap_remove(0);
    list(&mut bytes);
    try_to_link(&jit, bytes).unwrap_err()
}

/// Offset of the GNU index: a count, then the offsets of members.
const COUNT: usize = 8 + 60;

#[test]
fn an_index_that_points_to_no_member_is_refused_with_its_place() {
    if members().is_none() {
        return;
    }
    for (offset, parts) in [
        (0u32, ["at offset 0x0", "libdamaged.a"]),
        (9, ["at offset 0x9", "libdamaged.a"]),
        (u32::MAX, ["at offset 0xffffffff", "libdamaged.a"]),
    ] {
        let error = error_with(|bytes| bytes[COUNT + 4..COUNT + 8].copy_from_slice(&offset.to_be_bytes()));
        assert!(matches!(error.kind(), ErrorKind::Archive { .. }), "{error}");
        assert_says(&error, &parts);
    }
    for count in [4u32, 1000, u32::MAX] {
        let error = error_with(|bytes| bytes[COUNT..COUNT + 4].copy_from_slice(&count.to_be_bytes()));
        assert_says(&error, &["libdamaged.a"]);
    }
    // A member whose header claims more bytes than the archive has.
    let error = error_with(|bytes| {
        let at = bytes.windows(7).rposition(|name| name == b"last.o/").unwrap();
        bytes[at + 48..at + 58].copy_from_slice(b"9999999999");
    });
    assert_says(&error, &["libdamaged.a", "member `last.o`", "9999999999 bytes reach past the end"]);
}

#[test]
fn a_lookup_ends_when_the_index_names_the_wrong_member() {
    let Some(owned) = members() else { return };
    let members: Vec<(&str, &[u8])> = owned.iter().map(|(name, bytes)| (*name, &**bytes)).collect();
    // The index says that the first member defines every name. It defines only `test`, and needs `middle`.
    let list: List = ["test", "middle", "last", "absent"].map(|name| (name.to_string(), 0)).into();
    let jit = Jit::new().unwrap();
    jit.static_libraries(jit.main_dylib())
        .unwrap()
        .add(vec![open("liblies.a", gnu(&members, &list)).unwrap()])
        .unwrap();
    for name in ["absent", "last", "middle", "test", "absent"] {
        let error = jit.address_of(jit.main_dylib(), name).unwrap_err();
        assert!(matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. }), "{error}");
    }
    jit.main_dylib().clear().unwrap();
    assert!(jit.address_of(jit.main_dylib(), "absent").is_err());
}

#[test]
fn nested_members_are_distinguished_by_their_offset() {
    let Some(owned) = members() else { return };
    // The outer member contains another member with its header. The index points to the inner one.
    let inner = member("test.o/", &owned[0].1);
    let mut bytes = [&b"!<arch>\n"[..], &member("/", &[0; 4 + 4 + 5 + 1]), &member("outer/", &inner)].concat();
    let place = bytes.len() - inner.len();
    let list = [&1u32.to_be_bytes()[..], &(place as u32).to_be_bytes(), b"test\0\0"].concat();
    bytes[COUNT..COUNT + list.len()].copy_from_slice(&list);
    let jit = Jit::new().unwrap();
    let error = try_to_link(&jit, bytes).unwrap_err();
    assert_says(&error, &["`middle`", "needed by libdamaged.a(test.o)"]);
}

#[test]
fn a_thin_archive_that_contains_itself_causes_no_endless_loop() {
    let Some([(_, test), ..]) = members() else { return };
    let thin = |list: &[u8]| [&b"!<thin>\n"[..], list, &header("libself.a/", 999), &header("libself.a/", 0)].concat();
    let archive = |bytes: Vec<u8>| {
        let bytes = ObjectBuffer::from(bytes);
        let open_file: Arc<OpenFile> = Arc::new(move |_: &Path| Ok(bytes.clone().into()));
        Archive::open(Path::new("libself.a"), open_file).unwrap()
    };
    // Without an index every member is read.
    assert_eq!(archive(thin(b"")).member_offsets().unwrap(), [8, 68]);
    let jit = Jit::new().unwrap();
    let list = member("/", &[&1u32.to_be_bytes()[..], &82u32.to_be_bytes(), b"test\0\0"].concat());
    assert_eq!(8 + list.len(), 82);
    jit.static_libraries(jit.main_dylib()).unwrap().add(vec![archive(thin(&list))]).unwrap();
    let error = jit.address_of(jit.main_dylib(), "test").unwrap_err();
    assert_says(&error, &["libself.a(libself.a)", "it is an archive"]);
    let _test = add(&jit, jit.main_dylib(), "test.o", &test);
    assert_says(&jit.address_of(jit.main_dylib(), "test").unwrap_err(), &["`middle`"]);
}

#[test]
fn a_file_that_a_thin_archive_lists_many_times_is_read_once_for_its_names() {
    let Some([(_, test), ..]) = members() else { return };
    let listed = header("test.o/", test.len()).repeat(1000);
    let (archive, test) = (ObjectBuffer::from([&b"!<thin>\n"[..], &listed].concat()), ObjectBuffer::from(test));
    let reads = Arc::new(AtomicUsize::new(0));
    let open_file: Arc<OpenFile> = Arc::new({
        let reads = reads.clone();
        move |path: &Path| match path.ends_with("test.o") {
            true => {
                reads.fetch_add(1, Ordering::Relaxed);
                Ok(test.clone().into())
            }
            false => Ok(archive.clone().into()),
        }
    });
    let archive = Archive::open(Path::new("libthin.a"), open_file).unwrap();
    assert_eq!(reads.load(Ordering::Relaxed), 1);
    let offsets = archive.member_offsets().unwrap();
    assert_eq!(offsets.len(), 1000);
    assert!(archive.member(offsets[999]).is_ok(), "each of them is a member");
    let jit = Jit::new().unwrap();
    jit.static_libraries(jit.main_dylib()).unwrap().add(vec![archive]).unwrap();
    let error = jit.address_of(jit.main_dylib(), "test").unwrap_err();
    assert_says(&error, &["`middle`", "needed by libthin.a(test.o)"]);
}

#[test]
fn many_names_for_one_member_and_many_empty_members_take_linear_time() {
    let Some([(_, test), ..]) = members() else { return };
    let start = processor_time();
    let list: List = (0..100_000).map(|n| (format!("name{}", n % 50_000), 0)).collect();
    let jit = Jit::new().unwrap();
    let libraries = jit.static_libraries(jit.main_dylib()).unwrap();
    libraries.add(vec![open("libmany.a", gnu(&[("test.o", &test)], &list)).unwrap()]).unwrap();
    assert_eq!(libraries.archives().name_count(), 50_000);
    assert!(jit.address_of(jit.main_dylib(), "name49999").is_err());
    let empty: Vec<(&str, &[u8])> = vec![("e.o", b""); 50_000];
    let archive = open("libempty.a", gnu(&empty, &[])).unwrap();
    assert_eq!(archive.member_offsets().unwrap().len(), 50_000);
    assert!(processor_time() - start < Duration::from_secs(60), "some step takes quadratic time");
}

#[test]
fn index_names_that_overlap_to_many_times_the_archive_are_refused() {
    let Some([(_, test), ..]) = members() else { return };
    const COUNT: usize = 40_000;
    let mut list: List = vec![("n".repeat(COUNT + 1), 0)];
    list.extend((0..COUNT).map(|_| (String::new(), 0)));
    let mut bytes = bsd(&[("test.o", &test)], &list);
    let names = bytes.windows(COUNT).position(|text| text.iter().all(|byte| *byte == b'n')).unwrap();
    // An entry is two words; the first is the offset of its name. Now each name begins inside the long name.
    for entry in 1..=COUNT {
        let at = names - 4 - 8 * (COUNT + 1 - entry);
        bytes[at..at + 4].copy_from_slice(&(entry as u32).to_le_bytes());
    }
    let jit = Jit::new().unwrap();
    let libraries = jit.static_libraries(jit.main_dylib()).unwrap();
    let error = libraries.add(vec![open("libshared.a", bytes).unwrap()]).unwrap_err();
    assert_says(&error, &["libshared.a", "overlap"]);
}
