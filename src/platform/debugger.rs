//! [`Debugger`]: tells gdb and lldb of linked objects: names, lines, variables, and how to unwind.
//!
//! | when | what |
//! |---|---|
//! | the bytes are fixed up | the object's symbol file is written (`src/link/symbol_file.rs`) |
//! | the link is recorded | the file enters the debuggers' list, and the ledger, under the key |
//! | the key is reclaimed | it leaves the list, ahead of the code |
//! | the key is transferred | the record goes along |
//!
//! A link that fails has told nobody. The list is one for the whole process (`src/host/debugger_list.rs`).

use std::fmt;

use crate::error::Result;
use crate::host::DebuggerEntry;
use crate::layer::{LinkHooks, LinkOrigin, LinkPlugin};
use crate::link::{FixedLink, LinkedObject};
use crate::session::{JitDylib, Ledger, ResourceKey, ResourceManager};
use crate::sync::Arc;

/// Registers linked objects with debuggers, by gdb's JIT interface. Add it to the layer as a plugin, and register it with the
/// session as a [`ResourceManager`] behind the layer; [`JitBuilder::debugger`](crate::JitBuilder::debugger) does both.
///
/// Each live object costs the size of its symbols and debug information. Registering and unregistering take the same time
/// however many there are; a debugger that is attached adds its own, which is milliseconds.
///
/// # Breakpoints
///
/// Debuggers write them into the code. The kernel lets nobody, debuggers included, write to a shared mapping that is
/// read-only, and that is what code is mapped as unless it is mapped once
/// ([`SingleMapper`](crate::memory::SingleMapper)): there, only hardware breakpoints work (`hbreak`).
/// `JitBuilder::debugger` therefore maps once. gdb leaves breakpoints in code that is gone, and later writes what it found
/// under them back; so `JitBuilder::debugger` also sees that such a place is not used again while a debugger is attached.
///
/// # Finding the list
///
/// Debuggers look for `__jit_debug_register_code` and `__jit_debug_descriptor` among the symbols of the program and its
/// libraries. A program that is stripped of its symbol table has neither, unless they are exported:
/// `-Wl,--export-dynamic-symbol=__jit_debug_register_code` and the same for the other.
pub struct Debugger {
    entries: Arc<Ledger<DebuggerEntry>>,
}

impl Debugger {
    /// Nothing is registered yet.
    pub fn new() -> Arc<Debugger> {
        Arc::new(Debugger { entries: Arc::new(Ledger::new()) })
    }

    /// Number of keys under which objects are registered.
    pub fn key_count(&self) -> usize {
        self.entries.key_count()
    }
}

impl LinkPlugin for Debugger {
    fn begin(&self, _origin: &LinkOrigin<'_>) -> Option<Box<dyn LinkHooks>> {
        Some(Box::new(ObjectHooks { entries: self.entries.clone(), symbol_file: Vec::new() }))
    }
}

struct ObjectHooks {
    entries: Arc<Ledger<DebuggerEntry>>,
    symbol_file: Vec<u8>,
}

impl LinkHooks for ObjectHooks {
    fn fixed_up(&mut self, link: &mut FixedLink<'_>) -> Result<()> {
        self.symbol_file = link.symbol_file();
        Ok(())
    }

    /// The code is sealed: a debugger that is told now can set its breakpoints.
    fn record(self: Box<Self>, key: ResourceKey, _origin: &LinkOrigin<'_>, _linked: &LinkedObject) {
        self.entries.record(key, DebuggerEntry::new(self.symbol_file));
    }
}

impl ResourceManager for Debugger {
    fn remove_resources(&self, _dylib: &JitDylib, key: ResourceKey) -> Result<()> {
        // A debugger takes its breakpoints out as it is told, while the code is still there.
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
