//! [`CopyMapper`]: windows that run in another process, to which the bytes are sent.
//!
//! | what | this process | the peer |
//! |---|---|---|
//! | code, constants, header and frame table | private memory | files of its own (`hosted_window.rs`) |
//! | data | private memory, with what this process has written | the same, and what code there has written since |
//! | which memory is free | the pools | nothing |
//!
//! This process never reads what code there has written: the link writes data once, and after that only words that it alone changes
//! (the slots of stubs). It sends a range when the range is sealed, and other writes when the pools report them
//! ([`MappedWindow::changed`]). Pages of zeroes are sent as their number.
//!
//! The peer gets all of that before it runs code for this process (`executor/changes.rs`). A change of something that code may be
//! reading, such as a slot, is sent at once.
//!
//! # Forks
//! A forked child has a copy of the memory, and cannot link.

use memmap2::{MmapOptions, MmapRaw};

use crate::arch::{Arch, MIN_PAGE_SIZE};
use crate::base::{ExecutorAddr, SegmentKind};
use crate::error::MemoryFault;
use crate::memory::dual_mapper::no_link_in_child;
use crate::memory::layout::{FRAME_TABLE_OFFSET, WindowLayout, complete_pages};
use crate::memory::mapper::{MappedWindow, MemoryMapper, Placement};
use crate::memory::peer_mapper::{HoldsWindows, PeerPlace, Reserved, check_place};
use crate::memory::window_image::{SMALL_FILE_DYNAMIC_OFFSET, WindowImage};
use crate::memory::working_view::{WorkingView, check_range, refused};
use crate::os::{OriginProcess, PageKind, page_size, purge_pages};
use crate::sync::{Arc, MappedU32, MappedU64, Ordering};

/// The process in which windows run.
pub(crate) trait CopyPeer: HoldsWindows {
    /// The architecture of its code.
    fn arch(&self) -> Arch;

    /// Reserves a window, and maps files of the peer over it.
    ///
    /// # Errors
    /// What the peer refused, or that it has ended.
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<PeerPlace, MemoryFault>;

    /// Takes bytes that the peer must have before it runs code. `offset` counts from the start of the window.
    fn write(&self, window: u64, offset: u64, bytes: &[u8]);

    /// As [`write`](Self::write), for zeroes.
    fn zero(&self, window: u64, offset: u64, size: u64);

    /// Sends what was taken if it is much, so that this process does not hold two copies of all that it links.
    fn send_if_many(&self);

    /// Sends what was taken. Nothing is left to do if the peer has ended.
    fn send(&self);
}

/// Maps windows in the process behind a peer.
pub(crate) struct CopyMapper(pub(crate) Arc<dyn CopyPeer>);

impl MemoryMapper for CopyMapper {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        let reserved = Reserved { place: self.0.map_window(layout, placement)?, peer: self.0.clone() };
        let place = reserved.place;
        check_place(&place, layout)?;
        let private = |size: u64| MmapOptions::new().len(size as usize).no_reserve_swap().map_anon().map(MmapRaw::from);
        let code = private(layout.file_size()).map_err(refused("mapping memory for the window"))?;
        let data = private(layout.pool(SegmentKind::Data).size).map_err(refused("mapping memory for the data pool"))?;
        let image = WindowImage::new(self.0.arch(), layout, place.preferred, SMALL_FILE_DYNAMIC_OFFSET, place.nonce);
        assert!(image.header.len() <= code.len(), "the header is at the start of the window");
        // SAFETY: M6 - the header fits by the assertion. M1 - nobody else has the memory yet.
        unsafe { std::ptr::copy_nonoverlapping(image.header.as_ptr(), code.as_mut_ptr(), image.header.len()) };
        self.0.write(place.window, 0, &image.header);
        let code = WorkingView::new(code, layout);
        Ok(Arc::new(CopyWindow { code, data, layout: *layout, owner: OriginProcess::new(), reserved }))
    }
}

/// The memory of this process, and the window of the peer.
struct CopyWindow {
    code: WorkingView,
    data: MmapRaw,
    layout: WindowLayout,
    /// The process that made it.
    owner: OriginProcess,
    reserved: Reserved<dyn CopyPeer>,
}

// SAFETY: M4 - the memory is mapped while `self` lives, and its sizes are those of the layout. M1 - it is private memory for this
// window alone. The peer has the same bytes at its base before it runs code of them. M2 - nothing here is executable, and the peer maps
// code and constants read-only. Anonymous memory is zero until it is written, and after a purge.
unsafe impl MappedWindow for CopyWindow {
    fn layout(&self) -> &WindowLayout {
        &self.layout
    }

    fn base(&self) -> ExecutorAddr {
        self.reserved.place.base
    }

    fn working_view(&self, pool: SegmentKind) -> *mut u8 {
        match pool {
            SegmentKind::Data => self.data.as_mut_ptr(),
            SegmentKind::Code | SegmentKind::ReadOnly => self.code.pool(pool),
        }
    }

    fn frame_header(&self) -> Option<*mut u8> {
        self.reserved.place.is_loaded.then(|| self.code.frame_header())
    }

    fn data_header(&self) -> Option<*mut u64> {
        self.reserved.place.is_loaded.then(|| self.code.data_header())
    }

    unsafe fn open(&self, _pool: SegmentKind, _offset: u64, _size: u64) -> Result<(), MemoryFault> {
        if self.owner.is_this() { Ok(()) } else { Err(no_link_in_child()) }
    }

    unsafe fn seal(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        check_range(&self.layout, pool, offset, size);
        let start = self.working_view(pool).wrapping_add(offset as usize);
        // SAFETY: M6 - the range is in the pool by the check. M1 - it belongs to the caller, by contract.
        let bytes = unsafe { std::slice::from_raw_parts(start, size as usize) };
        self.send_later(self.layout.pool(pool).offset + offset, bytes);
        Ok(())
    }

    fn trap(&self) -> u8 {
        self.reserved.peer.arch().trap()
    }

    fn is_copied(&self) -> bool {
        true
    }

    fn changed(&self, offset: u64, size: u64) {
        let data = self.layout.pool(SegmentKind::Data);
        let start = match offset.checked_sub(data.offset) {
            Some(in_data) => {
                check_range(&self.layout, SegmentKind::Data, in_data, size);
                self.data.as_mut_ptr().wrapping_add(in_data as usize)
            }
            None => self.code.bytes(offset, size),
        };
        let is_of = |unit: usize| start.addr().is_multiple_of(unit) && (size as usize).is_multiple_of(unit);
        // Other threads may store into words meanwhile, and each of them reports its own store. A word is read at once, as it is stored.
        // Acquire pairs with the stores of `Word`: the code that a value leads to was given before the value.
        let read = || -> Vec<u8> {
            if is_of(8) {
                // SAFETY: M6 - the range is in a view by the checks above. M3 - what is not this caller's is stored as atomics only.
                let word = |index| unsafe { &*start.cast::<MappedU64>().add(index) }.load(Ordering::Acquire);
                (0..size as usize / 8).map(word).flat_map(u64::to_ne_bytes).collect()
            } else if is_of(4) {
                // SAFETY: M6, M3 - as above.
                let word = |index| unsafe { &*start.cast::<MappedU32>().add(index) }.load(Ordering::Acquire);
                (0..size as usize / 4).map(word).flat_map(u32::to_ne_bytes).collect()
            } else {
                // SAFETY: M6 - as above. M9 - bytes that are no words were written by this caller.
                unsafe { std::slice::from_raw_parts(start, size as usize) }.to_vec()
            }
        };
        // Between the reading and the giving, another thread may have stored and given a newer value, which the older one would replace.
        // Whoever gives an older value after a newer one reads the newer one here: the queue orders the second giving after the first.
        let mut bytes = read();
        loop {
            self.reserved.peer.write(self.reserved.place.window, offset, &bytes);
            let now = read();
            if now == bytes {
                return;
            }
            bytes = now;
        }
    }

    fn send_changes(&self) {
        self.reserved.peer.send();
    }

    fn wait_for_fork(&self) {
        self.reserved.peer.send_if_many();
    }

    fn description(&self) -> &'static str {
        match self.reserved.place.is_loaded {
            true => "in another process, to which the bytes are sent",
            false => "in another process, to which the bytes are sent; no exception can cross its code",
        }
    }

    unsafe fn purge_table(&self, size: u64) -> Result<(), MemoryFault> {
        // SAFETY: M5 - the caller fulfils the same contract.
        unsafe { self.code.purge_table(size, PageKind::Private) }?;
        // The peer clears the same bytes, whatever its pages are.
        let pages = complete_pages(FRAME_TABLE_OFFSET, size, page_size());
        if !pages.is_empty() {
            self.reserved.peer.zero(self.reserved.place.window, pages.start, pages.end - pages.start);
        }
        Ok(())
    }

    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        check_range(&self.layout, pool, offset, size);
        let pages = self.working_view(pool).wrapping_add(offset as usize);
        // SAFETY: M6 - the range is in the pool by the check, and consists of complete pages by contract. M1 - nobody
        // uses it, by contract.
        let purged = unsafe { purge_pages(pages, size as usize, PageKind::Private) };
        purged.map_err(refused(&format!("returning pages of the {} pool", pool.name())))?;
        self.reserved.peer.zero(self.reserved.place.window, self.layout.pool(pool).offset + offset, size);
        Ok(())
    }
}

impl CopyWindow {
    /// Gives a range to the peer, without the pages of zeroes.
    fn send_later(&self, offset: u64, bytes: &[u8]) {
        let (peer, window) = (&self.reserved.peer, self.reserved.place.window);
        let is_zero = |piece: &[u8]| piece.iter().all(|byte| *byte == 0);
        let mut start = 0;
        while start < bytes.len() {
            // The pieces end where pages of the window end.
            let end_of = |at: usize| (at + PIECE - (offset as usize + at) % PIECE).min(bytes.len());
            let zeroes = is_zero(&bytes[start..end_of(start)]);
            let mut end = end_of(start);
            while end < bytes.len() && is_zero(&bytes[end..end_of(end)]) == zeroes {
                end = end_of(end);
            }
            match zeroes {
                true => peer.zero(window, offset + start as u64, (end - start) as u64),
                false => peer.write(window, offset + start as u64, &bytes[start..end]),
            }
            start = end;
        }
    }
}

/// Bytes that are looked at as a whole. Each page of this process or the peer consists of such pieces.
const PIECE: usize = MIN_PAGE_SIZE as usize;

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::memory::layout::EMPTY_CIE_OFFSET;
    use crate::memory::plan::{SegmentPlan, SegmentRequest};
    use crate::memory::{Finalized, MemoryManager, SlabPool, SlabPoolOptions};
    use crate::sync::Mutex;

    const BASE: u64 = 1 << 40;

    /// A process that has what it was sent.
    struct Mirror(Mutex<Received>);

    #[derive(Default)]
    struct Received {
        arch: Arch,
        pages: BTreeMap<u64, Vec<u8>>,
        sent: usize,
        written: u64,
        windows: i64,
        /// Called by the next write, before it has an effect.
        before_write: Option<Box<dyn FnOnce() + Send>>,
    }

    impl Received {
        /// Calls `edit` for each part of a range that lies in one page.
        fn edit(&mut self, offset: u64, size: u64, mut edit: impl FnMut(&mut [u8], usize)) {
            let mut at = 0;
            while at < size {
                let (page, in_page) = ((offset + at) / MIN_PAGE_SIZE, ((offset + at) % MIN_PAGE_SIZE) as usize);
                let length = (PIECE - in_page).min((size - at) as usize);
                let page = self.pages.entry(page).or_insert_with(|| vec![0x55; PIECE]);
                edit(&mut page[in_page..in_page + length], at as usize);
                at += length as u64;
            }
        }

        fn bytes(&mut self, address: ExecutorAddr, size: u64) -> Vec<u8> {
            let mut bytes = vec![0; size as usize];
            let copy = |part: &mut [u8], at: usize| bytes[at..at + part.len()].copy_from_slice(part);
            self.edit(address.value() - BASE, size, copy);
            bytes
        }
    }

    impl Mirror {
        fn bytes(&self, address: ExecutorAddr, size: u64) -> Vec<u8> {
            self.0.lock().bytes(address, size)
        }

        /// Bytes that were written, and how often something was sent at once.
        fn counts(&self) -> (u64, usize) {
            let received = self.0.lock();
            (received.written, received.sent)
        }
    }

    impl CopyPeer for Mirror {
        fn arch(&self) -> Arch {
            self.0.lock().arch
        }

        fn map_window(&self, _: &WindowLayout, _: Placement) -> Result<PeerPlace, MemoryFault> {
            self.0.lock().windows += 1;
            Ok(PeerPlace { window: 7, base: ExecutorAddr::new(BASE), preferred: 0, nonce: 1, is_loaded: true })
        }

        fn write(&self, window: u64, offset: u64, bytes: &[u8]) {
            assert_eq!(window, 7);
            let interruption = self.0.lock().before_write.take();
            interruption.into_iter().for_each(|interrupt| interrupt());
            let mut received = self.0.lock();
            received.written += bytes.len() as u64;
            received.edit(offset, bytes.len() as u64, |part, at| part.copy_from_slice(&bytes[at..at + part.len()]));
        }

        fn zero(&self, _: u64, offset: u64, size: u64) {
            self.0.lock().edit(offset, size, |part, _| part.fill(0));
        }

        fn send_if_many(&self) {}

        fn send(&self) {
            self.0.lock().sent += 1;
        }
    }

    impl HoldsWindows for Mirror {
        fn release(&self, _: u64) {
            self.0.lock().windows -= 1;
        }
    }

    fn plan(code: u64, constants: u64, data: u64, zero_fill: u64) -> SegmentPlan {
        let request = |size, zero_fill| SegmentRequest { size, align: 16, zero_fill };
        SegmentPlan {
            segments: [request(code, 0), request(constants, 0), request(data + zero_fill, zero_fill)],
            ..SegmentPlan::default()
        }
    }

    /// Allocates, fills and finalizes. Returns the bytes of each segment, too.
    fn linked(pool: &SlabPool, plan: &SegmentPlan, fill: u8) -> (Box<dyn Finalized>, [Vec<u8>; 3]) {
        let mut memory = pool.allocate(plan).unwrap();
        let bytes = SegmentKind::ALL.map(|kind| {
            let zero_fill = plan.segment(kind).zero_fill as usize;
            let bytes = memory.working(kind);
            let given = bytes.len() - zero_fill;
            (0..).zip(&mut bytes[..given]).for_each(|(index, byte)| *byte = fill.wrapping_add((index % 7) as u8));
            bytes.to_vec()
        });
        (memory.finalize(Vec::new()).unwrap(), bytes)
    }

    fn assert_mirrored(mirror: &Mirror, memory: &dyn Finalized, bytes: &[Vec<u8>; 3]) {
        for kind in SegmentKind::ALL {
            let expected = &bytes[kind.index()];
            let found = mirror.bytes(memory.address(kind), expected.len() as u64);
            assert!(found == *expected, "{kind:?}");
        }
    }

    #[test]
    fn a_peer_has_every_byte_that_was_linked_and_every_word_that_was_stored() {
        let mirror = Arc::new(Mirror(Mutex::new(Received::default())));
        let pool = SlabPool::with_mapper(CopyMapper(mirror.clone()), SlabPoolOptions::default()).unwrap();
        let small = plan(100, 40, 24, 0);
        let (first, bytes) = linked(&pool, &small, 1);
        assert_mirrored(&mirror, &*first, &bytes);
        // Pages of zeroes are sent as their number.
        let before = mirror.counts().0;
        let (large, large_bytes) = linked(&pool, &plan(5000, 16, 100, 3 << 20), 2);
        assert_mirrored(&mirror, &*large, &large_bytes);
        assert!(mirror.counts().0 - before < 64 << 10);
        // A word is sent at once, and nothing else with it.
        assert!(first.is_copied());
        let (word, before) = (first.word(8).unwrap(), mirror.counts().0);
        assert_eq!(mirror.counts(), (before, 0));
        word.store(u64::MAX - 3, Ordering::Release);
        first.word_stored(word);
        let data = first.address(SegmentKind::Data);
        assert_eq!(mirror.bytes(data.offset(8), 8), (u64::MAX - 3).to_le_bytes());
        assert_eq!(mirror.counts(), (before + 8, 1));
        // Code has changed its data. A further write of this process leaves it.
        mirror.0.lock().edit(data.value() - BASE, 1, |part, _| part.fill(0x99));
        // SAFETY: M9 - no code uses the range.
        unsafe { first.write(SegmentKind::Data, 17, &[7, 8, 9]) }.unwrap();
        let found = mirror.bytes(data, 24);
        assert_eq!((found[0], &found[17..20], found[20]), (0x99, &[7, 8, 9][..], bytes[2][20]));
        // Memory that was used before is linked as it should be, whatever code has left there.
        drop((first, large));
        let (again, bytes) = linked(&pool, &plan(100, 40, 24, 5000), 3);
        assert_mirrored(&mirror, &*again, &bytes);
        drop(again);
        drop(pool);
        assert_eq!(mirror.0.lock().windows, 0);
    }

    #[test]
    fn the_header_and_the_filler_of_freed_code_are_for_the_processor_of_the_peer() {
        for arch in [Arch::X86_64, Arch::Aarch64] {
            let mirror = Arc::new(Mirror(Mutex::new(Received { arch, ..Received::default() })));
            let options = SlabPoolOptions { trap_freed_code: true, ..SlabPoolOptions::default() };
            let pool = SlabPool::with_mapper(CopyMapper(mirror.clone()), options).unwrap();
            let at = |offset: u64, size: u64| mirror.bytes(ExecutorAddr::new(BASE + offset), size);
            assert_eq!(at(18, 2), arch.e_machine().to_le_bytes());
            assert_eq!(at(EMPTY_CIE_OFFSET + 8, 16), arch.frameless_cie());
            let (memory, _) = linked(&pool, &plan(100, 0, 0, 0), 1);
            let code = memory.address(SegmentKind::Code);
            drop(memory);
            assert_eq!(mirror.bytes(code, 128), [arch.trap(); 128]);
        }
    }

    #[test]
    fn the_last_value_of_a_word_arrives_whichever_thread_is_slower() {
        let mirror = Arc::new(Mirror(Mutex::new(Received::default())));
        let pool = SlabPool::with_mapper(CopyMapper(mirror.clone()), SlabPoolOptions::default()).unwrap();
        let (memory, _) = linked(&pool, &plan(100, 40, 24, 0), 1);
        let memory: Arc<dyn Finalized> = memory.into();
        let store = |memory: &dyn Finalized, value| {
            let word = memory.word(8).unwrap();
            word.store(value, Ordering::Release);
            memory.word_stored(word);
        };
        // Another thread stores a newer value and gives it, after this one has read the older value and before it gives that.
        let other = memory.clone();
        mirror.0.lock().before_write = Some(Box::new(move || store(&*other, 2)));
        store(&*memory, 1);
        assert_eq!(memory.word(8).unwrap().load(Ordering::Acquire), 2);
        assert_eq!(mirror.bytes(memory.address(SegmentKind::Data).offset(8), 8), 2u64.to_le_bytes());
    }

    #[test]
    fn pages_that_return_to_the_kernel_are_zero_in_the_peer_too() {
        let mirror = Arc::new(Mirror(Mutex::new(Received::default())));
        let pool = SlabPool::with_mapper(CopyMapper(mirror.clone()), SlabPoolOptions::default()).unwrap();
        let (memory, _) = linked(&pool, &plan(1 << 20, 1 << 20, 1 << 20, 0), 4);
        let addresses = SegmentKind::ALL.map(|kind| memory.address(kind));
        drop(memory);
        assert!(pool.release_free().bytes > 0);
        for kind in [SegmentKind::ReadOnly, SegmentKind::Data] {
            assert_eq!(mirror.bytes(addresses[kind.index()].offset(1 << 19), 16), [0; 16], "{kind:?}");
        }
    }
}
