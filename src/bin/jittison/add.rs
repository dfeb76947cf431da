//! Adds objects and archives to a session, and records what each object defines and what the inputs require.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jittison::link::{
    Archive, ArchiveMember, FileBytes, ObjectBuffer, ObjectInterface, OpenFile, has_low_addresses, required_names,
};
use jittison::{InputFile, Jit, MappedFile, Reloader, ResourceTracker};

use crate::archives::Requirements;
use crate::follower::{Loaded, hash_of};
use crate::inputs::ObjectFile;
use crate::link::Object;
use crate::output::message_of;
use crate::place::{Member, Place, members_of, open_archive_to_watch};

/// The objects of `watch`, and what will reload them.
pub struct Reloaded {
    pub reloader: Arc<Reloader>,
    pub objects: Vec<Loaded>,
    /// Members that cannot be reloaded, and why.
    pub unfollowed: Vec<(String, String)>,
    /// The members of the archives that were searched, by their offsets.
    members: HashMap<PathBuf, HashMap<u64, Member>>,
}

impl Reloaded {
    pub fn new(reloader: Arc<Reloader>) -> Reloaded {
        Reloaded { reloader, objects: Vec::new(), unfollowed: Vec::new(), members: HashMap::new() }
    }

    /// Adds a member of an archive. Returns false if it cannot be reloaded; then nothing was added.
    pub fn add_member(&mut self, archive: &Archive, name: &str, member: &ArchiveMember) -> Result<bool, String> {
        let path = archive.path();
        if !self.members.contains_key(path) {
            self.members.insert(path.to_path_buf(), members_of(archive)?);
        }
        let bytes = member.bytes.clone();
        let hash = hash_of(&bytes);
        if let Err(error) = self.reloader.add_object(name, bytes) {
            self.unfollowed.push((name.to_string(), message_of(error)));
            return Ok(false);
        }
        let place = Place { path: path.to_path_buf(), member: self.members[path].get(&member.offset).cloned() };
        self.objects.push(Loaded { name: name.to_string(), place, hash });
        Ok(true)
    }
}

/// Adds an object file under a tracker.
pub fn add_object(jit: &Jit, tracker: &ResourceTracker, path: &Path) -> Result<Object, String> {
    let object = ObjectFile::new(path.to_path_buf());
    add_input(jit, tracker, &object, &mut Requirements::default(), None)
}

/// As [`add_object`], and adds the names that the object requires. A `reloader` will replace the object later.
pub fn add_input(
    jit: &Jit,
    tracker: &ResourceTracker,
    object: &ObjectFile,
    requirements: &mut Requirements,
    reloader: Option<&mut Reloaded>,
) -> Result<Object, String> {
    let ObjectFile { name, path, .. } = object.clone();
    let bytes = InputFile::open(&path).and_then(|file| file.read()).map_err(message_of)?;
    match reloader {
        None => add_bytes(jit, tracker, name, bytes.into(), requirements),
        Some(reloaded) => {
            reloaded.objects.push(Loaded {
                name: name.clone(),
                place: Place { path, member: None },
                hash: hash_of(&bytes),
            });
            let changed = reloaded.reloader.add_changed(&name, bytes).map_err(message_of)?;
            describe(jit, name, &changed, requirements)
        }
    }
}

/// Adds every member of an archive under a tracker, as if each were an object file of the command line.
pub fn add_members(
    jit: &Jit,
    tracker: &ResourceTracker,
    path: &Path,
    requirements: &mut Requirements,
    mut reloader: Option<&mut Reloaded>,
) -> Result<Vec<Object>, String> {
    let archive = if reloader.is_some() { open_archive_to_watch(path)? } else { open_archive(path)? };
    let add_one = |offset: u64| {
        let member = archive.member(offset).map_err(message_of)?;
        let name = member.full_name();
        let is_reloaded = match reloader.as_deref_mut() {
            Some(reloaded) => reloaded.add_member(&archive, &name, &member)?,
            None => false,
        };
        match is_reloaded {
            true => describe(jit, name, &member.bytes, requirements),
            false => add_bytes(jit, tracker, name, member.bytes, requirements),
        }
    };
    archive.member_offsets().map_err(message_of)?.into_iter().map(add_one).collect()
}

/// Maps an archive instead of reading its members. Reading them would take a noticeable part of a large link.
pub fn open_archive(path: &Path) -> Result<Archive, String> {
    let open_file: Arc<OpenFile> = Arc::new(|path| {
        // SAFETY: B1 - the user promises that no one changes an archive while the command runs. That covers the archive and
        // the members of a thin archive, which are opened here too, and the mapping does not outlive the command.
        let file = unsafe { MappedFile::open(path) }?;
        Ok(FileBytes::InMemory(ObjectBuffer::new(file)))
    });
    Archive::open(path, open_file).map_err(message_of)
}

fn add_bytes(
    jit: &Jit,
    tracker: &ResourceTracker,
    name: String,
    bytes: ObjectBuffer,
    requirements: &mut Requirements,
) -> Result<Object, String> {
    let object = describe(jit, name, &bytes, requirements)?;
    jit.add_object(tracker, &object.path, bytes).map_err(message_of)?;
    Ok(object)
}

/// What an object defines. Adds what it requires to `requirements`.
fn describe(jit: &Jit, name: String, bytes: &ObjectBuffer, requirements: &mut Requirements) -> Result<Object, String> {
    for required in required_names(&name, bytes).map_err(message_of)? {
        requirements.add(jit.layer().name_of_reference(required));
    }
    let interface = ObjectInterface::scan(&name, bytes).map_err(message_of)?;
    let is_low = requirements.wants_low_object && has_low_addresses(&name, bytes);
    requirements.wants_low_object &= !is_low;
    Ok(Object { size_bytes: bytes.len() as u64, interface, path: name, is_low })
}
