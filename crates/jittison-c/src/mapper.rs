//! Memory mappers of the embedder: callbacks that map windows of code memory.
//!
//! A callback fills a `jittison_window`: where the window is, where its pools are written, and what opens, seals and purges
//! their ranges. It may also leave a window to the mapper of the system, so that it only counts or limits windows.

use std::ffi::c_void;
use std::sync::Arc;

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::error::MemoryFault;
use jittison::memory::{MappedWindow, MemoryMapper, Placement, SystemMapper, WindowLayout};

use crate::callbacks::{Dropped, OwnedContext, outcome};
use crate::error::{ErrorObject, Failure};
use crate::session::Context;

/// `jittison_window_layout`.
#[repr(C)]
struct Layout {
    bytes: u64,
    pool_offsets: [u64; 3],
    pool_sizes: [u64; 3],
    placement: u32,
    reserved: u32,
}

type OnRange = unsafe extern "C-unwind" fn(u32, u64, u64, *mut c_void) -> *mut ErrorObject;

/// `jittison_window`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawWindow {
    size: usize,
    base: u64,
    working: [*mut u8; 3],
    granules: [u64; 3],
    uses_system: u32,
    reserved: u32,
    open: Option<OnRange>,
    seal: Option<OnRange>,
    purge: Option<OnRange>,
    unmap: Option<Dropped>,
    context: *mut c_void,
}

/// `jittison_mapper_callbacks`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Callbacks {
    size: usize,
    map: Option<unsafe extern "C-unwind" fn(*const Layout, *mut RawWindow, *mut c_void) -> *mut ErrorObject>,
    dropped: Option<Dropped>,
}

/// Calls the callbacks.
pub(crate) struct Mapper {
    callbacks: Callbacks,
    context: OwnedContext,
    system: SystemMapper,
}

impl Mapper {
    /// `system` maps the windows that the callback leaves to it.
    pub(crate) fn new(callbacks: Callbacks, context: *mut c_void, system: SystemMapper) -> Result<Mapper, Failure> {
        if callbacks.map.is_none() {
            return Err(Failure::argument("a mapper needs the callback `map`"));
        }
        Ok(Mapper { callbacks, context: OwnedContext::new(context, callbacks.dropped), system })
    }
}

/// Where in the address space, in the order of `JITTISON_PLACEMENT_…` after the default.
pub(crate) const PLACEMENTS: [Placement; 4] =
    [Placement::NearLibraries, Placement::NearHost, Placement::Low2GiB, Placement::Anywhere];

impl MemoryMapper for Mapper {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        let pools = SegmentKind::ALL.map(|pool| layout.pool(pool));
        let known = PLACEMENTS.iter().position(|known| *known == placement);
        let shown = Layout {
            bytes: layout.size(),
            pool_offsets: pools.map(|pool| pool.offset),
            pool_sizes: pools.map(|pool| pool.size),
            placement: known.map_or(0, |known| known as u32 + 1),
            reserved: 0,
        };
        let mut window = RawWindow {
            size: size_of::<RawWindow>(),
            base: 0,
            working: [std::ptr::null_mut(); 3],
            granules: [0; 3],
            uses_system: 0,
            reserved: 0,
            open: None,
            seal: None,
            purge: None,
            unmap: None,
            context: std::ptr::null_mut(),
        };
        let Some(map) = self.callbacks.map else { return Err(MemoryFault::BadWindow { problem: "nothing maps it" }) };
        // SAFETY: C5, C2 - the caller promises the callback, its context and the error that it gives away. Both structs live
        // during the call.
        unsafe { check("map a window", map(&shown, &mut window, self.context.get()))? };
        if window.uses_system != 0 {
            return self.system.map_window(layout, placement);
        }
        let mapped = Window { layout: *layout, of: window, context: Context(window.context) };
        match mapped.problem() {
            Some(problem) => Err(MemoryFault::BadWindow { problem }),
            None => Ok(Arc::new(mapped)),
        }
    }
}

/// A window that a callback has mapped.
struct Window {
    layout: WindowLayout,
    of: RawWindow,
    context: Context,
}

// SAFETY: C5 - the callbacks and the context may be used on every thread; the views are addresses.
unsafe impl Send for Window {}
// SAFETY: C5 - as above.
unsafe impl Sync for Window {}

impl Window {
    /// What is wrong with the callback's answer, as far as it can be seen.
    fn problem(&self) -> Option<&'static str> {
        let is_granule = |(pool, granule): (usize, &u64)| {
            let least = if pool == SegmentKind::Code.index() { 64 } else { 16 };
            *granule == 0 || granule.is_power_of_two() && *granule >= least
        };
        match self {
            _ if self.of.base == 0 || !self.of.base.is_multiple_of(4096) => {
                Some("its base is null, or is not aligned to pages")
            }
            _ if self.of.working.iter().any(|view| view.is_null() || !view.cast::<u64>().is_aligned()) => {
                Some("a working view is null or not aligned")
            }
            _ if self.of.purge.is_none() => Some("it has no callback `purge`"),
            _ if !self.of.granules.iter().enumerate().all(is_granule) => {
                Some("a granule is no power of two, or too small")
            }
            _ => None,
        }
    }

    /// Calls a callback for a range of a pool.
    fn call(
        &self,
        step: &str,
        of: Option<OnRange>,
        pool: SegmentKind,
        (offset, size): (u64, u64),
    ) -> Result<(), MemoryFault> {
        let Some(callback) = of else { return Ok(()) };
        // SAFETY: C5, C2 - the caller promises the callback, its context and the error that it gives away.
        unsafe { check(step, callback(pool.index() as u32, offset, size, self.context.get())) }
    }
}

/// The outcome of a callback.
///
/// # Safety
/// C2: the error is one that this library made, and the callback gave it away.
unsafe fn check(step: &str, error: *mut ErrorObject) -> Result<(), MemoryFault> {
    // SAFETY: C2 - the caller promises it.
    let refused = unsafe { outcome(error) };
    refused.map_err(|error| MemoryFault::Refused { step: step.to_string(), problem: error.to_string() })
}

// SAFETY: C7 - the callback that mapped the window promises what the trait demands: the header says so.
unsafe impl MappedWindow for Window {
    fn layout(&self) -> &WindowLayout {
        &self.layout
    }

    fn base(&self) -> ExecutorAddr {
        ExecutorAddr::new(self.of.base)
    }

    fn working_view(&self, pool: SegmentKind) -> *mut u8 {
        self.of.working[pool.index()]
    }

    fn frame_header(&self) -> Option<*mut u8> {
        None
    }

    fn granule(&self, pool: SegmentKind) -> u64 {
        match (self.of.granules[pool.index()], pool) {
            (0, SegmentKind::Code) => 64,
            (0, SegmentKind::ReadOnly | SegmentKind::Data) => 16,
            (granule, _) => granule,
        }
    }

    unsafe fn open(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        self.call("open a range", self.of.open, pool, (offset, size))
    }

    unsafe fn seal(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        self.call("seal a range", self.of.seal, pool, (offset, size))
    }

    unsafe fn purge(&self, pool: SegmentKind, offset: u64, size: u64) -> Result<(), MemoryFault> {
        self.call("purge pages", self.of.purge, pool, (offset, size))
    }

    fn description(&self) -> &'static str {
        "mapped by the embedder"
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(unmap) = self.of.unmap {
            // SAFETY: C5 - the caller promises the callback and its context until this call.
            unsafe { unmap(self.context.get()) };
        }
    }
}
