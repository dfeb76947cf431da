//! Removal and churn once more, of the small object compiled without unwind tables: the difference is what keeping them costs. The
//! rest is as it is with them: the same machine code, the same live counts, the same checks. By gcc 12 the object has then 3.8 KB
//! and 33 relocations, where it has 4.4 KB and 38 with them.
//!
//! Not of cranelift-jit: it is given no tables in the other rows either, so that its figures there are these. elf_loader registers
//! none, but has a section less to load and relocate; ORC at its best throws them away, but only once it has read them.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::Object as _;

use crate::elf_load::ElfLoader;
use crate::linker::{self, Linker as _};
use crate::objects::{self, Template};
use crate::orc::{self, Orc};
use crate::rows::{WITHOUT_UNWIND_TABLES, without_unwind_tables};
use crate::scenario::{Measure, Scenario, words};
use crate::scenarios::scenario;
use crate::workload::Workload;
use crate::{dlopen, ours};

type Measures = Result<Vec<Measure>, String>;

/// Beyond the peers' counts jittison's churn is looked at here as well, as `million` does with tables.
const MOST_LIVE: usize = 100_000;

pub fn scenarios(workload: &Rc<Workload>, peers: &Path, is_quick: bool) -> Vec<Box<dyn Scenario>> {
    let object = Rc::new(Tableless::default());
    let of_library = |group, who, round: fn(&Workload, &Template) -> Measures| {
        let object = object.clone();
        without_tables(group, who, workload, move |workload| round(workload, object.template()?))
    };
    let of_orc = |group, orc: &Orc, round: fn(&Orc, &Workload, &Path) -> Measures| {
        let (object, orc) = (object.clone(), orc.clone());
        without_tables(group, orc.who, workload, move |workload| round(&orc, workload, object.file(workload)?))
    };
    let our_churns = if is_quick { churns } else { churns_and_most };
    let mut all = vec![of_library("remove", ours::WHO, ours::removals), of_library("churn", ours::WHO, our_churns)];
    for orc in orc::set_ups(peers) {
        all.extend([of_orc("remove", &orc, Orc::removals), of_orc("churn", &orc, Orc::churns)]);
    }
    all.extend([
        of_library("remove", dlopen::WHO, dlopen::removals),
        of_library("churn", dlopen::WHO, dlopen::churns),
        of_library("remove", ElfLoader::WHO, linker::removals::<ElfLoader>),
        of_library("churn", ElfLoader::WHO, linker::churns::<ElfLoader>),
    ]);
    all
}

/// A scenario whose rows say that the object has no tables.
fn without_tables(
    group: &str,
    who: &'static str,
    workload: &Rc<Workload>,
    round: impl Fn(&Workload) -> Measures + 'static,
) -> Box<dyn Scenario> {
    scenario(&format!("{group}, {WITHOUT_UNWIND_TABLES}"), who, workload, move |workload| {
        let mut measures = round(workload)?;
        measures.iter_mut().for_each(|measure| measure.key.what = without_unwind_tables(&measure.key.what));
        Ok(measures)
    })
}

fn churns(workload: &Workload, template: &Template) -> Measures {
    ours::churns(workload, template, workload.sizes.churns_of)
}

fn churns_and_most(workload: &Workload, template: &Template) -> Measures {
    let mut measures = churns(workload, template)?;
    measures.extend(ours::churns(workload, template, &[MOST_LIVE])?);
    Ok(measures)
}

/// The object, compiled when it is first asked for, and instances of it for the peers' programs.
#[derive(Default)]
struct Tableless {
    template: OnceCell<Template>,
    file: OnceCell<PathBuf>,
}

impl Tableless {
    fn template(&self) -> Result<&Template, String> {
        if let Some(template) = self.template.get() {
            return Ok(template);
        }
        let template = objects::small_without_unwind_tables().ok_or("gcc compiles nothing without unwind tables")?;
        let bytes = template.instance(0).bytes;
        let has_tables = object::File::parse(&*bytes).map_err(words)?.section_by_name(".eh_frame").is_some();
        if has_tables {
            return Err("gcc makes unwind tables although it is told not to".to_string());
        }
        Ok(self.template.get_or_init(|| template))
    }

    fn file(&self, workload: &Workload) -> Result<&Path, String> {
        workload.replaced_file(&self.file, "small without unwind tables", self.template()?)
    }
}
