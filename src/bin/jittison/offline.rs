//! Links at addresses that the user chooses, for `check` and `run --no-exec`. The code is inspected and never run.
//!
//! Memory comes from [`OfflineMemory`]. A plugin records each object after its fixups and before its bytes are sealed.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use jittison::base::{ExecutorAddr, Name};
use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::{Definition, FixedLink};
use jittison::memory::OfflineMemory;
use jittison::session::{DefinitionGenerator, JitDylib, SymbolFlags, SymbolRequest};
use jittison::{Error, Jit};

use crate::output::message_of;

/// Settings of an offline session.
#[derive(Debug, Default)]
pub struct Options {
    /// The address of the first object. The others follow it.
    pub base: Option<u64>,
    /// Symbols with fixed values, as `(name, value)`.
    pub absolute: Vec<(String, u64)>,
    /// Whether undefined symbols are null.
    pub phony_externals: bool,
    /// Wrapped symbols.
    pub wrap: Vec<String>,
}

/// Creates a session whose code cannot be run, and a recorder of its links, which keeps a copy of what is linked.
pub fn recording_session(options: &Options) -> Result<(Jit, Arc<Recorder>), String> {
    let (jit, recorder) = (session(options)?, Arc::new(Recorder::default()));
    jit.layer().add_plugin(Arc::new(RecorderPlugin(recorder.clone())));
    recorder.define(&options.absolute);
    Ok((jit, recorder))
}

/// Creates a session whose code cannot be run.
pub fn session(options: &Options) -> Result<Jit, String> {
    let base = ExecutorAddr::new(options.base.unwrap_or(DEFAULT_BASE));
    let builder = Jit::builder().memory_manager(Arc::new(OfflineMemory::new(base)));
    let builder = options.wrap.iter().fold(builder, |builder, symbol| builder.wrap(symbol));
    let jit = builder.build().map_err(message_of)?;
    let dylib = jit.main_dylib();
    // The code is not for this process, so it must not bind to symbols of this process.
    dylib.set_link_order(&[]).map_err(|error| error.to_string())?;
    let absolute = |(name, value): &(String, u64)| {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
        (Name::new(name), ExecutorAddr::new(*value), flags)
    };
    dylib.define_absolute(options.absolute.iter().map(absolute)).map_err(message_of)?;
    if options.phony_externals {
        dylib.add_generator(Arc::new(NullSymbols));
    }
    Ok(jit)
}

/// Defines every missing symbol as null.
struct NullSymbols;

impl DefinitionGenerator for NullSymbols {
    fn generate(&self, dylib: &JitDylib, wanted: &[SymbolRequest<'_>]) -> Result<(), Error> {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE | SymbolFlags::WEAK;
        dylib.define_absolute(wanted.iter().map(|request| (Name::new(request.name), ExecutorAddr::NULL, flags)))
    }
}

/// Records links.
#[derive(Default)]
pub struct Recorder(Mutex<LinkedSet>);

/// The objects that were linked so far.
#[derive(Default)]
pub struct LinkedSet {
    /// `e_machine` of the objects: those of one session are for one machine.
    pub machine: u16,
    pub objects: Vec<LinkedObject>,
    /// The address of every named symbol, local ones included. If several symbols have one name, the first counts.
    pub symbols: HashMap<String, u64>,
}

/// The result of linking one object.
pub struct LinkedObject {
    /// The last component of its path.
    pub file: String,
    pub sections: Vec<LinkedSection>,
    /// Addresses of GOT slots, by symbol name.
    pub got_slots: BTreeMap<String, u64>,
    /// Addresses of stubs, by symbol name.
    pub stubs: BTreeMap<String, u64>,
}

pub struct LinkedSection {
    pub name: String,
    pub address: u64,
    pub bytes: Vec<u8>,
}

impl Recorder {
    /// Calls `read` with the objects that were linked so far.
    pub fn with<R>(&self, read: impl FnOnce(&LinkedSet) -> R) -> R {
        read(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn define(&self, absolute: &[(String, u64)]) {
        let mut linked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        linked.symbols.extend(absolute.iter().cloned());
    }

    fn record(&self, file: &str, link: &mut FixedLink<'_>) {
        let graph = link.graph();
        let machine = graph.machine();
        let mut object = LinkedObject {
            file: file.to_string(),
            sections: Vec::new(),
            got_slots: BTreeMap::new(),
            stubs: BTreeMap::new(),
        };
        let mut symbols = Vec::new();
        for (index, symbol) in graph.symbols() {
            let name = graph.symbol_name(index);
            if name.is_empty() || matches!(symbol.definition, Definition::Nowhere) {
                continue;
            }
            symbols.push((name.to_string(), link.symbol_address(index).value()));
            object.got_slots.extend(link.got_slot(index).map(|slot| (name.to_string(), slot.value())));
            object.stubs.extend(link.stub(index).map(|stub| (name.to_string(), stub.value())));
        }
        let blocks: Vec<_> = graph.blocks().filter(|(_, block)| !block.is_dropped()).map(|(id, _)| id).collect();
        for id in blocks {
            let (name, address) = (link.graph().block_name(id).to_string(), link.block_address(id).value());
            object.sections.push(LinkedSection { name, address, bytes: link.bytes(id).to_vec() });
        }
        // First, because an object may declare the name and not use it.
        let got = object.sections.iter().find(|section| section.name == ".got");
        let got = got.map(|section| ("_GLOBAL_OFFSET_TABLE_".to_string(), section.address));
        let mut linked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        linked.machine = machine;
        linked.objects.push(object);
        for (name, address) in got.into_iter().chain(symbols) {
            linked.symbols.entry(name).or_insert(address);
        }
    }
}

/// The plugin that calls the recorder.
struct RecorderPlugin(Arc<Recorder>);

impl LinkPlugin for RecorderPlugin {
    fn begin(&self, origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(Hooks { recorder: self.0.clone(), file: base_name(origin.object()).to_string() }))
    }
}

struct Hooks {
    recorder: Arc<Recorder>,
    file: String,
}

impl LinkHooks for Hooks {
    fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<(), Error> {
        self.recorder.record(&self.file, link);
        Ok(())
    }
}

/// The last component of a path.
pub fn base_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

/// The address of the first object, unless the user chooses one.
const DEFAULT_BASE: u64 = 0x1_0000_0000;
