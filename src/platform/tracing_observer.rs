//! [`TracingObserver`]: what happens in a session, as events of the `tracing` crate (feature `tracing`).
//!
//! One event each, of the target `jittison`, with the fields of [`Event`]; what it is stands in the field `event`. The way
//! of a module and redirects are of the level `DEBUG`, what becomes of symbols and of memory `TRACE`, refusals `WARN`.

use tracing::{debug, trace, warn};

use crate::base::{MemoryEvent, SegmentKind};
use crate::session::{Event, JitDylib, Observer};

/// Hands what happens on to whoever subscribes to `tracing` events in the thread that it happens in.
///
/// ```
/// # fn main() -> Result<(), jittison::Error> {
/// use std::sync::Arc;
/// use jittison::platform::TracingObserver;
///
/// let jit = jittison::Jit::builder().observer(Arc::new(TracingObserver)).build()?;
/// # drop(jit);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TracingObserver;

impl Observer for TracingObserver {
    fn observe(&self, event: &Event<'_>) {
        match *event {
            Event::Resolved { dylib, key, unit, symbols } => {
                let dylib = dylib.name();
                trace!(target: TARGET, event = "resolved", dylib, %key, unit, symbols = symbols.len());
            }
            Event::Linked { dylib, key, object, bytes, reserved, relocations, definitions, externals, elapsed } => {
                let [code, read_only, data] = SegmentKind::ALL.map(|pool| bytes[pool.index()]);
                let (dylib, elapsed_us) = (dylib.name(), elapsed.as_micros() as u64);
                debug!(
                    target: TARGET, event = "linked", dylib, %key, object, code, read_only, data, reserved, relocations,
                    definitions, externals, elapsed_us
                );
            }
            Event::Published { dylib, key, symbols } => {
                let dylib = dylib.name();
                trace!(target: TARGET, event = "published", dylib, %key, ?symbols);
            }
            Event::Redirected { dylib, stub, from, to } => {
                let dylib = dylib.name();
                debug!(target: TARGET, event = "redirected", dylib, stub, %from, %to);
            }
            Event::Transferred { dylib, source, destination } => {
                let dylib = dylib.name();
                debug!(target: TARGET, event = "transferred", dylib, %source, %destination);
            }
            Event::Retired { dylib, key, handles, dependants, guards } => {
                let dylib = dylib.name();
                debug!(target: TARGET, event = "retired", dylib, %key, handles, dependants, guards);
            }
            Event::Reclaimed { dylib, key, bytes, failures } => {
                let dylib = dylib.name();
                debug!(target: TARGET, event = "reclaimed", dylib, %key, bytes, failures);
            }
            Event::Refused { dylib, unit, error } => refused(dylib, unit, error),
            Event::Memory(event) => memory(event),
        }
    }
}

fn refused(dylib: &JitDylib, unit: &str, error: &crate::error::Error) {
    warn!(target: TARGET, event = "refused", dylib = dylib.name(), unit, %error);
}

fn memory(event: MemoryEvent) {
    match event {
        MemoryEvent::WindowMapped { address, bytes } => {
            trace!(target: TARGET, event = "window mapped", %address, bytes);
        }
        MemoryEvent::WindowUnmapped { address, bytes } => {
            trace!(target: TARGET, event = "window unmapped", %address, bytes);
        }
        MemoryEvent::ApartMapped { address, bytes } => trace!(target: TARGET, event = "apart mapped", %address, bytes),
        MemoryEvent::ApartUnmapped { address, bytes } => {
            trace!(target: TARGET, event = "apart unmapped", %address, bytes);
        }
        MemoryEvent::SlabOpened { pool, address, bytes } => {
            trace!(target: TARGET, event = "slab opened", pool = pool.name(), %address, bytes);
        }
        MemoryEvent::SlabClosed { pool, address, bytes } => {
            trace!(target: TARGET, event = "slab closed", pool = pool.name(), %address, bytes);
        }
        MemoryEvent::Returned { window, bytes, slabs } => {
            trace!(target: TARGET, event = "returned", %window, bytes, slabs);
        }
    }
}

/// What filters call it.
const TARGET: &str = "jittison";
