//! [`scenario`]: a scenario that is a function of the workload.

use std::rc::Rc;

use super::scenario::{Measures, Scenario};
use super::workload::Workload;

struct WorkloadScenario<F> {
    title: String,
    round: F,
}

impl<F: FnMut() -> Measures> Scenario for WorkloadScenario<F> {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn round(&mut self) -> Measures {
        (self.round)()
    }
}

/// A scenario of the group and the competitor. Each round calls `round`.
pub fn scenario(
    group: &str,
    competitor: &str,
    workload: &Rc<Workload>,
    round: impl Fn(&Workload) -> Measures + 'static,
) -> Box<dyn Scenario> {
    let workload = workload.clone();
    Box::new(WorkloadScenario { title: format!("{group}: {competitor}"), round: move || round(&workload) })
}
