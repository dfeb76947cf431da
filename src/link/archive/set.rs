//! [`ArchiveSet`]: which member of which archive defines a name.
//!
//! One table for all archives of the set, with an entry of 16 bytes for each name, which says where the name stands in its
//! archive: no text is copied, and members are not looked at. Of several definitions the first counts, in the order of the
//! archives and then of the list.

use std::fmt;
use std::hash::Hasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use rustc_hash::FxHasher;

use crate::error::{Error, Result};
use crate::link::archive::{Archive, ArchiveMember};
use crate::sync::Arc;

/// Archives that are searched as one. Cloning copies the table.
#[derive(Clone, Default)]
pub struct ArchiveSet {
    archives: Vec<Arc<Archive>>,
    table: HashTable<Listing>,
}

/// A name that some archive of a set lists.
#[derive(Debug, Clone, Copy)]
pub struct Listing {
    archive: u32,
    /// Where the name stands in the archive.
    name: u32,
    /// The offset of the member that defines it.
    member: u64,
}

/// Tells the members of a set apart.
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
    /// Adds archives behind those that are there.
    ///
    /// # Errors
    /// [`ErrorKind::Archive`](crate::ErrorKind::Archive) when a list is damaged; nothing was added then.
    pub fn add(&mut self, archives: Vec<Archive>) -> Result<()> {
        let before = self.archives.len();
        self.archives.extend(archives.into_iter().map(Arc::new));
        let names = self.archives[before..].iter().map(|archive| archive.symbol_count()).sum();
        self.table.reserve(names, |listing| hash(self.archives[listing.archive as usize].name_at(listing.name)));
        for index in before..self.archives.len() {
            if let Err(error) = self.list(index) {
                self.table.retain(|listing| (listing.archive as usize) < before);
                self.archives.truncate(before);
                return Err(error);
            }
        }
        Ok(())
    }

    fn list(&mut self, index: usize) -> Result<()> {
        let ArchiveSet { archives, table } = self;
        archives[index].each_symbol(|at, name, member| {
            let is_listed = |listing: &Listing| archives[listing.archive as usize].is_name_at(listing.name, name);
            let rehash = |listing: &Listing| hash(archives[listing.archive as usize].name_at(listing.name));
            if let Place::Vacant(place) = table.entry(hash(name), is_listed, rehash) {
                place.insert(Listing { archive: index as u32, name: at, member });
            }
        })
    }

    /// Who defines `name`.
    pub fn find(&self, name: &str) -> Option<Listing> {
        let name = name.as_bytes();
        let is_it = |listing: &Listing| self.archives[listing.archive as usize].is_name_at(listing.name, name);
        self.table.find(hash(name), is_it).copied()
    }

    /// The name that is listed, if it is text.
    pub fn name(&self, listing: &Listing) -> Option<&str> {
        std::str::from_utf8(self.archives.get(listing.archive as usize)?.name_at(listing.name)).ok()
    }

    /// A member.
    ///
    /// # Errors
    /// As [`Archive::member`]; when it is of another set.
    pub fn member(&self, id: MemberId) -> Result<ArchiveMember> {
        let archive = self.archives.get(id.archive as usize);
        archive.ok_or_else(|| Error::other("a member of another set of archives was asked for"))?.member(id.offset)
    }

    /// The archives, in the order in which they count.
    pub fn archives(&self) -> impl Iterator<Item = &Archive> {
        self.archives.iter().map(|archive| &**archive)
    }

    /// How many names are listed.
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
