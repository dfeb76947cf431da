//! The list of all scenarios, and [`scenario`], which makes a scenario from a function.

use std::path::Path;
use std::rc::Rc;

use crate::measure::scenario::{Measure, Scenario};
use crate::measure::workload::Workload;
use crate::peers::cranelift::Cranelift;
use crate::peers::elf_loader::ElfLoader;
use crate::{
    peers::dlopen, peers::linker, peers::orc, peers::ours, scenarios::calls, scenarios::floor, scenarios::handles,
    scenarios::large, scenarios::memory_manager, scenarios::million, scenarios::sizes, scenarios::system_calls,
    scenarios::tableless, workloads,
};

/// In the order of a round. Figures of one row are measured close to each other, under the same conditions. SQLite
/// takes part if it is one of the programs, which build its object.
pub fn scenarios(workload: &Rc<Workload>, peers: &Path, is_quick: bool, has_sqlite: bool) -> Vec<Box<dyn Scenario>> {
    let mut all = ours::scenarios(workload);
    all.extend(calls::scenarios(workload));
    all.extend(orc::scenarios(workload, peers));
    all.extend(dlopen::scenarios(workload));
    all.extend(linker::scenarios::<Cranelift>(workload));
    all.extend(linker::scenarios::<ElfLoader>(workload));
    if has_sqlite {
        all.extend(large::scenarios(workload, peers));
    }
    all.extend(tableless::scenarios(workload, peers, is_quick));
    all.extend(floor::scenarios(workload));
    all.extend(handles::scenarios(workload));
    all.extend(memory_manager::scenarios(workload));
    all.extend(million::scenarios(workload, is_quick));
    all.extend(sizes::scenarios(workload, peers, is_quick));
    all.extend(system_calls::scenarios(workload, peers));
    all.extend(workloads::scenarios(is_quick));
    // A stable sort: the order within a group does not change.
    all.sort_by_cached_key(|scenario| group_position(&scenario.title()));
    all
}

const GROUPS: [&str; 11] =
    ["link", "remove", "size", "churn", "threads", "lookup", "patch", "dylib", "memory manager", "memory", "workload"];

/// Titles begin with their group; the first that fits counts. Other titles come last.
fn group_position(title: &str) -> usize {
    GROUPS.iter().position(|group| title.starts_with(group)).unwrap_or(GROUPS.len())
}

struct FunctionScenario<F> {
    title: String,
    round: F,
}

impl<F: FnMut() -> Result<Vec<Measure>, String>> Scenario for FunctionScenario<F> {
    fn title(&self) -> String {
        self.title.clone()
    }

    fn round(&mut self) -> Result<Vec<Measure>, String> {
        (self.round)()
    }
}

/// A scenario that is a function of the workload.
pub fn scenario(
    group: &str,
    competitor: &str,
    workload: &Rc<Workload>,
    round: impl Fn(&Workload) -> Result<Vec<Measure>, String> + 'static,
) -> Box<dyn Scenario> {
    let workload = workload.clone();
    Box::new(FunctionScenario { title: format!("{group}: {competitor}"), round: move || round(&workload) })
}
