//! The figures of a run as tables, as JSON, as a page, as a picture and as the table of BENCHMARKS.md.

mod amounts;
pub mod figures;
mod goals;
pub mod html;
pub mod markdown;
pub mod picture;
mod plots;
mod spread;
