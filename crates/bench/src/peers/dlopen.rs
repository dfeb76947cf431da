//! The competitor dlopen: the system's dynamic linker. Each small module is a shared object in its own file, which is
//! opened and closed. The time for making the file does not count; a compiler that uses dlopen would have to pay for
//! it.

use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use jittison::base::ExecutorAddr;

use crate::measure::rows;
use crate::measure::samples::{BATCH, Samples, single};
use crate::measure::scenario::{Measure, Scenario, Unit};
use crate::measure::workload::Workload;
use crate::peers::ours::check;
use crate::peers::system_library::{SystemLibrary, c_path};
use crate::scenarios::registry::scenario;
use fastrand::Rng;
use jittison_test_support::bench::objects::{Instance, Template};
use jittison_test_support::bench::resident::Resident;

type Measures = Result<Vec<Measure>, String>;

pub const NAME: &str = "dlopen";

/// The loader searches lists, so more live modules would take minutes.
const MAX_LIVE: usize = 1_000;

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    let of = |group, round: fn(&Workload) -> Measures| scenario(group, NAME, workload, round);
    vec![of("link, small", links), of("remove", remove), of("churn", churn), of("memory, live", memory)]
}

/// Copies of one shared object, which differ only in their file names.
struct Files<'a> {
    directory: &'a Path,
    bytes: Vec<u8>,
    entry: CString,
    instance: Instance,
    number: usize,
    // The library that they call. The last field: it is dropped after its users.
    _library: SystemLibrary,
}

impl<'a> Files<'a> {
    fn new(workload: &'a Workload, template: &Template) -> Result<Files<'a>, String> {
        let directory = workload.scratch.path();
        let library = build_shared_object(directory, "runtime", &workload.objects.runtime)?;
        let instance = template.instance(0);
        let bytes = std::fs::read(build_shared_object(directory, "module", &instance.bytes)?)
            .map_err(|error| error.to_string())?;
        let entry = CString::new(instance.entry.as_str()).map_err(|error| error.to_string())?;
        let library = SystemLibrary::open(&c_path(&library)?, libc::RTLD_GLOBAL)?;
        Ok(Files { directory, bytes, entry, instance, number: 0, _library: library })
    }

    /// Writes a file that the loader has never opened.
    fn next(&mut self) -> Result<PathBuf, String> {
        self.number += 1;
        let path = self.directory.join(format!("module-{}.so", self.number));
        std::fs::write(&path, &self.bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    fn make_batch(&mut self) -> Result<Vec<PathBuf>, String> {
        (0..BATCH).map(|_| self.next()).collect()
    }

    fn link(&self, path: &CStr) -> Result<(ExecutorAddr, SystemLibrary), String> {
        let opened = SystemLibrary::open(path, libc::RTLD_LOCAL)?;
        Ok((opened.symbol(&self.entry)?, opened))
    }

    fn link_checked(&self, path: &CStr) -> Result<SystemLibrary, String> {
        let (address, opened) = self.link(path)?;
        check(address, &self.instance)?;
        Ok(opened)
    }

    fn fill(&mut self, count: usize) -> Result<Vec<SystemLibrary>, String> {
        let mut open_next = || {
            let path = self.next()?;
            let opened = self.link_checked(&c_path(&path)?)?;
            unlink(&[path]);
            Ok(opened)
        };
        (0..count).map(|_| open_next()).collect()
    }
}

/// Links an object into a shared object with gcc.
pub fn build_shared_object(directory: &Path, name: &str, object: &[u8]) -> Result<PathBuf, String> {
    let (from, to) = (directory.join(format!("{name}.o")), directory.join(format!("{name}.so")));
    std::fs::write(&from, object).map_err(|error| format!("{}: {error}", from.display()))?;
    let status = Command::new("gcc").args(["-shared", "-o"]).arg(&to).arg(&from).status();
    let is_linked = status.is_ok_and(|status| status.success());
    is_linked.then_some(to).ok_or_else(|| format!("gcc cannot link {name} into a shared object"))
}

/// Removes the names of files; an open file needs none.
fn unlink(paths: &[PathBuf]) {
    paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
}

fn links(workload: &Workload) -> Measures {
    let mut files = Files::new(workload, &workload.objects.small)?;
    let (mut links, mut live) = (Samples::default(), Vec::new());
    while live.len() < workload.sizes.small_links.min(MAX_LIVE) {
        let batch = files.make_batch()?;
        let paths: Vec<CString> = batch.iter().map(|path| c_path(path)).collect::<Result<_, _>>()?;
        let mut linked = Vec::with_capacity(BATCH);
        links.batch(|links| paths.iter().for_each(|path| linked.push(links.one(|| files.link(path)))));
        for linked in linked {
            let (address, opened) = linked?;
            check(address, &files.instance)?;
            live.push(opened);
        }
        unlink(&batch);
    }
    let (mut removals, mut rng) = (Samples::default(), Rng::with_seed(7));
    removals.batch(|removals| {
        while !live.is_empty() {
            let opened = live.swap_remove(rng.usize(..live.len()));
            removals.one(|| drop(opened));
        }
    });
    Ok(vec![links.into_measure(rows::LINK_SMALL.by(NAME)), removals.into_measure(rows::REMOVE_SMALL.by(NAME))])
}

fn remove(workload: &Workload) -> Measures {
    removals(workload, &workload.objects.small)
}

/// Measures the same as [`ours::removals`](crate::peers::ours::removals); [`churns`] likewise.
pub fn removals(workload: &Workload, template: &Template) -> Measures {
    let counts = workload.sizes.removals_beside.iter().filter(|live| **live <= MAX_LIVE);
    counts.map(|live| remove_beside(workload, template, *live)).collect()
}

fn remove_beside(workload: &Workload, template: &Template, count: usize) -> Result<Measure, String> {
    let mut files = Files::new(workload, template)?;
    let (mut live, mut removals, mut rng) = (files.fill(count)?, Samples::default(), Rng::with_seed(3));
    for _ in 0..workload.sizes.removals / BATCH {
        let victims: Vec<SystemLibrary> = (0..BATCH).map(|_| live.swap_remove(rng.usize(..live.len()))).collect();
        removals.batch(|removals| victims.into_iter().for_each(|victim| removals.one(|| drop(victim))));
        live.extend(files.fill(BATCH)?);
    }
    Ok(removals.into_measure(rows::REMOVE.at(count, NAME)))
}

fn churn(workload: &Workload) -> Measures {
    churns(workload, &workload.objects.small)
}

pub fn churns(workload: &Workload, template: &Template) -> Measures {
    let mut measures = Vec::new();
    for live in workload.sizes.churns_of.iter().filter(|live| **live <= MAX_LIVE) {
        let samples = churn_of(workload, template, *live)?;
        measures.push(single(rows::CHURN_RATE.at(*live, NAME), Unit::PerSecond, samples.per_second()));
        measures.push(samples.into_measure(rows::CHURN.at(*live, NAME)));
    }
    Ok(measures)
}

fn churn_of(workload: &Workload, template: &Template, count: usize) -> Result<Samples, String> {
    let mut files = Files::new(workload, template)?;
    let (mut live, mut samples, mut rng) = (files.fill(count)?, Samples::default(), Rng::with_seed(3));
    for _ in 0..workload.sizes.churns / BATCH {
        let batch = files.make_batch()?;
        let paths: Vec<CString> = batch.iter().map(|path| c_path(path)).collect::<Result<_, _>>()?;
        samples.batch(|samples| {
            paths.iter().try_for_each(|path| {
                samples.one(|| {
                    live[rng.usize(..count)] = files.link_checked(path)?;
                    Ok::<(), String>(())
                })
            })
        })?;
        unlink(&batch);
    }
    Ok(samples)
}

fn memory(workload: &Workload) -> Measures {
    let mut files = Files::new(workload, &workload.objects.small)?;
    let before = Resident::measure()?;
    let live = files.fill(MAX_LIVE)?;
    let full = Resident::measure()?;
    drop(live);
    let left = Resident::measure()?;
    let each = |more: f64| more / MAX_LIVE as f64;
    Ok(vec![
        single(rows::RESIDENT.at(MAX_LIVE, NAME), Unit::Bytes, each(full.bytes - before.bytes)),
        single(rows::LEFTOVER.at(MAX_LIVE, NAME), Unit::Bytes, left.bytes - before.bytes),
        single(rows::MAPPINGS.at(MAX_LIVE, NAME), Unit::Count, each(full.mappings - before.mappings)),
    ])
}
