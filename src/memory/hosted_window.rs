//! [`HostedWindow`]: a window that runs in this process and is filled by another one (`peer_mapper.rs`).
//!
//! The loader opens a small file of this process, which reserves the range and makes it known to the unwinder, as for a window
//! of this process (`loaded_window.rs`). Then the pools of the other process are mapped over it.

use std::cell::Cell;
use std::fs::File;
use std::ops::Range;

use memmap2::MmapRaw;

use crate::arch::{Arch, FETCHES_EARLY, flush_code};
use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::dual_mapper::replace_loader_pages;
use crate::memory::layout::{WindowLayout, complete_pages};
use crate::memory::loaded_window::{LoadedWindow, load_descriptor, new_nonce, place, reserve_unregistered};
use crate::memory::mapper::Placement;
use crate::memory::peer_mapper::PeerPlace;
use crate::memory::slab_pool::check_page_size;
use crate::memory::window_image::{SMALL_FILE_DYNAMIC_OFFSET, WindowImage, table_pages};
use crate::memory::working_view::refused;
use crate::os::{FixedPages, PageKind, SharedFile, map_fixed, page_size, purge_pages};
use crate::sync::{MappedU64, Ordering};

/// A reserved or mapped window. It is unmapped when this is dropped: no code in it may run any more.
pub(crate) struct HostedWindow {
    window: LoadedWindow,
    layout: WindowLayout,
    /// The file that the loader opened stays open, so that its inode is not used again.
    _header: File,
    is_mapped: bool,
    /// Where this process writes its own files: everything before the data pool, and the data pool.
    views: Option<[MmapRaw; 2]>,
}

impl HostedWindow {
    /// Reserves a window. The number of the place is not set.
    ///
    /// # Errors
    /// What the kernel refused, or that its pages are too large.
    pub(crate) fn reserve(
        layout: &WindowLayout,
        placement: Placement,
    ) -> Result<(HostedWindow, PeerPlace), MemoryFault> {
        check_page_size(page_size())?;
        let header = SharedFile::create(c"jittison", SMALL_FILE_DYNAMIC_OFFSET + page_size())
            .map_err(refused("memfd_create of the header"))?;
        let file = header.duplicate().map_err(refused("duplicating a descriptor"))?;
        let (nonce, used) = (new_nonce(), Cell::new(0));
        let window = place(layout, placement, |preferred| {
            used.set(preferred);
            let image = WindowImage::new(Arch::NATIVE, layout, preferred, SMALL_FILE_DYNAMIC_OFFSET, nonce);
            for (offset, bytes) in image.parts(SMALL_FILE_DYNAMIC_OFFSET) {
                header.write_at(offset, bytes).map_err(refused("writing the header"))?;
            }
            load_descriptor(&file, nonce).or_else(|reason| reserve_unregistered(layout, preferred, reason))
        })?;
        let place =
            PeerPlace { window: 0, base: window.base, preferred: used.get(), nonce, is_loaded: window.is_loaded() };
        Ok((HostedWindow { window, layout: *layout, _header: file, is_mapped: false, views: None }, place))
    }

    /// Maps files of this process over the range, into which [`write`](Self::write) writes.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub(crate) fn map_own(&mut self) -> Result<(), MemoryFault> {
        let code =
            SharedFile::create(c"jittison", self.layout.file_size()).map_err(refused("memfd_create of the window"))?;
        let data = SharedFile::create_fixed(c"jittison data", self.layout.pool(SegmentKind::Data).size)
            .map_err(refused("memfd_create of the data pool"))?;
        let views = [
            code.map_writable().map_err(refused("mapping the window"))?,
            data.map_writable().map_err(refused("mapping the data pool"))?,
        ];
        let read_only = code.reopen_read_only().map_err(refused("reopening the window read-only"))?;
        self.map(&read_only, &data.into_file())?;
        self.views = Some(views);
        Ok(())
    }

    /// Writes bytes that the other process has linked. `offset` counts from the start of the window. Words at addresses that are multiples of
    /// eight are stored as atomics, because code and unwinders may read slots meanwhile. The caches of instructions have the bytes afterwards.
    /// When the code of a link is complete, the caller calls `synchronize_processors`.
    ///
    /// # Errors
    /// The window has no files of this process, or the range is not in one pool.
    ///
    /// # Safety
    /// The bytes belong to what the other process links, or are words that it alone changes.
    pub(crate) unsafe fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let start = self.view(offset, bytes.len() as u64)?;
        let words = if start.addr().is_multiple_of(8) { bytes.len() / 8 } else { 0 };
        let (whole, rest) = bytes.split_at(words * 8);
        for (index, word) in whole.chunks_exact(8).enumerate() {
            let value = u64::from_ne_bytes(word.try_into().expect("a chunk has eight bytes"));
            // SAFETY: M6 - `view` has checked the range, and the word is aligned. M1 - by contract.
            // Pairs with the load of a stub, if the word is its slot.
            unsafe { &*start.cast::<MappedU64>().add(index) }.store(value, Ordering::Release);
        }
        // SAFETY: M6 - as above. M1 - by contract, nobody uses these bytes.
        unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), start.add(whole.len()), rest.len()) };
        // SAFETY: M6 - `view` has checked the range, which begins at `start`.
        unsafe { self.flush(start, offset, bytes.len() as u64) };
        Ok(())
    }

    /// Makes what was written into a range visible to instruction fetches, if it is code.
    ///
    /// # Safety
    /// The range is in one pool, and `start` is where this process writes it.
    unsafe fn flush(&self, start: *const u8, offset: u64, size: u64) {
        let code = self.layout.pool(SegmentKind::Code);
        let end = (offset + size).min(code.offset + code.size);
        if FETCHES_EARLY && offset >= code.offset && offset < end {
            let running = address_of(self.window.base, offset);
            // SAFETY: M6 - the range is in the code pool, which is mapped at both addresses.
            unsafe { flush_code(start, running, (end - offset) as usize) };
        }
    }

    /// As [`write`](Self::write), for zeroes. Complete pages return to the kernel, which maintains the caches of those that it maps instead.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// # Safety
    /// As [`write`](Self::write).
    pub(crate) unsafe fn zero(&self, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let start = self.view(offset, size)?;
        // The range may consist of smaller pages: those of the other process.
        let Range { start: first, end } = complete_pages(offset, size, page_size());
        // SAFETY: M6 - `view` has checked the range. M1 - by contract.
        unsafe { std::ptr::write_bytes(start, 0, (first - offset) as usize) };
        if first < end {
            let pages = start.wrapping_add((first - offset) as usize);
            // SAFETY: M6 - complete pages of the range. M1 - by contract.
            unsafe { purge_pages(pages, (end - first) as usize, PageKind::Shared) }
                .map_err(refused("returning pages"))?;
        }
        let (after, after_size) = (start.wrapping_add((end - offset) as usize), offset + size - end);
        // SAFETY: M6, M1 - as above.
        unsafe { std::ptr::write_bytes(after, 0, after_size as usize) };
        // On AArch64 this may be the filler of freed code.
        // SAFETY: M6 - as above.
        unsafe { self.flush(start, offset, first - offset) };
        // SAFETY: M6 - as above.
        unsafe { self.flush(after, end, after_size) };
        Ok(())
    }

    /// Whether an offset is in the code pool.
    pub(crate) fn is_code(&self, offset: u64) -> bool {
        let code = self.layout.pool(SegmentKind::Code);
        (code.offset..code.offset + code.size).contains(&offset)
    }

    /// Where this process writes a range.
    fn view(&self, offset: u64, size: u64) -> Result<*mut u8, MemoryFault> {
        let data = self.layout.pool(SegmentKind::Data);
        let is_in = |start: u64, length: u64| {
            offset.checked_sub(start).is_some_and(|at| at.checked_add(size).is_some_and(|end| end <= length))
        };
        match &self.views {
            Some([code, _]) if is_in(0, self.layout.file_size()) => Ok(code.as_mut_ptr().wrapping_add(offset as usize)),
            Some([_, view]) if is_in(data.offset, data.size) => {
                Ok(view.as_mut_ptr().wrapping_add((offset - data.offset) as usize))
            }
            Some(_) => Err(MemoryFault::BadWindow { problem: "a range is not in one of its files" }),
            None => Err(MemoryFault::BadWindow { problem: "its files belong to another process" }),
        }
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

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    fn read(address: u64, size: usize) -> Vec<u8> {
        // SAFETY: M6 - the tests read what they have mapped.
        unsafe { std::slice::from_raw_parts(address as *const u8, size) }.to_vec()
    }

    #[test]
    fn what_is_written_into_a_window_of_its_own_is_at_its_base() {
        let layout = WindowLayout::divide(64 << 20).unwrap();
        let (mut window, place) = HostedWindow::reserve(&layout, Placement::Anywhere).unwrap();
        // SAFETY: M1 - the window is refused.
        assert!(unsafe { window.write(0, &[1]) }.is_err(), "it has no files yet");
        window.map_own().unwrap();
        assert!(window.map_own().is_err(), "it is mapped already");
        for pool in SegmentKind::ALL {
            let range = layout.pool(pool);
            let at = |offset: u64| place.base.value() + offset;
            // SAFETY: M1 - nobody uses the window.
            unsafe {
                window.write(range.offset, &[5; 20_000]).unwrap();
                window.write(range.offset + 3, &[1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
                window.write(range.offset + range.size - 1, &[6]).unwrap();
                // Over the edges of pages, and inside of one.
                window.zero(range.offset + 4000, 8300).unwrap();
                window.zero(range.offset + 16_001, 5).unwrap();
            }
            assert_eq!(read(at(range.offset), 13), [5, 5, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 5]);
            let found = read(at(range.offset), 20_000);
            assert!(found[4000..12_300].iter().all(|byte| *byte == 0) && found[16_001..16_006] == [0; 5]);
            assert_eq!((found[3999], found[12_300], found[16_000], found[16_006]), (5, 5, 5, 5));
            assert_eq!(read(at(range.offset + range.size - 1), 1), [6]);
        }
        let data = layout.pool(SegmentKind::Data);
        for (offset, size) in [
            (layout.file_size() - 1, 2),
            (layout.file_size(), 1),
            (data.offset - 1, 2),
            (data.offset + data.size - 1, 2),
            (u64::MAX, 2),
        ] {
            // SAFETY: M6 - the ranges are refused.
            let refused = unsafe { [window.write(offset, &vec![0; size as usize]), window.zero(offset, size)] };
            assert!(refused.iter().all(Result::is_err), "{offset:#x}");
        }
    }
}
