//! Patches: functions that come in versions, and are replaced while threads call them.
//!
//! A patch goes from open to linked to committed. One function at a time uses it: a second one gets an error, because a patch
//! that is being linked is neither open nor linked.

use std::ffi::c_void;
use std::sync::Arc;

use jittison::{Patch, Patchable, PreparedPatch};
use parking_lot::Mutex;

use crate::dylib::{DYLIBS, Dylib};
use crate::entry::{check_optional_out, check_out, put, put_if_wanted, run, run_linked_code};
use crate::error::{ErrorObject, Failure};
use crate::function::{AnyFunction, FUNCTIONS, FunctionHandle};
use crate::graph::{GraphHandle, take_built};
use crate::handle::{Kind, Table};
use crate::json::versions_to_json;
use crate::removal::{Removal, give};
use crate::session::{Handle, SESSIONS, Session, read_options};
use crate::text::{Str, Text, read_slice};

/// `jittison_patchable`.
pub(crate) type PatchableHandle = Handle<Patchable>;
static PATCHABLES: Table<Patchable> = Table::new(Kind::Patchable);

/// `jittison_patch`.
pub(crate) type PatchHandle = Handle<Mutex<State>>;
static PATCHES: Table<Mutex<State>> = Table::new(Kind::Patch);

/// How far a patch is.
pub(crate) enum State {
    Open(Patch),
    Linked(Arc<PreparedPatch>),
    /// Another function uses it, or it was committed, or refused.
    Taken,
}

impl State {
    fn word(&self) -> &'static str {
        match self {
            State::Open(_) => "not linked yet",
            State::Linked(_) => "linked already",
            State::Taken => "committed, refused, or in use by another call",
        }
    }

    fn refusal(&self) -> Failure {
        Failure::argument(format!("the patch is {}; nothing was done", self.word()))
    }
}

/// `jittison_patchable_options`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Options {
    size: usize,
    history: usize,
    max_versions: usize,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patchable_create(
    session: Session,
    dylib: Dylib,
    functions: *const Str,
    count: usize,
    options: *const c_void,
    out: *mut PatchableHandle,
) -> *mut ErrorObject {
    let create = || {
        let (jit, dylib) = (SESSIONS.get(session.bits)?, DYLIBS.get(dylib.bits)?);
        // SAFETY: C1 - the caller promises it.
        let functions = unsafe { read_slice(functions, count, "functions")? };
        // SAFETY: C1 - the caller promises it.
        let read = |name: &Str| unsafe { name.read("the name of a function") };
        let functions = functions.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let mut builder = jit.patchable_builder(&dylib, &functions);
        if !options.is_null() {
            // SAFETY: C1 - the caller promises the options, in which all bits are values.
            let options: Options = unsafe { read_options(options.cast())? };
            if options.history != 0 {
                builder = builder.history(options.history);
            }
            if options.max_versions != 0 {
                builder = builder.max_versions(options.max_versions);
            }
        }
        PATCHABLES.insert_with(|| Ok(builder.build()?)).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", create) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patchable_release(patchable: PatchableHandle) -> *mut ErrorObject {
    run(|| PATCHABLES.release(patchable.bits))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patchable_rollback(
    patchable: PatchableHandle,
    version: *mut u64,
    retired: *mut Removal,
) -> *mut ErrorObject {
    let roll_back = || {
        check_optional_out(version, "version")?;
        let rolled_back = PATCHABLES.get(patchable.bits)?.rollback()?;
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(version, rolled_back.version) };
        Ok(rolled_back.retired)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { give(retired, roll_back) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patchable_remove(patchable: PatchableHandle, removal: *mut Removal) -> *mut ErrorObject {
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { give(removal, || Ok(PATCHABLES.get(patchable.bits)?.remove()?)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patchable_versions(patchable: PatchableHandle, out: *mut *mut Text) -> *mut ErrorObject {
    run(|| {
        let versions = PATCHABLES.get(patchable.bits)?.versions();
        // SAFETY: C1 - the caller promises it.
        unsafe { Text::give(&versions_to_json(&versions), out) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn jittison_patchable_create_from(
    session: Session,
    dylib: Dylib,
    name: Str,
    bytes: *const u8,
    size: usize,
    out: *mut PatchableHandle,
) -> *mut ErrorObject {
    run_linked_code(
        || {
            check_out(out, "out")?;
            let (jit, dylib) = (SESSIONS.get(session.bits)?, DYLIBS.get(dylib.bits)?);
            // SAFETY: C1 - the caller promises both.
            let (name, bytes) = unsafe { (name.read("name")?, read_slice(bytes, size, "bytes")?) };
            Ok((jit, dylib, name, bytes, PATCHABLES.reserve()?))
        },
        |(jit, dylib, name, bytes, place)| {
            // SAFETY: C3 - the header states the promises.
            let patchable = unsafe { jit.add_rebindable(&dylib, name, bytes)? };
            // SAFETY: C1 - the caller promises it.
            unsafe { put(out, "out", || Ok(Handle::new(place.fill(patchable)))) }
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patch_begin(patchable: PatchableHandle, out: *mut PatchHandle) -> *mut ErrorObject {
    let begin = || {
        let patch = PATCHABLES.get(patchable.bits)?.patch();
        PATCHES.insert(Mutex::new(State::Open(patch))).map(Handle::new)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { put(out, "out", begin) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patch_release(patch: PatchHandle) -> *mut ErrorObject {
    run(|| PATCHES.release(patch.bits))
}

/// Changes a patch that is open.
fn edit(patch: PatchHandle, change: impl FnOnce(&mut Patch) -> Result<(), Failure>) -> Result<(), Failure> {
    match &mut *PATCHES.get(patch.bits)?.lock() {
        State::Open(patch) => change(patch),
        other => Err(other.refusal()),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patch_add_object(
    patch: PatchHandle,
    name: Str,
    bytes: *const u8,
    size: usize,
) -> *mut ErrorObject {
    run(|| {
        // SAFETY: C1 - the caller promises both.
        let (name, bytes) = unsafe { (name.read("name")?, read_slice(bytes, size, "bytes")?) };
        edit(patch, |patch| Ok(patch.add_object(name, bytes).map(drop)?))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patch_add_object_file(patch: PatchHandle, path: Str) -> *mut ErrorObject {
    run(|| {
        // SAFETY: C1 - the caller promises it.
        let path = unsafe { path.read("path")? };
        edit(patch, |patch| Ok(patch.add_object_file(path).map(drop)?))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patch_add_graph(patch: PatchHandle, graph: GraphHandle) -> *mut ErrorObject {
    run(|| {
        edit(patch, |patch| {
            patch.add_graph(take_built(graph)?);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patch_expect_signature(
    patch: PatchHandle,
    function: Str,
    signature: Str,
) -> *mut ErrorObject {
    run(|| {
        // SAFETY: C1 - the caller promises both.
        let (function, signature) = unsafe { (function.read("function")?, signature.read("signature")?) };
        edit(patch, |patch| {
            patch.expect_signature(function, signature);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patch_require(patch: PatchHandle, function: Str) -> *mut ErrorObject {
    run(|| {
        // SAFETY: C1 - the caller promises it.
        let function = unsafe { function.read("function")? };
        edit(patch, |patch| {
            patch.require(function);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn jittison_patch_link(patch: PatchHandle) -> *mut ErrorObject {
    run_linked_code(
        || {
            let state = PATCHES.get(patch.bits)?;
            let taken = {
                let mut state = state.lock();
                match std::mem::replace(&mut *state, State::Taken) {
                    State::Open(patch) => patch,
                    other => {
                        let refusal = other.refusal();
                        *state = other;
                        return Err(refusal);
                    }
                }
            };
            Ok((state, taken))
        },
        |(state, patch)| {
            // SAFETY: C3 - the header states the promises.
            let linked = unsafe { patch.link()? };
            *state.lock() = State::Linked(Arc::new(linked));
            Ok(())
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn jittison_patch_lookup(
    patch: PatchHandle,
    name: Str,
    out: *mut FunctionHandle,
) -> *mut ErrorObject {
    run_linked_code(
        || {
            check_out(out, "out")?;
            // SAFETY: C1 - the caller promises it.
            let name = unsafe { name.read("name")? };
            let place = FUNCTIONS.reserve()?;
            match &*PATCHES.get(patch.bits)?.lock() {
                State::Linked(linked) => Ok((linked.clone(), name, place)),
                other => Err(other.refusal()),
            }
        },
        |(linked, name, place)| {
            // SAFETY: C3 - the header states the promises.
            let function = unsafe { linked.lookup::<AnyFunction>(name)? };
            // SAFETY: C1 - the caller promises it.
            unsafe { put(out, "out", || Ok(Handle::new(place.fill(function)))) }
        },
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn jittison_patch_commit(
    patch: PatchHandle,
    version: *mut u64,
    retired: *mut Removal,
) -> *mut ErrorObject {
    let commit = || {
        check_optional_out(version, "version")?;
        let state = PATCHES.get(patch.bits)?;
        let linked = {
            let mut state = state.lock();
            match std::mem::replace(&mut *state, State::Taken) {
                State::Linked(linked) => match Arc::try_unwrap(linked) {
                    Ok(linked) => linked,
                    Err(linked) => {
                        *state = State::Linked(linked);
                        return Err(Failure::argument("a lookup uses the patch; nothing was done"));
                    }
                },
                other => {
                    let refusal = other.refusal();
                    *state = other;
                    return Err(refusal);
                }
            }
        };
        let committed = linked.commit()?;
        // SAFETY: C1 - the caller promises it.
        unsafe { put_if_wanted(version, committed.version) };
        Ok(committed.retired)
    };
    // SAFETY: C1 - the caller promises it.
    run(|| unsafe { give(retired, commit) })
}
