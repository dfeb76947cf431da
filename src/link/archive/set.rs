//! [`ArchiveSet`]: finds the archive member that defines a name.
//!
//! One hash table serves all archives of the set. Its entry for a name is 16 bytes: the archive, the position of the
//! name in the archive, and the offset of the member. No text is copied, and no member is read. If several members
//! define a name, the first counts, in the order of the archives and then of their symbol tables.
//!
//! A default version, `name@@VERSION`, defines `name` and `name@VERSION`, as in an object. It is in the table under the first
//! name, and in a second table under the other.

use std::fmt;
use std::hash::Hasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use memchr::memchr;
use rustc_hash::FxHasher;

use crate::error::{Error, Result};
use crate::link::archive::{Archive, ArchiveMember, split_default_version};
use crate::sync::Arc;

/// Archives that are searched as one. A clone copies the table, not the archives.
#[derive(Clone, Default)]
pub struct ArchiveSet {
    archives: Vec<Arc<Archive>>,
    table: HashTable<Listing>,
    /// The default versions, by `name@VERSION`.
    versions: HashTable<Listing>,
}

/// The entry of one name in a set.
#[derive(Debug, Clone, Copy)]
pub struct Listing {
    archive: u32,
    /// The position of the name: see `Archive::name_at`.
    name: u32,
    /// The offset of the header of the member that defines the name, in bytes.
    member: u64,
}

/// Identifies a member of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemberId {
    archive: u32,
    offset: u64,
}

impl Listing {
    /// The member that defines the name.
    pub fn member(&self) -> MemberId {
        MemberId { archive: self.archive, offset: self.member }
    }
}

impl ArchiveSet {
    /// Whether it has no archive.
    #[cfg(feature = "executor")]
    pub(crate) fn is_empty(&self) -> bool {
        self.archives.is_empty()
    }

    /// Adds archives after the existing ones.
    ///
    /// # Errors
    /// [`ErrorKind::Archive`](crate::ErrorKind::Archive) if the symbol table of an archive is malformed. Nothing is
    /// added then.
    pub fn add(&mut self, archives: Vec<Archive>) -> Result<()> {
        let before = self.archives.len();
        self.archives.extend(archives.into_iter().map(Arc::new));
        let names = self.archives[before..].iter().map(|archive| archive.symbol_count()).sum();
        self.table.reserve(names, |listing| hash(name_of(&self.archives, listing).0));
        for index in before..self.archives.len() {
            if let Err(error) = self.add_symbols(index) {
                self.table.retain(|listing| (listing.archive as usize) < before);
                self.versions.retain(|listing| (listing.archive as usize) < before);
                self.archives.truncate(before);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Adds the symbol table of one archive to the hash table.
    fn add_symbols(&mut self, index: usize) -> Result<()> {
        let ArchiveSet { archives, table, versions } = self;
        archives[index].each_symbol(|position, listed, member| {
            let (name, version) = split_default_version(listed);
            let listing = Listing { archive: index as u32, name: position, member };
            let has_name = |listing: &Listing| archives[listing.archive as usize].is_name_at(listing.name, name);
            if let Entry::Vacant(entry) =
                table.entry(hash(name), has_name, |listing| hash(name_of(archives, listing).0))
            {
                entry.insert(listing);
            }
            if let Some(version) = version {
                let has_version = |listing: &Listing| name_of(archives, listing) == (name, Some(version));
                let rehash = |listing: &Listing| hash_version(name_of(archives, listing));
                if let Entry::Vacant(entry) = versions.entry(hash_version((name, Some(version))), has_version, rehash) {
                    entry.insert(listing);
                }
            }
        })
    }

    /// The entry of `name`, if some archive defines it.
    pub fn find(&self, name: &str) -> Option<Listing> {
        let name = name.as_bytes();
        let has_name = |listing: &Listing| self.archives[listing.archive as usize].is_name_at(listing.name, name);
        let found = self.table.find(hash(name), has_name).copied();
        if found.is_some() || self.versions.is_empty() { found } else { self.find_version(name) }
    }

    /// The entry of the default version that `name@VERSION` means.
    fn find_version(&self, name: &[u8]) -> Option<Listing> {
        let end = memchr(b'@', name)?;
        let wanted = (&name[..end], Some(&name[end + 1..]));
        self.versions.find(hash_version(wanted), |listing| name_of(&self.archives, listing) == wanted).copied()
    }

    /// The name of an entry: of a default version, `name@@VERSION`, that without the version. `None` if it is not UTF-8, or if
    /// the entry is of another set.
    pub fn name(&self, listing: &Listing) -> Option<&str> {
        let listed = self.archives.get(listing.archive as usize)?.name_at(listing.name);
        std::str::from_utf8(split_default_version(listed).0).ok()
    }

    /// Reads a member.
    ///
    /// # Errors
    /// As [`Archive::member`], and if `id` is of another set.
    pub fn member(&self, id: MemberId) -> Result<ArchiveMember> {
        let archive = self.archives.get(id.archive as usize);
        archive.ok_or_else(|| Error::other("the member is of another set of archives"))?.member(id.offset)
    }

    /// The archives, in search order.
    #[cfg_attr(not(feature = "unstable"), allow(dead_code))]
    pub fn archives(&self) -> impl Iterator<Item = &Archive> {
        self.archives.iter().map(|archive| &**archive)
    }

    /// The number of names in the table.
    pub fn name_count(&self) -> usize {
        self.table.len()
    }
}

impl fmt::Debug for ArchiveSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} archives, {} names", self.archives.len(), self.name_count())
    }
}

/// The name of an entry and its default version.
fn name_of<'a>(archives: &'a [Arc<Archive>], listing: &Listing) -> (&'a [u8], Option<&'a [u8]>) {
    split_default_version(archives[listing.archive as usize].name_at(listing.name))
}

#[cold]
fn hash_version((name, version): (&[u8], Option<&[u8]>)) -> u64 {
    hash(&[name, b"@", version.unwrap_or_default()].concat())
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.finish()
}
