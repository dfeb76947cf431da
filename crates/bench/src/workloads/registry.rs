//! The list of all workloads.

use super::{autotuner, lru, postgres, resident};
use crate::measure::scenario::Scenario;

/// With `quick`, each takes a few seconds.
pub fn scenarios(quick: bool) -> Vec<Box<dyn Scenario>> {
    [postgres::scenarios(quick), lru::scenarios(quick), autotuner::scenarios(quick), resident::scenarios(quick)]
        .into_iter()
        .flatten()
        .collect()
}
