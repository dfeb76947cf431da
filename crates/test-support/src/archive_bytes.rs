//! Builds archives byte by byte. Tests need no tool, and can build archives that are wrong.

use std::path::Path;
use std::sync::Arc;

use jittison::Error;
use jittison::link::{Archive, ObjectBuffer, ObjectInterface, OpenFile};

/// The index of an archive: names, each with the position of the member that defines it.
pub type List = Vec<(String, usize)>;

/// Opens bytes as an archive. Member files of a thin archive do not exist.
pub fn open(path: &str, bytes: Vec<u8>) -> Result<Archive, Error> {
    let (own, bytes) = (path.to_string(), ObjectBuffer::from(bytes));
    let open_file: Arc<OpenFile> = Arc::new(move |path: &Path| match path.to_str() == Some(&own) {
        true => Ok(bytes.clone().into()),
        false => Err(Error::other(format!("{}: no such file", path.display()))),
    });
    Archive::open(Path::new(path), open_file)
}

/// The definitions of all members that are readable objects.
pub fn list_of(members: &[(&str, &[u8])]) -> List {
    let mut list = List::new();
    for (index, (name, bytes)) in members.iter().enumerate() {
        let symbols = ObjectInterface::scan(name, bytes).map(|interface| interface.symbols).unwrap_or_default();
        list.extend(symbols.into_iter().map(|symbol| (symbol.name.to_string(), index)));
    }
    list
}

pub fn header(name: &str, size: usize) -> Vec<u8> {
    let text = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644);
    assert_eq!(text.len(), 60, "{text:?}");
    text.into_bytes()
}

/// A member: header, bytes, and padding to an even size.
pub fn member(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut all = header(name, bytes.len());
    all.extend(bytes);
    if all.len() % 2 == 1 {
        all.push(b'\n');
    }
    all
}

/// An archive of `members`. `list` gets the offsets of the members and returns the index. Its size must not depend on the offsets.
fn archive(members: &[Vec<u8>], list: impl Fn(&[u64]) -> Vec<u8>) -> Vec<u8> {
    let mut offset = 8 + list(&vec![0; members.len()]).len() as u64;
    let offset_of = |member: &Vec<u8>| {
        let start = offset;
        offset += member.len() as u64;
        start
    };
    let offsets: Vec<u64> = members.iter().map(offset_of).collect();
    [&b"!<arch>\n"[..], &list(&offsets), &members.concat()].concat()
}

fn text_of(list: &[(String, usize)]) -> Vec<u8> {
    list.iter().flat_map(|(name, _)| [name.as_bytes(), &[0]].concat()).collect()
}

/// The GNU format, with `//` for long names.
pub fn gnu(members: &[(&str, &[u8])], list: &[(String, usize)]) -> Vec<u8> {
    let (names, members) = gnu_members(members);
    archive(&members, |offsets| {
        let mut words = (list.len() as u32).to_be_bytes().to_vec();
        words.extend(list.iter().flat_map(|(_, index)| (offsets[*index] as u32).to_be_bytes()));
        let table = if list.is_empty() { Vec::new() } else { member("/", &[words, text_of(list)].concat()) };
        [table, names.clone()].concat()
    })
}

/// The GNU format, with an index of 64-bit offsets.
pub fn gnu64(members: &[(&str, &[u8])], list: &[(String, usize)]) -> Vec<u8> {
    let (names, members) = gnu_members(members);
    archive(&members, |offsets| {
        let mut words = (list.len() as u64).to_be_bytes().to_vec();
        words.extend(list.iter().flat_map(|(_, index)| offsets[*index].to_be_bytes()));
        [member("/SYM64/", &[words, text_of(list)].concat()), names.clone()].concat()
    })
}

/// The member with the long names, and the other members.
fn gnu_members(members: &[(&str, &[u8])]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut long = Vec::new();
    let mut encoded = Vec::new();
    for (name, bytes) in members {
        if name.len() < 16 {
            encoded.push(member(&format!("{name}/"), bytes));
        } else {
            encoded.push(member(&format!("/{}", long.len()), bytes));
            long.extend(format!("{name}/\n").into_bytes());
        }
    }
    let names = if long.is_empty() { Vec::new() } else { member("//", &long) };
    (names, encoded)
}

/// The BSD format: each name stands before the bytes of its member. An index entry is the offset of a name and of a member.
pub fn bsd(members: &[(&str, &[u8])], list: &[(String, usize)]) -> Vec<u8> {
    let word = |value: u64| (value as u32).to_le_bytes().to_vec();
    archive(&bsd_members(members), |offsets| bsd_member("__.SYMDEF SORTED", &bsd_list(list, offsets, word)))
}

/// The BSD format, with an index of 64-bit offsets.
pub fn bsd64(members: &[(&str, &[u8])], list: &[(String, usize)]) -> Vec<u8> {
    let word = |value: u64| value.to_le_bytes().to_vec();
    archive(&bsd_members(members), |offsets| bsd_member("__.SYMDEF_64", &bsd_list(list, offsets, word)))
}

fn bsd_list(list: &[(String, usize)], offsets: &[u64], word: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
    let mut name = 0;
    let pairs: Vec<u8> = list
        .iter()
        .flat_map(|(text, index)| {
            let pair = [word(name), word(offsets[*index])].concat();
            name += text.len() as u64 + 1;
            pair
        })
        .collect();
    [word(pairs.len() as u64), pairs, word(name), text_of(list)].concat()
}

fn bsd_members(members: &[(&str, &[u8])]) -> Vec<Vec<u8>> {
    members.iter().map(|(name, bytes)| bsd_member(name, bytes)).collect()
}

fn bsd_member(name: &str, bytes: &[u8]) -> Vec<u8> {
    let padded = name.len().next_multiple_of(4) + 4;
    let mut with_name = name.as_bytes().to_vec();
    with_name.resize(padded, 0);
    with_name.extend(bytes);
    member(&format!("#1/{padded}"), &with_name)
}
