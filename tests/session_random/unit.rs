//! The unit of the random sessions: records its number, resolves, looks its dependencies up, is emitted; or fails on the
//! way. Refusals are lived with. And the manager of the numbers.

use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name};
use jittison::error::{Error, Result};
use jittison::session::*;

/// Symbol `index` of unit `unit` is at this address.
pub fn address(unit: u64, index: usize) -> ExecutorAddr {
    ExecutorAddr::new(unit * 16 + index as u64 + 1)
}

/// Keeps the numbers of the units that have run, by key.
#[derive(Default)]
pub struct Books {
    pub ledger: Ledger<u64>,
    /// Units that a live tracker accepted, in the order they ran.
    pub recorded: Mutex<Vec<u64>>,
    pub given_back: Mutex<Vec<u64>>,
    /// Units that were told otherwise than they should.
    pub faults: Mutex<Vec<String>>,
}

impl ResourceManager for Books {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        self.given_back.lock().unwrap().extend(self.ledger.take(key));
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.ledger.transfer(destination, source);
    }
}

pub struct Unit {
    pub number: u64,
    pub symbols: Vec<(Name, SymbolFlags)>,
    pub dependencies: Vec<Name>,
    pub fails: bool,
    pub books: Arc<Books>,
    pub discarded: Vec<Name>,
}

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        "unit"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.symbols
    }

    fn discard(&mut self, name: &str) {
        self.discarded.push(Name::new(name));
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        let Unit { number, symbols, dependencies, fails, books, discarded } = *self;
        // Every symbol that was promised is owed now, or somebody else supplies it and the unit was told.
        let owed = responsibility.symbols().iter().map(|owed| &owed.name);
        let mut told: Vec<&Name> = owed.chain(&discarded).collect();
        let mut promised: Vec<&Name> = symbols.iter().map(|(name, _)| name).collect();
        told.sort_unstable();
        promised.sort_unstable();
        if told != promised {
            books.faults.lock().unwrap().push(format!("unit {number} promised {promised:?}, was told of {told:?}"));
        }
        let accepted = responsibility.with_resource_key(|key| books.ledger.record(key, number)).is_ok();
        if !accepted {
            return;
        }
        books.recorded.lock().unwrap().push(number);
        if fails {
            return responsibility.fail(Error::other("on purpose"));
        }
        let index = |name: &Name| symbols.iter().position(|(own, _)| own == name).expect("it was promised");
        if responsibility.notify_resolved(|owed| Some(address(number, index(&owed.name)))).is_err() {
            return;
        }
        let requests: Vec<_> = dependencies.iter().map(|name| SymbolRequest::required(name)).collect();
        responsibility.lookup(&requests, RequiredState::Resolved, |responsibility, found| match found {
            Ok(found) => {
                let symbols = found.into_iter().filter_map(|result| result.symbol).collect();
                // Refused or not: whoever waits has been told.
                let _ = responsibility.notify_emitted(symbols);
            }
            Err(error) => responsibility.fail(error),
        });
    }
}
