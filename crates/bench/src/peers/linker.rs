//! [`Linker`]: a competitor that is a library in this process. All of them, jittison included, are measured by the same
//! functions: `scenarios/linkers.rs`.
//!
//! The input of each batch is prepared before the clock starts, in the form that the linker takes. The clock covers
//! [`link`](Linker::link) for a link, and [`remove`](Linker::remove) for a removal.
//!
//! ORC is no `Linker`: it runs in a process of its own, which does the same steps (`peers/orc.cpp` of this package).

use jittison::base::ExecutorAddr;
use jittison_test_support::bench::objects::{Instance, Objects};

use crate::measure::workload::{MAX_MAPPED, Workload};

pub trait Linker: Sized {
    const NAME: &'static str;

    /// The maximum number of live modules.
    const MAX_LIVE: usize = MAX_MAPPED;

    /// Whether modules need different names. If not, all are copies of one instance.
    const NEEDS_DIFFERENT_NAMES: bool = true;

    /// Whether it allocates from this program's allocator, which counts.
    const IS_COUNTED: bool = true;

    /// An instance in the form that this linker takes.
    type Input;
    /// A linked module.
    type Live;

    fn new(workload: &Workload) -> Result<Self, String>;

    /// The objects whose instances it links.
    fn objects(workload: &Workload) -> Result<&Objects, String> {
        Ok(&workload.objects)
    }

    fn prepare(&mut self, instance: &Instance) -> Result<Self::Input, String>;

    /// Links a module and returns the address of its entry. `input` was prepared from the instance.
    fn link(&mut self, instance: &Instance, input: &Self::Input) -> Result<(ExecutorAddr, Self::Live), String>;

    /// Removes a module. A removal that has to wait is an error: it would not be measured.
    fn remove(&mut self, live: Self::Live) -> Result<(), String> {
        drop(live);
        Ok(())
    }

    /// Returns free memory to the kernel, and true. False if the linker has no such call.
    fn release_free(&mut self) -> bool {
        false
    }

    /// The content of all live modules, if the linker reports it.
    fn content_bytes(&self) -> Option<u64> {
        None
    }
}
