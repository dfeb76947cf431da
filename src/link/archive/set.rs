//! [`ArchiveSet`]: finds the archive member that defines a name.
//!
//! One hash table serves all archives of the set. Its entry for a name is 16 bytes: the archive, the position of the
//! name in the archive, and the offset of the member. No text is copied, and no member is read. If several members
//! define a name, the first counts, in the order of the archives and then of their symbol tables.

use std::fmt;
use std::hash::Hasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxHasher;

use crate::error::{Error, Result};
use crate::link::archive::{Archive, ArchiveMember};
use crate::sync::Arc;

/// Archives that are searched as one. A clone copies the table, not the archives.
#[derive(Clone, Default)]
pub struct ArchiveSet {
    archives: Vec<Arc<Archive>>,
    table: HashTable<Listing>,
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
    /// Adds archives after the existing ones.
    ///
    /// # Errors
    /// [`ErrorKind::Archive`](crate::ErrorKind::Archive) if the symbol table of an archive is malformed. Nothing is
    /// added then.
    pub fn add(&mut self, archives: Vec<Archive>) -> Result<()> {
        let before = self.archives.len();
        self.archives.extend(archives.into_iter().map(Arc::new));
        let names = self.archives[before..].iter().map(|archive| archive.symbol_count()).sum();
        self.table.reserve(names, |listing| hash(self.archives[listing.archive as usize].name_at(listing.name)));
        for index in before..self.archives.len() {
            if let Err(error) = self.add_symbols(index) {
                self.table.retain(|listing| (listing.archive as usize) < before);
                self.archives.truncate(before);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Adds the symbol table of one archive to the hash table.
    fn add_symbols(&mut self, index: usize) -> Result<()> {
        let ArchiveSet { archives, table } = self;
        archives[index].each_symbol(|position, name, member| {
            let has_name = |listing: &Listing| archives[listing.archive as usize].is_name_at(listing.name, name);
            let rehash = |listing: &Listing| hash(archives[listing.archive as usize].name_at(listing.name));
            if let Entry::Vacant(entry) = table.entry(hash(name), has_name, rehash) {
                entry.insert(Listing { archive: index as u32, name: position, member });
            }
        })
    }

    /// The entry of `name`, if some archive defines it.
    pub fn find(&self, name: &str) -> Option<Listing> {
        let name = name.as_bytes();
        let has_name = |listing: &Listing| self.archives[listing.archive as usize].is_name_at(listing.name, name);
        self.table.find(hash(name), has_name).copied()
    }

    /// The name of an entry. `None` if it is not UTF-8, or if the entry is of another set.
    pub fn name(&self, listing: &Listing) -> Option<&str> {
        std::str::from_utf8(self.archives.get(listing.archive as usize)?.name_at(listing.name)).ok()
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

fn hash(name: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(name);
    hasher.finish()
}
