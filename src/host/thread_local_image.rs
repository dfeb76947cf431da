//! [`ThreadLocalImage`]: an ELF file that makes the C library's loader create a thread-local block for linked code.
//!
//! The file is a shared object with the image of the block (`PT_TLS`) and one writable page of words. The loader fills the
//! words when it applies the relocations of the file (psABI, "Thread-Local Storage Relocation Types"):
//!
//! | word | relocation | content |
//! |---|---|---|
//! | [`MODULE_WORD`] | module | number of the module |
//! | [`OFFSET_WORD`] | offset | offset of the variable in the module's block |
//! | [`STATIC_WORD`] | static offset | distance from the thread pointer, if it is requested |
//!
//! Such a file can also request the words of a variable of another library. It then has the name of that variable and no
//! block. A variable that a library exports to all is found by name alone. A block is found in the one library that the
//! file names as its dependency (`DT_NEEDED`): each block has a symbol for its start, [`BLOCK_SYMBOL`].
//!
//! This file only builds the bytes and maps nothing. Field names are those of the ELF gABI.

use crate::arch::Arch;
use crate::os::page_size;

/// A request to the loader.
pub(super) struct ThreadLocalImage<'a> {
    /// The initial bytes of the block. Zeroes follow up to `size`.
    pub(super) image: &'a [u8],
    /// Size of the block in bytes.
    pub(super) size: u64,
    /// Alignment of the block, a power of two.
    pub(super) align: u64,
    /// The variable whose words are requested. `None` for the block of the file itself.
    pub(super) variable: Option<&'a str>,
    /// The path of the library that defines the variable, if the loader must look there. The library is loaded.
    pub(super) library: Option<&'a str>,
    /// Whether the block must be at the same distance from the thread pointer in every thread.
    pub(super) is_static: bool,
}

impl ThreadLocalImage<'_> {
    /// Offset of the image in the file, which is also its offset from the load address.
    pub(super) fn offset(&self) -> u64 {
        words_page() + page_size().max(self.align)
    }

    /// The bytes of the file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let (name, library) = (self.variable.unwrap_or(BLOCK_SYMBOL), self.library.unwrap_or(""));
        let strings = [b"\0", name.as_bytes(), b"\0", library.as_bytes(), b"\0"].concat();
        let strtab = SYMTAB + 48; // after two symbols: the null symbol and the variable
        let end = self.offset() + self.image.len() as u64;
        let mut file = vec![0; end as usize];
        let mut write = |offset: u64, bytes: &[u8]| {
            file[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        };
        write(0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        write(16, &[3u16, Arch::NATIVE.e_machine()].map(u16::to_le_bytes).concat()); // ET_DYN
        write(20, &1u32.to_le_bytes());
        write(32, &64u64.to_le_bytes()); // e_phoff
        let segments = self.segments(end);
        write(52, &[64u16, 56, segments.len() as u16].map(u16::to_le_bytes).concat()); // e_ehsize, e_phentsize, e_phnum
        write(64, &segments.concat());
        // The one symbol is the variable, undefined, or the start of the block. Relocations for the block of the file itself
        // name the null symbol.
        let is_block = self.variable.is_none();
        write(SYMTAB + 24, &1u32.to_le_bytes());
        write(SYMTAB + 28, &[0x16, 0, u8::from(is_block), 0]); // STB_GLOBAL and STT_TLS, visibility, section
        write(strtab, &strings);
        let relocations = self.relocations();
        write(RELA, &relocations.concat());
        // One bucket, two symbols. The bucket is empty if the file defines no symbol.
        write(HASH, &[1u32, 2, u32::from(is_block), 0, 0].map(u32::to_le_bytes).concat());
        let flags = if self.is_static { DF_STATIC_TLS } else { 0 };
        let needed = if self.library.is_some() { (1, name.len() as u64 + 2) } else { (0, 0) };
        let dynamic: [(u64, u64); DYNAMIC_COUNT] = [
            (4, HASH),                          // DT_HASH
            (5, strtab),                        // DT_STRTAB
            (6, SYMTAB),                        // DT_SYMTAB
            (10, strings.len() as u64),         // DT_STRSZ
            (11, 24),                           // DT_SYMENT
            (7, RELA),                          // DT_RELA
            (8, relocations.len() as u64 * 24), // DT_RELASZ
            (9, 24),                            // DT_RELAENT
            (30, flags),                        // DT_FLAGS
            needed,                             // DT_NEEDED
            (0, 0),
        ];
        let words = dynamic.iter().flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()].concat());
        write(words_page(), &words.collect::<Vec<u8>>());
        write(self.offset(), self.image);
        file
    }

    fn segments(&self, end: u64) -> Vec<Vec<u8>> {
        const PT_LOAD: u32 = 1;
        const PT_DYNAMIC: u32 = 2;
        const PT_TLS: u32 = 7;
        const PT_GNU_STACK: u32 = 0x6474_e551;
        let segment = |kind: u32, flags: u32, offset: u64, file_size: u64, size: u64, align: u64| {
            let words = [offset, offset, offset, file_size, size, align].map(u64::to_le_bytes).concat();
            [[kind, flags].map(u32::to_le_bytes).concat(), words].concat()
        };
        let image_size = self.image.len() as u64;
        let (words, align) = (words_page(), page_size().max(self.align));
        let mut segments = vec![
            segment(PT_LOAD, R, 0, words, words, align),
            segment(PT_LOAD, R | W, words, end - words, end - words, page_size()),
            segment(PT_DYNAMIC, R | W, words, DYNAMIC_COUNT as u64 * 16, DYNAMIC_COUNT as u64 * 16, 8),
            segment(PT_GNU_STACK, R | W, 0, 0, 0, 16),
        ];
        if self.variable.is_none() {
            segments.push(segment(PT_TLS, R, self.offset(), image_size, self.size, self.align));
        }
        segments
    }

    fn relocations(&self) -> Vec<Vec<u8>> {
        let symbol = u64::from(self.variable.is_some());
        let [module, offset, static_offset] = Arch::NATIVE.thread_local_relocations();
        let mut words = vec![(MODULE_WORD, module)];
        if self.variable.is_some() {
            words.push((OFFSET_WORD, offset));
        }
        if self.is_static {
            words.push((STATIC_WORD, static_offset));
        }
        let relocation = |(word, r_type): (u64, u32)| {
            [words_page() + word, symbol << 32 | u64::from(r_type), 0].map(u64::to_le_bytes).concat()
        };
        words.into_iter().map(relocation).collect()
    }
}

/// The symbol for the start of the block of a file. Only a file that names this file as its dependency finds it.
pub(super) const BLOCK_SYMBOL: &str = "jittison thread-local block";
/// Maximal length of a variable's name, in bytes.
pub(super) const MAX_NAME: usize = 2048;

/// Offset of the page that the loader writes. It begins with the dynamic section.
pub(super) fn words_page() -> u64 {
    page_size()
}

/// Offset in [`words_page`] of the word that gets the module's number.
pub(super) const MODULE_WORD: u64 = 512;
/// Offset in [`words_page`] of the word that gets the offset in the module's block.
pub(super) const OFFSET_WORD: u64 = MODULE_WORD + 8;
/// Offset in [`words_page`] of the word that gets the distance from the thread pointer.
pub(super) const STATIC_WORD: u64 = MODULE_WORD + 16;

const HASH: u64 = 512;
const RELA: u64 = 576;
const SYMTAB: u64 = 704;
const DYNAMIC_COUNT: usize = 11;
const R: u32 = 4;
const W: u32 = 2;
const DF_STATIC_TLS: u64 = 0x10;
