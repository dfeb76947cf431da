//! [`HostedWindow`]: a window that runs in this process and is filled by another one (`peer_mapper.rs`).
//!
//! The loader opens a small file of this process, which reserves the range and makes it known to the unwinder, as for a window
//! of this process (`loaded_window.rs`). Then the pools of the other process are mapped over it.

use std::cell::Cell;
use std::fs::File;

use crate::arch::PAGE_SIZE;
use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::dual_mapper::replace_loader_pages;
use crate::memory::layout::WindowLayout;
use crate::memory::loaded_window::{LoadedWindow, load_descriptor, new_nonce, place, reserve_unregistered};
use crate::memory::mapper::Placement;
use crate::memory::peer_mapper::PeerPlace;
use crate::memory::window_image::{SMALL_FILE_DYNAMIC_OFFSET, WindowImage, table_pages};
use crate::memory::working_view::refused;
use crate::os::{FixedPages, SharedFile, map_fixed};

/// A reserved or mapped window. It is unmapped when this is dropped: no code in it may run any more.
pub(crate) struct HostedWindow {
    window: LoadedWindow,
    layout: WindowLayout,
    /// The file that the loader opened stays open, so that its inode is not used again.
    _header: File,
    is_mapped: bool,
}

impl HostedWindow {
    /// Reserves a window. The number of the place is not set.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(crate) fn reserve(
        layout: &WindowLayout,
        placement: Placement,
    ) -> Result<(HostedWindow, PeerPlace), MemoryFault> {
        let header = SharedFile::create(c"jittison", SMALL_FILE_DYNAMIC_OFFSET + PAGE_SIZE)
            .map_err(refused("memfd_create of the header"))?;
        let file = header.duplicate().map_err(refused("duplicating a descriptor"))?;
        let (nonce, used) = (new_nonce(), Cell::new(0));
        let window = place(layout, placement, |preferred| {
            used.set(preferred);
            let image = WindowImage::new(layout, preferred, SMALL_FILE_DYNAMIC_OFFSET, nonce);
            header.write_at(0, &image.small_file()).map_err(refused("writing the header"))?;
            load_descriptor(&file, nonce).or_else(|reason| reserve_unregistered(layout, preferred, reason))
        })?;
        let place =
            PeerPlace { window: 0, base: window.base, preferred: used.get(), nonce, is_loaded: window.is_loaded() };
        Ok((HostedWindow { window, layout: *layout, _header: file, is_mapped: false }, place))
    }

    /// Maps the files of the other process over the range: `code` with everything before the data pool, and `data`.
    ///
    /// # Errors
    /// A file is too short, or it was mapped before, or what the kernel refused. The window is of no use then.
    pub(crate) fn map(&mut self, code: &File, data: &File) -> Result<(), MemoryFault> {
        let (layout, base) = (self.layout, self.window.base);
        if std::mem::replace(&mut self.is_mapped, true) {
            return Err(MemoryFault::BadWindow { problem: "it is mapped already" });
        }
        // Behind the end of a file, every access would fault.
        let is_long = |file: &File, size| file.metadata().is_ok_and(|metadata| metadata.len() >= size);
        let [code_pool, constants, data_pool] = SegmentKind::ALL.map(|pool| layout.pool(pool));
        if !is_long(code, layout.file_size()) || !is_long(data, data_pool.size) {
            return Err(MemoryFault::BadWindow { problem: "a file of it is too short" });
        }
        if self.window.is_loaded() {
            // SAFETY: M1 - `is_mapped` was false, so nothing is in the window. M4 - the loader mapped it, and
            // `window` keeps it mapped.
            unsafe { replace_loader_pages(base.value(), &layout) }?;
        }
        let readable = layout.readable_code();
        debug_assert!(readable.offset + readable.size == code_pool.offset + code_pool.size);
        let shared = |offset, executable| FixedPages::Shared { file: code, offset, executable };
        let views = [
            (0, table_pages(&layout), shared(0, false), "mapping the frame table"),
            (readable.offset, readable.size, shared(readable.offset, true), "mapping the code pool"),
            (constants.offset, constants.size, shared(constants.offset, false), "mapping constants"),
            (data_pool.offset, data_pool.size, FixedPages::SharedWritable { file: data }, "mapping the data pool"),
        ];
        for (offset, size, pages, step) in views {
            let address = address_of(base, offset);
            // SAFETY: M1 - the window has reserved the range of its layout, and nothing is in it. An unwinder may read the
            // header during the call: the other process wrote the same bytes into its file.
            unsafe { map_fixed(address, size as usize, pages) }.map_err(refused(step))?;
        }
        Ok(())
    }
}

fn address_of(base: ExecutorAddr, offset: u64) -> *mut u8 {
    base.offset(offset).value() as *mut u8
}
