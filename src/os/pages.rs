//! [`PrivatePages`]: pages of this process alone, mapped for one owner and unmapped with it.

use std::io;

use crate::os::vm::{PageKind, Protection, give_back, protect};

/// Whole pages, readable; writable until they are sealed; never executable. A forked child has a copy.
pub(crate) struct PrivatePages {
    address: *mut u8,
    size_bytes: usize,
    is_sealed: bool,
}

// SAFETY: O1 - an owned mapping, whose bytes are lent out by `&mut self` only.
unsafe impl Send for PrivatePages {}
// SAFETY: O1 - as above; `&self` reads no byte of it.
unsafe impl Sync for PrivatePages {}

impl PrivatePages {
    /// Maps zeroes: `size_bytes`, rounded up to pages, at a multiple of `align`, which is a power of two.
    pub(crate) fn map(size_bytes: usize, align: usize) -> io::Result<PrivatePages> {
        let no_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
        let held = size_bytes.checked_next_multiple_of(PAGE).ok_or_else(no_memory)?;
        let slack = align.saturating_sub(PAGE);
        let length = held.checked_add(slack).ok_or_else(no_memory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: O1 - replaces nothing: the kernel chooses the address.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let whole: *mut u8 = mapped.cast();
        let before = (whole as usize).next_multiple_of(align.max(PAGE)) - whole as usize;
        let address = whole.wrapping_add(before);
        // What is too much for the alignment goes back at once.
        for (start, size) in [(whole, before), (address.wrapping_add(held), slack - before)] {
            // SAFETY: O1 - the first and the last pages of what was mapped above, which nobody has seen.
            unsafe { unmap(start, size) };
        }
        Ok(PrivatePages { address, size_bytes: held, is_sealed: false })
    }

    /// The first byte's address.
    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }

    /// Bytes that are mapped.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// All bytes, before they are sealed or anything else is told of them.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        assert!(!self.is_sealed, "sealed pages are not written");
        // SAFETY: O1 - mapped, readable and writable, of this size, for as long as `self`, and borrowed with it.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.size_bytes) }
    }

    /// Puts the pages in the place of whatever is at `address`, in one step: whoever reads there sees the bytes from before or
    /// these, and never anything else.
    ///
    /// # Errors
    /// What the system says; then nothing was moved.
    ///
    /// # Safety
    /// As many bytes at `address`, which is a multiple of pages, are the caller's to replace (O1), and stay its own.
    pub(crate) unsafe fn move_to(self, address: *mut u8) -> io::Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: O1 - this mapping's own pages, moved over what the caller owns.
        let moved = unsafe { libc::mremap(self.address.cast(), self.size_bytes, self.size_bytes, flags, address) };
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(self);
        Ok(())
    }

    /// Makes the pages readable only, for good.
    pub(crate) fn seal(&mut self) -> io::Result<()> {
        // SAFETY: O1 - the pages of this mapping, to which nobody has a reference by `&mut self`.
        unsafe { protect(self.address, self.size_bytes, Protection::Read) }?;
        self.is_sealed = true;
        Ok(())
    }
}

impl Drop for PrivatePages {
    fn drop(&mut self) {
        // SAFETY: O1 - this mapping's own pages, which go with their owner.
        unsafe { unmap(self.address, self.size_bytes) };
    }
}

/// Unmaps pages. Where the kernel cannot, because it has merged them with neighbours and has no mapping left to split
/// them off with, at least their memory goes.
///
/// # Safety
/// `[address, address + size_bytes)` are whole private pages that the caller owns, and nobody uses them any more.
unsafe fn unmap(address: *mut u8, size_bytes: usize) {
    // SAFETY: O1 - by contract.
    if size_bytes > 0 && unsafe { libc::munmap(address.cast(), size_bytes) } != 0 {
        // SAFETY: O1 - by contract.
        let _ = unsafe { give_back(address, size_bytes, PageKind::Private) };
    }
}

/// The page size of the only architecture there is so far.
const PAGE: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_aligned_as_asked_and_no_more_than_needed() {
        for align in [1, 4096, 1 << 16, 1 << 21] {
            let mut pages = PrivatePages::map(10_000, align).unwrap();
            assert!(pages.address().is_multiple_of(align as u64));
            assert_eq!((pages.size_bytes(), pages.bytes().len()), (12_288, 12_288));
            assert!(pages.bytes().iter().all(|byte| *byte == 0));
            pages.bytes().fill(7);
            pages.seal().unwrap();
        }
    }

    #[test]
    fn a_size_that_no_address_space_has_is_refused() {
        assert!(PrivatePages::map(usize::MAX, 1).is_err());
        assert!(PrivatePages::map(1 << 62, 1 << 62).is_err());
    }
}
