//! [`SystemMapper`]: the best way of mapping that the system allows.
//!
//! | rung | mapper | what it lacks |
//! |---|---|---|
//! | 1 | [`DualMapper`] | nothing |
//! | 2 | [`PlainDualMapper`] | the kernel would let code be made writable, if somebody asked |
//! | 3 | [`SingleMapper`] | packing below a page, linking without system calls |
//!
//! A rung is left for the next when it refuses even the smallest window at any place; what refuses a large window only
//! is not the rung's fault, and is the caller's to answer by asking for less. The process remembers the rung that worked,
//! and why the better ones did not.

use crate::error::MemoryFault;
use crate::memory::dual_mapper;
#[cfg(doc)]
use crate::memory::dual_mapper::{DualMapper, PlainDualMapper};
use crate::memory::layout::WindowLayout;
use crate::memory::mapper::{ForkPolicy, MappedWindow, MemoryMapper, Placement};
use crate::memory::single_mapper;
#[cfg(doc)]
use crate::memory::single_mapper::SingleMapper;
use crate::sync::{Arc, StaticForkGuard, StaticForkMutex};

/// Maps windows of this process in the best way that the system allows. [`MappedWindow::description`] says which that is,
/// and what was wrong with the better ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemMapper {
    /// What forked children have of the windows.
    pub fork_policy: ForkPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MappingMode {
    ReadOnlyView,
    PlainView,
    Single,
}

/// The rungs that do not work in this process, each with the reason, best first.
static REFUSED: StaticForkMutex<Vec<String>> = StaticForkMutex::new(Vec::new());

/// Not to be held while anything is mapped: a child forked meanwhile would wait for it for ever.
fn remembered() -> StaticForkGuard<'static, Vec<String>> {
    REFUSED.lock()
}

impl MemoryMapper for SystemMapper {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        let mut refused = remembered().clone();
        while let Some(rung) = RUNGS.get(refused.len()) {
            match self.map_at(*rung, layout, placement, &remark(&refused)) {
                Ok(window) => {
                    *remembered() = refused;
                    return Ok(window);
                }
                Err(fault) => match self.probe(*rung) {
                    Ok(()) => return Err(fault),
                    Err(reason) => refused.push(format!("{}: {}", rung.name(), text(&reason))),
                },
            }
        }
        // Not remembered: what refuses all of them may pass.
        Err(MemoryFault::Refused {
            step: "every way of mapping code memory".to_string(),
            problem: format!("{}. {ADVICE}", refused.join("; ")),
        })
    }
}

impl SystemMapper {
    fn map_at(
        &self,
        rung: MappingMode,
        layout: &WindowLayout,
        placement: Placement,
        remark: &str,
    ) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        match rung {
            MappingMode::ReadOnlyView => dual_mapper::map(layout, placement, true, self.fork_policy, remark),
            MappingMode::PlainView => dual_mapper::map(layout, placement, false, self.fork_policy, remark),
            MappingMode::Single => single_mapper::map(layout, placement, remark),
        }
    }

    /// Whether a rung works for the smallest window, anywhere.
    fn probe(&self, rung: MappingMode) -> Result<(), MemoryFault> {
        let Some(smallest) = WindowLayout::divide(PROBE_WINDOW) else { return Ok(()) };
        self.map_at(rung, &smallest, Placement::Anywhere, "").map(drop)
    }
}

impl MappingMode {
    fn name(self) -> &'static str {
        match self {
            MappingMode::ReadOnlyView => "a running view from a read-only descriptor",
            MappingMode::PlainView => "a running view from a writable descriptor",
            MappingMode::Single => "a single mapping",
        }
    }
}

fn remark(refused: &[String]) -> String {
    if refused.is_empty() { String::new() } else { format!("; refused was {}", refused.join("; ")) }
}

fn text(fault: &MemoryFault) -> String {
    match fault {
        MemoryFault::Refused { step, problem } => format!("{step}: {problem}"),
        other => other.to_string(),
    }
}

const RUNGS: [MappingMode; 3] = [MappingMode::ReadOnlyView, MappingMode::PlainView, MappingMode::Single];

/// The smallest window that a pool asks for.
const PROBE_WINDOW: u64 = 32 << 20;

const ADVICE: &str = "Allow memfd_create and executable mappings of its files (seccomp, SELinux, vm.memfd_noexec), or \
                      mprotect to executable; and see that RLIMIT_AS, RLIMIT_FSIZE and vm.max_map_count leave room for \
                      64 MiB of address space in a dozen mappings";
