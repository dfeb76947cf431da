//! [`Budget`]: a limit in bytes on what allocations hold, which refuses before the kernel does.
//!
//! Without a limit nothing is counted, so that threads share no word. Removal works at the limit, as it only gives back.
//!
//! An allocation takes its bytes before it takes memory, and gives them back after the memory. So memory that is held never
//! exceeds what is counted, and that never exceeds the limit. An allocation that is refused for another reason is counted
//! until it is refused: meanwhile it may take the last bytes from another one.
//! Model: `loom_tests/loom_budget.rs`.

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

    /// Takes bytes out of the budget.
    ///
    /// # Errors
    /// [`MemoryFault::BudgetExceeded`]; nothing was taken then.
    #[inline]
    pub(crate) fn take(&self, bytes: u64) -> Result<()> {
        self.limit.map_or(Ok(()), |limit| self.take_within(limit, bytes))
    }

    fn take_within(&self, limit: u64, bytes: u64) -> Result<()> {
        if seeded_bug!("budget_looked_at_before_it_is_taken") && self.held.load(Ordering::Relaxed) + bytes <= limit {
            self.held.fetch_add(bytes, Ordering::Relaxed);
            return Ok(());
        }
        // One word that says how much is left: no other memory is read because of what it says.
        let taken = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(bytes).filter(|held| *held <= limit)
        });
        match taken {
            Ok(_) => Ok(()),
            Err(held) => Err(MemoryFault::BudgetExceeded { requested: bytes, held, limit }.into()),
        }
    }

    /// Puts bytes that were taken back.
    #[inline]
    pub(crate) fn give_back(&self, bytes: u64) {
        if self.limit.is_some() {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}
