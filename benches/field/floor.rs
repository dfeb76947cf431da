//! What the kernel, the memory and the processors take, without any linker: a floor for those who map each module by itself, and
//! the floor of all: one copy of a module's bytes, a wait for a line of memory, and two threads that have nothing in common.

use std::hash::BuildHasher;
use std::ptr;
use std::rc::Rc;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SectionKind};
use rustc_hash::FxBuildHasher;

use crate::dice::Dice;
use crate::installed;
use crate::objects::Template;
use crate::rows;
use crate::samples::{BATCH, Samples, nanoseconds_each, nanoseconds_mostly, rate_together, single};
use crate::scenario::{Measure, Scenario, Unit};
use crate::scenarios::scenario;
use crate::workload::Workload;

type Measures = Result<Vec<Measure>, String>;

pub const KERNEL: &str = "mmap alone";
pub const COPY: &str = "one copy";
pub const READING: &str = "reading alone";
pub const COMPUTING: &str = "computing alone";
pub const MEMORY: &str = "memory alone";

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    let of = |group, who, round: fn(&Workload) -> Measures| scenario(group, who, workload, round);
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

/// A page each for code, constants and data, as JITLink has them.
const PAGES: usize = 3;
const PAGE: usize = 4096;
/// So much is in a small module, in all.
const CONTENT: usize = 2_048;
const LIVE: usize = 1_000;

fn mappings(workload: &Workload) -> Measures {
    let content = [0x90; CONTENT / PAGES];
    let mut live = (0..LIVE).map(|_| Mapping::new(&content)).collect::<Result<Vec<Mapping>, String>>()?;
    let (mut links, mut removals, mut dice) = (Samples::default(), Samples::default(), Dice(3));
    for _ in 0..workload.sizes.small_links / BATCH {
        let mut made = Vec::with_capacity(BATCH);
        links.batch(|links| (0..BATCH).for_each(|_| made.push(links.one(|| Mapping::new(&content)))));
        let made = made.into_iter().collect::<Result<Vec<Mapping>, String>>()?;
        let old: Vec<Mapping> = (0..BATCH).map(|_| live.swap_remove(dice.roll(live.len()))).collect();
        removals.batch(|removals| old.into_iter().for_each(|old| removals.one(|| drop(old))));
        live.extend(made);
    }
    Ok(vec![links.into_measure(rows::LINK_SMALL.by(KERNEL)), removals.into_measure(rows::REMOVE.at(LIVE, KERNEL))])
}

/// Pages with protections of their own.
struct Mapping(*mut libc::c_void);

impl Mapping {
    fn new(content: &[u8]) -> Result<Mapping, String> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a mapping of its own, wherever there is room.
        let start = unsafe { libc::mmap(ptr::null_mut(), PAGES * PAGE, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(format!("no mapping: {}", std::io::Error::last_os_error()));
        }
        let mapping = Mapping(start);
        let protections = [libc::PROT_READ | libc::PROT_EXEC, libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE];
        for (index, protection) in protections.into_iter().enumerate() {
            let page = start.wrapping_byte_add(index * PAGE);
            // SAFETY: the content is shorter than a page, and this one is ours and writable.
            unsafe { ptr::copy_nonoverlapping(content.as_ptr(), page.cast(), content.len()) };
            // SAFETY: a page of ours.
            if unsafe { libc::mprotect(page, PAGE, protection) } != 0 {
                return Err(format!("no protection: {}", std::io::Error::last_os_error()));
            }
        }
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and nobody has a pointer into it any more.
        unsafe { libc::munmap(self.0, PAGES * PAGE) };
    }
}

fn copies(workload: &Workload) -> Measures {
    let each = copied(&workload.objects.small.instance(0).bytes);
    Ok(vec![single(rows::LINK_SMALL.by(COPY), Unit::Nanoseconds, each)])
}

/// What the objects' bytes ask of anybody who links them, and nothing of what a session is for: every section copied into memory
/// that is warm, every symbol's name hashed, every relocation read and four bytes written at its place.
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
        let place = &mut memory[end..end + content.len()];
        place.copy_from_slice(content);
        for (offset, relocation) in section.relocations() {
            let value = relocation.addend() as u32 ^ hash as u32;
            let field =
                place.get_mut(offset as usize..offset as usize + 4).ok_or("a relocation outside its section")?;
            field.copy_from_slice(&value.to_le_bytes());
        }
        end += content.len();
    }
    Ok(())
}

/// As much as the memory managers are given to write.
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

/// How long the processor waits for a line of memory somewhere in as much as so many small modules take, each said by the one
/// before: a removal at random has to come from what it was told to what it takes back, and cannot do so in fewer steps than
/// there are records between them.
fn waits(workload: &Workload) -> Measures {
    let wait =
        |live: &usize| single(rows::WAIT.at(*live, MEMORY), Unit::Nanoseconds, waiting_among(*live * EACH / LINE));
    Ok(workload.sizes.removals_beside.iter().map(wait).collect())
}

/// What a small module takes, in bytes: see `rows::RESIDENT`.
const EACH: usize = 3_100;
const LINE: usize = 64;

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    next: u32,
}

/// Nanoseconds for each step through so many lines, in no order.
fn waiting_among(lines: usize) -> f64 {
    let (mut order, mut dice): (Vec<u32>, _) = ((0..lines as u32).collect(), Dice(11));
    (1..lines).rev().for_each(|last| order.swap(last, dice.roll(last + 1)));
    let mut memory = vec![Line { next: 0 }; lines];
    order.iter().zip(order.iter().cycle().skip(1)).for_each(|(line, next)| memory[*line as usize].next = *next);
    let mut at = 0;
    nanoseconds_mostly(1_000_000, |_| at = memory[std::hint::black_box(at) as usize].next)
}

/// Two threads that have nothing in common: more than this the processors do not give.
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

/// Four chains, which keep a processor as busy as code does that was compiled well. In a line of its own.
#[repr(align(128))]
struct Chains([u64; 4]);

/// In one operation, which then takes about as long as a small link.
const STEPS: usize = 2_000;

/// Nanoseconds of one copy, from cache to cache.
fn copied(bytes: &[u8]) -> f64 {
    let mut copy = vec![0; bytes.len()];
    nanoseconds_each(1_000_000, |_| {
        copy.copy_from_slice(std::hint::black_box(bytes));
        std::hint::black_box(&mut copy);
    })
}
