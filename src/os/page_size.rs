//! [`page_size`]: the size of the kernel's pages, which the process learns when it runs.

use crate::arch::{MIN_PAGE_SIZE, PAGES_VARY};
use crate::sync::{MappedU32, Ordering};

/// Bytes of a page of this process's kernel, a power of two. A constant where all kernels of the architecture have the same pages.
#[inline]
pub(crate) fn page_size() -> u64 {
    if PAGES_VARY { kernel_page_size() } else { MIN_PAGE_SIZE }
}

/// As [`page_size`], which the process learns once.
#[inline]
fn kernel_page_size() -> u64 {
    // Zero until a thread has asked. Relaxed: every thread gets the same answer.
    static SIZE: MappedU32 = MappedU32::new(0);
    match SIZE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: O9 - it takes no pointer.
            let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            SIZE.store(size as u32, Ordering::Relaxed);
            size as u64
        }
        size => u64::from(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::MAX_PAGE_SIZE;

    #[cfg_attr(miri, ignore = "asks the kernel")]
    #[test]
    fn the_size_of_a_page_is_that_of_the_kernel() {
        // SAFETY: O9 - it reads what the kernel told the process at its start.
        let told = unsafe { libc::getauxval(libc::AT_PAGESZ) };
        assert_eq!([page_size(), kernel_page_size(), kernel_page_size()], [told; 3]);
        assert!((MIN_PAGE_SIZE..=MAX_PAGE_SIZE).contains(&told));
    }
}
