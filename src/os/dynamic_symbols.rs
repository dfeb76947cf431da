//! [`symbol_kind`]: whether a symbol of a loaded library is a function, data, or a thread-local variable.
//!
//! `dlsym` returns an address and no kind, and for a thread-local variable it returns the address in the calling thread. The
//! dynamic symbol tables have the kind. This file reads them through the GNU hash table (`DT_GNU_HASH`):
//!
//! 1. `dl_iterate_phdr` visits each loaded library.
//! 2. [`DynamicTables`] finds the symbol, string and hash table in the dynamic section.
//! 3. [`DynamicTables::find`] looks the name up: Bloom filter, bucket, chain.
//!
//! A library without a GNU hash table is skipped.

use std::ffi::{CStr, c_int, c_void};

/// The kind of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    Function,
    Data,
    ThreadLocal,
}

/// The kind of the symbol `name` for which `dlsym` returned `address`.
///
/// The search prefers a symbol at exactly this address, in any library. The tables do not have the address of an indirect
/// function (ifunc) or of a thread-local variable. So if no symbol is at the address, the first of these by that name
/// counts. Without any, the kind is data.
pub(crate) fn symbol_kind(name: &str, address: u64) -> SymbolKind {
    let mut search = SymbolSearch::new(name, address);
    // SAFETY: O2 - `search` outlives the call, and nothing else uses it meanwhile; the loader passes it to `visit` and keeps
    // neither pointer.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.at_address.or(search.without_address).unwrap_or(SymbolKind::Data)
}

/// The name of one thread-local variable that a library exports, if there is one. `dynamic` is the address of its dynamic
/// section and `base` its load address.
///
/// # Safety
/// - `base` and `dynamic` are the loader's values for one library.
/// - That library stays loaded during the call.
pub(super) unsafe fn exported_thread_local(base: u64, dynamic: *const c_void) -> Option<String> {
    // SAFETY: O5 - the caller holds the library, and the tables are dropped before this function returns.
    unsafe { DynamicTables::at(base, dynamic.cast()) }?.exported_thread_local()
}

/// Whether a library itself exports a symbol of this name. `dynamic` and `base` as for [`exported_thread_local`].
///
/// # Safety
/// As for [`exported_thread_local`].
#[cfg(feature = "unstable")]
pub(super) unsafe fn exports(base: u64, dynamic: *const c_void, name: &str) -> bool {
    let mut search = SymbolSearch::new(name, NO_ADDRESS);
    // SAFETY: O5 - the caller holds the library, and the tables are dropped before this function returns.
    if let Some(tables) = unsafe { DynamicTables::at(base, dynamic.cast()) } {
        tables.find(&mut search);
    }
    search.is_found
}

struct SymbolSearch<'a> {
    name: &'a [u8],
    hash: u32,
    address: u64,
    at_address: Option<SymbolKind>,
    /// The kind in the first library that has the name for a symbol without an address of its own.
    without_address: Option<SymbolKind>,
    /// Whether a library has the name.
    is_found: bool,
}

impl<'a> SymbolSearch<'a> {
    fn new(name: &'a str, address: u64) -> SymbolSearch<'a> {
        let name = name.as_bytes();
        let (at_address, without_address, is_found) = (None, None, false);
        SymbolSearch { name, hash: gnu_hash(name), address, at_address, without_address, is_found }
    }

    fn record(&mut self, base: u64, symbol: &libc::Elf64_Sym) {
        const STT_GNU_IFUNC: u8 = 10;
        let kind = kind(symbol);
        self.is_found = true;
        if kind == SymbolKind::ThreadLocal || symbol.st_info & 15 == STT_GNU_IFUNC {
            self.without_address.get_or_insert(kind);
        } else if base.wrapping_add(symbol.st_value) == self.address {
            self.at_address = Some(kind);
        }
    }
}

/// # Safety
/// - `info` is the loader's record of a loaded library.
/// - `search` is the pointer that `symbol_kind` passed.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: O5 - inside the loader's callback, so the record is readable. O2 - `search` is the local of `symbol_kind`, which
    // waits for this call and has no other reference in use.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<SymbolSearch>()) };
    // SAFETY: O5 - inside the loader's callback, so the library stays loaded; the tables are dropped before it returns.
    if let Some(tables) = unsafe { DynamicTables::of(info) } {
        tables.find(search);
    }
    search.at_address.is_some().into()
}

/// The dynamic symbol tables of a library, at their addresses in memory. The library must stay loaded while the value lives.
struct DynamicTables {
    base: u64,
    symbols: *const libc::Elf64_Sym,
    strings: *const u8,
    gnu_hash: *const u32,
}

impl DynamicTables {
    /// # Safety
    /// `info` is the loader's record of a library that stays loaded while the tables are used.
    unsafe fn of(info: &libc::dl_phdr_info) -> Option<DynamicTables> {
        const PT_DYNAMIC: u32 = 2;
        // SAFETY: O5 - the library is loaded, by contract; the record counts `dlpi_phnum` program headers at `dlpi_phdr`.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let dynamic = headers.iter().find(|header| header.p_type == PT_DYNAMIC)?;
        // A library may be mapped below the addresses that its file states. Then its load address wraps around.
        // SAFETY: O5 - the library is loaded, by contract; its program headers say where its dynamic section is.
        unsafe { DynamicTables::at(info.dlpi_addr, info.dlpi_addr.wrapping_add(dynamic.p_vaddr) as *const [u64; 2]) }
    }

    /// # Safety
    /// - `entry` is the first entry of the dynamic section of a library with the load address `base`.
    /// - The library stays loaded while the tables are used.
    unsafe fn at(base: u64, mut entry: *const [u64; 2]) -> Option<DynamicTables> {
        let (mut symbols, mut strings, mut gnu_hash) = (0, 0, 0);
        loop {
            // SAFETY: O5 - the dynamic section of a loaded library is readable up to its null entry, at which the loop ends.
            let [tag, value] = unsafe { entry.read_unaligned() };
            // glibc makes these values absolute when it loads a library. Other loaders and the kernel's vdso do not.
            let address = if value < base { base.wrapping_add(value) } else { value };
            match tag {
                0 => break,
                5 => strings = address,
                6 => symbols = address,
                0x6fff_fef5 => gnu_hash = address,
                _ => {}
            }
            // SAFETY: O5 - this entry is not the null entry, so another one follows in the section.
            entry = unsafe { entry.add(1) };
        }
        let is_complete = symbols != 0 && strings != 0 && gnu_hash != 0;
        is_complete.then_some(DynamicTables {
            base,
            symbols: symbols as _,
            strings: strings as _,
            gnu_hash: gnu_hash as _,
        })
    }

    /// Looks the name up in the hash table, as the loader does: Bloom filter, bucket, chain.
    fn find(&self, search: &mut SymbolSearch) {
        // SAFETY: O5 - the library is loaded while `self` lives. Every index is one that the hash table itself has: the
        // loader reads the same words for the same name.
        unsafe {
            let [buckets, first_symbol, bloom_words, bloom_shift] = self.gnu_hash.cast::<[u32; 4]>().read_unaligned();
            if buckets == 0 || bloom_words == 0 {
                return;
            }
            let bloom = self.gnu_hash.add(4).cast::<u64>();
            let word = bloom.add((search.hash / 64 % bloom_words) as usize).read_unaligned();
            let second = search.hash >> (bloom_shift % 32);
            let bits = 1 << (search.hash % 64) | 1 << (second % 64);
            if word & bits != bits {
                return;
            }
            let bucket = bloom.add(bloom_words as usize).cast::<u32>();
            let chain = bucket.add(buckets as usize);
            let mut index = bucket.add((search.hash % buckets) as usize).read_unaligned();
            if index < first_symbol {
                return;
            }
            loop {
                let hash = chain.add((index - first_symbol) as usize).read_unaligned();
                let symbol = self.symbols.add(index as usize).read_unaligned();
                if hash | 1 == search.hash | 1 && symbol.st_shndx != 0 && self.is_named(&symbol, search.name) {
                    search.record(self.base, &symbol);
                }
                if hash & 1 == 1 {
                    return;
                }
                index += 1;
            }
        }
    }

    /// Searches all chains for a thread-local variable.
    fn exported_thread_local(&self) -> Option<String> {
        // SAFETY: O5 - the library is loaded while `self` lives. Buckets and chains have the indices of its symbols, and a
        // symbol has the offset of its name, which is a C string in the string table.
        unsafe {
            let [buckets, first_symbol, bloom_words, _] = self.gnu_hash.cast::<[u32; 4]>().read_unaligned();
            let bucket = self.gnu_hash.add(4 + 2 * bloom_words as usize);
            let chain = bucket.add(buckets as usize);
            for number in 0..buckets {
                let mut index = bucket.add(number as usize).read_unaligned();
                while index >= first_symbol {
                    let symbol = self.symbols.add(index as usize).read_unaligned();
                    if symbol.st_shndx != 0 && kind(&symbol) == SymbolKind::ThreadLocal {
                        let name = CStr::from_ptr(self.strings.add(symbol.st_name as usize).cast());
                        return name.to_str().ok().map(str::to_string);
                    }
                    let is_last = chain.add((index - first_symbol) as usize).read_unaligned() & 1 == 1;
                    index = if is_last { 0 } else { index + 1 };
                }
            }
        }
        None
    }

    /// # Safety
    /// `symbol` is a symbol of this table.
    unsafe fn is_named(&self, symbol: &libc::Elf64_Sym, name: &[u8]) -> bool {
        // SAFETY: O5 - the name of the symbol is a C string in the string table. The comparison stops at the first
        // difference, and `name` has no null byte, so it never reads past the end of that string.
        unsafe {
            let start = self.strings.add(symbol.st_name as usize);
            name.iter().enumerate().all(|(at, byte)| start.add(at).read() == *byte) && start.add(name.len()).read() == 0
        }
    }
}

fn kind(symbol: &libc::Elf64_Sym) -> SymbolKind {
    const STT_FUNC: u8 = 2;
    const STT_TLS: u8 = 6;
    const STT_GNU_IFUNC: u8 = 10;
    match symbol.st_info & 15 {
        STT_FUNC | STT_GNU_IFUNC => SymbolKind::Function,
        STT_TLS => SymbolKind::ThreadLocal,
        _ => SymbolKind::Data,
    }
}

/// The address of a search in which only the name counts.
#[cfg(feature = "unstable")]
const NO_ADDRESS: u64 = 0;

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_symbol_is_that_in_the_table_of_its_library() {
        let kind = |name: &std::ffi::CStr| {
            symbol_kind(name.to_str().unwrap(), crate::os::process_symbol(name).unwrap_or_default())
        };
        assert_eq!(kind(c"printf"), SymbolKind::Function);
        assert_eq!(kind(c"memcpy"), SymbolKind::Function, "an indirect function");
        assert_eq!(kind(c"stdout"), SymbolKind::Data);
        assert_eq!(kind(c"errno"), SymbolKind::ThreadLocal);
        assert_eq!(symbol_kind("printf", 0x1234), SymbolKind::Data, "no library has the name at this address");
        assert_eq!(symbol_kind("no such symbol, anywhere", 0), SymbolKind::Data);
    }
    /// Symptom: a library that was mapped below the addresses in its file, as some kernels map their vdso, ended the process.
    #[test]
    fn a_library_below_the_addresses_of_its_file_is_read() {
        let names = b"\0f\0";
        let symbols = [[0u64; 3]; 2];
        let hash = [1u32, 1, 1, 0, 0, 0, 1, 1];
        // As in the file, whose addresses are higher than those in memory.
        let shift = 1u64 << 32;
        let of_file = |pointer: *const u8| pointer as u64 + shift;
        let dynamic = [
            [5, of_file(names.as_ptr())],
            [6, of_file(symbols.as_ptr().cast())],
            [0x6fff_fef5, of_file(hash.as_ptr().cast())],
            [0, 0],
        ];
        // SAFETY: O5 - no library: zeroes are a value of these C structs.
        let (mut header, mut info): (libc::Elf64_Phdr, libc::dl_phdr_info) = unsafe { std::mem::zeroed() };
        (header.p_type, header.p_vaddr) = (2, of_file(dynamic.as_ptr().cast()));
        (info.dlpi_addr, info.dlpi_phdr, info.dlpi_phnum) = (shift.wrapping_neg(), &header, 1);
        // SAFETY: O5 - the headers and the tables are those above, which live.
        let tables = unsafe { DynamicTables::of(&info) };
        assert!(tables.is_some_and(|tables| tables.strings == names.as_ptr()));
    }
}
