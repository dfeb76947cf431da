//! Shared anonymous files, and the mapping and protecting of pages at fixed addresses.
//!
//! A file is made once, at its full size and without pages; mappings of it are made once too. So nothing in here is
//! called while code is linked or removed, but [`protect`] where pages have to change their protection for it.

use std::ffi::CStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;

use memmap2::{Advice, MmapOptions, MmapRaw};

/// A file without a name that lives in memory (`memfd_create`).
pub(crate) struct SharedFile {
    file: File,
}

impl SharedFile {
    /// A sparse file of `size_bytes`, which may be mapped executable.
    pub(crate) fn create(name: &CStr, size_bytes: u64) -> io::Result<SharedFile> {
        check_file_size_limit(size_bytes)?;
        let file = memfd(name)?;
        file.set_len(size_bytes)?;
        Ok(SharedFile { file })
    }

    /// A second descriptor that can only read: a mapping made from it can never be made writable. Whoever opens the file
    /// again by that descriptor (`/proc/self/fd`) can only read, too, unless he changes the file's mode first or has the
    /// right to pass over it (`CAP_DAC_OVERRIDE`).
    pub(crate) fn reopen_read_only(&self) -> io::Result<File> {
        let read_only = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
        // Some sandboxes forbid it. The running view is read-only all the same.
        let _ = self.file.set_permissions(Permissions::from_mode(0o444));
        Ok(read_only)
    }

    /// The whole file, writable, wherever the kernel likes. A forked child does not get it.
    pub(crate) fn map_writable(&self) -> io::Result<MmapRaw> {
        let view = MmapOptions::new().map_raw(&self.file)?;
        view.advise(Advice::DontFork)?;
        Ok(view)
    }

    /// The descriptor that can write.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// Both descriptors of a file that is made to be handed to a forked child; the second is the one to map.
    pub(crate) fn into_descriptors(self, is_read_only: bool) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
        let read_only = is_read_only.then(|| self.reopen_read_only()).transpose()?;
        Ok((self.file.into(), read_only.map(OwnedFd::from)))
    }
}

/// What a fixed mapping shows.
pub(crate) enum FixedPages<'a> {
    /// Pages of a file, from `offset` on, shared.
    Shared {
        /// The file.
        file: &'a File,
        /// Where in the file.
        offset: u64,
        /// Whether the pages may be executed; otherwise they may only be read.
        executable: bool,
    },
    /// Zeroes that belong to this process alone, readable and writable.
    PrivateZero,
    /// Nothing: whoever goes there faults.
    Guard,
}

/// Replaces the pages at `address` by others.
///
/// # Safety
/// - `[address, address + size_bytes)` is address space that the caller owns and nobody uses meanwhile.
/// - `address` and `size_bytes` are multiples of the page size.
pub(crate) unsafe fn map_fixed(address: *mut u8, size_bytes: usize, pages: FixedPages<'_>) -> io::Result<()> {
    let (protection, flags, descriptor, offset) = match pages {
        FixedPages::Shared { file, offset, executable } => {
            let execute = if executable { libc::PROT_EXEC } else { 0 };
            (libc::PROT_READ | execute, libc::MAP_SHARED, file.as_raw_fd(), offset)
        }
        FixedPages::PrivateZero => {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            (libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        }
        FixedPages::Guard => (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0),
    };
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: O1 - the caller owns the range, so replacing what is mapped there takes nothing from anybody.
    let mapped =
        unsafe { libc::mmap(address.cast(), size_bytes, protection, flags | libc::MAP_FIXED, descriptor, offset) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What may be done with pages. There is no word for pages that may be written and executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Read.
    Read,
    /// Read and execute.
    ReadExecute,
    /// Read and write.
    ReadWrite,
}

impl Protection {
    pub(crate) fn bits(self) -> libc::c_int {
        match self {
            Protection::Read => libc::PROT_READ,
            Protection::ReadExecute => libc::PROT_READ | libc::PROT_EXEC,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// Changes what may be done with pages.
///
/// # Safety
/// `[address, address + size_bytes)` are whole pages of a mapping that the caller owns, and nobody uses them meanwhile in
/// a way that `protection` forbids.
pub(crate) unsafe fn protect(address: *mut u8, size_bytes: usize, protection: Protection) -> io::Result<()> {
    // SAFETY: O1 - the caller owns the pages; their bytes stay.
    let changed = unsafe { libc::mprotect(address.cast(), size_bytes, protection.bits()) };
    if changed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Address space without access, given back when dropped: also what was mapped over it.
pub(crate) struct Reservation {
    address: *mut u8,
    size_bytes: usize,
}

// SAFETY: O1 - an address range, owned; nothing here reads or writes it.
unsafe impl Send for Reservation {}
// SAFETY: O1 - as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves address space: at `preferred` if nothing is there, wherever the kernel likes otherwise.
    pub(crate) fn new(preferred: u64, size_bytes: usize) -> io::Result<Reservation> {
        let address = reserve(preferred, size_bytes, 0)?;
        Ok(Reservation { address, size_bytes })
    }

    /// The first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: O1 - reserved by `new`; whoever mapped anything over it is gone, by ownership.
        unsafe { libc::munmap(self.address.cast(), self.size_bytes) };
    }
}

/// Whether nothing is mapped in a range just now. Another thread may take it the next moment.
pub(crate) fn is_free(address: u64, size_bytes: usize) -> bool {
    let Ok(reserved) = reserve(address, size_bytes, libc::MAP_FIXED_NOREPLACE) else { return false };
    // Kernels before 4.17 take the flag for a hint.
    let is_there = reserved as u64 == address;
    drop(Reservation { address: reserved, size_bytes });
    is_there
}

fn reserve(preferred: u64, size_bytes: usize, more_flags: libc::c_int) -> io::Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | more_flags;
    // SAFETY: O1 - replaces nothing: the kernel takes the address for a wish, or refuses.
    let mapped = unsafe { libc::mmap(preferred as *mut _, size_bytes, libc::PROT_NONE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped.cast()) }
}

/// What kind of pages are given back.
pub(crate) enum PageKind {
    /// Of a shared file: they leave the file.
    Shared,
    /// Of this process alone.
    Private,
}

/// Gives pages back to the kernel; they read as zero from then on.
///
/// # Safety
/// - `[address, address + size_bytes)` are whole pages of a writable mapping of that kind, which the caller owns.
/// - Nobody uses what is in them.
pub(crate) unsafe fn give_back(address: *mut u8, size_bytes: usize, kind: PageKind) -> io::Result<()> {
    let advice = match kind {
        PageKind::Shared => libc::MADV_REMOVE,
        PageKind::Private => libc::MADV_DONTNEED,
    };
    // SAFETY: O1 - the caller owns the pages, and nobody misses what was in them.
    let advised = unsafe { libc::madvise(address.cast(), size_bytes, advice) };
    if advised == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel back pages at one go that are about to be written; what is in them stays. A wish, which older kernels do
/// not know, and which takes the place of a page fault for each of them.
pub(crate) fn back(pages: &MmapRaw, offset: usize, size_bytes: usize) {
    let _ = pages.advise_range(Advice::PopulateWrite, offset, size_bytes);
}

/// Newer kernels want to be told that a memfd may be executed; older ones refuse the flag. Where none may be
/// (`vm.memfd_noexec`), it may be mapped executable all the same: it is not run as a program.
fn memfd(name: &CStr) -> io::Result<File> {
    memfd_with(name, libc::MFD_CLOEXEC | libc::MFD_EXEC).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => memfd_with(name, libc::MFD_CLOEXEC),
        Some(libc::EACCES) => memfd_with(name, libc::MFD_CLOEXEC | libc::MFD_NOEXEC_SEAL),
        _ => Err(error),
    })
}

fn memfd_with(name: &CStr, flags: libc::c_uint) -> io::Result<File> {
    // SAFETY: O2 - `name` is a C string that outlives the call.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: O3 - the descriptor was made just now and nobody else has it; `File` closes it once.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Beyond RLIMIT_FSIZE the kernel does not fail `ftruncate`: it kills the process by SIGXFSZ. So ask first.
pub(super) fn check_file_size_limit(size_bytes: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: O1 - the kernel writes only into `limit`, which is ours.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    if asked == 0 && size_bytes > limit.rlim_cur {
        return Err(io::Error::other(format!("RLIMIT_FSIZE allows files of {} bytes only", limit.rlim_cur)));
    }
    Ok(())
}
