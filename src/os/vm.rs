//! [`SharedFile`], [`Reservation`], and functions that map, protect and purge pages at fixed addresses.
//!
//! A shared file is created once, sparse and at its full size. Its mappings are made once, too. So a link or a removal calls
//! only [`purge_pages`], [`populate`] and, where pages must change their protection, [`protect`].

use std::ffi::CStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::arch::MIN_PAGE_SIZE;
use crate::os::page_size::page_size;

/// A file in memory without a name (`memfd_create`).
pub(crate) struct SharedFile {
    file: File,
    size_bytes: u64,
}

impl SharedFile {
    /// Creates a sparse file of `size_bytes`. It can be mapped executable.
    pub(crate) fn create(name: &CStr, size_bytes: u64) -> io::Result<SharedFile> {
        check_file_size_limit(size_bytes)?;
        let file = memfd(name)?;
        file.set_len(size_bytes)?;
        Ok(SharedFile { file, size_bytes })
    }

    /// Creates a sparse file of `size_bytes` for two processes. Neither can change its size, after which an access to a mapping
    /// would fault, and nobody can run it as a program.
    #[cfg(feature = "executor")]
    pub(crate) fn create_fixed(name: &CStr, size_bytes: u64) -> io::Result<SharedFile> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        check_file_size_limit(size_bytes)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 do not know the flag.
        let descriptor = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL).or_else(|_| memfd_create(name, flags))?;
        let file = File::from(descriptor);
        file.set_len(size_bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(SharedFile { file, size_bytes })
    }

    /// Opens a second descriptor that can only read. A mapping of it can never be made writable. Opening the file again through
    /// `/proc/self/fd` gives read access only, too, except after a change of the file mode or with `CAP_DAC_OVERRIDE`.
    pub(crate) fn reopen_read_only(&self) -> io::Result<File> {
        let read_only = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
        // Some sandboxes forbid the change of the mode. The running view is read-only nevertheless.
        let _ = self.file.set_permissions(Permissions::from_mode(0o444));
        Ok(read_only)
    }

    /// Maps the entire file writable, at an address that the kernel chooses. A forked child does not inherit the mapping.
    pub(crate) fn map_writable(&self) -> io::Result<MmapRaw> {
        let view = MmapOptions::new().len(self.size_bytes as usize).map_raw(&self.file)?;
        view.advise(Advice::DontFork)?;
        Ok(view)
    }

    /// Writes bytes at an offset. A write touches no page of a mapping.
    pub(crate) fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    /// Returns the writable descriptor.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// A second writable descriptor.
    pub(crate) fn duplicate(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Returns both descriptors of a file for a forked child: the writable one, and the read-only one, from which the running
    /// view is mapped.
    pub(crate) fn into_descriptors(self, is_read_only: bool) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
        let read_only = is_read_only.then(|| self.reopen_read_only()).transpose()?;
        Ok((self.file.into(), read_only.map(OwnedFd::from)))
    }
}

/// The contents of a fixed mapping.
pub(crate) enum FixedPages<'a> {
    /// Pages of a file, shared.
    Shared {
        /// The file.
        file: &'a File,
        /// The offset of the first page in the file, in bytes.
        offset: u64,
        /// Whether the pages are executable. They are readable in any case, and never writable.
        executable: bool,
    },
    /// All pages of a file, shared, readable and writable.
    #[cfg(feature = "executor")]
    SharedWritable {
        /// The file.
        file: &'a File,
    },
    /// Private zeroes, readable and writable.
    PrivateZero,
    /// No access: every access faults.
    Guard,
}

/// Replaces the mapping of a range.
///
/// # Safety
/// - `[address, address + size_bytes)` is address space that the caller owns, and no one uses it during the call.
/// - `address` and `size_bytes` are multiples of the page size.
pub(crate) unsafe fn map_fixed(address: *mut u8, size_bytes: usize, pages: FixedPages<'_>) -> io::Result<()> {
    let is_zero = matches!(pages, FixedPages::PrivateZero);
    let (protection, flags, descriptor, offset) = match pages {
        FixedPages::Shared { file, offset, executable } => {
            let execute = if executable { libc::PROT_EXEC } else { 0 };
            (libc::PROT_READ | execute, libc::MAP_SHARED, file.as_raw_fd(), offset)
        }
        #[cfg(feature = "executor")]
        FixedPages::SharedWritable { file } => {
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0)
        }
        FixedPages::PrivateZero => {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            (libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        }
        FixedPages::Guard => (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0),
    };
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: O1 - the first clause of `# Safety`: the caller owns the range that `MAP_FIXED` replaces, and no one uses it.
    // O7 - `file` is borrowed, so its descriptor is open.
    let mapped =
        unsafe { libc::mmap(address.cast(), size_bytes, protection, flags | libc::MAP_FIXED, descriptor, offset) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    if is_zero && page_size() > MIN_PAGE_SIZE {
        // A huge page has 2 MiB on kernels with the smallest pages, and 32 MiB or more on others. It would back much memory that a
        // pool does not use, and that a purge does not know. A kernel without huge pages refuses the advice.
        // SAFETY: O1 - the caller owns the pages, which were mapped above. The advice changes no byte.
        unsafe { libc::madvise(address.cast(), size_bytes, libc::MADV_NOHUGEPAGE) };
    }
    Ok(())
}

/// The protection of pages. Writable and executable at once is not possible.
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

/// Changes the protection of pages.
///
/// # Safety
/// - `[address, address + size_bytes)` are full pages of a mapping that the caller owns.
/// - From the call on, no one uses them in a way that `protection` forbids.
pub(crate) unsafe fn protect(address: *mut u8, size_bytes: usize, protection: Protection) -> io::Result<()> {
    // SAFETY: O1 - the first clause of `# Safety`: the caller owns the pages. The call changes no byte; the second clause
    // excludes an access that would fault.
    let changed = unsafe { libc::mprotect(address.cast(), size_bytes, protection.bits()) };
    if changed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An owned range of address space without access. The drop unmaps the range, with everything that was mapped over it.
pub(crate) struct Reservation {
    address: *mut u8,
    size_bytes: usize,
}

// SAFETY: O1 - the value owns a range of address space, which has no tie to a thread: any thread may unmap it.
unsafe impl Send for Reservation {}
// SAFETY: O1 - `&self` only returns the address; no method accesses a byte of the range.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves address space: at `preferred` if nothing is mapped there, otherwise at an address that the kernel chooses.
    pub(crate) fn new(preferred: u64, size_bytes: usize) -> io::Result<Reservation> {
        let address = reserve(preferred, size_bytes, 0)?;
        Ok(Reservation { address, size_bytes })
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: O1 - `self` owns the range. A value that mapped something over it owns `self`, too, and drops it last.
        unsafe { libc::munmap(self.address.cast(), self.size_bytes) };
    }
}

/// Whether nothing is mapped in a range at this moment. Another thread may map something there at any time.
pub(crate) fn is_free(address: u64, size_bytes: usize) -> bool {
    let Ok(reserved) = reserve(address, size_bytes, libc::MAP_FIXED_NOREPLACE) else { return false };
    // Kernels before 4.17 ignore the flag and take the address as a hint.
    let is_at_address = reserved as u64 == address;
    drop(Reservation { address: reserved, size_bytes });
    is_at_address
}

fn reserve(preferred: u64, size_bytes: usize, more_flags: libc::c_int) -> io::Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | more_flags;
    // SAFETY: O1 - without `MAP_FIXED` the address is a hint, and with `MAP_FIXED_NOREPLACE` the kernel refuses a range that
    // is in use. So the call replaces nothing.
    let mapped = unsafe { libc::mmap(preferred as *mut _, size_bytes, libc::PROT_NONE, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapped.cast()) }
}

/// The kind of pages that are purged.
pub(crate) enum PageKind {
    /// Pages of a shared file. They are removed from the file.
    Shared,
    /// Private anonymous pages.
    Private,
}

/// Returns the memory of pages to the kernel. They stay mapped and read as zero afterwards. Shared pages must be writable, or
/// the kernel refuses.
///
/// # Safety
/// - `[address, address + size_bytes)` are full pages of a mapping of that kind, which the caller owns.
/// - No one uses their contents any more.
pub(crate) unsafe fn purge_pages(address: *mut u8, size_bytes: usize, kind: PageKind) -> io::Result<()> {
    let advice = match kind {
        PageKind::Shared => libc::MADV_REMOVE,
        PageKind::Private => libc::MADV_DONTNEED,
    };
    // SAFETY: O1 - the first clause of `# Safety`: the caller owns the pages that are cleared. The second: no one reads their
    // contents.
    let advised = unsafe { libc::madvise(address.cast(), size_bytes, advice) };
    if advised == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Populates pages that are about to be written, in one system call instead of a page fault for each. Their contents stay.
/// Older kernels do not support it, so a failure is ignored.
pub(crate) fn populate(pages: &MmapRaw, offset: usize, size_bytes: usize) {
    let _ = pages.advise_range(Advice::PopulateWrite, offset, size_bytes);
}

/// Creates a memfd. Newer kernels require a flag that says whether it may be executed; older ones refuse the flag. With
/// `vm.memfd_noexec`, no memfd may be run as a program, but it can still be mapped executable.
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
    // SAFETY: O7 - the descriptor was created just above, so no other owner exists. The `File` becomes its owner and closes
    // it once.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Checks a file size against RLIMIT_FSIZE. Beyond the limit, `ftruncate` and `write` do not fail: the kernel sends SIGXFSZ,
/// which kills the process.
pub(super) fn check_file_size_limit(size_bytes: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: O2 - the kernel writes one `rlimit` to `limit`, which is local.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    if result == 0 && size_bytes > limit.rlim_cur {
        return Err(io::Error::other(format!("RLIMIT_FSIZE allows files of {} bytes only", limit.rlim_cur)));
    }
    Ok(())
}
