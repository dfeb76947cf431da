//! Dylibs: creation, search, link order, initialisation, removal.

use std::ops::Deref;

use jittison::session::Visibility;
use jittison::{Jit, JitDylib};

use crate::entry::{check_optional_out, check_out, put, put_if_wanted, run, run_linked_code};
use crate::error::{ErrorObject, Failure};
use crate::handle::{Kind, Retained, Table};
use crate::removal::{Removal, give};
use crate::session::{Handle, SESSIONS, Session};
use crate::text::{Str, Text, read_slice};

/// `jittison_dylib`.
pub(crate) type Dylib = Handle<Named>;
pub(crate) static DYLIBS: Table<Named> = Table::new(Kind::Dylib);

/// A dylib, and the session whose handle led to it, so that a lookup counts one use and not two.
pub(crate) struct Named {
    dylib: JitDylib,
    session: Option<(u64, Retained<Jit>)>,
}

impl Named {
    /// `session` is the handle of `jit`.
    fn of(session: Session, jit: Retained<Jit>, dylib: JitDylib) -> Named {
        Named { dylib, session: Some((session.bits, jit)) }
    }

    /// Calls `body` with the session of a handle.
    #[inline(always)]
    pub(crate) fn with_session<R>(
        &self,
        session: Session,
        body: impl FnOnce(&Jit) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        match &self.session {
            Some((bits, jit)) if *bits == session.bits && SESSIONS.is_live(*bits) => body(jit),
            _ => body(&*SESSIONS.get(session.bits)?),
        }
    }
}

impl From<JitDylib> for Named {
    fn from(dylib: JitDylib) -> Named {
        Named { dylib, session: None }
    }
}

impl Deref for Named {
    type Target = JitDylib;

    #[inline]
    fn deref(&self) -> &JitDylib {
        &self.dylib
    }
}

/// Finds or makes a dylib of a session, and a handle of it.
fn handle_of(session: Session, find: impl FnOnce(&Jit) -> Result<JitDylib, Failure>) -> Result<Dylib, Failure> {
    let jit = SESSIONS.retain(session.bits)?;
    let place = DYLIBS.reserve()?;
    let dylib = find(&jit)?;
    Ok(Handle::new(place.fill(Named::of(session, jit, dylib))))
}

/// `jittison_link_entry`: a dylib of a link order.
#[repr(C)]
struct LinkEntry {
    dylib: Dylib,
    /// 0: exported symbols only. 1: all symbols.
    visibility: u32,
    reserved: u32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_main(session: Session, out: *mut Dylib) -> *mut ErrorObject {
    let find = || handle_of(session, |jit| Ok(jit.main_dylib().clone()));
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", find) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_process(session: Session, out: *mut Dylib) -> *mut ErrorObject {
    let find = || handle_of(session, |jit| Ok(jit.process_dylib().clone()));
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", find) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_create(session: Session, name: Str, out: *mut Dylib) -> *mut ErrorObject {
    let create = || {
        // SAFETY: C1 - the caller promises it.
        let text = unsafe { name.read("name")? };
        handle_of(session, |jit| Ok(jit.create_dylib(text)?))
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", create) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_find(session: Session, name: Str, out: *mut Dylib) -> *mut ErrorObject {
    let find = || {
        // SAFETY: C1 - the caller promises it.
        let text = unsafe { name.read("name")? };
        handle_of(session, |jit| {
            let found = jit.session().dylibs().into_iter().find(|dylib| dylib.name() == text);
            found.ok_or_else(|| Failure::argument(format!("the session has no dylib `{text}`")))
        })
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", find) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_release(dylib: Dylib) -> *mut ErrorObject {
    run(|| DYLIBS.release(dylib.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_name(dylib: Dylib, out: *mut *mut Text) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { Text::give(DYLIBS.get(dylib.bits)?.name(), out) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_symbol_count(dylib: Dylib, out: *mut usize) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", || Ok(DYLIBS.get(dylib.bits)?.symbol_count())) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_set_link_order(
    dylib: Dylib,
    entries: *const LinkEntry,
    count: usize,
) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| Ok(DYLIBS.get(dylib.bits)?.set_link_order(&unsafe { read_link_order(entries, count)? })?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_add_to_link_order(
    dylib: Dylib,
    entries: *const LinkEntry,
    count: usize,
) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| Ok(DYLIBS.get(dylib.bits)?.add_to_link_order(&unsafe { read_link_order(entries, count)? })?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_remove_from_link_order(
    dylib: Dylib,
    other: Dylib,
    was_in_order: *mut bool,
) -> *mut ErrorObject {
    run(|| {
        check_optional_out(was_in_order, "was_in_order")?;
        let was = DYLIBS.get(dylib.bits)?.remove_from_link_order(&*DYLIBS.get(other.bits)?);
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(was_in_order, was) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_replace_in_link_order(
    dylib: Dylib,
    old: Dylib,
    entry: *const LinkEntry,
    was_in_order: *mut bool,
) -> *mut ErrorObject {
    run(|| {
        check_optional_out(was_in_order, "was_in_order")?;
        let (dylib, old) = (DYLIBS.get(dylib.bits)?, DYLIBS.get(old.bits)?);
        // SAFETY: C1 - the caller promises it.
        let entry = unsafe { read_link_order(entry, 1)? };
        let was = entry.iter().try_fold(false, |_, (new, shown)| dylib.replace_in_link_order(&old, new, *shown))?;
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(was_in_order, was) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_link_order(
    dylib: Dylib,
    out: *mut LinkEntry,
    capacity: usize,
    count: *mut usize,
) -> *mut ErrorObject {
    run(|| {
        check_out(count, "count")?;
        if capacity > 0 {
            check_out(out, "out")?;
        }
        let order = DYLIBS.get(dylib.bits)?.link_order();
        let number = order.len();
        let places = DYLIBS.reserve_many(number.min(capacity))?;
        for (position, (place, (dylib, visibility))) in places.into_iter().zip(order).enumerate() {
            let visibility = (visibility == Visibility::All).into();
            let entry = LinkEntry { dylib: Handle::new(place.fill(dylib.into())), visibility, reserved: 0 };
            // SAFETY: C1 - the caller promises `capacity` places.
            unsafe { out.add(position).write(entry) };
        }
        // SAFETY: C1 - the caller promises it.
        unsafe { put(count, "count", || Ok(number)) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_is_defunct(dylib: Dylib, out: *mut bool) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", || Ok(DYLIBS.get(dylib.bits)?.is_defunct())) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn jittison_dylib_initialize(
    session: Session,
    dylib: Dylib,
    functions: *mut usize,
) -> *mut ErrorObject {
    // SAFETY: C3 - the header states the promises. C1 - the caller promises `functions`.
    unsafe { run_functions(session, dylib, functions, |jit, dylib| jit.initialize(dylib)) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn jittison_dylib_deinitialize(
    session: Session,
    dylib: Dylib,
    functions: *mut usize,
) -> *mut ErrorObject {
    // SAFETY: C3 - the header states the promises. C1 - the caller promises `functions`.
    unsafe { run_functions(session, dylib, functions, |jit, dylib| jit.deinitialize(dylib)) }
}

/// Runs initialisers or finalisers of a dylib, and writes how many.
///
/// # Safety
/// C1 for `functions`, and C3 for `run`.
unsafe fn run_functions(
    session: Session,
    dylib: Dylib,
    functions: *mut usize,
    run: impl FnOnce(&Jit, &JitDylib) -> jittison::error::Result<usize>,
) -> *mut ErrorObject {
    run_linked_code(
        || {
            check_optional_out(functions, "functions")?;
            Ok((SESSIONS.get(session.bits)?, DYLIBS.get(dylib.bits)?))
        },
        |(jit, dylib)| {
            let count = run(&jit, &dylib)?;
            // SAFETY: C1 - the caller promises it.
            unsafe { put_if_wanted(functions, count) };
            Ok(())
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_clear(dylib: Dylib, removal: *mut Removal) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { give(removal, || Ok(DYLIBS.get(dylib.bits)?.clear()?)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_dylib_remove(session: Session, dylib: Dylib, removal: *mut Removal) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe {
        give(removal, || Ok(SESSIONS.get(session.bits)?.session().remove_dylib(&*DYLIBS.get(dylib.bits)?)?))
    })
}

/// # Safety
/// C1 for `entries`.
unsafe fn read_link_order(entries: *const LinkEntry, count: usize) -> Result<Vec<(JitDylib, Visibility)>, Failure> {
    // SAFETY: C1 - the caller promises it.
    let entries = unsafe { read_slice(entries, count, "entries")? };
    let read = |entry: &LinkEntry| {
        let visibility = match entry.visibility {
            0 => Visibility::ExportedOnly,
            1 => Visibility::All,
            other => return Err(Failure::argument(format!("the visibility {other} of a link entry is not one"))),
        };
        Ok(((*DYLIBS.get(entry.dylib.bits)?).clone(), visibility))
    };
    entries.iter().map(read).collect()
}
