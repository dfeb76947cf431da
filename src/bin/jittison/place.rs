//! [`Place`]: where the bytes of an object are, a file or a member of an archive, and how they are read again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jittison::InputFile;
use jittison::link::{Archive, FileBytes, ObjectBuffer, OpenFile};

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
        false => read(path),
    };
    let archive = Archive::open(path, Arc::new(open_file)).map_err(message_of)?;
    let members = members_of(&archive)?.into_iter();
    members.map(|(offset, member)| Ok((member, archive.member(offset).map_err(message_of)?.bytes))).collect()
}

/// Reads an archive, which may be written again while the command runs, and later the members of a thin one.
pub fn read_archive(path: &Path) -> Result<Archive, String> {
    let open_file: Arc<OpenFile> = Arc::new(read);
    Archive::open(path, open_file).map_err(message_of)
}

fn read(path: &Path) -> jittison::error::Result<FileBytes> {
    Ok(FileBytes::InMemory(InputFile::open(path)?.read()?.into()))
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
