//! Short texts for long lists and long names, so that a message fits on a screen. The fields of an error keep everything.
//!
//! | what | how a message shows it |
//! |---|---|
//! | a list | its first [`SHOWN`] elements, in the order of the field, then `and N more` |
//! | a list of symbols that failed together | the same, with its first [`SHOWN_FAILED`] |
//! | a name of more than [`LONGEST`] bytes | its first [`HEAD`] and last [`TAIL`] bytes, and its length |

use std::borrow::Cow;
use std::fmt::Display;

use crate::error::Error;

/// The most elements of a list that a message shows.
pub(crate) const SHOWN: usize = 8;
/// The most symbols of one failed unit that a message shows.
const SHOWN_FAILED: usize = 3;
/// The longest name that a message shows entirely, in bytes.
const LONGEST: usize = 256;
const HEAD: usize = 128;
const TAIL: usize = 64;

/// A name, shortened if it is long.
pub(super) fn short(name: &str) -> Cow<'_, str> {
    if name.len() <= LONGEST {
        return Cow::Borrowed(name);
    }
    let is_boundary = |at: &usize| name.is_char_boundary(*at);
    let head = (0..=HEAD).rev().find(is_boundary).unwrap_or(0);
    let tail = (name.len() - TAIL..=name.len()).find(is_boundary).unwrap_or(name.len());
    Cow::Owned(format!("{}…{} ({} bytes)", &name[..head], &name[tail..], name.len()))
}

/// A list of names.
pub(super) fn quoted(names: &[String]) -> String {
    first_of(names, SHOWN, ", ", |name| format!("`{}`", short(name)))
}

/// The names of symbols that failed for one cause.
pub(super) fn some_of(names: &[String]) -> String {
    first_of(names, SHOWN_FAILED, ", ", |name| format!("`{}`", short(name)))
}

/// A list of texts.
pub(super) fn listed(texts: &[String], separator: &str) -> String {
    first_of(texts, SHOWN, separator, |text| short(text).into_owned())
}

/// As [`listed`], for the first texts of a list with `more` others.
pub(crate) fn listed_with(texts: &[String], more: usize) -> String {
    let shown = texts.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// The failures of independent steps.
pub(super) fn numbered(failures: &[Error]) -> String {
    let mut number = 0;
    first_of(failures, SHOWN, " ", |error| {
        number += 1;
        format!("({number}) {error}")
    })
}

fn first_of<T>(all: &[T], count: usize, separator: &str, text: impl FnMut(&T) -> String) -> String {
    let shown = all.iter().take(count).map(text).collect::<Vec<_>>().join(separator);
    match all.len().saturating_sub(count) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The member of an archive, if the fault is in one.
pub(super) fn of_member(member: &str) -> String {
    if member.is_empty() { String::new() } else { format!(", member `{}`", short(member)) }
}

/// The object that needs a symbol, if one does.
pub(super) fn needed(by: &Option<String>) -> String {
    by.as_ref().map(|object| format!(" (needed by {})", short(object))).unwrap_or_default()
}

/// Why a tracker is defunct, and what to do.
pub(super) fn defunct(removed_by: Option<&impl Display>) -> String {
    match removed_by {
        None => "it was removed or transferred to another tracker; nothing was done; use another tracker".to_string(),
        Some(remover) => {
            format!("{remover} removed it while its symbols were being linked; define them again under another tracker")
        }
    }
}

/// Why the symbol that code refers to is gone.
pub(super) fn dependency_gone(cause: Option<&Error>) -> String {
    cause.map(|cause| format!(", because its definition failed: {cause}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    #[cfg_attr(miri, ignore = "formats tens of thousands of names")]
    fn a_message_names_the_first_of_fifty_thousand_missing_symbols_and_the_value_names_all() {
        let symbols: Vec<String> = (0..50_000).map(|number| format!("symbol{number}")).collect();
        let (searched, failed) = ((0..1_000).map(|number| format!("dylib{number}")).collect(), Vec::new());
        let needed_by = Some("a.o".to_string());
        let error: Error = ErrorKind::SymbolsNotFound { symbols, needed_by, searched, failed }.into();
        let text = error.to_string();
        assert!(text.starts_with("symbols not found: `symbol0`, `symbol1`, "), "{text}");
        assert!(text.contains("`symbol7` and 49992 more (needed by a.o); searched: dylib0, "), "{text}");
        assert!(text.len() < 400, "{} bytes", text.len());
        let ErrorKind::SymbolsNotFound { symbols, .. } = error.kind() else { panic!("{error}") };
        assert_eq!((symbols.len(), symbols[49_999].as_str()), (50_000, "symbol49999"));
    }

    #[test]
    fn a_long_name_is_shortened_at_character_boundaries() {
        for (name, shown) in [("a".repeat(LONGEST), LONGEST), ("a".repeat(LONGEST + 1), HEAD + TAIL + 3 + 12)] {
            assert_eq!(short(&name).len(), shown);
        }
        let wide = short(&"ö".repeat(8_192)).into_owned();
        assert!(wide.starts_with('ö') && wide.ends_with("ö (16384 bytes)"), "{wide}");
    }

    #[test]
    fn a_message_lists_the_first_of_many_failures() {
        let failures = (0..100).map(|number| Error::other(format!("failure {number}"))).collect();
        let text = Error::join(failures).unwrap_err().to_string();
        assert!(
            text.starts_with("100 failures: (1) failure 0 (2) failure 1 ") && text.ends_with(" and 92 more"),
            "{text}"
        );
    }
}
