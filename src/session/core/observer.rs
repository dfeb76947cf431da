//! [`Observer`]: hears what happens in a session, as it happens. For logs, metrics, tests: nothing waits for an answer.
//!
//! The session tells what it sees itself; the rooms above it tell the rest through it (links, stubs). Where nobody listens,
//! each place costs one look at a length that is zero: no clock is read, and nothing is allocated or counted.

use std::fmt;
use std::time::Duration;

use crate::base::{ExecutorAddr, MemoryEvent, Name, catch};
use crate::error::Error;
use crate::session::core::jit_dylib::{DylibInner, JitDylib};
use crate::session::core::resource_tracker::ResourceKey;
use crate::session::materialize::responsibility::ClaimedSymbol;
use crate::sync::{Arc, assert_unlocked};

/// Hears what happens in a session. A closure that takes an [`Event`] is one.
///
/// Called with no lock held, on the thread that does what is told, possibly on several at once and while one unwinds. It may
/// call back into the session: add, look up, remove. What it does delays what it is told of, so it must not wait for that: for
/// the end of a removal, say, when it is told that a tracker retired. A panic in it ends that call and nothing else.
///
/// One thread's events come in the order in which it did things; those of different threads, even about one tracker, in any
/// order. An observer lives as long as the session's dylibs: a session handle in it would keep the session from ever ending.
///
/// ```
/// use std::sync::Arc;
/// use jittison::session::Event;
///
/// # fn main() -> Result<(), jittison::Error> {
/// let jit = jittison::Jit::builder().observer(Arc::new(|event: &Event<'_>| println!("{event}"))).build()?;
/// # drop(jit);
/// # Ok(()) }
/// ```
pub trait Observer: Send + Sync {
    /// Something happened.
    fn observe(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync> Observer for F {
    fn observe(&self, event: &Event<'_>) {
        self(event);
    }
}

/// What happened. A module that goes its way is `Resolved`, `Linked`, `Published`, `Retired`, `Reclaimed`, once each and in
/// this order.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Symbols got their addresses: others may be linked against them. Their bytes are not final.
    #[non_exhaustive]
    Resolved {
        /// The dylib that the symbols are of.
        dylib: &'a JitDylib,
        /// The tracker that owns them.
        key: ResourceKey,
        /// What supplies them: an object, by its name, or another unit.
        unit: &'a str,
        /// The symbols, and those beside them that have no address.
        symbols: &'a [ClaimedSymbol],
    },
    /// An object is linked: its bytes are in place and sealed, and stand under the key. Only if what it refers to was
    /// removed just then, or its tracker, is it [refused](Event::Refused) after all.
    #[non_exhaustive]
    Linked {
        /// The dylib that it was linked into.
        dylib: &'a JitDylib,
        /// The tracker that owns it.
        key: ResourceKey,
        /// What the object is called.
        object: &'a str,
        /// Bytes asked for: code, read-only, data, by [`WorkerPool::index`](crate::base::Pool::index).
        bytes: [u64; 3],
        /// Bytes that are really held for them.
        reserved: u64,
        /// How many relocations the object has, in what was not pruned.
        relocations: usize,
        /// How many symbols it defines for others.
        definitions: usize,
        /// How many symbols were looked up for it.
        externals: usize,
        /// From the first look at the bytes until they were sealed; what was linked meanwhile for its sake is included.
        elapsed: Duration,
    },
    /// Symbols are ready: their code and all that it refers to may run. Symbols that are defined with an address are so at
    /// once, without having been resolved.
    #[non_exhaustive]
    Published {
        /// The dylib that the symbols are of.
        dylib: &'a JitDylib,
        /// The tracker that owns them.
        key: ResourceKey,
        /// Their names.
        symbols: &'a [Name],
    },
    /// A stub's callers go elsewhere from now on.
    #[non_exhaustive]
    Redirected {
        /// The dylib that the stub is of.
        dylib: &'a JitDylib,
        /// The stub.
        stub: &'a str,
        /// Where they went. Of a stub's redirects, each starts where another ended.
        from: ExecutorAddr,
        /// Where they go.
        to: ExecutorAddr,
    },
    /// Everything under one key now stands under another.
    #[non_exhaustive]
    Transferred {
        /// The dylib that both are of.
        dylib: &'a JitDylib,
        /// The key that was.
        source: ResourceKey,
        /// The key that is.
        destination: ResourceKey,
    },
    /// A tracker was removed: its names are gone. It is reclaimed at once, unless something is in the way.
    #[non_exhaustive]
    Retired {
        /// The tracker's dylib.
        dylib: &'a JitDylib,
        /// The tracker.
        key: ResourceKey,
        /// In the way: how many owned handles keep its resources.
        handles: usize,
        /// In the way: how many trackers' code refers into it, unless they go in the same step.
        dependants: usize,
        /// In the way: how many guards were entered before its names had gone.
        guards: usize,
    },
    /// A removed tracker's resources were given back.
    #[non_exhaustive]
    Reclaimed {
        /// The tracker's dylib.
        dylib: &'a JitDylib,
        /// The tracker, which nothing will be told of again.
        key: ResourceKey,
        /// How much code memory that was, with padding and records, by the sum of what the managers
        /// [held](crate::session::ResourceManager::held_bytes).
        bytes: u64,
        /// How many managers reported a failure.
        failures: usize,
    },
    /// Something was not added, or not linked, or can never become ready.
    #[non_exhaustive]
    Refused {
        /// Where it was to go.
        dylib: &'a JitDylib,
        /// What: an object, by its name, or another unit.
        unit: &'a str,
        /// Why.
        error: &'a Error,
    },
    /// Something became of code memory. Told by the pool that [`Jit`](crate::Jit) makes; one that is handed to it has an
    /// [observer](crate::memory::SlabPool::observed) of its own, which may pass on what it hears.
    Memory(MemoryEvent),
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Resolved { dylib, key, unit, symbols } => {
                write!(f, "resolved: {} symbols of {unit}, {key} of `{}`", symbols.len(), dylib.name())
            }
            Event::Linked { dylib, key, object, bytes: [code, read_only, data], relocations, elapsed, .. } => write!(
                f,
                "linked: {object}, {key} of `{}`: {code} bytes of code, {read_only} read-only, {data} data, \
                 {relocations} relocations, in {elapsed:.1?}",
                dylib.name()
            ),
            Event::Published { dylib, key, symbols } => {
                let names: Vec<&str> = symbols.iter().take(SHOWN).map(Name::as_str).collect();
                let more = if symbols.len() > SHOWN { ", …" } else { "" };
                write!(f, "published: {}{more}, {key} of `{}`", names.join(", "), dylib.name())
            }
            Event::Redirected { dylib, stub, from, to } => {
                write!(f, "redirected: `{stub}` of `{}` from {from} to {to}", dylib.name())
            }
            Event::Transferred { dylib, source, destination } => {
                write!(f, "transferred: {source} to {destination} of `{}`", dylib.name())
            }
            Event::Retired { dylib, key, handles, dependants, guards } => write!(
                f,
                "retired: {key} of `{}`, held by {handles} handles, {dependants} dependants and {guards} guards",
                dylib.name()
            ),
            Event::Reclaimed { dylib, key, bytes, failures: 0 } => {
                write!(f, "reclaimed: {key} of `{}`, {bytes} bytes", dylib.name())
            }
            Event::Reclaimed { dylib, key, bytes, failures } => {
                write!(f, "reclaimed: {key} of `{}`, {bytes} bytes, with {failures} failures", dylib.name())
            }
            Event::Refused { dylib, unit, error } => write!(f, "refused: {unit} in `{}`: {error}", dylib.name()),
            Event::Memory(event) => write!(f, "memory: {event}"),
        }
    }
}

/// Who listens to a session.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<[Arc<dyn Observer>]>);

impl Observers {
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>) -> Observers {
        Observers(observers.into())
    }

    /// Asked before anything is put together to be told.
    #[inline(always)]
    pub(crate) fn is_heard(&self) -> bool {
        !self.0.is_empty()
    }

    /// Called with no lock held (S5).
    #[cold]
    pub(crate) fn tell(&self, event: &Event<'_>) {
        assert_unlocked();
        for observer in self.0.iter() {
            // Events come out of drops, and from the middle of links and removals: neither can take a panic.
            let _ = catch(|| observer.observe(event));
        }
    }

    #[cold]
    pub(crate) fn tell_refused(&self, dylib: &Arc<DylibInner>, unit: &str, error: &Error) {
        if self.is_heard() {
            self.tell(&Event::Refused { dylib: &JitDylib::from_inner(dylib.clone()), unit, error });
        }
    }
}

/// So many names a line shows.
const SHOWN: usize = 8;
