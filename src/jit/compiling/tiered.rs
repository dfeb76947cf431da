//! [`Tiered`]: one function of a [`ReOptimizeLayer`](crate::ReOptimizeLayer), its tier, and the compilation of the next.
//!
//! Each tier is a version of a [`Patchable`] that has this one function. So there is no protocol with callers here: commits,
//! replaced versions and the end of the dylib are those of `patching/`.
//!
//! `tier_state.rs` decides which thread compiles. No lock is held while a tier is compiled. The compilation of a function that is
//! removed meanwhile ends with a refused commit, and the new code is freed. The error reporter does not get that error.

use std::fmt;

use crate::base::Name;
use crate::error::Result;
use crate::jit::compiling::call_counter::CallCounter;
use crate::jit::compiling::compiler::{CompileRequest, CompiledCode, FunctionCompiler, compile};
use crate::jit::compiling::tier_state::TierState;
use crate::jit::inner::{Jit, JitInner};
use crate::jit::patching::{Patchable, PreparedPatch, UnheldPatchable};
use crate::session::{BackgroundWork, JitDylib, Removal};
use crate::sync::{Arc, AtomicU64, Ordering, Weak};

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
    /// The name of its stub. It is `name`, unless `name` is a lazy stub before it.
    entry: Name,
    dylib: JitDylib,
    tiers: Arc<Tiers>,
    versions: UnheldPatchable,
    state: TierState,
}

impl Tiered {
    /// Compiles the first tier of a function, and defines the function.
    pub(super) fn start(jit: &Jit, tiers: &Arc<Tiers>, dylib: &JitDylib, function: &str) -> Result<Arc<Tiered>> {
        let (tiered, patchable) = Tiered::declare(jit, tiers, dylib, function, function)?;
        tiered.begin(&patchable, jit)?;
        Ok(tiered)
    }

    /// A function without tiers yet, whose stub will be `entry`. Keep the handle until it [begins](Self::begin).
    pub(super) fn declare(
        jit: &Jit,
        tiers: &Arc<Tiers>,
        dylib: &JitDylib,
        function: &str,
        entry: &str,
    ) -> Result<(Arc<Tiered>, Patchable)> {
        // There is no limit of versions in use, because a thread that is not scheduled may be inside of each tier.
        let patchable = jit.patchable_builder(dylib, &[entry]).history(0).max_versions(usize::MAX).build()?;
        let (versions, state) = (patchable.unheld(), TierState::new());
        let (name, entry) = (Name::new(function), Name::new(entry));
        let (dylib, tiers) = (dylib.clone(), tiers.clone());
        Ok((Arc::new(Tiered { name, entry, dylib, tiers, versions, state }), patchable))
    }

    /// Compiles the first tier, and defines the function.
    pub(super) fn begin(self: &Arc<Self>, patchable: &Patchable, jit: &Jit) -> Result<()> {
        self.build(patchable, jit, 1)?;
        if let Some(next) = self.state.end(Some(1)) {
            self.compile_in_background(next);
        }
        Ok(())
    }

    /// The name of the stub.
    pub(super) fn entry(&self) -> &Name {
        &self.entry
    }

    /// Removes the function with all tiers.
    pub(super) fn remove(&self, jit: &Jit) -> Result<Vec<Removal>> {
        self.versions.hold(jit).and_then(|patchable| patchable.remove())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The tier that callers reach.
    pub(super) fn tier(&self) -> u32 {
        self.state.tier()
    }

    pub(super) fn versions(&self) -> &UnheldPatchable {
        &self.versions
    }

    /// Begins the next tier. False if there is none, one is being compiled, or the function was removed.
    pub(super) fn ask_for_next(self: &Arc<Self>) -> bool {
        let tier = self.tier();
        self.versions.is_present() && self.begin_after(tier)
    }

    /// Begins the tier after `tier`, unless there is none or it has begun.
    fn begin_after(self: &Arc<Self>, tier: u32) -> bool {
        let has_next = tier as usize <= self.tiers.calls.len();
        let Some(next) = has_next.then(|| self.state.begin_after(tier)).flatten() else { return false };
        self.compile_in_background(next);
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
            let committed = built.is_ok().then_some(tier);
            // A function that was removed meanwhile needs no further tier, so its error is not reported.
            if let (Err(error), Ok(_present)) = (built, self.versions.hold(&jit)) {
                self.dylib.report_error(error);
            }
            match self.state.end(committed) {
                Some(next) => tier = next,
                None => return,
            }
        }
    }

    /// Compiles and links a tier, and redirects callers to it.
    fn build(self: &Arc<Self>, patchable: &Patchable, jit: &Jit, tier: u32) -> Result<()> {
        let calls = self.tiers.calls.get(tier as usize - 1).copied();
        // A tier whose calls are counted has the counter under the function's name.
        let symbol = match calls {
            Some(_) => Name::from(format!("{}$tier{tier}", self.name)),
            None => self.entry.clone(),
        };
        let request = CompileRequest { dylib: &self.dylib, function: &self.name, symbol: &symbol, tier };
        let compiled = compile(&*self.tiers.compiler, &request)?;
        let mut patch = patchable.patch();
        match compiled.code {
            CompiledCode::Graph(graph) => patch.add_graph(graph),
            CompiledCode::Object(name, bytes) => patch.add_object(&name, bytes)?,
        };
        patch.require(&self.entry);
        let address = Arc::new(AtomicU64::new(0));
        if let Some(calls) = calls {
            let (counter, tiered) =
                (CallCounter { function: self.entry.clone(), body: symbol.clone(), calls }, self.clone());
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
            // Release pairs with the load of `UsedUp::find`.
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
