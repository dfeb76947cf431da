//! Archives that are given as bytes. The Rust crate opens those that are given by path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jittison::link::{Archive, FileBytes, ObjectBuffer};
use jittison::{Error, Jit, ResourceTracker};

/// An archive in memory. The members of a thin archive are files.
pub(crate) fn in_memory(name: &str, bytes: &[u8]) -> Result<Archive, Error> {
    let (path, bytes) = (PathBuf::from(name), ObjectBuffer::from(bytes));
    let open = move |wanted: &Path| match wanted == path {
        true => Ok(FileBytes::InMemory(bytes.clone())),
        false => FileBytes::open(wanted),
    };
    Archive::open(Path::new(name), Arc::new(open))
}

/// Adds every member under a tracker: all or none, as `Jit::add_archive_whole` does. Returns their number.
pub(crate) fn add_whole(jit: &Jit, tracker: &ResourceTracker, archive: &Archive) -> Result<usize, Error> {
    // Dropping it removes what was added.
    let added = tracker.dylib().create_tracker()?.remove_on_drop();
    let offsets = archive.member_offsets()?;
    for offset in &offsets {
        let member = archive.member(*offset)?;
        jit.add_object(&added, &member.full_name(), member.bytes)?;
    }
    added.transfer_to(tracker)?;
    Ok(offsets.len())
}
