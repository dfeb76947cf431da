//! [`Archive`]: an `ar` file, that is, many objects with a symbol table. [`ArchiveSet`] (`set.rs`) searches several.
//!
//! ```text
//!   !<arch>\n │ `/` or `__.SYMDEF`: symbol table │ `//`: long names │ header, member │ header, member │ …
//!                 symbol's name ────────────────────────────────────► offset of a header
//! ```
//!
//! Opening reads the symbol table and the long names, which are the *head* of the archive, and keeps them. A member is
//! read when it is asked for.
//!
//! | archive | member |
//! |---|---|
//! | in memory ([`FileBytes::InMemory`]) | a range of the archive, without a copy; aligned to two bytes only |
//! | on disk ([`FileBytes::OnDemand`]) | read into a buffer |
//! | thin | a file of its own, whose name is relative to the archive's folder; opened on demand |
//!
//! GNU and BSD archives are supported, with 32-bit and 64-bit symbol tables. If an archive has no symbol table, all
//! members are scanned when it is opened.
//!
//! This file opens no files: the caller passes a function that does ([`OpenFile`]). It does not decide which members
//! are needed.

mod head;
mod set;

pub use set::{ArchiveSet, Listing, MemberId};

use std::collections::BTreeSet;
use std::ffi::{CStr, OsStr};
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use memchr::memchr;
use object::ReadRef;
use object::read::archive::{ArchiveFile, ArchiveKind, ArchiveMember as MemberHeader, ArchiveOffset};

use crate::error::{Error, ErrorKind, Result};
use crate::link::archive::head::{LoadedRange, PartialFile};
use crate::link::buffer::ObjectBuffer;
use crate::link::elf;
use crate::sync::Arc;

/// A function that opens a file: an archive, or a member of a thin archive.
///
/// No lock is held during the call. Other threads may wait for the member that is being opened.
pub type OpenFile = dyn Fn(&Path) -> Result<FileBytes> + Send + Sync;

/// The bytes of a file.
#[derive(Clone)]
pub enum FileBytes {
    /// All bytes are in memory.
    InMemory(ObjectBuffer),
    /// Ranges are read when they are needed.
    OnDemand(Arc<dyn ReadAt>),
}

/// A file that is read in ranges.
pub trait ReadAt: Send + Sync {
    /// The size of the file in bytes. It must return the same value each time.
    fn size_bytes(&self) -> u64;

    /// Reads exactly the bytes of `range`, which is in bytes and lies within the file.
    ///
    /// # Errors
    /// If the bytes cannot be read, or if the file was changed after it was opened. A symbol table and members of two
    /// states of an archive would make a wrong link, so an implementation must detect a change.
    fn read_at(&self, range: Range<u64>) -> Result<ObjectBuffer>;
}

impl From<ObjectBuffer> for FileBytes {
    fn from(bytes: ObjectBuffer) -> FileBytes {
        FileBytes::InMemory(bytes)
    }
}

impl FileBytes {
    fn size_bytes(&self) -> u64 {
        match self {
            FileBytes::InMemory(bytes) => bytes.len() as u64,
            FileBytes::OnDemand(file) => file.size_bytes(),
        }
    }

    /// Reads `range`, which must lie within the file.
    fn read_at(&self, range: Range<u64>) -> Result<ObjectBuffer> {
        match self {
            FileBytes::InMemory(bytes) => {
                let part = bytes.part(range.start as usize..range.end as usize);
                part.ok_or_else(|| Error::other("the requested range is outside the file"))
            }
            FileBytes::OnDemand(file) => {
                let part = file.read_at(range.clone())?;
                let is_complete = part.len() as u64 == range.end - range.start;
                is_complete.then_some(part).ok_or_else(|| Error::other("the file returned fewer bytes than requested"))
            }
        }
    }
}

/// An open archive.
pub struct Archive {
    path: Arc<Path>,
    file: FileBytes,
    /// The first bytes of the file: the symbol table, the long names, and the header after them. All bytes if they are
    /// in memory.
    head: ObjectBuffer,
    open_file: Arc<OpenFile>,
    /// The symbol table that was built from the members, if the archive has none.
    scanned: Option<ScannedSymbols>,
}

/// One member of an archive.
#[derive(Debug)]
pub struct ArchiveMember {
    archive: Arc<Path>,
    member: String,
    /// The offset of its header in the archive, in bytes. Members with the same name have different offsets.
    pub offset: u64,
    /// The bytes of the object.
    pub bytes: ObjectBuffer,
}

impl ArchiveMember {
    /// The name for errors: `libfoo.a(bar.o)`. Other members may have the same one.
    pub fn name(&self) -> String {
        let archive = self.archive.file_name().unwrap_or_default().to_string_lossy();
        format!("{archive}({})", self.member)
    }

    /// The unique name: `folder/libfoo.a(bar.o at 0x44)`.
    pub fn full_name(&self) -> String {
        format!("{}({} at {:#x})", self.archive.display(), self.member, self.offset)
    }
}

impl Archive {
    /// Opens an archive and reads its symbol table. The archive keeps `open_file` for the members of a thin archive.
    ///
    /// # Errors
    /// The error of `open_file`; [`ErrorKind::Archive`] if the file is no archive, or if a part that was read is
    /// malformed.
    pub fn open(path: &Path, open_file: Arc<OpenFile>) -> Result<Archive> {
        let file = open_file(path)?;
        let mut archive =
            Archive { path: Arc::from(path), file, head: ObjectBuffer::default(), open_file, scanned: None };
        archive.read_head()?;
        let listed = archive.file()?.symbols().map_err(|problem| archive.fault(MAGIC_SIZE, "", problem))?;
        if listed.is_none() {
            archive.scanned = Some(archive.scan()?);
        }
        Ok(archive)
    }

    /// Reads the beginning of the file up to the end of the first member's header.
    fn read_head(&mut self) -> Result<()> {
        if let FileBytes::InMemory(bytes) = &self.file {
            self.head = bytes.clone();
            return Ok(());
        }
        let mut end = FIRST_READ;
        while (self.head.len() as u64) < end {
            // From offset 0 again, so that `ReadAt` returns the entire head in one piece and detects a change of the
            // file.
            self.head = self.file.read_at(0..end.min(self.file.size_bytes()))?;
            let bytes = self.partial_file(LoadedRange::default());
            let Ok(file) = ArchiveFile::parse(&bytes) else {
                end = bytes.missing_end();
                continue;
            };
            // These calls only record in `bytes` what they miss.
            let _ = (file.symbols(), file.members().next());
            end = bytes.missing_end();
        }
        Ok(())
    }

    /// The path that the archive was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The offsets of the members' headers in bytes, in ascending order.
    ///
    /// # Errors
    /// [`ErrorKind::Archive`], with the offset at which no member can be read.
    pub fn member_offsets(&self) -> Result<Vec<u64>> {
        let (mut offsets, end) = (Vec::new(), self.file.size_bytes());
        let mut next = self.first_member()?;
        while next < end {
            offsets.push(next);
            next = self.entry(next, |entry| {
                let (start, size) = entry.file_range();
                if entry.is_thin() {
                    return next + HEADER_SIZE;
                }
                let member_end = start.saturating_add(size);
                // Members are padded to an even size.
                member_end.saturating_add(member_end.saturating_sub(next) % 2)
            })?;
        }
        Ok(offsets)
    }

    /// The offset of the first member's header, after the symbol table and the long names. The archive's end if there
    /// is none.
    fn first_member(&self) -> Result<u64> {
        let end = self.file.size_bytes();
        let bytes = self.partial_file(LoadedRange::default());
        match self.parse(&bytes)?.members().next() {
            None => Ok(end),
            Some(Err(problem)) => Err(self.fault(MAGIC_SIZE, "", problem)),
            Some(Ok(entry)) => Ok(entry.header().map_or(end, |header| self.offset_of(header.name.as_ptr()))),
        }
    }

    /// Reads the member whose header is at `offset`.
    ///
    /// # Errors
    /// [`ErrorKind::Archive`] if no complete member is there; the error of [`OpenFile`] for a member of a thin archive;
    /// the error of [`ReadAt`].
    pub fn member(&self, offset: u64) -> Result<ArchiveMember> {
        self.read_member(self.place(offset)?)
    }

    /// Reads the header at `offset`.
    fn place(&self, offset: u64) -> Result<MemberPlace> {
        self.entry(offset, |entry| MemberPlace { offset, name: entry.name().to_vec(), range: self.contents(&entry) })
    }

    fn read_member(&self, MemberPlace { offset, name, range }: MemberPlace) -> Result<ArchiveMember> {
        let member = String::from_utf8_lossy(&name).into_owned();
        let bytes = match range {
            Some(range) => self.read_contents(range, offset, &member)?,
            None => self.open_thin_member(&name)?,
        };
        Ok(ArchiveMember { archive: self.path.clone(), member, offset, bytes })
    }

    /// Parses the header at `offset` and passes it to `visit`. Reads more of the file until the header and its name are
    /// complete.
    fn entry<T>(&self, offset: u64, mut visit: impl FnMut(MemberHeader<'_>) -> T) -> Result<T> {
        let fault = |problem| self.fault(offset, "", problem);
        let mut range = LoadedRange::default();
        loop {
            let bytes = self.partial_file(range);
            let problem = match self.parse(&bytes)?.member(ArchiveOffset(offset)) {
                Ok(entry) => return Ok(visit(entry)),
                Err(problem) => problem,
            };
            // The missing bytes come after the loaded range, which starts at the header.
            let end = bytes.missing_end().max(offset.saturating_add(HEADER_SIZE)).min(self.file.size_bytes());
            range = bytes.into_range();
            if end <= offset || range.reaches(end) || end <= self.head.len() as u64 {
                return Err(fault(problem));
            }
            range = LoadedRange { start: offset, bytes: self.file.read_at(offset..end)? };
        }
    }

    /// The range of a member's bytes in the archive. `None` for a member of a thin archive.
    fn contents(&self, entry: &MemberHeader<'_>) -> Option<Range<u64>> {
        let (start, size) = entry.file_range();
        (!entry.is_thin()).then(|| start..start.saturating_add(size))
    }

    fn read_contents(&self, range: Range<u64>, offset: u64, member: &str) -> Result<ObjectBuffer> {
        let (size, end) = (range.end.saturating_sub(range.start), self.file.size_bytes());
        if range.start > range.end || range.end > end {
            let problem = format!("its {size} bytes reach past the end of the archive, at {end:#x}");
            return Err(self.fault(offset, member, problem));
        }
        self.file.read_at(range)
    }

    /// Opens the file of a thin archive's member.
    fn open_thin_member(&self, name: &[u8]) -> Result<ObjectBuffer> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        match (self.open_file)(&folder.join(OsStr::from_bytes(name)))? {
            FileBytes::InMemory(bytes) => Ok(bytes),
            file => file.read_at(0..file.size_bytes()),
        }
    }

    fn partial_file(&self, range: LoadedRange) -> PartialFile<'_> {
        PartialFile::new(&self.head, range, self.file.size_bytes())
    }

    /// The archive, parsed from its head.
    fn file(&self) -> Result<ArchiveFile<'_>> {
        self.parse(&*self.head)
    }

    /// Parses the headers before the first member. The time does not depend on the archive's size.
    fn parse<'a, R: ReadRef<'a>>(&self, bytes: R) -> Result<ArchiveFile<'a, R>> {
        let head: &[u8] = &self.head;
        if !matches!(head.get(..MAGIC_SIZE as usize), Some(b"!<arch>\n" | b"!<thin>\n")) {
            let found = &head[..head.len().min(MAGIC_SIZE as usize)];
            return Err(self.fault(0, "", format!("it begins with `{}`, not with `!<arch>`", found.escape_ascii())));
        }
        let file = ArchiveFile::parse(bytes).map_err(|problem| self.fault(MAGIC_SIZE, "", problem))?;
        match file.kind() {
            ArchiveKind::Unknown | ArchiveKind::Gnu | ArchiveKind::Gnu64 | ArchiveKind::Bsd | ArchiveKind::Bsd64 => {
                Ok(file)
            }
            other => Err(self.fault(MAGIC_SIZE, "", format!("it is of the kind {other:?}, which is not supported"))),
        }
    }

    /// Calls `visit` for every entry of the symbol table, in its order: the name, and the offset of the header of the member
    /// that defines it. A default version, `name@@VERSION`, has two names: `name` and `name@VERSION`. Leaves names out that are
    /// not UTF-8.
    ///
    /// # Errors
    /// [`ErrorKind::Archive`] if the table is malformed.
    #[cfg(feature = "unstable")]
    pub fn each_name(&self, visit: &mut dyn FnMut(&str, u64)) -> Result<()> {
        self.each_symbol(|_, listed, member| {
            let (name, version) = split_default_version(listed);
            let Ok(name) = std::str::from_utf8(name) else { return };
            visit(name, member);
            if let Some(Ok(version)) = version.map(std::str::from_utf8) {
                visit(&format!("{name}@{version}"), member);
            }
        })
    }

    /// Calls `visit` for every entry of the symbol table: the position of the name for [`name_at`](Self::name_at), the
    /// name, and the offset of the header of the member that defines it.
    fn each_symbol(&self, mut visit: impl FnMut(u32, &[u8], u64)) -> Result<()> {
        if let Some(scanned) = &self.scanned {
            scanned.symbols.iter().for_each(|(name, member)| visit(*name, self.name_at(*name), *member));
            return Ok(());
        }
        let symbols = self.file()?.symbols().map_err(|problem| self.fault(MAGIC_SIZE, "", problem))?;
        // Names may overlap in a malformed table. Many suffixes of one long name would take quadratic time.
        let mut name_bytes_left = NAMES_PER_BYTE * self.head.len() as u64;
        for symbol in symbols.into_iter().flatten() {
            let symbol = symbol.map_err(|problem| self.fault(MAGIC_SIZE, "", problem))?;
            name_bytes_left = name_bytes_left.checked_sub(symbol.name().len() as u64).ok_or_else(|| {
                self.fault(
                    MAGIC_SIZE,
                    "",
                    "the names in its symbol table overlap: together they are many times its size",
                )
            })?;
            let offset = self.offset_of(symbol.name().as_ptr());
            let position = u32::try_from(offset)
                .map_err(|_| self.fault(offset, "", "its symbol table reaches beyond 4 GiB, which is not supported"))?;
            visit(position, symbol.name(), symbol.offset().0);
        }
        Ok(())
    }

    /// The number of entries of the symbol table, as the archive states it. The archive's size bounds it.
    fn symbol_count(&self) -> usize {
        if let Some(scanned) = &self.scanned {
            return scanned.symbols.len();
        }
        let symbols = self.file().ok().and_then(|file| file.symbols().ok().flatten());
        symbols.map_or(0, |symbols| symbols.size_hint().0)
    }

    /// The name at a position that [`each_symbol`](Self::each_symbol) reported.
    fn name_at(&self, position: u32) -> &[u8] {
        name_in(self.names(), position)
    }

    /// Whether the name at `position` is equal to `name`, or is the default version of `name`.
    fn is_name_at(&self, position: u32, name: &[u8]) -> bool {
        let text = self.names().get(position as usize..).and_then(|text| text.strip_prefix(name));
        text.is_some_and(|rest| rest.first() == Some(&0) || rest.starts_with(b"@@"))
    }

    /// The bytes that name positions refer to. A null byte ends each name.
    fn names(&self) -> &[u8] {
        self.scanned.as_ref().map_or(&self.head, |scanned| &scanned.names)
    }

    /// Builds the symbol table of an archive without one. Skips members that are not objects of this machine, because
    /// they define nothing that can be linked.
    ///
    /// A thin archive may list one file many times. The file is read once, for its first member: the first definition
    /// of a name counts anyway.
    fn scan(&self) -> Result<ScannedSymbols> {
        let (mut symbols, mut read_files) = (ScannedSymbols::default(), BTreeSet::new());
        for offset in self.member_offsets()? {
            let place = self.place(offset)?;
            if place.range.is_none() && !read_files.insert(place.name.clone()) {
                continue;
            }
            let member = self.read_member(place)?;
            for name in elf::defined_names(&member.name(), &member.bytes).unwrap_or_default() {
                symbols.push(name, offset).ok_or_else(|| self.fault(offset, &member.member, "too many symbols"))?;
            }
        }
        Ok(symbols)
    }

    /// The offset in the archive of a pointer into its head.
    fn offset_of(&self, piece: *const u8) -> u64 {
        piece.addr().wrapping_sub(self.head.as_ptr().addr()) as u64
    }

    fn fault(&self, offset: u64, member: &str, problem: impl ToString) -> Error {
        let (archive, member, problem) = (self.path.display().to_string(), member.to_string(), problem.to_string());
        ErrorKind::Archive { archive, member, offset, problem }.into()
    }
}

/// The most bytes of names that are read, per byte of the head. The names of a valid table do not overlap and take less
/// than one.
const NAMES_PER_BYTE: u64 = 64;

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "archive {}, {} symbols", self.path.display(), self.symbol_count())
    }
}

/// Where the bytes of a member are.
struct MemberPlace {
    /// The offset of its header in the archive.
    offset: u64,
    name: Vec<u8>,
    /// Its bytes in the archive. `None` for a member of a thin archive, whose name is a path.
    range: Option<Range<u64>>,
}

/// A symbol table that was built from the members.
#[derive(Default)]
struct ScannedSymbols {
    /// The names, each with a null byte after it.
    names: Vec<u8>,
    /// `(position in names, offset of the member's header)`.
    symbols: Vec<(u32, u64)>,
}

impl ScannedSymbols {
    /// Adds a symbol. `None` if the names are 4 GiB or more.
    fn push(&mut self, name: &str, member: u64) -> Option<()> {
        self.symbols.push((u32::try_from(self.names.len()).ok()?, member));
        self.names.extend(name.as_bytes());
        self.names.push(0);
        Some(())
    }
}

/// The name and the version of a default version: `name@@VERSION` (`.symver`). Of any other name, the name itself.
fn split_default_version(listed: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr(b'@', listed) {
        Some(end) if listed.get(end + 1) == Some(&b'@') => (&listed[..end], Some(&listed[end + 2..])),
        _ => (listed, None),
    }
}

fn name_in(names: &[u8], position: u32) -> &[u8] {
    let text = names.get(position as usize..).unwrap_or_default();
    CStr::from_bytes_until_nul(text).map_or(text, CStr::to_bytes)
}

/// The size in bytes of the first read of an archive.
const FIRST_READ: u64 = 64 << 10;
/// The size of `!<arch>\n` in bytes.
const MAGIC_SIZE: u64 = 8;
/// The size of a member's header in bytes.
const HEADER_SIZE: u64 = 60;
