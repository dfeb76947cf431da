//! [`not_found`]: the error of a lookup for names that have no definition.

use crate::error::{Error, ErrorKind, FailedDefinition};
use crate::session::core::jit_dylib::JitDylib;
use crate::session::lookup::searched::Searched;
use crate::session::types::request::Visibility;

/// The error that the dylibs of `order` do not define `symbols`. A name whose definition failed before gets the cause of that.
#[cold]
pub(crate) fn not_found(order: &Searched<'_>, symbols: Vec<String>, needed_by: Option<&str>) -> Error {
    let mut failures: Vec<Option<Error>> = vec![None; symbols.len()];
    for (dylib, visibility) in (0..order.len()).filter_map(|position| order.get(position)) {
        let state = dylib.inner().state.lock();
        for (symbol, failure) in symbols.iter().zip(&mut failures) {
            if failure.is_none() {
                *failure = state.failure_of_name(dylib.inner(), symbol, visibility);
            }
        }
    }
    let failed = symbols.iter().zip(failures);
    let failed = failed.filter_map(|(symbol, failure)| Some(FailedDefinition::new(symbol.clone(), failure?))).collect();
    let needed_by = needed_by.map(str::to_string);
    ErrorKind::SymbolsNotFound { symbols, needed_by, searched: order.names(), failed }.into()
}

/// As [`not_found`], for one name that is missing in one dylib.
#[cold]
pub(crate) fn not_found_in(dylib: &JitDylib, name: &str) -> Error {
    let order = [(dylib.clone(), Visibility::All)];
    not_found(&Searched::from(&order[..]), vec![name.to_string()], None)
}
