//! [`Plan`]: which modules are added, the same ones for each loader.

use std::sync::OnceLock;

use crate::measure::scenario::to_text;
use crate::workloads::chance::log_normal;
use crate::workloads::corpus::{self, Shape, Template};
use fastrand::Rng;

/// Bytes of code in a module: the median of CPython's, and the deviation that gives their mean of 5.2 KB.
const MEDIAN: f64 = 2_048.0;
const DEVIATION: f64 = 1.38;
/// The sizes of the templates; a module uses the nearest one.
const SIZES: [usize; 12] = [128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072, 250_000];

/// The modules to add, with their sizes and numbers.
pub struct Plan<'a> {
    templates: &'a [Template],
    rng: Rng,
    next_number: u32,
}

impl<'a> Plan<'a> {
    pub fn new(templates: &'a [Template]) -> Plan<'a> {
        Plan { templates, rng: Rng::with_seed(97), next_number: 0 }
    }

    pub fn next(&mut self) -> (&'a Template, u32) {
        let size = log_normal(&mut self.rng, MEDIAN, DEVIATION);
        let distance = |at: usize| (SIZES[at] as f64 / size).ln().abs();
        let nearest = (0..SIZES.len()).min_by(|&a, &b| distance(a).total_cmp(&distance(b))).unwrap_or(0);
        self.next_number += 1;
        (&self.templates[nearest], self.next_number)
    }
}

/// The prefix of all rows of a variant.
pub fn variant(live: usize, threads: usize) -> String {
    format!("{live} modules, added by {threads}")
}

pub fn templates() -> Result<&'static [Template], String> {
    static TEMPLATES: OnceLock<Result<Vec<Template>, String>> = OnceLock::new();
    let shape = |text: usize| Shape {
        text,
        relocations: text / 100,
        functions: (text / 1_000).clamp(1, 20),
        rodata: (text / 16).min(1_024),
        hosts: (text / 400).clamp(1, 12),
    };
    TEMPLATES.get_or_init(|| corpus::build(&SIZES.map(shape)).map_err(to_text)).as_deref().map_err(String::clone)
}
