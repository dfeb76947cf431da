//! Removal and churn of the small object compiled without unwind tables. The difference to the other rows is the cost
//! of the tables. Everything else is the same: machine code, live counts and checks. With gcc 12 the object then has
//! 3.8 KB and 33 relocations, instead of 4.4 KB and 38.
//!
//! cranelift-jit does not take part: it gets no tables in the other rows either, so its figures there are the same.
//! elf_loader registers no tables, but here it has one section less to load and relocate. ORC at its best drops the
//! tables, but only after reading them.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::Object as _;

use super::{linkers, orc};
use crate::measure::competitor::JITTISON;
use crate::measure::rows::{WITHOUT_UNWIND_TABLES, without_unwind_tables};
use crate::measure::scenario::{Measures, Scenario, to_text};
use crate::measure::workload::Workload;
use crate::measure::workload_scenario::scenario;
use crate::peers::dlopen::Dlopen;
use crate::peers::elf_loader::ElfLoader;
use crate::peers::linker::Linker;
use crate::peers::orc::{Orc, set_ups};
use crate::peers::ours::Jittison;
use jittison_test_support::bench::objects::{self, Template};

/// jittison's churn is also measured with more live modules than the peers reach, as in `million` with tables.
const MAX_LIVE: usize = 100_000;

pub fn scenarios(workload: &Rc<Workload>, peers: &Path, is_quick: bool) -> Vec<Box<dyn Scenario>> {
    let object = Rc::new(ObjectWithoutTables::default());
    let of_library = |group, competitor, round: fn(&Workload, &Template) -> Measures| {
        let object = object.clone();
        without_tables(group, competitor, workload, move |workload| round(workload, object.template()?))
    };
    let of_orc = |group, orc: &Orc, round: fn(&Orc, &Workload, &Path) -> Measures| {
        let (object, orc) = (object.clone(), orc.clone());
        without_tables(group, orc.competitor, workload, move |workload| round(&orc, workload, object.file(workload)?))
    };
    let our_churns = if is_quick { churns::<Jittison> } else { churns_and_largest };
    let mut all =
        vec![of_library("remove", JITTISON, linkers::removals::<Jittison>), of_library("churn", JITTISON, our_churns)];
    for orc in set_ups(peers) {
        all.extend([of_orc("remove", &orc, orc::removals), of_orc("churn", &orc, orc::churns)]);
    }
    all.extend([
        of_library("remove", Dlopen::NAME, linkers::removals::<Dlopen>),
        of_library("churn", Dlopen::NAME, churns::<Dlopen>),
        of_library("remove", ElfLoader::NAME, linkers::removals::<ElfLoader>),
        of_library("churn", ElfLoader::NAME, churns::<ElfLoader>),
    ]);
    all
}

/// A scenario whose rows say that the object has no tables.
fn without_tables(
    group: &str,
    competitor: &'static str,
    workload: &Rc<Workload>,
    round: impl Fn(&Workload) -> Measures + 'static,
) -> Box<dyn Scenario> {
    scenario(&format!("{group}, {WITHOUT_UNWIND_TABLES}"), competitor, workload, move |workload| {
        let mut measures = round(workload)?;
        measures.iter_mut().for_each(|measure| measure.key.what = without_unwind_tables(&measure.key.what));
        Ok(measures)
    })
}

fn churns<L: Linker>(workload: &Workload, template: &Template) -> Measures {
    linkers::churns::<L>(workload, template, workload.sizes.churns_of)
}

fn churns_and_largest(workload: &Workload, template: &Template) -> Measures {
    let mut measures = churns::<Jittison>(workload, template)?;
    measures.extend(linkers::churns::<Jittison>(workload, template, &[MAX_LIVE])?);
    Ok(measures)
}

/// The object, compiled at first use, and a file of its instances for the peers' programs.
#[derive(Default)]
struct ObjectWithoutTables {
    template: OnceCell<Template>,
    file: OnceCell<PathBuf>,
}

impl ObjectWithoutTables {
    fn template(&self) -> Result<&Template, String> {
        if let Some(template) = self.template.get() {
            return Ok(template);
        }
        let template = objects::small_without_unwind_tables().ok_or("gcc cannot compile without unwind tables")?;
        let bytes = template.instance(0).bytes;
        let has_tables = object::File::parse(&*bytes).map_err(to_text)?.section_by_name(".eh_frame").is_some();
        if has_tables {
            return Err("gcc emits unwind tables in spite of its options".to_string());
        }
        Ok(self.template.get_or_init(|| template))
    }

    fn file(&self, workload: &Workload) -> Result<&Path, String> {
        workload.replaced_file(&self.file, "small without unwind tables", self.template()?)
    }
}
