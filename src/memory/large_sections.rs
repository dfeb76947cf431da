//! [`LargeSection`]: a section in a mapping of its own, outside every window.
//!
//! A large section that nobody reaches by a displacement needs no place in a window, whose reach is scarce. It costs a
//! mapping while it lives, and one or two system calls to come and one to go, which is little beside writing so many bytes.
//! It is private memory: never executable, and a forked child has its own.
//!
//! The books are two words that all threads share, and that only allocations with such sections touch.

use crate::base::{ExecutorAddr, MemoryEvent};
use crate::error::{MemoryFault, Result};
use crate::memory::budget::Budget;
use crate::memory::events::EventSink;
use crate::memory::layout::{CHUNK, PAGE};
use crate::memory::manager::{MemoryStatistics, MemoryUsage};
use crate::memory::plan::LargeRequest;
use crate::os::PrivatePages;
use crate::sync::{Arc, AtomicU64, Ordering};

/// What all sections apart of one manager hold.
pub(crate) struct ApartBooks {
    budget: Arc<Budget>,
    teller: EventSink,
    /// Bytes asked for.
    live: AtomicU64,
    /// Bytes of pages.
    held: AtomicU64,
}

impl ApartBooks {
    pub(crate) fn new(budget: Arc<Budget>, teller: EventSink) -> Arc<ApartBooks> {
        Arc::new(ApartBooks { budget, teller, live: AtomicU64::new(0), held: AtomicU64::new(0) })
    }

    /// Adds what is held to the books of the windows: all of it is opened, and the kernel may have backed it.
    pub(crate) fn add_to(&self, sum: &mut MemoryStatistics) {
        let held = self.held.load(Ordering::Relaxed);
        sum.live_bytes += self.live.load(Ordering::Relaxed);
        sum.reserved_bytes += held;
        sum.opened_bytes += held;
        sum.resident_bytes += held;
    }
}

/// Fields drop in order: the pages are gone before they are no longer counted.
pub(crate) struct LargeSection {
    pages: PrivatePages,
    request: LargeRequest,
    counted: Counted,
}

/// Bytes that stand in the books until this is dropped.
struct Counted {
    books: Arc<ApartBooks>,
    live: u64,
    held: u64,
}

impl LargeSection {
    /// Maps what is asked for.
    ///
    /// # Errors
    /// [`MemoryFault`]; nothing is held then.
    pub(crate) fn map(books: &Arc<ApartBooks>, request: &LargeRequest) -> Result<LargeSection> {
        let LargeRequest { size, align, .. } = *request;
        let align = align.max(1);
        let bad = |problem| MemoryFault::BadPlan { pool: APART, size, align, problem };
        if size == 0 {
            return Err(bad("it is empty").into());
        }
        if !align.is_power_of_two() {
            return Err(bad("the alignment is no power of two").into());
        }
        if align > CHUNK {
            return Err(bad("nothing is aligned to that").into());
        }
        let held = size.checked_next_multiple_of(PAGE).ok_or_else(|| bad("that is an address space"))?;
        let counted = Counted::new(books, size, held)?;
        let pages = PrivatePages::map(size as usize, align as usize).map_err(|error| MemoryFault::Refused {
            step: format!("mapping a section of {} KiB apart", held >> 10),
            problem: error.to_string(),
        })?;
        let section = LargeSection { pages, request: *request, counted };
        let address = section.address();
        books.teller.tell_one(MemoryEvent::ApartMapped { address, bytes: held });
        Ok(section)
    }

    pub(crate) fn address(&self) -> ExecutorAddr {
        ExecutorAddr::new(self.pages.address())
    }

    /// The section's bytes, while nothing but its link knows of them.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.pages.bytes()[..self.request.size as usize]
    }

    /// Gives it its final protection.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(crate) fn seal(&mut self) -> Result<()> {
        if self.request.is_read_only {
            self.pages.seal().map_err(|error| MemoryFault::Refused {
                step: format!("making a section of {} KiB apart read-only", self.pages.size_bytes() >> 10),
                problem: error.to_string(),
            })?;
        }
        Ok(())
    }

    pub(crate) fn usage(&self) -> MemoryUsage {
        let (read_only, data) = if self.request.is_read_only { (self.request.size, 0) } else { (0, self.request.size) };
        MemoryUsage {
            read_only,
            data,
            reserved: self.pages.size_bytes() as u64,
            metadata: size_of::<LargeSection>() as u64,
            ..MemoryUsage::default()
        }
    }
}

impl Drop for LargeSection {
    fn drop(&mut self) {
        let (address, bytes) = (self.address(), self.counted.held);
        self.counted.books.teller.tell_one(MemoryEvent::ApartUnmapped { address, bytes });
    }
}

impl Counted {
    fn new(books: &Arc<ApartBooks>, live: u64, held: u64) -> Result<Counted> {
        books.budget.take(held)?;
        // Sums for reports: nothing else is read because of what they say.
        books.live.fetch_add(live, Ordering::Relaxed);
        books.held.fetch_add(held, Ordering::Relaxed);
        Ok(Counted { books: books.clone(), live, held })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.books.live.fetch_sub(self.live, Ordering::Relaxed);
        self.books.held.fetch_sub(self.held, Ordering::Relaxed);
        self.books.budget.give_back(self.held);
    }
}

/// What errors call it.
const APART: &str = "apart";
