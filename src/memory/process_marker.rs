//! [`ProcessMarker`]: tells a forked child from its parent.
//!
//! The kernel clears the page of the marker in a child (`MADV_WIPEONFORK`). The process id is not enough, because a
//! child in a new PID namespace may have the id of its parent. So the id is used only if the kernel refuses the page.

use crate::os::PrivatePages;

/// A marker that is set in one process, and not in the children that the process forks later.
pub(super) struct ProcessMarker {
    /// The first byte is 1 if the marker is set.
    page: Option<PrivatePages>,
    /// The process that has set the marker.
    process: u32,
}

impl ProcessMarker {
    /// A marker without a page.
    pub(super) const fn new() -> ProcessMarker {
        ProcessMarker { page: None, process: 0 }
    }

    /// Maps the page, once.
    pub(super) fn prepare(&mut self) {
        if self.page.is_none() {
            let page = PrivatePages::map(1, 1).and_then(|mut page| page.clear_in_children().map(|()| page));
            self.page = page.ok();
        }
    }

    /// Sets the marker in this process. Neither allocates nor locks.
    pub(super) fn set(&mut self) {
        self.process = std::process::id();
        if let Some(page) = &mut self.page {
            page.bytes()[0] = 1;
        }
    }

    /// Whether this process has set the marker.
    pub(super) fn is_set(&mut self) -> bool {
        match &mut self.page {
            Some(page) => page.bytes()[0] == 1,
            None => self.process == std::process::id(),
        }
    }
}
