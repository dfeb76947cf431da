//! [`InitFiniRegistry`]: initialisers run once, before an object's code is used; finalisers before it goes.
//!
//! | when | what |
//! |---|---|
//! | a link is about to be emitted | its initialisers are recorded under its key, and wait |
//! | `run_pending` | those of objects that are ready run, by `(priority, object, position)` over all that wait in the dylib |
//! | the key is reclaimed | exit handlers, the last registered first; then finalisers, in exact reverse of that order |
//! | a program ends | the same, ahead of its removal, which then runs none of them again |
//! | the key is transferred | the records go along |
//!
//! Finalisers run only for objects whose initialisers have run. One thread initialises at a time, and may do so again
//! from inside an initialiser; others wait for the dylib that they need. No lock is held while anything runs, and each
//! object's tracker is pinned meanwhile.

use std::cmp::Reverse;
use std::fmt;

use rustc_hash::FxHashSet;

use crate::base::{ExecutorAddr, Pool};
use crate::error::Result;
use crate::host::{self, ExitScope};
use crate::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use crate::link::{Definition, Edge, EdgeKind, Initializer, InitializerKind, LinkGraph, LinkedObject, SymbolIndex};
use crate::session::{JitDylib, Ledger, Pin, ResourceKey, ResourceManager, SymbolWatch, Watched};
use crate::sync::{Arc, AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, ThreadId, current_thread};

/// Runs initialisers and finalisers. Add it to the layer as a plugin, and register it with the session as a
/// [`ResourceManager`] after the layer.
pub struct InitFiniRegistry {
    books: Arc<Books>,
}

struct Books {
    records: Ledger<Arc<ObjectRecord>>,
    queue: Mutex<Queue>,
    /// Records that wait or are being run: the hot path reads only this.
    unfinished: AtomicUsize,
    turned: Condvar,
}

struct Queue {
    pending: Vec<Arc<ObjectRecord>>,
    /// Who initialises now, and which dylibs.
    runner: Option<(ThreadId, Vec<u64>)>,
}

/// What one object wants called.
struct ObjectRecord {
    dylib: u64,
    sequence: u64,
    watch: SymbolWatch,
    initializers: Vec<Initializer>,
    exit_scope: ExitScope,
    has_run: AtomicBool,
    /// Whether its finalisers have been called, or are.
    is_finalized: AtomicBool,
}

impl InitFiniRegistry {
    /// An empty registry.
    pub fn new() -> Arc<InitFiniRegistry> {
        Arc::new(InitFiniRegistry {
            books: Arc::new(Books {
                records: Ledger::new(),
                queue: Mutex::new(Queue { pending: Vec::new(), runner: None }),
                unfinished: AtomicUsize::new(0),
                turned: Condvar::new(),
            }),
        })
    }

    /// Runs what waits in `dylib` and in everything that it links against, dependencies first, and waits for what another
    /// thread is running there. Returns the number of functions called.
    ///
    /// This runs linked code: the caller has its user's word that it may (H3).
    pub(crate) fn run_pending(&self, dylib: &JitDylib) -> usize {
        // Acquire pairs with the release of a runner that has finished: what it initialised is seen.
        if self.books.unfinished.load(Ordering::Acquire) == 0 {
            return 0;
        }
        dependencies_first(dylib).iter().map(|dylib| self.run_pending_of(dylib)).sum()
    }

    fn run_pending_of(&self, dylib: &JitDylib) -> usize {
        let Some(turn) = Turn::take(&self.books, dylib.id()) else { return 0 };
        let calls = turn.calls();
        for (_, initializer) in &calls {
            host::run_initializer(*initializer);
        }
        calls.len()
    }

    /// Runs the exit handlers and finalisers of what is under a key and has been initialised, ahead of its removal,
    /// which then runs none of them again. The caller holds a pin of the tracker (H2).
    pub(crate) fn run_finalizers(&self, key: ResourceKey) {
        let records = self.books.records.inspect(key, |records| records.to_vec());
        finalize(&records);
    }
}

/// Runs the exit handlers and finalisers of those of `records` whose initialisers have run; each once, however often
/// this is called.
///
/// It may be called again from inside a handler or finaliser that will not return, because it called `exit`: handlers that
/// are left run then; finalisers, once begun, are given up, as the C library does.
fn finalize(records: &[Arc<ObjectRecord>]) {
    let ran: Vec<_> = records.iter().filter(|record| record.has_run.load(Ordering::Relaxed)).collect();
    let scopes: Vec<_> = ran.iter().map(|record| &record.exit_scope).collect();
    ExitScope::run_all(&scopes);
    let unfinalized = ran.iter().filter(|record| !record.is_finalized.swap(true, Ordering::AcqRel));
    let mut calls: Vec<_> = unfinalized.flat_map(|record| record.ordered(InitializerKind::Fini)).collect();
    calls.sort_unstable_by_key(|(order, _)| Reverse(*order));
    let plain = calls.partition_point(|((priority, ..), _)| *priority == Initializer::DEFAULT_PRIORITY);
    for calls in [&calls[..plain], &calls[plain..]] {
        for (_, finalizer) in calls {
            host::run_initializer(*finalizer);
        }
        // What finalisers registered themselves. The compiler's own finaliser, which sees to that in a program or shared
        // object, is the last of those without a priority.
        ExitScope::run_all(&scopes);
    }
}

/// A thread's right to initialise, with the objects that it took and their pins.
struct Turn<'a> {
    books: &'a Books,
    /// What the queue's runner was before: this thread itself, one level up.
    outer: Option<(ThreadId, Vec<u64>)>,
    taken: Vec<(Arc<ObjectRecord>, Pin)>,
}

impl<'a> Turn<'a> {
    /// Takes the ready ones of a dylib's waiting objects; `None` when there are none and nobody is running any.
    fn take(books: &'a Books, dylib: u64) -> Option<Turn<'a>> {
        let me = current_thread();
        let mut queue = books.queue.lock();
        while queue.must_wait(me, dylib) {
            books.turned.wait(&mut queue);
        }
        let (mine, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut queue.pending).into_iter().partition(|record| record.dylib == dylib);
        queue.pending = others;
        if mine.is_empty() {
            return None;
        }
        let outer = queue.runner.take();
        let mut dylibs = outer.as_ref().map_or_else(Vec::new, |(_, dylibs)| dylibs.clone());
        dylibs.push(dylib);
        queue.runner = Some((me, dylibs));
        drop(queue);
        // Asked outside the lock: the session's locks are not ours to nest in.
        let mut turn = Turn { books, outer, taken: Vec::new() };
        let mut unready = Vec::new();
        let mut gone = 0;
        for record in mine {
            match record.watch.pin() {
                Watched::Ready(pin) => turn.taken.push((record, pin)),
                Watched::Unready => unready.push(record),
                Watched::Gone => gone += 1,
            }
        }
        books.queue.lock().pending.extend(unready);
        books.unfinished.fetch_sub(gone, Ordering::Release);
        Some(turn)
    }

    /// What to call, in order.
    fn calls(&self) -> Vec<((u32, u64, u32), ExecutorAddr)> {
        let mut calls = Vec::new();
        for (record, _) in &self.taken {
            record.has_run.store(true, Ordering::Relaxed);
            calls.extend(record.ordered(InitializerKind::Init));
        }
        calls.sort_unstable_by_key(|(order, _)| *order);
        calls
    }
}

impl Drop for Turn<'_> {
    /// Also when an initialiser panics: the others must not wait for ever.
    fn drop(&mut self) {
        let mut queue = self.books.queue.lock();
        queue.runner = self.outer.take();
        self.books.unfinished.fetch_sub(self.taken.len(), Ordering::Release);
        self.books.turned.notify_all();
    }
}

impl Queue {
    /// Whether another thread initialises, and this dylib is concerned.
    fn must_wait(&self, me: ThreadId, dylib: u64) -> bool {
        let Some((runner, dylibs)) = &self.runner else { return false };
        *runner != me && (dylibs.contains(&dylib) || self.pending.iter().any(|record| record.dylib == dylib))
    }
}

impl ObjectRecord {
    fn ordered(&self, kind: InitializerKind) -> impl Iterator<Item = ((u32, u64, u32), ExecutorAddr)> {
        let wanted = self.initializers.iter().filter(move |initializer| initializer.kind == kind);
        wanted.map(|initializer| ((initializer.priority, self.sequence, initializer.position), initializer.address))
    }
}

impl ResourceManager for InitFiniRegistry {
    fn remove_resources(&self, _dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        let records = self.books.records.take(key);
        if records.is_empty() {
            return Ok(());
        }
        self.books.forget_pending(&records);
        finalize(&records);
        Ok(())
    }

    fn transfer_resources(&self, _dylib: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.books.records.transfer(destination, source);
    }
}

impl Books {
    fn forget_pending(&self, gone: &[Arc<ObjectRecord>]) {
        let mut queue = self.queue.lock();
        let before = queue.pending.len();
        queue.pending.retain(|record| !gone.iter().any(|other| Arc::ptr_eq(record, other)));
        self.unfinished.fetch_sub(before - queue.pending.len(), Ordering::Release);
    }
}

impl LinkPlugin for InitFiniRegistry {
    fn begin(&self, origin: &LinkOrigin) -> Box<dyn LinkHooks> {
        Box::new(ObjectHooks {
            books: self.books.clone(),
            dylib: origin.dylib.id(),
            sequence: origin.sequence,
            watch: origin.watch.clone(),
            exit_scope: None,
        })
    }
}

/// `lea …(%rip)`, into the register of the second, third and fourth argument.
const LEA_RSI: [u8; 3] = [0x48, 0x8d, 0x35];
const LEA_RDX: [u8; 3] = [0x48, 0x8d, 0x15];
const LEA_RCX: [u8; 3] = [0x48, 0x8d, 0x0d];

/// What leads to an object's own scope.
const WANTED: [&str; 8] = [
    "__dso_handle",
    "__cxa_atexit",
    "atexit",
    "on_exit",
    "__cxa_thread_atexit",
    "__cxa_thread_atexit_impl",
    "pthread_atfork",
    "at_quick_exit",
];

/// The externals of these names, in one walk over all of them.
fn find_externals<const N: usize>(graph: &LinkGraph, names: [&str; N]) -> [Option<SymbolIndex>; N] {
    let mut found = [None; N];
    for (index, name) in graph.named_externals() {
        if let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name) {
            found[at].get_or_insert(index);
        }
    }
    found
}

struct ObjectHooks {
    books: Arc<Books>,
    dylib: u64,
    sequence: u64,
    watch: SymbolWatch,
    /// Made when the object has a `__dso_handle`.
    exit_scope: Option<ExitScope>,
}

impl LinkHooks for ObjectHooks {
    /// Gives the object a `__dso_handle` of its own, and has its exit handlers registered with it.
    fn prepare(&mut self, graph: &mut LinkGraph) -> Result<()> {
        let wanted = find_externals(graph, WANTED);
        let [handle, cxa_atexit, atexit, on_exit, thread_atexit, thread_atexit_impl, atfork, at_quick_exit] = wanted;
        if wanted.iter().all(Option::is_none) {
            return Ok(());
        }
        let scope = self.exit_scope.get_or_insert_with(ExitScope::new);
        let word = scope.number().to_le_bytes().to_vec();
        let block = graph.add_block(".data.__dso_handle", Pool::Data, word, 8, &[]);
        let handle = match handle {
            Some(handle) => {
                graph.define(handle, Definition::Block(block, 0));
                handle
            }
            None => graph.add_local("__dso_handle", block, 0),
        };
        let capture = Definition::Absolute(host::atexit_capture_address().value());
        if let Some(cxa_atexit) = cxa_atexit {
            graph.define(cxa_atexit, capture);
        }
        for thread_atexit in [thread_atexit, thread_atexit_impl].into_iter().flatten() {
            graph.define(thread_atexit, Definition::Absolute(host::thread_atexit_capture_address().value()));
        }
        if let Some(atexit) = atexit {
            let cxa_atexit =
                cxa_atexit.unwrap_or_else(|| graph.add_local_absolute("__cxa_atexit", host::atexit_capture_address()));
            // atexit(f) is __cxa_atexit(f, 0, &__dso_handle):
            //   xor %esi,%esi; lea __dso_handle(%rip),%rdx; jmp __cxa_atexit
            let code = vec![0x31, 0xf6, 0x48, 0x8d, 0x15, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0];
            let edges = [
                Edge { offset: 5, kind: EdgeKind::Delta32, symbol: handle, addend: -4 },
                Edge { offset: 10, kind: EdgeKind::Branch32, symbol: cxa_atexit, addend: -4 },
            ];
            let block = graph.add_block(".text.atexit", Pool::Code, code, 16, &edges);
            graph.define(atexit, Definition::Block(block, 0));
        }
        // The C library has these in the part of it that is linked into each program, with that program's own handle:
        // on_exit(f, p), at_quick_exit(f) and pthread_atfork(f, g, h) take the handle as one argument more.
        let with_handle: [(_, &str, &[u8], ExecutorAddr); 3] = [
            (on_exit, "on_exit", &LEA_RDX, host::on_exit_capture_address()),
            (at_quick_exit, "at_quick_exit", &LEA_RSI, host::at_quick_exit_capture_address()),
            (atfork, "pthread_atfork", &LEA_RCX, host::atfork_capture_address()),
        ];
        for (wanted, name, lea, capture) in with_handle {
            let Some(wanted) = wanted else { continue };
            let capture = graph.add_local_absolute(name, capture);
            // lea __dso_handle(%rip),…; jmp (what captures it)
            let code = [lea, &[0, 0, 0, 0, 0xe9, 0, 0, 0, 0]].concat();
            let edges = [
                Edge { offset: 3, kind: EdgeKind::Delta32, symbol: handle, addend: -4 },
                Edge { offset: 8, kind: EdgeKind::Branch32, symbol: capture, addend: -4 },
            ];
            let block = graph.add_block(&format!(".text.{name}"), Pool::Code, code, 16, &edges);
            graph.define(wanted, Definition::Block(block, 0));
        }
        Ok(())
    }

    fn record(self: Box<Self>, key: ResourceKey, linked: &LinkedObject) {
        if linked.initializers.is_empty() && self.exit_scope.is_none() {
            return;
        }
        let exit_scope = self.exit_scope.unwrap_or_else(ExitScope::new);
        let watch = self.watch.clone();
        exit_scope.set_hold(move || match watch.pin() {
            Watched::Ready(pin) => Some(Box::new(pin)),
            Watched::Unready | Watched::Gone => None,
        });
        let record = Arc::new(ObjectRecord {
            dylib: self.dylib,
            sequence: self.sequence,
            watch: self.watch,
            initializers: linked.initializers.clone(),
            exit_scope,
            has_run: AtomicBool::new(false),
            is_finalized: AtomicBool::new(false),
        });
        self.books.records.record(key, record.clone());
        self.books.unfinished.fetch_add(1, Ordering::Release);
        self.books.queue.lock().pending.push(record);
    }
}

/// A dylib behind all that its link order leads to, however far; of a ring, the first one met comes last.
pub(crate) fn dependencies_first(dylib: &JitDylib) -> Vec<JitDylib> {
    let mut order = Vec::new();
    let mut entered = FxHashSet::default();
    let mut unvisited = vec![(dylib.clone(), false)];
    while let Some((next, is_left)) = unvisited.pop() {
        if is_left {
            order.push(next);
        } else if entered.insert(next.id()) {
            let dependencies = next.link_order();
            unvisited.push((next, true));
            unvisited.extend(dependencies.into_iter().map(|(dylib, _)| (dylib, false)));
        }
    }
    order
}

impl fmt::Debug for InitFiniRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "init/fini registry, {} objects to initialise", self.books.queue.lock().pending.len())
    }
}
