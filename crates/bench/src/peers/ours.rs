//! [`Jittison`]: a session with default options, and the runtime library in a separate dylib.

use jittison::Jit;
use jittison::base::ExecutorAddr;
use jittison::session::{JitDylib, ResourceTracker, Visibility};
use jittison_test_support::bench::objects::Instance;

use super::linker::Linker;
use crate::measure::checks::{Run, check};
use crate::measure::competitor::{JITTISON, JITTISON_LAZILY};
use crate::measure::scenario::to_text;
use crate::measure::workload::Workload;

pub struct Jittison {
    pub jit: Jit,
    pub dylib: JitDylib,
    library: JitDylib,
}

impl Jittison {
    /// Uses the given session. Links the library and nothing else.
    pub fn of(jit: Jit, workload: &Workload) -> Result<Jittison, String> {
        let library = jit.create_dylib("runtime").map_err(to_text)?;
        let tracker = library.default_tracker().map_err(to_text)?;
        jit.add_object(&tracker, "runtime.o", workload.objects.runtime.as_slice()).map_err(to_text)?;
        let dylib = jit.main_dylib().clone();
        let session = Jittison { jit, dylib, library };
        session.link_to_library(&session.dylib);
        session.library.lookup_address("rt_hash").map_err(to_text)?;
        Ok(session)
    }

    pub fn create_dylib(&self, name: &str) -> Result<JitDylib, String> {
        let dylib = self.jit.create_dylib(name).map_err(to_text)?;
        self.link_to_library(&dylib);
        Ok(dylib)
    }

    fn link_to_library(&self, dylib: &JitDylib) {
        let library = vec![(self.library.clone(), Visibility::ExportedOnly)];
        dylib.set_link_order(&[library, dylib.link_order()].concat()).unwrap();
    }
}

impl Linker for Jittison {
    const NAME: &'static str = JITTISON;
    const MAX_LIVE: usize = usize::MAX;

    type Input = ();
    type Live = ResourceTracker;

    fn new(workload: &Workload) -> Result<Jittison, String> {
        Jittison::of(Jit::new().map_err(to_text)?, workload)
    }

    fn prepare(&mut self, _: &Instance) -> Result<(), String> {
        Ok(())
    }

    fn link(&mut self, instance: &Instance, (): &()) -> Result<(ExecutorAddr, ResourceTracker), String> {
        link(&self.jit, &self.dylib, instance)
    }

    fn remove(&mut self, live: ResourceTracker) -> Result<(), String> {
        remove_now(live)
    }

    fn release_free(&mut self) -> bool {
        self.jit.release_free();
        true
    }

    fn content_bytes(&self) -> Option<u64> {
        Some(self.jit.memory_statistics().live_bytes)
    }
}

/// As the README shows it: the object is added, and linked when `Jit::lookup` asks for its function, in the main dylib.
pub struct JittisonLazily(Jittison);

impl Linker for JittisonLazily {
    const NAME: &'static str = JITTISON_LAZILY;
    const MAX_LIVE: usize = usize::MAX;

    type Input = ();
    type Live = ResourceTracker;

    fn new(workload: &Workload) -> Result<JittisonLazily, String> {
        Jittison::new(workload).map(JittisonLazily)
    }

    fn prepare(&mut self, _: &Instance) -> Result<(), String> {
        Ok(())
    }

    fn link(&mut self, instance: &Instance, (): &()) -> Result<(ExecutorAddr, ResourceTracker), String> {
        let Jittison { jit, dylib, .. } = &self.0;
        let tracker = dylib.create_tracker().map_err(to_text)?;
        jit.add_object(&tracker, &instance.entry, instance.bytes.clone()).map_err(to_text)?;
        // SAFETY: every entry has this signature.
        let function = unsafe { jit.lookup::<Run>(&instance.entry) }.map_err(to_text)?;
        Ok((function.address(), tracker))
    }

    fn remove(&mut self, live: ResourceTracker) -> Result<(), String> {
        remove_now(live)
    }
}

pub fn link(jit: &Jit, dylib: &JitDylib, instance: &Instance) -> Result<(ExecutorAddr, ResourceTracker), String> {
    let tracker = dylib.create_tracker().map_err(to_text)?;
    jit.link_object(&tracker, &instance.entry, instance.bytes.clone()).map_err(to_text)?;
    Ok((dylib.lookup_address(&instance.entry).map_err(to_text)?, tracker))
}

pub fn link_checked(jit: &Jit, dylib: &JitDylib, instance: &Instance) -> Result<ResourceTracker, String> {
    let (address, tracker) = link(jit, dylib, instance)?;
    check(address, instance)?;
    Ok(tracker)
}

/// Removes a module. A removal that has to wait is an error: it would not be measured.
pub fn remove_now(tracker: ResourceTracker) -> Result<(), String> {
    let removal = tracker.remove().map_err(to_text)?;
    removal.is_complete().then_some(()).ok_or_else(|| "a removal had to wait".to_string())
}
