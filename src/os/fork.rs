//! Forking: what is done before it, and in both processes after it.
//!
//! [`FileCopy::take`] runs before a fork, where anything may be done. [`FileCopy::remap_in_child`] and [`map_zeroes`] run in the child
//! of what may be a process of many threads, where only calls may be made that are safe in a signal handler: they make
//! system calls and do nothing else.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};

use crate::os::vm::{Protection, SharedFile};

unsafe extern "C" {
    // Links against the C library's static part, so that the handlers go with the library that this code is part of.
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> libc::c_int;
}

/// Has the handlers called at every `fork` from now on: before it, after it in the parent, after it in the child. False
/// when the C library has no room.
#[must_use]
pub(crate) fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> bool {
    // SAFETY: O4 - functions of this very program, which take nothing and do not unwind.
    unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

/// A part of a file that is shown at a fixed address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileView {
    /// Where.
    pub(crate) address: u64,
    /// From where in the file.
    pub(crate) offset: u64,
    /// How much, in bytes.
    pub(crate) size_bytes: usize,
    /// As what.
    pub(crate) protection: Protection,
}

/// A copy of a shared file, on its way to a child. Two descriptors, which nobody closes but the methods below. No copy can be
/// made of the value, so that each is closed once.
#[derive(Debug)]
pub(crate) struct FileCopy {
    writable: RawFd,
    /// What the running view is mapped from; −1 when that is `writable`.
    read_only: RawFd,
}

impl FileCopy {
    /// Copies those pages of `file` that there are: holes cost nothing. `view` shows the first `size_bytes` of it.
    ///
    /// # Safety
    /// `view` points to as many bytes of a mapping of `file` from its start, which stays during the call.
    pub(crate) unsafe fn take(
        name: &CStr,
        file: BorrowedFd<'_>,
        view: *const u8,
        size_bytes: u64,
        is_read_only: bool,
    ) -> io::Result<FileCopy> {
        let copy = SharedFile::create(name, size_bytes)?;
        let (writable, read_only) = copy.into_descriptors(is_read_only)?;
        let mut at = 0;
        while let Some(from) = seek(file, at, libc::SEEK_DATA)? {
            at = seek(file, from, libc::SEEK_HOLE)?.unwrap_or(size_bytes).min(size_bytes);
            // SAFETY: O1 - `[from, at)` lies in the file, so in its view, by contract.
            unsafe { write_at(writable.as_raw_fd(), view.add(from as usize), from, at.saturating_sub(from)) }?;
            if at >= size_bytes {
                break;
            }
        }
        Ok(FileCopy { writable: writable.into_raw_fd(), read_only: read_only.map_or(-1, IntoRawFd::into_raw_fd) })
    }

    /// In the parent: the copy is the child's.
    pub(crate) fn close(self) {
        for descriptor in [self.writable, self.read_only] {
            // SAFETY: O3 - opened by `take`, and closed once in each process: here, or in `remap_in_child`. No file has number −1.
            unsafe { libc::close(descriptor) };
        }
    }

    /// In the child: shows the copy at `parts` instead of what they showed, makes it writable at `alias`, where nothing
    /// is, and has `descriptor` stand for it from now on. False when the kernel refuses.
    ///
    /// # Safety
    /// The parts show the file that was copied, with the same bytes, and belong to the caller, as does the address space
    /// of the alias and `descriptor`.
    pub(crate) unsafe fn remap_in_child(
        self,
        parts: &[FileView],
        alias: u64,
        size_bytes: usize,
        descriptor: RawFd,
    ) -> bool {
        let mapped = if self.read_only < 0 { self.writable } else { self.read_only };
        let mut is_whole = true;
        for part in parts {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: O1 - by contract. The bytes are the same, so that who reads them meanwhile does not notice.
            let shown = unsafe {
                let (protection, offset) = (part.protection.bits(), part.offset as libc::off_t);
                libc::mmap(part.address as *mut _, part.size_bytes, protection, flags, mapped, offset)
            };
            is_whole &= shown != libc::MAP_FAILED;
        }
        // SAFETY: O1 - by contract, and the flag lets the kernel replace nothing.
        let writable = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
            libc::mmap(alias as *mut _, size_bytes, Protection::ReadWrite.bits(), flags, self.writable, 0)
        };
        is_whole &= writable as u64 == alias;
        if is_whole {
            // SAFETY: O1 - mapped just now. A grandchild gets its own.
            unsafe { libc::madvise(writable, size_bytes, libc::MADV_DONTFORK) };
        }
        // SAFETY: O3 - replaces the parent's file in a descriptor that the caller owns, and goes on being that.
        unsafe { libc::dup3(mapped, descriptor, libc::O_CLOEXEC) };
        self.close();
        is_whole
    }
}

/// In a child that has no copy: zeroes where the parent's working view was, so that a stray store hits nothing. False
/// when the kernel refuses.
///
/// # Safety
/// The address space belongs to the caller, and nothing is mapped there but by an [`FileCopy::remap_in_child`] that failed.
pub(crate) unsafe fn map_zeroes(alias: u64, size_bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: O1 - by contract, and the flag lets the kernel replace nothing.
    let scratch = unsafe { libc::mmap(alias as *mut _, size_bytes, Protection::ReadWrite.bits(), flags, -1, 0) };
    scratch as u64 == alias
}

fn seek(file: BorrowedFd<'_>, from: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
    // SAFETY: O3 - an open descriptor, whose place in the file nobody relies on.
    let found = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, whence) };
    match u64::try_from(found) {
        Ok(found) => Ok(Some(found)),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None), // no more data
            error => Err(error),
        },
    }
}

/// # Safety
/// `from` points to `size_bytes` readable bytes.
unsafe fn write_at(to: RawFd, from: *const u8, offset: u64, size_bytes: u64) -> io::Result<()> {
    let mut done = 0;
    while done < size_bytes {
        // SAFETY: O1 - inside the bytes that the caller has; the kernel only reads them.
        let written = unsafe {
            let (at, left) = (from.add(done as usize), (size_bytes - done) as usize);
            libc::pwrite(to, at.cast(), left, (offset + done) as libc::off_t)
        };
        match u64::try_from(written) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}
