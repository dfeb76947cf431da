//! Bytes as an archive: its list is read, its members are taken out and scanned, and names are looked for.
//!
//! No file is opened: members of a thin archive that are files of their own are not there.

#![no_main]

mod limits;

use std::path::Path;
use std::sync::Arc;

use jittison::Error;
use jittison::link::{Archive, ArchiveSet, ObjectBuffer, ObjectInterface, OpenFile};
use libfuzzer_sys::fuzz_target;

use limits::Limits;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::start();
    let _ = search(bytes);
    limits.check(bytes.len());
});

fn search(bytes: &[u8]) -> Result<(), Error> {
    let whole = ObjectBuffer::from(bytes);
    let open_file: Arc<OpenFile> = Arc::new(move |path: &Path| match path == Path::new(ARCHIVE) {
        true => Ok(whole.clone().into()),
        false => Err(Error::other("no such file")),
    });
    let open = || Archive::open(Path::new(ARCHIVE), open_file.clone());
    let archive = open()?;
    for offset in archive.member_offsets().unwrap_or_default().into_iter().chain([0, 8, bytes.len() as u64, u64::MAX]) {
        let Ok(member) = archive.member(offset) else { continue };
        assert!(member.bytes.len() <= bytes.len(), "a member is a part of its archive");
        std::hint::black_box((member.full_name(), ObjectInterface::scan(&member.name(), &member.bytes).is_ok()));
    }
    let mut set = ArchiveSet::default();
    // The same twice: every name is listed already.
    set.add(vec![archive, open()?])?;
    for name in NAMES {
        let Some(listing) = set.find(name) else { continue };
        assert_eq!(set.name(&listing), Some(name));
        let _ = set.member(listing.member()).map(|member| member.name());
    }
    std::hint::black_box((format!("{set:?}"), set.name_count()));
    Ok(())
}

/// Those of the seeds, and the empty one.
const NAMES: [&str; 4] = ["test", "weak_one", "common_one", ""];
const ARCHIVE: &str = "fuzzed.a";
