//! What stands in the executor for a lazy function, a function, a view, a hook and a hold of the controller: each asks for its own by
//! number.
//!
//! If the controller is gone, a lazy function cannot be called and nothing is found. The process ends soon then.

use std::ffi::{CStr, c_int};

use crate::base::{ExecutorAddr, TlsIndex};
use crate::executor::asking::ask;
use crate::executor::passing::{arguments_of, set_result};
use crate::host::{
    CallShape, CallbackTarget, CodeKeepAlive, LazyTarget, LoaderView, PassedCall, SymbolSearch, ViewedAddress,
    ViewedSymbol,
};
use crate::wire::{FoundByView, Question, QuestionAnswer};

/// A lazy function of the controller.
pub(super) struct RemoteTarget(pub(super) u64);

impl LazyTarget for RemoteTarget {
    fn resolve(&self) -> Result<ExecutorAddr, String> {
        match ask(&Question::ResolveLazy { target: self.0 }) {
            Some(QuestionAnswer::Address(address)) if address != 0 => Ok(ExecutorAddr::new(address)),
            Some(QuestionAnswer::Failed(problem)) => Err(problem),
            Some(other) => Err(format!("a lazy function got the answer {other:?}")),
            None => Err(GONE.to_string()),
        }
    }
}

/// A function of the controller.
pub(super) struct RemoteCallback {
    pub(super) number: u64,
    pub(super) shape: CallShape,
}

impl CallbackTarget for RemoteCallback {
    fn shape(&self) -> CallShape {
        self.shape
    }

    fn call(&self, call: &mut PassedCall) -> Result<(), String> {
        match ask(&Question::CallBack { callback: self.number, arguments: arguments_of(call) }) {
            Some(QuestionAnswer::Returned(result)) => {
                if set_result(call, result) {
                    Ok(())
                } else {
                    Err("a function returned a result of another size".to_string())
                }
            }
            Some(QuestionAnswer::Failed(problem)) => Err(problem),
            Some(other) => Err(format!("a call of a function got the answer {other:?}")),
            None => Err("a function of the process that links was called after that process had ended".to_string()),
        }
    }
}

const GONE: &str = "a lazy function was called after the process that links it had ended";

/// What an object of the controller sees.
pub(super) struct RemoteView(pub(super) u64);

impl LoaderView for RemoteView {
    fn find_symbol(
        &self,
        search: SymbolSearch,
        name: &CStr,
        version: Option<&CStr>,
    ) -> Result<Option<ViewedSymbol>, String> {
        let (name, version) = (name.to_bytes().to_vec(), version.map(|version| version.to_bytes().to_vec()));
        match ask(&Question::FindByView { view: self.0, is_next: search == SymbolSearch::Next, name, version }) {
            Some(QuestionAnswer::ByView(found)) => Ok(found.map(|symbol| match symbol {
                FoundByView::Address(address) => ViewedSymbol::Address(ExecutorAddr::new(address)),
                FoundByView::ThreadLocal { module, offset } => ViewedSymbol::ThreadLocal(TlsIndex { module, offset }),
            })),
            Some(QuestionAnswer::Failed(problem)) => Err(problem),
            _ => Ok(None),
        }
    }

    fn locate(&self, address: ExecutorAddr) -> Option<ViewedAddress> {
        match ask(&Question::LocateByView { view: self.0, address: address.value() })? {
            QuestionAnswer::Located(located) => located.map(|located| ViewedAddress {
                module: located.module,
                base: ExecutorAddr::new(located.base),
                symbol: located.symbol.map(|(name, start)| (name, ExecutorAddr::new(start))),
            }),
            _ => None,
        }
    }
}

/// Code that the controller keeps in memory until this is dropped.
struct RemoteHold(u64);

impl Drop for RemoteHold {
    fn drop(&mut self) {
        ask(&Question::DropHold { hold: self.0 });
    }
}

/// Makes the controller keep code in memory for a named holder.
pub(super) fn keep_alive(keep_alive: u64, holder: &str) -> Option<CodeKeepAlive> {
    match ask(&Question::KeepAlive { keep_alive, holder: holder.as_bytes().to_vec() })? {
        QuestionAnswer::Hold(hold) => hold.map(|hold| -> CodeKeepAlive { Box::new(RemoteHold(hold)) }),
        _ => None,
    }
}

/// Runs a hook of the controller.
pub(super) fn run_exit_hook(hook: u64, status: Option<c_int>) {
    ask(&Question::ExitHook { hook, status });
}
