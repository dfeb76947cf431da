//! Tests of the command-line tool. `run` is compared with natively linked programs, and `inspect` with `readelf`. Also `map`,
//! `check`, and the errors of objects and command lines.

mod cargo;
mod cargo_example;
mod cargo_kinds;
mod cargo_refused;
mod check;
mod database;
mod errors;
mod inputs;
mod inspect;
mod map;
mod native;
mod programs;
mod reload_points;
mod run;
mod tui;
mod watch;
