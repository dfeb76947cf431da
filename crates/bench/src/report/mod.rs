//! The figures of a run as tables, as JSON, as a page and as a picture.

pub mod figures;
mod goals;
pub mod html;
pub mod picture;
mod svg;
