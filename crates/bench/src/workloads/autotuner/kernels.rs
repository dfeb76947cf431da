//! The functions that are replaced: GEMM micro-kernels.

use std::sync::OnceLock;

use crate::measure::scenario::to_text;
use crate::workloads::corpus::{self, Shape, Template};

/// Micro-kernels, from the smallest to the largest.
const SHAPES: [Shape; 6] = [
    shape(1_500, 1, 1),
    shape(2_600, 2, 1),
    shape(4_400, 3, 2),
    shape(8_000, 4, 2),
    shape(14_200, 5, 1),
    shape(26_500, 5, 2),
];
pub const FUNCTIONS: usize = 16;

const fn shape(text: usize, relocations: usize, hosts: usize) -> Shape {
    Shape { text, relocations, functions: 1, rodata: 64, hosts }
}

pub fn templates() -> Result<&'static [Template], String> {
    static TEMPLATES: OnceLock<Result<Vec<Template>, String>> = OnceLock::new();
    TEMPLATES.get_or_init(|| corpus::build(&SHAPES).map_err(to_text)).as_deref().map_err(String::clone)
}

/// The shape of a function.
pub fn template(templates: &[Template], function: usize) -> &Template {
    &templates[function % templates.len()]
}
