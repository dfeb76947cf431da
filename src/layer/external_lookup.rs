//! Looks up the externals of a link when some are not resolved yet.
//!
//! The gABI ("Symbol Visibility") lets only the object's own program or shared object define a symbol that the object
//! declares hidden, internal or protected. Here that is the object's dylib, together with the dylibs of its link order
//! whose hidden symbols it sees ([`Visibility::All`]). A hidden external is searched there only. A weak one that is
//! not found is null, even if a library has the name.

use crate::base::{Name, is_linker_defined};
use crate::error::{Error, ErrorKind, LinkFault, Result};
use crate::link::KeptNames;
use crate::session::{JitDylib, LookupResult, MaterializationResponsibility, RequiredState, SymbolRequest, Visibility};
use crate::sync::Arc;

/// The externals of a link that are to be looked up.
pub(super) struct WantedExternals {
    pub(super) names: KeptNames,
    /// Further names: the objects whose sections the link refers to (`section_bounds.rs`).
    pub(super) anchors: Vec<Name>,
    /// In the order of the names, then of the anchors.
    pub(super) externals: Vec<WantedExternal>,
}

/// An external to look up.
pub(super) struct WantedExternal {
    /// Whether the link fails without a definition.
    pub(super) required: bool,
    /// Whether only the object's own dylib may define it.
    pub(super) is_hidden: bool,
}

/// Looks up `externals` and calls `on_complete` with the results, in the same order. The addresses are enough.
pub(super) fn look_up(
    responsibility: MaterializationResponsibility,
    externals: WantedExternals,
    on_complete: impl FnOnce(MaterializationResponsibility, Result<Vec<LookupResult>>) + Send + 'static,
) {
    if externals.externals.iter().any(|external| external.is_hidden) {
        return look_up_hidden_first(responsibility, externals, on_complete);
    }
    responsibility.lookup(&externals.requests(false), RequiredState::Resolved, on_complete);
}

/// As [`look_up`], for externals of which some are hidden.
fn look_up_hidden_first(
    responsibility: MaterializationResponsibility,
    externals: WantedExternals,
    on_complete: impl FnOnce(MaterializationResponsibility, Result<Vec<LookupResult>>) + Send + 'static,
) {
    // The names are shared with the continuation, which looks up the others.
    let externals = Arc::new(externals);
    let order = own_module(responsibility.dylib_handle());
    let others = externals.clone();
    responsibility.lookup_in(
        &order,
        &externals.requests(true),
        RequiredState::Resolved,
        move |responsibility, found| {
            let found_hidden = match found {
                Ok(found) => found,
                Err(error) => {
                    let error = hidden_undefined(responsibility.unit_name(), error);
                    return on_complete(responsibility, Err(error));
                }
            };
            let is_hidden: Vec<bool> = others.externals.iter().map(|external| external.is_hidden).collect();
            responsibility.lookup(&others.requests(false), RequiredState::Resolved, move |responsibility, found| {
                on_complete(responsibility, found.map(|found| merged(&is_hidden, found_hidden, found)));
            });
        },
    );
}

impl WantedExternals {
    /// The requests for those externals that are hidden, or for those that are not.
    fn requests(&self, is_hidden: bool) -> Vec<SymbolRequest<'_>> {
        let all = self.names.iter().chain(self.anchors.iter().map(Name::as_str)).zip(&self.externals);
        let wanted = all.filter(|(_, external)| external.is_hidden == is_hidden);
        wanted.map(|(name, external)| SymbolRequest { name, required: external.required }).collect()
    }
}

/// The dylibs that may define a hidden external of an object in `dylib`.
fn own_module(dylib: &JitDylib) -> Vec<(JitDylib, Visibility)> {
    let order = dylib.full_search_order();
    order.into_iter().filter(|(_, visibility)| *visibility == Visibility::All).collect()
}

/// Both lists of results in the order of the externals. An element of `is_hidden` says which list has the result.
fn merged(is_hidden: &[bool], hidden: Vec<LookupResult>, others: Vec<LookupResult>) -> Vec<LookupResult> {
    let (mut hidden, mut others) = (hidden.into_iter(), others.into_iter());
    is_hidden.iter().filter_map(|is_hidden| if *is_hidden { hidden.next() } else { others.next() }).collect()
}

/// The error for hidden externals that are not found, if `error` says that. Any other error stays as it is, and so does
/// the one for names that only a native linker defines, or whose definitions failed: other visibility would not help.
fn hidden_undefined(object: &str, error: Error) -> Error {
    let ErrorKind::SymbolsNotFound { symbols, searched, failed, .. } = error.kind() else { return error };
    if symbols.iter().all(|name| is_linker_defined(name.as_bytes())) || !failed.is_empty() {
        return error;
    }
    let fault = LinkFault::HiddenUndefined { symbols: symbols.clone(), searched: searched.clone() };
    ErrorKind::Link { object: object.to_string(), fault }.into()
}
