//! The scenarios of workload d.

use super::libraries::Libraries;
use super::modules::ResidentCache;
use crate::measure::machine::processors;
use crate::measure::scenario::Scenario;

const LIVE: usize = 10_000;
const QUICK_LIVE: usize = 2_000;
const CYCLES: u32 = 10;
const QUICK_CYCLES: u32 = 3;

pub fn scenarios(quick: bool) -> Vec<Box<dyn Scenario>> {
    let (live, cycles) = if quick { (QUICK_LIVE, QUICK_CYCLES) } else { (LIVE, CYCLES) };
    let ours = |threads| -> Box<dyn Scenario> { Box::new(ResidentCache { live, cycles, threads }) };
    vec![ours(1), Box::new(Libraries { live }), ours(processors())]
}
