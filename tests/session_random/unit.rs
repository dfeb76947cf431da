//! [`Unit`], the unit of the random sessions, and [`LedgerManager`], the manager of its numbers.
//!
//! A unit records its number, resolves, looks up its dependencies and is emitted, or fails before that. It accepts a refusal at
//! every step.

use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, Name};
use jittison::error::{Error, Result};
use jittison::session::*;

/// The address of symbol `index` of unit `unit`.
pub fn address(unit: u64, index: usize) -> ExecutorAddr {
    ExecutorAddr::new(unit * 16 + index as u64 + 1)
}

/// Records the numbers of the units that have run, by key.
#[derive(Default)]
pub struct LedgerManager {
    pub ledger: Ledger<u64>,
    /// Units that a live tracker accepted, in the order in which they ran.
    pub recorded: Mutex<Vec<u64>>,
    pub freed: Mutex<Vec<u64>>,
    /// Units whose claimed and discarded symbols do not match their promised ones.
    pub faults: Mutex<Vec<String>>,
}

impl ResourceManager for LedgerManager {
    fn remove_resources(&self, _: &JitDylib, key: ResourceKey) -> Result<()> {
        self.freed.lock().unwrap().extend(self.ledger.take(key));
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
    pub manager: Arc<LedgerManager>,
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
        let Unit { number, symbols, dependencies, fails, manager, discarded } = *self;
        // Every promised symbol is claimed, or the unit was called to discard it.
        let claimed = responsibility.symbols().iter().map(|claimed| &claimed.name);
        let mut seen: Vec<&Name> = claimed.chain(&discarded).collect();
        let mut promised: Vec<&Name> = symbols.iter().map(|(name, _)| name).collect();
        seen.sort_unstable();
        promised.sort_unstable();
        if seen != promised {
            manager.faults.lock().unwrap().push(format!("unit {number} promised {promised:?}, got {seen:?}"));
        }
        let accepted = responsibility.with_resource_key(|key| manager.ledger.record(key, number)).is_ok();
        if !accepted {
            return;
        }
        manager.recorded.lock().unwrap().push(number);
        if fails {
            return responsibility.fail(Error::other("on purpose"));
        }
        let index = |name: &Name| symbols.iter().position(|(own, _)| own == name).expect("the symbol was promised");
        if responsibility.notify_resolved(|claimed| Some(address(number, index(&claimed.name)))).is_err() {
            return;
        }
        let requests: Vec<_> = dependencies.iter().map(|name| SymbolRequest::required(name)).collect();
        responsibility.lookup(&requests, RequiredState::Resolved, |responsibility, found| match found {
            Ok(found) => {
                let symbols = found.into_iter().filter_map(|result| result.symbol).collect();
                // Whether it is refused or not, the waiting queries are answered.
                let _ = responsibility.notify_emitted(symbols);
            }
            Err(error) => responsibility.fail(error),
        });
    }
}
