//! [`ObjectLoader`]: what one linked object sees of linked code and of the process through `dlsym` and `dladdr`.
//!
//! A dylib is to its objects what a shared library is to its code. So `dlsym` searches as a link of the object does:
//!
//! | `dlsym` with | searches |
//! |---|---|
//! | `RTLD_DEFAULT`, the handle of `dlopen(NULL)` | the exported symbols of the object's dylib, then of its link order |
//! | `RTLD_NEXT` | the same after the object's dylib; for a version of a patched function, after the patched dylib |
//!
//! What is not linked yet is linked, and initialisers that wait run before the address is returned, as in a
//! [lookup](crate::Jit::lookup_in). `dlvsym` asks linked code for the name `NAME@VERSION`.
//!
//! At the place of the dylib of the process, the process itself is asked, so a search leaves no definition there. From that
//! dylib come only symbols that the embedder defined, and those that linked code refers to. An object of a removed dylib
//! sees only the process, because the link order of that dylib is gone.
//!
//! # How the object gets here
//! The object keeps its external `dlsym`. If the lookup finds the loader's function, the reference is bound to code of the
//! object that passes on the number of the object's scope (`src/host/loader_functions.rs`). A `dlsym` that another object
//! or the embedder defines is used as it is.
//!
//! # What keeps an address valid
//! The object's tracker depends on the symbol's tracker, as if its code referred to the symbol. `src/host/loader_scopes.rs`
//! lists the cases. Addresses of the process are as valid as those that the loader returns. No lock is held while a search
//! links, runs initialisers or waits.

use std::ffi::CStr;

use crate::arch::HandlerTarget;
use crate::base::{ExecutorAddr, SegmentKind, TlsIndex, is_linker_defined};
use crate::error::{Error, Result};
use crate::host::{Executor, LoaderView, SymbolSearch, ViewScope, ViewedAddress, ViewedSymbol};
use crate::layer::{LinkOrigin, ObjectLinkingLayer};
use crate::link::{BlockId, FoundExternal, LinkGraph, PlacedLink};
use crate::memory::Tenant;
use crate::platform::wanted_names::WantedNames;
use crate::session::{
    JitDylib, LookupResult, Pin, SymbolFlags, SymbolRef, SymbolWatch, TrackerWatch, Visibility, Watched,
};
use crate::sync::{Arc, Mutex, Weak};

/// Initialisers that wait.
pub(crate) trait PendingInitializers: Send + Sync {
    /// Whether any wait, or run.
    fn has_pending(&self) -> bool;

    /// Runs those of a dylib and of what it links against.
    fn run_pending(&self, dylib: &JitDylib);

    /// Number of objects that failed so far.
    fn failures(&self) -> usize;
}

/// What the views of a session share.
pub(crate) struct LoaderServices {
    executor: Arc<dyn Executor>,
    /// Number of the dylib of the process.
    process: u64,
    /// Weak, as `layer`: both lead to these services.
    initializers: Weak<dyn PendingInitializers>,
    layer: Weak<ObjectLinkingLayer>,
}

/// The functions of the loader that one object calls. Dropping it closes the object's scope.
pub(super) struct ObjectLoader {
    scope: Box<dyn ViewScope>,
    functions: Vec<BoundFunction>,
}

/// A function of the loader, and the block of the object's code that stands for it.
struct BoundFunction {
    name: &'static str,
    native: ExecutorAddr,
    block: BlockId,
}

impl LoaderServices {
    pub(crate) fn new(
        executor: Arc<dyn Executor>,
        process: &JitDylib,
        initializers: Weak<dyn PendingInitializers>,
        layer: Weak<ObjectLinkingLayer>,
    ) -> Arc<LoaderServices> {
        Arc::new(LoaderServices { executor, process: process.id(), initializers, layer })
    }
}

impl ObjectLoader {
    /// Adds what an object needs that refers to a function of the loader. `None` if it refers to none.
    pub(super) fn define(
        graph: &mut LinkGraph,
        origin: &LinkOrigin<'_>,
        services: &Arc<LoaderServices>,
    ) -> Option<ObjectLoader> {
        let wanted = WANTED.find(graph)?;
        let view = ObjectView {
            dylib: origin.dylib(),
            tracker: origin.tracker(),
            precedes_versions: !origin.dylib().is_call_entry_enabled(),
            services: services.clone(),
            pins: Mutex::new(Vec::new()),
        };
        let scope = services.executor.open_loader_scope(Arc::new(view));
        let word = scope.number().to_le_bytes().to_vec();
        let word = graph.insert_block(".data.loader_scope", SegmentKind::Data, word, 8, &[]);
        let word = graph.insert_local("", word, 0);
        let mut functions = Vec::new();
        for function in services.executor.loader_functions() {
            let is_wanted =
                WANTED.names.iter().zip(&wanted).any(|(name, found)| *name == function.name && found.is_some());
            let Some(native) = function.native.filter(|_| is_wanted) else { continue };
            let target = graph.insert_local_absolute(function.name, function.address);
            // The templates add a second, third or fourth argument.
            let Some(code) = graph.arch.with_handle().get(function.argument_count - 1) else { continue };
            let block = graph.insert_code(&format!(".text.{}", function.name), code, |field| match field {
                HandlerTarget::Handle => word,
                HandlerTarget::Function => target,
            });
            functions.push(BoundFunction { name: function.name, native, block });
        }
        Some(ObjectLoader { scope, functions })
    }

    /// Binds the externals that are the loader's functions to the object's code for them.
    pub(super) fn bind(&self, link: &PlacedLink, found: &mut [FoundExternal]) {
        for (name, found) in link.external_names().zip(found) {
            let function = self.functions.iter().find(|function| function.name.as_bytes() == name);
            if let Some(function) = function.filter(|function| function.native == found.address) {
                found.address = link.block_address(function.block);
            }
        }
    }

    /// The scope, which lasts as long as the object's code may call.
    pub(super) fn into_scope(self) -> Box<dyn ViewScope> {
        self.scope
    }
}

/// The functions that answer for the library that calls them.
static WANTED: WantedNames<3> = WantedNames::new(["dlsym", "dlvsym", "dladdr"]);

/// What one object sees.
struct ObjectView {
    dylib: JitDylib,
    tracker: TrackerWatch,
    /// Whether the object is older than the session's first version of a patched function. Then a caller may have entered no
    /// record.
    precedes_versions: bool,
    services: Arc<LoaderServices>,
    /// Pins of what was found while the object's tracker was being reclaimed.
    pins: Mutex<Vec<Pin>>,
}

impl LoaderView for ObjectView {
    fn find_symbol(
        &self,
        search: SymbolSearch,
        name: &CStr,
        version: Option<&CStr>,
    ) -> std::result::Result<Option<ViewedSymbol>, String> {
        let found = self.search(search, &WantedSymbol::new(name, version));
        found.map_err(|error| error.root_cause().to_string())
    }

    fn locate(&self, address: ExecutorAddr) -> Option<ViewedAddress> {
        let module = |dylib: &str| format!("{MODULE_PREFIX}{dylib}");
        if let Some(found) = self.dylib.symbol_at(address) {
            let symbol = Some((found.name.to_string(), found.start));
            return Some(ViewedAddress { module: module(found.dylib.name()), base: found.start, symbol });
        }
        // No symbol that the session knows, but maybe an object.
        let tenants = self.services.layer.upgrade()?.tenants();
        let contains = |(start, size): &&(ExecutorAddr, u64)| {
            address.value().checked_sub(start.value()).is_some_and(|offset| offset < *size)
        };
        let segment = |tenant: &Tenant| tenant.segments.iter().find(contains).copied();
        let (tenant, (base, _)) = tenants.iter().find_map(|tenant| Some((tenant, segment(tenant)?)))?;
        Some(ViewedAddress { module: module(&tenant.group), base, symbol: None })
    }
}

impl ObjectView {
    /// Searches the dylibs one part after the other: those before the process, the process, those after it.
    fn search(&self, search: SymbolSearch, wanted: &WantedSymbol<'_>) -> Result<Option<ViewedSymbol>> {
        let order = self.order(search);
        let mut rest = &order[..];
        loop {
            let is_process = |(dylib, _): &(JitDylib, Visibility)| dylib.id() == self.services.process;
            let (linked, others) = rest.split_at(rest.iter().position(is_process).unwrap_or(rest.len()));
            if let Some(found) = self.find_linked(linked, wanted)? {
                return Ok(Some(found));
            }
            let Some((process, after)) = others.split_first() else {
                return Ok(if self.dylib.is_defunct() { self.find_in_process(wanted) } else { None });
            };
            if let Some(found) = self.find_at_process(process, wanted)? {
                return Ok(Some(found));
            }
            rest = after;
        }
    }

    /// The open dylibs of a search. Only exported symbols are visible, those of the own dylib too.
    fn order(&self, search: SymbolSearch) -> Vec<(JitDylib, Visibility)> {
        let skipped = match search {
            SymbolSearch::Default => 0,
            SymbolSearch::Next => 1 + usize::from(self.dylib.is_version()),
        };
        let order = self.dylib.search_order().into_iter().skip(skipped);
        order.filter(|(dylib, _)| !dylib.is_defunct()).map(|(dylib, _)| (dylib, Visibility::ExportedOnly)).collect()
    }

    /// Searches the process at its place in the order.
    fn find_at_process(
        &self,
        process: &(JitDylib, Visibility),
        wanted: &WantedSymbol<'_>,
    ) -> Result<Option<ViewedSymbol>> {
        let order = std::slice::from_ref(process);
        // What the embedder defines for linked code, and what linked code refers to.
        let is_defined = wanted.linked_name.as_ref().is_some_and(|name| process.0.symbol_flags(name).is_some());
        if is_defined && let Some(found) = self.find_linked(order, wanted)? {
            return Ok(Some(found));
        }
        match self.find_in_process(wanted) {
            Some(found) => Ok(Some(found)),
            // Libraries that the session opens when a symbol is missing.
            None => self.find_linked(order, wanted),
        }
    }

    /// Asks the process.
    fn find_in_process(&self, wanted: &WantedSymbol<'_>) -> Option<ViewedSymbol> {
        let executor = &*self.services.executor;
        // A handler must be registered with its object, as a direct call would do.
        let handlers = executor.handler_functions();
        let handler = match wanted.name.to_bytes() {
            b"__cxa_atexit" => Some(handlers.atexit),
            b"__cxa_thread_atexit" | b"__cxa_thread_atexit_impl" => Some(handlers.thread_atexit),
            b"__register_atfork" => Some(handlers.atfork),
            b"__cxa_at_quick_exit" => Some(handlers.at_quick_exit),
            // The host program's are not those of linked code.
            name if is_linker_defined(name) => return None,
            _ => None,
        };
        let found = handler.or_else(|| executor.find_in_process(wanted.name, wanted.version));
        found.map(ViewedSymbol::Address)
    }

    /// Searches linked dylibs. Keeps what it finds in memory, and initialises it.
    fn find_linked(&self, order: &[(JitDylib, Visibility)], wanted: &WantedSymbol<'_>) -> Result<Option<ViewedSymbol>> {
        let Some(name) = wanted.linked_name.as_ref().filter(|_| !order.is_empty()) else { return Ok(None) };
        loop {
            let initializers = self.services.initializers.upgrade();
            // Read before the search, so that a failure on another thread during it counts as well.
            let failures = initializers.as_ref().map(|initializers| initializers.failures());
            let Some(found) = self.dylib.lookup_optional(order, name)? else { return Ok(None) };
            if let Some(symbol) = &found.symbol {
                let is_kept = self.keep_in_memory(symbol)?;
                if !is_kept || !self.initialize(initializers.as_deref(), symbol, failures)? {
                    // The symbol was removed after the lookup. The name may be defined again.
                    continue;
                }
            }
            if self.precedes_versions && self.dylib.is_call_entry_enabled() {
                // The address may be that of a stub, whose versions count calls.
                self.dylib.note_late_binding(self.tracker.clone());
            }
            return Ok(Some(viewed(&found)));
        }
    }

    /// Keeps a symbol in memory as long as the object. False if the symbol was removed.
    fn keep_in_memory(&self, symbol: &SymbolRef) -> Result<bool> {
        if let Some(pin) = self.tracker.pin() {
            return match pin.add_dependency(symbol) {
                Ok(()) => Ok(true),
                Err(_) if SymbolWatch::of(symbol).is_gone() => Ok(false),
                Err(error) => Err(error),
            };
        }
        // The caller is a finaliser: the tracker is being reclaimed and accepts no dependency.
        let Watched::Ready(pin) = SymbolWatch::of(symbol).pin() else { return Ok(false) };
        self.pins.lock().push(pin);
        Ok(true)
    }

    /// Runs the initialisers that wait in the symbol's dylib and in what that links against. False if the symbol was removed.
    fn initialize(
        &self,
        initializers: Option<&dyn PendingInitializers>,
        symbol: &SymbolRef,
        failures: Option<usize>,
    ) -> Result<bool> {
        let Some(initializers) = initializers.filter(|initializers| initializers.has_pending()) else {
            return Ok(true);
        };
        initializers.run_pending(&symbol.dylib());
        match SymbolWatch::of(symbol).is_gone() {
            false => Ok(true),
            true if failures == Some(initializers.failures()) => Ok(false),
            true => Err(Error::other("one of its initialisers failed")),
        }
    }
}

/// A symbol that code asks for.
struct WantedSymbol<'a> {
    name: &'a CStr,
    version: Option<&'a CStr>,
    /// The name that linked code defines it by. `None` if it is no UTF-8.
    linked_name: Option<String>,
}

impl<'a> WantedSymbol<'a> {
    fn new(name: &'a CStr, version: Option<&'a CStr>) -> WantedSymbol<'a> {
        let linked_name = match version {
            None => name.to_str().ok().map(str::to_string),
            Some(version) => {
                name.to_str().ok().zip(version.to_str().ok()).map(|(name, version)| format!("{name}@{version}"))
            }
        };
        WantedSymbol { name, version, linked_name }
    }
}

fn viewed(found: &LookupResult) -> ViewedSymbol {
    match found.flags.contains(SymbolFlags::THREAD_LOCAL) {
        true => ViewedSymbol::ThreadLocal(TlsIndex::from_address(found.address)),
        false => ViewedSymbol::Address(found.address),
    }
}

/// Before the name of a dylib in `dli_fname`. No file has such a name by chance.
const MODULE_PREFIX: &str = "jittison:";
