//! The costs of a link and of a removal by the size of the object, in functions: of jittison, and of ORC in both
//! set-ups.
//!
//! The costs are also divided by the relocations and by the KB of the object. For large objects the quotients are the
//! costs of a relocation and of a KB. For small objects they are higher, because they include the cost per object.

use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::{Object as _, ObjectSection as _};

use super::fixture::Fixture;
use super::{linkers, orc};
use crate::measure::competitor::JITTISON;
use crate::measure::rows;
use crate::measure::samples::{BATCH, single};
use crate::measure::scenario::{Measure, Measures, Scenario, Unit, to_text};
use crate::measure::workload::Workload;
use crate::measure::workload_scenario::scenario;
use crate::peers::orc::{Orc, set_ups};
use crate::peers::ours::Jittison;
use jittison_test_support::bench::objects::{self, Template};

/// The column for figures of the object, which are the same for every competitor.
const OBJECT: &str = "the object";

/// The functions of an object, and the number of such objects that a round links: it takes about a second.
const SIZES: [(u32, usize); 5] = [(1, 4_096), (5, 2_048), (50, 1_024), (500, 128), (2_000, 32)];
const QUICK: usize = 4;

pub fn scenarios(workload: &Rc<Workload>, peers: &Path, is_quick: bool) -> Vec<Box<dyn Scenario>> {
    let sized = Rc::new(SizedObjects { is_quick, compiled: RefCell::default() });
    let mut all = vec![{
        let sized = sized.clone();
        scenario("size", JITTISON, workload, move |workload| sized.each(|sized| sized.measure_ours(workload)))
    }];
    all.extend(set_ups(peers).into_iter().map(|orc| {
        let sized = sized.clone();
        scenario("size", orc.competitor, workload, move |workload| {
            sized.each(|sized| sized.measure_orc(workload, &orc))
        })
    }));
    all
}

/// The objects, compiled at first use.
struct SizedObjects {
    is_quick: bool,
    compiled: RefCell<Vec<Rc<SizedObject>>>,
}

impl SizedObjects {
    fn each(&self, measure: impl Fn(&SizedObject) -> Measures) -> Measures {
        Ok((0..SIZES.len()).map(|index| measure(&*self.at(index)?)).collect::<Result<Vec<_>, String>>()?.concat())
    }

    fn at(&self, index: usize) -> Result<Rc<SizedObject>, String> {
        let mut compiled = self.compiled.borrow_mut();
        while compiled.len() <= index {
            let (functions, count) = SIZES[compiled.len()];
            let count = if self.is_quick { (count / QUICK).max(BATCH) } else { count };
            compiled.push(Rc::new(SizedObject::new(functions, count)?));
        }
        Ok(compiled[index].clone())
    }
}

/// An object with `functions` functions.
struct SizedObject {
    functions: usize,
    template: Template,
    /// The instances that a round links.
    count: usize,
    bytes: usize,
    relocations: usize,
    /// The file with instances for the peers.
    file: OnceCell<PathBuf>,
}

impl SizedObject {
    fn new(functions: u32, count: usize) -> Result<SizedObject, String> {
        let template = objects::of_functions(functions)
            .ok_or_else(|| format!("gcc does not compile an object of {functions} functions"))?;
        let bytes = template.instance(0).bytes;
        let file = object::File::parse(&*bytes).map_err(to_text)?;
        let relocations = file.sections().map(|section| section.relocations().count()).sum();
        let (functions, bytes) = (functions as usize, bytes.len());
        Ok(SizedObject { functions, template, count, bytes, relocations, file: OnceCell::new() })
    }

    fn measure_ours(&self, workload: &Workload) -> Measures {
        let keys = [rows::SIZE_LINK, rows::SIZE_REMOVE].map(|row| row.at(self.functions, JITTISON));
        let mut fixture = Fixture::<Jittison>::new(workload, &self.template)?;
        let (measures, _) = linkers::links(&mut fixture, self.count, keys)?;
        let of_object =
            [(rows::SIZE_RELOCATIONS, Unit::Count, self.relocations), (rows::SIZE_BYTES, Unit::Bytes, self.bytes)];
        let mut measures = self.with_shares(measures, JITTISON);
        let measure =
            |(row, unit, value): (rows::Row, Unit, usize)| single(row.at(self.functions, OBJECT), unit, value as f64);
        measures.extend(of_object.map(measure));
        Ok(measures)
    }

    fn measure_orc(&self, workload: &Workload, orc: &Orc) -> Measures {
        let name = format!("of {} functions", self.functions);
        // A run links one instance before those that count.
        let file = workload.file(&self.file, &name, &self.template, self.count + 1)?;
        let keys = [rows::SIZE_LINK, rows::SIZE_REMOVE].map(|row| row.at(self.functions, orc.competitor));
        Ok(self.with_shares(orc::links(orc, file, self.count, keys)?, orc.competitor))
    }

    /// Adds the link's cost per relocation, and the removal's cost per KB.
    fn with_shares(&self, mut measures: Vec<Measure>, competitor: &str) -> Vec<Measure> {
        let shares =
            [(rows::SIZE_LINK_EACH, self.relocations as f64), (rows::SIZE_REMOVE_EACH, self.bytes as f64 / 1e3)];
        let share = |(measure, (row, parts)): (&Measure, (rows::Row, f64))| {
            single(row.at(self.functions, competitor), Unit::Nanoseconds, measure.value / parts)
        };
        let shares: Vec<Measure> = measures.iter().zip(shares).map(share).collect();
        measures.extend(shares);
        measures
    }
}
