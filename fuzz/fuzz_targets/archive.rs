//! Fuzz target: the input is an archive. The target reads its list, scans its members, and searches for names.
//!
//! It opens no file. A member of a thin archive is a separate file, so it is missing.

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
    let input = ObjectBuffer::from(bytes);
    let open_file: Arc<OpenFile> = Arc::new(move |path: &Path| match path == Path::new(ARCHIVE) {
        true => Ok(input.clone().into()),
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
    // The same archive twice, so that the set has every name of the second one already.
    set.add(vec![archive, open()?])?;
    for name in NAMES {
        let Some(listing) = set.find(name) else { continue };
        assert_eq!(set.name(&listing), Some(name));
        let _ = set.member(listing.member()).map(|member| member.name());
    }
    std::hint::black_box((format!("{set:?}"), set.name_count()));
    Ok(())
}

/// The names of the seeds, and the empty name.
const NAMES: [&str; 4] = ["test", "weak_one", "common_one", ""];
const ARCHIVE: &str = "fuzzed.a";
