//! Every mapping mode keeps the same promises: code runs, throws and can be removed, no page is ever writable and executable,
//! and the mode describes itself.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jittison::Jit;
use jittison::base::SegmentKind;
use jittison::link::{ObjectBuffer, PlannedLink};
use jittison::memory::{
    DualMapper, ForkPolicy, MappedWindow, MemoryManager, MemoryMapper, Placement, PlainDualMapper, SingleMapper,
    SlabPool, SlabPoolOptions, SystemMapper, WindowLayout,
};

use crate::slab::{held as pool_held, make, plan};
use crate::support::*;

/// The mapping modes, best first, each with the rights of code and constants as `/proc/self/maps` shows them.
pub fn mapping_modes() -> [(&'static dyn MemoryMapper, [&'static str; 2]); 3] {
    [
        (&DualMapper { fork_policy: jittison::memory::ForkPolicy::Snapshot }, ["r-xs", "r--s"]),
        (&PlainDualMapper { fork_policy: jittison::memory::ForkPolicy::Snapshot }, ["r-xs", "r--s"]),
        (&SingleMapper, ["r-xp", "r--p"]),
    ]
}

pub fn pool_of(mapper: &'static dyn MemoryMapper, placement: Placement) -> Arc<SlabPool> {
    let options = SlabPoolOptions { placement, trap_freed_code: true, ..SlabPoolOptions::default() };
    Arc::new(SlabPool::with_mapper(mapper, options).unwrap())
}

pub fn jit_over(memory: Arc<SlabPool>) -> Jit {
    Jit::builder().library("libstdc++.so.6").memory_manager(memory).build().unwrap()
}

pub fn jit_of(mapper: &'static dyn MemoryMapper) -> Jit {
    jit_over(pool_of(mapper, Placement::default()))
}

/// Two objects: one throws, and `catcher` in the other catches the exception and returns 42.
pub fn throwing() -> Option<[Vec<u8>; 2]> {
    Some([
        cpp("extern \"C\" long thrower(long x) { if (x) throw x; return 0; }")?,
        cpp("extern \"C\" long thrower(long);
             extern \"C\" long catcher(void) { try { thrower(7); } catch (long v) { return v * 6; } return -1; }")?,
    ])
}

/// Links both objects of [`throwing`], throws and catches, and removes them.
pub fn assert_throws_and_catches(jit: &Jit, objects: &[Vec<u8>; 2]) {
    let dylib = jit.create_dylib("throws").unwrap();
    let trackers = objects.each_ref().map(|object| add(jit, &dylib, "throwing.o", object));
    assert_eq!(long_in(jit, &dylib, "catcher"), 42);
    for tracker in trackers.iter().rev() {
        assert!(tracker.remove().unwrap().is_complete());
    }
    assert!(jit.session().remove_dylib(&dylib).unwrap().is_empty());
}

/// The mappings that are both writable and executable.
pub fn writable_and_executable() -> Vec<Mapping> {
    let is_both = |mapping: &Mapping| mapping.protection.contains('w') && mapping.protection.contains('x');
    mappings().into_iter().filter(is_both).collect()
}

fn protection_at(address: u64) -> String {
    // Shares the process: the caller owns the mapping at this address.
    let contains = |mapping: &Mapping| (mapping.start..mapping.end).contains(&address);
    mappings().into_iter().find(contains).unwrap().protection
}

fn object() -> Option<Vec<u8>> {
    c("static const long constant[3] = { 5 }; static long state; static char zero[9000];
       long test(void) { return constant[0] + state++ + zero[5]; }
       const void *constant_at(void) { return constant; } void *state_at(void) { return &state; }")
}

#[test]
fn code_links_runs_throws_and_is_removed_in_every_mapping_mode() {
    let (Some(object), Some(throwing)) = (object(), throwing()) else { return };
    for (mapper, [code, constants]) in mapping_modes() {
        let jit = jit_of(mapper);
        let mut places = std::collections::BTreeSet::new();
        for round in 0..20 {
            let tracker = add(&jit, jit.main_dylib(), "object.o", &object);
            assert_eq!([long(&jit, "test"), long(&jit, "test")], [5, 6], "round {round}");
            let place = jit.address_of(jit.main_dylib(), "test").unwrap().value();
            assert_eq!(protection_at(place), code);
            assert_eq!(protection_at(long(&jit, "constant_at") as u64), constants);
            assert_eq!(protection_at(long(&jit, "state_at") as u64), "rw-p");
            assert_throws_and_catches(&jit, &throwing);
            assert!(tracker.remove().unwrap().is_complete());
            places.insert(place);
        }
        assert_eq!(places.len(), 1, "the address is reused");
        assert_eq!(held(&jit), (0, 0, 0));
    }
}

#[test]
fn every_mapping_mode_describes_itself_and_the_best_reports_no_refusal() {
    let layout = WindowLayout::divide(32 << 20).unwrap();
    let describe = |mapper: &dyn MemoryMapper| mapper.map_window(&layout, Placement::Anywhere).unwrap().description();
    let texts = mapping_modes().map(|(mapper, _)| describe(mapper));
    assert_eq!(texts[0], "mapped twice, the running view from a read-only descriptor");
    assert_eq!(texts[1], "mapped twice, the running view from a writable descriptor");
    assert_eq!(texts[2], "mapped once, pages alternate between writable and executable");
    assert_eq!(
        describe(&SystemMapper { fork_policy: ForkPolicy::Snapshot }),
        texts[0],
        "this machine allows the best mode"
    );
}

#[test]
fn no_page_is_writable_and_executable_before_or_after_sealing() {
    own_process!();
    let (Some(object), Some(other)) = (object(), c("long other(void) { return 8; }")) else { return };
    for (mapper, [code, constants]) in mapping_modes() {
        let memory = pool_of(mapper, Placement::Anywhere);
        let jit = jit_over(memory.clone());
        let assert_none =
            |when: &str| assert_eq!(writable_and_executable().len(), 0, "{when}: {:?}", writable_and_executable());
        assert_none("fresh");
        let _tracker = add(&jit, jit.main_dylib(), "object.o", &object);
        assert_eq!(long(&jit, "test"), 5);
        assert_none("after a link");
        let (base, size) = memory.window();
        let within = base.value()..base.value() + size;
        let pieces = || mappings().iter().filter(|mapping| within.contains(&mapping.start)).count();
        let after_link = pieces();
        let plan = || PlannedLink::plan("a.o".into(), ObjectBuffer::new(other.clone()), |_| true, |_| Ok(())).unwrap();
        let in_flight: Vec<_> = (0..5).map(|_| plan().allocate(&*memory).unwrap()).collect();
        assert_none("before sealing");
        // Linked code beside the open ranges keeps its rights.
        let address = jit.address_of(jit.main_dylib(), "test").unwrap().value();
        assert_eq!(protection_at(address), code);
        assert_eq!(protection_at(long(&jit, "constant_at") as u64), constants);
        let mut sealed = Vec::new();
        for one in in_flight {
            let text = one.definitions().find(|(name, _)| *name == "other").unwrap().1.value();
            assert!(
                !protection_at(text).contains('x') || code == "r-xs",
                "the writable address of unsealed code is not executable"
            );
            sealed.push(one.finish(&[], None).unwrap());
            assert_eq!(protection_at(text), code);
            assert_none("sealed");
        }
        assert_eq!(pieces(), after_link, "sealed neighbours form one mapping again");
        drop(sealed);
        assert_none("freed");
        assert_eq!(long(&jit, "test"), 6);
    }
}

#[test]
fn no_page_is_writable_and_executable_while_threads_link_and_remove() {
    own_process!();
    let Some(object) = object() else { return };
    for (mapper, _) in mapping_modes() {
        let (jit, is_done) = (jit_of(mapper), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (jit, object, is_done) = (&jit, &object, &is_done);
                scope.spawn(move || {
                    let dylib = jit.create_dylib(&format!("thread {thread}")).unwrap();
                    while !is_done.load(Ordering::Relaxed) {
                        let tracker = add(jit, &dylib, "object.o", object);
                        assert_eq!(long_in(jit, &dylib, "test"), 5);
                        assert!(tracker.remove().unwrap().is_complete());
                    }
                });
            }
            let _end = SetOnDrop(&is_done);
            let seen: Vec<_> = (0..200).map(|_| writable_and_executable()).collect();
            assert!(seen.iter().all(Vec::is_empty), "{seen:?}");
        });
        assert_eq!(held(&jit), (0, 0, 0));
    }
}

#[test]
fn the_kernel_refuses_to_make_code_of_the_best_mapping_mode_writable() {
    own_process!();
    let Some(object) = object() else { return };
    // In its own process: here the kernel may grant rights that another test must not see.
    for (mode, (mapper, _)) in mapping_modes().into_iter().enumerate() {
        let jit = jit_of(mapper);
        let _tracker = add(&jit, jit.main_dylib(), "object.o", &object);
        assert_eq!(long(&jit, "test"), 5);
        let page = jit.address_of(jit.main_dylib(), "test").unwrap().value() & !(page_size() - 1);
        for rights in [libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC] {
            // SAFETY: requests more rights to a page of this test's own session. The rights are restored below.
            let changed = unsafe { libc::mprotect(page as *mut c_void, page_size() as usize, rights) };
            assert_eq!(changed, if mode == 0 { -1 } else { 0 }, "only the best mode has the kernel's protection");
        }
        // SAFETY: restores the rights that this library gave the page.
        unsafe { libc::mprotect(page as *mut c_void, page_size() as usize, libc::PROT_READ | libc::PROT_EXEC) };
        assert_eq!(long(&jit, "test"), 6);
    }
}

#[test]
fn purged_pages_read_as_zero_and_their_neighbours_stay_in_every_mapping_mode() {
    let layout = WindowLayout::divide(32 << 20).unwrap();
    let page = page_size();
    for (mapper, _) in mapping_modes() {
        let window: Arc<dyn MappedWindow> = mapper.map_window(&layout, Placement::Anywhere).unwrap();
        for pool in SegmentKind::ALL {
            assert_eq!(layout.pool(pool).offset % window.granule(pool), 0);
            // SAFETY: the window belongs to this test. Its pages are opened before they are written, and are read at their
            // executable address.
            unsafe {
                let view = window.working_view(pool);
                window.open(pool, 0, 3 * page).unwrap();
                view.write_bytes(0x5a, 3 * page as usize);
                window.seal(pool, 0, 3 * page).unwrap();
                window.purge(pool, page, page).unwrap();
            }
            let bytes = read(window.base().offset(layout.pool(pool).offset).value(), 3 * page as usize);
            let pages: Vec<&[u8]> = bytes.chunks(page as usize).collect();
            assert!(pages[1].iter().all(|byte| *byte == 0), "{}", pool.name());
            assert!(pages[0].iter().chain(pages[2]).all(|byte| *byte == 0x5a), "{}", pool.name());
        }
    }
}

#[test]
fn with_a_single_mapping_no_two_allocations_share_a_protected_page() {
    let memory = pool_of(&SingleMapper, Placement::Anywhere);
    let held: Vec<_> = (1..20).map(|size| make(&memory, &plan(size * 300, size * 7, (size, 0)))).collect();
    for pool in [SegmentKind::Code, SegmentKind::ReadOnly] {
        let mut pages: Vec<u64> = held.iter().map(|one| one.address(pool).value()).collect();
        assert!(pages.iter().all(|page| page.is_multiple_of(page_size())));
        pages.dedup();
        assert_eq!(pages.len(), held.len());
    }
    drop(held);
    assert_eq!(pool_held(&memory), (0, 0, 0));
}

#[test]
fn a_session_leaves_no_mapping_and_no_descriptor_in_any_mapping_mode() {
    own_process!();
    let Some(object) = object() else { return };
    let resources = || {
        let ours = |mapping: &Mapping| mapping.name.contains("jittison-") || mapping.name.contains("memfd:");
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
        (descriptors, mappings().into_iter().filter(ours).count())
    };
    let before = resources();
    for (mapper, _) in mapping_modes() {
        for _ in 0..10 {
            let jit = jit_of(mapper);
            let _tracker = add(&jit, jit.main_dylib(), "object.o", &object);
            assert_eq!(long(&jit, "test"), 5);
        }
        assert_eq!(resources(), before);
    }
    let files_in = |dir: &str| {
        let prefix = format!("jittison-{}-", std::process::id());
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).count()
    };
    assert_eq!(files_in("/dev/shm") + files_in("/tmp"), 0, "temporary files are unlinked");
}

#[test]
fn separately_opened_ranges_are_one_mapping_again_after_sealing() {
    let layout = WindowLayout::divide(32 << 20).unwrap();
    let window = SingleMapper.map_window(&layout, Placement::Anywhere).unwrap();
    let code = window.base().value() + layout.pool(SegmentKind::Code).offset;
    // The page before the pool belongs to the same mapping.
    let page = page_size();
    let within = code - page..code + layout.pool(SegmentKind::Code).size;
    // Shares the process: the window belongs to this test.
    let pieces = || mappings().iter().filter(|mapping| within.contains(&mapping.start)).count();
    assert_eq!(pieces(), 1);
    let ranges = (1..40).map(|index| index * 5 * page);
    for offset in ranges.clone() {
        // SAFETY: the window belongs to this test. The range is in the code pool, and is written before it is sealed.
        unsafe {
            window.open(SegmentKind::Code, offset, page).unwrap();
            window.working_view(SegmentKind::Code).add(offset as usize).write_bytes(0xcc, page as usize);
        }
    }
    assert_eq!(pieces(), 2 * 39 + 1);
    for offset in ranges {
        // SAFETY: as above.
        unsafe { window.seal(SegmentKind::Code, offset, page).unwrap() };
    }
    assert_eq!(pieces(), 1);
}

#[test]
fn with_a_single_mapping_the_statistics_count_entire_pages() {
    let memory = pool_of(&SingleMapper, Placement::Anywhere);
    let one = make(&memory, &plan(100, 33, (17, 0)));
    let slots = page_size() / 64 * 8;
    assert_eq!(one.usage().reserved, page_size() + slots + page_size() + 32);
    assert_eq!(memory.statistics().reserved_bytes, one.usage().reserved);
}
