//! [`jittison_orc_modules`]: which linked code of this process is in memory now, for programs that show it.

use std::ffi::{CString, c_char};
use std::fmt::Write as _;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::entry::run_or_report;
use crate::session::Session;

/// The sessions of the process, with a number of each.
struct Sessions {
    latest: u64,
    live: Vec<(u64, Weak<Session>)>,
}

static SESSIONS: Mutex<Sessions> = Mutex::new(Sessions { latest: 0, live: Vec::new() });

/// Lists a new session.
pub(crate) fn record(session: &Weak<Session>) {
    let mut sessions = SESSIONS.lock();
    sessions.live.retain(|(_, session)| session.strong_count() > 0);
    sessions.latest += 1;
    let number = sessions.latest;
    sessions.live.push((number, session.clone()));
}

/// All modules that are in memory, as an array in JSON. The caller frees the string by `free`. Null if there is no memory for it.
///
/// Each module is an object with the number of its session, its dylib, its tracker, its name, and its bytes of code, constants and
/// data. A module is gone from the list when its memory is free: then no thread runs it and nothing refers to it.
#[unsafe(no_mangle)]
extern "C" fn jittison_orc_modules() -> *mut c_char {
    let text = run_or_report(None, String::from("[]"), || Ok(modules()));
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: O2 - `strdup` reads the string, which ends with a zero. The program gets the copy, or null.
    unsafe { libc::strdup(text.as_ptr()) }
}

fn modules() -> String {
    let live: Vec<(u64, Arc<Session>)> =
        SESSIONS.lock().live.iter().filter_map(|(number, session)| Some((*number, session.upgrade()?))).collect();
    let mut text = String::from("[");
    for (number, session) in live {
        let map = session.linked().and_then(|jit| jit.memory_map());
        for tenant in map.iter().flat_map(|map| &map.tenants) {
            let separator = if text.len() > 1 { "," } else { "" };
            let [code, constants, data] = tenant.segments.map(|(_, size)| size);
            let (dylib, tracker, name) = (quoted(&tenant.group), quoted(&tenant.owner), quoted(&tenant.name));
            let _ = write!(
                text,
                "{separator}{{\"session\":{number},\"dylib\":{dylib},\"tracker\":{tracker},\"module\":{name},\
                 \"code\":{code},\"constants\":{constants},\"data\":{data}}}"
            );
        }
    }
    text.push(']');
    text
}

/// A string of JSON (RFC 8259, 7).
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_strings_of_json() {
        assert_eq!(quoted("plain"), "\"plain\"");
        assert_eq!(quoted("a\"b\\c\n\u{e9}"), "\"a\\\"b\\\\c\\u000a\u{e9}\"");
    }
}
