//! The memory manager alone, without a linker: the pool of slabs that a session has, with the options that it has there.

use std::rc::Rc;

use jittison::memory::{SlabPool, SlabPoolOptions};

use crate::installed::install;
use crate::ours::WHO;
use crate::rows;
use crate::samples::{nanoseconds_mostly, single};
use crate::scenario::{Measure, Scenario, Unit, words};
use crate::scenarios::scenario;
use crate::workload::Workload;

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    vec![scenario("memory manager", WHO, workload, warm)]
}

const INSTALLS: usize = 200_000;

fn warm(_: &Workload) -> Result<Vec<Measure>, String> {
    let pool = SlabPool::new(SlabPoolOptions::default()).map_err(words)?;
    // Two ahead, in the memory that all others get again.
    (0..2).for_each(|_| drop(install(&pool)));
    let each = nanoseconds_mostly(INSTALLS, |_| drop(install(&pool)));
    Ok(vec![single(rows::MANAGER.by(WHO), Unit::Nanoseconds, each)])
}
