//! ClickHouse's vectorised expressions, by size.

use std::sync::OnceLock;

use crate::measure::scenario::to_text;
use crate::workloads::corpus::{self, Shape, Template};

/// ClickHouse's expressions: the 10th percentile, the median, the 90th percentile and the largest, with sizes in
/// between.
const SHAPES: [Shape; 9] = [
    shape(24, 0, 1, 0, 0),
    shape(60, 0, 1, 0, 0),
    shape(150, 1, 1, 0, 1),
    shape(240, 3, 1, 16, 1),
    shape(271, 4, 2, 16, 1),
    shape(420, 6, 2, 32, 2),
    shape(826, 15, 3, 104, 3),
    shape(1_500, 20, 3, 128, 3),
    shape(3_780, 33, 3, 329, 3),
];
/// The number of expressions of each shape, of a hundred.
pub const MIX: [u32; 9] = [10, 15, 15, 15, 15, 12, 10, 6, 2];

const fn shape(text: usize, relocations: usize, functions: usize, rodata: usize, hosts: usize) -> Shape {
    Shape { text, relocations, functions, rodata, hosts }
}

pub fn templates() -> Result<&'static [Template], String> {
    static TEMPLATES: OnceLock<Result<Vec<Template>, String>> = OnceLock::new();
    TEMPLATES.get_or_init(|| corpus::build(&SHAPES).map_err(to_text)).as_deref().map_err(String::clone)
}
