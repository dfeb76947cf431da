//! What the libraries of this process say of their symbols: functions, data, or thread-local.
//!
//! `dlsym` gives an address and nothing else, and for a thread-local variable one that is the calling thread's only. The
//! dynamic symbol tables say which is which; they are found through the GNU hash table that every library of the last two
//! decades has.

use std::ffi::{CStr, c_int, c_void};

/// What a symbol stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    Function,
    Data,
    TlsIndex,
}

/// What the loader's answer for `name` stands for: the symbol of that name at `address`, whichever library defines it. One
/// that has no such address is chosen when the program runs, or is every thread's own.
pub(crate) fn symbol_kind(name: &str, address: u64) -> SymbolKind {
    let hash = gnu_hash(name.as_bytes());
    let mut search = Search { name: name.as_bytes(), hash, address, at_address: None, elsewhere: None };
    // SAFETY: O2, O5 - the callback gets `search` back, which outlives the call, and each library's own headers.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.at_address.or(search.elsewhere).unwrap_or(SymbolKind::Data)
}

/// The name of a thread-local variable that a library exports, if it exports any. `dynamic` is the library's dynamic
/// section, `base` where it was loaded.
///
/// # Safety
/// Both are the loader's own words for one library, which stays loaded meanwhile.
pub(super) unsafe fn exported_thread_local(base: u64, dynamic: *const c_void) -> Option<String> {
    // SAFETY: O5 - by contract.
    unsafe { Tables::at(base, dynamic.cast()) }?.exported_thread_local()
}

struct Search<'a> {
    name: &'a [u8],
    hash: u32,
    address: u64,
    at_address: Option<SymbolKind>,
    /// Of the first library that has the name for something without an address of its own.
    elsewhere: Option<SymbolKind>,
}

impl Search<'_> {
    fn note(&mut self, base: u64, symbol: &libc::Elf64_Sym) {
        const STT_GNU_IFUNC: u8 = 10;
        let kind = kind(symbol);
        if kind == SymbolKind::TlsIndex || symbol.st_info & 15 == STT_GNU_IFUNC {
            self.elsewhere.get_or_insert(kind);
        } else if base.wrapping_add(symbol.st_value) == self.address {
            self.at_address = Some(kind);
        }
    }
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: O5 - what `symbol_kind` passed, and what the loader passes: valid for this call.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    // SAFETY: O5 - the record of a library that is loaded during the call.
    if let Some(tables) = unsafe { Tables::of(info) } {
        tables.find(search);
    }
    search.at_address.is_some().into()
}

/// A library's tables, where it has them mapped. The library stays loaded as long as the value lives.
struct Tables {
    base: u64,
    symbols: *const libc::Elf64_Sym,
    strings: *const u8,
    gnu_hash: *const u32,
}

impl Tables {
    /// # Safety
    /// The loader's record of a library that stays loaded while the tables are used.
    unsafe fn of(info: &libc::dl_phdr_info) -> Option<Tables> {
        const PT_DYNAMIC: u32 = 2;
        // SAFETY: O5 - the loader's array of program headers, of the length that it says.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let dynamic = headers.iter().find(|header| header.p_type == PT_DYNAMIC)?;
        // SAFETY: O5 - the dynamic section that the library's own headers name.
        unsafe { Tables::at(info.dlpi_addr, (info.dlpi_addr + dynamic.p_vaddr) as *const [u64; 2]) }
    }

    /// # Safety
    /// `entry` is the first of the dynamic section of a library that was loaded at `base`, and stays loaded while the tables
    /// are used.
    unsafe fn at(base: u64, mut entry: *const [u64; 2]) -> Option<Tables> {
        let (mut symbols, mut strings, mut gnu_hash) = (0, 0, 0);
        loop {
            // SAFETY: O5 - the dynamic section of a loaded library is mapped, and ends with a null entry.
            let [tag, value] = unsafe { entry.read_unaligned() };
            // glibc makes these absolute when it loads a library; other loaders, and the kernel's vdso, do not.
            let address = if value < base { base + value } else { value };
            match tag {
                0 => break,
                5 => strings = address,
                6 => symbols = address,
                0x6fff_fef5 => gnu_hash = address,
                _ => {}
            }
            // SAFETY: O5 - not the last entry.
            entry = unsafe { entry.add(1) };
        }
        let all = symbols != 0 && strings != 0 && gnu_hash != 0;
        all.then_some(Tables { base, symbols: symbols as _, strings: strings as _, gnu_hash: gnu_hash as _ })
    }

    /// Follows the hash table as the loader does: bloom filter, bucket, chain.
    fn find(&self, search: &mut Search) {
        // SAFETY: O5 - the loader itself relies on the tables being what their headers say.
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
                    search.note(self.base, &symbol);
                }
                if hash & 1 == 1 {
                    return;
                }
                index += 1;
            }
        }
    }

    /// Goes over all chains.
    fn exported_thread_local(&self) -> Option<String> {
        // SAFETY: O5 - as in `find`.
        unsafe {
            let [buckets, first_symbol, bloom_words, _] = self.gnu_hash.cast::<[u32; 4]>().read_unaligned();
            let bucket = self.gnu_hash.add(4 + 2 * bloom_words as usize);
            let chain = bucket.add(buckets as usize);
            for number in 0..buckets {
                let mut index = bucket.add(number as usize).read_unaligned();
                while index >= first_symbol {
                    let symbol = self.symbols.add(index as usize).read_unaligned();
                    if symbol.st_shndx != 0 && kind(&symbol) == SymbolKind::TlsIndex {
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
    /// O5: `symbol` is of this table.
    unsafe fn is_named(&self, symbol: &libc::Elf64_Sym, name: &[u8]) -> bool {
        // SAFETY: O5 - names are C strings inside the string table; the comparison stops at the first difference, and a
        // name holds no null.
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
        STT_TLS => SymbolKind::TlsIndex,
        _ => SymbolKind::Data,
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_say_what_their_symbols_are() {
        let kind = |name: &std::ffi::CStr| {
            symbol_kind(name.to_str().unwrap(), crate::os::process_symbol(name).unwrap_or_default())
        };
        assert_eq!(kind(c"printf"), SymbolKind::Function);
        assert_eq!(kind(c"memcpy"), SymbolKind::Function, "chosen when the program runs");
        assert_eq!(kind(c"stdout"), SymbolKind::Data);
        assert_eq!(kind(c"errno"), SymbolKind::TlsIndex);
        assert_eq!(symbol_kind("printf", 0x1234), SymbolKind::Data, "another of that name, of which nothing is known");
        assert_eq!(symbol_kind("no such symbol, anywhere", 0), SymbolKind::Data);
    }
}
