//! The figures of a run as tables, as JSON, as a page and as a picture.

mod amounts;
pub mod figures;
mod goals;
pub mod html;
pub mod picture;
mod plots;
mod spread;
