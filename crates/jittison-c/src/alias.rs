//! Names that stand for other names: aliases, re-exports, lazy functions.

use jittison::base::Name;
use jittison::session::Alias;

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::run;
use crate::error::{ErrorObject, Failure};
use crate::session::{SESSIONS, Session};
use crate::text::{Str, read_slice};
use crate::tracker::{TRACKERS, Tracker, read_flags};

/// `jittison_alias`.
#[repr(C)]
struct Definition {
    name: Str,
    aliasee: Str,
    flags: u32,
    reserved: u32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_alias_define(
    tracker: Tracker,
    aliases: *const Definition,
    count: usize,
) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| Ok(TRACKERS.get(tracker.bits)?.define_aliases(&unsafe { read(aliases, count)? })?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_alias_reexport(
    tracker: Tracker,
    source: Dylib,
    aliases: *const Definition,
    count: usize,
) -> *mut ErrorObject {
    run(|| {
        let (tracker, source) = (TRACKERS.get(tracker.bits)?, DYLIBS.get(source.bits)?);
        // SAFETY: C1 - the caller promises it.
        Ok(tracker.reexport(&source, &unsafe { read(aliases, count)? })?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_alias_reexport_lazily(
    session: Session,
    tracker: Tracker,
    source: Dylib,
    aliases: *const Definition,
    count: usize,
) -> *mut ErrorObject {
    run(|| {
        let (jit, tracker) = (SESSIONS.get(session.bits)?, TRACKERS.get(tracker.bits)?);
        let source = DYLIBS.get(source.bits)?;
        // SAFETY: C1 - the caller promises it.
        Ok(jit.lazy_reexport(&tracker, &source, &unsafe { read(aliases, count)? })?)
    })
}

/// # Safety
/// C1 for `aliases` and their strings.
unsafe fn read(aliases: *const Definition, count: usize) -> Result<Vec<Alias>, Failure> {
    // SAFETY: C1 - the caller promises it.
    let aliases = unsafe { read_slice(aliases, count, "aliases")? };
    let read = |alias: &Definition| {
        // SAFETY: C1 - the caller promises both.
        let (name, aliasee) = unsafe { (alias.name.read("the name of an alias")?, alias.aliasee.read("an aliasee")?) };
        Ok(Alias { name: Name::new(name), aliasee: Name::new(aliasee), flags: read_flags(alias.flags)? })
    };
    aliases.iter().map(read).collect()
}
