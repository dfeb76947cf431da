//! The costs of the kernel, the memory and the processors without a linker. They are lower bounds: for a linker that
//! maps each module separately, and for every linker (one copy of a module's bytes, one cache miss, two independent
//! threads).

use std::hash::BuildHasher;
use std::ptr;
use std::rc::Rc;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SectionKind};
use rustc_hash::FxBuildHasher;

use crate::measure::competitor::{COMPUTING, COPY, KERNEL, MEMORY, READING};
use crate::measure::rows;
use crate::measure::samples::{BATCH, Samples, median_nanoseconds, nanoseconds_each, rate_together, single};
use crate::measure::scenario::{Measures, Scenario, Unit};
use crate::measure::workload::Workload;
use crate::measure::workload_scenario::scenario;
use fastrand::Rng;
use jittison_test_support::bench::installed;
use jittison_test_support::bench::objects::Template;

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    let of = |group, competitor, round: fn(&Workload) -> Measures| scenario(group, competitor, workload, round);
    vec![
        of("link, small", KERNEL, mappings),
        of("link, small", COPY, copies),
        of("link, small", READING, |workload| reading(rows::LINK_SMALL, &workload.objects.small)),
        of("link, medium", READING, |workload| reading(rows::LINK_MEDIUM, &workload.objects.medium)),
        of("memory manager", KERNEL, mapping_alone),
        of("memory manager", COPY, copy_alone),
        of("remove", MEMORY, waits),
        of("threads", COMPUTING, computing),
    ]
}

/// One page each for code, constants and data, as JITLink allocates them.
const PAGES: usize = 3;
const PAGE: usize = 4096;
/// The content of a small module, in bytes.
const CONTENT: usize = 2_048;
const LIVE: usize = 1_000;

fn mappings(workload: &Workload) -> Measures {
    let content = [0x90; CONTENT / PAGES];
    let mut live = (0..LIVE).map(|_| Mapping::new(&content)).collect::<Result<Vec<Mapping>, String>>()?;
    let (mut links, mut removals, mut rng) = (Samples::default(), Samples::default(), Rng::with_seed(3));
    for _ in 0..workload.sizes.small_links / BATCH {
        let mut made = Vec::with_capacity(BATCH);
        links.batch(|links| (0..BATCH).for_each(|_| made.push(links.one(|| Mapping::new(&content)))));
        let made = made.into_iter().collect::<Result<Vec<Mapping>, String>>()?;
        let old: Vec<Mapping> = (0..BATCH).map(|_| live.swap_remove(rng.usize(..live.len()))).collect();
        removals.batch(|removals| old.into_iter().for_each(|old| removals.one(|| drop(old))));
        live.extend(made);
    }
    Ok(vec![links.into_measure(rows::LINK_SMALL.by(KERNEL)), removals.into_measure(rows::REMOVE.at(LIVE, KERNEL))])
}

/// Pages with different protections.
struct Mapping(*mut libc::c_void);

impl Mapping {
    fn new(content: &[u8]) -> Result<Mapping, String> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), PAGES * PAGE, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(format!("mmap failed: {}", std::io::Error::last_os_error()));
        }
        let mapping = Mapping(start);
        let protections = [libc::PROT_READ | libc::PROT_EXEC, libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE];
        for (index, protection) in protections.into_iter().enumerate() {
            let page = start.wrapping_byte_add(index * PAGE);
            // SAFETY: the content is shorter than a page; the page is ours and writable.
            unsafe { ptr::copy_nonoverlapping(content.as_ptr(), page.cast(), content.len()) };
            // SAFETY: a page of our mapping.
            if unsafe { libc::mprotect(page, PAGE, protection) } != 0 {
                return Err(format!("mprotect failed: {}", std::io::Error::last_os_error()));
            }
        }
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and no pointer into it remains.
        unsafe { libc::munmap(self.0, PAGES * PAGE) };
    }
}

fn copies(workload: &Workload) -> Measures {
    let each = copied(&workload.objects.small.instance(0).bytes);
    Ok(vec![single(rows::LINK_SMALL.by(COPY), Unit::Nanoseconds, each)])
}

/// The work that the objects' bytes require from every linker, without a session: copy every section into warm
/// memory, hash every symbol's name, read every relocation and write four bytes at its place.
fn reading(row: rows::Row, template: &Template) -> Measures {
    const BYTES_IN_ALL: usize = 32 << 20;
    let instances: Vec<_> = (0..BATCH as u32).map(|number| template.instance(number)).collect();
    let mut memory = vec![0; instances[0].bytes.len()];
    let mut samples = Samples::default();
    for _ in 0..BYTES_IN_ALL / memory.len() / BATCH {
        samples.batch(|samples| {
            instances.iter().try_for_each(|instance| samples.one(|| read_through(&instance.bytes, &mut memory)))
        })?;
    }
    std::hint::black_box(&memory);
    Ok(vec![samples.into_measure(row.by(READING))])
}

fn read_through(bytes: &[u8], memory: &mut [u8]) -> Result<(), String> {
    let object = ElfFile64::<Endianness>::parse(bytes).map_err(|error| error.to_string())?;
    let mut hash = 0;
    for symbol in object.symbols() {
        hash ^= FxBuildHasher.hash_one(symbol.name_bytes().unwrap_or_default()) ^ symbol.address();
    }
    let mut end = 0;
    for section in object.sections().filter(|section| section.kind() != SectionKind::Metadata) {
        let content = section.data().unwrap_or_default();
        let copy = &mut memory[end..end + content.len()];
        copy.copy_from_slice(content);
        for (offset, relocation) in section.relocations() {
            let value = relocation.addend() as u32 ^ hash as u32;
            let field = copy.get_mut(offset as usize..offset as usize + 4).ok_or("a relocation outside its section")?;
            field.copy_from_slice(&value.to_le_bytes());
        }
        end += content.len();
    }
    Ok(())
}

/// As many bytes as the memory managers write.
const INSTALLED: usize = installed::CODE + 2 * installed::CONSTANTS;

fn copy_alone(_: &Workload) -> Measures {
    let each = copied(&[0xc3; INSTALLED]);
    Ok(vec![single(rows::MANAGER.by(COPY), Unit::Nanoseconds, each)])
}

fn mapping_alone(workload: &Workload) -> Measures {
    let (content, mut samples) = ([0xc3; INSTALLED / PAGES], Samples::default());
    for _ in 0..workload.sizes.swaps / BATCH {
        samples.batch(|samples| (0..BATCH).try_for_each(|_| samples.one(|| Mapping::new(&content).map(drop))))?;
    }
    Ok(vec![samples.into_measure(rows::MANAGER.by(KERNEL))])
}

/// The time that the processor waits for one cache line, in as much memory as `removals_beside` small modules take.
/// Each line contains the position of the next. A removal of a random module has to follow such a chain of records, so
/// it takes at least one such wait per record.
fn waits(workload: &Workload) -> Measures {
    let wait =
        |live: &usize| single(rows::WAIT.at(*live, MEMORY), Unit::Nanoseconds, waiting_among(*live * EACH / LINE));
    Ok(workload.sizes.removals_beside.iter().map(wait).collect())
}

/// The size of a small module in memory, in bytes: see `rows::RESIDENT`.
const EACH: usize = 3_100;
const LINE: usize = 64;

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    next: u32,
}

/// Nanoseconds per step through `lines` cache lines, in random order.
fn waiting_among(lines: usize) -> f64 {
    let (mut order, mut rng): (Vec<u32>, _) = ((0..lines as u32).collect(), Rng::with_seed(11));
    rng.shuffle(&mut order);
    let mut memory = vec![Line { next: 0 }; lines];
    order.iter().zip(order.iter().cycle().skip(1)).for_each(|(line, next)| memory[*line as usize].next = *next);
    let mut at = 0;
    median_nanoseconds(1_000_000, |_| at = memory[std::hint::black_box(at) as usize].next)
}

/// Two independent threads: the best speedup that the processors allow.
fn computing(workload: &Workload) -> Measures {
    let (mut workers, operations) = ([Chains([1, 2, 3, 4]), Chains([5, 6, 7, 8])], workload.sizes.thread_churns);
    let work = |state: &mut Chains| {
        for _ in 0..operations * STEPS {
            state.0.iter_mut().for_each(|word| *word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17));
            std::hint::black_box(&mut *state);
        }
        Ok(())
    };
    let one = rate_together(&mut workers[..1], operations, work)?;
    let two = rate_together(&mut workers, operations, work)?;
    Ok(vec![single(rows::THREADS.by(COMPUTING), Unit::Ratio, two / one)])
}

/// Four dependency chains keep a processor as busy as well compiled code does. Aligned to its own cache line.
#[repr(align(128))]
struct Chains([u64; 4]);

/// Steps per operation; an operation takes about as long as a small link.
const STEPS: usize = 2_000;

/// Nanoseconds of one copy, from cache to cache.
fn copied(bytes: &[u8]) -> f64 {
    let mut copy = vec![0; bytes.len()];
    nanoseconds_each(1_000_000, |_| {
        copy.copy_from_slice(std::hint::black_box(bytes));
        std::hint::black_box(&mut copy);
    })
}
