//! [`TracingObserver`]: reports what happens in a session as events of the `tracing` crate (feature `tracing`).
//!
//! Each [`Event`] becomes one `tracing` event with the target `jittison` and the same fields. The field `event` has its kind.
//!
//! | events | level |
//! |---|---|
//! | linked, redirected, transferred, retired, reclaimed | `DEBUG` |
//! | resolved, published, memory | `TRACE` |
//! | refused | `WARN` |

use tracing::{debug, trace, warn};

use crate::base::{MemoryEvent, SegmentKind};
use crate::session::{Event, JitDylib, Observer};

/// Sends the events of a session to the `tracing` subscriber of the thread in which they happen.
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
                let [code, read_only, data] = SegmentKind::ALL.map(|kind| bytes[kind.index()]);
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
        MemoryEvent::LargeSectionMapped { address, bytes } => {
            trace!(target: TARGET, event = "large section mapped", %address, bytes)
        }
        MemoryEvent::LargeSectionUnmapped { address, bytes } => {
            trace!(target: TARGET, event = "large section unmapped", %address, bytes);
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

/// The target, by which subscribers filter.
const TARGET: &str = "jittison";
