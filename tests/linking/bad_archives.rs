//! Archives that were damaged, or lie: an error or a link, never a panic, a hang or a read out of bounds. Nothing is
//! executed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jittison::link::{Archive, ObjectBuffer, OpenFile};
use jittison::{Error, ErrorKind, Jit};

use crate::archive_bytes::*;
use crate::support::*;

const LONG_NAME: &str = "the name of this member is long.o";

/// Three members, each of which needs the next.
fn members() -> Option<[(&'static str, Vec<u8>); 3]> {
    Some([
        ("test.o", asm(".globl test\ntest: jmp middle")?),
        (LONG_NAME, asm(".globl middle\nmiddle: jmp last")?),
        ("last.o", asm(".globl last\nlast: ret")?),
    ])
}

/// An archive of each kind.
fn subjects() -> Vec<Vec<u8>> {
    let Some(owned) = members() else { return Vec::new() };
    let members: Vec<(&str, &[u8])> = owned.iter().map(|(name, bytes)| (*name, &**bytes)).collect();
    let list = list_of(&members);
    vec![gnu(&members, &list), gnu(&members, &[]), gnu64(&members, &list), bsd(&members, &list), bsd64(&members, &list)]
}

/// Opens, indexes and links what it can, and removes all of it; whether all of it went well.
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
        try_to_link(&jit, bytes.clone()).expect("whole, it links");
        for length in 0..bytes.len() {
            try_to_link(&jit, bytes[..length].to_vec()).expect_err("something is missing");
        }
    }
}

/// Many small damages, each on a fresh copy.
fn damage(rounds: usize, seed: u64, change: impl Fn(&mut Dice, &mut Vec<u8>)) {
    let start = processor_time();
    for (subject, bytes) in subjects().into_iter().enumerate() {
        let jit = Jit::builder().window_size(64 << 20).build().unwrap();
        let mut dice = Dice(seed + subject as u64);
        let damaged = || {
            let mut damaged = bytes.clone();
            change(&mut dice, &mut damaged);
            try_to_link(&jit, damaged).is_ok()
        };
        let linked = std::iter::repeat_with(damaged).take(rounds).filter(|linked| *linked).count();
        assert!(linked < rounds, "some damage is seen");
    }
    assert!(processor_time() - start < Duration::from_secs(300), "something is quadratic");
}

#[test]
fn archives_with_flipped_bits_neither_panic_nor_hang_nor_leak() {
    damage(rounds(2000), 0x9e37_79b9, |dice, bytes| {
        for _ in 0..1 + dice.roll(4) {
            let at = dice.roll(bytes.len());
            bytes[at] ^= 1 << dice.roll(8);
        }
    });
}

#[test]
fn damage_to_the_headers_and_the_list_neither_panics_nor_hangs_nor_leaks() {
    damage(rounds(2000), 0x0bad_cafe, |dice, bytes| {
        let at = dice.roll(240);
        let values = [b' ', b'/', b'#', b'0', b'1', b'9', b'`', b'\n', 0, 0x7f, 0x80, 0xff];
        for at in at..(at + 1 + dice.roll(10)).min(bytes.len()) {
            bytes[at] = values[dice.roll(values.len())];
        }
    });
}

/// The error of looking up what an archive with this list promises.
fn lies(list: impl Fn(&mut Vec<u8>)) -> Error {
    let jit = Jit::new().unwrap();
    let mut bytes = subjects().swap_remove(0);
    list(&mut bytes);
    try_to_link(&jit, bytes).unwrap_err()
}

/// Where GNU's list stands: its count, then the offsets.
const COUNT: usize = 8 + 60;

#[test]
fn lists_that_point_nowhere_are_refused_with_the_place() {
    if members().is_none() {
        return;
    }
    for (offset, parts) in [
        (0u32, ["at offset 0x0", "libdamaged.a"]),
        (9, ["at offset 0x9", "libdamaged.a"]),
        (u32::MAX, ["at offset 0xffffffff", "libdamaged.a"]),
    ] {
        let error = lies(|bytes| bytes[COUNT + 4..COUNT + 8].copy_from_slice(&offset.to_be_bytes()));
        assert!(matches!(error.kind(), ErrorKind::Archive { .. }), "{error}");
        assert_says(&error, &parts);
    }
    for count in [4u32, 1000, u32::MAX] {
        let error = lies(|bytes| bytes[COUNT..COUNT + 4].copy_from_slice(&count.to_be_bytes()));
        assert_says(&error, &["libdamaged.a"]);
    }
    // A member that says that it is larger than the archive.
    let error = lies(|bytes| {
        let at = bytes.windows(7).rposition(|name| name == b"last.o/").unwrap();
        bytes[at + 48..at + 58].copy_from_slice(b"9999999999");
    });
    assert_says(&error, &["libdamaged.a", "member `last.o`", "9999999999 bytes reach past the end"]);
}

#[test]
fn a_list_may_name_the_wrong_member_and_the_lookup_ends() {
    let Some(owned) = members() else { return };
    let members: Vec<(&str, &[u8])> = owned.iter().map(|(name, bytes)| (*name, &**bytes)).collect();
    // Every name is said to be in the first member, which needs the second and has neither it nor the third.
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
fn members_that_lie_in_each_other_are_told_apart_by_their_place() {
    let Some(owned) = members() else { return };
    // The second member holds the first as text, header and all, and the list points into it.
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
fn a_thin_archive_may_contain_itself_and_ends() {
    let Some([(_, test), ..]) = members() else { return };
    let thin = |list: &[u8]| [&b"!<thin>\n"[..], list, &header("libself.a/", 999), &header("libself.a/", 0)].concat();
    let archive = |bytes: Vec<u8>| {
        let bytes = ObjectBuffer::from(bytes);
        let open_file: Arc<OpenFile> = Arc::new(move |_: &Path| Ok(bytes.clone().into()));
        Archive::open(Path::new("libself.a"), open_file).unwrap()
    };
    // Without a list every member is looked into.
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
fn many_names_for_one_member_and_many_members_of_no_bytes_take_no_time() {
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
    assert!(processor_time() - start < Duration::from_secs(60), "something is quadratic");
}

#[test]
fn names_of_a_list_that_share_their_bytes_are_refused_when_they_are_many_times_the_archive() {
    let Some([(_, test), ..]) = members() else { return };
    const COUNT: usize = 40_000;
    let mut list: List = vec![("n".repeat(COUNT + 1), 0)];
    list.extend((0..COUNT).map(|_| (String::new(), 0)));
    let mut bytes = bsd(&[("test.o", &test)], &list);
    let names = bytes.windows(COUNT).position(|text| text.iter().all(|byte| *byte == b'n')).unwrap();
    // Each entry is two words, the first of them where its name begins: now each of them inside the long one.
    for entry in 1..=COUNT {
        let at = names - 4 - 8 * (COUNT + 1 - entry);
        bytes[at..at + 4].copy_from_slice(&(entry as u32).to_le_bytes());
    }
    let jit = Jit::new().unwrap();
    let libraries = jit.static_libraries(jit.main_dylib()).unwrap();
    let error = libraries.add(vec![open("libshared.a", bytes).unwrap()]).unwrap_err();
    assert_says(&error, &["libshared.a", "overlap"]);
}
