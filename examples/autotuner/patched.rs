//! The kernels as functions that come in versions: everything the tuner asks of `jittison`.
//!
//! The first version is linked whole and defines both kernels, their counters and what reads these. Every further one
//! defines one kernel. It is linked where nobody sees it, tried, and only then committed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use jittison::base::{ExecutorAddr, Name};
use jittison::session::SymbolFlags;
use jittison::{Error, ErrorKind, Function, Jit, JitDylib, Patchable, PreparedPatch, Removal};

use crate::Mode;
use crate::ledger::{Ledger, lock};
use crate::problem::{Kernel, KernelFn, Problem};
use crate::suite::{Defect, Suite, Variant};

/// Versions that may be given up and still held by somebody, before linking waits for them.
const MOST_HELD: usize = 8;
/// More than these are never counted: those that are held and as many again that are free and have not said so yet; both
/// kernels' current ones and the first, whole one; and one that is being tried, or to which callers may be led back.
pub const MOST_VERSIONS: u64 = 2 * MOST_HELD as u64 + 3 + 1;

const SIGNATURE: &str = "void(const double*, const double*, double*, long)";
/// How long linking waits for a version that somebody holds.
const PATIENCE: Duration = Duration::from_secs(20);

/// What an initialiser throws that does not want to come back.
struct Refusal;

extern "C-unwind" fn autotuner_refuse() {
    // Past the panic hook: this is expected, and need not be printed.
    resume_unwind(Box::new(Refusal))
}

/// A session in which objects find `autotuner_refuse`.
pub fn session() -> Result<Jit, Error> {
    // Freed code is filled with traps, so that a call that came too late could not go unnoticed.
    let jit = Jit::builder().trap_freed_code(true).build()?;
    let address = ExecutorAddr::new(autotuner_refuse as *const () as u64);
    let flags = SymbolFlags::EXPORTED | SymbolFlags::ABSOLUTE;
    jit.process_dylib().define_absolute([(Name::new("autotuner_refuse"), address, flags)])?;
    Ok(jit)
}

/// Both kernels in one dylib.
pub struct Patched<'a> {
    jit: Jit,
    dylib: JitDylib,
    patchable: Patchable,
    mode: Mode,
    problems: &'a [Problem; 2],
    pub ledger: Arc<Ledger>,
    /// Calls that were made to try versions, by kernel.
    tried: [AtomicU64; 2],
    /// How often linking had to wait because too many versions were held.
    waits: AtomicU64,
    /// Calls take it shared, and switches take it alone, in [`Mode::StopTheWorld`].
    world: RwLock<()>,
    /// In [`Mode::NeverFree`]: a handle to every version.
    kept: Mutex<Vec<Function<KernelFn>>>,
}

/// A version that gives right answers and is called by nobody.
pub struct Prepared {
    patch: PreparedPatch,
    function: Function<KernelFn>,
}

/// What became of a link.
pub enum Linked {
    Ready(Prepared),
    Rejected(Defect),
}

impl<'a> Patched<'a> {
    /// Links and commits the first version.
    pub fn new(
        jit: &Jit,
        dylib: &JitDylib,
        mode: Mode,
        suite: &Suite,
        problems: &'a [Problem; 2],
    ) -> Result<Patched<'a>, Error> {
        let functions = [Kernel::Gemm.name(), Kernel::Stencil.name(), "kernel_calls"];
        let most_held = if mode == Mode::NeverFree { usize::MAX } else { MOST_HELD };
        let patchable = jit.patchable_builder(dylib, &functions).max_versions(most_held).build()?;
        let mut patch = patchable.patch();
        patch.add_object("first.o", suite.whole.as_slice())?;
        for kernel in Kernel::ALL {
            patch.expect_signature(kernel.name(), SIGNATURE);
        }
        // SAFETY: our own object, which has no initialisers.
        let first = unsafe { patch.link()? }.commit()?;
        let ledger = Arc::new(Ledger::default());
        ledger.linked();
        drop(first);
        Ok(Patched {
            jit: jit.clone(),
            dylib: dylib.clone(),
            patchable,
            mode,
            problems,
            ledger,
            tried: Default::default(),
            waits: AtomicU64::new(0),
            world: RwLock::new(()),
            kept: Mutex::default(),
        })
    }

    /// The stubs that callers call, whatever version is behind them.
    pub fn stubs(&self) -> Result<[Function<KernelFn>; 2], Error> {
        // SAFETY: all versions have the signature of the kernels.
        let find = |kernel: Kernel| unsafe { self.jit.lookup_in(&self.dylib, kernel.name()) };
        Ok([find(Kernel::Gemm)?, find(Kernel::Stencil)?])
    }

    pub fn world(&self) -> &RwLock<()> {
        &self.world
    }

    /// Links a variant beside the current version, and tries it.
    pub fn link(&self, variant: &Variant) -> Result<Linked, String> {
        let begun = Instant::now();
        loop {
            let failed = |error: Error| format!("{} `{}`: {error}", variant.kernel.name(), variant.name);
            let linked = catch_unwind(AssertUnwindSafe(|| self.link_once(variant)));
            let error = match linked {
                Ok(Ok(patch)) => return self.verify(variant.kernel, patch).map_err(failed),
                Ok(Err(error)) => error,
                Err(panic) if panic.is::<Refusal>() => return Ok(Linked::Rejected(Defect::FailingInitialiser)),
                Err(panic) => resume_unwind(panic),
            };
            match error.kind() {
                // Somebody is slow to leave an old version: the number of versions has a bound, and this is it.
                ErrorKind::TooManyVersions { .. } if begun.elapsed() < PATIENCE => {
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
        // SAFETY: our own objects. The initialiser that some have calls `autotuner_refuse`, which they may.
        unsafe { patch.link() }
    }

    fn verify(&self, kernel: Kernel, patch: PreparedPatch) -> Result<Linked, Error> {
        self.ledger.linked();
        // SAFETY: as all variants of the kernel.
        let function = unsafe { patch.lookup::<KernelFn>(kernel.name()) }?;
        let problem = &self.problems[kernel.index()];
        let mut output = problem.output();
        let is_right = (0..2).all(|turn| {
            self.tried[kernel.index()].fetch_add(1, Ordering::Relaxed);
            // SAFETY: the handle holds the code.
            unsafe { problem.call(function.as_ptr(), turn, &mut output) };
            problem.is_right(turn, &output)
        });
        if is_right {
            return Ok(Linked::Ready(Prepared { patch, function }));
        }
        drop((function, patch));
        self.ledger.dropped();
        Ok(Linked::Rejected(Defect::WrongAnswer))
    }

    /// Leads all callers to a version.
    pub fn commit(&self, prepared: Prepared) -> Result<(), Error> {
        let Prepared { patch, function } = prepared;
        match self.mode {
            Mode::NeverFree => lock(&self.kept).push(function),
            _ => drop(function),
        }
        self.switch(|| Ok(patch.commit()?.retired))
    }

    /// Leads callers back to where they were before the last commit.
    pub fn rollback(&self) -> Result<(), Error> {
        self.switch(|| Ok(self.patchable.rollback()?.retired))
    }

    fn switch(&self, change: impl FnOnce() -> Result<Vec<Removal>, Error>) -> Result<(), Error> {
        let alone =
            (self.mode == Mode::StopTheWorld).then(|| self.world.write().unwrap_or_else(PoisonError::into_inner));
        let since = Instant::now();
        let retired = change()?;
        drop(alone);
        retired.iter().for_each(|removal| self.ledger.retired(since, removal));
        Ok(())
    }

    /// A handle to a version that nobody else is led to, for calls past all stubs.
    pub fn link_beside(&self, variant: &Variant) -> Result<Function<KernelFn>, String> {
        match self.link(variant)? {
            Linked::Ready(prepared) => {
                self.ledger.dropped();
                Ok(prepared.function)
            }
            Linked::Rejected(defect) => Err(format!("`{}` was rejected: {}", variant.name, defect.name())),
        }
    }

    /// Calls that the kernels have counted themselves, in the variables that all versions share.
    pub fn counted(&self) -> Result<[u64; 2], Error> {
        // SAFETY: of that signature, in `kernels.c` and in `cranelift.rs`.
        let count = unsafe { self.jit.lookup_in::<extern "C" fn(i64) -> i64>(&self.dylib, "kernel_calls") }?;
        Ok(Kernel::ALL.map(|kernel| count.call(kernel.index() as i64) as u64))
    }

    pub fn tried(&self, kernel: Kernel) -> u64 {
        self.tried[kernel.index()].load(Ordering::Relaxed)
    }

    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Gives everything back; what is still held, in words.
    pub fn clear(self) -> Result<Vec<String>, Error> {
        drop((self.kept, self.patchable));
        let pending = self.dylib.clear()?;
        Ok(pending.iter().flat_map(Removal::obstacles).collect())
    }
}
