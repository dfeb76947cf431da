//! [`Budget`]: a limit on the bytes that the allocations of a pool hold.
//!
//! An allocation beyond the limit fails before the kernel runs out of memory. Without a limit, nothing is counted, so
//! threads share no counter. A removal needs no new memory, so it works at the limit.
//!
//! # Order
//!
//! 1. An allocation reserves its bytes in the budget.
//! 2. It takes its memory. If that fails, it releases the bytes.
//! 3. When it is freed, it frees its memory first and then releases the bytes.
//!
//! So the memory that is held never exceeds the counted bytes, and the counted bytes never exceed the limit.
//!
//! # Limits
//!
//! Between steps 1 and 2 a failing allocation still counts. For that short time another allocation may be refused,
//! although it would fit. Model: `loom_tests/loom_budget.rs`.

use crate::error::{MemoryFault, Result};
use crate::sync::{AtomicU64, Ordering, seeded_bug};

pub(crate) struct Budget {
    limit: Option<u64>,
    held: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: Option<u64>) -> Budget {
        Budget { limit, held: AtomicU64::new(0) }
    }

    /// Reserves `bytes` of the budget.
    ///
    /// # Errors
    /// [`MemoryFault::BudgetExceeded`]. The budget is unchanged then.
    #[inline]
    pub(crate) fn reserve(&self, bytes: u64) -> Result<()> {
        self.limit.map_or(Ok(()), |limit| self.reserve_within(limit, bytes))
    }

    fn reserve_within(&self, limit: u64, bytes: u64) -> Result<()> {
        if seeded_bug!("budget_looked_at_before_it_is_taken") && self.held.load(Ordering::Relaxed) + bytes <= limit {
            self.held.fetch_add(bytes, Ordering::Relaxed);
            return Ok(());
        }
        // Relaxed: the counter is only compared with the limit. No other memory is read because of its value.
        let updated = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(bytes).filter(|held| *held <= limit)
        });
        match updated {
            Ok(_) => Ok(()),
            Err(held) => Err(MemoryFault::BudgetExceeded { requested: bytes, held, limit }.into()),
        }
    }

    /// Releases `bytes` that [`reserve`](Self::reserve) reserved.
    #[inline]
    pub(crate) fn release(&self, bytes: u64) {
        if self.limit.is_some() {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}
