//! Workload d with the system's loader: the same number of shared libraries, opened, called, and closed one by one,
//! because no call closes them all.

use std::sync::OnceLock;

use jittison::base::ExecutorAddr;

use super::plan::{Plan, templates, variant};
use crate::measure::competitor::DLOPEN;
use crate::measure::scenario::{Measures, Scenario, Unit};
use crate::peers::system_library::SystemLibrary;
use crate::workloads::corpus::Template;
use crate::workloads::dlopen::SystemLoader;
use crate::workloads::host;
use crate::workloads::loader::Loader;
use crate::workloads::rows::Rows;
use crate::workloads::times::Times;
use jittison_test_support::bench::resident::Resident;

/// One cycle that adds all and removes all.
pub struct Libraries {
    pub live: usize,
}

struct Module {
    library: SystemLibrary,
    address: ExecutorAddr,
    expected: u64,
}

impl Scenario for Libraries {
    fn title(&self) -> String {
        format!("workload d, resident cache, {}, {DLOPEN}", variant(self.live, 1))
    }

    fn round(&mut self) -> Measures {
        let (loader, mut plan) = (SystemLoader::new()?, Plan::new(libraries()?));
        let mut rows = Rows::new("workload d", DLOPEN, variant(self.live, 1));
        let before = Resident::measure()?;
        let (mut links, mut removals) = (Times::new(), Times::new());
        let modules: Vec<Module> =
            (0..self.live).map(|_| add(&loader, plan.next(), &mut links)).collect::<Result<_, _>>()?;
        rows.value("resident memory of a module", Unit::Bytes, before.grown()? / self.live as f64);
        // SAFETY: the library is open.
        modules.iter().try_for_each(|module| unsafe { host::call(module.address, module.expected) })?;
        for module in modules {
            removals.time(|| loader.unload(module.library))?;
        }
        rows.times_and_tail("add and look up", &links);
        rows.times_and_tail("remove one", &removals);
        rows.value("remove all at once", Unit::Nanoseconds, removals.sum().as_nanos() as f64);
        rows.value("modules added, by all threads", Unit::PerSecond, self.live as f64 / links.sum().as_secs_f64());
        rows.value("resident memory left at the end", Unit::Bytes, before.grown()?);
        Ok(rows.finish())
    }
}

fn add(loader: &SystemLoader, (template, number): (&Template, u32), links: &mut Times) -> Result<Module, String> {
    let instance = template.instance(number, number.into());
    let expected = instance.expected;
    let ready = loader.ready(instance)?;
    let (address, library) = links.time(|| loader.load(&ready))?;
    // SAFETY: the library is open.
    unsafe { host::call(address, expected) }?;
    Ok(Module { library, address, expected })
}

fn libraries() -> Result<&'static [Template], String> {
    static LIBRARIES: OnceLock<Result<Vec<Template>, String>> = OnceLock::new();
    let build = || templates()?.iter().map(Template::shared).collect();
    LIBRARIES.get_or_init(build).as_deref().map_err(String::clone)
}
