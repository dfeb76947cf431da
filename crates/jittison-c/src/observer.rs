//! Observers of the embedder, and what they hear of: one struct for all events, whose other fields are zero.

use std::ffi::c_void;

use jittison::base::{MemoryEvent, Name};
use jittison::{Event, JitDylib, Observer, ResourceKey};

use crate::callbacks::BorrowedDylib;
use crate::dylib::Dylib;
use crate::error::{ErrorObject, Failure};
use crate::session::{Context, Handle};
use crate::text::Str;

/// `jittison_event`.
#[repr(C)]
pub(crate) struct RawEvent {
    size: usize,
    kind: u32,
    pool: u32,
    dylib: Dylib,
    name: Str,
    symbols: *const Str,
    symbol_count: usize,
    address: u64,
    old_address: u64,
    bytes: u64,
    counts: [u64; 3],
    nanoseconds: u64,
    error: *const ErrorObject,
    tracker: Str,
    old_tracker: Str,
}

/// Called with each event.
pub(crate) type OnEvent = unsafe extern "C-unwind" fn(*const RawEvent, *mut c_void);

/// Calls the callback.
pub(crate) struct CallbackObserver {
    pub(crate) callback: OnEvent,
    pub(crate) context: Context,
}

impl RawEvent {
    fn new(kind: u32) -> RawEvent {
        RawEvent {
            size: size_of::<RawEvent>(),
            kind,
            pool: 0,
            dylib: Handle::new(0),
            name: Str::EMPTY,
            symbols: std::ptr::null(),
            symbol_count: 0,
            address: 0,
            old_address: 0,
            bytes: 0,
            counts: [0; 3],
            nanoseconds: 0,
            error: std::ptr::null(),
            tracker: Str::EMPTY,
            old_tracker: Str::EMPTY,
        }
    }
}

/// What an event refers to while the callback sees it.
#[derive(Default)]
struct Lent<'a> {
    dylib: Option<&'a JitDylib>,
    names: Vec<Str>,
    key: Option<ResourceKey>,
    old_key: Option<ResourceKey>,
    error: Option<ErrorObject>,
}

impl Observer for CallbackObserver {
    fn observe(&self, event: &Event<'_>) {
        let mut lent = Lent::default();
        let Some(mut shown) = describe(event, &mut lent) else { return };
        let dylib = lent.dylib.and_then(|dylib| BorrowedDylib::new(dylib).ok());
        if let Some(dylib) = &dylib {
            shown.dylib = dylib.handle();
        }
        if !lent.names.is_empty() {
            (shown.symbols, shown.symbol_count) = (lent.names.as_ptr(), lent.names.len());
        }
        let [tracker, old_tracker] =
            [lent.key, lent.old_key].map(|key| key.map(|key| key.to_string()).unwrap_or_default());
        (shown.tracker, shown.old_tracker) = (Str::of(&tracker), Str::of(&old_tracker));
        if let Some(error) = &lent.error {
            shown.error = error;
        }
        // SAFETY: C5 - the caller promises the callback and its context. What the event refers to lives during the call.
        unsafe { (self.callback)(&shown, self.context.get()) };
    }
}

/// An event in C's words. `None` for an event that this version does not know.
fn describe<'a>(event: &Event<'a>, lent: &mut Lent<'a>) -> Option<RawEvent> {
    let list = |names: &mut dyn Iterator<Item = &'a Name>| names.map(|name| Str::of(name.as_str())).collect();
    Some(match *event {
        Event::Linked { dylib, key, object, bytes, definitions, externals, relocations, elapsed, .. } => {
            (lent.dylib, lent.key) = (Some(dylib), Some(key));
            let counts = [definitions as u64, externals as u64, relocations as u64];
            RawEvent {
                name: Str::of(object),
                bytes: bytes.iter().sum(),
                counts,
                nanoseconds: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX),
                ..RawEvent::new(LINKED)
            }
        }
        Event::Published { dylib, key, symbols, .. } => {
            (lent.dylib, lent.key, lent.names) = (Some(dylib), Some(key), list(&mut symbols.iter()));
            RawEvent::new(PUBLISHED)
        }
        Event::Resolved { dylib, key, symbols, unit, .. } => {
            (lent.dylib, lent.key) = (Some(dylib), Some(key));
            lent.names = list(&mut symbols.iter().map(|symbol| &symbol.name));
            RawEvent { name: Str::of(unit), ..RawEvent::new(RESOLVED) }
        }
        Event::Retired { dylib, key, handles, guards, dependants, .. } => {
            (lent.dylib, lent.key) = (Some(dylib), Some(key));
            let counts = [handles as u64, guards as u64, dependants as u64];
            RawEvent { counts, ..RawEvent::new(RETIRED) }
        }
        Event::Reclaimed { dylib, key, bytes, failures, .. } => {
            (lent.dylib, lent.key) = (Some(dylib), Some(key));
            RawEvent { bytes, counts: [failures as u64, 0, 0], ..RawEvent::new(RECLAIMED) }
        }
        Event::Transferred { dylib, destination, source, .. } => {
            (lent.dylib, lent.key, lent.old_key) = (Some(dylib), Some(destination), Some(source));
            RawEvent::new(TRANSFERRED)
        }
        Event::Redirected { dylib, stub, from, to, .. } => {
            lent.dylib = Some(dylib);
            let (address, old_address) = (to.value(), from.value());
            RawEvent { name: Str::of(stub), address, old_address, ..RawEvent::new(REDIRECTED) }
        }
        Event::Refused { dylib, unit, error, .. } => {
            lent.dylib = Some(dylib);
            lent.error = Some(ErrorObject::new(&Failure::from(error.clone())));
            RawEvent { name: Str::of(unit), ..RawEvent::new(REFUSED) }
        }
        Event::Memory(ref event) => describe_memory(event)?,
        _ => return None,
    })
}

fn describe_memory(event: &MemoryEvent) -> Option<RawEvent> {
    let at = |kind, address: jittison::base::ExecutorAddr, bytes| RawEvent {
        address: address.value(),
        bytes,
        ..RawEvent::new(kind)
    };
    Some(match *event {
        MemoryEvent::WindowMapped { address, bytes, .. } => at(WINDOW_MAPPED, address, bytes),
        MemoryEvent::WindowUnmapped { address, bytes, .. } => at(WINDOW_UNMAPPED, address, bytes),
        MemoryEvent::SlabOpened { pool, address, bytes, .. } => {
            RawEvent { pool: pool.index() as u32, ..at(SLAB_OPENED, address, bytes) }
        }
        MemoryEvent::SlabClosed { pool, address, bytes, .. } => {
            RawEvent { pool: pool.index() as u32, ..at(SLAB_CLOSED, address, bytes) }
        }
        MemoryEvent::LargeSectionMapped { address, bytes, .. } => at(LARGE_SECTION_MAPPED, address, bytes),
        MemoryEvent::LargeSectionUnmapped { address, bytes, .. } => at(LARGE_SECTION_UNMAPPED, address, bytes),
        MemoryEvent::Returned { window, bytes, slabs, .. } => {
            RawEvent { counts: [slabs as u64, 0, 0], ..at(RETURNED, window, bytes) }
        }
        _ => return None,
    })
}

// `JITTISON_EVENT_…`
const LINKED: u32 = 1;
const PUBLISHED: u32 = 2;
const RESOLVED: u32 = 3;
const RETIRED: u32 = 4;
const RECLAIMED: u32 = 5;
const TRANSFERRED: u32 = 6;
const REDIRECTED: u32 = 7;
const REFUSED: u32 = 8;
const WINDOW_MAPPED: u32 = 20;
const WINDOW_UNMAPPED: u32 = 21;
const SLAB_OPENED: u32 = 22;
const SLAB_CLOSED: u32 = 23;
const LARGE_SECTION_MAPPED: u32 = 24;
const LARGE_SECTION_UNMAPPED: u32 = 25;
const RETURNED: u32 = 26;
