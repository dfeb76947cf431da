//! [`not_found`]: the error of a lookup for names that have no definition.

use crate::error::{Error, ErrorKind, FailedDefinition};
use crate::session::core::jit_dylib::JitDylib;
use crate::session::types::request::Visibility;

/// The error that the dylibs of `order` do not define `symbols`. A name whose definition failed before gets the cause of that.
#[cold]
pub(crate) fn not_found(order: &[(JitDylib, Visibility)], symbols: Vec<String>, needed_by: Option<&str>) -> Error {
    let mut failures: Vec<Option<Error>> = vec![None; symbols.len()];
    for (dylib, visibility) in order {
        let state = dylib.inner().state.lock();
        for (symbol, failure) in symbols.iter().zip(&mut failures) {
            if failure.is_none() {
                *failure = state.failure_of_name(dylib.inner(), symbol, *visibility);
            }
        }
    }
    let failed = symbols.iter().zip(failures);
    let failed = failed.filter_map(|(symbol, failure)| Some(FailedDefinition::new(symbol.clone(), failure?))).collect();
    let searched = order.iter().map(|(dylib, _)| dylib.name().to_string()).collect();
    ErrorKind::SymbolsNotFound { symbols, needed_by: needed_by.map(str::to_string), searched, failed }.into()
}
