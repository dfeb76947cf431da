//! Interned descriptions of how memory is mapped. They live until the process ends.
//!
//! [`MappedWindow::description`](crate::memory::MappedWindow::description) returns a `&'static str`. A description
//! names the mapping mode and why better modes failed. A process has few different ones, so each is stored once and
//! never freed.

use crate::sync::StaticForkMutex;

/// `text` followed by `suffixes`, as one interned string. Once the table is full, a new string is dropped and only
/// `text` is returned.
pub(super) fn intern(text: &'static str, suffixes: &[&str]) -> &'static str {
    static INTERNED: StaticForkMutex<Vec<&'static str>> = StaticForkMutex::new(Vec::new());
    if suffixes.iter().all(|suffix| suffix.is_empty()) {
        return text;
    }
    let full: String = std::iter::once(&text).chain(suffixes).flat_map(|part| part.chars()).collect();
    let mut interned = INTERNED.lock();
    if let Some(same) = interned.iter().find(|same| **same == full) {
        return same;
    }
    if interned.len() == MAX_TEXTS {
        return text;
    }
    interned.push(String::leak(full));
    interned[interned.len() - 1]
}

/// Limits the leak if the reasons differ every time, by a number or a path.
const MAX_TEXTS: usize = 32;
