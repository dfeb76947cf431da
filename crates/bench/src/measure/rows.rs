//! The rows of the tables. Figures of several competitors are in one row if they have the same [`Row`] and the same
//! place on its axis.

use super::samples::single;
use super::scenario::{Key, Measure, Unit};

pub struct Row {
    pub group: &'static str,
    pub what: &'static str,
}

impl Row {
    const fn new(group: &'static str, what: &'static str) -> Row {
        Row { group, what }
    }

    pub fn by(&self, competitor: &str) -> Key {
        Key { group: self.group, what: self.what.to_string(), at: None, competitor: competitor.to_string() }
    }

    pub fn at(&self, at: usize, competitor: &str) -> Key {
        Key { at: Some(at as u64), ..self.by(competitor) }
    }
}

/// Marks a row whose small object has no unwind tables.
pub const WITHOUT_UNWIND_TABLES: &str = "without unwind tables";
const BY_LIVE: &str = ", by live modules";

/// The name of the row without tables, for a row with them.
pub fn without_unwind_tables(what: &str) -> String {
    match what.strip_suffix(BY_LIVE) {
        Some(what) => format!("{what}, {WITHOUT_UNWIND_TABLES}{BY_LIVE}"),
        None => format!("{what}, {WITHOUT_UNWIND_TABLES}"),
    }
}

pub const LINK_SMALL: Row = Row::new("link", "small object: add and look up");
pub const LINK_SMALL_COLD: Row = Row::new("link", "small object, its bytes not in the cache: add and look up");
pub const LINK_MEDIUM: Row = Row::new("link", "medium object: add and look up");
pub const LINK_MEDIUM_COLD: Row = Row::new("link", "medium object, its bytes not in the cache: add and look up");
pub const MEDIUM_AGAIN: Row = Row::new("link", "medium object: into warm memory, in place of another");
pub const SQLITE_FIRST: Row = Row::new("link", "SQLite, an object of 1.7 MB: first link of a process");
pub const SQLITE_AGAIN: Row = Row::new("link", "SQLite: into warm memory");
pub const REMOVE_SMALL: Row = Row::new("link", "small object: remove all, one at a time");
pub const REMOVE_MEDIUM: Row = Row::new("link", "medium object: remove all, one at a time");
pub const ALLOCATIONS: Row = Row::new("link", "small object: heap allocations of a link");
pub const LINK_CALLS: Row = Row::new("link", "small object: system calls of a warm link");

pub const REMOVE: Row = Row::new("remove", "remove one at random, by live modules");
pub const REMOVE_GROWTH: Row = Row::new("remove", "the same against 1,000 live, by live modules");
pub const WAIT: Row = Row::new("remove", "one cache miss in the memory of so many modules, by live modules");
pub const REMOVE_CALLS: Row = Row::new("remove", "system calls of a removal");

pub const SIZE_LINK: Row = Row::new("size", "link an object, by its functions");
pub const SIZE_LINK_EACH: Row = Row::new("size", "a link, for each relocation, by functions");
pub const SIZE_REMOVE: Row = Row::new("size", "remove an object, by its functions");
pub const SIZE_REMOVE_EACH: Row = Row::new("size", "a removal, for each KB of the object, by functions");
pub const SIZE_RELOCATIONS: Row = Row::new("size", "relocations of an object, by functions");
pub const SIZE_BYTES: Row = Row::new("size", "bytes of an object, by functions");
pub const LINK_BESIDE: Row = Row::new("size", "link a small object, by live modules");

pub const CHURN_RATE: Row = Row::new("churn", "link, call, remove another: per second of CPU time, by live modules");
pub const CHURN: Row = Row::new("churn", "link, call, remove another: each, by live modules");

pub const ONE_THREAD: Row = Row::new("threads", "churn of one thread");
pub const TWO_THREADS: Row = Row::new("threads", "churn of two threads, each in its dylib");
pub const THREADS: Row = Row::new("threads", "two threads' work against one's");
pub const SHARED_DYLIB: Row = Row::new("threads", "the same, both in one dylib");

pub const LOOKUP: Row = Row::new("lookup", "address of a ready symbol, by symbols");
pub const LOOKUP_TWO: Row = Row::new("lookup", "from two threads, per lookup, by symbols");
pub const LOOKUP_THREADS: Row = Row::new("lookup", "two threads' work against one's, by symbols");
pub const HANDLE: Row = Row::new("lookup", "a ready function as the README takes it, by modules");
pub const HANDLE_THREADS: Row = Row::new("lookup", "the same, two threads' work against one's, by modules");

pub const REDIRECT: Row = Row::new("patch", "redirect a stub by its name");
pub const REDIRECT_HANDLE: Row = Row::new("patch", "redirect a stub by a handle");
pub const SWAP: Row = Row::new("patch", "hot swap: link, redirect, remove the old one");
pub const GUARD: Row = Row::new("patch", "enter and leave a guard");
pub const CALL: Row = Row::new("patch", "call a linked function of a few instructions");
pub const CALL_OVERHEAD: Row = Row::new("patch", "the same by an owned handle, beyond a plain pointer");

pub const DYLIB: Row = Row::new("dylib", "create one, link and call a module, remove it");
pub const TRACKER: Row = Row::new("dylib", "create a tracker and remove it, empty");

pub const RESIDENT: Row = Row::new("memory", "resident for each small module, by live modules");
pub const RSS: Row =
    Row::new("memory", "the same as RSS, which counts a page at each of its addresses, by live modules");
pub const CONTENT: Row = Row::new("memory", "of that, its content, by live modules");
pub const LEFTOVER: Row = Row::new("memory", "still resident 3 s after all are removed, beyond the start, by modules");
pub const RELEASED: Row = Row::new("memory", "the same after a call that releases free memory, by modules");
pub const MAPPINGS: Row = Row::new("memory", "mappings for each small module, by live modules");
pub const GROWTH: Row = Row::new("memory", "growth per replaced module, all names new");

pub const NEW: Row = Row::new("start", "create the first session of a process");
pub const NEW_LATER: Row = Row::new("start", "create a later session");
pub const SESSION: Row = Row::new("start", "create a later session, link and call a small module, end the session");
pub const PROCESS: Row = Row::new("start", "a process from its start over a first linked call to its end");

pub const MANAGER: Row = Row::new("memory manager", "3 KiB, warm: allocate, write, finalize, free");

/// The cost of a removal with more live modules, relative to 1,000.
pub fn against_a_thousand(removals: &[Measure], competitor: &str) -> Vec<Measure> {
    let removals = || removals.iter().filter(|measure| measure.key.what == REMOVE.what);
    let Some(base) = removals().find(|measure| measure.key.at == Some(1_000)) else { return Vec::new() };
    let more = removals().filter(|measure| measure.key.at > Some(1_000));
    let ratio = |measure: &Measure| {
        let at = measure.key.at.unwrap_or(0) as usize;
        single(REMOVE_GROWTH.at(at, competitor), Unit::Ratio, measure.value / base.value)
    };
    more.map(ratio).collect()
}
