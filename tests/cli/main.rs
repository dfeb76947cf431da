//! The command line, as a stranger uses it: whole programs beside their natively linked twins, `inspect` beside `readelf`,
//! and every mistake that an object or a command line can make.

mod errors;
mod inspect;
mod native;
mod programs;
mod run;
