//! [`ProcessSymbols`]: a generator that defines symbols of the process and its libraries when a lookup misses them.
//!
//! Each symbol becomes an absolute definition of the dylib that the generator is attached to. Fallback libraries are opened one
//! by one, when the process does not have a name, and stay loaded until the process ends.

use std::fmt;

use crate::base::{ExecutorAddr, Name, is_linker_defined};
use crate::error::Result;
use crate::host::{Executor, ProcessSymbol};
use crate::session::{DefinitionGenerator, JitDylib, SymbolFlags, SymbolRequest};
use crate::sync::{Arc, Mutex};

/// Supplies the symbols of the process (ORC: `DynamicLibrarySearchGenerator`).
pub struct ProcessSymbols {
    executor: Arc<dyn Executor>,
    fallbacks: Fallbacks,
    /// What linked code gets in place of functions that are found.
    replacements: Mutex<Vec<(&'static str, ExecutorAddr)>>,
}

/// Libraries that are opened in order, each when a search has not found everything in the process.
///
/// Constructors of a library run on the thread that opens it. They may search, and a thread that waits for them may hold locks
/// of the loader. So no thread waits here. A thread that needs a library which another thread is opening opens it too: the
/// loader makes it wait until the library is complete.
struct Fallbacks {
    state: Mutex<FallbackState>,
}

struct FallbackState {
    names: Vec<String>,
    /// Number of libraries, from the first, that are opened or cannot be opened. A library that is being opened is not counted,
    /// so that a search which ran before it was complete is repeated.
    tried: usize,
    /// Names of the opened libraries.
    opened: Vec<String>,
}

impl ProcessSymbols {
    /// A generator for the symbols of the process, then those of `fallbacks` in order. A fallback is a name or path for the
    /// system's loader. One that cannot be opened is skipped.
    #[cfg(feature = "unstable")]
    pub fn new(fallbacks: impl IntoIterator<Item = String>) -> ProcessSymbols {
        ProcessSymbols::with_executor(fallbacks, Arc::new(crate::host::InProcess))
    }

    /// As [`new`](Self::new), for the process behind `executor`.
    pub(crate) fn with_executor(
        fallbacks: impl IntoIterator<Item = String>,
        executor: Arc<dyn Executor>,
    ) -> ProcessSymbols {
        let fallbacks = Fallbacks::new(fallbacks.into_iter().collect());
        ProcessSymbols { executor, fallbacks, replacements: Mutex::new(Vec::new()) }
    }

    /// From here on, linked code that needs one of these functions gets this one in its place. It gets none if neither the process nor a
    /// library has the function.
    #[cfg(feature = "reload")]
    pub(crate) fn replace(&self, functions: &[(&'static str, ExecutorAddr)]) {
        let mut replacements = self.replacements.lock();
        replacements.retain(|(name, _)| !functions.iter().any(|(new, _)| new == name));
        replacements.extend_from_slice(functions);
    }

    fn replacement(&self, name: &str) -> Option<ExecutorAddr> {
        let replacements = self.replacements.lock();
        replacements.iter().find(|(replaced, _)| *replaced == name).map(|(_, address)| *address)
    }
}

impl DefinitionGenerator for ProcessSymbols {
    fn generate(&self, dylib: &JitDylib, missing: &[SymbolRequest<'_>]) -> Result<()> {
        // Linker-defined names, such as `_end`, describe the host program or one of its libraries, not linked code.
        let is_searched = |name: &&str| !is_linker_defined(name.as_bytes());
        let mut missing: Vec<&str> = missing.iter().map(|request| request.name).filter(is_searched).collect();
        let search = || {
            let mut symbols = self.executor.find_symbols(&missing).into_iter();
            let mut found = Vec::new();
            missing.retain(|name| {
                let symbol = symbols.next().flatten();
                let own = symbol.and_then(|_| self.replacement(name)).map(ProcessSymbol::Function);
                found.extend(own.or(symbol).map(|symbol| definition(name, symbol)));
                symbol.is_none()
            });
            dylib.define_absolute(found)?;
            Ok(missing.is_empty())
        };
        self.fallbacks.search(search, |name| self.executor.open_library(name).is_ok())
    }
}

impl Fallbacks {
    fn new(names: Vec<String>) -> Fallbacks {
        Fallbacks { state: Mutex::new(FallbackState { names, tried: 0, opened: Vec::new() }) }
    }

    /// Calls `search` until it has found everything (`true`), or until a call that began after every library was tried.
    /// `open` opens a library and says whether it could.
    fn search(&self, mut search: impl FnMut() -> Result<bool>, open: impl Fn(&str) -> bool) -> Result<()> {
        loop {
            // Read before the search: it misses the symbols of a library that another thread completes meanwhile.
            let tried = self.state.lock().tried;
            if search()? || !self.advance(tried, &open) {
                return Ok(());
            }
        }
    }

    /// Opens the library after the first `tried`, unless another thread has done so. Returns false if there is none.
    fn advance(&self, tried: usize, open: impl Fn(&str) -> bool) -> bool {
        let name = {
            let state = self.state.lock();
            if state.tried > tried {
                return true;
            }
            state.names.get(tried).cloned()
        };
        let Some(name) = name else { return false };
        // Outside the lock, because constructors of the library run here.
        let is_opened = open(&name);
        let mut state = self.state.lock();
        // Another thread, or a search of a constructor, may have opened this library and further ones meanwhile.
        if state.tried == tried {
            state.tried += 1;
            if is_opened {
                state.opened.push(name);
            }
        }
        true
    }
}

fn definition(name: &str, symbol: ProcessSymbol) -> (Name, ExecutorAddr, SymbolFlags) {
    let (address, flag) = match symbol {
        ProcessSymbol::Function(address) => (address, SymbolFlags::CALLABLE),
        ProcessSymbol::Data(address) => (address, SymbolFlags::NONE),
        ProcessSymbol::TlsIndex(variable) => (variable.to_address(), SymbolFlags::THREAD_LOCAL),
    };
    // Weak, because another thread may define the same name at the same time.
    (Name::new(name), address, SymbolFlags::EXPORTED | SymbolFlags::WEAK | flag)
}

impl fmt::Debug for ProcessSymbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The lock is released before formatting, because the formatter may be code of the embedder.
        let (opened, unopened) = {
            let state = self.fallbacks.state.lock();
            (state.opened.clone(), state.names[state.tried..].to_vec())
        };
        write!(f, "process symbols, with {opened:?}, not yet {unopened:?}")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Barrier, mpsc};

    use super::*;

    /// Symptom: a search that ran while another thread opened the last library reported its symbols as missing.
    #[test]
    fn a_search_waits_for_a_library_that_another_thread_opens() {
        let fallbacks = Fallbacks::new(vec!["library".to_string()]);
        let (is_loaded, has_begun, may_end) = (AtomicBool::new(false), Barrier::new(2), Barrier::new(2));
        let find = || Ok(is_loaded.load(Ordering::SeqCst));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let open = |_: &str| {
                    has_begun.wait();
                    may_end.wait();
                    is_loaded.store(true, Ordering::SeqCst);
                    true
                };
                fallbacks.search(find, open).unwrap();
            });
            has_begun.wait();
            let is_found = AtomicBool::new(false);
            let find_and_note = || {
                is_found.store(is_loaded.load(Ordering::SeqCst), Ordering::SeqCst);
                find()
            };
            // As the loader: the second call waits until the library is complete.
            let open = |_: &str| {
                may_end.wait();
                while !is_loaded.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                true
            };
            fallbacks.search(find_and_note, open).unwrap();
            let was_found = is_found.load(Ordering::SeqCst);
            if !was_found {
                may_end.wait();
            }
            assert!(was_found, "the search ended before the library was complete");
        });
        assert_eq!(fallbacks.state.lock().opened, ["library"]);
    }

    #[test]
    fn a_constructor_of_a_library_may_search_and_libraries_are_opened_in_order() {
        let fallbacks = Fallbacks::new(["first", "second", "absent", "third"].map(String::from).to_vec());
        let (opened, depth) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        let is_complete = || Ok(opened.lock().contains(&"second".to_string()));
        let open_plain = |name: &str| {
            opened.lock().push(name.to_string());
            name != "absent"
        };
        let open = |name: &str| {
            // The first library searches for a symbol of the second one.
            if depth.fetch_add(1, Ordering::SeqCst) == 0 {
                fallbacks.search(is_complete, open_plain).unwrap();
            }
            open_plain(name)
        };
        fallbacks.search(|| Ok(false), open).unwrap();
        assert_eq!(fallbacks.state.lock().opened, ["first", "second", "third"]);
        assert_eq!(fallbacks.state.lock().tried, 4);
    }

    #[test]
    fn nothing_is_opened_for_a_search_that_finds_everything() {
        let fallbacks = Fallbacks::new(vec!["library".to_string()]);
        let (sender, receiver) = mpsc::channel();
        fallbacks.search(|| Ok(true), |name| sender.send(name.to_string()).is_ok()).unwrap();
        assert!(receiver.try_recv().is_err());
    }
}
