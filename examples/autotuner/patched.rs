//! The kernels as functions with versions. Everything that the tuner needs from `jittison` is here.
//!
//! The first version defines both kernels, their counters and the function that reads the counters. Every later
//! version defines one kernel. It is linked where no caller sees it, tried, and only then committed.
//!
//! In [`Mode::Reload`] the versions that are tried are never committed. The callers are led to the same object by
//! [`Reloaded`].

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use jittison::base::{ExecutorAddr, Name};
use jittison::session::SymbolFlags;
use jittison::{Error, ErrorKind, Function, Jit, JitDylib, Patchable, PreparedPatch, Reload, Removal};

use crate::Mode;
use crate::ledger::{Ledger, lock};
use crate::problem::{Kernel, KernelFn, Problem};
use crate::reloaded::Reloaded;
use crate::suite::{Defect, Suite, Variant};

/// Retired versions that may still be held before linking waits for them.
const MAX_HELD: usize = 8;
/// The bound on live versions. It counts the held versions; as many again that are free and have not reported it yet;
/// the current version of each kernel; the first version; and one that is being tried, or to which callers may be
/// rolled back.
pub const MAX_VERSIONS: u64 = 2 * MAX_HELD as u64 + 3 + 1;

const SIGNATURE: &str = "void(const double*, const double*, double*, long)";
/// How long linking waits while too many versions are held.
const LINK_TIMEOUT: Duration = Duration::from_secs(20);

/// The panic of an initialiser that fails on purpose.
struct Refusal;

extern "C-unwind" fn autotuner_refuse() {
    // `resume_unwind` skips the panic hook: this panic is expected and needs no message.
    resume_unwind(Box::new(Refusal))
}

/// Creates a session whose objects can call `autotuner_refuse`.
pub fn session() -> Result<Jit, Error> {
    // Freed code is filled with traps, so a call that comes too late always crashes.
    let jit = Jit::builder().trap_freed_code(true).build()?;
    let address = ExecutorAddr::new(autotuner_refuse as *const () as u64);
    let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
    jit.process_dylib().define_absolute([(Name::new("autotuner_refuse"), address, flags)])?;
    Ok(jit)
}

/// Both kernels in one dylib, with all their versions.
pub struct Patched<'a> {
    jit: Jit,
    dylib: JitDylib,
    patchable: Patchable,
    /// In [`Mode::Reload`]: what callers call, and the dylib in which versions are tried.
    reloaded: Option<(Reloaded, JitDylib)>,
    mode: Mode,
    problems: &'a [Problem; 2],
    pub ledger: Arc<Ledger>,
    /// Calls made to try versions, by kernel.
    tried: [AtomicU64; 2],
    /// How often linking waited because too many versions were held.
    waits: AtomicU64,
    /// In [`Mode::StopTheWorld`]: calls hold it shared, switches hold it exclusively.
    stop_lock: RwLock<()>,
    /// In [`Mode::NeverFree`]: a handle to every version.
    retained: Mutex<Vec<Function<KernelFn>>>,
}

/// A version that gives right answers and that no caller reaches yet.
pub struct Prepared {
    patch: PreparedPatch,
    function: Function<KernelFn>,
    kernel: Kernel,
    object: Vec<u8>,
}

/// The result of a link.
pub enum Linked {
    Ready(Box<Prepared>),
    Rejected(Defect),
}

impl<'a> Patched<'a> {
    /// Links and commits the first version, in the first dylib. The second one is for trials in [`Mode::Reload`].
    pub fn new(
        jit: &Jit,
        [dylib, trials]: [&JitDylib; 2],
        mode: Mode,
        suite: &Suite,
        problems: &'a [Problem; 2],
    ) -> Result<Patched<'a>, Error> {
        let functions = [Kernel::Gemm.name(), Kernel::Stencil.name(), "kernel_calls"];
        let max_held = if mode == Mode::NeverFree { usize::MAX } else { MAX_HELD };
        let reloaded = match mode {
            Mode::Reload => Some((Reloaded::new(jit, dylib, suite)?, trials.clone())),
            _ => None,
        };
        let tried_in = if reloaded.is_some() { trials } else { dylib };
        let patchable = jit.patchable_builder(tried_in, &functions).max_versions(max_held).build()?;
        let mut patch = patchable.patch();
        patch.add_object("first.o", suite.full.as_slice())?;
        for kernel in Kernel::ALL {
            patch.expect_signature(kernel.name(), SIGNATURE);
        }
        // SAFETY: our own object; it has no initialisers.
        let first = unsafe { patch.link()? }.commit()?;
        let ledger = Arc::new(Ledger::default());
        ledger.linked();
        drop(first);
        Ok(Patched {
            jit: jit.clone(),
            dylib: dylib.clone(),
            patchable,
            reloaded,
            mode,
            problems,
            ledger,
            tried: Default::default(),
            waits: AtomicU64::new(0),
            stop_lock: RwLock::new(()),
            retained: Mutex::default(),
        })
    }

    /// The stubs that callers call; they lead to the current version.
    pub fn stubs(&self) -> Result<[Function<KernelFn>; 2], Error> {
        // SAFETY: all versions have the signature of the kernels.
        let find = |kernel: Kernel| unsafe { self.jit.lookup_in(&self.dylib, kernel.name()) };
        Ok([find(Kernel::Gemm)?, find(Kernel::Stencil)?])
    }

    pub fn stop_lock(&self) -> &RwLock<()> {
        &self.stop_lock
    }

    /// Links a variant without publishing it, and tries it.
    pub fn link(&self, variant: &Variant) -> Result<Linked, String> {
        let started = Instant::now();
        loop {
            let failed = |error: Error| format!("{} `{}`: {error}", variant.kernel.name(), variant.name);
            let linked = catch_unwind(AssertUnwindSafe(|| self.link_once(variant)));
            let error = match linked {
                Ok(Ok(patch)) => return self.verify(variant, patch).map_err(failed),
                Ok(Err(error)) => error,
                Err(panic) if panic.is::<Refusal>() => return Ok(Linked::Rejected(Defect::FailingInitialiser)),
                Err(panic) => resume_unwind(panic),
            };
            match error.kind() {
                // Old versions are still held, and their number is bounded: wait and link again.
                ErrorKind::TooManyVersions { .. } if started.elapsed() < LINK_TIMEOUT => {
                    self.waits.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_micros(200));
                }
                _ if matches!(error.root_cause().kind(), ErrorKind::SymbolsNotFound { .. }) => {
                    return Ok(Linked::Rejected(Defect::MissingSymbol));
                }
                _ => return Err(failed(error)),
            }
        }
    }

    fn link_once(&self, variant: &Variant) -> Result<PreparedPatch, Error> {
        let mut patch = self.patchable.patch();
        patch.add_object(&variant.name, variant.object.as_slice())?;
        patch.expect_signature(variant.kernel.name(), SIGNATURE);
        // SAFETY: our own objects. Only some have an initialiser, which calls `autotuner_refuse`; that function may
        // unwind.
        unsafe { patch.link() }
    }

    fn verify(&self, variant: &Variant, patch: PreparedPatch) -> Result<Linked, Error> {
        self.ledger.linked();
        let kernel = variant.kernel;
        // SAFETY: all variants of the kernel have this signature.
        let function = unsafe { patch.lookup::<KernelFn>(kernel.name()) }?;
        let problem = &self.problems[kernel.index()];
        let mut output = problem.output();
        let is_right = (0..2).all(|iteration| {
            self.tried[kernel.index()].fetch_add(1, Ordering::Relaxed);
            // SAFETY: the handle keeps the code mapped.
            unsafe { problem.call(function.as_ptr(), iteration, &mut output) };
            problem.is_right(iteration, &output)
        });
        if is_right {
            let object = variant.object.clone();
            return Ok(Linked::Ready(Box::new(Prepared { patch, function, kernel, object })));
        }
        drop((function, patch));
        self.ledger.dropped();
        Ok(Linked::Rejected(Defect::WrongAnswer))
    }

    /// Redirects all callers to a version.
    pub fn commit(&self, prepared: Prepared) -> Result<(), Error> {
        let Prepared { patch, function, kernel, object } = prepared;
        if let Some((reloaded, _)) = &self.reloaded {
            drop((function, patch));
            self.ledger.dropped();
            return self.switch(|| Ok(self.replaced(reloaded.replace(kernel, object)?)));
        }
        match self.mode {
            Mode::NeverFree => lock(&self.retained).push(function),
            _ => drop(function),
        }
        self.switch(|| Ok(patch.commit()?.retired))
    }

    /// Redirects callers to the version before the last commit.
    pub fn rollback(&self) -> Result<(), Error> {
        self.switch(|| match &self.reloaded {
            Some((reloaded, _)) => Ok(self.replaced(reloaded.go_back()?)),
            None => Ok(self.patchable.rollback()?.retired),
        })
    }

    /// Counts the version that a reload brought.
    fn replaced(&self, reload: Reload) -> Vec<Removal> {
        if !reload.diff.is_empty() {
            self.ledger.linked();
        }
        reload.retired
    }

    fn switch(&self, change: impl FnOnce() -> Result<Vec<Removal>, Error>) -> Result<(), Error> {
        let exclusive =
            (self.mode == Mode::StopTheWorld).then(|| self.stop_lock.write().unwrap_or_else(PoisonError::into_inner));
        let since = Instant::now();
        let retired = change()?;
        drop(exclusive);
        retired.iter().for_each(|removal| self.ledger.retired(since, removal));
        Ok(())
    }

    /// Links a variant and returns a handle to it. It is never committed: callers reach it only through the handle.
    pub fn link_uncommitted(&self, variant: &Variant) -> Result<Function<KernelFn>, String> {
        match self.link(variant)? {
            Linked::Ready(prepared) => {
                self.ledger.dropped();
                Ok(prepared.function)
            }
            Linked::Rejected(defect) => Err(format!("`{}` was rejected: {}", variant.name, defect.name())),
        }
    }

    /// Calls that the kernels counted themselves, in the variables that all versions share.
    pub fn counted(&self) -> Result<[u64; 2], Error> {
        // SAFETY: `kernels.c` and `cranelift.rs` define it with this signature.
        let find = |dylib| unsafe { self.jit.lookup_in::<extern "C" fn(i64) -> i64>(dylib, "kernel_calls") };
        let counts = [Some(&self.dylib), self.reloaded.as_ref().map(|(_, trials)| trials)];
        let counts = counts.into_iter().flatten().map(find).collect::<Result<Vec<_>, Error>>()?;
        let sum = |kernel: Kernel| counts.iter().map(|count| count.call(kernel.index() as i64) as u64).sum();
        Ok(Kernel::ALL.map(sum))
    }

    pub fn tried(&self, kernel: Kernel) -> u64 {
        self.tried[kernel.index()].load(Ordering::Relaxed)
    }

    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Removes everything. Returns descriptions of what is still held.
    pub fn clear(self) -> Result<Vec<String>, Error> {
        drop((self.retained, self.patchable));
        let trials = self.reloaded.map(|(_, trials)| trials);
        let mut pending = self.dylib.clear()?;
        if let Some(trials) = trials {
            pending.extend(trials.clear()?);
        }
        Ok(pending.iter().flat_map(Removal::obstacles).collect())
    }
}
