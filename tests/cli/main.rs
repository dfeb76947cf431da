//! The command line, as a stranger uses it: whole programs beside their natively linked twins, `inspect` beside `readelf`, `map`,
//! and every mistake that an object or a command line can make.

mod check;
mod errors;
mod inputs;
mod inspect;
mod map;
mod native;
#[path = "../support/process.rs"]
#[allow(dead_code)]
mod process;
mod programs;
mod run;
