//! The kernels as functions of an object that is reloaded: [`jittison::Reloader`] gets new bytes for one function at a time.

use std::sync::Mutex;

use jittison::{Error, Jit, JitDylib, Reload, Reloader};

use crate::ledger::lock;
use crate::problem::Kernel;
use crate::suite::Suite;

/// The object with both kernels, in its versions.
pub struct Reloaded {
    reloader: Reloader,
    history: Mutex<History>,
}

/// The objects of the kernels.
struct History {
    running: [Vec<u8>; 2],
    /// What ran before the last replacement.
    before: Option<(Kernel, Vec<u8>)>,
}

impl Reloaded {
    /// Links both kernels as they are first.
    pub fn new(jit: &Jit, dylib: &JitDylib, suite: &Suite) -> Result<Reloaded, Error> {
        let reloader = Reloader::new(jit, &dylib.create_tracker()?)?;
        reloader.add_object("kernels.o", suite.full.as_slice())?;
        reloader.link()?;
        // The first variant is the kernel as it is in `full`.
        let running = Kernel::ALL.map(|kernel| suite.variants(kernel)[0].object.clone());
        Ok(Reloaded { reloader, history: Mutex::new(History { running, before: None }) })
    }

    /// Leads all callers of a kernel to that of another object.
    pub fn replace(&self, kernel: Kernel, object: Vec<u8>) -> Result<Reload, Error> {
        let mut history = lock(&self.history);
        // SAFETY: our own objects. Each has a kernel of the same types, and the callers have no address of a version.
        let reload = unsafe { self.reloader.reload_functions("kernels.o", object.as_slice()) }?;
        let before = std::mem::replace(&mut history.running[kernel.index()], object);
        history.before = Some((kernel, before));
        Ok(reload)
    }

    /// Leads all callers to what ran before the last replacement.
    pub fn go_back(&self) -> Result<Reload, Error> {
        let before = lock(&self.history).before.take();
        let (kernel, object) = before.ok_or_else(|| Error::other("nothing was replaced"))?;
        self.replace(kernel, object)
    }
}
