//! [`Observer`]: receives the [`Event`]s of a session as they happen, for logs, metrics and tests.
//!
//! The session delivers the events that it causes itself. The rooms above it deliver the others (links, stubs) through
//! the same [`Observers`]. An observer returns nothing: it cannot change what happens.
//!
//! Without observers, a place that could deliver an event only tests whether the list is empty. It reads no clock,
//! allocates nothing and counts nothing.

use std::fmt;
use std::time::Duration;

use crate::base::{ExecutorAddr, MemoryEvent, Name, catch};
use crate::error::Error;
use crate::session::core::jit_dylib::{DylibInner, JitDylib};
use crate::session::core::responsibility::ClaimedSymbol;
use crate::session::types::ids::ResourceKey;
use crate::sync::{Arc, assert_unlocked};

/// Receives the events of a session. A closure that takes an [`Event`] is an observer.
///
/// The session calls it with no lock held, on the thread that causes the event: possibly on several threads at once,
/// and while a thread unwinds. An observer may call back into the session: add, look up, remove. The operation that it
/// observes goes on only after the call returns. So it must not wait for that operation to finish: for example, for the
/// end of a removal in the call that says that the tracker retired. A panic ends this call of the observer and has no
/// other effect.
///
/// The events of one thread come in the order of its actions. Events of different threads come in any order, even for
/// one tracker. An observer lives as long as the session's dylibs. Do not store a session handle in it: the session
/// would never end.
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
    /// Receives one event.
    fn observe(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync> Observer for F {
    fn observe(&self, event: &Event<'_>) {
        self(event);
    }
}

/// An event in a session. A module that links and is removed without a failure causes `Resolved`, `Linked`,
/// `Published`, `Retired` and `Reclaimed`, once each and in this order.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Symbols have their addresses, so other code may be linked against them. Their bytes are not final.
    #[non_exhaustive]
    Resolved {
        /// The dylib that defines the symbols.
        dylib: &'a JitDylib,
        /// The tracker that owns them.
        key: ResourceKey,
        /// The name of the object, or of another unit, that defines them.
        unit: &'a str,
        /// The symbols, including those without an address.
        symbols: &'a [ClaimedSymbol],
    },
    /// An object is linked: its bytes are in place, sealed and recorded under the key. It is [refused](Event::Refused)
    /// after this only if one of its dependencies, or its tracker, is removed at that moment.
    #[non_exhaustive]
    Linked {
        /// The dylib that the object was linked into.
        dylib: &'a JitDylib,
        /// The tracker that owns it.
        key: ResourceKey,
        /// The name of the object.
        object: &'a str,
        /// The requested bytes: code, read-only, data, by [`SegmentKind::index`](crate::base::SegmentKind::index).
        bytes: [u64; 3],
        /// The bytes that are allocated for them.
        reserved: u64,
        /// The number of relocations in the parts of the object that were not pruned.
        relocations: usize,
        /// The number of symbols that it defines for other code.
        definitions: usize,
        /// The number of symbols that were looked up for it.
        externals: usize,
        /// The time from the start of parsing until the bytes were sealed. Includes links that it waited for.
        elapsed: Duration,
    },
    /// Symbols are ready: their code and all its dependencies may run. Symbols that are defined with an address are
    /// published without `Resolved`.
    #[non_exhaustive]
    Published {
        /// The dylib that defines the symbols.
        dylib: &'a JitDylib,
        /// The tracker that owns them.
        key: ResourceKey,
        /// The names of the symbols.
        symbols: &'a [Name],
    },
    /// A stub was redirected: its callers reach another address from now on.
    #[non_exhaustive]
    Redirected {
        /// The dylib that defines the stub.
        dylib: &'a JitDylib,
        /// The name of the stub.
        stub: &'a str,
        /// The old target. The redirects of one stub form a chain: each starts where another ended.
        from: ExecutorAddr,
        /// The new target.
        to: ExecutorAddr,
    },
    /// The resources of one key now belong to another.
    #[non_exhaustive]
    Transferred {
        /// The dylib of both trackers.
        dylib: &'a JitDylib,
        /// The old key.
        source: ResourceKey,
        /// The new key.
        destination: ResourceKey,
    },
    /// A tracker was removed, and its names are gone. It is reclaimed at once, unless handles, dependants or guards
    /// hold it.
    #[non_exhaustive]
    Retired {
        /// The dylib of the tracker.
        dylib: &'a JitDylib,
        /// The tracker.
        key: ResourceKey,
        /// The number of owned handles that keep its resources.
        handles: usize,
        /// The number of trackers whose code refers to it, without those that retire in the same step.
        dependants: usize,
        /// The number of guards that were entered before its names were gone.
        guards: usize,
    },
    /// The resources of a removed tracker were released.
    #[non_exhaustive]
    Reclaimed {
        /// The dylib of the tracker.
        dylib: &'a JitDylib,
        /// The key of the tracker. No later event names it.
        key: ResourceKey,
        /// The bytes of code memory that were released, with padding and metadata: the sum of what the managers
        /// [held](crate::session::ResourceManager::held_bytes).
        bytes: u64,
        /// The number of managers that reported an error.
        failures: usize,
    },
    /// A unit was not added or not linked, or can never become ready.
    #[non_exhaustive]
    Refused {
        /// The dylib that the unit was meant for.
        dylib: &'a JitDylib,
        /// The name of the object, or of another unit.
        unit: &'a str,
        /// The reason.
        error: &'a Error,
    },
    /// An event of the code memory. Delivered by the pool that [`Jit`](crate::Jit) creates. A pool that is passed to
    /// `Jit` has an [observer](crate::memory::SlabPool::observed) of its own, which may forward its events.
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
                let names: Vec<&str> = symbols.iter().take(MAX_SHOWN_NAMES).map(Name::as_str).collect();
                let more = if symbols.len() > MAX_SHOWN_NAMES { ", …" } else { "" };
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

/// The observers of a session.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<[Arc<dyn Observer>]>);

impl Observers {
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>) -> Observers {
        Observers(observers.into())
    }

    /// Whether there is an observer. Checked before the data of an event is collected.
    #[inline(always)]
    pub(crate) fn is_active(&self) -> bool {
        !self.0.is_empty()
    }

    /// Calls each observer with `event`. Called with no lock held (S5).
    #[cold]
    pub(crate) fn deliver(&self, event: &Event<'_>) {
        assert_unlocked();
        for observer in self.0.iter() {
            // Events are delivered in destructors, and in the middle of links and removals. A panic must not reach
            // those.
            let _ = catch(|| observer.observe(event));
        }
    }

    /// Delivers [`Event::Refused`], if there is an observer.
    #[cold]
    pub(crate) fn deliver_refused(&self, dylib: &Arc<DylibInner>, unit: &str, error: &Error) {
        if self.is_active() {
            self.deliver(&Event::Refused { dylib: &JitDylib::from_inner(dylib.clone()), unit, error });
        }
    }
}

/// The most names that the text of an event shows.
const MAX_SHOWN_NAMES: usize = 8;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::session::ExecutionSession;

    #[test]
    fn a_published_event_shows_some_names_and_says_whether_there_are_more() {
        let session = ExecutionSession::new();
        let dylib = session.create_dylib("main").unwrap();
        let key = dylib.create_tracker().unwrap().key();
        let names: Vec<Name> = (0..MAX_SHOWN_NAMES + 1).map(|number| Name::new(&format!("n{number}"))).collect();
        let text = |count: usize| Event::Published { dylib: &dylib, key, symbols: &names[..count] }.to_string();
        assert!(text(MAX_SHOWN_NAMES).ends_with(&format!("n{}, {key} of `main`", MAX_SHOWN_NAMES - 1)));
        assert!(text(MAX_SHOWN_NAMES + 1).ends_with(&format!("n{}, …, {key} of `main`", MAX_SHOWN_NAMES - 1)));
    }
}
