//! [`Place`]: where the bytes of an object are, a file or a member of an archive, and how they are read again.

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jittison::link::{Archive, FileBytes, ObjectBuffer, ReadAt};
use jittison::{Error, InputFile};

use crate::output::message_of;

/// Where the bytes of an object are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub path: PathBuf,
    /// If the file is an archive.
    pub member: Option<Member>,
}

/// A member of an archive. Several may have one name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// With that of the archive: `libfoo.a(bar.o)`.
    pub name: String,
    /// How many members of this name stand before it.
    pub before: usize,
}

/// The bytes of a file that may be written again while the command runs.
pub struct ReadFile {
    bytes: Result<ObjectBuffer, String>,
    /// The members, if it is an archive and one was asked for.
    members: Option<Result<HashMap<Member, ObjectBuffer>, String>>,
    pub path: PathBuf,
}

impl ReadFile {
    pub fn new(path: &Path) -> ReadFile {
        let bytes = InputFile::open(path).and_then(|file| file.read()).map(ObjectBuffer::from).map_err(message_of);
        ReadFile { bytes, members: None, path: path.to_path_buf() }
    }

    /// The bytes of an object.
    ///
    /// # Errors
    /// The file cannot be read, is no archive, or has no such member.
    pub fn bytes(&mut self, member: Option<&Member>) -> Result<ObjectBuffer, String> {
        let bytes = self.bytes.clone()?;
        let Some(member) = member else { return Ok(bytes) };
        let members = self.members.get_or_insert_with(|| read_members(&self.path, bytes)).as_ref();
        let found = members.map_err(String::clone)?.get(member).cloned();
        found.ok_or_else(|| format!("{}: the archive has no such member any more", member.name))
    }
}

fn read_members(path: &Path, bytes: ObjectBuffer) -> Result<HashMap<Member, ObjectBuffer>, String> {
    let own = path.to_path_buf();
    let open_file = move |path: &Path| match path == own {
        true => Ok(FileBytes::InMemory(bytes.clone())),
        false => FileBytes::open(path),
    };
    let archive = Archive::open(path, Arc::new(open_file)).map_err(message_of)?;
    let members = members_of(&archive)?.into_iter();
    members.map(|(offset, member)| Ok((member, archive.member(offset).map_err(message_of)?.bytes))).collect()
}

/// Opens an archive that may be written again while the command runs. Its members are read when they are needed, and none of them
/// after that: it would be an old one.
pub fn open_archive_to_watch(path: &Path) -> Result<Archive, String> {
    let own = path.to_path_buf();
    let open_file = move |path: &Path| match path == own {
        true => Ok(FileBytes::OnDemand(Arc::new(WatchedArchive::open(path)?))),
        false => FileBytes::open(path),
    };
    Archive::open(path, Arc::new(open_file)).map_err(message_of)
}

/// An archive that is read as long as its path leads to it, and it is as it was.
struct WatchedArchive {
    file: InputFile,
    opened_as: FileId,
}

/// The device and the inode of a file.
type FileId = (u64, u64);

impl WatchedArchive {
    fn open(path: &Path) -> jittison::error::Result<WatchedArchive> {
        // The id first: a file that takes the name after that is another one.
        let opened_as = id_of(path);
        let file = InputFile::open(path)?;
        let opened_as = opened_as.ok_or_else(|| written_again(path))?;
        Ok(WatchedArchive { file, opened_as })
    }
}

impl ReadAt for WatchedArchive {
    fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    fn read_at(&self, range: Range<u64>) -> jittison::error::Result<ObjectBuffer> {
        let bytes = self.file.read_at(range);
        match id_of(self.file.path()) == Some(self.opened_as) {
            true => bytes.map(ObjectBuffer::from),
            false => Err(written_again(self.file.path())),
        }
    }
}

fn id_of(path: &Path) -> Option<FileId> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

fn written_again(path: &Path) -> Error {
    Error::other(format!(
        "{}: it was written again, so a member that was not needed before cannot be linked; start the program again",
        path.display()
    ))
}

/// The members of an archive by their offsets.
pub fn members_of(archive: &Archive) -> Result<HashMap<u64, Member>, String> {
    let (mut members, mut counts) = (HashMap::new(), HashMap::new());
    for offset in archive.member_offsets().map_err(message_of)? {
        let name = archive.member(offset).map_err(message_of)?.name();
        let count: &mut usize = counts.entry(name.clone()).or_default();
        members.insert(offset, Member { name, before: *count });
        *count += 1;
    }
    Ok(members)
}
