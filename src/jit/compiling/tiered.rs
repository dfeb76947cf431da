//! [`Tiered`]: one function of a [`ReOptimizeLayer`](crate::ReOptimizeLayer), its tier, and the way to the next.
//!
//! Each tier is a version of a [`Patchable`] that has this one function. So there is no protocol with callers here: commits,
//! replaced versions and the end of the dylib are those of `patching/`.
//!
//! | state | event | next |
//! |---|---|---|
//! | tier n | its count is used up, or the embedder asks | compiling tier n + 1 |
//! | compiling tier n + 1 | it is committed | tier n + 1; compiling n + 2 if its count is used up by then |
//! | compiling tier n + 1 | compiler, link or commit fails | tier n; the error reporter gets the error |
//! | any | the function or its dylib is removed | a commit is refused, and the new code is freed |
//!
//! A lock guards the state. It is not held while a tier is compiled. The thread that has set `is_compiling` compiles. A count is
//! used up only once, perhaps before that thread has noted its commit. So it is kept in `used_up`.

use std::fmt;

use crate::base::Name;
use crate::error::Result;
use crate::jit::compiling::call_counter::CallCounter;
use crate::jit::compiling::compiler::{CompileRequest, FunctionCompiler, compile};
use crate::jit::inner::{Jit, JitInner};
use crate::jit::patching::{Patchable, PreparedPatch, UnheldPatchable};
use crate::session::{BackgroundWork, JitDylib};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, Weak};

/// What the functions of one layer share. It holds no [`Jit`], because the session holds the functions.
pub(super) struct Tiers {
    pub(super) compiler: Box<dyn FunctionCompiler>,
    /// For each tier but the last: the calls after which the next is compiled.
    pub(super) calls: Vec<u64>,
    pub(super) work: Arc<BackgroundWork>,
    pub(super) jit: Weak<JitInner>,
}

/// One function that comes in tiers.
pub(super) struct Tiered {
    name: Name,
    dylib: JitDylib,
    tiers: Arc<Tiers>,
    versions: UnheldPatchable,
    state: Mutex<TierState>,
}

#[derive(Default)]
struct TierState {
    /// The tier that callers reach; zero before the first.
    tier: u32,
    is_compiling: bool,
    /// The highest tier whose count is used up.
    used_up: u32,
}

impl Tiered {
    /// Compiles the first tier of a function, and defines the function.
    pub(super) fn start(jit: &Jit, tiers: &Arc<Tiers>, dylib: &JitDylib, function: &str) -> Result<Arc<Tiered>> {
        // There is no limit of versions in use, because a thread that is not scheduled may be inside of each tier.
        let patchable = jit.patchable_builder(dylib, &[function]).history(0).max_versions(usize::MAX).build()?;
        let (versions, state) = (patchable.unheld(), Mutex::new(TierState::default()));
        let (name, dylib, tiers) = (Name::new(function), dylib.clone(), tiers.clone());
        let tiered = Arc::new(Tiered { name, dylib, tiers, versions, state });
        tiered.state.lock().is_compiling = true;
        tiered.build(&patchable, jit, 1)?;
        if let Some(next) = tiered.end_compilation(Some(1)) {
            tiered.compile_in_background(next);
        }
        Ok(tiered)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The tier that callers reach.
    pub(super) fn tier(&self) -> u32 {
        self.state.lock().tier
    }

    pub(super) fn versions(&self) -> &UnheldPatchable {
        &self.versions
    }

    /// Begins the next tier. False if there is none, or one is being compiled.
    pub(super) fn ask_for_next(self: &Arc<Self>) -> bool {
        let tier = self.tier();
        self.begin_after(tier)
    }

    /// Begins the tier after `tier`, unless it has begun.
    fn begin_after(self: &Arc<Self>, tier: u32) -> bool {
        {
            let mut state = self.state.lock();
            if tier as usize > self.tiers.calls.len() || tier < state.tier {
                return false;
            }
            if state.is_compiling {
                // The commit of `tier` may not be noted yet.
                state.used_up = state.used_up.max(tier);
                return false;
            }
            state.is_compiling = true;
        }
        self.compile_in_background(tier + 1);
        true
    }

    fn compile_in_background(self: &Arc<Self>, tier: u32) {
        let tiered = self.clone();
        self.tiers.work.push(move || tiered.compile_from(tier));
    }

    /// Compiles a tier, and those after it whose counts are used up by then.
    fn compile_from(self: &Arc<Self>, mut tier: u32) {
        loop {
            let Some(jit) = self.tiers.jit.upgrade().map(Jit) else { return };
            let built = self.versions.hold(&jit).and_then(|patchable| self.build(&patchable, &jit, tier));
            let reached = built.is_ok().then_some(tier);
            // Nobody waits for the tier of a function that was removed meanwhile.
            if let (Err(error), Ok(_present)) = (built, self.versions.hold(&jit)) {
                self.dylib.report_error(error);
            }
            match self.end_compilation(reached) {
                Some(next) => tier = next,
                None => return,
            }
        }
    }

    /// Notes the tier that a compilation has reached; `None` after a failure. Returns the tier to compile now.
    fn end_compilation(&self, reached: Option<u32>) -> Option<u32> {
        let mut state = self.state.lock();
        state.tier = reached.unwrap_or(state.tier);
        let is_used_up = reached.is_some() && state.used_up >= state.tier;
        let next = is_used_up.then(|| state.tier + 1);
        state.is_compiling = next.is_some();
        next
    }

    /// Compiles and links a tier, and redirects callers to it.
    fn build(self: &Arc<Self>, patchable: &Patchable, jit: &Jit, tier: u32) -> Result<()> {
        let calls = self.tiers.calls.get(tier as usize - 1).copied();
        // A tier whose calls are counted has the counter under the function's name.
        let symbol = match calls {
            Some(_) => Name::from(format!("{}$tier{tier}", self.name)),
            None => self.name.clone(),
        };
        let request = CompileRequest { dylib: &self.dylib, function: &self.name, symbol: &symbol, tier };
        let compiled = compile(&*self.tiers.compiler, &request)?;
        let mut patch = patchable.patch();
        patch.add_graph(compiled.graph).require(&self.name);
        let address = Arc::new(AtomicU64::new(0));
        if let Some(calls) = calls {
            let (counter, tiered) =
                (CallCounter { function: self.name.clone(), body: symbol.clone(), calls }, self.clone());
            let (jit, address) = (jit.clone(), address.clone());
            let on_used_up = move || {
                tiered.begin_after(tier);
            };
            patch.add_made(&counter.graph_name(), move |version| {
                counter.into_graph(&jit.0, version, address, on_used_up)
            });
        }
        // SAFETY: J1 - the caller of `ReOptimizeLayer::add` promises that each tier may run and has the signature that callers
        // use.
        let prepared: PreparedPatch = unsafe { patch.link() }?;
        if calls.is_some() {
            address.store(prepared.address_of(&symbol)?.value(), Ordering::Release);
        }
        prepared.commit().map(drop)
    }
}

impl fmt::Debug for Tiered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in tier {}", self.name, self.tier())
    }
}
