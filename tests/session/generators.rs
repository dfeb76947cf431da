//! Definition generators: what they are asked, in which order, and what their failure does (ORC: CoreAPIsTest).

use std::sync::{Arc, Mutex};

use jittison::error::{Error, Result};
use jittison::session::*;

use crate::support::*;

/// Defines what it knows, at `value`, and remembers what it was asked.
struct Knows {
    names: Vec<&'static str>,
    value: u64,
    asked: Mutex<Vec<Vec<String>>>,
}

impl Knows {
    fn new(names: &[&'static str], value: u64) -> Arc<Knows> {
        Arc::new(Knows { names: names.to_vec(), value, asked: Mutex::default() })
    }

    fn take_asked(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl DefinitionGenerator for Knows {
    fn generate(&self, dylib: &JitDylib, names: &[&str]) -> Result<()> {
        self.asked.lock().unwrap().push(names.iter().map(|name| name.to_string()).collect());
        for name in names.iter().filter(|name| self.names.contains(name)) {
            dylib.define(Unit::ready(&[name], self.value))?;
        }
        Ok(())
    }
}

#[test]
fn a_generator_is_asked_for_what_is_missing_and_no_more() {
    let world = World::new();
    let generator = Knows::new(&["bar"], 2);
    world.main.add_generator(generator.clone());
    world.main.define(Unit::ready(&["foo"], 1)).unwrap();
    assert_eq!(world.ask(&["foo", "bar"], RequiredState::Ready).addresses(), [1, 2]);
    assert_eq!(generator.take_asked(), [["bar"]]);
    assert_eq!(world.ask(&["foo", "bar"], RequiredState::Ready).addresses(), [1, 2]);
    assert!(generator.take_asked().is_empty(), "what it defined is there");
}

#[test]
fn a_generator_is_asked_once_for_a_name_that_is_requested_twice() {
    // It was handed the name twice, and its second definition was a duplicate of its first, which failed the lookup.
    let world = World::new();
    let generator = Knows::new(&["foo", "bar"], 1);
    world.main.add_generator(generator.clone());
    assert_eq!(world.ask(&["foo", "bar", "foo"], RequiredState::Ready).addresses(), [1, 1, 1]);
    assert_eq!(generator.take_asked(), [["foo", "bar"]]);
}

#[test]
fn generators_are_asked_in_order_and_the_rest_goes_on_to_the_next_and_to_the_next_dylib() {
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let (first, second, third) = (Knows::new(&["a"], 1), Knows::new(&["a", "b"], 2), Knows::new(&["c"], 3));
    world.main.add_generator(first.clone());
    world.main.add_generator(second.clone());
    other.add_generator(third.clone());
    let order = [(world.main.clone(), Visibility::All), (other.clone(), Visibility::All)];
    let found =
        world.session.lookup(&order, &["c", "b", "a"].map(SymbolRequest::required), RequiredState::Ready).unwrap();
    assert_eq!(found.iter().map(|result| result.address.value()).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(first.take_asked(), [["c", "b", "a"]]);
    assert_eq!(second.take_asked(), [["c", "b"]]);
    assert_eq!(third.take_asked(), [["c"]]);
    assert!(other.symbol_flags("c").is_some() && world.main.symbol_flags("c").is_none());
}

#[test]
fn a_generator_is_asked_for_weakly_requested_names_too() {
    let world = World::new();
    world.main.add_generator(Knows::new(&["foo"], 1));
    let requests = [SymbolRequest::weak("foo"), SymbolRequest::weak("bar")];
    let found =
        world.session.lookup(&[(world.main.clone(), Visibility::All)], &requests, RequiredState::Ready).unwrap();
    assert_eq!((found[0].address, found[1].address), (address(1), address(0)));
}

#[test]
fn a_generator_is_not_asked_for_a_name_that_its_dylib_hides() {
    // It was: and its definition then collided with the hidden one, which failed the lookup.
    let world = World::new();
    let other = world.session.create_dylib("other").unwrap();
    let generator = Knows::new(&["foo", "bar"], 9);
    world.main.add_generator(generator.clone());
    world.main.define_absolute([("foo".into(), address(1), SymbolFlags::NONE)]).unwrap();
    other.define(Unit::ready(&["foo"], 2)).unwrap();
    assert_eq!(find_in(&world.session, &[&world.main, &other], "foo").unwrap(), 2);
    assert!(generator.take_asked().is_empty());
}

#[test]
fn a_failing_generator_fails_the_lookup_with_its_own_error() {
    struct Fails;
    impl DefinitionGenerator for Fails {
        fn generate(&self, _: &JitDylib, _: &[&str]) -> Result<()> {
            Err(Error::other("archive is gone"))
        }
    }
    let world = World::new();
    world.main.add_generator(Arc::new(Fails));
    world.main.define(Unit::never(&["bar"])).unwrap();
    let error = world.ask(&["foo", "bar"], RequiredState::Ready).error();
    assert_eq!(error.to_string(), "archive is gone");
    let order = [(world.main.clone(), Visibility::All)];
    let flags = world.session.lookup_flags(&order, &["foo", "bar"].map(SymbolRequest::required));
    assert_eq!(flags.unwrap_err().to_string(), "archive is gone");
    assert_eq!(world.main.symbol_state("bar"), Some(SymbolState::NeverSearched));
}

#[test]
fn a_generator_may_look_up_define_and_remove() {
    struct Busy(ExecutionSession);
    impl DefinitionGenerator for Busy {
        fn generate(&self, dylib: &JitDylib, names: &[&str]) -> Result<()> {
            if names == ["inner"] {
                return Ok(());
            }
            assert_not_found(find_in(&self.0, &[dylib], "inner"));
            let own = self.0.create_dylib("scratch")?;
            own.define(Unit::ready(&["helper"], 4))?;
            let helper = find_in(&self.0, &[&own], "helper")?;
            self.0.remove_dylib(&own)?;
            dylib.define(Unit::ready(names, helper + 1))
        }
    }
    let world = World::new();
    world.main.add_generator(Arc::new(Busy(world.session.clone())));
    assert_eq!(world.find("foo").unwrap(), 5);
    world.session.end().unwrap();
}
