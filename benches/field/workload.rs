//! [`Workload`]: what all competitors link, and how often.
//!
//! The peers are programs of their own and get the very same objects, in a file: for each its sizes and the name's (4 bytes
//! each), argument and expected result (8 each), name, bytes. The first is the library that the others call.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::objects::{self, Instance, Objects, Template};
use crate::samples::BATCH;
use crate::scratch::Scratch;

/// What every entry is called with.
pub const ARGUMENT: u64 = 7;

pub struct Workload {
    pub objects: Objects,
    pub sizes: Sizes,
    /// Scratch space, deleted at the end.
    pub scratch: Scratch,
    small_file: OnceCell<PathBuf>,
    medium_file: OnceCell<PathBuf>,
    by_function: OnceCell<Objects>,
}

/// How much is done in a round.
pub struct Sizes {
    pub small_links: usize,
    pub medium_links: usize,
    /// Live modules beside which one is removed.
    pub removals_beside: &'static [usize],
    pub removals: usize,
    /// Live modules of which one is replaced.
    pub churns_of: &'static [usize],
    pub churns: usize,
    /// For each thread.
    pub thread_churns: usize,
    /// Symbols of which one is looked up.
    pub lookups_among: &'static [usize],
    pub lookups: usize,
    pub swaps: usize,
    /// Live modules whose memory is looked at.
    pub residents: &'static [usize],
}

impl Sizes {
    /// How many medium modules are live while others take their places, and how many do: all of them have names of their own.
    pub fn medium_replaced(&self) -> (usize, usize) {
        let live = self.medium_links / 3 / BATCH * BATCH;
        (live, self.medium_links - live)
    }
}

const FULL: Sizes = Sizes {
    small_links: 4_096,
    medium_links: 192,
    removals_beside: &[100, 1_000, 5_000, 20_000, 100_000],
    removals: 4_096,
    churns_of: &[100, 1_000, 10_000],
    churns: 8_192,
    thread_churns: 10_000,
    lookups_among: &[100, 1_000, 10_000, 100_000],
    lookups: 300_000,
    swaps: 4_096,
    residents: &[1_000, 5_000, 20_000, 100_000],
};

const QUICK: Sizes = Sizes {
    small_links: 1_024,
    medium_links: 96,
    removals_beside: &[100, 1_000, 5_000],
    removals: 1_024,
    churns_of: &[100, 1_000],
    churns: 2_048,
    thread_churns: 2_000,
    lookups_among: &[100, 1_000, 10_000],
    lookups: 100_000,
    swaps: 1_024,
    residents: &[1_000, 5_000],
};

/// More live modules than this need more mappings than Linux gives a process, if each has three.
pub const MOST_MAPPED: usize = 20_000;

impl Workload {
    pub fn new(objects: Objects, is_quick: bool) -> Result<Workload, String> {
        let scratch = Scratch::new()?;
        let sizes = if is_quick { QUICK } else { FULL };
        let (small_file, medium_file, by_function) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Ok(Workload { objects, sizes, scratch, small_file, medium_file, by_function })
    }

    /// The same code with a section for each function, compiled when first asked for.
    pub fn by_function(&self) -> Result<&Objects, String> {
        if let Some(objects) = self.by_function.get() {
            return Ok(objects);
        }
        let built = objects::build_by_function().ok_or("gcc does not make a section for each function")?;
        Ok(self.by_function.get_or_init(|| built))
    }

    /// Small instances for a peer's program, written when first asked for: as many as are live at most, and replaced beside.
    pub fn small_file(&self) -> Result<&Path, String> {
        let Sizes { churns_of, churns, small_links, residents, .. } = self.sizes;
        // Growth is seen over three churns.
        let most = self.replaced_instances().max(most_live(churns_of) + 3 * churns);
        let most = most.max(small_links).max(most_live(residents));
        self.file(&self.small_file, "small", &self.objects.small, most + SPARE)
    }

    /// How many a peer's program needs for removals and churns: as many as are live at most, and those in their places.
    pub fn replaced_instances(&self) -> usize {
        let Sizes { removals_beside, removals, churns_of, churns, .. } = self.sizes;
        (most_live(removals_beside) + removals).max(most_live(churns_of) + churns)
    }

    /// A file of as many instances of another small object.
    pub fn replaced_file<'a>(
        &self,
        place: &'a OnceCell<PathBuf>,
        name: &str,
        template: &Template,
    ) -> Result<&'a Path, String> {
        self.file(place, name, template, self.replaced_instances() + SPARE)
    }

    pub fn medium_file(&self) -> Result<&Path, String> {
        self.file(&self.medium_file, "medium", &self.objects.medium, self.sizes.medium_links + SPARE)
    }

    /// So many instances for a peer's program, written when first asked for.
    pub fn file<'a>(
        &self,
        place: &'a OnceCell<PathBuf>,
        name: &str,
        template: &Template,
        count: usize,
    ) -> Result<&'a Path, String> {
        if let Some(path) = place.get() {
            return Ok(path);
        }
        let path = self.scratch.path(name);
        let written = write_instances(&path, &self.objects.runtime, template, count);
        written.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        Ok(place.get_or_init(|| path))
    }
}

/// Of these counts, that which peers reach.
fn most_live(counts: &[usize]) -> usize {
    counts.iter().copied().filter(|count| *count <= MOST_MAPPED).max().unwrap_or(0)
}

/// Beyond those that are counted: the first of each run, and the last batch's.
const SPARE: usize = 100;

/// A file of one object and the library.
pub fn write_one(path: &Path, library: &[u8], object: &Instance, argument: u64) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write_object(&mut file, "", 0, 0, library)?;
    write_object(&mut file, &object.entry, argument, object.expected, &object.bytes)?;
    file.flush()
}

fn write_instances(path: &Path, runtime: &[u8], template: &Template, count: usize) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write_object(&mut file, "", 0, 0, runtime)?;
    for number in 0..count as u32 {
        let Instance { bytes, entry, expected } = template.instance(number);
        write_object(&mut file, &entry, ARGUMENT, expected, &bytes)?;
    }
    file.flush()
}

fn write_object(file: &mut impl Write, name: &str, argument: u64, expected: u64, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all(&(bytes.len() as u32).to_ne_bytes())?;
    file.write_all(&(name.len() as u32).to_ne_bytes())?;
    file.write_all(&argument.to_ne_bytes())?;
    file.write_all(&expected.to_ne_bytes())?;
    file.write_all(name.as_bytes())?;
    file.write_all(bytes)
}
