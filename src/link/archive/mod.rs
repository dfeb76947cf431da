//! [`Archive`]: many objects in one file, with a list of who defines what. [`ArchiveSet`] (`set.rs`) searches several.
//!
//! ```text
//!   !<arch>\n │ `/` or `__.SYMDEF`: the list │ `//`: long names │ header, member │ header, member │ …
//!                 symbol's name ────────────────────────────────► offset of a header
//! ```
//!
//! Opening reads the list and the long names, the archive's *head*, and keeps them. A member is read when it is asked for.
//! Where all bytes are in memory ([`FileBytes::InMemory`]), a member is a part of them; as it is aligned to two bytes only,
//! whoever reads objects must not expect more. In a thin archive members are files of their own, named relative to the
//! archive's folder, and opened when they are asked for. An archive without a list has its members scanned when it is
//! opened.
//!
//! GNU's archives and BSD's are read, with 32-bit and 64-bit lists. This file opens no file itself: whoever opens an archive
//! hands over the means. It decides no policy either: which member is needed is its user's question.

mod head;
mod set;

pub use set::{ArchiveSet, Listing, MemberId};

use std::ffi::{CStr, OsStr};
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::ReadRef;
use object::read::archive::{ArchiveFile, ArchiveKind, ArchiveMember as Entry, ArchiveOffset};

use crate::error::{Error, ErrorKind, Result};
use crate::link::archive::head::{Parts, Window};
use crate::link::buffer::ObjectBuffer;
use crate::link::elf;
use crate::sync::Arc;

/// Opens a file: an archive, or a member of a thin one. Called with no lock held; other threads that need a member may be
/// waiting for the one that is added meanwhile.
pub type OpenFile = dyn Fn(&Path) -> Result<FileBytes> + Send + Sync;

/// The bytes of a file.
#[derive(Clone)]
pub enum FileBytes {
    /// All of them.
    InMemory(ObjectBuffer),
    /// A part of them whenever one is needed.
    OnDemand(Arc<dyn ReadAt>),
}

/// A file that is read in parts.
pub trait ReadAt: Send + Sync {
    /// How large the file is. Always the same.
    fn size_bytes(&self) -> u64;

    /// As many bytes as the range has.
    ///
    /// # Errors
    /// When they cannot be read; when the file was changed since it was opened, because a list and members of two states of
    /// an archive make a wrong link.
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

    /// `range` lies in the file.
    fn read_at(&self, range: Range<u64>) -> Result<ObjectBuffer> {
        match self {
            FileBytes::InMemory(bytes) => {
                let part = bytes.part(range.start as usize..range.end as usize);
                part.ok_or_else(|| Error::other("a part of a file was asked for that does not lie in it"))
            }
            FileBytes::OnDemand(file) => {
                let part = file.read_at(range.clone())?;
                let is_whole = part.len() as u64 == range.end - range.start;
                is_whole.then_some(part).ok_or_else(|| Error::other("a file gave fewer bytes than it was asked for"))
            }
        }
    }
}

/// An archive whose list of symbols can be read.
pub struct Archive {
    path: Arc<Path>,
    file: FileBytes,
    /// The file's first bytes: the list, the long names, and the header behind them. All bytes where they are in memory.
    head: ObjectBuffer,
    open_file: Arc<OpenFile>,
    /// What stands in for the list of an archive that has none.
    scanned: Option<ScannedList>,
}

/// One object of an archive.
#[derive(Debug)]
pub struct ArchiveMember {
    archive: Arc<Path>,
    member: String,
    /// Where its header stands in the archive: what tells it from another of the same name.
    pub offset: u64,
    /// The object.
    pub bytes: ObjectBuffer,
}

impl ArchiveMember {
    /// `libfoo.a(bar.o)`.
    pub fn name(&self) -> String {
        let archive = self.archive.file_name().unwrap_or_default().to_string_lossy();
        format!("{archive}({})", self.member)
    }

    /// `folder/libfoo.a(bar.o at 0x44)`, which no other member is called.
    pub fn full_name(&self) -> String {
        format!("{}({} at {:#x})", self.archive.display(), self.member, self.offset)
    }
}

impl Archive {
    /// Opens an archive. `open_file` is kept, for the members of a thin archive.
    ///
    /// # Errors
    /// What `open_file` reports; [`ErrorKind::Archive`] when the file is no archive, or damaged where it was read.
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

    /// Reads as much of the beginning as the list, the long names and the first member's header take.
    fn read_head(&mut self) -> Result<()> {
        if let FileBytes::InMemory(bytes) = &self.file {
            self.head = bytes.clone();
            return Ok(());
        }
        let mut wanted = FIRST_READ;
        while (self.head.len() as u64) < wanted {
            // Not piece by piece: whoever changes the file meanwhile is noticed in one place.
            self.head = self.file.read_at(0..wanted.min(self.file.size_bytes()))?;
            let parts = self.parts(Window::default());
            let Ok(file) = ArchiveFile::parse(&parts) else {
                wanted = parts.wanted();
                continue;
            };
            let _ = (file.symbols(), file.members().next());
            wanted = parts.wanted();
        }
        Ok(())
    }

    /// Where the archive was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the members' headers stand, in their order.
    ///
    /// # Errors
    /// [`ErrorKind::Archive`], with the offset from which no member can be read.
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
                let behind = start.saturating_add(size);
                // Padded to an even size.
                behind.saturating_add(behind.saturating_sub(next) % 2)
            })?;
        }
        Ok(offsets)
    }

    /// Where the header of the first member stands that is an object; the archive's end if there is none.
    fn first_member(&self) -> Result<u64> {
        let end = self.file.size_bytes();
        let parts = self.parts(Window::default());
        match self.parse(&parts)?.members().next() {
            None => Ok(end),
            Some(Err(problem)) => Err(self.fault(MAGIC_SIZE, "", problem)),
            Some(Ok(entry)) => Ok(entry.header().map_or(end, |header| self.offset_of(header.name.as_ptr()))),
        }
    }

    /// The member whose header stands at `offset`.
    ///
    /// # Errors
    /// [`ErrorKind::Archive`] when no whole member stands there; what opening the file of a thin archive's member reports;
    /// what reading reports.
    pub fn member(&self, offset: u64) -> Result<ArchiveMember> {
        let (member, name, range) = self.entry(offset, |entry| {
            let member = String::from_utf8_lossy(entry.name()).into_owned();
            (member, entry.name().to_vec(), self.contents(&entry))
        })?;
        let bytes = match range {
            Some(range) => self.part(range, offset, &member)?,
            None => self.open_beside(&name)?,
        };
        Ok(ArchiveMember { archive: self.path.clone(), member, offset, bytes })
    }

    /// Reads a member's header and name.
    fn entry<T>(&self, offset: u64, mut look: impl FnMut(Entry<'_>) -> T) -> Result<T> {
        let fault = |problem| self.fault(offset, "", problem);
        let mut window = Window::default();
        loop {
            let parts = self.parts(window);
            let problem = match self.parse(&parts)?.member(ArchiveOffset(offset)) {
                Ok(entry) => return Ok(look(entry)),
                Err(problem) => problem,
            };
            // What is missing is behind the window, which starts at the header.
            let end = parts.wanted().max(offset.saturating_add(HEADER_SIZE)).min(self.file.size_bytes());
            window = parts.into_window();
            if end <= offset || window.reaches(end) || end <= self.head.len() as u64 {
                return Err(fault(problem));
            }
            window = Window { start: offset, bytes: self.file.read_at(offset..end)? };
        }
    }

    /// Where a member's bytes are, unless they are a file of their own.
    fn contents(&self, entry: &Entry<'_>) -> Option<Range<u64>> {
        let (start, size) = entry.file_range();
        (!entry.is_thin()).then(|| start..start.saturating_add(size))
    }

    fn part(&self, range: Range<u64>, offset: u64, member: &str) -> Result<ObjectBuffer> {
        let (size, end) = (range.end.saturating_sub(range.start), self.file.size_bytes());
        if range.start > range.end || range.end > end {
            let problem = format!("its {size} bytes reach past the end of the archive, at {end:#x}");
            return Err(self.fault(offset, member, problem));
        }
        self.file.read_at(range)
    }

    fn open_beside(&self, name: &[u8]) -> Result<ObjectBuffer> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        match (self.open_file)(&folder.join(OsStr::from_bytes(name)))? {
            FileBytes::InMemory(bytes) => Ok(bytes),
            file => file.read_at(0..file.size_bytes()),
        }
    }

    fn parts(&self, window: Window) -> Parts<'_> {
        Parts::new(&self.head, window, self.file.size_bytes())
    }

    /// The archive, as far as its head tells.
    fn file(&self) -> Result<ArchiveFile<'_>> {
        self.parse(&*self.head)
    }

    /// Reads headers only: what this costs does not depend on the archive's size.
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

    /// Tells of every symbol in the list: where its name stands, its name, and the offset of the member that defines it.
    fn each_symbol(&self, mut tell: impl FnMut(u32, &[u8], u64)) -> Result<()> {
        if let Some(scanned) = &self.scanned {
            scanned.symbols.iter().for_each(|(name, member)| tell(*name, self.name_at(*name), *member));
            return Ok(());
        }
        let symbols = self.file()?.symbols().map_err(|problem| self.fault(MAGIC_SIZE, "", problem))?;
        // Names may share their bytes, and nobody's do: a long one with many ends would be the square of the archive.
        let mut names_left = NAMES_PER_BYTE * self.head.len() as u64;
        for symbol in symbols.into_iter().flatten() {
            let symbol = symbol.map_err(|problem| self.fault(MAGIC_SIZE, "", problem))?;
            names_left = names_left.checked_sub(symbol.name().len() as u64).ok_or_else(|| {
                self.fault(MAGIC_SIZE, "", "the names in its list of symbols overlap: they are many times its size")
            })?;
            let at = self.offset_of(symbol.name().as_ptr());
            let at = u32::try_from(at)
                .map_err(|_| self.fault(at, "", "its list of symbols reaches beyond 4 GiB, which is not supported"))?;
            tell(at, symbol.name(), symbol.offset().0);
        }
        Ok(())
    }

    /// How many symbols the list has; the archive's own word, bounded by its size.
    fn symbol_count(&self) -> usize {
        if let Some(scanned) = &self.scanned {
            return scanned.symbols.len();
        }
        let symbols = self.file().ok().and_then(|file| file.symbols().ok().flatten());
        symbols.map_or(0, |symbols| symbols.size_hint().0)
    }

    /// A name that [`each_symbol`](Self::each_symbol) told of.
    fn name_at(&self, at: u32) -> &[u8] {
        name_in(self.names(), at)
    }

    /// Whether the name that stands there is this one.
    fn is_name_at(&self, at: u32, name: &[u8]) -> bool {
        let text = self.names().get(at as usize..).and_then(|text| text.strip_prefix(name));
        text.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// What names stand in, each with a zero byte behind it.
    fn names(&self) -> &[u8] {
        self.scanned.as_ref().map_or(&self.head, |scanned| &scanned.names)
    }

    /// The list that an archive without one ought to have. Members that are no objects of this machine are passed over:
    /// they define nothing that could be asked for.
    fn scan(&self) -> Result<ScannedList> {
        let mut list = ScannedList::default();
        for offset in self.member_offsets()? {
            let member = self.member(offset)?;
            for name in elf::defined_names(&member.name(), &member.bytes).unwrap_or_default() {
                list.push(name, offset).ok_or_else(|| self.fault(offset, &member.member, "too many symbols"))?;
            }
        }
        Ok(list)
    }

    /// Where in the archive a piece of its head stands.
    fn offset_of(&self, piece: *const u8) -> u64 {
        piece.addr().wrapping_sub(self.head.as_ptr().addr()) as u64
    }

    fn fault(&self, offset: u64, member: &str, problem: impl ToString) -> Error {
        let (archive, member, problem) = (self.path.display().to_string(), member.to_string(), problem.to_string());
        ErrorKind::Archive { archive, member, offset, problem }.into()
    }
}

/// Bytes of names that are read for each byte of the archive, at most.
const NAMES_PER_BYTE: u64 = 64;

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "archive {}, {} symbols", self.path.display(), self.symbol_count())
    }
}

/// A list made of what members define.
#[derive(Default)]
struct ScannedList {
    /// Each with a zero byte behind it.
    names: Vec<u8>,
    /// Where its name stands, and the offset of the member that defines it.
    symbols: Vec<(u32, u64)>,
}

impl ScannedList {
    fn push(&mut self, name: &str, member: u64) -> Option<()> {
        self.symbols.push((u32::try_from(self.names.len()).ok()?, member));
        self.names.extend(name.as_bytes());
        self.names.push(0);
        Some(())
    }
}

fn name_in(names: &[u8], at: u32) -> &[u8] {
    let text = names.get(at as usize..).unwrap_or_default();
    CStr::from_bytes_until_nul(text).map_or(text, CStr::to_bytes)
}

/// How much of an archive is read at first.
const FIRST_READ: u64 = 64 << 10;
/// Bytes before the first header, and of each header.
const MAGIC_SIZE: u64 = 8;
const HEADER_SIZE: u64 = 60;
