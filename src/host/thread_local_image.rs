//! [`ThreadLocalImage`]: the file that makes the C library give linked code a thread-local block.
//!
//! A shared object that holds nothing but the image of the block (`PT_TLS`) and, in a writable page before it, words that
//! the loader fills in when it relocates: the module's number, and the block's distance from the thread pointer where
//! that is asked for (psABI, "Thread-Local Storage Relocation Types"). The same file without a block and with a name
//! asks for those words of a variable that some library defines.
//!
//! This file maps nothing. Field names as in the ELF gABI.

/// What is asked of the loader.
pub(super) struct ThreadLocalImage<'a> {
    /// What every thread's copy begins as.
    pub(super) image: &'a [u8],
    /// Bytes of the block.
    pub(super) size: u64,
    /// Alignment of the block, a power of two.
    pub(super) align: u64,
    /// The variable that is asked for; `None` for the file's own block.
    pub(super) variable: Option<&'a str>,
    /// Whether it must stand at one distance from every thread's pointer.
    pub(super) is_static: bool,
}

impl ThreadLocalImage<'_> {
    /// Where the image stands: in the file, and from where the file is loaded.
    pub(super) fn offset(&self) -> u64 {
        WORDS_PAGE + PAGE.max(self.align)
    }

    /// The file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let name = self.variable.unwrap_or("");
        let strings = [b"\0", name.as_bytes(), b"\0"].concat();
        let strtab = SYMTAB + 48;
        let end = self.offset() + self.image.len() as u64;
        let mut file = vec![0; end.max(self.offset()) as usize];
        let mut put = |offset: u64, bytes: &[u8]| {
            file[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        };
        put(0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        put(16, &[3u16, 62].map(u16::to_le_bytes).concat()); // ET_DYN, EM_X86_64
        put(20, &1u32.to_le_bytes());
        put(32, &64u64.to_le_bytes()); // e_phoff
        let segments = self.segments(end);
        put(52, &[64u16, 56, segments.len() as u16].map(u16::to_le_bytes).concat());
        put(64, &segments.concat());
        // One variable, undefined; relocations name it, or the null symbol for the file's own block.
        if self.variable.is_some() {
            put(SYMTAB + 24, &1u32.to_le_bytes());
            put(SYMTAB + 28, &[0x16]); // STB_GLOBAL, STT_TLS
        }
        put(strtab, &strings);
        let relocations = self.relocations();
        put(RELA, &relocations.concat());
        put(HASH, &[1u32, 2, 0, 0, 0].map(u32::to_le_bytes).concat());
        let flags = if self.is_static { DF_STATIC_TLS } else { 0 };
        let dynamic: [(u64, u64); 10] = [
            (4, HASH),                          // DT_HASH
            (5, strtab),                        // DT_STRTAB
            (6, SYMTAB),                        // DT_SYMTAB
            (10, strings.len() as u64),         // DT_STRSZ
            (11, 24),                           // DT_SYMENT
            (7, RELA),                          // DT_RELA
            (8, relocations.len() as u64 * 24), // DT_RELASZ
            (9, 24),                            // DT_RELAENT
            (30, flags),                        // DT_FLAGS
            (0, 0),
        ];
        let words = dynamic.iter().flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()].concat());
        put(DYNAMIC, &words.collect::<Vec<u8>>());
        put(self.offset(), self.image);
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
        let align = PAGE.max(self.align);
        let mut segments = vec![
            segment(PT_LOAD, R, 0, WORDS_PAGE, WORDS_PAGE, align),
            segment(PT_LOAD, R | W, WORDS_PAGE, end - WORDS_PAGE, end - WORDS_PAGE, PAGE),
            segment(PT_DYNAMIC, R | W, DYNAMIC, 160, 160, 8),
            segment(PT_GNU_STACK, R | W, 0, 0, 0, 16),
        ];
        if self.variable.is_none() {
            segments.push(segment(PT_TLS, R, self.offset(), image_size, self.size, self.align));
        }
        segments
    }

    fn relocations(&self) -> Vec<Vec<u8>> {
        let symbol = u64::from(self.variable.is_some());
        let mut asked = vec![(MODULE_WORD, R_X86_64_DTPMOD64)];
        if self.variable.is_some() {
            asked.push((OFFSET_WORD, R_X86_64_DTPOFF64));
        }
        if self.is_static {
            asked.push((STATIC_WORD, R_X86_64_TPOFF64));
        }
        let relocation = |(offset, kind): (u64, u64)| [offset, symbol << 32 | kind, 0].map(u64::to_le_bytes).concat();
        asked.into_iter().map(relocation).collect()
    }
}

/// Longest name of a variable that can be asked for, in bytes.
pub(super) const MAX_NAME: usize = 2048;

/// Where the loader leaves the module's number.
pub(super) const MODULE_WORD: u64 = WORDS_PAGE + 512;
/// Where it leaves the offset in the module's block.
pub(super) const OFFSET_WORD: u64 = MODULE_WORD + 8;
/// Where it leaves the distance from the thread pointer.
pub(super) const STATIC_WORD: u64 = MODULE_WORD + 16;

const HASH: u64 = 512;
const RELA: u64 = 576;
const SYMTAB: u64 = 704;
/// The page that is written: by the loader.
const WORDS_PAGE: u64 = PAGE;
const DYNAMIC: u64 = WORDS_PAGE;
const PAGE: u64 = 4096;
const R: u32 = 4;
const W: u32 = 2;
const DF_STATIC_TLS: u64 = 0x10;
const R_X86_64_DTPMOD64: u64 = 16;
const R_X86_64_DTPOFF64: u64 = 17;
const R_X86_64_TPOFF64: u64 = 18;
