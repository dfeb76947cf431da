//! Static libraries: which archive members are linked (by the rules of the system linker), and from which archive formats.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use jittison::error::{ErrorKind, LinkFault};
use jittison::session::{ReexportsGenerator, SymbolRequest, Visibility};
use jittison::{Error, Event, Jit, JitDylib};

use crate::support::*;
use jittison_test_support::archive_bytes::*;

/// A session whose main dylib uses archives of these members. The archives are built byte by byte.
fn with_archives(archives: &[&[(&str, &[u8])]]) -> Jit {
    let jit = new_jit();
    link_archives(&jit, jit.main_dylib(), archives);
    jit
}

fn link_archives(jit: &Jit, dylib: &JitDylib, archives: &[&[(&str, &[u8])]]) {
    let opened = archives.iter().enumerate().map(|(index, members)| {
        let bytes = gnu(members, &list_of(members));
        open(&format!("folder/lib{index}.a"), bytes).unwrap()
    });
    jit.static_libraries(dylib).unwrap().add(opened.collect()).unwrap();
}

fn is_defined(jit: &Jit, name: &str) -> bool {
    jit.main_dylib().symbol_flags(name).is_some()
}

/// Three objects, each of which needs the next, and a fourth that nothing needs and that cannot be linked.
fn chain() -> Option<[Vec<u8>; 4]> {
    Some([
        c("extern long middle(void); long test(void) { return middle() + 1; }")?,
        c("extern long last; long middle(void) { return last * 10; }")?,
        c("long last = 4; long beside_last(void) { return 9; }")?,
        for_another_machine(c("long unneeded(void) { return 1; }")?),
    ])
}

/// The same object with `e_machine` set to another one: AArch64, or x86-64.
fn for_another_machine(mut object: Vec<u8>) -> Vec<u8> {
    object[18] = if object[18] == 183 { 62 } else { 183 };
    object
}

#[test]
fn members_are_linked_from_indexed_unindexed_and_thin_archives_and_by_long_names() {
    let Some([test, middle, last, unneeded]) = chain() else { return };
    let long_name = "a_member_with_a_name_that_does_not_fit_into_its_header.o";
    let members = [
        ("test.o", &test[..]),
        (long_name, &middle),
        ("sub folder/last member.o", &last),
        ("unneeded.o", &unneeded),
        ("README", b"no object\n"),
    ];
    let all: [(&str, &[&str]); 9] = [
        ("ar", &["rcs"]),
        ("ar", &["rcS"]),
        ("ar", &["rcsT"]),
        ("ar", &["rcST"]),
        ("llvm-ar-19", &["--format=gnu", "rcs"]),
        ("llvm-ar-19", &["--format=bsd", "rcs"]),
        ("llvm-ar-19", &["--format=bsd", "rcS"]),
        ("llvm-ar-19", &["--format=darwin", "rcs"]),
        ("llvm-ar-19", &["--format=gnu", "--thin", "rcs"]),
    ];
    for (tool, flags) in all {
        let folder = PrivateDir::new();
        let Some(path) = folder.archive(tool, flags, "libchain.a", &members) else { continue };
        let jit = new_jit();
        jit.link_static_library(jit.main_dylib(), &path).unwrap();
        assert_eq!(jit.main_dylib().symbol_count(), 0, "{tool} {flags:?}: nothing is needed yet");
        assert_eq!(long(&jit, "test"), 41, "{tool} {flags:?}");
        assert_eq!(jit.main_dylib().symbol_count(), 4, "{tool} {flags:?}: only needed members are added");
    }
}

#[test]
fn every_kind_of_archive_index_is_read() {
    let Some([test, middle, last, _]) = chain() else { return };
    let members = [("test.o", &test[..]), ("the middle of three members.o", &middle), ("last.o", &last)];
    let list = list_of(&members);
    let kinds = [gnu(&members, &list), gnu64(&members, &list), bsd(&members, &list), bsd64(&members, &list)];
    for (kind, bytes) in kinds.into_iter().enumerate() {
        let jit = new_jit();
        let archive = open("libchain.a", bytes).unwrap();
        assert_eq!(
            archive.member(archive.member_offsets().unwrap()[1]).unwrap().name(),
            format!("libchain.a({})", members[1].0)
        );
        let libraries = jit.static_libraries(jit.main_dylib()).unwrap();
        libraries.add(vec![archive]).unwrap();
        assert_eq!(libraries.archives().name_count(), 4);
        assert_eq!(long(&jit, "test"), 41, "kind {kind}");
    }
}

// Seen red: the index has `f@@V2` only, and neither name was found.
#[test]
fn a_default_version_in_an_index_supplies_its_name_and_its_version() {
    let versioned = |own: &str, version: &str, value: u32| {
        asm(&format!(
            ".text\n.globl {own}\n.symver {own}, {version}\n{own}: mov ${value}, %eax; ret
             .section .note.GNU-stack,\"\",@progbits"
        ))
    };
    let (Some(f), Some(g), Some(user)) = (
        versioned("own_f", "f@@V2", 5),
        versioned("own_g", "g@@V1", 7),
        asm("
            .symver wanted, g@V1
            .text
            .globl test
            test: push %rbx; call f@PLT; mov %eax, %ebx; call wanted@PLT; imul $10, %eax; add %ebx, %eax; pop %rbx; ret
            .section .note.GNU-stack,\"\",@progbits"),
    ) else {
        return;
    };
    let jit = new_jit();
    let members: &[(&str, &[u8])] = &[("f.o", &f), ("g.o", &g)];
    let list = [("f@@V2".to_string(), 0), ("g@@V1".to_string(), 1)];
    let archives = vec![open("lib.a", gnu(members, &list)).unwrap()];
    jit.static_libraries(jit.main_dylib()).unwrap().add(archives).unwrap();
    for _ in 0..3 {
        let user = add(&jit, jit.main_dylib(), "user.o", &user);
        assert_eq!(long(&jit, "test"), 75);
        // The members are found again after their removal.
        user.remove_cascade().unwrap();
        assert!(jit.main_dylib().default_tracker().unwrap().remove().unwrap().is_complete());
        assert_eq!(jit.main_dylib().symbol_count(), 0);
    }
}

#[test]
fn members_share_the_bytes_of_their_archive_at_any_even_offset() {
    let Some([test, middle, last, _]) = chain() else { return };
    // Objects may begin at any even offset, not only at multiples of eight.
    for padding in 0..5 {
        let filler = vec![b' '; 2 * padding];
        let members = [("f", &filler[..]), ("test.o", &test), ("middle.o", &middle), ("last.o", &last)];
        let archive = open("libchain.a", gnu(&members, &list_of(&members))).unwrap();
        let offsets = archive.member_offsets().unwrap();
        let [first, second] = [1, 1].map(|index: usize| archive.member(offsets[index]).unwrap());
        assert!(std::ptr::eq(&first.bytes[0], &second.bytes[0]), "nothing is copied");
        let jit = new_jit();
        jit.static_libraries(jit.main_dylib()).unwrap().add(vec![archive]).unwrap();
        assert_eq!(long(&jit, "test"), 41);
    }
}

#[test]
fn archives_satisfy_each_other_in_any_order_added_together_or_one_by_one() {
    let Some([test, middle, last, unneeded]) = chain() else { return };
    let outer: &[(&str, &[u8])] = &[("test.o", &test), ("last.o", &last)];
    let inner: &[(&str, &[u8])] = &[("unneeded.o", &unneeded), ("middle.o", &middle)];
    for order in [[outer, inner], [inner, outer]] {
        assert_eq!(long(&with_archives(&order), "test"), 41);
        let jit = new_jit();
        order.iter().for_each(|archive| link_archives(&jit, jit.main_dylib(), &[archive]));
        assert_eq!(long(&jit, "test"), 41);
    }
    // No lookup asks for what the archive members need. An object does.
    let jit = with_archives(&[inner]);
    let _objects = [add(&jit, jit.main_dylib(), "last.o", &last), add(&jit, jit.main_dylib(), "test.o", &test)];
    assert_eq!(long(&jit, "test"), 41);
}

#[test]
fn a_member_is_not_added_for_a_name_that_the_dylib_defines() {
    let (Some([test, middle, last, _]), Some(own)) = (chain(), c("long last = 7;")) else { return };
    let jit = with_archives(&[&[("test.o", &test), ("middle.o", &middle), ("last.o", &last)]]);
    let _own = add(&jit, jit.main_dylib(), "own.o", &own);
    assert_eq!(long(&jit, "test"), 71);
    assert!(!is_defined(&jit, "beside_last"));
}

#[test]
fn the_first_archive_that_lists_a_name_defines_it() {
    let (Some(one), Some(two)) = (c("long test(void) { return 1; }"), c("long test(void) { return 2; }")) else {
        return;
    };
    let [one, two] = [[("m.o", &one[..])], [("m.o", &two[..])]];
    assert_eq!(long(&with_archives(&[&one, &two]), "test"), 1);
    assert_eq!(long(&with_archives(&[&two, &one]), "test"), 2);
}

#[test]
fn members_with_the_same_file_name_are_separate_members() {
    let (Some(one), Some(two), Some(three)) = (
        c("extern long two(void); long one(void) { return two() + 1; }"),
        c("long two(void) { return 2; }"),
        c("long three(void) { return 3; } long two(void) { return 4; }"),
    ) else {
        return;
    };
    let jit = with_archives(&[&[("m.o", &one), ("m.o", &two), ("m.o", &three)]]);
    assert_eq!(long(&jit, "one"), 3);
    let error = jit.address_of(jit.main_dylib(), "three").unwrap_err();
    let ErrorKind::DuplicateDefinition { first, second, .. } = error.kind() else { panic!("{error}") };
    assert_ne!(first, second, "the offsets distinguish the members");
    assert!(first.starts_with("folder/lib0.a(m.o at 0x") && second.starts_with("folder/lib0.a(m.o at 0x"), "{error}");
}

#[test]
fn a_weak_reference_adds_no_member_and_binds_to_members_already_added() {
    let (Some(user), Some(optional), Some(bridge), Some(needs)) = (
        c("extern long optional(void) __attribute__((weak)); extern long bridge(void) __attribute__((weak));
           long test(void) { return (optional ? optional() : 0) + (bridge ? 100 : 0); }"),
        c("long optional(void) { return 5; }"),
        c("extern long optional(void); long bridge(void) { return optional(); }"),
        c("extern long bridge(void); extern long test(void); long both(void) { return test() + bridge(); }"),
    ) else {
        return;
    };
    let members: &[(&str, &[u8])] = &[("user.o", &user), ("optional.o", &optional), ("bridge.o", &bridge)];
    let jit = with_archives(&[members]);
    assert_eq!(long(&jit, "test"), 0);
    assert!(!is_defined(&jit, "optional") && !is_defined(&jit, "bridge"));

    // An object requires a member, and the member requires `optional`. This is known before the first of them is linked.
    let jit = with_archives(&[members]);
    let _needs = add(&jit, jit.main_dylib(), "needs.o", &needs);
    assert_eq!(long(&jit, "both"), 110);

    // A weak request of the host adds no member. A required one does.
    let jit = with_archives(&[members]);
    let look_up =
        |request| jit.main_dylib().lookup(&[request], jittison::session::RequiredState::Ready).unwrap()[0].address;
    assert!(look_up(SymbolRequest::weak("optional")).is_null());
    assert!(!look_up(SymbolRequest::required("optional")).is_null());
    assert!(!look_up(SymbolRequest::weak("optional")).is_null());
}

#[test]
fn a_strong_definition_in_another_member_overrides_a_weak_one() {
    // As in C libraries: `exit` calls a weak stub, unless another needed member has the strong definition.
    let (Some(user), Some(exit), Some(print), Some(flush)) = (
        c("extern long leave(void), print(void); long test(void) { return leave() + print(); }"),
        c("__attribute__((weak)) long flush(void) { return 0; } long leave(void) { return flush(); }"),
        c("extern long flush_needed; long print(void) { return flush_needed; }"),
        c("long flush_needed = 1; long flush(void) { return 50; }"),
    ) else {
        return;
    };
    let mut members = [("exit.o", &exit[..]), ("print.o", &print), ("flush.o", &flush)];
    for _ in 0..3 {
        members.rotate_left(1);
        let jit = with_archives(&[&members]);
        let _user = add(&jit, jit.main_dylib(), "user.o", &user);
        assert_eq!(long(&jit, "test"), 51);
    }
}

#[test]
fn common_and_weak_symbols_of_several_members_are_one() {
    let common = |source: &str| gcc(&["-O2", "-fPIC", "-fcommon"], source);
    let (Some(tentative), Some(defined), Some(user)) = (
        common("long shared; long *tentative(void) { return &shared; }"),
        common("long shared = 7; long *defined(void) { return &shared; }"),
        c("extern long *tentative(void), *defined(void);
           long test(void) { return *tentative() * 10 + (tentative() == defined()); }"),
    ) else {
        return;
    };
    for members in [[("t.o", &tentative[..]), ("d.o", &defined)], [("d.o", &defined), ("t.o", &tentative)]] {
        let jit = with_archives(&[&members]);
        let _user = add(&jit, jit.main_dylib(), "user.o", &user);
        assert_eq!(long(&jit, "test"), 71);
    }
    // A common symbol is a definition. No member is added for it.
    let jit = with_archives(&[&[("d.o", &defined)]]);
    let _tentative = add(&jit, jit.main_dylib(), "t.o", &tentative);
    let shared = long(&jit, "tentative");
    assert_eq!(i64::from_le_bytes(read(shared as u64, 8).try_into().unwrap()), 0);
    assert!(!is_defined(&jit, "defined"));

    let weak = |value: u32, function: &str| {
        c(&format!(
            "__attribute__((weak)) long choice(void) {{ return {value}; }}
             extern long choice(void); long {function}(void) {{ return choice(); }}"
        ))
    };
    let user = c("extern long a(void), b(void); long test(void) { return a() * 10 + b(); }");
    let (Some(a), Some(b), Some(user)) = (weak(1, "a"), weak(2, "b"), user) else { return };
    let jit = with_archives(&[&[("a.o", &a), ("b.o", &b)]]);
    let _user = add(&jit, jit.main_dylib(), "user.o", &user);
    assert!(matches!(long(&jit, "test"), 11 | 22), "both callers get the same definition");
}

#[test]
fn two_strong_definitions_are_refused_with_both_places() {
    let (Some(a), Some(b), Some(user)) = (
        c("long a(void) { return 1; } long twice(void) { return 1; }"),
        c("long b(void) { return 2; } long twice(void) { return 2; }"),
        c("extern long a(void), b(void); long test(void) { return a() + b(); }"),
    ) else {
        return;
    };
    let jit = with_archives(&[&[("a.o", &a)], &[("b.o", &b)]]);
    let _user = add(&jit, jit.main_dylib(), "user.o", &user);
    let error = jit.address_of(jit.main_dylib(), "test").unwrap_err();
    assert!(matches!(error.root_cause().kind(), ErrorKind::DuplicateDefinition { .. }), "{error}");
    assert_says(&error, &["`twice`", "lib0.a(a.o)", "lib1.a(b.o)"]);
}

#[test]
fn a_member_that_is_no_object_is_an_error_only_when_it_is_needed() {
    let (Some([test, middle, last, unneeded]), Some(bitcode)) = (
        chain(),
        build(
            "clang-19",
            b"long from_bitcode(void) { return 1; }",
            &["-x", "c", "-c", "-emit-llvm", "-o", OUTPUT, INPUT],
        ),
    ) else {
        return;
    };
    let members = [
        ("README", &b"text"[..]),
        ("empty", b""),
        ("b.bc", &bitcode),
        ("test.o", &test),
        ("m.o", &middle),
        ("l.o", &last),
        ("u.o", &unneeded),
    ];
    let mut list = list_of(&members);
    list.extend([("from_bitcode".to_string(), 2), ("unneeded".to_string(), 6)]);
    let bytes = gnu(&members, &list);
    let jit = new_jit();
    jit.static_libraries(jit.main_dylib()).unwrap().add(vec![open("lib.a", bytes).unwrap()]).unwrap();
    assert_eq!(long(&jit, "test"), 41);
    let error = jit.address_of(jit.main_dylib(), "from_bitcode").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Link { fault: LinkFault::NotAnObject(_), .. }), "{error}");
    assert_says(&error, &["lib.a(b.bc)", "LLVM bitcode"]);
    let error = jit.address_of(jit.main_dylib(), "unneeded").unwrap_err();
    assert_says(&error, &["lib.a(u.o)", "wrong architecture"]);
    assert_eq!(jit.main_dylib().symbol_count(), 4, "a refused member adds nothing");
    assert_eq!(long(&jit, "beside_last"), 9, "the other members can still be used");
}

#[test]
fn removed_members_are_added_again_when_they_are_needed_again() {
    let Some([test, middle, last, _]) = chain() else { return };
    let members: &[(&str, &[u8])] = &[("test.o", &test), ("middle.o", &middle), ("last.o", &last)];
    // The members belong to the default tracker.
    let jit = with_archives(&[members]);
    for _ in 0..3 {
        assert_eq!(long(&jit, "test"), 41);
        assert!(jit.main_dylib().default_tracker().unwrap().remove().unwrap().is_complete());
        assert_eq!((jit.main_dylib().symbol_count(), held(&jit)), (0, (0, 0, 0)));
    }
    // The members belong to a tracker of the caller, and to the default tracker once that one is removed.
    let libraries = jit.static_libraries(jit.main_dylib()).unwrap();
    for _ in 0..3 {
        let tracker = jit.main_dylib().create_tracker().unwrap();
        libraries.set_tracker(&tracker);
        assert_eq!(long(&jit, "middle"), 40);
        assert_eq!(jit.main_dylib().symbol_count_of(tracker.key()), 3);
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!((jit.main_dylib().symbol_count(), held(&jit)), (0, (0, 0, 0)));
    }
    assert_eq!(long(&jit, "test"), 41);
    // A transfer is not a removal.
    let tracker = jit.main_dylib().create_tracker().unwrap();
    jit.main_dylib().default_tracker().unwrap().transfer_to(&tracker).unwrap();
    jit.main_dylib().remove_symbols(&["middle"]).unwrap();
    let error = jit.address_of(jit.main_dylib(), "absent").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::SymbolsNotFound { .. }), "{error}");
    assert_eq!(long(&jit, "test"), 41);
}

#[test]
fn a_member_that_failed_to_link_is_added_again_when_its_missing_symbol_exists() {
    let Some([test, middle, last, _]) = chain() else { return };
    let jit = with_archives(&[&[("test.o", &test), ("middle.o", &middle)]]);
    let error = jit.address_of(jit.main_dylib(), "test").unwrap_err();
    assert_says(&error, &["`last`", "needed by lib0.a(middle.o)"]);
    link_archives(&jit, jit.main_dylib(), &[&[("last.o", &last)]]);
    assert_eq!(long(&jit, "test"), 41);
}

// Seen red: the lookup did not end. Each member that needed a failed one added it again.
#[test]
fn members_in_a_ring_with_one_that_cannot_be_linked_fail_once_for_each_lookup() {
    const COUNT: usize = 8;
    let member = |number: usize| {
        // The second member is linked early, and cannot be linked. All need it, and it needs the first.
        let (next, bad) = match number {
            1 => (vec![0], "__asm__(\".short m1\");"),
            _ => {
                ([1, number + 1, number + 2].into_iter().filter(|next| *next < COUNT && *next != number).collect(), "")
            }
        };
        let declared: String = next.iter().map(|next| format!("long m{next}(void);")).collect();
        let called: String = next.iter().map(|next| format!(" + m{next}()")).collect();
        c(&format!("{bad} {declared} long m{number}(void) {{ return 1{called}; }}"))
    };
    let Some(objects) = (0..COUNT).map(member).collect::<Option<Vec<_>>>() else { return };
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = refused.clone();
    let count = move |event: &Event<'_>| {
        if matches!(event, Event::Refused { .. }) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    };
    let jit = Jit::builder().observer(Arc::new(count)).build().unwrap();
    let names: Vec<String> = (0..COUNT).map(|number| format!("m{number}.o")).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(String::as_str).zip(objects.iter().map(Vec::as_slice)).collect();
    link_archives(&jit, jit.main_dylib(), &[&members]);
    for _ in 0..3 {
        let error = jit.address_of(jit.main_dylib(), "m0").unwrap_err();
        assert_says(&error, &["lib0.a(m1.o)", "out of range"]);
        let tries = refused.swap(0, Ordering::Relaxed);
        assert!((1..=COUNT).contains(&tries), "{tries} failures of {COUNT} members");
    }
}

#[test]
fn one_generator_serves_several_dylibs_and_each_gets_its_own_members() {
    let Some(counter) = c("long count; long test(void) { return ++count; }") else { return };
    let jit = with_archives(&[&[("counter.o", &counter)]]);
    let libraries = jit.static_libraries(jit.main_dylib()).unwrap();
    // A tracker of the main dylib. Members for the other dylib belong to that dylib's default tracker.
    libraries.set_tracker(&jit.main_dylib().create_tracker().unwrap());
    let other = jit.create_dylib("other").unwrap();
    other.add_generator(libraries);
    assert_eq!((long(&jit, "test"), long(&jit, "test"), long_in(&jit, &other, "test")), (1, 2, 1));
    assert_eq!(other.symbol_count_of(other.default_tracker().unwrap().key()), 2);
}

#[test]
fn required_names_are_fetched_through_a_dylib_that_reexports_them() {
    let (Some(library), Some(user)) = (
        c("long fetched(void) { return 3; }"),
        c("extern long fetched(void); extern long absent(void) __attribute__((weak));
           long test(void) { return fetched() + (absent ? 10 : 0); }"),
    ) else {
        return;
    };
    let jit = new_jit();
    let source = jit.create_dylib("source").unwrap();
    link_archives(&jit, &source, &[&[("fetched.o", &library)]]);
    let facade = jit.create_dylib("facade").unwrap();
    facade.add_generator(Arc::new(ReexportsGenerator::new(&source, |_| true)));
    jit.main_dylib().set_link_order(&[(facade, Visibility::ExportedOnly)]).unwrap();
    let _user = add(&jit, jit.main_dylib(), "user.o", &user);
    assert_eq!(long(&jit, "test"), 3);
    assert!(source.symbol_flags("fetched").is_some());
}

#[test]
fn threads_that_need_the_same_members_add_each_once() {
    let functions: Vec<_> =
        (0..24).map(|n| format!("extern long f{0}(void); long f{n}(void) {{ return f{0}() + 1; }}", n + 1)).collect();
    let objects: Option<Vec<_>> = functions.iter().map(|source| c(source)).collect();
    let (Some(mut objects), Some(end)) = (objects, c("long f24(void) { return 0; }")) else { return };
    objects.push(end);
    let names: Vec<String> = (0..25).map(|n| format!("f{n}.o")).collect();
    let members: Vec<(&str, &[u8])> = names.iter().zip(&objects).map(|(name, bytes)| (&**name, &**bytes)).collect();
    for round in 0..20 {
        let jit = with_archives(&[&members]);
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (jit, start) = (&jit, &start);
                scope.spawn(move || {
                    start.wait();
                    for step in 0..25 {
                        let n = (step * (2 * thread + 1) + round) % 25;
                        assert_eq!(long(jit, &format!("f{n}")), 24 - n);
                    }
                });
            }
        });
        assert_eq!(jit.main_dylib().symbol_count(), 25);
    }
}

#[test]
fn a_whole_archive_is_added_and_its_initialisers_run_in_archive_order() {
    let recorder = "extern long order;";
    let initializer = |n: u32| {
        c(&format!("{recorder} __attribute__((constructor)) static void set(void) {{ order = order * 10 + {n}; }}"))
    };
    let (Some(first), Some(second), Some(order)) =
        (initializer(1), initializer(2), c("long order; long test(void) { return order; }"))
    else {
        return;
    };
    let folder = PrivateDir::new();
    let members = [("first.o", &first[..]), ("order.o", &order), ("second.o", &second)];
    for flags in ["rcs", "rcsT", "rcS"] {
        let name = format!("lib{flags}.a");
        let Some(path) = folder.archive("ar", &[flags], &name, &members) else { return };
        let jit = new_jit();
        let tracker = jit.main_dylib().create_tracker().unwrap();
        assert_eq!(jit.add_archive_whole(&tracker, &path).unwrap(), 3);
        assert_eq!(initialize(&jit, jit.main_dylib()), 2);
        assert_eq!(long(&jit, "test"), 12);
        assert!(tracker.remove().unwrap().is_complete());
        assert_eq!((jit.main_dylib().symbol_count(), held(&jit)), (0, (0, 0, 0)));
        // Only needed members are added, and nothing needs the initialisers.
        jit.link_static_library(jit.main_dylib(), &path).unwrap();
        assert_eq!((long(&jit, "test"), initialize(&jit, jit.main_dylib())), (0, 0));
    }
}

#[test]
fn initialisers_of_members_that_initialisation_adds_run_too() {
    let (Some(main), Some(helper), Some(registry)) = (
        c("extern void helper(void); __attribute__((constructor)) static void set(void) { helper(); }"),
        // Requires a symbol without a relocation. Nothing else links the member that defines it.
        asm(".globl helper, registered\nhelper: ret"),
        c("long registered; __attribute__((constructor)) static void set(void) { registered = 6; }
           long test(void) { return registered; }"),
    ) else {
        return;
    };
    let jit = with_archives(&[&[("helper.o", &helper), ("registry.o", &registry)]]);
    let _main = add(&jit, jit.main_dylib(), "main.o", &main);
    assert_eq!(initialize(&jit, jit.main_dylib()), 2);
    assert_eq!(long(&jit, "test"), 6);
}

#[test]
fn a_whole_archive_that_cannot_be_added_adds_nothing() {
    let Some([test, middle, last, unneeded]) = chain() else { return };
    let add_all = |members: &[(&str, &[u8])]| -> Error {
        let folder = PrivateDir::new();
        let path = folder.write("libwhole.a", gnu(members, &list_of(members)));
        let jit = new_jit();
        let _last = add(&jit, jit.main_dylib(), "last.o", &last);
        let tracker = jit.main_dylib().create_tracker().unwrap();
        let error = jit.add_archive_whole(&tracker, &path).unwrap_err();
        assert_eq!(jit.main_dylib().symbol_count(), 2, "{error}");
        assert_eq!(jit.main_dylib().symbol_count_of(tracker.key()), 0);
        links_on(&jit);
        error
    };
    assert_says(
        &add_all(&[("test.o", &test), ("last.o", &last)]),
        &["duplicate", "first in last.o", "libwhole.a(last.o)"],
    );
    assert_says(&add_all(&[("test.o", &test), ("README", b"text")]), &["libwhole.a(README)", "not a relocatable ELF"]);
    assert_says(&add_all(&[("middle.o", &middle), ("u.o", &unneeded)]), &["libwhole.a(u.o)"]);
    let jit = new_jit();
    let tracker = jit.main_dylib().create_tracker().unwrap();
    tracker.remove().unwrap();
    let folder = PrivateDir::new();
    let path = folder.write("lib.a", gnu(&[("test.o", &test)], &[]));
    assert!(matches!(jit.add_archive_whole(&tracker, path).unwrap_err().kind(), ErrorKind::TrackerDefunct { .. }));
    assert_eq!(jit.main_dylib().symbol_count(), 0);
}

#[test]
fn a_thin_archive_names_the_member_file_that_is_missing() {
    let Some([test, middle, last, _]) = chain() else { return };
    let folder = PrivateDir::new();
    let members = [("test.o", &test[..]), ("parts/middle.o", &middle), ("last.o", &last)];
    let Some(path) = folder.archive("ar", &["rcsT"], "libthin.a", &members) else { return };
    std::fs::remove_file(folder.path("parts/middle.o")).unwrap();
    let jit = new_jit();
    jit.link_static_library(jit.main_dylib(), &path).unwrap();
    assert_eq!(long(&jit, "beside_last"), 9, "members that exist can be used");
    let error = jit.address_of(jit.main_dylib(), "test").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::File { .. }), "{error}");
    assert_says(&error, &[&folder.path("parts/middle.o").display().to_string()]);
    folder.write("parts/middle.o", &middle);
    assert_eq!(long(&jit, "test"), 41);
}

#[test]
fn a_file_that_is_no_archive_is_refused_by_name_and_adds_nothing() {
    let Some([test, ..]) = chain() else { return };
    let folder = PrivateDir::new();
    let good = folder.write("libgood.a", gnu(&[("test.o", &test)], &[("test".to_string(), 0)]));
    let jit = new_jit();
    let refused = |name: &str, bytes: &[u8], parts: &[&str]| {
        let bad = folder.write(name, bytes);
        let error = jit.link_static_libraries(jit.main_dylib(), [&good, &bad]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Archive { .. }), "{error}");
        assert_says(&error, &[&bad.display().to_string()]);
        assert_says(&error, parts);
    };
    refused("script.a", b"/* GNU ld script */\nGROUP ( libm-2.36.a )\n", &["it begins with `/* GNU l`"]);
    refused("object.a", &test, &["it begins with `\\x7fELF"]);
    refused("empty.a", b"", &["it begins with ``"]);
    refused("aix.a", b"<bigaf>\n", &["<bigaf>"]);
    // An index of one symbol, whose name is missing.
    let list = member("/", &[1u32.to_be_bytes(), 8u32.to_be_bytes()].concat());
    refused("list.a", &[&b"!<arch>\n"[..], &list].concat(), &["at offset 0x8", "name"]);
    let missing = folder.path("missing.a");
    let error = jit.link_static_library(jit.main_dylib(), &missing).unwrap_err();
    assert_says(&error, &[&missing.display().to_string()]);
    assert!(jit.address_of(jit.main_dylib(), "test").is_err(), "the good archive was not added either");
    jit.link_static_library(jit.main_dylib(), &good).unwrap();
    let gone = jit.create_dylib("gone").unwrap();
    jit.session().remove_dylib(&gone).unwrap();
    let error = jit.link_static_library(&gone, &good).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DylibDefunct { .. }), "{error}");
}

#[test]
fn an_archive_without_members_defines_nothing() {
    for bytes in [&b"!<arch>\n"[..], b"!<thin>\n"] {
        let jit = new_jit();
        let archive = open("libempty.a", bytes.to_vec()).unwrap();
        assert!(archive.member_offsets().unwrap().is_empty());
        jit.static_libraries(jit.main_dylib()).unwrap().add(vec![archive]).unwrap();
        assert!(jit.address_of(jit.main_dylib(), "test").is_err());
    }
}
