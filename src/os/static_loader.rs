//! [`ListedWindow`]: a window of code memory on the list that unwinders read in a program without a loader.
//!
//! A program that is linked statically with musl cannot open a library. Its unwinder calls `dl_iterate_phdr` for every frame,
//! as any unwinder does, and musl's version lists the program only. It is a weak symbol. So this file defines another one,
//! which lists the program and every [`ListedWindow`].
//!
//! # Protocol
//! Threads that throw read the list, and so do children of a fork at any moment. So the list is lock-free, and a reader never
//! waits for a writer. Each [`WindowNode`] is a sequence lock:
//!
//! | writer | reader |
//! |---|---|
//! | 1. read `version` (acquire); skip an odd one | 1. read `version` (acquire); skip an odd one |
//! | 2. read the first word: is the node free? | |
//! | 3. compare-and-swap `version` to odd (acquire) | |
//! | 4. release fence, store the four words | 2. read the four words, acquire fence |
//! | 5. store the next even `version` (release) | 3. read `version` again; start again if it differs |
//!
//! The first word in step 2 belongs to the version of step 1 or to a later one. No version comes back, so with a later
//! one the swap of step 3 fails. A writer that has swapped therefore owns the node, and the node is free if it read so.
//!
//! A reader may skip a node that is being written: a window that is being listed has no code yet, and a window that is being
//! removed has no code left. A second writer does not wait, either: it takes another node.
//!
//! Nodes are never freed, but used again. There are as many as there were windows at the same time, and a few more if writers
//! met at one node.

use crate::sync::{MappedU64, Ordering, StaticPtr, static_fence};

/// A window, as an unwinder needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowRange {
    /// The address of the first byte. Never zero.
    pub(crate) base: u64,
    pub(crate) size_bytes: u64,
    /// The address of `.eh_frame_hdr`.
    pub(crate) frame_header: u64,
    pub(crate) frame_header_bytes: u64,
}

/// Keeps a window on the list until it is dropped.
pub(crate) struct ListedWindow(&'static WindowNode);

impl ListedWindow {
    /// Adds a window to the list. `None` where the program has a loader, which must open the window instead.
    pub(crate) fn new(range: WindowRange) -> Option<ListedWindow> {
        HAS_NO_LOADER.then(|| ListedWindow(LIST.add(range)))
    }
}

impl Drop for ListedWindow {
    fn drop(&mut self) {
        LIST.remove(self.0);
    }
}

/// Whether this is a static program with a C library that opens no libraries in one.
pub(crate) const HAS_NO_LOADER: bool = cfg!(all(target_env = "musl", target_feature = "crt-static"));

static LIST: WindowList = WindowList::new();

struct WindowList {
    first: StaticPtr<WindowNode>,
    /// How many windows were added and removed so far. An increment is Release, after the change of the list. It pairs with the load
    /// of the record of the program: who sees the count sees the list. libgcc's unwinder caches the list, and compares these counts to see
    /// whether its cache is current.
    added: MappedU64,
    /// Pairs with the load, as above.
    removed: MappedU64,
}

/// A node of the list: four words under a sequence lock.
struct WindowNode {
    /// Odd while the words are being written.
    version: MappedU64,
    /// The fields of a [`WindowRange`]. The first is zero if the node is free.
    words: [MappedU64; 4],
    next: Option<&'static WindowNode>,
}

impl WindowList {
    const fn new() -> WindowList {
        WindowList { first: StaticPtr::new(std::ptr::null_mut()), added: MappedU64::new(0), removed: MappedU64::new(0) }
    }

    fn add(&self, range: WindowRange) -> &'static WindowNode {
        let node = self.nodes().find(|node| node.write(Some(range))).unwrap_or_else(|| self.add_node(range));
        self.added.fetch_add(1, Ordering::Release);
        node
    }

    /// Removes a window. Call this before its address range is released.
    fn remove(&self, node: &WindowNode) {
        node.write(None);
        self.removed.fetch_add(1, Ordering::Release);
    }

    fn add_node(&self, range: WindowRange) -> &'static WindowNode {
        let words = range.words().map(MappedU64::new);
        let node = Box::into_raw(Box::new(WindowNode { version: MappedU64::new(0), words, next: None }));
        loop {
            let next = self.first();
            // SAFETY: O6 - the node is not on the list yet, so no other thread has its address and `next` may change.
            unsafe { (*node).next = next };
            let expected = next.map_or(std::ptr::null_mut(), |next| std::ptr::from_ref(next).cast_mut());
            // Release: pairs with the acquire load in `first`, so that a thread that finds the node sees its contents.
            if self.first.compare_exchange(expected, node, Ordering::Release, Ordering::Relaxed).is_ok() {
                // SAFETY: O6 - the node is never freed and, now that it is on the list, only read or written through its
                // atomics.
                return unsafe { &*node };
            }
        }
    }

    fn first(&self) -> Option<&'static WindowNode> {
        // SAFETY: O6 - null, or a node that is never freed. The load pairs with the release in `add_node`, and sees its contents.
        unsafe { self.first.load(Ordering::Acquire).as_ref() }
    }

    fn nodes(&self) -> impl Iterator<Item = &'static WindowNode> {
        std::iter::successors(self.first(), |node| node.next)
    }
}

impl WindowNode {
    /// Writes a range to a free node, or frees a used one. False if the node is in the other state, or if another thread
    /// writes it.
    fn write(&self, range: Option<WindowRange>) -> bool {
        // Acquire: pairs with the release store of the previous writer. Without it, the first word read below may be
        // older than this version: the node looks free, the swap succeeds, and the range of a window in use is lost.
        let version = self.version.load(Ordering::Acquire);
        let is_expected = version.is_multiple_of(2) && (self.words[0].load(Ordering::Relaxed) == 0) == range.is_some();
        // Acquire: pairs with the release store of the previous writer, so that this write comes after that one.
        let is_mine =
            || self.version.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !is_expected || !is_mine() {
            return false;
        }
        // Release: pairs with the acquire fence in `read`. A reader that sees a word written below sees this odd version, or
        // a later one, when it reads `version` again.
        static_fence(Ordering::Release);
        let words = range.map_or([0; 4], WindowRange::words);
        self.words.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        self.version.store(version + 2, Ordering::Release);
        true
    }

    /// The range in this node. `None` if the node is free or is being written.
    #[cfg(any(test, all(target_env = "musl", target_feature = "crt-static")))]
    fn read(&self) -> Option<WindowRange> {
        loop {
            // Acquire: pairs with the release store of the last writer, whose words or later ones are read below.
            let version = self.version.load(Ordering::Acquire);
            if !version.is_multiple_of(2) {
                return None;
            }
            let [base, size_bytes, frame_header, frame_header_bytes] =
                self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
            // Acquire: pairs with the release fence in `write`.
            static_fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return (base != 0).then_some(WindowRange { base, size_bytes, frame_header, frame_header_bytes });
            }
        }
    }
}

impl WindowRange {
    fn words(self) -> [u64; 4] {
        [self.base, self.size_bytes, self.frame_header, self.frame_header_bytes]
    }
}

#[cfg(all(target_env = "musl", target_feature = "crt-static"))]
mod phdr {
    use std::ffi::{c_char, c_int, c_void};
    use std::mem::offset_of;

    use libc::{Elf64_Ehdr, Elf64_Phdr, dl_phdr_info};

    use super::{LIST, WindowNode, WindowRange};
    use crate::os::thread_local_address_in;
    use crate::sync::Ordering;

    type Callback = unsafe extern "C" fn(*mut dl_phdr_info, usize, *mut c_void) -> c_int;

    unsafe extern "C" {
        /// The ELF header of the program. The linker defines the symbol.
        #[link_name = "__ehdr_start"]
        static PROGRAM: Elf64_Ehdr;
    }

    /// Calls `callback` for the program, and then for each window, until it returns a value other than zero.
    ///
    /// # Safety
    /// As for the function of the C library with this name, which this one replaces.
    // SAFETY: O4 - the signature is that of the C library's function, and musl's definition is weak, so this is the only
    // strong one.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int {
        // SAFETY: O2 - by contract, `callback` may be called with `data`. The record and its headers live until the call
        // returns.
        // The size leaves out the counts of added and removed objects. With them, libgcc's unwinder caches the address of the
        // headers, which are on this stack, and it edits its cache without a lock.
        let call =
            |mut info: dl_phdr_info| unsafe { callback(&raw mut info, offset_of!(dl_phdr_info, dlpi_adds), data) };
        let result = call(program());
        if result != 0 {
            return result;
        }
        for listed in LIST.nodes().filter_map(WindowNode::read) {
            let headers = listed.headers();
            let result = call(record(listed.base, c"jittison-window".as_ptr(), &headers));
            if result != 0 {
                return result;
            }
        }
        0
    }

    fn program() -> dl_phdr_info {
        // SAFETY: O5 - the program is always loaded. Its ELF header says where its `e_phnum` program headers are.
        let headers = unsafe {
            let first = (&raw const PROGRAM).cast::<u8>().add(PROGRAM.e_phoff as usize);
            std::slice::from_raw_parts(first.cast::<Elf64_Phdr>(), usize::from(PROGRAM.e_phnum))
        };
        let start = headers.iter().find(|header| header.p_type == libc::PT_LOAD && header.p_offset == 0);
        let bias = (&raw const PROGRAM as u64).wrapping_sub(start.map_or(0, |start| start.p_vaddr));
        let mut info = record(bias, c"/proc/self/exe".as_ptr(), headers);
        if headers.iter().any(|header| header.p_type == libc::PT_TLS) {
            info.dlpi_tls_modid = 1;
            // SAFETY: O5 - the program is always loaded, and its TLS block is module 1. The offset is zero.
            info.dlpi_tls_data = unsafe { thread_local_address_in(1, 0) }.unwrap_or_default() as *mut c_void;
        }
        info
    }

    fn record(bias: u64, name: *const c_char, headers: &[Elf64_Phdr]) -> dl_phdr_info {
        dl_phdr_info {
            dlpi_addr: bias,
            dlpi_name: name,
            dlpi_phdr: headers.as_ptr(),
            dlpi_phnum: headers.len() as u16,
            // 1 for the program itself.
            dlpi_adds: 1 + LIST.added.load(Ordering::Acquire),
            dlpi_subs: LIST.removed.load(Ordering::Acquire),
            dlpi_tls_modid: 0,
            dlpi_tls_data: std::ptr::null_mut(),
        }
    }

    impl WindowRange {
        fn headers(&self) -> [Elf64_Phdr; 2] {
            let segment = |kind, address, size| Elf64_Phdr {
                p_type: kind,
                p_flags: libc::PF_R,
                p_offset: address,
                p_vaddr: address,
                p_paddr: address,
                p_filesz: size,
                p_memsz: size,
                p_align: 1,
            };
            let header = self.frame_header - self.base;
            [
                segment(libc::PT_LOAD, 0, self.size_bytes),
                segment(libc::PT_GNU_EH_FRAME, header, self.frame_header_bytes),
            ]
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Miri, which is slow, also shows old values to relaxed loads.
    const ROUNDS: u64 = if cfg!(miri) { 200 } else { 50_000 };

    fn range(base: u64) -> WindowRange {
        WindowRange { base, size_bytes: base + 1, frame_header: base + 2, frame_header_bytes: base + 3 }
    }

    #[test]
    fn a_reader_sees_no_torn_range_while_windows_are_added_and_removed_and_nodes_are_used_again() {
        let list = WindowList::new();
        let is_finished = MappedU64::new(0);
        list.add(range(7));
        std::thread::scope(|scope| {
            let writer = |from: u64| {
                let list = &list;
                move || {
                    for base in from..from + ROUNDS {
                        let node = list.add(range(base));
                        assert_eq!(node.read(), Some(range(base)), "no other writer takes a node in use");
                        list.remove(node);
                    }
                }
            };
            let writers = [scope.spawn(writer(1 << 30)), scope.spawn(writer(1 << 40))];
            let reader = scope.spawn(|| {
                while is_finished.load(Ordering::Relaxed) == 0 {
                    let found: Vec<_> = list.nodes().filter_map(WindowNode::read).collect();
                    found.iter().for_each(|found| assert_eq!(*found, range(found.base)));
                    assert!(found.contains(&range(7)));
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_finished.store(1, Ordering::Relaxed);
            reader.join().unwrap();
        });
        assert_eq!(list.nodes().filter_map(WindowNode::read).collect::<Vec<_>>(), [range(7)]);
        // Miri shows old versions of free nodes, with which the swap fails.
        assert!(cfg!(miri) || list.nodes().count() <= 3, "as many nodes as windows at the same time");
        let [added, removed] = [&list.added, &list.removed].map(|count| count.load(Ordering::Relaxed));
        assert_eq!((added, removed), (2 * ROUNDS + 1, 2 * ROUNDS));
    }
}
