//! The memory manager without a linker: a slab pool with the options of a session's pool.

use std::rc::Rc;

use jittison::memory::{SlabPool, SlabPoolOptions};

use crate::ours::NAME;
use crate::rows;
use crate::samples::{median_nanoseconds, single};
use crate::scenario::{Measure, Scenario, Unit, to_text};
use crate::scenarios::scenario;
use crate::workload::Workload;
use jittison_test_support::bench::installed::install;

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    vec![scenario("memory manager", NAME, workload, warm)]
}

const INSTALLS: usize = 200_000;

fn warm(_: &Workload) -> Result<Vec<Measure>, String> {
    let pool = SlabPool::new(SlabPoolOptions::default()).map_err(to_text)?;
    // Two installs first, whose memory all others reuse.
    (0..2).for_each(|_| drop(install(&pool)));
    let each = median_nanoseconds(INSTALLS, |_| drop(install(&pool)));
    Ok(vec![single(rows::MANAGER.by(NAME), Unit::Nanoseconds, each)])
}
