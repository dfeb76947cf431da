//! The memory manager without a linker: a slab pool with the options of a session's pool.

use std::rc::Rc;

use jittison::memory::{SlabPool, SlabPoolOptions};

use crate::measure::competitor::JITTISON;
use crate::measure::rows;
use crate::measure::samples::{median_nanoseconds, single};
use crate::measure::scenario::{Measures, Scenario, Unit, to_text};
use crate::measure::workload::Workload;
use crate::measure::workload_scenario::scenario;
use jittison_test_support::bench::installed::install;

pub fn scenarios(workload: &Rc<Workload>) -> Vec<Box<dyn Scenario>> {
    vec![scenario("memory manager", JITTISON, workload, warm)]
}

const INSTALLS: usize = 200_000;

fn warm(_: &Workload) -> Measures {
    let pool = SlabPool::new(SlabPoolOptions::default()).map_err(to_text)?;
    // All other installs reuse the memory of these two.
    (0..2).for_each(|_| drop(install(&pool)));
    let each = median_nanoseconds(INSTALLS, |_| drop(install(&pool)));
    Ok(vec![single(rows::MANAGER.by(JITTISON), Unit::Nanoseconds, each)])
}
