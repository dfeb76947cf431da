//! [`ProgramImage`]: the executable that this process runs, with its local symbols, and writes to its code.
//!
//! The symbols are those of `.symtab`. Local ones follow the name of the source file that their object was compiled from.
//!
//! Code is read and written through `/proc/self/mem`. The kernel copies a page before its first write, so no page is ever both
//! writable and executable, and no other process sees the change. The copy has the bytes of the page, so threads that run there go on.
//!
//! # Limits
//! Shared libraries of the program are not looked at. A kernel may forbid such writes (`proc_mem.force_override=never`).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;

use object::LittleEndian as LE;
use object::read::elf::Sym as _;

use crate::base::ExecutorAddr;
use crate::error::{Error, ErrorKind, Result};
use crate::host::program_symbols::{ABSOLUTE, FUNCTION, PROGRAM, Tables, UNDEFINED, VARIABLE, fault};
use crate::os::{self, InputFile};
use crate::sync::serialize_processors;

/// The executable that this process runs.
#[derive(Debug)]
pub(crate) struct ProgramImage {
    /// Global and weak symbols by name.
    globals: BTreeMap<Box<str>, ImageSymbol>,
    /// The local symbols of each object that it was linked from.
    objects: Vec<ImageObject>,
    memory: File,
}

/// The local symbols of an object of the executable.
#[derive(Debug, Default)]
pub(crate) struct ImageObject {
    /// The name of its source, as the compiler noted it.
    pub(crate) source: Box<str>,
    pub(crate) symbols: BTreeMap<Box<str>, ImageSymbol>,
}

/// A symbol of the executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImageSymbol {
    /// Of a thread-local variable, its offset in the block of the executable.
    pub(crate) address: ExecutorAddr,
    /// Size in bytes.
    pub(crate) size: u64,
    pub(crate) kind: ImageSymbolKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageSymbolKind {
    Function,
    Variable,
    ThreadLocal,
}

/// A write of a few bytes.
#[derive(Debug)]
pub(crate) struct CodeWrite {
    pub(crate) at: ExecutorAddr,
    pub(crate) bytes: Vec<u8>,
}

impl ProgramImage {
    /// Reads the tables of the executable.
    ///
    /// # Errors
    /// The file cannot be read, or has no symbol table because it was stripped; the kernel refuses access to the memory.
    pub(super) fn read() -> Result<ProgramImage> {
        let memory = OpenOptions::new().read(true).write(true).open(MEMORY).map_err(|problem| no_memory(&problem))?;
        // This path opens the running file, even if another file has its name now.
        let tables = Tables::read(&InputFile::open(PROGRAM)?, os::program_range().start)?;
        let tables = tables.ok_or_else(|| {
            fault("the program has no symbol table, because it was stripped; link it without -s, and do not strip it")
        })?;
        let (globals, objects) = symbols_of(&tables)?;
        Ok(ProgramImage { globals, objects, memory })
    }

    /// A global or weak symbol.
    pub(crate) fn global(&self, name: &str) -> Option<ImageSymbol> {
        self.globals.get(name).copied()
    }

    /// The objects whose source has a name.
    pub(crate) fn objects_of(&self, source: &str) -> impl Iterator<Item = &ImageObject> {
        self.objects.iter().filter(move |object| &*object.source == source)
    }

    /// Bytes of the process.
    ///
    /// # Errors
    /// Nothing is mapped there.
    pub(crate) fn bytes(&self, at: ExecutorAddr, size: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; size as usize];
        self.memory.read_exact_at(&mut bytes, at.value()).map_err(|problem| no_memory(&problem))?;
        Ok(bytes)
    }

    /// Writes code. Then each processor fetches it anew before this returns. Each write of one byte is one store.
    ///
    /// # Errors
    /// The kernel refuses a write. Those before it are undone.
    pub(crate) fn write_code(&self, writes: &[CodeWrite]) -> Result<()> {
        let mut before: Vec<CodeWrite> = Vec::new();
        for write in writes {
            let old = self.bytes(write.at, write.bytes.len() as u64)?;
            if let Err(problem) = self.memory.write_all_at(&write.bytes, write.at.value()) {
                for undone in before.iter().rev() {
                    let _ = self.memory.write_all_at(&undone.bytes, undone.at.value());
                }
                return Err(no_memory(&problem));
            }
            before.push(CodeWrite { at: write.at, bytes: old });
        }
        serialize_processors();
        Ok(())
    }
}

type Symbols = (BTreeMap<Box<str>, ImageSymbol>, Vec<ImageObject>);

fn symbols_of(tables: &Tables) -> Result<Symbols> {
    let (mut globals, mut objects) = (BTreeMap::new(), Vec::<ImageObject>::new());
    for symbol in tables.symbols.entries()? {
        let name = tables.name(symbol)?;
        let kind = match symbol.st_type().0 {
            FILE => {
                objects.push(ImageObject { source: name.into(), symbols: BTreeMap::new() });
                continue;
            }
            FUNCTION => ImageSymbolKind::Function,
            VARIABLE => ImageSymbolKind::Variable,
            THREAD_LOCAL => ImageSymbolKind::ThreadLocal,
            _ => continue,
        };
        if name.is_empty() || matches!(symbol.st_shndx(LE).0, UNDEFINED | ABSOLUTE) {
            continue;
        }
        let bias = if kind == ImageSymbolKind::ThreadLocal { 0 } else { tables.load_bias };
        let address = ExecutorAddr::new(symbol.st_value(LE).wrapping_add(bias));
        let found = ImageSymbol { address, size: symbol.st_size(LE), kind };
        match (symbol.st_bind().0, objects.last_mut()) {
            (LOCAL, Some(object)) => drop(object.symbols.insert(name.into(), found)),
            (LOCAL, None) => {}
            _ => drop(globals.insert(name.into(), found)),
        }
    }
    Ok((globals, objects))
}

fn no_memory(problem: &std::io::Error) -> Error {
    let problem = format!("code of the program cannot be changed: {problem}");
    ErrorKind::File { path: MEMORY.to_string(), problem }.into()
}

const MEMORY: &str = "/proc/self/mem";
// Types and bindings of symbols, with their numbers in the gABI.
const FILE: u8 = 4;
const THREAD_LOCAL: u8 = 6;
const LOCAL: u8 = 0;
