//! [`OutputBudget`]: a limit on what a debugger or profiler view of one link may copy.
//!
//! Functions may overlap, and may share names, unwind instructions and file names. [`FixedLink::functions`] copies the shared
//! parts for each function. A small malformed object could ask for any amount of memory in this way. The budget limits
//! the copies to a multiple of the object's size.

use crate::link::content::GivenContent;
use crate::link::fixed_link::FixedLink;

/// How many bytes may still be copied more than once.
pub(super) struct OutputBudget {
    bytes: u64,
}

impl OutputBudget {
    pub(super) fn of(link: &FixedLink<'_>) -> OutputBudget {
        let graph = link.graph();
        let given: u64 = graph.synthetic.given.iter().map(GivenContent::size).sum();
        OutputBudget { bytes: BUDGET_PER_BYTE.saturating_mul(graph.bytes.len() as u64 + given) }
    }

    /// Subtracts `bytes` from the budget and returns true. Returns false, and changes nothing, if fewer bytes are left.
    #[must_use]
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes as u64);
        self.bytes = left.unwrap_or(self.bytes);
        left.is_some()
    }
}

/// Pays for texts that may share bytes, until the budget refuses one. After that it refuses every text without looking at
/// it, because a search for the end of each would take quadratic time.
#[derive(Default)]
pub(super) struct SharedTexts {
    is_refused: bool,
}

impl SharedTexts {
    /// The text at the start of `bytes`: up to the null byte, or all bytes if there is none. `None` if it is refused.
    pub(super) fn pay<'t>(&mut self, bytes: &'t [u8], budget: &mut OutputBudget) -> Option<&'t [u8]> {
        if self.is_refused {
            return None;
        }
        let text = &bytes[..memchr::memchr(0, bytes).unwrap_or(bytes.len())];
        self.is_refused = !budget.spend(text.len());
        (!self.is_refused).then_some(text)
    }
}

/// Bytes of output for each byte of the object. The names and frames in a compiler's object share few bytes, so they
/// take much less.
const BUDGET_PER_BYTE: u64 = 48;
