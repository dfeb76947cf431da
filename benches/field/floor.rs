//! What the kernel, the memory and the processors take, without any linker: a floor for those who map each module by itself, and
//! the floor of all: one copy of a module's bytes, and two threads that have nothing in common.

use std::ptr;
use std::rc::Rc;

use crate::dice::Dice;
use crate::installed;
use crate::rows;
use crate::samples::{BATCH, Samples, nanoseconds_each, rate_together, single};
use crate::scenario::{Measure, Scenario, Unit};
use crate::scenarios::scenario;
use crate::workload::Workload;

type Measures = Result<Vec<Measure>, String>;

pub const KERNEL: &str = "mmap alone";
pub const COPY: &str = "one copy";
pub const COMPUTING: &str = "computing alone";

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    let of = |group, who, round: fn(&Workload) -> Measures| scenario(group, who, workload, round);
    vec![
        of("link, small", KERNEL, mappings),
        of("link, small", COPY, copies),
        of("memory manager", KERNEL, mapping_alone),
        of("memory manager", COPY, copy_alone),
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
