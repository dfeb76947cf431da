//! [`WindowImage`]: the ELF file that the dynamic loader opens in order to load a window as a shared object.
//!
//! It has two parts, each at the start of a page:
//!
//! | part | holds | in the window |
//! |---|---|---|
//! | header | ELF header, program headers, an empty symbol table, the nonce, the unwind header | at the base |
//! | dynamic section | `DT_SONAME`, `DT_HASH`, `DT_STRTAB`, `DT_SYMTAB`, … | in the guard before the data pool |
//!
//! With pages of 4 KiB, the unwind header reaches 16 bytes into the page after the header page. Larger pages contain the start of the
//! frame table, too. The first segment ends where a page of every kernel ends, so the loader writes nothing into it.
//!
//! Loaders write into the dynamic section: glibc before 2.35 even if it is declared read-only. So its page is a
//! writable segment of its own, and the mapper maps nothing over it.
//!
//! The pools are declared as zero-fill and as not executable: code and constants as the rest of the header's segment, data as
//! a segment of its own. Each segment costs the loader a system call. Once the window is loaded, the header of the data pool
//! says which part of it is open (`data_segment.rs`). The mapper maps the pools over them, with their real protection. So the
//! loader requests nothing from the kernel that a hardened system refuses.
//!
//! This file maps nothing. Its field names are those of the ELF gABI.

use crate::arch::{Arch, MAX_PAGE_SIZE, MIN_PAGE_SIZE};
use crate::base::SegmentKind;
use crate::memory::layout::{
    CHUNK, EMPTY_CIE_OFFSET, EMPTY_FDE_OFFSET, FRAME_HEADER_OFFSET, FRAME_SLOT, FRAME_TABLE_OFFSET, TEXT_GRANULE,
    WindowLayout,
};
use crate::os::page_size;

/// The bytes of both parts.
pub(super) struct WindowImage {
    /// The header page, and the first 16 bytes of the page after it.
    pub(super) header: [u8; HEADER_SIZE],
    /// The dynamic section's page.
    pub(super) dynamic: [u8; DYNAMIC_SIZE as usize],
}

impl WindowImage {
    /// The image of a window for code of an architecture, whose preferred base is `preferred` (zero: any). The page of the dynamic section
    /// is at `dynamic_offset` of the file.
    pub(super) fn new(
        arch: Arch,
        layout: &WindowLayout,
        preferred: u64,
        dynamic_offset: u64,
        nonce: u64,
    ) -> WindowImage {
        let mut image = WindowImage { header: [0; HEADER_SIZE], dynamic: [0; DYNAMIC_SIZE as usize] };
        let mut write = |offset: u64, bytes: &[u8]| {
            image.header[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes)
        };

        let mut ehdr = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let et_dyn = 3u16;
        ehdr.extend([et_dyn.to_le_bytes(), arch.e_machine().to_le_bytes()].concat());
        ehdr.extend(1u32.to_le_bytes());
        for word in [0, PHDR_OFFSET, 0] {
            ehdr.extend(word.to_le_bytes()); // e_entry, e_phoff, e_shoff
        }
        ehdr.extend(0u32.to_le_bytes());
        let segments = program_headers(layout, dynamic_offset);
        for half in [64u16, 56, segments.len() as u16, 0, 0, 0] {
            ehdr.extend(half.to_le_bytes()); // e_ehsize, e_phentsize, e_phnum, and no sections
        }
        write(0, &ehdr);
        for (index, segment) in segments.iter().enumerate() {
            write(PHDR_OFFSET + index as u64 * 56, &segment.bytes(preferred));
        }
        write(HASH_OFFSET, &[1u32, 1, 0, 0].map(u32::to_le_bytes).concat()); // one bucket, one symbol
        write(STRTAB_OFFSET, STRTAB_BYTES);
        write(NONCE_OFFSET, &nonce.to_le_bytes());

        // A CIE has its length and its id first.
        write(EMPTY_CIE_OFFSET, &[20u32, 0].map(u32::to_le_bytes).concat());
        write(EMPTY_CIE_OFFSET + 8, &arch.frameless_cie());
        let fde_id = (EMPTY_FDE_OFFSET + 4 - EMPTY_CIE_OFFSET) as u32;
        write(EMPTY_FDE_OFFSET, &[16u32, fde_id, 0, 0, 0].map(u32::to_le_bytes).concat());

        // .eh_frame_hdr: version, encodings of the pointer to .eh_frame (pcrel sdata4), of the count (udata4) and of
        // the table (datarel sdata4); the pointer; the count, which `FrameTable::new` stores.
        write(FRAME_HEADER_OFFSET, &[1, 0x1b, 0x03, 0x3b]);
        let to_eh_frame = EMPTY_CIE_OFFSET.wrapping_sub(FRAME_HEADER_OFFSET + 4) as u32;
        write(FRAME_HEADER_OFFSET + 4, &to_eh_frame.to_le_bytes());

        let dynamic: [(u64, u64); DYNAMIC_ENTRIES] = [
            (14, 1),                         // DT_SONAME: the string at 1
            (4, preferred + HASH_OFFSET),    // DT_HASH
            (5, preferred + STRTAB_OFFSET),  // DT_STRTAB
            (6, preferred + SYMTAB_OFFSET),  // DT_SYMTAB: the null symbol only
            (10, STRTAB_BYTES.len() as u64), // DT_STRSZ
            (11, 24),                        // DT_SYMENT
            (0, 0),
        ];
        for (entry, (tag, value)) in image.dynamic.chunks_exact_mut(16).zip(dynamic) {
            entry.copy_from_slice(&[tag.to_le_bytes(), value.to_le_bytes()].concat());
        }
        image
    }

    /// What a file has that the loader opens: offsets and bytes. Its dynamic section is at `dynamic_offset`, for which the image was made.
    pub(super) fn parts(&self, dynamic_offset: u64) -> [(u64, &[u8]); 2] {
        [(0, &self.header), (dynamic_offset, &self.dynamic)]
    }
}

/// The offset of the dynamic section in the window.
pub(super) fn dynamic_address(layout: &WindowLayout) -> u64 {
    layout.file_size() + MAX_PAGE_SIZE
}

/// Bytes of the header and the frame table, in entire pages.
pub(super) fn table_pages(layout: &WindowLayout) -> u64 {
    (FRAME_TABLE_OFFSET + table_size(layout)).next_multiple_of(page_size())
}

/// The unwind header and its table: `(offset in the window, size in bytes)`.
pub(super) fn frame_header(layout: &WindowLayout) -> (u64, u64) {
    (FRAME_HEADER_OFFSET, 12 + table_size(layout))
}

fn table_size(layout: &WindowLayout) -> u64 {
    layout.pool(SegmentKind::Code).size / TEXT_GRANULE * FRAME_SLOT
}

/// An `Elf64_Phdr`.
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
}

impl ProgramHeader {
    fn bytes(&self, preferred: u64) -> Vec<u8> {
        let mut bytes = [self.kind.to_le_bytes(), self.flags.to_le_bytes()].concat();
        let address = preferred + self.address;
        for word in [self.offset, address, address, self.file_size, self.memory_size, self.align] {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }
}

fn program_headers(layout: &WindowLayout, dynamic_offset: u64) -> Vec<ProgramHeader> {
    const PT_LOAD: u32 = 1;
    const PT_DYNAMIC: u32 = 2;
    const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
    const PT_GNU_STACK: u32 = 0x6474_e551;
    const W: u32 = 2;
    const R: u32 = 4;
    // The offset in the file is the offset in the window, because the loader requires them to be equal modulo the
    // alignment.
    let segment = |kind, flags, address, file_size, memory_size, align| ProgramHeader {
        kind,
        flags,
        offset: address,
        address,
        file_size,
        memory_size,
        align,
    };
    let data = layout.pool(SegmentKind::Data);
    let (header, header_size) = frame_header(layout);
    let dynamic = |kind, size, align| ProgramHeader {
        offset: dynamic_offset,
        ..segment(kind, R | W, dynamic_address(layout), size, size, align)
    };
    vec![
        segment(PT_LOAD, R, 0, MAX_PAGE_SIZE, layout.file_size(), CHUNK),
        dynamic(PT_LOAD, DYNAMIC_SIZE, CHUNK),
        segment(PT_LOAD, R, data.offset, 0, data.size, CHUNK),
        dynamic(PT_DYNAMIC, DYNAMIC_ENTRIES as u64 * 16, 8),
        segment(PT_GNU_EH_FRAME, R, header, header_size, header_size, 4),
        segment(PT_GNU_STACK, R | W, 0, 0, 0, 16),
    ]
}

/// Bytes of the header: to the end of the unwind header.
const HEADER_SIZE: usize = FRAME_TABLE_OFFSET as usize;

/// Bytes of the segment of the dynamic section.
const DYNAMIC_SIZE: u64 = MIN_PAGE_SIZE;

/// The offset of the dynamic section in a file that has no pools.
pub(super) const SMALL_FILE_DYNAMIC_OFFSET: u64 = MAX_PAGE_SIZE;

/// The offset of the nonce, which proves that the loader has opened this window.
pub(super) const NONCE_OFFSET: u64 = 0x900;

const PHDR_OFFSET: u64 = 0x40;

/// The offset of the program header of the data pool.
pub(super) const DATA_HEADER_OFFSET: u64 = PHDR_OFFSET + 2 * 56;
const HASH_OFFSET: u64 = 0x600;
const STRTAB_OFFSET: u64 = 0x700;
const SYMTAB_OFFSET: u64 = 0x800;
const STRTAB_BYTES: &[u8] = b"\0jittison-window\0";
const DYNAMIC_ENTRIES: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_header_of_the_data_pool_is_where_it_is_changed() {
        let layout = WindowLayout::divide(64 << 20).unwrap();
        let image = WindowImage::new(Arch::NATIVE, &layout, 0x1000_0000, 0, 0);
        let word = |index: usize| {
            let at = DATA_HEADER_OFFSET as usize + 8 * index;
            u64::from_le_bytes(image.header[at..at + 8].try_into().unwrap())
        };
        let pool = layout.pool(SegmentKind::Data);
        assert_eq!((word(0) as u32, word(2), word(5)), (1, 0x1000_0000 + pool.offset, pool.size));
    }

    /// What the loaders of the C libraries require of a segment, for kernels with pages of `page` bytes.
    #[test]
    fn the_segments_can_be_loaded_with_pages_of_every_kernel() {
        let layout = WindowLayout::divide(64 << 20).unwrap();
        for dynamic_offset in [SMALL_FILE_DYNAMIC_OFFSET, dynamic_address(&layout)] {
            let segments = program_headers(&layout, dynamic_offset);
            let loads: Vec<_> = segments.iter().filter(|segment| segment.kind == 1).collect();
            for page in [4 << 10, 16 << 10, 64 << 10] {
                for segment in &loads {
                    assert!(segment.align % page == 0, "{page}");
                    assert_eq!(segment.address % segment.align, segment.offset % segment.align, "{page}");
                    // The loader clears the rest of the last page of a segment that is longer than its bytes in the file.
                    assert!(segment.file_size == segment.memory_size || segment.file_size % page == 0, "{page}");
                }
                for pair in loads.windows(2) {
                    assert!(
                        (pair[0].address + pair[0].memory_size).next_multiple_of(page) <= pair[1].address,
                        "{page}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_dynamic_section_fits_between_two_guard_pages_before_the_data_pool_at_any_size() {
        for megabytes in [32, 64, 100, 512, 1024, 2047] {
            let layout = WindowLayout::divide(megabytes << 20).unwrap();
            assert!(dynamic_address(&layout) + 2 * MAX_PAGE_SIZE <= layout.pool(SegmentKind::Data).offset);
            assert!(layout.file_size().is_multiple_of(CHUNK), "the file is entire chunks");
        }
    }
}
