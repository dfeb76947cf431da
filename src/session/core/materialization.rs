//! [`MaterializationUnit`]: a lazy definition of symbols; and [`Materialization`], the task that materialises one.
//!
//! A unit declares symbols. When a lookup finds one of them, the session takes the unit out of the table and calls
//! [`materialize`](MaterializationUnit::materialize) with a [`MaterializationResponsibility`] for them.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::base::Name;
use crate::session::core::jit_dylib::JitDylib;
use crate::session::core::responsibility::MaterializationResponsibility;
use crate::session::types::request::Visibility;
use crate::session::types::symbol::SymbolFlags;
use crate::session::work::dispatch::{self, Job, TaskQueue};
use crate::session::work::worker_pool::{PoolOfThread, PooledJob};
use crate::sync::{Arc, ThreadKey, thread_local};

/// A lazy definition of symbols (ORC: `MaterializationUnit`).
///
/// ```
/// use jittison::ExecutionSession;
/// use jittison::base::{ExecutorAddr, Name};
/// use jittison::session::{MaterializationResponsibility, MaterializationUnit, SymbolFlags};
///
/// /// A symbol whose address is computed when it is first looked up.
/// struct Computed([(Name, SymbolFlags); 1]);
///
/// impl MaterializationUnit for Computed {
///     fn name(&self) -> &str {
///         "computed"
///     }
///
///     fn symbols(&self) -> &[(Name, SymbolFlags)] {
///         &self.0
///     }
///
///     fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
///         // If a call fails, so do the symbols, and the lookup has the error.
///         if responsibility.notify_resolved(|_symbol| Some(ExecutorAddr::new(6 * 7))).is_ok() {
///             let _ = responsibility.notify_emitted(vec![]);
///         }
///     }
/// }
///
/// # fn main() -> Result<(), jittison::Error> {
/// let session = ExecutionSession::new();
/// let dylib = session.create_dylib("main")?;
/// dylib.define(Computed([(Name::new("answer"), SymbolFlags::EXPORTED)]))?;
/// assert_eq!(dylib.lookup_address("answer")?.value(), 42);
/// # session.end()?;
/// # Ok(()) }
/// ```
pub trait MaterializationUnit: Send {
    /// The name of the unit in errors.
    fn name(&self) -> &str;

    /// As [`name`](Self::name), as an `Arc`. Override it if the unit already has one.
    fn shared_name(&self) -> Arc<str> {
        Arc::from(self.name())
    }

    /// The symbols that the unit defines, with their flags.
    fn symbols(&self) -> &[(Name, SymbolFlags)];

    /// The size in bytes of the symbol at position `index` of [`symbols`](Self::symbols); zero when unknown. A common
    /// symbol needs its size.
    fn size_bytes(&self, index: usize) -> u64 {
        let _ = index;
        0
    }

    /// Pairs of positions in [`symbols`](Self::symbols): a symbol, and the symbol that stands for its COMDAT group. If
    /// the second is left out because another unit has the group, so is the first.
    #[doc(hidden)]
    fn group_members(&self) -> &[(u32, u32)] {
        &[]
    }

    /// Moves the names of all its symbols into `sink`, in order, if the unit does not need them any more; the names
    /// need no copy then. Called just before [`materialize`](Self::materialize), under the dylib's lock. Only units of
    /// this crate can implement it: the type of the argument has no public name.
    ///
    /// ```compile_fail,E0053
    /// # use jittison::base::Name;
    /// # use jittison::session::{MaterializationResponsibility, MaterializationUnit, SymbolFlags};
    /// # struct Unit;
    /// impl MaterializationUnit for Unit {
    ///     fn give_names(&mut self, _: &mut dyn FnMut(Name)) {}
    /// #   fn name(&self) -> &str { "" }
    /// #   fn symbols(&self) -> &[(Name, SymbolFlags)] { &[] }
    /// #   fn materialize(self: Box<Self>, _: MaterializationResponsibility) {}
    /// }
    /// ```
    #[doc(hidden)]
    fn give_names(&mut self, sink: &mut NameSink<'_>) {
        let _ = sink;
    }

    /// A unit that materialises only this symbol. `None` if this unit materialises its symbols together. With it, a lookup
    /// takes only what it asks for, and leaves the other symbols to this unit. Called under the dylib's lock, so only units of
    /// this crate can implement it, as for [`give_names`](Self::give_names).
    #[doc(hidden)]
    fn part(&self, symbol: UnitSymbol<'_>) -> Option<Box<dyn MaterializationUnit>> {
        let _ = symbol;
        None
    }

    /// The definition that a symbol of this unit stands for, if this is a unit of aliases. As for [`part`](Self::part).
    #[doc(hidden)]
    fn aliasee(&self, symbol: UnitSymbol<'_>) -> Option<Aliasee<'_>> {
        let _ = symbol;
        None
    }

    /// A lookup found one of the symbols: materialise all symbols of `responsibility`. Called with no lock held.
    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility);

    /// Another definition of `name` replaces that of this unit. Called before [`materialize`](Self::materialize), with
    /// no lock held.
    fn discard(&mut self, name: &str) {
        let _ = name;
    }
}

/// Receives the names that a unit moves out. Not nameable outside the crate, so that no embedder's unit runs under the
/// dylib's lock.
pub struct NameSink<'a>(&'a mut dyn FnMut(Name));

impl<'a> NameSink<'a> {
    pub(crate) fn new(receive: &'a mut dyn FnMut(Name)) -> NameSink<'a> {
        NameSink(receive)
    }

    pub(crate) fn push(&mut self, name: Name) {
        (self.0)(name);
    }
}

/// A symbol of a unit, by its name. Not nameable outside the crate.
#[derive(Clone, Copy)]
pub struct UnitSymbol<'a>(pub(crate) &'a str);

/// What an alias stands for. Not nameable outside the crate.
pub struct Aliasee<'a> {
    pub(crate) source: &'a JitDylib,
    pub(crate) visibility: Visibility,
    pub(crate) name: &'a Name,
}

/// A unit that a lookup has taken out of the table, with its responsibility.
pub(crate) struct Materialization {
    pub(crate) unit: Box<dyn MaterializationUnit>,
    /// Names for which another definition is used.
    pub(crate) discarded: Vec<Name>,
    pub(crate) responsibility: MaterializationResponsibility,
}

/// A task that a session dispatches.
pub(crate) type Task = dispatch::Task<Materialization>;

thread_local! {
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static TASKS: TaskQueue<Materialization> = RefCell::new(VecDeque::new());
    /// The pool that this thread is a worker of.
    #[allow(clippy::missing_const_for_thread_local)]
    static WORKER_OF: PoolOfThread<Materialization> = RefCell::new(None);
}

impl Job for Materialization {
    fn run(self) {
        let Materialization { mut unit, discarded, responsibility } = self;
        for name in &discarded {
            unit.discard(name);
        }
        unit.materialize(responsibility);
    }

    #[inline]
    fn queue() -> &'static ThreadKey<TaskQueue<Materialization>> {
        &TASKS
    }
}

impl PooledJob for Materialization {
    #[inline]
    fn pool_of_thread() -> &'static ThreadKey<PoolOfThread<Materialization>> {
        &WORKER_OF
    }
}
