//! [`Fixture`]: a linker and what it links.

use jittison_test_support::bench::objects::{Instance, Template};

use crate::measure::cache::evict;
use crate::measure::checks::check;
use crate::measure::samples::BATCH;
use crate::measure::workload::Workload;
use crate::peers::linker::Linker;

pub struct Fixture<'a, L> {
    pub linker: L,
    template: &'a Template,
    number: u32,
    /// Whether the bytes of a batch are taken out of the cache before it is linked.
    pub is_cold: bool,
}

/// An instance that is ready to be linked.
pub struct Ready<L: Linker> {
    pub instance: Instance,
    pub input: L::Input,
}

impl<'a, L: Linker> Fixture<'a, L> {
    pub fn new(workload: &Workload, template: &'a Template) -> Result<Fixture<'a, L>, String> {
        Fixture::of(L::new(workload)?, template)
    }

    /// Uses the given linker. Links and removes a first module, which pays for one-time work.
    pub fn of(linker: L, template: &'a Template) -> Result<Fixture<'a, L>, String> {
        let mut fixture = Fixture { linker, template, number: 0, is_cold: false };
        let first = fixture.fill(1)?;
        fixture.remove_all(first)?;
        Ok(fixture)
    }

    pub fn next(&mut self) -> Result<Ready<L>, String> {
        let number = if L::NEEDS_DIFFERENT_NAMES { self.number + 1 } else { 0 };
        self.number = number;
        let instance = self.template.instance(number);
        let input = self.linker.prepare(&instance)?;
        Ok(Ready { instance, input })
    }

    pub fn make_batch(&mut self) -> Result<Vec<Ready<L>>, String> {
        let batch = (0..BATCH).map(|_| self.next()).collect::<Result<Vec<Ready<L>>, String>>()?;
        if self.is_cold {
            batch.iter().for_each(|ready| evict(&ready.instance.bytes));
        }
        Ok(batch)
    }

    pub fn link_checked(&mut self, ready: &Ready<L>) -> Result<L::Live, String> {
        let (address, live) = self.linker.link(&ready.instance, &ready.input)?;
        check(address, &ready.instance)?;
        Ok(live)
    }

    pub fn fill(&mut self, count: usize) -> Result<Vec<L::Live>, String> {
        let mut link_next = || {
            let ready = self.next()?;
            self.link_checked(&ready)
        };
        (0..count).map(|_| link_next()).collect()
    }

    pub fn remove_all(&mut self, live: Vec<L::Live>) -> Result<(), String> {
        live.into_iter().try_for_each(|live| self.linker.remove(live))
    }
}
