//! [`Stub`]: a handle to a redirectable function.
//!
//! [`Jit::redirect_stub`] looks the stub up by name each time. A handle looks it up once, so a redirect through the handle
//! is one store.

use std::fmt;

use crate::base::ExecutorAddr;
use crate::error::Result;
use crate::jit::inner::Jit;
use crate::platform::StubHandle;
use crate::session::JitDylib;

/// A handle to a stub of a dylib. It keeps the stub in memory.
///
/// ```
/// # fn main() -> Result<(), jittison::Error> {
/// use jittison::base::ExecutorAddr;
///
/// extern "C" fn one() -> i32 { 1 }
/// extern "C" fn two() -> i32 { 2 }
/// let address = |function: extern "C" fn() -> i32| ExecutorAddr::new(function as usize as u64);
///
/// let jit = jittison::Jit::new()?;
/// let tracker = jit.main_dylib().create_tracker()?;
/// jit.create_stub(&tracker, "number", address(one))?;
/// // SAFETY: `number` leads to a function of this signature.
/// let number = unsafe { jit.lookup::<extern "C" fn() -> i32>("number")? };
/// assert_eq!(number.call(), 1);
///
/// let stub = jit.stub(jit.main_dylib(), "number")?;
/// // SAFETY: `two` has the same signature and is never freed.
/// unsafe { stub.redirect(address(two)) };
/// assert_eq!(number.call(), 2);
/// # Ok(()) }
/// ```
pub struct Stub(StubHandle);

impl Jit {
    /// Finds a stub that [`create_stub`](Self::create_stub) defined in a dylib. The handle pins the tracker of the stub, as
    /// a [`Function`](crate::Function) pins the tracker of its code.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchStub`](crate::ErrorKind::NoSuchStub).
    pub fn stub(&self, dylib: &JitDylib, name: &str) -> Result<Stub> {
        self.0.stubs.find(dylib, name).map(Stub)
    }
}

impl Stub {
    /// Redirects callers to another target with one atomic store. Calls that are inside the old target continue there.
    ///
    /// To free the old target, remove its tracker after this call: [guards](Jit::guard) of its callers then keep it in
    /// memory until they are dropped.
    ///
    /// # Safety
    /// As [`Jit::redirect_stub`].
    #[inline]
    pub unsafe fn redirect(&self, target: ExecutorAddr) {
        self.0.redirect(target);
    }
}

impl fmt::Debug for Stub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stub `{}`", self.0.name())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::{Name, sized, steps_of};
    use crate::session::{Alias, SymbolFlags};

    /// The steps of `define` for `count` names, per name.
    fn steps_per_name(count: usize, define: impl Fn(&Jit, &[String])) -> usize {
        let jit = Jit::new().unwrap();
        let names: Vec<_> = (0..count).map(|number| format!("name{number}")).collect();
        let steps = steps_of(|| define(&jit, &names));
        assert!(names.iter().all(|name| jit.main_dylib().symbol_flags(name).is_some()));
        steps.div_ceil(count)
    }

    #[cfg_attr(miri, ignore = "maps code memory")]
    #[test]
    fn a_stub_takes_the_same_steps_in_a_set_of_any_size() {
        let create = |jit: &Jit, names: &[String]| {
            let tracker = jit.main_dylib().create_tracker().unwrap();
            let stubs: Vec<_> = names.iter().map(|name| (name.as_str(), ExecutorAddr::new(8))).collect();
            jit.create_stubs(&tracker, &stubs).unwrap();
            // SAFETY: J1 - nothing calls the stub.
            unsafe { jit.redirect_stub(jit.main_dylib(), &names[names.len() - 1], ExecutorAddr::new(16)) }.unwrap();
            std::mem::forget(tracker);
        };
        let [few, many] = [50, sized(5000, 100)].map(|count| steps_per_name(count, create));
        assert_eq!((few, many), (4, 4));
    }

    #[cfg_attr(miri, ignore = "maps code memory")]
    #[test]
    fn a_lazy_function_takes_the_same_steps_in_a_set_of_any_size() {
        let define = |jit: &Jit, names: &[String]| {
            let tracker = jit.main_dylib().create_tracker().unwrap();
            let source = jit.create_dylib("source").unwrap();
            let alias = |name: &String| {
                let (name, aliasee) = (Name::new(name), Name::new("function"));
                Alias { name, aliasee, flags: SymbolFlags::EXPORTED | SymbolFlags::CALLABLE }
            };
            jit.lazy_reexport(&tracker, &source, &names.iter().map(alias).collect::<Vec<_>>()).unwrap();
            std::mem::forget(tracker);
        };
        let [few, many] = [50, sized(5000, 100)].map(|count| steps_per_name(count, define));
        assert_eq!((few, many), (4, 4));
    }
}
