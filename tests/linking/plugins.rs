//! Link plugins: which hooks are called, what hooks may change, and that a failed link leaves nothing (ORC:
//! ObjectLinkingLayerTest).

use std::sync::{Arc, Mutex};

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::{Definition, Edge, EdgeKind, LinkGraph, LinkedObject};
use jittison::session::{ResourceKey, SymbolFlags, SymbolState};
use jittison::{Error, ErrorKind, ResourceTracker};

use crate::support::*;

type Prepare = Box<dyn Fn(&mut LinkGraph) -> Result<(), Error> + Send + Sync>;

/// Logs the calls of its hooks. `prepare` runs the function of the test.
struct LoggingPlugin {
    log: Arc<Mutex<Vec<String>>>,
    prepare: Arc<Prepare>,
}

struct Hooks {
    object: String,
    log: Arc<Mutex<Vec<String>>>,
    prepare: Arc<Prepare>,
}

impl LoggingPlugin {
    fn new(prepare: impl Fn(&mut LinkGraph) -> Result<(), Error> + Send + Sync + 'static) -> Arc<LoggingPlugin> {
        Arc::new(LoggingPlugin { log: Arc::default(), prepare: Arc::new(Box::new(prepare)) })
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

impl LinkPlugin for LoggingPlugin {
    fn begin(&self, origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(Hooks {
            object: origin.object().to_string(),
            log: self.log.clone(),
            prepare: self.prepare.clone(),
        }))
    }
}

impl LinkHooks for Hooks {
    fn prepare(&mut self, graph: &mut LinkGraph) -> Result<(), Error> {
        self.log.lock().unwrap().push(format!("prepare {}", self.object));
        (self.prepare)(graph)
    }

    fn record(self: Box<Self>, _: ResourceKey, origin: &LinkOrigin<'_>, linked: &LinkedObject) {
        assert_eq!((&*linked.name, &**origin.object()), (&*self.object, &*self.object));
        self.log.lock().unwrap().push(format!("record {}", self.object));
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        self.log.lock().unwrap().push(format!("drop {}", self.object));
    }
}

#[test]
fn a_plugin_sees_the_links_between_add_plugin_and_remove_plugin() {
    let objects: Option<Vec<_>> = (0..3).map(|i| c(&format!("long test{i}(void) {{ return {i}; }}"))).collect();
    let Some(objects) = objects else { return };
    let jit = new_jit();
    let logger = LoggingPlugin::new(|_| Ok(()));
    let plugin: Arc<dyn LinkPlugin> = logger.clone();
    let mut trackers = Vec::new();
    for (i, object) in objects.iter().enumerate() {
        if i == 1 {
            jit.layer().add_plugin(plugin.clone());
        }
        trackers.push(add(&jit, jit.main_dylib(), &format!("{i}.o"), object));
        assert_eq!(long(&jit, &format!("test{i}")), i as i64);
        if i == 1 {
            assert!(jit.layer().remove_plugin(&plugin));
        }
    }
    assert_eq!(logger.take(), ["prepare 1.o", "record 1.o", "drop 1.o"]);
    assert!(!jit.layer().remove_plugin(&plugin));
    drop(plugin);
    assert_eq!(Arc::strong_count(&logger), 1, "the layer has dropped it");
}

#[test]
fn a_plugin_sees_the_links_of_every_thread_until_it_is_removed() {
    let Some(object) = c("long test(void) { return 1; }") else { return };
    let jit = new_jit();
    let logger = LoggingPlugin::new(|_| Ok(()));
    let plugin: Arc<dyn LinkPlugin> = logger.clone();
    let link_in_threads = |name: &str| {
        for number in 0..20 {
            let dylib = jit.create_dylib(&format!("{name}{number}")).unwrap();
            let link = || (add(&jit, &dylib, "test.o", &object), long_in(&jit, &dylib, "test"));
            std::thread::scope(|scope| scope.spawn(link).join().unwrap());
        }
        logger.take().len()
    };
    assert_eq!(link_in_threads("before"), 0);
    jit.layer().add_plugin(plugin.clone());
    assert_eq!(link_in_threads("during"), 20 * 3);
    assert!(jit.layer().remove_plugin(&plugin));
    assert_eq!(link_in_threads("after"), 0);
}

#[test]
fn a_failed_link_frees_its_memory_and_drops_the_plugin_hooks() {
    let Some(object) = c("extern long missing(void); long test(void) { return missing(); }") else { return };
    for refuses in [true, false] {
        let jit = new_jit();
        let logger =
            LoggingPlugin::new(
                move |_| if refuses { Err(Error::from(ErrorKind::Other("refused".into()))) } else { Ok(()) },
            );
        jit.layer().add_plugin(logger.clone());
        let tracker = add(&jit, jit.main_dylib(), "bad.o", &object);
        let error = jit.address_of(jit.main_dylib(), "test").unwrap_err();
        assert_says(&error, &["`test`", if refuses { "refused" } else { "`missing`" }]);
        assert_eq!(logger.take(), ["prepare bad.o", "drop bad.o"]);
        assert_eq!((held(&jit), jit.layer().key_count(), jit.main_dylib().symbol_count()), ((0, 0, 0), 0, 0));
        assert!(tracker.remove().unwrap().is_complete());
    }
}

/// Runs the function of `logger` on every graph, and joins only the links of objects that refer to `name`.
struct JoinOnName {
    name: &'static str,
    logger: Arc<LoggingPlugin>,
}

impl LinkPlugin for JoinOnName {
    fn join(&self, origin: &LinkOrigin<'_>, graph: &mut LinkGraph) -> Result<Option<Box<dyn LinkHooks>>, Error> {
        (self.logger.prepare)(graph)?;
        Ok(if graph.find_external(self.name).is_some() { self.logger.begin(origin) } else { None })
    }
}

#[test]
fn a_plugin_may_join_a_link_after_the_graph_is_read_without_prepare() {
    let source = |used: &str| format!("extern long {used}(void); long test(void) {{ return {used}(); }}");
    let (Some(matching), Some(other)) = (c(&source("labs")), c(&source("getpid"))) else { return };
    for (linked, log) in [(matching, vec!["record test.o", "drop test.o"]), (other, vec![])] {
        let jit = new_jit();
        let seen = Arc::new(Mutex::new(0));
        let count = seen.clone();
        let logger = LoggingPlugin::new(move |graph| {
            *count.lock().unwrap() += usize::from(graph.externals().count() > 0);
            Ok(())
        });
        jit.layer().add_plugin(Arc::new(JoinOnName { name: "labs", logger: logger.clone() }));
        let lazily = add(&jit, jit.main_dylib(), "test.o", &linked);
        jit.address_of(jit.main_dylib(), "test").unwrap();
        assert_eq!((logger.take(), *seen.lock().unwrap()), (log.iter().map(|line| line.to_string()).collect(), 1));
        lazily.remove().unwrap();
        let at_once = jit.main_dylib().create_tracker().unwrap();
        jit.link_object(&at_once, "test.o", linked.as_slice()).unwrap();
        assert_eq!(logger.take(), log);
    }
}

#[test]
fn an_error_from_join_fails_the_link_and_leaves_nothing() {
    let Some(object) = c("long test(void) { return 1; }") else { return };
    let jit = new_jit();
    let logger = LoggingPlugin::new(|_| Err(Error::from(ErrorKind::Other("refused".into()))));
    jit.layer().add_plugin(Arc::new(JoinOnName { name: "labs", logger }));
    let tracker = add(&jit, jit.main_dylib(), "bad.o", &object);
    assert_says(&jit.address_of(jit.main_dylib(), "test").unwrap_err(), &["`test`", "refused"]);
    assert_eq!((held(&jit), jit.layer().key_count(), jit.main_dylib().symbol_count()), ((0, 0, 0), 0, 0));
    assert!(tracker.remove().unwrap().is_complete());
}

/// `long added_function(void) { return added_data; }` and `long added_data = value;`, both weak.
fn add_weak_pair(graph: &mut LinkGraph, value: u64) {
    let data = graph.add_block(".data.added", SegmentKind::Data, value.to_le_bytes().to_vec(), 8, &[]);
    let data = graph.add_weak("added_data", data, 0);
    // mov added_data(%rip), %rax; ret
    let code = vec![0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3];
    let edges = [Edge { offset: 3, kind: EdgeKind::Delta32, symbol: data, addend: -4 }];
    let code = graph.add_block(".text.added", SegmentKind::Code, code, 16, &edges);
    graph.add_weak("added_function", code, 0);
}

#[test]
fn weak_definitions_added_by_a_plugin_are_claimed_once_and_shared() {
    if !require_x86_64() {
        return;
    }
    // ORC: ClaimLateDefinedWeakSymbols, and defect 1: claimed symbols are removed with their tracker.
    let objects: Option<Vec<_>> = (0..2).map(|i| c(&format!("long test{i}(void) {{ return {i}; }}"))).collect();
    let Some(objects) = objects else { return };
    let jit = new_jit();
    let links = Mutex::new(0);
    jit.layer().add_plugin(LoggingPlugin::new(move |graph| {
        *links.lock().unwrap() += 10;
        add_weak_pair(graph, *links.lock().unwrap());
        Ok(())
    }));
    let main = jit.main_dylib();
    let trackers: Vec<_> = objects.iter().map(|object| add(&jit, main, "object.o", object)).collect();
    assert_eq!((long(&jit, "test0"), long(&jit, "added_function")), (0, 10));
    assert_eq!(main.symbol_state("added_data"), Some(SymbolState::Ready));
    let flags = main.symbol_flags("added_function").unwrap();
    assert!(flags.contains(SymbolFlags::EXPORTED | SymbolFlags::WEAK | SymbolFlags::CALLABLE));
    // The pair of the second link is dropped. Its function would return 20.
    assert_eq!((long(&jit, "test1"), long(&jit, "added_function")), (1, 10));
    assert_eq!(main.symbol_count_of(trackers[0].key()), 3);
    let removal = trackers[0].remove().unwrap();
    assert!(
        jit.address_of(main, "added_function").is_err(),
        "they are removed with the tracker of the link that added them"
    );
    assert_eq!(removal.blockers(), (0, 1), "the second link refers to the first's data");
    assert!(trackers[1].remove().unwrap().is_complete() && removal.is_complete());
    assert_eq!((held(&jit), main.symbol_count()), ((0, 0, 0), 0));
}

type Change = dyn Fn(&mut LinkGraph) + Send + Sync;

/// Runs a function in the hook `pruned`.
struct ChangeAfterPruning(Arc<Change>);

impl LinkPlugin for ChangeAfterPruning {
    fn begin(&self, _: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(ChangeAfterPruning(self.0.clone())))
    }
}

impl LinkHooks for ChangeAfterPruning {
    fn pruned(&mut self, graph: &mut LinkGraph) -> Result<(), Error> {
        (self.0)(graph);
        Ok(())
    }
}

/// An object whose section `pruned` is not reachable, linked with a plugin that changes the graph after pruning.
fn changed_after_pruning(change: impl Fn(&mut LinkGraph) + Send + Sync + 'static) -> Option<Result<i64, Error>> {
    let object = c("__attribute__((section(\"pruned\"), used)) static long unused(void) { return 1; }
                    extern long wanted(void); long test(void) { return wanted(); }")?;
    let jit = new_jit();
    jit.layer().add_plugin(Arc::new(ChangeAfterPruning(Arc::new(change))));
    let _tracker = add(&jit, jit.main_dylib(), "test.o", &object);
    Some(try_function::<extern "C" fn() -> i64>(&jit, jit.main_dylib(), "test").map(|test| test.call()))
}

#[test]
fn a_plugin_may_add_blocks_and_define_externals_after_pruning() {
    if !require_x86_64() {
        return;
    }
    let change = |graph: &mut LinkGraph| {
        let data = graph.add_block(".data.added", SegmentKind::Data, 42u64.to_le_bytes().to_vec(), 8, &[]);
        let data = graph.add_local("added_data", data, 0);
        let edges = [Edge { offset: 3, kind: EdgeKind::Delta32, symbol: data, addend: -4 }];
        // mov added_data(%rip), %rax; ret
        let code = vec![0x48, 0x8b, 0x05, 0, 0, 0, 0, 0xc3];
        let code = graph.add_block(".text.added", SegmentKind::Code, code, 16, &edges);
        let wanted = graph.find_external("wanted").unwrap();
        graph.define(wanted, Definition::Block(code, 0));
    };
    let Some(outcome) = changed_after_pruning(change) else { return };
    assert_eq!(outcome.unwrap(), 42);
}

/// The call went to the first block of the code segment.
#[test]
fn a_definition_in_a_pruned_block_is_refused_by_name() {
    let change = |graph: &mut LinkGraph| {
        let mut dropped = graph.blocks().filter(|(id, _)| graph.block_name(*id) == "pruned");
        let (pruned, block) = dropped.next().unwrap();
        assert!(block.is_dropped());
        let wanted = graph.find_external("wanted").unwrap();
        drop(dropped);
        graph.define(wanted, Definition::Block(pruned, 0));
    };
    let Some(outcome) = changed_after_pruning(change) else { return };
    assert_says(&outcome.unwrap_err(), &["symbol `wanted`", "to a section that is not in memory"]);
}

#[test]
fn plugins_see_the_absolute_symbols_of_an_object() {
    let Some(object) = asm(".globl fixed, test\nfixed = 0x1234567\n.text\ntest: mov $fixed, %eax\nret\n\
                            .section .note.GNU-stack\n")
    else {
        return;
    };
    let jit = new_jit();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    jit.layer().add_plugin(LoggingPlugin::new(move |graph| {
        let absolute = graph.symbols().filter_map(|(index, symbol)| match symbol.definition {
            Definition::Absolute(value) => Some((graph.symbol_name(index).to_string(), value)),
            _ => None,
        });
        noted.lock().unwrap().extend(absolute);
        Ok(())
    }));
    let _tracker = add(&jit, jit.main_dylib(), "absolute.o", &object);
    assert_eq!(jit.address_of(jit.main_dylib(), "fixed").unwrap(), ExecutorAddr::new(0x123_4567));
    assert_eq!(long(&jit, "test"), 0x123_4567);
    assert!(seen.lock().unwrap().contains(&("fixed".to_string(), 0x123_4567)));
}

#[test]
fn symbols_of_every_binding_and_visibility_are_linked_together() {
    let Some(object) = asm("
        .globl x, strong_hidden, strong_protected
        .weak weak_default, weak_hidden
        .hidden strong_hidden, weak_hidden
        .protected strong_protected
        .comm common_default, 8, 8
        .data
        strong_hidden: .quad 1
        strong_protected: .quad 2
        weak_default: .quad 4
        weak_hidden: .quad 8
        local: .quad 16
        .lcomm local_zero, 8
        .text
        .type x, @function
        x:  mov strong_hidden(%rip), %rax
            mov strong_protected@GOTPCREL(%rip), %rcx
            add (%rcx), %rax
            mov weak_default@GOTPCREL(%rip), %rcx
            add (%rcx), %rax
            add weak_hidden(%rip), %rax
            add local(%rip), %rax
            add local_zero(%rip), %rax
            mov common_default@GOTPCREL(%rip), %rcx
            add (%rcx), %rax
            ret
        .section .note.GNU-stack")
    else {
        return;
    };
    let (jit, _trackers) = linked(&[&object]);
    assert_eq!(long(&jit, "x"), 31);
    let main = jit.main_dylib();
    let is = |name, flag| main.symbol_flags(name).is_some_and(|flags: SymbolFlags| flags.contains(flag));
    assert!(is("weak_default", SymbolFlags::WEAK | SymbolFlags::EXPORTED) && is("weak_hidden", SymbolFlags::WEAK));
    assert!(!is("strong_hidden", SymbolFlags::EXPORTED) && !is("weak_hidden", SymbolFlags::EXPORTED));
    assert!(is("strong_protected", SymbolFlags::EXPORTED) && is("common_default", SymbolFlags::COMMON));
    assert_eq!((main.symbol_flags("local"), main.symbol_flags("local_zero")), (None, None));
}

#[test]
fn memory_moves_with_a_transfer_to_a_new_tracker() {
    // ORC: 64 transfers to unknown trackers corrupted the table of its layer.
    let Some(object) = c("static long data[100] = { 1 }; long test(void) { return data[0]; }") else { return };
    let jit = new_jit();
    let mut owners: Vec<ResourceTracker> = Vec::new();
    for round in 0..64 {
        let dylib = jit.create_dylib("library").unwrap();
        let tracker = add(&jit, &dylib, "object.o", &object);
        assert_eq!(long_in(&jit, &dylib, "test"), 1);
        let usage = jit.usage(&tracker);
        let destination = dylib.create_tracker().unwrap();
        tracker.transfer_to(&destination).unwrap();
        assert_eq!((jit.usage(&destination), jit.usage(&tracker).requested()), (usage, 0));
        assert_eq!(jit.layer().key_count(), round + 1);
        owners.push(destination);
    }
    assert_eq!(held(&jit).0, 64);
    assert!(owners.iter().all(|owner| owner.remove().unwrap().is_complete()));
    assert_eq!((held(&jit), jit.layer().key_count()), ((0, 0, 0), 0));
}
