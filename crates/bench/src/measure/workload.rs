//! [`Workload`]: what all competitors link, and how often.
//!
//! The peers are separate programs. They get the same objects in a file. An entry of the file has the sizes of the
//! object and of its name (4 bytes each), argument and expected result (8 bytes each), the name and the object. The
//! first entry is the library that the other objects call.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::checks::ARGUMENT;
use super::samples::BATCH;
use super::scenario::to_text;
use jittison_test_support::bench::objects::{self, Instance, Objects, Template};
use tempfile::TempDir;

pub struct Workload {
    pub objects: Objects,
    pub sizes: Sizes,
    /// A temporary directory.
    pub scratch: TempDir,
    small_file: OnceCell<PathBuf>,
    medium_file: OnceCell<PathBuf>,
    by_function: OnceCell<Objects>,
}

/// How much is done in a round.
pub struct Sizes {
    pub small_links: usize,
    pub medium_links: usize,
    /// Numbers of live modules during removals.
    pub removals_beside: &'static [usize],
    pub removals: usize,
    /// Numbers of live modules during replacements.
    pub churns_of: &'static [usize],
    pub churns: usize,
    /// Per thread.
    pub thread_churns: usize,
    /// Numbers of symbols during lookups.
    pub lookups_among: &'static [usize],
    pub lookups: usize,
    pub swaps: usize,
    /// Numbers of live modules whose memory is measured.
    pub residents: &'static [usize],
}

impl Sizes {
    /// The number of medium modules that are live during replacements, and the number of replacements. All modules
    /// have different names.
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

/// With three mappings per module, more live modules would exceed the mappings that Linux allows a process.
pub const MAX_MAPPED: usize = 20_000;

/// The modules that are live while others are replaced, to measure growth.
pub const LIVE_WHILE_GROWING: usize = 1_000;

impl Workload {
    pub fn new(objects: Objects, is_quick: bool) -> Result<Workload, String> {
        let scratch = tempfile::tempdir().map_err(to_text)?;
        let sizes = if is_quick { QUICK } else { FULL };
        let (small_file, medium_file, by_function) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Ok(Workload { objects, sizes, scratch, small_file, medium_file, by_function })
    }

    /// The same code with a section for each function, compiled at first use.
    pub fn by_function(&self) -> Result<&Objects, String> {
        if let Some(objects) = self.by_function.get() {
            return Ok(objects);
        }
        let built = objects::build_by_function().ok_or("gcc does not make a section for each function")?;
        Ok(self.by_function.get_or_init(|| built))
    }

    /// Instances of the small object for a peer's program, written at first use: the maximum number of live ones, and
    /// the replacements.
    pub fn small_file(&self) -> Result<&Path, String> {
        let Sizes { churns_of, churns, small_links, residents, .. } = self.sizes;
        // Growth is measured over three churns.
        let max = self.replaced_instances().max(max_live(churns_of) + 3 * churns);
        let max = max.max(small_links).max(max_live(residents));
        self.file(&self.small_file, "small", &self.objects.small, max + SPARE)
    }

    /// The instances that a peer's program needs for removals and churns: the maximum number of live ones, and the
    /// replacements.
    pub fn replaced_instances(&self) -> usize {
        let Sizes { removals_beside, removals, churns_of, churns, .. } = self.sizes;
        (max_live(removals_beside) + removals).max(max_live(churns_of) + churns)
    }

    /// A file with [`replaced_instances`](Self::replaced_instances) instances of another small object.
    pub fn replaced_file<'a>(
        &self,
        file: &'a OnceCell<PathBuf>,
        name: &str,
        template: &Template,
    ) -> Result<&'a Path, String> {
        self.file(file, name, template, self.replaced_instances() + SPARE)
    }

    pub fn medium_file(&self) -> Result<&Path, String> {
        self.file(&self.medium_file, "medium", &self.objects.medium, self.sizes.medium_links + SPARE)
    }

    /// A file of `count` instances for a peer's program, written at first use.
    pub fn file<'a>(
        &self,
        file: &'a OnceCell<PathBuf>,
        name: &str,
        template: &Template,
        count: usize,
    ) -> Result<&'a Path, String> {
        if let Some(path) = file.get() {
            return Ok(path);
        }
        let path = self.scratch.path().join(name);
        let written = write_instances(&path, &self.objects.runtime, template, count);
        written.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        Ok(file.get_or_init(|| path))
    }
}

/// The largest of these counts that peers reach.
fn max_live(counts: &[usize]) -> usize {
    counts.iter().copied().filter(|count| *count <= MAX_MAPPED).max().unwrap_or(0)
}

/// More than the counted instances: the first of each run, and the rest of the last batch.
const SPARE: usize = 100;

/// Writes a file with the library and one object.
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
