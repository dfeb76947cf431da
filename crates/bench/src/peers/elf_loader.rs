//! [`ElfLoader`]: elf_loader, a loader for ELF files, written in Rust, that also accepts relocatable objects.
//!
//! It links the same objects as jittison and ORC, from memory, with one change. It does not know the two relocation
//! types for GOT loads that a linker may relax. Before the clock starts, these are replaced by the older type, which
//! has the same meaning and does not change the instruction. The clock covers loading, relocation and the lookup of
//! the entry's symbol. A removal is the drop of the object. It resolves imports in a module of names and addresses.
//! It registers no unwind tables, and shares symbols between objects only on request.

use std::ffi::CStr;

use elf_loader::image::{LoadedObject, ModuleHandle, SyntheticModule, SyntheticSymbol};
use elf_loader::input::ElfBinary;
use elf_loader::object::{SectionGroups, SectionLifetime};
use elf_loader::os::ProtFlags;
use elf_loader::{AddressSpaceId, Domain, Loader, LoaderRun, LocalScope, ModuleScope, Relocator};
use jittison::base::ExecutorAddr;
use object::LittleEndian;
use object::elf::{FileHeader64, R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX, R_X86_64_REX_GOTPCRELX, Rela64};
use object::read::elf::{FileHeader, SectionHeader};

use super::host_functions::HostFunctions;
use super::linker::Linker;
use crate::measure::checks::Run;
use crate::measure::competitor::ELF_LOADER;
use crate::measure::scenario::to_text;
use crate::measure::workload::Workload;
use jittison_test_support::bench::objects::Instance;

pub struct ElfLoader {
    loader: LoaderRun<'static>,
    relocator: Relocator,
    scope: LocalScope,
    // The last field, because the scope contains its addresses.
    _host: HostFunctions,
}

impl Linker for ElfLoader {
    const NAME: &'static str = ELF_LOADER;

    /// The object without relaxable loads.
    type Input = Vec<u8>;
    type Live = LoadedObject;

    fn new(workload: &Workload) -> Result<ElfLoader, String> {
        let (host, domain) = (HostFunctions::open(workload)?, Domain::native(AddressSpaceId::PROCESS));
        let symbol = |(name, address): &(std::ffi::CString, ExecutorAddr)| {
            SyntheticSymbol::function(name.as_c_str() as &CStr, address.value() as usize as *const ())
        };
        // Every object refers to this name, but none of ours has a relocation against it; elf_loader still needs a
        // definition.
        let got =
            SyntheticSymbol::object(c"_GLOBAL_OFFSET_TABLE_", (&raw const NO_TABLE).cast(), size_of_val(&NO_TABLE));
        let module = SyntheticModule::new(&domain, "host", host.all.iter().map(symbol).chain([got]));
        let mut group = ModuleScope::new(domain.id());
        group.replace([ModuleHandle::from(module)]).map_err(to_text)?;
        let scope = LocalScope::from_group(group);
        let loader = LOADER.run(domain).with_object_section_groups(section_groups());
        Ok(ElfLoader { loader, relocator: Relocator::new(), scope, _host: host })
    }

    fn prepare(&mut self, instance: &Instance) -> Result<Vec<u8>, String> {
        without_relaxable_loads(&instance.bytes)
    }

    fn link(&mut self, instance: &Instance, bytes: &Vec<u8>) -> Result<(ExecutorAddr, LoadedObject), String> {
        let file = ElfBinary::new(instance.entry.as_str(), bytes);
        let raw = self.loader.load_object(file).map_err(to_text)?;
        let run = self.relocator.run(raw).with_local_scope(self.scope.clone()).map_err(to_text)?;
        let object = run.relocate().map_err(to_text)?;
        // SAFETY: the entries of all our objects have this signature.
        let symbol = unsafe { object.get::<Run>(&instance.entry) }.map_err(to_text)?;
        let address = symbol.ok_or_else(|| format!("there is no symbol {}", instance.entry))?.into_raw() as u64;
        Ok((ExecutorAddr::new(address), object))
    }
}

static NO_TABLE: u64 = 0;

static LOADER: Loader = Loader::new();

/// The groups into which the crate puts sections, in the order of its internal numbers. The crate defines them inside
/// its assertions on these numbers, so an optimised build has no groups and rejects every object.
fn section_groups() -> SectionGroups {
    let mut groups = SectionGroups::default();
    let (read, write, execute) = (ProtFlags::PROT_READ, ProtFlags::PROT_WRITE, ProtFlags::PROT_EXEC);
    let accesses = [read, read | write, read | execute, read | write | execute];
    for (order, access) in accesses.into_iter().enumerate() {
        if groups.define(access, access, order, SectionLifetime::Core).index() > order {
            return SectionGroups::default();
        }
    }
    // Memory that the crate needs while it links.
    groups.define(read | write, read | write, usize::MAX, SectionLifetime::Init);
    groups
}

/// The object with the older relocation type for GOT loads.
fn without_relaxable_loads(object: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = object.to_vec();
    let header = FileHeader64::<LittleEndian>::parse(object).map_err(to_text)?;
    for section in header.section_headers(LittleEndian, object).map_err(to_text)? {
        let Some((relocations, _)) = section.rela(LittleEndian, object).map_err(to_text)? else { continue };
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

/// The offset of the type in a relocation: the lower half of the second word.
const KIND_OFFSET: usize = 8;
