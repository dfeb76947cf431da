//! [`LoaderScopes`]: which objects of the process ask for symbols and addresses, and what each of them sees.
//!
//! `dlsym` and `dladdr` answer for the library that calls them. An object that refers to one of them has a *scope*: a number
//! in a word of the object, which its calls pass on (`loader_functions.rs`), and a [`LoaderView`] here, which searches as a
//! link of the object does.
//!
//! | state of the scope | from | a call |
//! |---|---|---|
//! | open | the link of the object, before its code can run | asks the view |
//! | closed | the end of the object's finalisers, before its memory is freed | finds nothing, and says so |
//!
//! # Who may call
//! A thread in the object's code, which something pins. So a call comes at any time at which code runs: in an initialiser, a
//! finaliser, a destructor of a thread-local variable, a handler, a forked child.
//!
//! | the call comes | what keeps the symbol that it returns |
//! |---|---|
//! | while the object's tracker is live, or removed and pinned | a dependency of that tracker, as of code with a reference |
//! | from a finaliser, while the tracker is reclaimed | a pin that the view holds until the scope is closed |
//!
//! # Locks
//! One lock guards the table, and each scope has a lock for its texts. Under both nothing foreign is called or dropped: a
//! call clones the scope, releases the lock and then asks the view. So a view may link objects, run initialisers and wait, as
//! a lookup does. Whatever the view holds is dropped after the lock is released.
//!
//! A forked child finds the table unlocked unless another thread of the parent held the lock at the fork. The same holds for
//! the locks of the session, as for each lookup in a forked child.
//!
//! # Texts
//! `dladdr` returns C strings. A scope owns those that its object got, each once, until it is closed.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};

use crate::base::{ExecutorAddr, TlsIndex};
use crate::sync::{Arc, Mutex, StaticMutex};

/// What one object finds through the loader's functions. The methods are called without a lock, on a thread that runs the
/// object's code.
pub(crate) trait LoaderView: Send + Sync {
    /// Finds a symbol, links it, runs the initialisers that wait, and keeps it in memory as long as the object. `None` if no
    /// dylib of the search has it.
    ///
    /// # Errors
    /// A definition is found and cannot be linked: the reason.
    fn find_symbol(
        &self,
        search: SymbolSearch,
        name: &CStr,
        version: Option<&CStr>,
    ) -> Result<Option<ViewedSymbol>, String>;

    /// The module and the symbol of linked code or data at an address. `None` for any other address.
    fn locate(&self, address: ExecutorAddr) -> Option<ViewedAddress>;
}

/// Where a search begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SymbolSearch {
    /// At the dylib of the object (`RTLD_DEFAULT`, and the handle of the program).
    Default,
    /// After that dylib (`RTLD_NEXT`).
    Next,
}

/// A symbol that a view found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ViewedSymbol {
    Address(ExecutorAddr),
    ThreadLocal(TlsIndex),
}

/// What a view knows about an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ViewedAddress {
    /// The name of the module.
    pub(crate) module: String,
    /// A start of the module, where the loader does not know one.
    pub(crate) base: ExecutorAddr,
    /// The symbol that contains the address, and its start.
    pub(crate) symbol: Option<(String, ExecutorAddr)>,
}

/// The open scope of one object. Dropping it closes the scope.
#[derive(Debug)]
pub(super) struct LoaderScope {
    number: u64,
}

/// What a call of an object needs.
pub(super) struct ScopeEntry {
    pub(super) view: Arc<dyn LoaderView>,
    texts: Mutex<HashSet<CString>>,
}

struct LoaderScopes {
    next: u64,
    by_number: Option<HashMap<u64, Arc<ScopeEntry>>>,
}

static SCOPES: StaticMutex<LoaderScopes> = StaticMutex::new(LoaderScopes { next: 1, by_number: None });

impl LoaderScope {
    pub(super) fn new(view: Arc<dyn LoaderView>) -> LoaderScope {
        let entry = Arc::new(ScopeEntry { view, texts: Mutex::new(HashSet::new()) });
        let mut scopes = SCOPES.lock();
        let number = scopes.next;
        scopes.next += 1;
        scopes.by_number.get_or_insert_default().insert(number, entry);
        LoaderScope { number }
    }

    /// The word of the object by which its calls find this scope.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// An open scope.
    pub(super) fn find(number: u64) -> Option<Arc<ScopeEntry>> {
        SCOPES.lock().by_number.as_ref()?.get(&number).cloned()
    }
}

impl Drop for LoaderScope {
    fn drop(&mut self) {
        // Dropped outside the lock: the view may hold the last pin of a removed tracker.
        let entry = SCOPES.lock().by_number.as_mut().and_then(|scopes| scopes.remove(&self.number));
        drop(entry);
    }
}

impl ScopeEntry {
    /// A C string with this text, without its null characters. It is valid until the scope is closed.
    pub(super) fn text(&self, text: &str) -> *const CStr {
        let text = CString::new(text.replace('\0', "")).unwrap_or_default();
        let mut texts = self.texts.lock();
        if !texts.contains(&text) {
            texts.insert(text.clone());
        }
        texts.get(&text).map_or(c"", |text| text.as_c_str())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Silent(std::sync::mpsc::Sender<()>);

    impl LoaderView for Silent {
        fn find_symbol(&self, _: SymbolSearch, _: &CStr, _: Option<&CStr>) -> Result<Option<ViewedSymbol>, String> {
            Ok(None)
        }

        fn locate(&self, _: ExecutorAddr) -> Option<ViewedAddress> {
            None
        }
    }

    impl Drop for Silent {
        fn drop(&mut self) {
            // A view that holds the last handle of a session opens and closes other scopes when it is dropped.
            drop(SCOPES.lock());
            self.0.send(()).unwrap();
        }
    }

    #[test]
    fn a_closed_scope_is_not_found_and_its_view_is_dropped_without_the_lock() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let scope = LoaderScope::new(Arc::new(Silent(sender.clone())));
        let other = LoaderScope::new(Arc::new(Silent(sender)));
        assert_ne!(scope.number(), other.number());
        let (number, entry) = (scope.number(), LoaderScope::find(scope.number()).unwrap());
        drop(scope);
        assert!(LoaderScope::find(number).is_none() && LoaderScope::find(other.number()).is_some());
        assert!(receiver.try_recv().is_err(), "a call in progress keeps the view");
        drop(entry);
        receiver.try_recv().unwrap();
    }

    #[test]
    fn equal_texts_of_a_scope_are_one_string_that_stays_in_its_place() {
        let (sender, _receiver) = std::sync::mpsc::channel();
        let scope = LoaderScope::new(Arc::new(Silent(sender)));
        let entry = LoaderScope::find(scope.number()).unwrap();
        let first = entry.text("first");
        (0..100).for_each(|number| assert_ne!(entry.text(&format!("text {number}")), first));
        assert_eq!(entry.text("fi\0rst"), first);
        // SAFETY: H2 - the scope is open, so the text stays in its place.
        assert_eq!(unsafe { &*first }, c"first");
    }
}
