//! [`Registered`]: what the controller has given the executor a number for, and the answers to questions about it.
//!
//! One lock guards the table. Under it nothing foreign is called or dropped: a question clones its entry, releases the lock and
//! then asks it.

use std::collections::HashMap;
use std::ffi::CString;

use crate::base::{ExecutorAddr, TlsIndex, catch};
use crate::executor::passing::{call_of, result_of};
use crate::host::{
    CallbackTarget, CodeKeepAlive, ExitHookFn, KeepAliveFn, LazyTarget, LoaderView, SymbolSearch, ViewedSymbol,
};
use crate::sync::{Arc, Mutex};
use crate::wire::{FoundByView, LocatedByView, Question, QuestionAnswer};

/// The table of one executor.
pub(super) struct Registered {
    table: Mutex<Table>,
}

struct Table {
    next: u64,
    entries: HashMap<u64, Entry>,
}

/// What a number stands for.
pub(super) enum Entry {
    Lazy(Arc<dyn LazyTarget>),
    Callback(Arc<dyn CallbackTarget>),
    View(Arc<dyn LoaderView>),
    KeepAlive(Arc<KeepAliveFn>),
    Hook(Arc<ExitHookFn>),
    /// Keeps code in memory until the executor drops it.
    Hold(#[allow(dead_code)] CodeKeepAlive),
}

/// A number. Dropping this removes what it stands for.
pub(super) struct Registration {
    registered: Arc<Registered>,
    pub(super) number: u64,
}

impl Registration {
    pub(super) fn new(registered: &Arc<Registered>, entry: Entry) -> Registration {
        Registration { registered: registered.clone(), number: registered.add(entry) }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registered.remove(self.number);
    }
}

impl Registered {
    pub(super) fn new() -> Registered {
        Registered { table: Mutex::new(Table { next: 1, entries: HashMap::new() }) }
    }

    fn add(&self, entry: Entry) -> u64 {
        let mut table = self.table.lock();
        let number = table.next;
        table.next += 1;
        table.entries.insert(number, entry);
        number
    }

    /// Removes an entry. It is dropped after the lock is released.
    fn remove(&self, number: u64) {
        let entry = self.table.lock().entries.remove(&number);
        drop(entry);
    }

    /// Releases the code that the threads of an executor held, which has ended.
    pub(super) fn drop_holds(&self) {
        let holds: Vec<_> = {
            let entries = &mut self.table.lock().entries;
            let numbers: Vec<u64> = entries
                .iter()
                .filter(|(_, entry)| matches!(entry, Entry::Hold(_)))
                .map(|(number, _)| *number)
                .collect();
            numbers.into_iter().filter_map(|number| entries.remove(&number)).collect()
        };
        drop(holds);
    }

    /// What `select` finds in an entry.
    fn find<T>(&self, number: u64, select: impl FnOnce(&Entry) -> Option<T>) -> Option<T> {
        self.table.lock().entries.get(&number).and_then(select)
    }

    /// Answers a question. A panic of the embedder's code becomes a failure.
    pub(super) fn answer(&self, question: Question) -> QuestionAnswer {
        let answer = catch(|| self.answer_or_panic(question));
        answer.unwrap_or_else(|panic| QuestionAnswer::Failed(format!("the process that links panicked: {panic}")))
    }

    fn answer_or_panic(&self, question: Question) -> QuestionAnswer {
        match question {
            Question::ResolveLazy { target } => {
                let found = self.find(target, |entry| match entry {
                    Entry::Lazy(target) => Some(target.clone()),
                    _ => None,
                });
                match found.map(|target| target.resolve()) {
                    Some(Ok(address)) => QuestionAnswer::Address(address.value()),
                    Some(Err(problem)) => QuestionAnswer::Failed(problem),
                    None => unknown("lazy function", target),
                }
            }
            Question::CallBack { callback, arguments } => {
                let found = self.find(callback, |entry| match entry {
                    Entry::Callback(target) => Some(target.clone()),
                    _ => None,
                });
                let Some(target) = found else { return unknown("function", callback) };
                let called = call_of(*arguments).map_err(|error| error.to_string());
                match called.and_then(|mut call| target.call(&mut call).map(|()| call)) {
                    Ok(call) => QuestionAnswer::Returned(result_of(call)),
                    Err(problem) => QuestionAnswer::Failed(problem),
                }
            }
            Question::FindByView { view, is_next, name, version } => {
                let Some(found) = self.view(view) else { return unknown("object", view) };
                let search = if is_next { SymbolSearch::Next } else { SymbolSearch::Default };
                match find_by_view(&*found, search, name, version) {
                    Ok(symbol) => QuestionAnswer::ByView(symbol),
                    Err(problem) => QuestionAnswer::Failed(problem),
                }
            }
            Question::LocateByView { view, address } => {
                let Some(found) = self.view(view) else { return unknown("object", view) };
                let located = found.locate(ExecutorAddr::new(address));
                QuestionAnswer::Located(located.map(|located| LocatedByView {
                    module: located.module,
                    base: located.base.value(),
                    symbol: located.symbol.map(|(name, start)| (name, start.value())),
                }))
            }
            Question::KeepAlive { keep_alive, holder } => {
                let found = self.find(keep_alive, |entry| match entry {
                    Entry::KeepAlive(keep_alive) => Some(keep_alive.clone()),
                    _ => None,
                });
                // An unknown number: removal of the code began.
                let hold = found.and_then(|keep_alive| keep_alive(&String::from_utf8_lossy(&holder)));
                QuestionAnswer::Hold(hold.map(|hold| self.add(Entry::Hold(hold))))
            }
            Question::DropHold { hold } => {
                if self.find(hold, |entry| matches!(entry, Entry::Hold(_)).then_some(())).is_some() {
                    self.remove(hold);
                }
                QuestionAnswer::Done
            }
            Question::OpenLane { .. } => {
                QuestionAnswer::Failed("a lane is opened on the listener's socket only".to_string())
            }
            Question::ExitHook { hook, status } => {
                let found = self.find(hook, |entry| match entry {
                    Entry::Hook(hook) => Some(hook.clone()),
                    _ => None,
                });
                if let Some(hook) = found {
                    hook(status);
                }
                QuestionAnswer::Done
            }
        }
    }

    fn view(&self, number: u64) -> Option<Arc<dyn LoaderView>> {
        self.find(number, |entry| match entry {
            Entry::View(view) => Some(view.clone()),
            _ => None,
        })
    }
}

fn unknown(what: &str, number: u64) -> QuestionAnswer {
    QuestionAnswer::Failed(format!("the process that links knows no {what} {number}"))
}

fn find_by_view(
    view: &dyn LoaderView,
    search: SymbolSearch,
    name: Vec<u8>,
    version: Option<Vec<u8>>,
) -> std::result::Result<Option<FoundByView>, String> {
    let name = CString::new(name).map_err(|error| error.to_string())?;
    let version = version.map(CString::new).transpose().map_err(|error| error.to_string())?;
    let found = view.find_symbol(search, &name, version.as_deref())?;
    Ok(found.map(|symbol| match symbol {
        ViewedSymbol::Address(address) => FoundByView::Address(address.value()),
        ViewedSymbol::ThreadLocal(TlsIndex { module, offset }) => FoundByView::ThreadLocal { module, offset },
    }))
}
