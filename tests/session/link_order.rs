//! Changes of link orders, and depth-first walks over them (ORC: CoreAPIsTest).

use jittison::error::ErrorKind;
use jittison::session::*;

use crate::support::*;

use Visibility::{All, ExportedOnly};

/// A session of dylibs `a`, `b`, ...; `links` has, for each, the indices of the dylibs that it links against.
fn linked(links: &[&[usize]]) -> (ExecutionSession, Vec<JitDylib>) {
    let session = ExecutionSession::new();
    let dylibs: Vec<_> = ('a'..).take(links.len()).map(|c| session.create_dylib(&c.to_string()).unwrap()).collect();
    for (dylib, links) in dylibs.iter().zip(links) {
        let order: Vec<_> = links.iter().map(|link| (dylibs[*link].clone(), ExportedOnly)).collect();
        dylib.set_link_order(&order).unwrap();
    }
    (session, dylibs)
}

fn names(dylibs: &[JitDylib]) -> String {
    dylibs.iter().map(JitDylib::name).collect()
}

fn order_of(dylib: &JitDylib) -> String {
    dylib.link_order().iter().map(|(dylib, _)| dylib.name()).collect()
}

#[test]
fn adding_skips_dylibs_that_are_already_in_the_order() {
    let (_session, d) = linked(&[&[1], &[], &[]]);
    d[0].add_to_link_order(&[(d[1].clone(), All), (d[2].clone(), All), (d[2].clone(), All)]).unwrap();
    assert_eq!(d[0].link_order(), [(d[1].clone(), ExportedOnly), (d[2].clone(), All)]);
    d[0].add_to_link_order(&[]).unwrap();
    assert_eq!(order_of(&d[0]), "bc");
}

#[test]
fn replacing_keeps_the_position_and_returns_whether_the_dylib_was_found() {
    let (_session, d) = linked(&[&[1, 2], &[], &[], &[]]);
    assert!(d[0].replace_in_link_order(&d[1], &d[3], All).unwrap());
    assert_eq!(d[0].link_order(), [(d[3].clone(), All), (d[2].clone(), ExportedOnly)]);
    assert!(!d[0].replace_in_link_order(&d[1], &d[2], All).unwrap());
    assert_eq!(order_of(&d[0]), "dc");
}

#[test]
fn removing_returns_whether_the_dylib_was_found_and_later_lookups_skip_it() {
    let (session, d) = linked(&[&[1], &[]]);
    d[1].define(Unit::ready(&["foo"], 1)).unwrap();
    let request = [SymbolRequest::required("foo")];
    assert!(session.lookup(&d[0].search_order(), &request, RequiredState::Ready).is_ok());
    assert!(d[0].remove_from_link_order(&d[1]));
    assert!(!d[0].remove_from_link_order(&d[1]));
    assert_not_found(session.lookup(&d[0].search_order(), &request, RequiredState::Ready));
}

#[test]
fn a_tree_is_walked_depth_first() {
    let (session, d) = linked(&[&[1, 2], &[3, 4], &[5], &[], &[], &[]]);
    assert_eq!(names(&session.dfs_link_order(&d[1..2]).unwrap()), "bde");
    assert_eq!(names(&session.dfs_link_order(&d[..1]).unwrap()), "abdecf");
    assert_eq!(names(&session.reverse_dfs_link_order(&d[..1]).unwrap()), "fcedba");
}

#[test]
fn a_diamond_is_walked_once() {
    let (session, d) = linked(&[&[1, 2], &[3], &[3], &[]]);
    assert_eq!(names(&session.dfs_link_order(&d[..1]).unwrap()), "abdc");
}

#[test]
fn a_cycle_is_walked_once_from_any_start() {
    let (session, d) = linked(&[&[0, 1], &[1, 2], &[2, 0]]);
    let from = |i: usize| names(&session.dfs_link_order(&d[i..=i]).unwrap());
    assert_eq!([from(0), from(1), from(2)], ["abc", "bca", "cab"]);
}

#[test]
fn several_roots_are_walked_in_order_each_once() {
    let (session, d) = linked(&[&[2], &[2], &[]]);
    assert_eq!(names(&session.dfs_link_order(&[d[1].clone(), d[0].clone(), d[2].clone()]).unwrap()), "bca");
    assert_eq!(names(&session.dfs_link_order(&[]).unwrap()), "");
}

#[test]
fn a_long_chain_of_dylibs_is_walked_without_recursion() {
    let session = ExecutionSession::new();
    let d: Vec<_> = (0..sized(5_000, 50)).map(|i| session.create_dylib(&i.to_string()).unwrap()).collect();
    d.windows(2).for_each(|pair| pair[0].add_to_link_order(&[(pair[1].clone(), All)]).unwrap());
    assert_eq!(session.dfs_link_order(&d[..1]).unwrap(), d);
}

#[test]
fn a_removed_root_is_an_error_and_a_removed_link_is_skipped() {
    let (session, d) = linked(&[&[1, 2], &[], &[]]);
    session.remove_dylib(&d[1]).unwrap();
    assert_eq!(names(&session.dfs_link_order(&d[..1]).unwrap()), "ac");
    assert!(!d[0].link_order().iter().any(|(dylib, _)| dylib == &d[1]));
    let error = session.dfs_link_order(&d[..2]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DylibDefunct { .. }), "{error}");
}
