//! [`LoadedWindow`]: reserves the address range of a window and registers it with the unwinder.
//!
//! The dynamic loader opens a small file as a shared object. That reserves the range, and every unwinder finds the window
//! among the loaded libraries. The mappers have four ways, and try one after the other:
//!
//! - [`load_descriptor`]: the loader opens a file without a name by its path under `/proc`.
//! - [`load_named`]: the loader opens a file with a name, which is deleted at once.
//! - [`register_without_loader`]: a static program of musl has no loader. The range is reserved, and
//!   `os/static_loader.rs` adds it to the list that the unwinder reads.
//! - [`reserve_unregistered`]: the range is only reserved. The unwinder does not know it, so no exception can cross its
//!   code. [`MappedWindow::description`](crate::memory::MappedWindow::description) says so.
//!
//! # Identity
//! The loader knows a library by its path and by its inode, and would return an old library for either. So no path is
//! used twice, and the file stays open as long as the window, so that its inode is not reused. A nonce in the header
//! proves that the loader has opened this window.
//!
//! # Not used
//! `__register_frame` would register each module with the unwinder. libgcc expects a section there, LLVM's libunwind
//! one entry, by the same name. With both, the cost of a removal grows with the number of modules.

use std::ffi::CString;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::base::ExecutorAddr;
use crate::error::MemoryFault;
use crate::memory::layout::{CHUNK, WindowLayout};
use crate::memory::mapper::Placement;
use crate::memory::placement::Host;
use crate::memory::window_image::{NONCE_OFFSET, SMALL_FILE_DYNAMIC_OFFSET, WindowImage, frame_header};
use crate::os::{
    HAS_NO_LOADER, Library, ListedWindow, NamedFile, Reservation, WindowRange, heap_end, is_free, library_range,
    mappings_below, program_range,
};

/// The reserved range of a window. Only its first header page and the page of its dynamic section are mapped as
/// described; the mapper maps the others.
pub(super) struct LoadedWindow {
    pub(super) base: ExecutorAddr,
    registration: Registration,
}

/// How the unwinder knows a window. Fields drop in order.
enum Registration {
    /// The loader opened it. The open file keeps its inode from being reused.
    Library(#[allow(dead_code)] Library, #[allow(dead_code)] Option<File>),
    /// There is no loader. This crate adds the window to the list of the unwinder. It leaves the list before it is
    /// unmapped.
    Listed(#[allow(dead_code)] ListedWindow, #[allow(dead_code)] Reservation),
    /// The unwinder does not know it, for this reason.
    Reserved(#[allow(dead_code)] Reservation, String),
}

impl LoadedWindow {
    /// Whether the loader has mapped the header page and the page of the dynamic section.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(self.registration, Registration::Library(..))
    }

    /// Why the unwinder does not know the window. `None` if it does.
    pub(super) fn unregistered_reason(&self) -> Option<&str> {
        match &self.registration {
            Registration::Library(..) | Registration::Listed(..) => None,
            Registration::Reserved(_, reason) => Some(reason),
        }
    }
}

/// Reserves a range at a place that `placement` accepts. `reserve` makes the range; its argument is the preferred base,
/// or zero for any.
///
/// # Errors
/// If `reserve` fails, or if [`Placement::Low2GiB`] has no free range.
pub(super) fn place(
    layout: &WindowLayout,
    placement: Placement,
    reserve: impl Fn(u64) -> Result<LoadedWindow, MemoryFault>,
) -> Result<LoadedWindow, MemoryFault> {
    let host = Host { program: program_range(), heap_end: heap_end(), libraries: library_range() };
    // The loader reserves more than it needs for the alignment, and unmaps the excess.
    let candidates = placement.candidates(layout, &host).into_iter();
    let free = candidates.filter(|&base| is_free(base, (layout.size() + CHUNK) as usize));
    let tried = try_candidates(free, |window| placement.accepts(layout, &host, window.base.value()), &reserve)?;
    match (placement, tried) {
        (_, Tried::Accepted(window)) => Ok(window),
        (Placement::Low2GiB, tried) => Err(no_low_range(layout, matches!(tried, Tried::Misplaced(_)))),
        (_, Tried::Misplaced(window)) => Ok(window),
        (_, Tried::Nothing) => reserve(0),
    }
}

/// What became of the candidates of a placement.
#[derive(Debug, PartialEq)]
enum Tried<W> {
    Accepted(W),
    /// The last window that was reserved. Another thread took each range, or this loader ignores preferred addresses.
    Misplaced(W),
    /// There was no candidate.
    Nothing,
}

/// Reserves a window at each of the first [`MAX_TRIES`] `candidates` in turn, until `accepts` takes one.
fn try_candidates<W>(
    candidates: impl Iterator<Item = u64>,
    accepts: impl Fn(&W) -> bool,
    reserve: impl Fn(u64) -> Result<W, MemoryFault>,
) -> Result<Tried<W>, MemoryFault> {
    let mut tried = Tried::Nothing;
    for preferred in candidates.take(MAX_TRIES) {
        // One window at a time: both use the same file, and the next one changes its first page.
        drop(tried);
        let window = reserve(preferred)?;
        if accepts(&window) {
            return Ok(Tried::Accepted(window));
        }
        tried = Tried::Misplaced(window);
    }
    Ok(tried)
}

/// The error if no range below 2 GiB can be reserved. `is_misplaced` says that a range was free, and the loader mapped
/// elsewhere.
fn no_low_range(layout: &WindowLayout, is_misplaced: bool) -> MemoryFault {
    let step = format!("a window of {} MiB below 2 GiB", layout.size() >> 20);
    let problem = if is_misplaced {
        "a range is free, but this dynamic loader ignores preferred addresses; glibc 2.36 and later use them"
            .to_string()
    } else {
        let occupants = mappings_below(1 << 31);
        let occupants =
            if occupants.is_empty() { "no mapping that this process can see".into() } else { occupants.join(", ") };
        format!(
            "no range of that size is free; the largest mappings there: {occupants}. Reserve a smaller window, or \
             reserve it earlier"
        )
    };
    MemoryFault::Refused { step, problem }
}

/// The loader opens a file without a name, by its descriptor.
///
/// # Errors
/// What the loader said, or that it returned another library.
pub(super) fn load_descriptor(file: &File, nonce: u64) -> Result<LoadedWindow, String> {
    // Debuggers open the path that the loader reports, so it contains the process id. In a container, `/proc` may have
    // other process ids than the process itself sees. Then `self` works.
    let descriptor = file.as_raw_fd();
    let path = format!("/proc/{}/fd/{descriptor}", std::process::id());
    let library = open(Path::new(&path)).or_else(|_| open(Path::new(&format!("/proc/self/fd/{descriptor}"))))?;
    check_nonce(library, None, nonce)
}

/// The loader opens a small file with a name. The name is deleted before this returns.
///
/// # Errors
/// What the system or the loader said, or that the loader returned another library.
pub(super) fn load_named(image: impl FnOnce(u64) -> WindowImage, nonce: u64) -> Result<LoadedWindow, String> {
    // If the name exists already, `create` fails, and nothing is opened.
    let name = format!("jittison-{}-{nonce:016x}", std::process::id());
    let file = NamedFile::create(&name, &image(SMALL_FILE_DYNAMIC_OFFSET).parts(SMALL_FILE_DYNAMIC_OFFSET))?;
    let library = open(file.path())?;
    check_nonce(library, file.unlink(), nonce)
}

/// Reserves a range and registers it with the unwinder, in a program without a loader.
///
/// # Errors
/// `reason` if the program has a loader; otherwise what the kernel refused.
pub(super) fn register_without_loader(
    layout: &WindowLayout,
    preferred: u64,
    reason: String,
) -> Result<LoadedWindow, String> {
    // First, so that a refusal of the kernel does not take the place of `reason`.
    if !HAS_NO_LOADER {
        return Err(reason);
    }
    let (base, reservation) = reserve_range(layout, preferred).map_err(|fault| fault.to_string())?;
    let (header, frame_header_bytes) = frame_header(layout);
    let frame_header = base.value() + header;
    let range = WindowRange { base: base.value(), size_bytes: layout.size(), frame_header, frame_header_bytes };
    let listed = ListedWindow::new(range).ok_or(reason)?;
    Ok(LoadedWindow { base, registration: Registration::Listed(listed, reservation) })
}

/// Reserves a range that the unwinder does not know, for `reason`.
///
/// # Errors
/// What the kernel refused.
pub(super) fn reserve_unregistered(
    layout: &WindowLayout,
    preferred: u64,
    reason: String,
) -> Result<LoadedWindow, MemoryFault> {
    let (base, reservation) = reserve_range(layout, preferred)?;
    Ok(LoadedWindow { base, registration: Registration::Reserved(reservation, reason) })
}

fn reserve_range(layout: &WindowLayout, preferred: u64) -> Result<(ExecutorAddr, Reservation), MemoryFault> {
    // Pools are aligned to chunks, but the kernel aligns to pages.
    let reservation = Reservation::new(preferred, (layout.size() + CHUNK) as usize).map_err(|error| {
        MemoryFault::Refused { step: "reserving address space".to_string(), problem: error.to_string() }
    })?;
    Ok((ExecutorAddr::new(reservation.address().next_multiple_of(CHUNK)), reservation))
}

fn open(path: &Path) -> Result<Library, String> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    Library::open(&path, false)
}

/// Checks by its nonce that the loader has opened this window.
fn check_nonce(library: Library, file: Option<File>, nonce: u64) -> Result<LoadedWindow, String> {
    let base = library.first_byte()?;
    // SAFETY: M6 - `library` keeps its first page mapped and readable, and `NONCE_OFFSET + 8` is inside this page. If
    // the loader has returned another library, the read gives bytes of that one.
    let found = unsafe { ((base + NONCE_OFFSET) as *const u64).read() };
    if found != nonce {
        return Err("the loader returned another library".to_string());
    }
    Ok(LoadedWindow { base: ExecutorAddr::new(base), registration: Registration::Library(library, file) })
}

/// A random number that no other window has.
pub(super) fn new_nonce() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// How many candidates are tried if the loader maps the window elsewhere.
const MAX_TRIES: usize = 2;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[cfg_attr(miri, ignore = "maps memory")]
    #[cfg(not(all(target_env = "musl", target_feature = "crt-static")))]
    #[test]
    fn a_program_with_a_loader_gets_the_reason_and_not_the_refusal_of_the_kernel() {
        let too_large = WindowLayout::divide(64 << 20).unwrap().with_size(1 << 60);
        for layout in [WindowLayout::divide(64 << 20).unwrap(), too_large] {
            let registered = register_without_loader(&layout, 0, "what the loader said".to_string());
            assert_eq!(registered.err().as_deref(), Some("what the loader said"));
        }
    }

    #[test]
    fn a_misplaced_window_is_unmapped_before_the_next_one_is_reserved() {
        let live = Rc::new(());
        let reserve = |preferred| {
            assert_eq!(Rc::strong_count(&live), 1, "two windows of one file");
            Ok((preferred, live.clone()))
        };
        let tried = try_candidates([10, 20].into_iter(), |_| false, reserve).unwrap();
        assert_eq!(tried, Tried::Misplaced((20, live.clone())));
    }

    #[test]
    fn candidates_are_tried_until_one_is_accepted_and_two_at_most() {
        let tries = Cell::new(0);
        let reserve = |preferred| {
            tries.set(tries.get() + 1);
            Ok(preferred)
        };
        assert_eq!(try_candidates([10, 20, 30].into_iter(), |&base| base == 10, reserve).unwrap(), Tried::Accepted(10));
        assert_eq!(tries.replace(0), 1);
        assert_eq!(try_candidates([10, 20, 30].into_iter(), |&base| base == 20, reserve).unwrap(), Tried::Accepted(20));
        assert_eq!(tries.replace(0), 2);
        assert_eq!(
            try_candidates([10, 20, 30].into_iter(), |&base| base == 30, reserve).unwrap(),
            Tried::Misplaced(20)
        );
        assert_eq!(tries.replace(0), 2);
        assert_eq!(try_candidates([].into_iter(), |_| true, reserve).unwrap(), Tried::Nothing);
        assert_eq!(tries.get(), 0);
    }
}
