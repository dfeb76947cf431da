//! [`CallbackMemory`]: code memory that callbacks of the program allocate, in the manner of MCJIT.
//!
//! ORC calls them for each section. Here an object has up to three segments: code, constants and data. Each is one section for
//! the callbacks. An allocation has a context of its own, which is destroyed with it.
//!
//! What it does not do: exceptions do not pass through this code, because nothing registers its frames.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use jittison::base::{ExecutorAddr, SegmentKind};
use jittison::memory::{Finalized, Frame, InFlight, MemoryManager, SegmentPlan, SegmentRequest};
use jittison::{Error, MemoryStatistics, MemoryUsage};

type AllocateCode = unsafe extern "C-unwind" fn(*mut c_void, usize, u32, u32, *const c_char) -> *mut u8;
type AllocateData = unsafe extern "C-unwind" fn(*mut c_void, usize, u32, u32, *const c_char, c_int) -> *mut u8;

/// The callbacks of the program, and the context by which allocations get theirs.
pub(crate) struct Callbacks {
    pub(crate) context: usize,
    pub(crate) create_context: unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    pub(crate) notify_terminating: unsafe extern "C-unwind" fn(*mut c_void),
    pub(crate) allocate_code: AllocateCode,
    pub(crate) allocate_data: AllocateData,
    /// Returns true on failure, with a message that the caller frees.
    pub(crate) finalize: unsafe extern "C-unwind" fn(*mut c_void, *mut *mut c_char) -> c_int,
    pub(crate) destroy: unsafe extern "C-unwind" fn(*mut c_void),
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        // SAFETY: O3 - the program promises it; no allocation is left.
        unsafe { (self.notify_terminating)(self.context as *mut c_void) };
    }
}

/// The memory manager.
pub(crate) struct CallbackMemory(Arc<Shared>);

struct Shared {
    callbacks: Callbacks,
    allocations: AtomicUsize,
    live_bytes: AtomicU64,
}

impl CallbackMemory {
    pub(crate) fn new(callbacks: Callbacks) -> CallbackMemory {
        let (allocations, live_bytes) = Default::default();
        CallbackMemory(Arc::new(Shared { callbacks, allocations, live_bytes }))
    }
}

/// How far segments may be from each other, so that a 32-bit distance reaches.
const REACH: u64 = 1 << 31;

// SAFETY: O3, O5 - the program promises memory that belongs to the allocation until its context is destroyed, that keeps its
// address, and that it can run once it is finalized. What can be checked is checked in `allocate`.
unsafe impl MemoryManager for CallbackMemory {
    fn allocate(&self, plan: &SegmentPlan) -> Result<Box<dyn InFlight>, Error> {
        if !plan.large_sections.is_empty() || plan.scratch.size > 0 {
            return Err(Error::other("memory callbacks have no large sections"));
        }
        let callbacks = &self.0.callbacks;
        // SAFETY: O3 - the program promises it.
        let context = unsafe { (callbacks.create_context)(callbacks.context as *mut c_void) };
        let mut memory = Memory::new(self.0.clone(), context as usize, plan);
        for (index, kind) in SegmentKind::ALL.into_iter().enumerate() {
            memory.starts[index] = memory.section(index as u32, kind, plan.segment(kind))?;
        }
        memory.check(plan)?;
        Ok(Box::new(memory))
    }

    fn statistics(&self) -> MemoryStatistics {
        let (allocations, live_bytes) =
            (self.0.allocations.load(Ordering::Relaxed), self.0.live_bytes.load(Ordering::Relaxed));
        MemoryStatistics { allocations, live_bytes, reserved_bytes: live_bytes, ..MemoryStatistics::default() }
    }
}

/// An allocation, in flight or finalized. Dropping it destroys its context.
struct Memory {
    shared: Arc<Shared>,
    context: usize,
    /// In [`SegmentKind::ALL`] order. Zero for a segment without bytes.
    starts: [u64; 3],
    sizes: [u64; 3],
}

impl Memory {
    fn new(shared: Arc<Shared>, context: usize, plan: &SegmentPlan) -> Memory {
        shared.allocations.fetch_add(1, Ordering::Relaxed);
        shared.live_bytes.fetch_add(plan.requested_bytes(), Ordering::Relaxed);
        Memory { shared, context, starts: [0; 3], sizes: plan.segments.map(|segment| segment.size) }
    }

    /// Allocates one segment. Its last bytes are zero as the plan demands.
    fn section(&self, id: u32, kind: SegmentKind, request: &SegmentRequest) -> Result<u64, Error> {
        if request.size == 0 {
            return Ok(0);
        }
        let (callbacks, context) = (&self.shared.callbacks, self.context as *mut c_void);
        let (size, align) = (request.size as usize, request.align.max(1));
        let name: &CStr = match kind {
            SegmentKind::Code => c".text",
            SegmentKind::ReadOnly => c".rodata",
            _ => c".data",
        };
        let (callback_align, name) = (align as u32, name.as_ptr());
        // SAFETY: O3 - the program promises the callbacks. The name stays.
        let start = unsafe {
            match kind {
                SegmentKind::Code => (callbacks.allocate_code)(context, size, callback_align, id, name),
                SegmentKind::ReadOnly => (callbacks.allocate_data)(context, size, callback_align, id, name, 1),
                _ => (callbacks.allocate_data)(context, size, callback_align, id, name, 0),
            }
        };
        if start.is_null() {
            return Err(Error::other(format!("the memory callbacks returned no {size} bytes")));
        }
        if !(start as u64).is_multiple_of(align) {
            return Err(Error::other(format!(
                "the memory callbacks returned {start:p}, which is not aligned to {align}"
            )));
        }
        let zero_fill = (request.zero_fill as usize).min(size);
        // SAFETY: O3 - the bytes belong to this allocation, and may be written until it is finalized.
        unsafe { ptr::write_bytes(start.add(size - zero_fill), 0, zero_fill) };
        Ok(start as u64)
    }

    /// Checks the distances, on which linked code relies.
    fn check(&self, plan: &SegmentPlan) -> Result<(), Error> {
        let used = || self.starts.iter().zip(&self.sizes).filter(|(_, size)| **size > 0);
        let first = used().map(|(start, _)| *start).min().unwrap_or(0);
        let end = used().map(|(start, size)| start + size).max().unwrap_or(0);
        if end - first > REACH {
            return Err(Error::other("the memory callbacks returned sections that are more than 2 GiB apart"));
        }
        if plan.low && end > REACH {
            return Err(Error::other(
                "the object needs memory below 2 GiB, and the memory callbacks returned other memory",
            ));
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let bytes = self.sizes.iter().sum();
        self.shared.allocations.fetch_sub(1, Ordering::Relaxed);
        self.shared.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
        // SAFETY: O3 - the program promises it; this is the last use of the context.
        unsafe { (self.shared.callbacks.destroy)(self.context as *mut c_void) };
    }
}

impl InFlight for Memory {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        ExecutorAddr::new(self.starts[pool as usize])
    }

    fn working(&mut self, pool: SegmentKind) -> &mut [u8] {
        let (start, size) = (self.starts[pool as usize], self.sizes[pool as usize] as usize);
        if size == 0 {
            return &mut [];
        }
        // SAFETY: O3 - the bytes belong to this allocation, and may be written until it is finalized. Reading what was not
        // written reads what the program left there.
        unsafe { std::slice::from_raw_parts_mut(start as *mut u8, size) }
    }

    fn finalize(self: Box<Self>, _frames: Vec<Frame>) -> Result<Box<dyn Finalized>, Error> {
        let mut message = ptr::null_mut();
        // SAFETY: O3 - the program promises it.
        let has_failed = unsafe { (self.shared.callbacks.finalize)(self.context as *mut c_void, &mut message) } != 0;
        let mut text = String::new();
        if !message.is_null() {
            // SAFETY: O2 - the callback gives a string of `malloc` away.
            unsafe {
                text = CStr::from_ptr(message).to_string_lossy().into_owned();
                libc::free(message.cast());
            }
        }
        if has_failed {
            Err(Error::other(format!("the memory callbacks failed to finalize: {text}")))
        } else {
            Ok(self)
        }
    }
}

impl Finalized for Memory {
    fn address(&self, pool: SegmentKind) -> ExecutorAddr {
        InFlight::address(self, pool)
    }

    fn usage(&self) -> MemoryUsage {
        let [code, read_only, data] = self.sizes;
        let (reserved, metadata) = (code + read_only + data, size_of::<Memory>() as u64);
        MemoryUsage { allocations: 1, code, read_only, data, reserved, metadata }
    }

    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let (start, size) = (self.starts[SegmentKind::Data as usize], self.sizes[SegmentKind::Data as usize]);
        if !offset.is_multiple_of(8) || offset.checked_add(8)? > size || !(start + offset).is_multiple_of(8) {
            return None;
        }
        // SAFETY: O3 - the word is aligned, in the data of this allocation, and stays while `self` lives.
        Some(unsafe { AtomicU64::from_ptr((start + offset) as *mut u64) })
    }
}
