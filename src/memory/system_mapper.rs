//! [`SystemMapper`]: maps windows in the best mode that the system allows.
//!
//! | order | mode | what it lacks |
//! |---|---|---|
//! | 1 | [`DualMapper`] | nothing |
//! | 2 | [`PlainDualMapper`] | the kernel would allow `mprotect` to make code writable |
//! | 3 | [`SingleMapper`] | allocations smaller than a page, links without system calls |
//!
//! A mode may refuse a window for two reasons. To tell them apart, the mapper probes the mode: it maps the smallest
//! window, at any address.
//!
//! - If the probe fails, the system does not allow the mode. The mapper tries the next one.
//! - If the probe succeeds, the window was too large. The mapper returns the error, and the pool asks for a smaller
//!   window.
//!
//! Each window tries the modes from the first one on. A refusal counts for one window only, because its cause may pass:
//! too many open files, too little memory.

use crate::error::MemoryFault;
use crate::memory::dual_mapper;
#[cfg(doc)]
use crate::memory::dual_mapper::{DualMapper, PlainDualMapper};
use crate::memory::layout::WindowLayout;
use crate::memory::mapper::{ForkPolicy, MappedWindow, MemoryMapper, Placement};
use crate::memory::single_mapper;
#[cfg(doc)]
use crate::memory::single_mapper::SingleMapper;
use crate::sync::Arc;

/// Maps windows of this process in the best mode that the system allows. [`MappedWindow::description`] names the mode,
/// and why the better modes failed.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemMapper {
    /// What forked children get of the windows.
    pub fork_policy: ForkPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MappingMode {
    ReadOnlyView,
    PlainView,
    Single,
}

impl MemoryMapper for SystemMapper {
    fn map_window(&self, layout: &WindowLayout, placement: Placement) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        // Never kept for the next window: one window without file descriptors would downgrade all later ones.
        let mut failed = Vec::new();
        for mode in MODES {
            match self.map_in_mode(mode, layout, placement, &remark(&failed)) {
                Ok(window) => return Ok(window),
                Err(fault) => match self.probe(mode) {
                    Ok(()) => return Err(fault),
                    Err(reason) => failed.push(format!("{}: {}", mode.name(), step_and_problem(&reason))),
                },
            }
        }
        Err(MemoryFault::Refused {
            step: "every way of mapping code memory".to_string(),
            problem: format!("{}. {ADVICE}", failed.join("; ")),
        })
    }
}

impl SystemMapper {
    fn map_in_mode(
        &self,
        mode: MappingMode,
        layout: &WindowLayout,
        placement: Placement,
        remark: &str,
    ) -> Result<Arc<dyn MappedWindow>, MemoryFault> {
        match mode {
            MappingMode::ReadOnlyView => dual_mapper::map(layout, placement, true, self.fork_policy, remark),
            MappingMode::PlainView => dual_mapper::map(layout, placement, false, self.fork_policy, remark),
            MappingMode::Single => single_mapper::map(layout, placement, remark),
        }
    }

    /// Maps the smallest window, at any address, and unmaps it.
    fn probe(&self, mode: MappingMode) -> Result<(), MemoryFault> {
        let Some(smallest) = WindowLayout::divide(PROBE_WINDOW) else { return Ok(()) };
        self.map_in_mode(mode, &smallest, Placement::Anywhere, "").map(drop)
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

/// What the description of a window says about the modes that failed.
fn remark(failed: &[String]) -> String {
    if failed.is_empty() { String::new() } else { format!("; the system refused {}", failed.join("; ")) }
}

fn step_and_problem(fault: &MemoryFault) -> String {
    match fault {
        MemoryFault::Refused { step, problem } => format!("{step}: {problem}"),
        other => other.to_string(),
    }
}

const MODES: [MappingMode; 3] = [MappingMode::ReadOnlyView, MappingMode::PlainView, MappingMode::Single];

/// Bytes of the smallest window that a pool requests.
const PROBE_WINDOW: u64 = 32 << 20;

const ADVICE: &str = "Allow memfd_create and executable mappings of its files (check seccomp, SELinux and \
                      vm.memfd_noexec), or allow mprotect to make pages executable. Check that RLIMIT_AS, RLIMIT_FSIZE and \
                      vm.max_map_count allow 64 MiB of address space in 12 mappings";
