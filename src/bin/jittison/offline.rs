//! Links at addresses of the user's choice, to be looked at and not run: what `check`, and `run --no-exec`, do.
//!
//! A plugin writes down what the linker made of each object, in the moment before the bytes would be sealed.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use jittison::base::{ExecutorAddr, Name};
use jittison::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use jittison::link::{Definition, FixedLink};
use jittison::memory::OfflineMemory;
use jittison::session::{DefinitionGenerator, JitDylib, SymbolFlags, SymbolRequest};
use jittison::{Error, Jit};

use crate::run::told;

/// How to link.
#[derive(Debug, Default)]
pub struct Options {
    /// Where the first object stands, and the others behind it.
    pub base: Option<u64>,
    /// Symbols with fixed values.
    pub absolute: Vec<(String, u64)>,
    /// Whether what nobody defines is null.
    pub phony_externals: bool,
}

/// A session whose code cannot be run, and what its links come to.
pub fn session(options: &Options) -> Result<(Jit, Arc<Recorder>), String> {
    let base = ExecutorAddr::new(options.base.unwrap_or(DEFAULT_BASE));
    let jit = Jit::builder().memory_manager(Arc::new(OfflineMemory::new(base))).build().map_err(told)?;
    let recorder = Arc::new(Recorder::default());
    jit.layer().add_plugin(Arc::new(Handle(recorder.clone())));
    let dylib = jit.main_dylib();
    // Nothing of this process: what is linked is not for it.
    dylib.set_link_order(&[]);
    let absolute = |(name, value): &(String, u64)| {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
        (Name::new(name), ExecutorAddr::new(*value), flags)
    };
    dylib.define_absolute(options.absolute.iter().map(absolute)).map_err(told)?;
    recorder.define(&options.absolute);
    if options.phony_externals {
        dylib.add_generator(Arc::new(Phony));
    }
    Ok((jit, recorder))
}

/// Defines whatever is missing.
struct Phony;

impl DefinitionGenerator for Phony {
    fn generate(&self, dylib: &JitDylib, wanted: &[SymbolRequest<'_>]) -> Result<(), Error> {
        let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE | SymbolFlags::WEAK;
        dylib.define_absolute(wanted.iter().map(|request| (Name::new(request.name), ExecutorAddr::NULL, flags)))
    }
}

/// What links came to, by object.
#[derive(Default)]
pub struct Recorder(Mutex<Linked>);

/// What was linked so far.
#[derive(Default)]
pub struct Linked {
    pub objects: Vec<LinkedObject>,
    /// Every symbol that has a name, those that only their object sees among them; the first of each name.
    pub symbols: HashMap<String, u64>,
}

/// What one object came to.
pub struct LinkedObject {
    /// The last part of its path.
    pub file: String,
    pub sections: Vec<LinkedSection>,
    /// Addresses of GOT slots and of stubs, by the symbol's name.
    pub slots: BTreeMap<String, u64>,
    pub stubs: BTreeMap<String, u64>,
}

pub struct LinkedSection {
    pub name: String,
    pub address: u64,
    pub bytes: Vec<u8>,
}

impl Recorder {
    /// What was linked so far.
    pub fn with<R>(&self, look: impl FnOnce(&Linked) -> R) -> R {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn define(&self, absolute: &[(String, u64)]) {
        let mut linked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        linked.symbols.extend(absolute.iter().cloned());
    }

    fn record(&self, file: &str, link: &mut FixedLink<'_>) {
        let graph = link.graph();
        let mut object = LinkedObject {
            file: file.to_string(),
            sections: Vec::new(),
            slots: BTreeMap::new(),
            stubs: BTreeMap::new(),
        };
        let mut symbols = Vec::new();
        for (index, symbol) in graph.symbols() {
            let name = graph.symbol_name(index);
            if name.is_empty() || matches!(symbol.definition, Definition::Nowhere) {
                continue;
            }
            symbols.push((name.to_string(), link.symbol_address(index).value()));
            object.slots.extend(link.got_slot(index).map(|slot| (name.to_string(), slot.value())));
            object.stubs.extend(link.stub(index).map(|stub| (name.to_string(), stub.value())));
        }
        let blocks: Vec<_> = graph.blocks().filter(|(_, block)| !block.is_dropped()).map(|(id, _)| id).collect();
        for id in blocks {
            let (name, address) = (link.graph().block_name(id).to_string(), link.block_address(id).value());
            object.sections.push(LinkedSection { name, address, bytes: link.bytes(id).to_vec() });
        }
        let mut linked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        linked.objects.push(object);
        for (name, address) in symbols {
            linked.symbols.entry(name).or_insert(address);
        }
    }
}

/// The recorder as a plugin.
struct Handle(Arc<Recorder>);

impl LinkPlugin for Handle {
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

/// The last part of a path.
pub fn base_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

/// Where objects stand if nobody says.
const DEFAULT_BASE: u64 = 0x1_0000_0000;
