//! [`JITBuilder`]: the settings of a module.

use std::collections::HashMap;

use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::Configurable;
use cranelift_codegen::{ir, settings};
use cranelift_module::{ModuleError, ModuleResult};
use jittison::Jit;
use jittison::base::ExecutorAddr;

/// Names of library calls.
pub(crate) type LibcallNames = Box<dyn Fn(ir::LibCall) -> String + Send + Sync>;

/// A search for symbols of the host.
pub(crate) type SymbolLookup = Box<dyn Fn(&str) -> Option<*const u8> + Send>;

/// The settings of a [`JITModule`](crate::JITModule).
pub struct JITBuilder {
    pub(crate) isa: OwnedTargetIsa,
    pub(crate) symbols: HashMap<String, ExecutorAddr>,
    pub(crate) lookups: Vec<SymbolLookup>,
    pub(crate) libcall_names: LibcallNames,
    pub(crate) session: Option<Jit>,
    pub(crate) grouping: Grouping,
    pub(crate) is_removed_on_drop: bool,
}

/// Which definitions are removed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grouping {
    /// All definitions of the module, as in cranelift-jit. A call of [`JITModule::next_group`](crate::JITModule::next_group)
    /// begins another group. The cheapest.
    #[default]
    Manual,
    /// Each function and each data object by itself: [`JITModule::remove_function`](crate::JITModule::remove_function).
    Single,
}

impl JITBuilder {
    /// Settings for this machine, with the default flags of Cranelift. `libcall_names` gives the names of library calls;
    /// `cranelift_module::default_libcall_names()` is right for most programs.
    ///
    /// # Errors
    /// Cranelift does not support this machine.
    pub fn new(libcall_names: LibcallNames) -> ModuleResult<JITBuilder> {
        JITBuilder::with_flags(&[], libcall_names)
    }

    /// As [`new`](Self::new), with flags of Cranelift.
    ///
    /// # Errors
    /// A flag does not exist, or Cranelift does not support this machine.
    pub fn with_flags(flags: &[(&str, &str)], libcall_names: LibcallNames) -> ModuleResult<JITBuilder> {
        let mut settings = settings::builder();
        // Calls of libraries reach any distance.
        for (name, value) in [("use_colocated_libcalls", "false"), ("is_pic", "false")].iter().chain(flags) {
            settings.set(name, value)?;
        }
        let unsupported =
            |problem: &str| ModuleError::Backend(anyhow::anyhow!("Cranelift and this machine: {problem}"));
        let isa = cranelift_native::builder().map_err(unsupported)?.finish(settings::Flags::new(settings))?;
        Ok(JITBuilder::with_isa(isa, libcall_names))
    }

    /// Settings for the instruction set `isa`, which must be that of this machine. Position-independent code is accepted, too.
    pub fn with_isa(isa: OwnedTargetIsa, libcall_names: LibcallNames) -> JITBuilder {
        let (symbols, lookups) = (HashMap::new(), Vec::new());
        let (session, grouping) = (None, Grouping::default());
        JITBuilder { isa, symbols, lookups, libcall_names, session, grouping, is_removed_on_drop: false }
    }

    /// Gives a name to an address of the host. The code of the module refers to it by a declaration that is not defined. The
    /// last address of a name counts. Symbols of the process need no call.
    pub fn symbol<K: Into<String>>(&mut self, name: K, address: *const u8) -> &mut JITBuilder {
        self.symbols.insert(name.into(), ExecutorAddr::new(address as u64));
        self
    }

    /// As [`symbol`](Self::symbol), for several.
    pub fn symbols<It, K>(&mut self, symbols: It) -> &mut JITBuilder
    where
        It: IntoIterator<Item = (K, *const u8)>,
        K: Into<String>,
    {
        for (name, address) in symbols {
            self.symbol(name, address);
        }
        self
    }

    /// Adds a search for symbols that [`symbol`](Self::symbol) has not named. The last search is asked first. A module asks
    /// before the search of the process, and keeps what was found. One thread at a time is in a search.
    pub fn symbol_lookup_fn(&mut self, lookup: SymbolLookup) -> &mut JITBuilder {
        self.lookups.push(lookup);
        self
    }

    /// Puts the module into a session of the program, with its budgets, plugins, debugger and profiler. Without this call, all
    /// modules of the process share one session.
    pub fn session(&mut self, session: &Jit) -> &mut JITBuilder {
        self.session = Some(session.clone());
        self
    }

    /// Sets which definitions are removed together.
    pub fn grouping(&mut self, grouping: Grouping) -> &mut JITBuilder {
        self.grouping = grouping;
        self
    }

    /// Removes the module's code when the module is dropped. Without this call the code stays, as with cranelift-jit.
    pub fn remove_on_drop(&mut self, is_removed: bool) -> &mut JITBuilder {
        self.is_removed_on_drop = is_removed;
        self
    }
}
