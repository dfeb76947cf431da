//! Objects that replace an earlier one while the program runs: what changed, what keeps its place, and the bytes to link.
//!
//! [`Reloader`](crate::Reloader) calls this room. Nothing here is linked. The result of a plan is the object again, with another
//! symbol table, so the ordinary link and its verifier work on it:
//!
//! | in the object | in the bytes that are linked |
//! |---|---|
//! | a function `f` that others can name | `f` is undefined, so it binds to the stub `f`; its code is the hidden symbol `f.code` |
//! | the address of a `static` function `f`, in a relocation | binds to the stub `OBJECT:f` |
//! | a call of a `static` function | stays direct |
//! | writable data, first version | the hidden symbol `OBJECT:SECTION` is its start |
//! | writable data that exists | is not loaded; global names are undefined, other references go to `OBJECT:SECTION` |
//! | a `static` variable that a hook moves | the new one is loaded; the old one stays where it is, and is forgotten |
//! | lists of initialisers and finalisers, later versions | are not loaded |
//! | a private function: what has another signature than its stub; of Rust also a closure, and what returns one | stays as it is: calls of its own version are direct |
//! | COMDAT groups | are dissolved; their definitions are weak anyway |
//!
//! # Why sections, not variables
//! A compiler names a `static` variable in a relocation by its section and a distance. The distance may be that of the end of
//! another variable, or lie before the variable. So a section of variables keeps its place as a whole, if the same variables
//! are at the same distances. With `-fdata-sections` each variable has a section of its own, so they come and go one by one.
//!
//! | file | holds |
//! |---|---|
//! | `object_file.rs` | the tables of an object, as far as a plan needs them |
//! | `refusal.rs` | why a reload is refused |
//! | `rust_names.rs` | what names of a Rust object say: closures, numbers of `impl` blocks |
//! | `types.rs` | [`Types`](types::Types): layouts and signatures |
//! | `debug_info.rs` | debug information, as far as it says something of types |
//! | `rust_types.rs`, `c_types.rs` | the types of one language |
//! | `read_types.rs` | the types of an object |
//! | `live_object.rs` | what a plan must know about the version before |
//! | `diff.rs` | [`Diff`]: which functions and variables changed |
//! | `code_object.rs` | an object for a function that is given as machine code |
//! | `edits.rs` | changes of an object, and the bytes that result |
//! | `functions.rs` | functions behind stubs |
//! | `world.rs` | what a plan asks about the rest of the program |
//! | `version_functions.rs` | functions that belong to one version, and functions of Rust with another name than before |
//! | `variables.rs` | which variables are which, and which sections keep their place |
//! | `plan.rs` | the plan of a first version and of a later one |
//! | `native.rs` | [`NativePlan`]: an object of the running executable |
//!
//! A file imports files above it in this table.

mod c_types;
mod code_object;
mod debug_info;
mod diff;
mod edits;
mod functions;
mod live_object;
mod native;
mod object_file;
mod plan;
mod read_types;
mod refusal;
mod rust_names;
mod rust_types;
mod types;
mod variables;
mod version_functions;
mod world;

pub(crate) use code_object::object_of_code;
pub use diff::Diff;
pub(crate) use functions::StubbedFunction;
pub(crate) use live_object::{Globals, LiveObject, SharedConstant};
pub(crate) use native::{NativeFunction, NativePlan, plan_native};
pub(crate) use plan::{Move, NewObject, Plan, plan_first};
pub(crate) use world::World;
