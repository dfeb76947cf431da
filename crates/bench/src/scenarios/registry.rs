//! The lists of all scenarios and of all competitors.

use std::path::Path;
use std::rc::Rc;

use super::{
    calls, floor, handles, large, linkers, memory_manager, million, orc, ours, sizes, start, system_calls, tableless,
};
use crate::measure::competitor::*;
use crate::measure::machine::output_of;
use crate::measure::scenario::Scenario;
use crate::measure::workload::Workload;
use crate::peers::cranelift::Cranelift;
use crate::peers::dlopen::Dlopen;
use crate::peers::elf_loader::ElfLoader;
use crate::peers::orc::version;
use crate::peers::ours::{Jittison, JittisonLazily};
use crate::workloads;

/// In the order of a round. Figures of one row are measured close to each other, under the same conditions. SQLite
/// takes part if it is one of the programs, which build its object.
pub fn scenarios(workload: &Rc<Workload>, peers: &Path, is_quick: bool, has_sqlite: bool) -> Vec<Box<dyn Scenario>> {
    let mut all = linkers::scenarios::<Jittison>(workload);
    all.extend(linkers::cold_links::<Jittison>(workload));
    all.push(linkers::small_links::<JittisonLazily>(workload));
    all.extend(linkers::cold_links::<JittisonLazily>(workload));
    all.extend(ours::scenarios(workload));
    all.extend(calls::scenarios(workload));
    all.extend(orc::scenarios(workload, peers));
    all.extend(linkers::small_scenarios::<Dlopen>(workload));
    all.extend(linkers::scenarios::<Cranelift>(workload));
    all.extend(linkers::scenarios::<ElfLoader>(workload));
    if has_sqlite {
        all.extend(large::scenarios(workload, peers));
    }
    all.extend(tableless::scenarios(workload, peers, is_quick));
    all.extend(floor::scenarios(workload));
    all.extend(handles::scenarios(workload));
    all.extend(memory_manager::scenarios(workload));
    all.extend(million::scenarios(workload, is_quick));
    all.extend(sizes::scenarios(workload, peers, is_quick));
    all.extend(system_calls::scenarios(workload, peers));
    all.extend(start::scenarios(workload, peers));
    all.extend(workloads::scenarios(is_quick));
    // A stable sort: the order within a group does not change.
    all.sort_by_cached_key(|scenario| group_position(&scenario.title()));
    all
}

const GROUPS: [&str; 12] = [
    "link",
    "remove",
    "size",
    "churn",
    "threads",
    "lookup",
    "patch",
    "dylib",
    "start",
    "memory manager",
    "memory",
    "workload",
];

/// Titles begin with their group; the first that fits counts. Other titles come last.
fn group_position(title: &str) -> usize {
    GROUPS.iter().position(|group| title.starts_with(group)).unwrap_or(GROUPS.len())
}

/// All competitors, even those that do not take part in a run.
pub fn competitors(peers: &Path) -> Vec<Competitor> {
    let glibc = output_of("getconf", &["GNU_LIBC_VERSION"]);
    let of = |name, version: &str, configuration| Competitor { name, version: version.to_string(), configuration };
    let mut all = vec![of(
        JITTISON,
        env!("CARGO_PKG_VERSION"),
        "Jit::new(): unwind tables registered, one tracker per module; for a million modules OnFull::OpenAnother",
    )];
    if let Some(version) = version(peers) {
        all.push(of(
            ORC_AS_LLJIT,
            &version,
            "InProcessMemoryManager, EHFrameRegistrationPlugin with EPCEHFrameRegistrar; no IR layer, no platform",
        ));
        all.push(of(
            ORC_AT_ITS_BEST,
            &version,
            "MapperJITLinkMemoryManager with slabs of 64 MiB, .eh_frame dropped (exceptions cannot pass through the code), \
             each object parsed once, glibc keeps its memory, names interned before lookups",
        ));
    }
    if peers.join("orc-jemalloc").exists() {
        let version = version(peers).unwrap_or_default();
        all.push(of(ORC_WITH_JEMALLOC, &version, "as at its best, with jemalloc 5 instead of glibc's allocator"));
    }
    all.push(of(
        DLOPEN,
        &glibc,
        "one shared object per module, built before the clock starts, each in its own file; dlopen, dlsym, dlclose",
    ));
    all.push(of(
        CRANELIFT_JIT,
        cranelift_jit::VERSION,
        "the small object's machine code by define_function_bytes, nothing compiled while the clock runs; one JITModule per module in \
         an arena, free_memory; no unwind tables in any row, so its figures without tables are those of the other rows",
    ));
    all.push(of(
        ELF_LOADER,
        "see Cargo.lock",
        "the same objects from memory, with relaxable GOT loads converted to plain ones; dropped; registers no unwind tables",
    ));
    all.push(of(KERNEL, "the kernel", "three pages mapped, written, protected, unmapped; no linker"));
    all.push(of(EPOCH, "see Cargo.lock", "a handle of its own collector, pinned and unpinned"));
    all.push(of(POINTER, "-", "a call through the function's address, which does not keep the code"));
    all.push(of(COMPUTING, "-", "multiplications in registers, in two independent threads"));
    all.push(of(MEMORY, "-", "cache lines in random order, each with the position of the next"));
    all.push(of(
        READING,
        "the crate `object`, see Cargo.lock",
        "sections copied, names hashed, relocations read and a word written for each; no session, no memory manager, no lookups",
    ));
    all.push(of(COPY, &glibc, "memcpy of the same number of bytes, from cache to cache"));
    all
}
