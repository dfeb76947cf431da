//! [`Debugger`]: registers linked objects with gdb and lldb, with their names, lines, variables and unwind information.
//!
//! | when | what happens |
//! |---|---|
//! | the relocations are applied | the symbol file of the object is built (`src/link/symbol_file.rs`) |
//! | the link is recorded | the file enters the debuggers' list, and the ledger under the key |
//! | the key is reclaimed | the file leaves the list, before the code is freed |
//! | the key is transferred | the ledger moves the record to the other key |
//!
//! A link that fails before it is recorded registers nothing. There is one list per process (`src/host/debugger_list.rs`).

use std::fmt;

use crate::error::Result;
use crate::host::{Executor, ExecutorHandle, InProcess};
use crate::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use crate::link::{FixedLink, LinkedObject};
use crate::session::{ExecutionSession, JitDylib, Ledger, ManagerRank, ResourceKey, ResourceManager};
use crate::sync::Arc;

/// Registers linked objects with debuggers, by gdb's JIT interface. Add it to the layer as a plugin, and
/// [register](Self::register) it with the session. [`JitBuilder::debugger`](crate::JitBuilder::debugger) does both.
///
/// Each live object costs memory for its symbols and debug information. Registration and deregistration take constant time. An
/// attached debugger also reads each object while it stops the process.
///
/// # Breakpoints
///
/// Debuggers write breakpoints into the code. By default, code is a shared mapping that is read-only, and the kernel lets no
/// process write to it, not even a debugger. Only hardware breakpoints work there (`hbreak`). So `JitBuilder::debugger` maps
/// code once, as private pages.
///
/// gdb does not remove breakpoints from freed code. Later it writes back the bytes that were under them. So
/// `JitBuilder::debugger` also does not reuse such addresses while a debugger is attached.
///
/// # Finding the list
///
/// Debuggers search the symbols of the program and its libraries for `__jit_debug_register_code` and `__jit_debug_descriptor`. A
/// stripped program has both only if it exports them: link it with `-Wl,--export-dynamic-symbol=__jit_debug_register_code` and
/// the same option for the other symbol.
///
/// # Example
///
/// ```
/// # const ADD: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/examples/add.o"));
/// use jittison::Jit;
/// use jittison::platform::Debugger;
///
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = Jit::new()?;
/// let debugger = Debugger::new();
/// jit.layer().add_plugin(debugger.clone());
/// debugger.register(jit.session());
///
/// let tracker = jit.main_dylib().create_tracker()?;
/// jit.link_object(&tracker, "add.o", ADD)?;
/// assert_eq!(debugger.key_count(), 1); // Debuggers see the object.
///
/// tracker.remove()?;
/// assert_eq!(debugger.key_count(), 0);
/// # Ok(()) }
/// ```
pub struct Debugger {
    registrations: Arc<Registrations>,
}

/// Shared by the plugin, the hooks of each link, and the session. It is the manager, so that only the session can call it.
struct Registrations {
    executor: Arc<dyn Executor>,
    entries: Ledger<ExecutorHandle>,
}

impl Debugger {
    /// A debugger registration without objects.
    pub fn new() -> Arc<Debugger> {
        Debugger::with_executor(Arc::new(InProcess))
    }

    /// As [`new`](Self::new), for debuggers of the process behind `executor`.
    pub(crate) fn with_executor(executor: Arc<dyn Executor>) -> Arc<Debugger> {
        Arc::new(Debugger { registrations: Arc::new(Registrations { executor, entries: Ledger::new() }) })
    }

    /// Registers this registration with a session. From now on the session deregisters the objects of a tracker when it
    /// reclaims the tracker, before the code is freed. A second call does nothing.
    pub fn register(&self, session: &ExecutionSession) {
        session.register_ranked(ManagerRank::DebuggerEntries, self.registrations.clone());
    }

    /// Number of keys under which objects are registered.
    pub fn key_count(&self) -> usize {
        self.registrations.entries.key_count()
    }
}

impl LinkPlugin for Debugger {
    fn begin(&self, _origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(DebuggerHooks { registrations: self.registrations.clone(), symbol_file: Vec::new() }))
    }
}

struct DebuggerHooks {
    registrations: Arc<Registrations>,
    symbol_file: Vec<u8>,
}

impl LinkHooks for DebuggerHooks {
    fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<()> {
        self.symbol_file = link.symbol_file();
        Ok(())
    }

    /// The code is sealed, so a debugger that stops here can set breakpoints in it.
    fn record(self: Box<Self>, key: ResourceKey, _origin: &LinkOrigin<'_>, _linked: &LinkedObject) {
        let Registrations { executor, entries } = &*self.registrations;
        entries.record(key, executor.register_symbol_file(self.symbol_file));
    }
}

impl ResourceManager for Registrations {
    fn remove_resources(&self, _dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        // A debugger removes its breakpoints when it is notified. The code is still mapped.
        self.entries.take(key).into_iter().rev().for_each(drop);
        Ok(())
    }

    fn skips_unused_keys(&self) -> bool {
        true
    }

    fn transfer_resources(&self, _dylib: &JitDylib, destination: ResourceKey, source: ResourceKey) {
        self.entries.transfer(destination, source);
    }
}

impl fmt::Debug for Debugger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "debugger registration with {} keys", self.key_count())
    }
}
