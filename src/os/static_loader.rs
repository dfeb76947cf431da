//! What a loader would do for windows, where a program has none: it tells unwinders what code is where.
//!
//! A program that is linked statically with musl can open no library. Its unwinder asks `dl_iterate_phdr` for every frame
//! that it comes to, as any unwinder does, and musl's knows the program alone; it gives way to another of the same name,
//! which is here: it tells of the program, and of every window that is [`Listed`].
//!
//! The list is read by threads that throw, and by children of a fork that was made at any moment: so nobody waits in it.
//! Its nodes are never freed, only used again, and there are as many as there ever were windows at a time. A node whose
//! version is odd is being written; whoever reads one that changes meanwhile looks again, and whoever finds it odd goes on:
//! what is being listed has no code yet, and what is being taken off the list has none left.

use crate::sync::{MappedU64, Ordering, StaticPtr, static_fence};

/// A window, as an unwinder wants to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListedRange {
    /// Of its first byte. Never zero.
    pub(crate) base: u64,
    pub(crate) size_bytes: u64,
    /// Of `.eh_frame_hdr`, and how long that is.
    pub(crate) frame_header: u64,
    pub(crate) frame_header_bytes: u64,
}

/// Keeps a window on the list.
pub(crate) struct Listed(&'static Node);

impl Listed {
    /// Lists a window. `None` where the program has a loader that should be asked.
    pub(crate) fn new(range: ListedRange) -> Option<Listed> {
        HAS_NO_LOADER.then(|| Listed(LIST.add(range)))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        LIST.remove(self.0);
    }
}

/// Whether this is a static program of a C library that opens nothing in one.
const HAS_NO_LOADER: bool = cfg!(all(target_env = "musl", target_feature = "crt-static"));

static LIST: List = List::new();

struct List {
    first: StaticPtr<Node>,
    /// How many windows were ever listed, and taken off again: by these an unwinder that remembers what it was told (libgcc's)
    /// knows whether that still holds.
    added: MappedU64,
    removed: MappedU64,
}

/// Four words, read and written as one.
struct Node {
    /// Odd while it is being written.
    version: MappedU64,
    /// As in [`ListedRange`]. The first is zero if the node is free.
    words: [MappedU64; 4],
    next: Option<&'static Node>,
}

impl List {
    const fn new() -> List {
        List { first: StaticPtr::new(std::ptr::null_mut()), added: MappedU64::new(0), removed: MappedU64::new(0) }
    }

    fn add(&self, range: ListedRange) -> &'static Node {
        let node = self.nodes().find(|node| node.write(Some(range))).unwrap_or_else(|| self.add_node(range));
        self.added.fetch_add(1, Ordering::Release);
        node
    }

    /// Ahead of the range's being given to anybody else.
    fn remove(&self, node: &Node) {
        node.write(None);
        self.removed.fetch_add(1, Ordering::Release);
    }

    fn add_node(&self, range: ListedRange) -> &'static Node {
        let words = range.words().map(MappedU64::new);
        let node = Box::into_raw(Box::new(Node { version: MappedU64::new(0), words, next: None }));
        loop {
            let next = self.first();
            // SAFETY: O6 - nobody else knows the node yet.
            unsafe { (*node).next = next };
            let expected = next.map_or(std::ptr::null_mut(), |next| std::ptr::from_ref(next).cast_mut());
            // Release: whoever finds the node finds what is in it.
            if self.first.compare_exchange(expected, node, Ordering::Release, Ordering::Relaxed).is_ok() {
                // SAFETY: O6 - it stays for good, and is only shared from now on.
                return unsafe { &*node };
            }
        }
    }

    fn first(&self) -> Option<&'static Node> {
        // SAFETY: O6 - null, or a node, which stays for good, and whose words were written before it was found here.
        unsafe { self.first.load(Ordering::Acquire).as_ref() }
    }

    fn nodes(&self) -> impl Iterator<Item = &'static Node> {
        std::iter::successors(self.first(), |node| node.next)
    }
}

impl Node {
    /// Writes a free node, or frees one. False if it was not as it should be, or somebody else is at it.
    fn write(&self, range: Option<ListedRange>) -> bool {
        let version = self.version.load(Ordering::Relaxed);
        let is_expected = version.is_multiple_of(2) && (self.words[0].load(Ordering::Relaxed) == 0) == range.is_some();
        // Acquire: what somebody wrote before is in place.
        let is_mine =
            || self.version.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !is_expected || !is_mine() {
            return false;
        }
        // Whoever reads a word written below finds the odd version, or a later one, when it asks again.
        static_fence(Ordering::Release);
        let words = range.map_or([0; 4], ListedRange::words);
        self.words.iter().zip(words).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        self.version.store(version + 2, Ordering::Release);
        true
    }

    /// What is listed here; `None` if nothing is, or is just being written.
    #[cfg(any(test, all(target_env = "musl", target_feature = "crt-static")))]
    fn read(&self) -> Option<ListedRange> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            if !version.is_multiple_of(2) {
                return None;
            }
            let [base, size_bytes, frame_header, frame_header_bytes] =
                self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
            static_fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return (base != 0).then_some(ListedRange { base, size_bytes, frame_header, frame_header_bytes });
            }
        }
    }
}

impl ListedRange {
    fn words(self) -> [u64; 4] {
        [self.base, self.size_bytes, self.frame_header, self.frame_header_bytes]
    }
}

#[cfg(all(target_env = "musl", target_feature = "crt-static"))]
mod phdr {
    use std::ffi::{c_char, c_int, c_void};

    use libc::{Elf64_Ehdr, Elf64_Phdr, dl_phdr_info};

    use super::{LIST, ListedRange, Node};
    use crate::os::thread_local_address_in;
    use crate::sync::Ordering;

    type Callback = unsafe extern "C" fn(*mut dl_phdr_info, usize, *mut c_void) -> c_int;

    unsafe extern "C" {
        /// The program's own header; the linker defines it.
        #[link_name = "__ehdr_start"]
        static PROGRAM: Elf64_Ehdr;
    }

    /// Calls `callback` for the program, and then for each window, until it returns something else than zero.
    ///
    /// # Safety
    /// As of the C library's function of this name, whose place it takes.
    // SAFETY: O4 - the only definition: musl's is a weak one.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn dl_iterate_phdr(callback: Callback, data: *mut c_void) -> c_int {
        // SAFETY: O5 - the caller's word for `callback` and `data`; each record is there during the call.
        let call = |mut info: dl_phdr_info| unsafe { callback(&raw mut info, size_of::<dl_phdr_info>(), data) };
        let told = call(program());
        if told != 0 {
            return told;
        }
        for listed in LIST.nodes().filter_map(Node::read) {
            let headers = listed.headers();
            let told = call(record(listed.base, c"jittison-window".as_ptr(), &headers));
            if told != 0 {
                return told;
            }
        }
        0
    }

    fn program() -> dl_phdr_info {
        // SAFETY: O5 - the program's header and program headers are mapped as long as it runs.
        let headers = unsafe {
            let first = (&raw const PROGRAM).cast::<u8>().add(PROGRAM.e_phoff as usize);
            std::slice::from_raw_parts(first.cast::<Elf64_Phdr>(), usize::from(PROGRAM.e_phnum))
        };
        let start = headers.iter().find(|header| header.p_type == libc::PT_LOAD && header.p_offset == 0);
        let bias = (&raw const PROGRAM as u64).wrapping_sub(start.map_or(0, |start| start.p_vaddr));
        let mut info = record(bias, c"/proc/self/exe".as_ptr(), headers);
        if headers.iter().any(|header| header.p_type == libc::PT_TLS) {
            info.dlpi_tls_modid = 1;
            // SAFETY: O5 - the program's own block, which is the first.
            info.dlpi_tls_data = unsafe { thread_local_address_in(1, 0) } as *mut c_void;
        }
        info
    }

    fn record(bias: u64, name: *const c_char, headers: &[Elf64_Phdr]) -> dl_phdr_info {
        dl_phdr_info {
            dlpi_addr: bias,
            dlpi_name: name,
            dlpi_phdr: headers.as_ptr(),
            dlpi_phnum: headers.len() as u16,
            // The program itself is one.
            dlpi_adds: 1 + LIST.added.load(Ordering::Acquire),
            dlpi_subs: LIST.removed.load(Ordering::Acquire),
            dlpi_tls_modid: 0,
            dlpi_tls_data: std::ptr::null_mut(),
        }
    }

    impl ListedRange {
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

    fn range(base: u64) -> ListedRange {
        ListedRange { base, size_bytes: base + 1, frame_header: base + 2, frame_header_bytes: base + 3 }
    }

    #[test]
    fn whoever_reads_while_windows_come_and_go_finds_whole_ones_and_nodes_are_used_again() {
        let list = List::new();
        let is_over = MappedU64::new(0);
        list.add(range(7));
        std::thread::scope(|scope| {
            let writer = |from: u64| {
                let list = &list;
                move || (from..from + 50_000).for_each(|base| list.remove(list.add(range(base))))
            };
            let writers = [scope.spawn(writer(1 << 30)), scope.spawn(writer(1 << 40))];
            let reader = scope.spawn(|| {
                while is_over.load(Ordering::Relaxed) == 0 {
                    let found: Vec<_> = list.nodes().filter_map(Node::read).collect();
                    found.iter().for_each(|found| assert_eq!(*found, range(found.base)));
                    assert!(found.contains(&range(7)));
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_over.store(1, Ordering::Relaxed);
            reader.join().unwrap();
        });
        assert_eq!(list.nodes().filter_map(Node::read).collect::<Vec<_>>(), [range(7)]);
        assert!(list.nodes().count() <= 3, "as many as there were windows at a time");
        let [added, removed] = [&list.added, &list.removed].map(|count| count.load(Ordering::Relaxed));
        assert_eq!((added, removed), (100_001, 100_000));
    }
}
