//! elf_loader: a loader of ELF files written in Rust, that takes relocatable objects as well.
//!
//! It links the very objects that jittison and ORC link, from memory, but for one thing: it does not know the two relocations for
//! a load through the GOT that a linker may turn into something shorter, so these are given their older number ahead of the
//! clock, which means the same and leaves the instruction as it is. The clock runs over the loading, the relocation and the look
//! at the entry's symbol. A removal is the drop of the object. It resolves what the modules call in a module of names and
//! addresses, registers no unwind tables, and shares no symbols between objects unless told which.

use std::ffi::CStr;

use ::elf_loader::image::{LoadedObject, ModuleHandle, SyntheticModule, SyntheticSymbol};
use ::elf_loader::input::ElfBinary;
use ::elf_loader::object::{SectionGroups, SectionLifetime};
use ::elf_loader::os::ProtFlags;
use ::elf_loader::{AddressSpaceId, Domain, Loader, LoaderRun, LocalScope, ModuleScope, Relocator};
use jittison::base::ExecutorAddr;
use object::LittleEndian;
use object::elf::{FileHeader64, R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX, R_X86_64_REX_GOTPCRELX, Rela64};
use object::read::elf::{FileHeader, SectionHeader};

use crate::host_functions::HostFunctions;
use crate::linker::Linker;
use crate::objects::{Instance, Objects};
use crate::ours::Run;
use crate::scenario::words;
use crate::workload::Workload;

pub const WHO: &str = "elf_loader";

pub struct ElfLoader {
    loader: LoaderRun<'static>,
    relocator: Relocator,
    scope: LocalScope,
    // Last: the scope has addresses in it.
    _host: HostFunctions,
}

pub struct Input {
    bytes: Vec<u8>,
    entry: String,
}

impl Linker for ElfLoader {
    const WHO: &'static str = WHO;

    type Input = Input;
    type Live = LoadedObject;

    fn new(workload: &Workload) -> Result<ElfLoader, String> {
        let (host, domain) = (HostFunctions::open(workload)?, Domain::native(AddressSpaceId::PROCESS));
        let symbol = |(name, address): &(std::ffi::CString, ExecutorAddr)| {
            SyntheticSymbol::function(name.as_c_str() as &CStr, address.value() as usize as *const ())
        };
        // Every object has this name, and none of ours a relocation against it; here it has to be something nevertheless.
        let got =
            SyntheticSymbol::object(c"_GLOBAL_OFFSET_TABLE_", (&raw const NO_TABLE).cast(), size_of_val(&NO_TABLE));
        let module = SyntheticModule::new(&domain, "host", host.all.iter().map(symbol).chain([got]));
        let mut group = ModuleScope::new(domain.id());
        group.replace([ModuleHandle::from(module)]).map_err(words)?;
        let scope = LocalScope::from_group(group);
        let loader = LOADER.run(domain).with_object_section_groups(section_groups());
        Ok(ElfLoader { loader, relocator: Relocator::new(), scope, _host: host })
    }

    fn objects(workload: &Workload) -> Result<&Objects, String> {
        Ok(&workload.objects)
    }

    fn prepare(&self, instance: &Instance) -> Result<Input, String> {
        Ok(Input { bytes: without_relaxable_loads(&instance.bytes)?, entry: instance.entry.clone() })
    }

    fn link(&mut self, input: &Input) -> Result<(ExecutorAddr, LoadedObject), String> {
        let file = ElfBinary::new(input.entry.as_str(), &input.bytes);
        let raw = self.loader.load_object(file).map_err(words)?;
        let run = self.relocator.run(raw).with_local_scope(self.scope.clone()).map_err(words)?;
        let object = run.relocate().map_err(words)?;
        // SAFETY: a function of this signature, in all our objects.
        let symbol = unsafe { object.get::<Run>(&input.entry) }.map_err(words)?;
        let address = symbol.ok_or_else(|| format!("no {}", input.entry))?.into_raw() as u64;
        Ok((ExecutorAddr::new(address), object))
    }
}

static NO_TABLE: u64 = 0;

static LOADER: Loader = Loader::new();

/// The groups in which the crate puts sections, in the order of its own numbers. It defines them where it asserts those numbers,
/// and so has none in an optimised build: every object is then refused.
fn section_groups() -> SectionGroups {
    let mut groups = SectionGroups::default();
    let (read, write, execute) = (ProtFlags::PROT_READ, ProtFlags::PROT_WRITE, ProtFlags::PROT_EXEC);
    let kept = [read, read | write, read | execute, read | write | execute];
    for (order, access) in kept.into_iter().enumerate() {
        if groups.define(access, access, order, SectionLifetime::Core).index() > order {
            return SectionGroups::default();
        }
    }
    // What it needs while it links.
    groups.define(read | write, read | write, usize::MAX, SectionLifetime::Init);
    groups
}

/// The object with the older number of relocations that load from the GOT.
fn without_relaxable_loads(object: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = object.to_vec();
    let header = FileHeader64::<LittleEndian>::parse(object).map_err(words)?;
    for section in header.section_headers(LittleEndian, object).map_err(words)? {
        let Some((relocations, _)) = section.rela(LittleEndian, object).map_err(words)? else { continue };
        let start = section.sh_offset.get(LittleEndian) as usize;
        for (index, relocation) in relocations.iter().enumerate() {
            let kind = relocation.r_type(LittleEndian, false);
            if matches!(kind, R_X86_64_GOTPCRELX | R_X86_64_REX_GOTPCRELX) {
                let at = start + index * size_of::<Rela64<LittleEndian>>() + KIND_OFFSET;
                bytes[at..at + 4].copy_from_slice(&R_X86_64_GOTPCREL.0.to_le_bytes());
            }
        }
    }
    Ok(bytes)
}

/// Where in a relocation its kind is: the lower half of the second word.
const KIND_OFFSET: usize = 8;
