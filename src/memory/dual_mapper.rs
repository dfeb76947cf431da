//! [`DualMapper`]: windows as synthetic shared objects, mapped twice.
//!
//! A sparse anonymous file gets an ELF header that describes the window; the loader opens it, reserving the whole range
//! and telling every unwinder about it; then the pools are mapped over that range for good: code and constants from a
//! *read-only descriptor* of the same file (so that no `mprotect` can ever make them writable), data as private
//! zeroes. The writable view of the file is elsewhere, is never executable, and does not go to forked children.
//!
//! The loader knows a library by the path it was opened by, and would hand out an old one for a path used again. The
//! path names a descriptor, which stays open as long as the window, so it cannot come round; and a number in the header
//! proves that what was opened is this window.
//!
//! This file decides no sizes (`layout.rs`) and fills no slots (`frame_table.rs`).

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;

use memmap2::MmapRaw;

use crate::base::{ExecutorAddr, Pool};
use crate::error::MemoryFault;
use crate::memory::frame_table::{EMPTY_CIE_OFFSET, EMPTY_FDE_OFFSET};
use crate::memory::layout::{
    CHUNK, FRAME_HEADER_OFFSET, FRAME_SLOT, FRAME_TABLE_OFFSET, PAGE, TEXT_GRANULE, WindowLayout,
};
use crate::memory::mapper::{MappedWindow, MemoryMapper};
use crate::os::{FixedPages, Library, PageKind, SharedFile, give_back, map_fixed};
use crate::sync::Arc;

/// Maps windows of this process: code and constants twice, data once.
#[derive(Debug, Clone, Copy, Default)]
pub struct DualMapper;

impl MemoryMapper for DualMapper {
    fn map_window(&self, layout: &WindowLayout) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        Ok(Arc::new(DualWindow::map(layout)?))
    }
}

/// Fields drop in order: the library (which unmaps the whole range), the writable view, the descriptor.
struct DualWindow {
    base: ExecutorAddr,
    layout: WindowLayout,
    _library: Library,
    alias: MmapRaw,
    /// Keeps the path that the loader knows from being used again, and debuggers able to open it.
    _read_only: File,
}

impl DualWindow {
    fn map(layout: &WindowLayout) -> Result<DualWindow, MemoryFault> {
        let file = SharedFile::create(c"jittison", layout.file_size).map_err(refused("memfd_create of the window"))?;
        let alias = file.map_writable().map_err(refused("mapping the working view of the window"))?;
        write_header(&alias, layout);
        let read_only = file.reopen_read_only().map_err(refused("reopening the window read-only"))?;
        let (library, base) = load(&read_only, &alias)?;
        for pool in Pool::ALL {
            cover(base, layout, pool, &read_only)?;
        }
        cover_table(base, layout, &read_only)?;
        Ok(DualWindow { base, layout: *layout, _library: library, alias, _read_only: read_only })
    }
}

// SAFETY: M1, M2, M4 - the alias shows the file's bytes and the data pool is itself; both live as long as `self`, their
// sizes are those of the layout that mapped them, and fresh anonymous memory is zero.
unsafe impl MappedWindow for DualWindow {
    fn base(&self) -> ExecutorAddr {
        self.base
    }

    fn working_view(&self, pool: Pool) -> *mut u8 {
        let offset = self.layout.pool(pool).offset as usize;
        match pool {
            Pool::Data => (self.base.value() as usize + offset) as *mut u8,
            Pool::Code | Pool::ReadOnly => {
                assert!(offset < self.alias.len());
                self.alias.as_mut_ptr().wrapping_add(offset)
            }
        }
    }

    fn frame_header(&self) -> Option<*mut u8> {
        Some(self.alias.as_mut_ptr().wrapping_add(FRAME_HEADER_OFFSET as usize))
    }

    fn description(&self) -> &'static str {
        "mapped twice, the running view from a read-only descriptor"
    }

    unsafe fn purge_table(&self, size: u64) -> Result<(), MemoryFault> {
        // The first page holds the header as well.
        let end = (FRAME_TABLE_OFFSET + size) / PAGE * PAGE;
        let first = FRAME_TABLE_OFFSET.next_multiple_of(PAGE);
        if end <= first {
            return Ok(());
        }
        assert!(end <= table_pages(&self.layout), "purged pages lie in the table");
        let pages = self.alias.as_mut_ptr().wrapping_add(first as usize);
        // SAFETY: M5, M6 - inside the table by the line above, and nobody's slots, by contract.
        let purged = unsafe { give_back(pages, (end - first) as usize, PageKind::Shared) };
        purged.map_err(refused("giving pages of the frame table back"))
    }

    unsafe fn purge(&self, pool: Pool, offset: u64, size: u64) -> Result<(), MemoryFault> {
        let range = self.layout.pool(pool);
        assert!(offset.checked_add(size).is_some_and(|end| end <= range.size), "purged pages lie in the pool");
        let pages = self.working_view(pool).wrapping_add(offset as usize);
        let kind = if pool == Pool::Data { PageKind::Private } else { PageKind::Shared };
        // SAFETY: M1, M6 - inside the pool by the line above; nobody uses it, by contract.
        let purged = unsafe { give_back(pages, size as usize, kind) };
        purged.map_err(refused(&format!("giving pages of the {} pool back", pool.name())))
    }
}

/// Has the loader open the file, and makes sure that it opened this one.
fn load(read_only: &File, alias: &MmapRaw) -> Result<(Library, ExecutorAddr), MemoryFault> {
    // Debuggers open the path that the loader tells them, so it names this process; where /proc counts processes
    // otherwise than the process itself does (containers), `self` is the name that works.
    let descriptor = read_only.as_raw_fd();
    let path = format!("/proc/{}/fd/{descriptor}", std::process::id());
    let refuse = |problem: String| MemoryFault::Refused { step: format!("dlopen of the window ({path})"), problem };
    let open = |path: &str| match CString::new(path) {
        Ok(path) => Library::open(&path, false),
        Err(error) => Err(error.to_string()),
    };
    let library = open(&path).or_else(|_| open(&format!("/proc/self/fd/{descriptor}"))).map_err(refuse)?;
    let base = library.load_bias().map_err(refuse)?;
    let nonce = nonce(alias);
    // SAFETY: M4 - the loader mapped the header page of what it opened at `base`; at worst it is another library's.
    let found = unsafe { ((base + NONCE_OFFSET) as *const u64).read() };
    if found != nonce {
        return Err(refuse("the loader handed out another library for this path".to_string()));
    }
    Ok((library, ExecutorAddr::new(base)))
}

/// Maps a pool for good.
fn cover(base: ExecutorAddr, layout: &WindowLayout, pool: Pool, file: &File) -> Result<(), MemoryFault> {
    let range = layout.pool(pool);
    let pages = match pool {
        Pool::Code => FixedPages::Shared { file, offset: range.offset, executable: true },
        Pool::ReadOnly => FixedPages::Shared { file, offset: range.offset, executable: false },
        Pool::Data => FixedPages::PrivateZero,
    };
    let address = base.offset(range.offset).value() as *mut u8;
    // SAFETY: M1 - the loader reserved the window's range for this library, and nothing has been allocated in it yet.
    unsafe { map_fixed(address, range.size as usize, pages) }
        .map_err(refused(&format!("mapping the {} pool", pool.name())))
}

/// Maps header and frame table for good: shared, so that stores through the alias are seen.
fn cover_table(base: ExecutorAddr, layout: &WindowLayout, file: &File) -> Result<(), MemoryFault> {
    let size = table_pages(layout);
    let pages = FixedPages::Shared { file, offset: 0, executable: false };
    // SAFETY: M1 - as for the pools; the bytes shown are the same as before.
    unsafe { map_fixed(base.value() as *mut u8, size as usize, pages) }.map_err(refused("mapping the frame table"))
}

fn refused(step: &str) -> impl FnOnce(std::io::Error) -> MemoryFault + use<> {
    let step = step.to_string();
    move |problem| MemoryFault::Refused { step, problem: problem.to_string() }
}

/// Bytes of header and table, in whole pages.
fn table_pages(layout: &WindowLayout) -> u64 {
    let table = layout.pool(Pool::Code).size / TEXT_GRANULE * FRAME_SLOT;
    (FRAME_TABLE_OFFSET + table).next_multiple_of(PAGE)
}

/// A number that no other window of this machine has at this place: its own working view's address, and its process.
fn nonce(alias: &MmapRaw) -> u64 {
    (alias.as_mut_ptr() as u64).rotate_left(20) ^ u64::from(std::process::id()) ^ 0x6a69_7474_6973_6f6e
}

/// Writes the first page: what the loader and the unwinder want to know. Field names as in the ELF gABI.
fn write_header(alias: &MmapRaw, layout: &WindowLayout) {
    let mut page = [0u8; PAGE as usize + 16];
    let mut put =
        |offset: u64, bytes: &[u8]| page[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);

    let mut ehdr = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let (et_dyn, em_x86_64) = (3u16, 62u16);
    ehdr.extend([et_dyn.to_le_bytes(), em_x86_64.to_le_bytes()].concat());
    ehdr.extend(1u32.to_le_bytes());
    for word in [0, PHDR_OFFSET, 0] {
        ehdr.extend(word.to_le_bytes()); // e_entry, e_phoff, e_shoff
    }
    ehdr.extend(0u32.to_le_bytes());
    let segments = program_headers(layout);
    for half in [64u16, 56, segments.len() as u16, 0, 0, 0] {
        ehdr.extend(half.to_le_bytes()); // e_ehsize, e_phentsize, e_phnum, and no sections
    }
    put(0, &ehdr);
    for (index, segment) in segments.iter().enumerate() {
        put(PHDR_OFFSET + index as u64 * 56, &segment.bytes());
    }

    let dynamic: [(u64, u64); 7] = [
        (14, 1),                         // DT_SONAME: the string at 1
        (4, HASH_OFFSET),                // DT_HASH
        (5, STRTAB_OFFSET),              // DT_STRTAB
        (6, SYMTAB_OFFSET),              // DT_SYMTAB: the null symbol only
        (10, STRTAB_BYTES.len() as u64), // DT_STRSZ
        (11, 24),                        // DT_SYMENT
        (0, 0),
    ];
    for (index, (tag, value)) in dynamic.iter().enumerate() {
        put(DYNAMIC_OFFSET + index as u64 * 16, &[tag.to_le_bytes(), value.to_le_bytes()].concat());
    }
    put(HASH_OFFSET, &[1u32, 1, 0, 0].map(u32::to_le_bytes).concat()); // one bucket, one symbol
    put(STRTAB_OFFSET, STRTAB_BYTES);
    put(NONCE_OFFSET, &nonce(alias).to_le_bytes());

    put(EMPTY_CIE_OFFSET, &EMPTY_CIE);
    let fde_id = (EMPTY_FDE_OFFSET + 4 - EMPTY_CIE_OFFSET) as u32;
    put(EMPTY_FDE_OFFSET, &[16u32, fde_id, 0, 0, 0].map(u32::to_le_bytes).concat());

    // .eh_frame_hdr: version, encodings of the pointer to .eh_frame (pcrel sdata4), of the count (udata4) and of the
    // table (datarel sdata4); the pointer; the count, which `FrameTable::open` raises.
    put(FRAME_HEADER_OFFSET, &[1, 0x1b, 0x03, 0x3b]);
    let to_eh_frame = EMPTY_CIE_OFFSET.wrapping_sub(FRAME_HEADER_OFFSET + 4) as u32;
    put(FRAME_HEADER_OFFSET + 4, &to_eh_frame.to_le_bytes());

    assert!(alias.len() >= page.len());
    // SAFETY: M1, M6 - the view was mapped just now, nobody else has it, and it is long enough by the line above.
    unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), alias.as_mut_ptr(), page.len()) };
}

struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
}

impl ProgramHeader {
    /// Addresses equal file offsets throughout.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = [self.kind.to_le_bytes(), self.flags.to_le_bytes()].concat();
        for word in [self.offset, self.offset, self.offset, self.file_size, self.memory_size, self.align] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }
}

fn program_headers(layout: &WindowLayout) -> Vec<ProgramHeader> {
    const PT_LOAD: u32 = 1;
    const PT_DYNAMIC: u32 = 2;
    const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
    const PT_GNU_STACK: u32 = 0x6474_e551;
    const X: u32 = 1;
    const W: u32 = 2;
    const R: u32 = 4;
    let segment = |kind, flags, offset, size, align| ProgramHeader {
        kind,
        flags,
        offset,
        file_size: size,
        memory_size: size,
        align,
    };
    let table = layout.pool(Pool::Code).size / TEXT_GRANULE * FRAME_SLOT;
    let [code, read_only, data] = layout.pools;
    vec![
        segment(PT_LOAD, R, 0, table_pages(layout), CHUNK),
        segment(PT_LOAD, R | X, code.offset, code.size, CHUNK),
        segment(PT_LOAD, R, read_only.offset, read_only.size, CHUNK),
        ProgramHeader { file_size: 0, ..segment(PT_LOAD, R | W, data.offset, data.size, CHUNK) },
        segment(PT_DYNAMIC, R, DYNAMIC_OFFSET, 7 * 16, 8),
        segment(PT_GNU_EH_FRAME, R, FRAME_HEADER_OFFSET, 12 + table, 4),
        segment(PT_GNU_STACK, R | W, 0, 0, 16),
    ]
}

/// Where things stand in the header page.
const PHDR_OFFSET: u64 = 0x40;
const DYNAMIC_OFFSET: u64 = 0x400;
const HASH_OFFSET: u64 = 0x600;
const STRTAB_OFFSET: u64 = 0x700;
const SYMTAB_OFFSET: u64 = 0x800;
const NONCE_OFFSET: u64 = 0x900;
const STRTAB_BYTES: &[u8] = b"\0jittison-window\0";

/// A CIE whose frames end at once: version 1, "zR", code alignment 1, data alignment -8, return address in r16, pointers
/// pcrel sdata4; CFA = rsp + 8, return address at CFA - 8. 24 bytes with its length.
const EMPTY_CIE: [u8; 24] =
    [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
