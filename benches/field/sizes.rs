//! What a link and a removal cost against the size of the object, by its functions: jittison, and ORC in both set-ups.
//!
//! Told for each relocation and each KB as well: what is left of a competitor's cost when objects grow is what it does for each of
//! those, and what it costs beyond that when they are small is what it does for each object.

use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use object::{Object as _, ObjectSection as _};

use crate::objects::{self, Template};
use crate::orc::{self, Orc};
use crate::ours::{self, WHO};
use crate::rows;
use crate::samples::{BATCH, single};
use crate::scenario::{Measure, Scenario, Unit, words};
use crate::scenarios::scenario;
use crate::workload::Workload;

type Measures = Result<Vec<Measure>, String>;

/// The column of what is true of an object, whoever links it.
const OBJECT: &str = "the object";

/// Functions in an object, and how many such objects a round links: as many as take a second or so.
const SIZES: [(u32, usize); 5] = [(1, 4_096), (5, 2_048), (50, 1_024), (500, 128), (2_000, 32)];
const QUICK: usize = 4;

pub fn scenarios(workload: &Rc<Workload>, peers: &Path, is_quick: bool) -> Vec<Box<dyn Scenario>> {
    let sized = Rc::new(SizedObjects { is_quick, made: RefCell::default() });
    let mut all = vec![{
        let sized = sized.clone();
        scenario("size", WHO, workload, move |workload| sized.each(|sized| sized.by_us(workload)))
    }];
    all.extend(orc::set_ups(peers).into_iter().map(|orc| {
        let sized = sized.clone();
        scenario("size", orc.who, workload, move |workload| sized.each(|sized| sized.by_orc(workload, &orc)))
    }));
    all
}

/// Compiled when they are first asked for.
struct SizedObjects {
    is_quick: bool,
    made: RefCell<Vec<Rc<SizedObject>>>,
}

impl SizedObjects {
    fn each(&self, measure: impl Fn(&SizedObject) -> Measures) -> Measures {
        Ok((0..SIZES.len()).map(|index| measure(&*self.at(index)?)).collect::<Result<Vec<_>, String>>()?.concat())
    }

    fn at(&self, index: usize) -> Result<Rc<SizedObject>, String> {
        let mut made = self.made.borrow_mut();
        while made.len() <= index {
            let (functions, count) = SIZES[made.len()];
            let count = if self.is_quick { (count / QUICK).max(BATCH) } else { count };
            made.push(Rc::new(SizedObject::new(functions, count)?));
        }
        Ok(made[index].clone())
    }
}

/// An object of so many functions.
struct SizedObject {
    functions: usize,
    template: Template,
    /// Of which a round links so many.
    count: usize,
    bytes: usize,
    relocations: usize,
    /// Instances for the peers.
    file: OnceCell<PathBuf>,
}

impl SizedObject {
    fn new(functions: u32, count: usize) -> Result<SizedObject, String> {
        let template =
            objects::of_functions(functions).ok_or_else(|| format!("gcc compiles no {functions} functions"))?;
        let bytes = template.instance(0).bytes;
        let file = object::File::parse(&*bytes).map_err(words)?;
        let relocations = file.sections().map(|section| section.relocations().count()).sum();
        let (functions, bytes) = (functions as usize, bytes.len());
        Ok(SizedObject { functions, template, count, bytes, relocations, file: OnceCell::new() })
    }

    fn by_us(&self, workload: &Workload) -> Measures {
        let mut measures = Vec::new();
        let keys = [rows::SIZE_LINK, rows::SIZE_REMOVE].map(|row| row.at(self.functions, WHO));
        let mut scene = ours::Scene::new(workload, &self.template)?;
        ours::links(&mut scene, self.count, keys, &mut measures)?;
        let of_object =
            [(rows::SIZE_RELOCATIONS, Unit::Count, self.relocations), (rows::SIZE_BYTES, Unit::Bytes, self.bytes)];
        let mut measures = self.with_shares(measures, WHO);
        let told =
            |(row, unit, value): (rows::Row, Unit, usize)| single(row.at(self.functions, OBJECT), unit, value as f64);
        measures.extend(of_object.map(told));
        Ok(measures)
    }

    fn by_orc(&self, workload: &Workload, orc: &Orc) -> Measures {
        let name = format!("of {} functions", self.functions);
        // The first of a run, beside those that are counted.
        let file = workload.file(&self.file, &name, &self.template, self.count + 1)?;
        let keys = [rows::SIZE_LINK, rows::SIZE_REMOVE].map(|row| row.at(self.functions, orc.who));
        Ok(self.with_shares(orc.links(file, self.count, keys)?, orc.who))
    }

    /// Adds what each relocation has of a link, and each KB of a removal.
    fn with_shares(&self, mut measures: Vec<Measure>, who: &str) -> Vec<Measure> {
        let shares =
            [(rows::SIZE_LINK_EACH, self.relocations as f64), (rows::SIZE_REMOVE_EACH, self.bytes as f64 / 1e3)];
        let share = |(measure, (row, parts)): (&Measure, (rows::Row, f64))| {
            single(row.at(self.functions, who), Unit::Nanoseconds, measure.value / parts)
        };
        let shares: Vec<Measure> = measures.iter().zip(shares).map(share).collect();
        measures.extend(shares);
        measures
    }
}
