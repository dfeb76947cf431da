//! Shapes of names: definition, search and removal of many symbols, aliases, long names, dylibs and link orders, generators, observers and
//! managers.

use std::sync::Arc;

use jittison::Jit;
use jittison::base::Name;
use jittison::error::Result;
use jittison::session::{
    Alias, DefinitionGenerator, JitDylib, MaterializationResponsibility, MaterializationUnit, RequiredState,
    ResourceKey, ResourceManager, ResourceTracker, SymbolFlags, SymbolRequest, Visibility,
};

use crate::trackers::load;
use crate::{ADDRESS, Shape, name_of, remove, symbols};

pub const SHAPES: &[(&str, Shape)] = &[
    ("definition of a lazy unit of many symbols", |jit, size| {
        let (_, tracker) = shape(jit);
        let unit = Unit::new(size);
        Box::new(move || {
            tracker.define(unit).unwrap();
            std::mem::forget(tracker);
        })
    }),
    ("lazy unit of many symbols: first lookup", |jit, size| {
        let (dylib, tracker) = shape(jit);
        tracker.define(Unit::new(size)).unwrap();
        tracker_forget(tracker);
        Box::new(move || assert_eq!(dylib.lookup_address(&name_of(0)).unwrap(), ADDRESS))
    }),
    ("lazy unit of many symbols: removal", |jit, size| {
        let (_, tracker) = shape(jit);
        tracker.define(Unit::new(size)).unwrap();
        Box::new(move || remove(&tracker))
    }),
    ("materialising symbols: failure", |jit, size| {
        let (_, tracker) = shape(jit);
        let made = tracker.define_materializing("unit", names(size)).unwrap();
        tracker_forget(tracker);
        Box::new(move || drop(made))
    }),
    ("refused definition: the last of many names is taken", |jit, size| {
        let (_, tracker) = shape(jit);
        tracker.define_absolute(symbols(size - 1..size)).unwrap();
        let symbols: Vec<_> = symbols(0..size).collect();
        Box::new(move || {
            tracker.define_absolute(symbols).unwrap_err();
            tracker_forget(tracker);
        })
    }),
    ("weak symbols, defined in one step", |jit, size| {
        let (_, tracker) = shape(jit);
        let weak: Vec<_> =
            symbols(0..size).map(|(name, address, flags)| (name, address, flags | SymbolFlags::WEAK)).collect();
        Box::new(move || {
            tracker.define_absolute(weak).unwrap();
            tracker_forget(tracker);
        })
    }),
    ("addresses of many names, one by one", |jit, size| {
        let dylib = with_symbols(jit, size);
        let names: Vec<_> = (0..size).map(name_of).collect();
        Box::new(move || names.iter().for_each(|name| assert_eq!(dylib.lookup_address(name).unwrap(), ADDRESS)))
    }),
    ("addresses of many names, the second and third time", |jit, size| {
        let dylib = with_symbols(jit, size);
        let names: Vec<_> = (0..size).map(name_of).collect();
        names.iter().for_each(|name| assert_eq!(dylib.lookup_address(name).unwrap(), ADDRESS));
        Box::new(move || {
            names.iter().chain(&names).for_each(|name| assert_eq!(dylib.lookup_address(name).unwrap(), ADDRESS))
        })
    }),
    ("many names in one lookup", |jit, size| {
        let dylib = with_symbols(jit, size);
        let names: Vec<_> = (0..size).map(name_of).collect();
        Box::new(move || {
            let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(name)).collect();
            assert_eq!(dylib.lookup(&requests, RequiredState::Ready).unwrap().len(), names.len());
        })
    }),
    ("names that are missing, one by one, twice each", |jit, size| {
        let dylib = with_symbols(jit, 1);
        let names: Vec<_> = (1..size + 1).map(name_of).collect();
        Box::new(move || {
            names.iter().flat_map(|name| [name, name]).for_each(|name| drop(dylib.lookup_address(name).unwrap_err()))
        })
    }),
    ("names that are missing, in one lookup", |jit, size| {
        let dylib = with_symbols(jit, 1);
        let names: Vec<_> = (1..size + 1).map(name_of).collect();
        Box::new(move || {
            let requests: Vec<_> = names.iter().map(|name| SymbolRequest::required(name)).collect();
            drop(dylib.lookup(&requests, RequiredState::Ready).unwrap_err());
        })
    }),
    ("removal of many symbols by name, in one step", |jit, size| {
        let dylib = with_symbols(jit, size);
        let names: Vec<_> = (0..size).map(name_of).collect();
        Box::new(move || {
            let names: Vec<&str> = names.iter().map(|name| &**name).collect();
            dylib.remove_symbols(&names).unwrap();
        })
    }),
    ("removal of many symbols by name, one by one", |jit, size| {
        let dylib = with_symbols(jit, size);
        let names: Vec<_> = (0..size).map(name_of).collect();
        Box::new(move || names.iter().for_each(|name| dylib.remove_symbols(&[name]).unwrap()))
    }),
    ("symbol at an address, in a dylib of many symbols", |jit, size| {
        with_symbols(jit, size);
        let jit = jit.clone();
        Box::new(move || drop(jit.session().symbols_at(&[ADDRESS])))
    }),
    ("generator added where many names were looked up", |jit, size| {
        let dylib = with_symbols(jit, size);
        let missing = ["missing"; 3];
        (0..3)
            .flat_map(|_| 0..size)
            .for_each(|index| assert_eq!(dylib.lookup_address(&name_of(index)).unwrap(), ADDRESS));
        missing.iter().for_each(|name| drop(dylib.lookup_address(name).unwrap_err()));
        Box::new(move || dylib.add_generator(Arc::new(Nothing)))
    }),
    ("aliases of one symbol, defined together", |jit, size| {
        let (tracker, aliases) = aliases(jit, size, |_| 0);
        Box::new(move || {
            tracker.define_aliases(&aliases).unwrap();
            tracker_forget(tracker);
        })
    }),
    ("aliases of one symbol, looked up one by one", |jit, size| {
        let (tracker, aliases) = aliases(jit, size, |_| 0);
        tracker.define_aliases(&aliases).unwrap();
        let dylib = tracker.dylib();
        tracker_forget(tracker);
        Box::new(move || {
            aliases.iter().for_each(|alias| assert_eq!(dylib.lookup_address(&alias.name).unwrap(), ADDRESS))
        })
    }),
    ("aliases of one symbol, in one lookup", |jit, size| {
        let (tracker, aliases) = aliases(jit, size, |_| 0);
        tracker.define_aliases(&aliases).unwrap();
        let dylib = tracker.dylib();
        tracker_forget(tracker);
        Box::new(move || {
            let requests: Vec<_> = aliases.iter().map(|alias| SymbolRequest::required(&alias.name)).collect();
            assert_eq!(dylib.lookup(&requests, RequiredState::Ready).unwrap().len(), aliases.len());
        })
    }),
    ("chain of aliases, one lookup of its end", |jit, size| {
        let (tracker, aliases) = aliases(jit, size, |index| index);
        tracker.define_aliases(&aliases).unwrap();
        let dylib = tracker.dylib();
        tracker_forget(tracker);
        Box::new(move || assert_eq!(dylib.lookup_address(&aliases.last().unwrap().name).unwrap(), ADDRESS))
    }),
    ("aliases, removed", |jit, size| {
        let (tracker, aliases) = aliases(jit, size, |_| 0);
        tracker.define_aliases(&aliases).unwrap();
        Box::new(move || remove(&tracker))
    }),
    ("one name of so many bytes: definition, lookup, removal", |jit, size| {
        let (dylib, tracker) = shape(jit);
        let name = Name::new(&"n".repeat(size));
        Box::new(move || {
            tracker.define_absolute([(name.clone(), ADDRESS, SymbolFlags::EXPORTED)]).unwrap();
            assert_eq!(dylib.lookup_address(&name).unwrap(), ADDRESS);
            remove(&tracker);
        })
    }),
    ("dylibs, created", |jit, size| {
        let jit = jit.clone();
        Box::new(move || {
            (0..size).for_each(|index| drop(jit.session().create_dylib(&format!("dylib {index}")).unwrap()));
            std::mem::forget(jit);
        })
    }),
    ("dylibs with a symbol each, removed", |jit, size| {
        let (jit, dylibs) = (jit.clone(), dylibs(jit, size));
        Box::new(move || dylibs.iter().for_each(|dylib| drop(jit.session().remove_dylib(dylib).unwrap())))
    }),
    ("dylibs with a symbol each, listed", |jit, size| {
        let jit = jit.clone();
        std::mem::forget(dylibs(&jit, size));
        Box::new(move || assert!(jit.session().dylibs().len() >= size))
    }),
    ("dylibs with a symbol each, end of the session", |jit, size| {
        let jit = jit.clone();
        std::mem::forget(dylibs(&jit, size));
        Box::new(move || jit.session().end().unwrap())
    }),
    ("link order of many dylibs, set", |jit, size| {
        let ((own, _), order) = (shape(jit), order_of(dylibs(jit, size)));
        Box::new(move || own.set_link_order(&order).unwrap())
    }),
    ("link order of many dylibs: address in the last, first time", |jit, size| {
        let (jit, own) = (jit.clone(), behind(jit, size));
        Box::new(move || assert_eq!(jit.address_of(&own, &name_of(size - 1)).unwrap(), ADDRESS))
    }),
    ("link order of many dylibs: so many addresses in the last", |jit, size| {
        let (jit, own, name) = (jit.clone(), behind(jit, size), name_of(size - 1));
        (0..3).for_each(|_| assert_eq!(jit.address_of(&own, &name).unwrap(), ADDRESS));
        Box::new(move || (0..size).for_each(|_| assert_eq!(jit.address_of(&own, &name).unwrap(), ADDRESS)))
    }),
    ("link order of many dylibs: depth-first order", |jit, size| {
        let (jit, own) = (jit.clone(), behind(jit, size));
        Box::new(move || assert_eq!(jit.session().dfs_link_order(&[own]).unwrap().len(), size + 1))
    }),
    ("generators of one dylib, added and removed newest first", |jit, size| {
        let (dylib, _) = shape(jit);
        let generators: Vec<Arc<dyn DefinitionGenerator>> = (0..size).map(|_| Arc::new(Nothing) as _).collect();
        Box::new(move || {
            generators.iter().for_each(|generator| dylib.add_generator(generator.clone()));
            generators.iter().rev().for_each(|generator| assert!(dylib.remove_generator(generator)));
        })
    }),
    ("lookup of a missing name in a dylib of many generators", |jit, size| {
        let (dylib, _) = shape(jit);
        (0..size).for_each(|_| dylib.add_generator(Arc::new(Nothing)));
        Box::new(move || drop(dylib.lookup_address("missing").unwrap_err()))
    }),
    ("managers, registered", |jit, size| {
        let jit = jit.clone();
        Box::new(move || (0..size).for_each(|_| jit.session().register_manager(Arc::new(Nothing))))
    }),
    ("removal of a tracker in a session of many managers", |jit, size| {
        (0..size).for_each(|_| jit.session().register_manager(Arc::new(Nothing)));
        let dylib = jit.session().create_dylib("shape").unwrap();
        let (tracker, _) = load(&dylib, 0, Vec::new());
        tracker.with_resource_key(|_| ()).unwrap();
        Box::new(move || remove(&tracker))
    }),
];

fn tracker_forget(tracker: ResourceTracker) {
    std::mem::forget(tracker);
}

fn shape(jit: &Jit) -> (JitDylib, ResourceTracker) {
    let dylib = jit.session().create_dylib("shape").unwrap();
    let tracker = dylib.create_tracker().unwrap();
    (dylib, tracker)
}

fn with_symbols(jit: &Jit, size: usize) -> JitDylib {
    let (dylib, tracker) = shape(jit);
    tracker.define_absolute(symbols(0..size)).unwrap();
    tracker_forget(tracker);
    dylib
}

fn names(size: usize) -> Vec<(Name, SymbolFlags)> {
    symbols(0..size).map(|(name, _, flags)| (name, flags)).collect()
}

/// Aliases in one unit. The target of each is the alias before it, or the symbol of number zero.
fn aliases(jit: &Jit, size: usize, target: fn(usize) -> usize) -> (ResourceTracker, Vec<Alias>) {
    let dylib = with_symbols(jit, 1);
    let alias =
        |index| Alias { name: name_of(index + 1), aliasee: name_of(target(index)), flags: SymbolFlags::EXPORTED };
    (dylib.create_tracker().unwrap(), (0..size).map(alias).collect())
}

/// Dylibs with a symbol each.
fn dylibs(jit: &Jit, size: usize) -> Vec<JitDylib> {
    let dylib = |index: usize| {
        let dylib = jit.session().create_dylib(&format!("dylib {index}")).unwrap();
        dylib.define_absolute(symbols(index..index + 1)).unwrap();
        dylib
    };
    (0..size).map(dylib).collect()
}

fn order_of(dylibs: Vec<JitDylib>) -> Vec<(JitDylib, Visibility)> {
    dylibs.into_iter().map(|dylib| (dylib, Visibility::ExportedOnly)).collect()
}

/// A dylib that links against so many others.
fn behind(jit: &Jit, size: usize) -> JitDylib {
    let (own, tracker) = shape(jit);
    tracker_forget(tracker);
    own.set_link_order(&order_of(dylibs(jit, size))).unwrap();
    own
}

/// A unit whose symbols are all at one address.
struct Unit(Vec<(Name, SymbolFlags)>);

impl Unit {
    fn new(size: usize) -> Unit {
        Unit(names(size))
    }
}

impl MaterializationUnit for Unit {
    fn name(&self) -> &str {
        "unit"
    }

    fn symbols(&self) -> &[(Name, SymbolFlags)] {
        &self.0
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        responsibility.notify_resolved(|_| Some(ADDRESS)).unwrap();
        responsibility.notify_emitted(Vec::new()).unwrap();
    }

    fn discard(&mut self, _: &str) {}
}

/// A generator that generates nothing, and a manager that manages nothing.
struct Nothing;

impl DefinitionGenerator for Nothing {
    fn generate(&self, _: &JitDylib, _: &[SymbolRequest<'_>]) -> Result<()> {
        Ok(())
    }
}

impl ResourceManager for Nothing {
    fn remove_resources(&self, _: &JitDylib, _: ResourceKey) -> Result<()> {
        Ok(())
    }

    fn transfer_resources(&self, _: &JitDylib, _: ResourceKey, _: ResourceKey) {}
}
