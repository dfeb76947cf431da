//! Names are equal by text, reference-counted, and freed with their last user (ORC: SymbolStringPoolTest, without the pool).

use std::collections::{BTreeSet, HashMap};

use jittison::base::Name;

use crate::support::*;

#[test]
fn names_with_equal_text_are_equal_and_interchangeable_as_keys() {
    let (first, second, other) = (Name::new("foo"), Name::from("foo".to_string()), Name::from("fop"));
    assert_eq!(first, second);
    assert_ne!(first, other);
    assert!(first < other);
    let mut table = HashMap::from([(first.clone(), 1)]);
    table.insert(second, 2);
    assert_eq!((table.len(), table["foo"]), (1, 2), "a table is searched by text");
    let sorted: BTreeSet<Name> = ["b", "a", "b"].map(Name::new).into();
    assert_eq!(sorted.iter().map(Name::as_str).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_name_reads_as_its_text_and_its_clones_share_it() {
    let name = Name::new("_ZN3fooE");
    let clone = name.clone();
    assert_eq!(name.as_str().as_ptr(), clone.as_str().as_ptr());
    drop(name);
    assert_eq!((clone.as_str(), clone.to_string().as_str(), clone.len()), ("_ZN3fooE", "_ZN3fooE", 8));
    assert_eq!(format!("{clone:?}"), "\"_ZN3fooE\"");
    assert_eq!(Name::new("").as_str(), "");
}

#[test]
fn looking_up_an_absent_name_adds_no_symbol() {
    let fixture = Fixture::new();
    for i in 0..sized(1_000, 50) {
        assert_not_found(fixture.find(&format!("absent{i}")));
    }
    assert_eq!(fixture.main.symbol_count(), 0);
}
