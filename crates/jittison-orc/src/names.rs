//! The string pool (`SymbolStringPool`): names with a count of references. Equal names have equal entries.
//!
//! There is one pool for the process, so an entry is valid in every session, also after its session has ended. An entry whose
//! count is zero stays until [`clear_dead`], as in ORC.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use jittison::Error;
use jittison::base::Name;
use parking_lot::Mutex;

use crate::session::Session;

/// An entry of the pool: `LLVMOrcSymbolStringPoolEntryRef` points to one.
pub(crate) struct Entry {
    /// The references to it. Only the pool makes one of zero, under its lock. A decrement is Release and pairs with the Acquire load of
    /// `clear_dead`: uses come before the entry is freed. An increment is Relaxed: its thread has a reference, or the lock.
    count: AtomicUsize,
    text: CString,
}

/// The pool has its address in each entry, and moves no entry.
static POOL: LazyLock<Mutex<HashMap<CString, Box<Entry>>>> = LazyLock::new(Default::default);

/// One reference to an entry.
pub(crate) struct Interned(*const Entry);

// SAFETY: an entry is a count that is atomic, and a text that does not change.
unsafe impl Send for Interned {}
// SAFETY: as above.
unsafe impl Sync for Interned {}

impl Interned {
    pub(crate) fn new(text: &CStr) -> Interned {
        let mut pool = POOL.lock();
        let entry = match pool.get(text) {
            Some(entry) => entry,
            None => pool
                .entry(text.to_owned())
                .or_insert_with(|| Box::new(Entry { count: AtomicUsize::new(0), text: text.to_owned() })),
        };
        entry.count.fetch_add(1, Ordering::Relaxed);
        Interned(&**entry)
    }

    /// # Errors
    /// The name contains a zero.
    pub(crate) fn of(name: &str) -> Result<Interned, Error> {
        let text = CString::new(name).map_err(|_| Error::other(format!("the name {name:?} contains a zero")))?;
        Ok(Interned::new(&text))
    }

    /// Takes a reference of the program.
    ///
    /// # Safety
    /// O2: the reference is given away.
    pub(crate) unsafe fn from_raw(entry: *const Entry) -> Result<Interned, Error> {
        if entry.is_null() {
            return Err(Error::other("the name of a symbol is null"));
        }
        Ok(Interned(entry))
    }

    /// Gives the reference to the program.
    pub(crate) fn into_raw(self) -> *const Entry {
        let entry = self.0;
        std::mem::forget(self);
        entry
    }

    /// The entry, for a program that borrows it.
    pub(crate) fn as_raw(&self) -> *const Entry {
        self.0
    }

    /// # Errors
    /// The name is not UTF-8.
    pub(crate) fn name(&self) -> Result<Name, Error> {
        // SAFETY: this reference keeps the entry.
        unsafe { name_of(self.0) }
    }
}

impl Drop for Interned {
    fn drop(&mut self) {
        // SAFETY: this reference keeps the entry.
        unsafe { &*self.0 }.count.fetch_sub(1, Ordering::Release);
    }
}

/// The name of an entry that somebody else refers to.
///
/// # Safety
/// O1: the entry stays during the call.
pub(crate) unsafe fn name_of(entry: *const Entry) -> Result<Name, Error> {
    // SAFETY: O1 - the caller promises it.
    let Some(entry) = (unsafe { entry.as_ref() }) else { return Err(Error::other("the name of a symbol is null")) };
    let text = entry.text.to_str().map_err(|_| Error::other(format!("the name {:?} is not UTF-8", entry.text)))?;
    Ok(Name::new(text))
}

/// Frees the entries that nobody refers to.
pub(crate) fn clear_dead() {
    // A reference that goes while this looks is seen at the next call.
    POOL.lock().retain(|_, entry| entry.count.load(Ordering::Acquire) != 0);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcExecutionSessionIntern(_session: *const Session, name: *const c_char) -> *const Entry {
    // SAFETY: O1 - the program promises a string.
    Interned::new(unsafe { CStr::from_ptr(name) }).into_raw()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcExecutionSessionGetSymbolStringPool(session: *const Session) -> *const Session {
    session
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcSymbolStringPoolClearDeadEntries(_pool: *const Session) {
    clear_dead();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcRetainSymbolStringPoolEntry(entry: *const Entry) {
    // SAFETY: O1 - the program has a reference.
    unsafe { &*entry }.count.fetch_add(1, Ordering::Relaxed);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcReleaseSymbolStringPoolEntry(entry: *const Entry) {
    // SAFETY: O1, O2 - the program gives its reference away.
    unsafe { &*entry }.count.fetch_sub(1, Ordering::Release);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn LLVMOrcSymbolStringPoolEntryStr(entry: *const Entry) -> *const c_char {
    // SAFETY: O1 - the program has a reference.
    unsafe { &*entry }.text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_one_entry_which_goes_after_its_last_reference() {
        let [first, second] = [c"a_name_of_this_test"; 2].map(Interned::new);
        assert_eq!(first.as_raw(), second.as_raw());
        let is_there = || POOL.lock().contains_key(c"a_name_of_this_test");
        drop(first);
        clear_dead();
        assert!(is_there());
        drop(second);
        assert!(is_there());
        clear_dead();
        assert!(!is_there());
    }
}
