//! Descriptions of how memory is mapped: texts that outlive their windows.
//!
//! Which way of mapping was taken, and why no better one was, seldom has more than one answer in a process. So each
//! distinct answer is kept for ever, once, and whoever reports it copies a reference.

use crate::sync::StaticForkMutex;

/// The parts as one text, for ever.
pub(super) fn lasting(text: &'static str, more: &[&str]) -> &'static str {
    static KNOWN: StaticForkMutex<Vec<&'static str>> = StaticForkMutex::new(Vec::new());
    if more.iter().all(|part| part.is_empty()) {
        return text;
    }
    let whole: String = std::iter::once(&text).chain(more).flat_map(|part| part.chars()).collect();
    let mut known = KNOWN.lock();
    if let Some(same) = known.iter().find(|same| **same == whole) {
        return same;
    }
    if known.len() == MAX_TEXTS {
        return text;
    }
    known.push(String::leak(whole));
    known[known.len() - 1]
}

/// So that reasons that differ every time, by a number or a path, do not pile up.
const MAX_TEXTS: usize = 32;
