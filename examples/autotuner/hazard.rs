//! The mode that crashes: a version is freed at once when callers are redirected, even while threads run in it.
//!
//! It combines stubs, dylibs and [`Jit::remove_now`], which waits for nobody, as a program without guards might do.
//! Freed code is filled with traps, so the process soon ends by a signal. If it does not, the run is an error.

use std::time::{Duration, Instant};

use jittison::{Error, Jit, JitDylib, ResourceTracker};

use crate::problem::{Kernel, KernelFn};
use crate::suite::Variant;

/// One version of one kernel.
struct Version {
    dylib: JitDylib,
    tracker: ResourceTracker,
}

/// A kernel behind a stub, with the version that the stub leads to.
pub struct Unguarded {
    jit: Jit,
    kernel: Kernel,
    current: Version,
    links: u64,
}

impl Unguarded {
    /// Links the first version, and creates a stub that leads to it.
    pub fn new(jit: &Jit, first: &Variant) -> Result<Unguarded, Error> {
        let kernel = first.kernel;
        let current = Version::new(jit, first, 0)?;
        let stubs = jit.main_dylib().create_tracker()?;
        jit.create_stub(&stubs, kernel.name(), jit.address_of(&current.dylib, kernel.name())?)?;
        Ok(Unguarded { jit: jit.clone(), kernel, current, links: 0 })
    }

    pub fn stub(&self) -> Result<KernelFn, Error> {
        // SAFETY: all variants of the kernel have this signature, and the stub is never removed.
        Ok(unsafe { self.jit.lookup::<KernelFn>(self.kernel.name())?.as_ptr() })
    }

    /// Redirects callers to another version, and frees the old one.
    fn replace(&mut self, variant: &Variant) -> Result<(), Error> {
        self.links += 1;
        let new = Version::new(&self.jit, variant, self.links)?;
        let address = self.jit.address_of(&new.dylib, self.kernel.name())?;
        // SAFETY: same signature. The version stays only until the next call of this function: that is the hazard.
        unsafe { self.jit.redirect_stub(self.jit.main_dylib(), self.kernel.name(), address)? };
        let old = std::mem::replace(&mut self.current, new);
        // SAFETY: none. Callers may be inside; this mode shows what happens then.
        unsafe { self.jit.remove_now(&old.tracker)? };
        self.jit.session().remove_dylib(&old.dylib)?;
        Ok(())
    }
}

impl Version {
    fn new(jit: &Jit, variant: &Variant, number: u64) -> Result<Version, Error> {
        let dylib = jit.create_dylib(&format!("{} version {number}", variant.kernel.name()))?;
        let tracker = dylib.create_tracker()?;
        jit.add_object(&tracker, &variant.name, variant.object.as_slice())?;
        jit.address_of(&dylib, variant.kernel.name())?;
        Ok(Version { dylib, tracker })
    }
}

/// Replaces versions until `time` is over; returns how many were replaced.
pub fn run(kernels: &mut [Unguarded; 2], variants: &[Vec<Variant>; 2], time: Duration) -> Result<u64, Error> {
    let deadline = Instant::now() + time;
    let mut switches = 0;
    while Instant::now() < deadline {
        for (kernel, variants) in kernels.iter_mut().zip(variants) {
            kernel.replace(&variants[switches as usize % variants.len()])?;
        }
        switches += 1;
    }
    Ok(2 * switches)
}
