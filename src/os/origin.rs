//! [`OriginProcess`]: tells a process from the children that it forks.
//!
//! The kernel clears a page in a child (`MADV_WIPEONFORK`), so the question needs no system call. The process id is not enough,
//! because a child in a new PID namespace may have the id of its parent. It is used only if the kernel refuses the page.

use crate::os::PrivatePages;

/// The process that made this value.
pub(crate) struct OriginProcess {
    /// Its first byte is 1 in that process.
    page: Option<PrivatePages>,
    id: u32,
}

impl OriginProcess {
    /// This process.
    pub(crate) fn new() -> OriginProcess {
        let page = PrivatePages::map(1, 1).and_then(|mut page| {
            page.clear_in_children()?;
            page.bytes()[0] = 1;
            page.seal().map(|()| page)
        });
        OriginProcess { page: page.ok(), id: std::process::id() }
    }

    /// Whether this is that process.
    pub(crate) fn is_this(&self) -> bool {
        match &self.page {
            Some(page) => page.sealed_byte() == 1,
            None => self.id == std::process::id(),
        }
    }
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_forked_child_is_another_process_by_its_page_and_by_its_id() {
        let by_page = OriginProcess::new();
        let by_id = OriginProcess { page: None, id: std::process::id() };
        assert!(by_page.page.is_some() && by_page.is_this() && by_id.is_this());
        // SAFETY: O9 - the child calls functions that are safe there, and `_exit`.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(by_page.is_this()) + 2 * i32::from(by_id.is_this()));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        assert_eq!(status, 0, "the child takes itself for its parent");
    }
}
