//! Forking: handlers around `fork`, and a copy of a shared file for the child.
//!
//! A child shares the pages of a shared file with its parent. [`FileCopy`] gives it a copy of its own:
//!
//! | step | where | function |
//! |---|---|---|
//! | 1. copy the file | the parent, before the fork | [`FileCopy::create`] |
//! | 2. close the copy | the parent, after the fork | [`FileCopy::close`] |
//! | 2. map the copy instead of the parent's file | the child | [`FileCopy::remap_in_child`] |
//! | 2. without a copy: map zeroes where the working view was | the child | [`map_zeroes`] |
//!
//! The child of a process with several threads may call only functions that are async-signal-safe. So the functions for the
//! child make system calls and do nothing else: they neither allocate nor lock.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, RawFd};

use crate::os::vm::{Protection, SharedFile};

unsafe extern "C" {
    // Links against the static part of the C library, so that the handlers are deregistered when the library that contains
    // this code is unloaded.
    fn pthread_atfork(
        prepare: Option<unsafe extern "C" fn()>,
        parent: Option<unsafe extern "C" fn()>,
        child: Option<unsafe extern "C" fn()>,
    ) -> libc::c_int;
}

/// Registers handlers for every later `fork`: before it, after it in the parent, after it in the child. False when the C
/// library has not enough memory.
#[must_use]
pub(crate) fn at_fork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> bool {
    // SAFETY: O4 - Rust functions of this program or library with the declared signature. The C library deregisters them when
    // the library is unloaded. An `extern "C"` function does not unwind.
    unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
}

/// A mapping of a part of a file at a fixed address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileView {
    /// The address of the mapping.
    pub(crate) address: u64,
    /// The offset in the file, in bytes.
    pub(crate) offset: u64,
    /// The size of the mapping in bytes.
    pub(crate) size_bytes: usize,
    /// The protection of the mapping.
    pub(crate) protection: Protection,
}

/// A copy of a shared file for the child of a fork. It owns two descriptors (O7). [`close`](Self::close) and
/// [`remap_in_child`](Self::remap_in_child) consume the value and close both. The type is not `Clone` and has no `Drop`, so
/// each descriptor is closed once in each process.
#[derive(Debug)]
pub(crate) struct FileCopy {
    writable: RawFd,
    /// The descriptor from which the running view is mapped. −1 when that is `writable`.
    read_only: RawFd,
}

impl FileCopy {
    /// Copies the pages of `file` that exist; holes cost nothing. `view` is a mapping of its first `size_bytes`.
    ///
    /// # Safety
    /// `view` points to `size_bytes` readable bytes of a mapping of `file` from offset 0. The mapping stays during the call.
    pub(crate) unsafe fn create(
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
            // SAFETY: O1 - `at` is at most `size_bytes` and the kernel found data at `from` before it, so `[from, at)` is in
            // `view`, which is readable by contract. O7 - `writable` is open.
            unsafe { write_at(writable.as_raw_fd(), view.add(from as usize), from, at.saturating_sub(from)) }?;
            if at >= size_bytes {
                break;
            }
        }
        Ok(FileCopy { writable: writable.into_raw_fd(), read_only: read_only.map_or(-1, IntoRawFd::into_raw_fd) })
    }

    /// Closes the copy in the parent. The child has its own descriptors.
    pub(crate) fn close(self) {
        for descriptor in [self.writable, self.read_only] {
            // SAFETY: O7 - `create` opened both, and this function consumes the only value that has them. −1 is no
            // descriptor, and the call fails without effect.
            unsafe { libc::close(descriptor) };
        }
    }

    /// Maps the copy in the child: at `parts` instead of the parent's file, and writable at `alias`. Replaces the file behind
    /// `descriptor` with the copy. False when the kernel refuses a mapping.
    ///
    /// # Safety
    /// - `parts` are mappings of the file that was copied, with the same offsets. The caller owns them.
    /// - The file has the same bytes as the copy, so that replacing a mapping changes no byte that anyone reads.
    /// - The caller owns the address space `[alias, alias + size_bytes)`, where nothing is mapped.
    /// - The caller owns `descriptor`, which is open.
    pub(crate) unsafe fn remap_in_child(
        self,
        parts: &[FileView],
        alias: u64,
        size_bytes: usize,
        descriptor: RawFd,
    ) -> bool {
        let mapped = if self.read_only < 0 { self.writable } else { self.read_only };
        let mut is_complete = true;
        for part in parts {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: O1 - the first clause: the caller owns the range that `MAP_FIXED` replaces. The second clause: the copy
            // has the same bytes at this offset, so code that runs from the range or reads it sees no difference. O7 -
            // `mapped` is open.
            let remapped = unsafe {
                let (protection, offset) = (part.protection.bits(), part.offset as libc::off_t);
                libc::mmap(part.address as *mut _, part.size_bytes, protection, flags, mapped, offset)
            };
            is_complete &= remapped != libc::MAP_FAILED;
        }
        // SAFETY: O1 - the third clause: the caller owns the range. `MAP_FIXED_NOREPLACE` replaces no mapping. O7 -
        // `self.writable` is open.
        let writable = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
            libc::mmap(alias as *mut _, size_bytes, Protection::ReadWrite.bits(), flags, self.writable, 0)
        };
        is_complete &= writable as u64 == alias;
        if is_complete {
            // SAFETY: O1 - the range was mapped just above. `MADV_DONTFORK` changes no byte; a grandchild gets a copy of its
            // own.
            unsafe { libc::madvise(writable, size_bytes, libc::MADV_DONTFORK) };
        }
        // SAFETY: O7 - `mapped` is open, and the caller owns `descriptor` by the fourth clause. `dup3` closes its old file,
        // and the caller goes on to own the number.
        unsafe { libc::dup3(mapped, descriptor, libc::O_CLOEXEC) };
        self.close();
        is_complete
    }
}

/// Maps zeroes in a child that has no copy, where the parent's working view was. So a stray store hits private memory. False
/// when the kernel refuses.
///
/// # Safety
/// The caller owns the address space `[alias, alias + size_bytes)`. Nothing is mapped there, except what a failed
/// [`FileCopy::remap_in_child`] mapped.
pub(crate) unsafe fn map_zeroes(alias: u64, size_bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: O1 - the caller owns the range by contract, and `MAP_FIXED_NOREPLACE` replaces no mapping.
    let scratch = unsafe { libc::mmap(alias as *mut _, size_bytes, Protection::ReadWrite.bits(), flags, -1, 0) };
    scratch as u64 == alias
}

/// Seeks to the next data or hole. `None` when there is no more data.
fn seek(file: BorrowedFd<'_>, from: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
    // SAFETY: O7 - the borrow keeps the descriptor open. No code of this crate relies on its file position.
    let found = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, whence) };
    match u64::try_from(found) {
        Ok(found) => Ok(Some(found)),
        Err(_) => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            error => Err(error),
        },
    }
}

/// Writes `size_bytes` at `offset`, in several calls where needed.
///
/// # Safety
/// - `from` points to `size_bytes` readable bytes.
/// - `to` is an open descriptor.
unsafe fn write_at(to: RawFd, from: *const u8, offset: u64, size_bytes: u64) -> io::Result<()> {
    let mut done = 0;
    while done < size_bytes {
        // SAFETY: O2 - `done` is less than `size_bytes`, so the rest is in the bytes of the first clause; the kernel only
        // reads them. O7 - the second clause.
        let written = unsafe {
            let (at, remaining) = (from.add(done as usize), (size_bytes - done) as usize);
            libc::pwrite(to, at.cast(), remaining, (offset + done) as libc::off_t)
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
