//! [`ExecutorCrash`]: where an executor crashed.

use std::fmt;

use crate::base::ExecutorAddr;

/// Where the process of an executor crashed, as it reported itself before it ended. Code that has spoilt the memory of the
/// executor may have spoilt this, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorCrash {
    pub(crate) address: ExecutorAddr,
    pub(crate) backtrace: Vec<ExecutorAddr>,
    pub(crate) located: Vec<Option<String>>,
}

impl ExecutorCrash {
    /// The address whose access faulted, or that of the instruction.
    pub fn address(&self) -> ExecutorAddr {
        self.address
    }

    /// The address of the instruction, then the return address of each call, the innermost first. Empty if the unwinder there
    /// found none.
    pub fn backtrace(&self) -> &[ExecutorAddr] {
        &self.backtrace
    }

    /// For each address of the backtrace, the function and the object, if it is in code of the session that returned the error.
    pub fn located(&self) -> &[Option<String>] {
        &self.located
    }
}

/// For the middle of a message: the fault address, and the innermost frames in linked code.
impl fmt::Display for ExecutorCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " at the address {}", self.address)?;
        let mut frames = self.located.iter().flatten();
        if let Some(innermost) = frames.next() {
            write!(f, " in {innermost}")?;
        }
        let outer: Vec<&String> = frames.collect();
        for frame in outer.iter().take(SHOWN) {
            write!(f, ", called by {frame}")?;
        }
        if outer.len() > SHOWN { write!(f, " and {} more", outer.len() - SHOWN) } else { Ok(()) }
    }
}

/// The number of callers that a message names.
const SHOWN: usize = 6;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_innermost_callers_and_counts_the_others() {
        let address = ExecutorAddr::new(16);
        let located = |count: usize| (0..count).map(|number| Some(format!("f{number}"))).collect();
        let text = |located| ExecutorCrash { address, backtrace: vec![address], located }.to_string();
        assert_eq!(text(Vec::new()), " at the address 0x10");
        assert_eq!(
            text(vec![None, Some("f in a.o".into()), None, Some("g in b.o".into())]),
            " at the address 0x10 in f in a.o, called by g in b.o"
        );
        assert!(text(located(7)).ends_with("called by f6"));
        assert!(text(located(9)).ends_with("called by f6 and 2 more"));
    }
}
