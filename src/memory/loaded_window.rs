//! [`LoadedWindow`]: a window's address range, reserved by the loader, who tells every unwinder about it.
//!
//! The loader opens files by path. A file without a name has one under `/proc`; where that is not to be had, a small
//! file with a name serves as well, since the loader takes nothing from it but two pages. A static program of musl has no
//! loader: there the range is reserved, and the unwinder is told of it all the same (`os/static_loader.rs`). Where nobody
//! tells it, no exception can cross what runs in the range: that is reported, and never silent.
//! Registering each module with the unwinder instead was rejected: libgcc's function for it wants a section and LLVM's
//! one entry, by the same name, and with both a removal costs more the more modules there are.
//!
//! The loader knows a library by the path it was opened by and by its inode, and would hand out an old one for either
//! that is used again. So no path is used twice, what is opened stays open as long as the window, and a number in the
//! header proves that what was opened is this window.

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
    Library, Listed, ListedRange, NamedFile, Reservation, heap_end, is_free, library_range, occupants_below,
    program_range,
};

/// A window's range. Nothing is mapped in it that may be relied on but the header's first page, and the dynamic section.
pub(super) struct LoadedWindow {
    pub(super) base: ExecutorAddr,
    holder: Registration,
}

enum Registration {
    /// The loader has it. The file keeps its inode from being used again.
    Library(#[allow(dead_code)] Library, #[allow(dead_code)] Option<File>),
    /// There is no loader; the unwinder is told by us. Off the list first, then unmapped.
    Listed(#[allow(dead_code)] Listed, #[allow(dead_code)] Reservation),
    /// The loader would not have it, for this reason.
    Reserved(#[allow(dead_code)] Reservation, String),
}

impl LoadedWindow {
    /// Whether the loader has mapped its pages of the window: the header, and the dynamic section.
    pub(super) fn is_loaded(&self) -> bool {
        matches!(self.holder, Registration::Library(..))
    }

    /// Why the unwinder does not know the window, if so.
    pub(super) fn unknown_because(&self) -> Option<&str> {
        match &self.holder {
            Registration::Library(..) | Registration::Listed(..) => None,
            Registration::Reserved(_, reason) => Some(reason),
        }
    }
}

/// Reserves a range where `placement` says. `make` is asked for the range, told where it should be if that can be had
/// (zero: anywhere).
pub(super) fn place(
    layout: &WindowLayout,
    placement: Placement,
    make: impl Fn(u64) -> Result<LoadedWindow, MemoryFault>,
) -> Result<LoadedWindow, MemoryFault> {
    let host = Host { program: program_range(), heap_end: heap_end(), libraries: library_range() };
    let mut elsewhere: Option<LoadedWindow> = None;
    let mut tries = 0;
    for preferred in placement.candidates(layout, &host) {
        // The loader reserves more than it needs, and gives back what it does not use for alignment.
        if !is_free(preferred, (layout.size + CHUNK) as usize) {
            continue;
        }
        // One at a time: the next is described in the same file, whose first page the loader reads for both.
        drop(elsewhere.take());
        let window = make(preferred)?;
        if placement.suits(layout, &host, window.base.value()) {
            return Ok(window);
        }
        // Somebody was faster, or this loader takes no wishes.
        elsewhere = Some(window);
        tries += 1;
        if tries == MAX_TRIES {
            break;
        }
    }
    match (placement, elsewhere) {
        (Placement::Low2GiB, elsewhere) => Err(no_room_below(layout, elsewhere.is_some())),
        (_, Some(window)) => Ok(window),
        (_, None) => make(0),
    }
}

fn no_room_below(layout: &WindowLayout, is_loader: bool) -> MemoryFault {
    let step = format!("a window of {} MiB below 2 GiB", layout.size >> 20);
    let problem = if is_loader {
        "there is room, but the system's loader maps libraries where it likes; a newer one (glibc 2.36) takes wishes"
            .to_string()
    } else {
        let occupants = occupants_below(1 << 31);
        let occupants =
            if occupants.is_empty() { "nothing that this process may see".into() } else { occupants.join(", ") };
        format!("no range of that size is free; largest there: {occupants}. Ask for a smaller window, or earlier")
    };
    MemoryFault::Refused { step, problem }
}

/// Has the loader open a file without a name, by its descriptor.
pub(super) fn load_descriptor(file: &File, nonce: u64) -> Result<LoadedWindow, String> {
    // Debuggers open the path that the loader tells them, so it names this process; where /proc counts processes
    // otherwise than the process itself does (containers), `self` is the name that works.
    let descriptor = file.as_raw_fd();
    let path = format!("/proc/{}/fd/{descriptor}", std::process::id());
    let library = open(Path::new(&path)).or_else(|_| open(Path::new(&format!("/proc/self/fd/{descriptor}"))))?;
    check(library, None, nonce)
}

/// Has the loader open a small file with a name, which is gone when this returns.
pub(super) fn load_named(image: impl FnOnce(u64) -> WindowImage, nonce: u64) -> Result<LoadedWindow, String> {
    // Should the name be there already, after all, the file is not made and not opened.
    let name = format!("jittison-{}-{nonce:016x}", std::process::id());
    let file = NamedFile::create(&name, &image(SMALL_FILE_DYNAMIC_OFFSET).small_file())?;
    let library = open(file.path())?;
    check(library, file.unlink(), nonce)
}

/// Reserves a range, and tells the unwinder of it where there is no loader that would; `reason` where there is one.
pub(super) fn list(layout: &WindowLayout, preferred: u64, reason: String) -> Result<LoadedWindow, String> {
    let (base, reservation) = reserve_range(layout, preferred).map_err(|fault| fault.to_string())?;
    let (header, frame_header_bytes) = frame_header(layout);
    let frame_header = base.value() + header;
    let range = ListedRange { base: base.value(), size_bytes: layout.size, frame_header, frame_header_bytes };
    let listed = Listed::new(range).ok_or(reason)?;
    Ok(LoadedWindow { base, holder: Registration::Listed(listed, reservation) })
}

/// Reserves a range that the loader would not have.
pub(super) fn reserve(layout: &WindowLayout, preferred: u64, reason: String) -> Result<LoadedWindow, MemoryFault> {
    let (base, reservation) = reserve_range(layout, preferred)?;
    Ok(LoadedWindow { base, holder: Registration::Reserved(reservation, reason) })
}

fn reserve_range(layout: &WindowLayout, preferred: u64) -> Result<(ExecutorAddr, Reservation), MemoryFault> {
    // Pools are aligned to chunks, and the kernel aligns to pages.
    let reservation = Reservation::new(preferred, (layout.size + CHUNK) as usize).map_err(|error| {
        MemoryFault::Refused { step: "reserving address space".to_string(), problem: error.to_string() }
    })?;
    Ok((ExecutorAddr::new(reservation.address().next_multiple_of(CHUNK)), reservation))
}

fn open(path: &Path) -> Result<Library, String> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    Library::open(&path, false)
}

/// Makes sure that the loader opened what it should.
fn check(library: Library, file: Option<File>, nonce: u64) -> Result<LoadedWindow, String> {
    let base = library.first_byte()?;
    // SAFETY: M4 - the loader mapped the header page of what it opened at `base`; at worst it is another library's.
    let found = unsafe { ((base + NONCE_OFFSET) as *const u64).read() };
    if found != nonce {
        return Err("the loader handed out another library".to_string());
    }
    Ok(LoadedWindow { base: ExecutorAddr::new(base), holder: Registration::Library(library, file) })
}

/// A number that no other window has.
pub(super) fn new_nonce() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// How often a loader that maps elsewhere is asked again.
const MAX_TRIES: usize = 2;

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[cfg_attr(miri, ignore = "maps memory and asks the loader")]
    #[test]
    fn a_window_that_stands_elsewhere_is_gone_before_the_next_is_described() {
        let layout = WindowLayout::divide(64 << 20).unwrap();
        let (last, tries) = (Cell::new(None), Cell::new(0));
        let placed = place(&layout, Placement::NearHost, |_| {
            assert!(last.get().is_none_or(|base| is_free(base, layout.size as usize)), "two windows of one file");
            let window = reserve(&layout, 0, "as told".to_string())?;
            last.set(Some(window.base.value()));
            tries.set(tries.get() + 1);
            Ok(window)
        });
        assert_eq!(tries.get(), MAX_TRIES, "the first stood elsewhere");
        assert_eq!(placed.unwrap().base.value(), last.get().unwrap());
    }
}
