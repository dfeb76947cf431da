//! PostgreSQL's modules, by class.

use std::sync::OnceLock;

use crate::workloads::corpus::{self, Shape, Template};

/// PostgreSQL's modules by class: a filter; a small join; a larger join; a join of eight tables; hundreds of
/// aggregates.
pub const CLASSES: [(&str, &[Shape]); 5] = [
    ("T", &[shape(680, 10, 3, 0, 4), shape(1_000, 10, 3, 0, 6), shape(1_400, 13, 3, 64, 5)]),
    ("S", &[shape(3_000, 40, 3, 128, 8), shape(5_900, 82, 4, 256, 12), shape(13_000, 100, 4, 256, 12)]),
    ("M", &[shape(7_600, 75, 9, 256, 8), shape(13_500, 112, 16, 512, 10), shape(26_000, 163, 29, 512, 12)]),
    ("L", &[shape(18_000, 175, 40, 512, 7), shape(41_000, 221, 40, 880, 7), shape(72_000, 430, 12, 512, 13)]),
    ("XL", &[shape(107_000, 1_100, 2, 256, 9), shape(223_000, 1_800, 2, 256, 9)]),
];
/// The number of modules of each class, of a hundred: an assumption.
pub const MIX: [u32; 5] = [30, 35, 25, 8, 2];

const fn shape(text: usize, relocations: usize, functions: usize, rodata: usize, hosts: usize) -> Shape {
    Shape { text, relocations, functions, rodata, hosts }
}

pub type ByClass = Vec<Vec<Template>>;

pub fn templates() -> Result<&'static ByClass, String> {
    static TEMPLATES: OnceLock<Result<ByClass, String>> = OnceLock::new();
    let build = || {
        let shapes: Vec<Shape> = CLASSES.iter().flat_map(|(_, shapes)| shapes.iter().copied()).collect();
        let mut templates = corpus::build(&shapes)?.into_iter();
        Ok(CLASSES.iter().map(|(_, shapes)| templates.by_ref().take(shapes.len()).collect()).collect())
    };
    TEMPLATES.get_or_init(build).as_ref().map_err(String::clone)
}

/// The same as shared libraries.
pub fn libraries() -> Result<&'static ByClass, String> {
    static LIBRARIES: OnceLock<Result<ByClass, String>> = OnceLock::new();
    let of_class = |class: &Vec<Template>| class.iter().map(Template::shared).collect();
    LIBRARIES.get_or_init(|| templates()?.iter().map(of_class).collect()).as_ref().map_err(String::clone)
}
