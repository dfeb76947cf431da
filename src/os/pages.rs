//! [`PrivatePages`]: a private anonymous mapping, which is unmapped when it is dropped.
//!
//! The pages are readable and writable. [`PrivatePages::seal`] makes them read-only for good, and [`PrivatePages::move_to`]
//! moves them over another mapping in one step. They are never executable.

use std::io;

use crate::os::page_size::page_size;
use crate::os::vm::{PageKind, Protection, protect, purge_pages};

/// An owned mapping of full pages. It is writable until it is sealed. A forked child has a copy, or cleared pages.
pub(crate) struct PrivatePages {
    address: *mut u8,
    size_bytes: usize,
    is_sealed: bool,
}

// SAFETY: O1 - the value owns its mapping, and a mapping has no tie to a thread: any thread may access and unmap it.
unsafe impl Send for PrivatePages {}
// SAFETY: O1 - no method with `&self` writes a byte of the mapping, and the one that reads wants it sealed. Only `&mut self` lends
// the bytes.
unsafe impl Sync for PrivatePages {}

impl PrivatePages {
    /// Maps `size_bytes` zeroes, rounded up to full pages, at a multiple of `align`, which is a power of two.
    pub(crate) fn map(size_bytes: usize, align: usize) -> io::Result<PrivatePages> {
        let no_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
        let page = page_size() as usize;
        let rounded = size_bytes.checked_next_multiple_of(page).ok_or_else(no_memory)?;
        let slack = align.saturating_sub(page);
        let length = rounded.checked_add(slack).ok_or_else(no_memory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: O1 - without `MAP_FIXED`, the kernel chooses the address and replaces nothing.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start: *mut u8 = mapped.cast();
        let before = (start as usize).next_multiple_of(align.max(page)) - start as usize;
        let address = start.wrapping_add(before);
        // Unmap the pages before and after the aligned range.
        for (start, size) in [(start, before), (address.wrapping_add(rounded), slack - before)] {
            // SAFETY: O1 - both ranges are full pages of the mapping made above, outside of the range that `self` will own.
            // No one has their address.
            unsafe { unmap(start, size) };
        }
        Ok(PrivatePages { address, size_bytes: rounded, is_sealed: false })
    }

    /// The address of the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }

    /// The size of the mapping in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Returns all bytes for writing.
    ///
    /// # Panics
    /// If the pages are sealed.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        assert!(!self.is_sealed, "the pages are sealed, and cannot be written");
        // SAFETY: O1 - `self` owns the mapping, which has this size and is readable and, by the assertion, writable. The
        // borrow of `self` keeps it mapped and excludes other references. Its bytes are zeroes or were written.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.size_bytes) }
    }

    /// Moves the pages over the mapping at `address` in one step: a concurrent reader sees either the old bytes or the new
    /// ones.
    ///
    /// # Errors
    /// The text of the system. Nothing was moved then.
    ///
    /// # Safety
    /// - The caller owns the range of this size at `address` and may replace it (O1). It owns the pages from then on.
    /// - `address` is a multiple of the page size.
    pub(crate) unsafe fn move_to(self, address: *mut u8) -> io::Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: O1 - `self` owns the source range and is consumed. The first clause of `# Safety`: the caller owns the
        // target range.
        let moved = unsafe { libc::mremap(self.address.cast(), self.size_bytes, self.size_bytes, flags, address) };
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(self);
        Ok(())
    }

    /// Makes the kernel clear the pages in every child that this process or a child of it forks later (Linux 4.14).
    pub(crate) fn clear_in_children(&mut self) -> io::Result<()> {
        // SAFETY: O1 - `self` owns these full private pages. The advice changes no byte in this process.
        let advised = unsafe { libc::madvise(self.address.cast(), self.size_bytes, libc::MADV_WIPEONFORK) };
        if advised == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The first byte of sealed pages. It changes only by [`clear_in_children`](Self::clear_in_children), in a child.
    ///
    /// # Panics
    /// If the pages are not sealed.
    #[cfg(feature = "executor")]
    pub(crate) fn sealed_byte(&self) -> u8 {
        assert!(self.is_sealed, "the pages are not sealed, and may be written meanwhile");
        // SAFETY: O1 - `self` owns the mapping, which is readable. By the assertion nobody writes it. Volatile, because the kernel
        // may have cleared it in this process.
        unsafe { self.address.read_volatile() }
    }

    /// Makes the pages read-only for good.
    pub(crate) fn seal(&mut self) -> io::Result<()> {
        // SAFETY: O1 - `self` owns these full pages, and `&mut self` excludes a reference through which someone writes.
        unsafe { protect(self.address, self.size_bytes, Protection::Read) }?;
        self.is_sealed = true;
        Ok(())
    }
}

impl Drop for PrivatePages {
    fn drop(&mut self) {
        // SAFETY: O1 - `self` owns these full pages and is dropped, so no one uses them any more.
        unsafe { unmap(self.address, self.size_bytes) };
    }
}

/// Unmaps pages. The kernel refuses where it merged them with neighbouring pages and the process is at its limit of mappings,
/// so that it cannot split them. Then at least their memory is freed.
///
/// # Safety
/// `[address, address + size_bytes)` are full private pages that the caller owns, and that no one uses any more.
unsafe fn unmap(address: *mut u8, size_bytes: usize) {
    // SAFETY: O1 - the caller owns the pages, and no one uses them, by contract.
    if size_bytes > 0 && unsafe { libc::munmap(address.cast(), size_bytes) } != 0 {
        // SAFETY: O1 - as above: owned, unused, private, writable or sealed pages. The failed `munmap` changed nothing.
        let _ = unsafe { purge_pages(address, size_bytes, PageKind::Private) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_and_aligned_and_have_the_rounded_size() {
        for align in [1, 4096, 1 << 16, 1 << 21] {
            let mut pages = PrivatePages::map(10_000, align).unwrap();
            assert!(pages.address().is_multiple_of(align as u64));
            let size = 10_000_usize.next_multiple_of(page_size() as usize);
            assert_eq!((pages.size_bytes(), pages.bytes().len()), (size, size));
            assert!(pages.bytes().iter().all(|byte| *byte == 0));
            pages.bytes().fill(7);
            pages.seal().unwrap();
        }
    }

    #[test]
    fn a_size_beyond_the_address_space_is_refused() {
        assert!(PrivatePages::map(usize::MAX, 1).is_err());
        assert!(PrivatePages::map(1 << 62, 1 << 62).is_err());
    }
}
