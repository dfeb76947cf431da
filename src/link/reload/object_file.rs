//! [`ObjectFile`]: the tables of an object, as far as a reload needs them.

use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, Sym as _};

use crate::arch::{Arch, EdgeKind};
use crate::error::Result;
use crate::link::elf::{ElfObject, Header, LE, shf, shn, sht, st};

/// An object whose tables are read.
pub(super) struct ObjectFile<'a> {
    pub(super) name: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) arch: Arch,
    pub(super) sections: Vec<Section<'a>>,
    pub(super) symbols: Vec<Symbol<'a>>,
    /// Offset in bytes of the section headers.
    pub(super) headers_at: usize,
    /// The index of the section that holds the symbols, and of the one that holds their names.
    pub(super) symbol_table: usize,
    pub(super) name_table: usize,
    /// For each section: its functions and data symbols, by offset.
    in_section: Vec<Vec<usize>>,
}

pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) class: Class,
    pub(super) sh_type: u32,
    pub(super) flags: u64,
    /// Size in bytes.
    pub(super) size: u64,
    /// Empty for zero-filled sections.
    pub(super) content: &'a [u8],
    pub(super) relocations: Vec<Relocation>,
    /// Of a relocation section: the section whose relocations it has.
    pub(super) relocated: Option<usize>,
}

/// What a section is to a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Code,
    Variables(VariableKind),
    /// Loaded, and not written by the program. Includes data that only relocations write.
    Constants,
    /// Lists of initialisers and finalisers.
    Initializers,
    /// Unwind tables.
    Unwind,
    /// Not loaded.
    Metadata,
}

/// The kind of memory of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariableKind {
    Data,
    ZeroFilled,
    ThreadLocalData,
    ThreadLocalZeroFilled,
}

impl VariableKind {
    /// The section that compilers use for it.
    pub(crate) fn section(self) -> &'static str {
        match self {
            VariableKind::Data => ".data",
            VariableKind::ZeroFilled => ".bss",
            VariableKind::ThreadLocalData => ".tdata",
            VariableKind::ThreadLocalZeroFilled => ".tbss",
        }
    }

    pub(crate) fn is_thread_local(self) -> bool {
        matches!(self, VariableKind::ThreadLocalData | VariableKind::ThreadLocalZeroFilled)
    }
}

pub(super) struct Symbol<'a> {
    pub(super) name: &'a str,
    pub(super) place: Place,
    /// `STT_*`.
    pub(super) kind: u8,
    /// `STB_*`.
    pub(super) binding: u8,
    pub(super) value: u64,
    pub(super) size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Undefined,
    Absolute,
    Common,
    Section(usize),
}

pub(super) struct Relocation {
    /// Offset in bytes of the entry in the object.
    pub(super) at: usize,
    /// Offset in bytes of the field in its section.
    pub(super) offset: u64,
    pub(super) r_type: u32,
    /// `None` for a type without an edge.
    pub(super) kind: Option<EdgeKind>,
    pub(super) symbol: usize,
    pub(super) addend: i64,
}

impl Symbol<'_> {
    pub(super) fn is_local(&self) -> bool {
        self.binding == st::BIND_LOCAL
    }

    /// Whether no other object may define it.
    pub(super) fn is_strong(&self) -> bool {
        !self.is_local() && !self.is_weak()
    }

    /// Whether another definition may replace it.
    pub(super) fn is_weak(&self) -> bool {
        matches!(self.binding, st::BIND_WEAK | st::BIND_GNU_UNIQUE)
    }

    /// The name, without the number that gcc appends to `static` variables of functions (`count.0`). The number may differ
    /// in the next version.
    pub(super) fn key(&self) -> &str {
        match self.name.rsplit_once('.') {
            Some((key, number))
                if self.is_local() && !key.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                key
            }
            _ => self.name,
        }
    }

    fn is_variable(&self) -> bool {
        match self.kind {
            st::TYPE_OBJECT | st::TYPE_TLS => true,
            st::TYPE_NOTYPE => !self.is_local() && !self.name.is_empty(),
            _ => false,
        }
    }
}

/// Whether a mangled name of C++ has the number of a lambda or of an unnamed type (Itanium C++ ABI, 5.1.8: `Ul…E_`, `Ut_`). In
/// the next version another one may have that number.
pub(super) fn is_numbered(name: &str) -> bool {
    let after_digits = |text: &str| text.trim_start_matches(|letter: char| letter.is_ascii_digit()).starts_with('_');
    let is_lambda = |rest: &str| rest.split('E').skip(1).any(after_digits);
    name.starts_with("_Z") && (name.split("Ul").skip(1).any(is_lambda) || name.split("Ut").skip(1).any(after_digits))
}

/// The mangled name of a `static` variable of a C++ function, without the number that tells variables of one name apart
/// (Itanium C++ ABI, 5.1.7: `_0`, `__12_`).
pub(super) fn without_discriminator(name: &str) -> &str {
    if !name.starts_with("_ZZ") {
        return name;
    }
    let without_digits = name.trim_end_matches('_').trim_end_matches(|letter: char| letter.is_ascii_digit());
    match without_digits.len() == name.trim_end_matches('_').len() {
        true => name,
        false => without_digits.strip_suffix("__").or(without_digits.strip_suffix('_')).unwrap_or(name),
    }
}

impl Relocation {
    /// What has to be added to the addend to get a distance in the target.
    fn bias(&self) -> i64 {
        match self.kind {
            Some(EdgeKind::Delta32 | EdgeKind::Branch32) => 4,
            _ => 0,
        }
    }
}

impl<'a> ObjectFile<'a> {
    /// Reads the tables.
    ///
    /// # Errors
    /// The bytes are not an object, or it has more sections than a symbol can name, or relocations without addends or compact
    /// ones.
    pub(super) fn read(name: &'a str, bytes: &'a [u8]) -> Result<ObjectFile<'a>> {
        let object = ElfObject::open(name, bytes)?;
        let header = Header::parse(bytes).map_err(|error| object.malformed(error))?;
        let mut file = ObjectFile {
            name,
            bytes,
            arch: object.arch,
            sections: Vec::with_capacity(object.sections.len()),
            symbols: Vec::with_capacity(object.symbols.all.len()),
            headers_at: header.e_shoff(LE) as usize,
            symbol_table: 0,
            name_table: 0,
            in_section: Vec::new(),
        };
        for (index, header) in object.sections.iter().enumerate() {
            if header.sh_type(LE).0 == sht::SYMTAB {
                (file.symbol_table, file.name_table) = (index, header.sh_link(LE) as usize);
            }
            file.sections.push(Section::read(&object, header)?);
        }
        if file.symbol_table == 0 || file.name_table == 0 || file.name_table >= file.sections.len() {
            return Err(object.malformed("it has no symbol table with names"));
        }
        // A new symbol names its section in 16 bits.
        if file.sections.len() > usize::from(shn::RESERVED) {
            return Err(object.unsupported("more than 65,280 sections in an object that is reloaded", "", 0, ""));
        }
        for (index, symbol) in object.symbols.all.iter().enumerate() {
            let section = object.symbols.section(symbol, index).map_err(|error| object.malformed(error))?;
            let place = match (section, symbol.st_shndx(LE).0) {
                (Some(section), _) if section >= file.sections.len() => {
                    return Err(object.malformed("a symbol is in a section that does not exist"));
                }
                (Some(section), _) => Place::Section(section),
                (None, shn::COMMON) => Place::Common,
                (None, shn::UNDEF) => Place::Undefined,
                (None, _) => Place::Absolute,
            };
            file.symbols.push(Symbol {
                name: object.symbol_name(symbol)?,
                place,
                kind: symbol.st_type().0,
                binding: symbol.st_bind().0,
                value: symbol.st_value(LE),
                size: symbol.st_size(LE),
            });
        }
        file.read_relocations(&object)?;
        file.sort_symbols();
        Ok(file)
    }

    fn read_relocations(&mut self, object: &ElfObject<'a>) -> Result<()> {
        for header in object.sections.iter() {
            let target = header.sh_info(LE) as usize;
            match header.sh_type(LE).0 {
                sht::RELA => {}
                sht::CREL | sht::REL if self.sections.get(target).is_some_and(Section::is_loaded) => {
                    let what = "relocations that are compact or without addends, in an object that is reloaded";
                    return Err(object.unsupported(what, object.section_name(header)?, 0, ""));
                }
                _ => continue,
            }
            if target >= self.sections.len() {
                return Err(object.malformed("relocations for a section that does not exist"));
            }
            let Some((entries, _)) = header.rela(LE, object.bytes).map_err(|error| object.malformed(error))? else {
                continue;
            };
            let start = header.sh_offset(LE) as usize;
            for (index, entry) in entries.iter().enumerate() {
                let (symbol, r_type) = (entry.r_sym(LE, false) as usize, entry.r_type(LE, false).0);
                if symbol >= self.symbols.len() {
                    return Err(object.malformed("a relocation refers to a symbol that does not exist"));
                }
                self.sections[target].relocations.push(Relocation {
                    at: start + index * RELA_SIZE,
                    offset: entry.r_offset(LE),
                    r_type,
                    kind: object.arch.kind_of(r_type),
                    symbol,
                    addend: entry.r_addend(LE),
                });
            }
        }
        Ok(())
    }

    /// The place that a relocation refers to, if its symbol is defined in a section of the object: the section, and the
    /// distance from its start. The distance may be outside of the section.
    pub(super) fn target(&self, relocation: &Relocation) -> Option<(usize, i64)> {
        let symbol = &self.symbols[relocation.symbol];
        let Place::Section(section) = symbol.place else { return None };
        Some((section, (symbol.value as i64).wrapping_add(relocation.addend).wrapping_add(relocation.bias())))
    }

    /// The functions that the object defines, by symbol.
    pub(super) fn functions(&self) -> impl Iterator<Item = (usize, usize, &Symbol<'a>)> {
        self.symbols.iter().enumerate().filter_map(|(index, symbol)| match symbol.place {
            Place::Section(section) if symbol.kind == st::TYPE_FUNC && self.sections[section].class == Class::Code => {
                Some((index, section, symbol))
            }
            _ => None,
        })
    }

    /// The sections that hold variables, with the index of each.
    pub(super) fn variable_sections(&self) -> impl Iterator<Item = (usize, VariableKind)> {
        self.sections.iter().enumerate().filter_map(|(index, section)| match section.class {
            Class::Variables(kind) if section.size > 0 => Some((index, kind)),
            _ => None,
        })
    }

    /// The data symbols of a section by offset, with the index of each.
    pub(super) fn data_symbols(&self, section: usize) -> impl Iterator<Item = (usize, &Symbol<'a>)> {
        let all = self.in_section[section].iter().map(|symbol| (*symbol, &self.symbols[*symbol]));
        all.filter(|(_, symbol)| symbol.is_variable())
    }

    /// The relocations of sections that are loaded, with the index of each section.
    pub(super) fn loaded_relocations(&self) -> impl Iterator<Item = (usize, &Relocation)> {
        let loaded = self.sections.iter().enumerate().filter(|(_, section)| section.is_loaded());
        loaded.flat_map(|(index, section)| section.relocations.iter().map(move |relocation| (index, relocation)))
    }

    /// The function or the variable that has the byte at `offset` of a section. `None` if `is_meant` is false for it.
    pub(super) fn symbol_at(
        &self,
        section: usize,
        offset: u64,
        is_meant: impl Fn(&Symbol<'a>) -> bool,
    ) -> Option<(usize, &Symbol<'a>)> {
        let sorted = &self.in_section[section];
        let end = sorted.partition_point(|symbol| self.symbols[*symbol].value <= offset);
        let start = self.symbols[*sorted[..end].last()?].value;
        let first = sorted.partition_point(|symbol| self.symbols[*symbol].value < start);
        let at_start = sorted[first..end].iter().map(|symbol| (*symbol, &self.symbols[*symbol]));
        let inside = offset - start;
        at_start.filter(|(_, symbol)| inside < symbol.size || inside == 0).find(|(_, symbol)| is_meant(symbol))
    }

    /// The function that has the byte at `offset` of a section.
    pub(super) fn function_at(&self, section: usize, offset: u64) -> Option<&Symbol<'a>> {
        self.symbol_at(section, offset, |symbol| symbol.kind == st::TYPE_FUNC).map(|(_, symbol)| symbol)
    }

    fn sort_symbols(&mut self) {
        self.in_section = vec![Vec::new(); self.sections.len()];
        for (index, symbol) in self.symbols.iter().enumerate() {
            if let Place::Section(section) = symbol.place
                && (symbol.kind == st::TYPE_FUNC || symbol.is_variable())
            {
                self.in_section[section].push(index);
            }
        }
        let symbols = &self.symbols;
        self.in_section.iter_mut().for_each(|section| section.sort_by_key(|symbol| symbols[*symbol].value));
    }
}

impl<'a> Section<'a> {
    fn read(object: &ElfObject<'a>, header: &'a crate::link::elf::SectionHeader) -> Result<Section<'a>> {
        let (name, sh_type, flags) = (object.section_name(header)?, header.sh_type(LE).0, header.sh_flags(LE).0);
        let is_relocations = matches!(sh_type, sht::RELA | sht::REL | sht::CREL);
        let content = match sh_type {
            sht::NOBITS => &[][..],
            _ => header.data(LE, object.bytes).map_err(|error| object.malformed(error))?,
        };
        Ok(Section {
            name,
            class: class_of(name, sh_type, flags, object.is_loaded(header), object.arch),
            sh_type,
            flags,
            size: header.sh_size(LE),
            content,
            relocations: Vec::new(),
            relocated: is_relocations.then(|| header.sh_info(LE) as usize),
        })
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.class != Class::Metadata
    }

    /// Whether it lists the room for hooks that `-fpatchable-function-entry` makes.
    pub(super) fn lists_room(&self) -> bool {
        self.name == "__patchable_function_entries"
    }

    pub(super) fn is_writable(&self) -> bool {
        self.flags & shf::WRITE != 0
    }

    /// Whether the section holds texts that end with a zero byte, which linkers may merge.
    pub(super) fn has_texts(&self) -> bool {
        self.flags & SHF_STRINGS != 0
    }
}

fn class_of(name: &str, sh_type: u32, flags: u64, is_loaded: bool, arch: Arch) -> Class {
    let is_list = matches!(sh_type, sht::INIT_ARRAY | sht::FINI_ARRAY | sht::PREINIT_ARRAY);
    let has_stem = |stem: &str| name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let is_any = |stems: &[&str]| stems.iter().any(|stem| has_stem(stem));
    match flags & shf::TLS != 0 {
        _ if !is_loaded => Class::Metadata,
        _ if arch.is_unwind_section(sh_type) || is_any(&[".eh_frame", ".gcc_except_table"]) => Class::Unwind,
        _ if is_list || is_any(&[".init_array", ".fini_array", ".ctors", ".dtors", ".init", ".fini"]) => {
            Class::Initializers
        }
        _ if flags & shf::EXECINSTR != 0 => Class::Code,
        _ if flags & shf::WRITE == 0 || flags & shf::LINK_ORDER != 0 || is_any(&[".data.rel.ro"]) => Class::Constants,
        // The address of a type or of a personality routine, for unwind tables.
        _ if name.contains(".DW.ref.") => Class::Constants,
        true if sh_type == sht::NOBITS => Class::Variables(VariableKind::ThreadLocalZeroFilled),
        true => Class::Variables(VariableKind::ThreadLocalData),
        false if sh_type == sht::NOBITS => Class::Variables(VariableKind::ZeroFilled),
        false => Class::Variables(VariableKind::Data),
    }
}

/// `SHF_STRINGS`.
const SHF_STRINGS: u64 = 0x20;
/// Size in bytes of an entry of a relocation table.
pub(super) const RELA_SIZE: usize = 24;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_mangled_names_are_found() {
        for name in [
            "_ZZ5storevENKUlvE_clEv",
            "_ZZZ3runENKUlvE0_clEvE1n",
            "_ZZ1fiENKUlliE12_clEli",
            "_ZNUt_1fEv",
            "_ZNUt3_1fEv",
        ] {
            assert!(is_numbered(name), "{name}");
        }
        for name in ["_Z5Ulrichv", "_Z7doUtilsv", "_ZN4Ulam4UtahEv", "Ul_E_", "run"] {
            assert!(!is_numbered(name), "{name}");
        }
    }

    #[test]
    fn discriminators_are_left_out() {
        let names = [
            ("_ZZ3runE1n", "_ZZ3runE1n"),
            ("_ZZ3runE1n_0", "_ZZ3runE1n"),
            ("_ZZ3runE1n_9", "_ZZ3runE1n"),
            ("_ZZ3runE1n__12_", "_ZZ3runE1n"),
            ("_ZGVZ3runE1n_0", "_ZGVZ3runE1n_0"),
            ("_Z3run_0", "_Z3run_0"),
            ("n_0", "n_0"),
        ];
        for (name, expected) in names {
            assert_eq!(without_discriminator(name), expected);
        }
    }
}
