//! [`ThreadLocalModule`]: a thread-local block, held with the C library.
//!
//! The library copies the block's image for each thread that asks for it, and gives the copies back when the module goes
//! or the thread ends. It does both for modules that its loader has loaded; so the block is loaded as a shared object,
//! from a file without a name. What code of the static models wants, a block at one distance from every thread's
//! pointer, the library grants as long as there is room in what it gives to every thread from the start; it fills the
//! block in there for all threads at once, so the image must be whole when such a module is loaded.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use crate::base::{ExecutorAddr, TlsIndex};
use crate::error::{Error, ErrorKind, LinkFault};
use crate::host::thread_local_image::{MAX_NAME, MODULE_WORD, OFFSET_WORD, STATIC_WORD, ThreadLocalImage};
use crate::os::{Library, SharedFile};
use crate::sync::StaticMutex;

/// A block of linked code. Dropping it gives every thread's copy back: only when no code refers to it any more.
pub struct ThreadLocalModule {
    _library: Library,
    /// Where the image is.
    image: u64,
    image_size: usize,
    number: u32,
    static_offset: Option<i64>,
}

/// How near to the thread pointer a block must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaticTls {
    /// At one distance in every thread.
    Required,
    /// The same, if there is room.
    Wanted,
    /// Anywhere.
    NotNeeded,
}

impl ThreadLocalModule {
    /// Has the C library keep a block of `size` bytes that begins as `image`, with zeroes behind.
    ///
    /// # Errors
    /// In the loader's own words; when the image is larger than the block, or `align` is no power of two up to 2 MiB.
    pub fn load(image: &[u8], size: u64, align: u64, place: StaticTls) -> Result<ThreadLocalModule, Error> {
        Self::try_load(image, size, align, place).map_err(|problem| refused(size, &problem))
    }

    /// As [`load`](Self::load), with the reason of a refusal alone.
    pub(crate) fn try_load(image: &[u8], size: u64, align: u64, place: StaticTls) -> Result<ThreadLocalModule, String> {
        // The C library copies what it is told to, wherever that ends.
        if image.len() as u64 > size || size > MAX_SIZE {
            return Err(format!("it cannot hold an image of {} bytes", image.len()));
        }
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(format!("it cannot be aligned to {align}"));
        }
        let load = |is_static| -> Result<ThreadLocalModule, String> {
            let file = ThreadLocalImage { image, size, align, variable: None, is_static };
            let library = load(&file.bytes())?;
            let words = Words::of(&library)?;
            let static_offset = is_static.then_some(words.static_offset);
            let number = words.variable.module;
            if let Some(offset) = static_offset {
                STATIC_MODULES.lock().insert(number, offset);
            }
            let image_at = library.first_byte()? + file.offset();
            Ok(ThreadLocalModule { _library: library, image: image_at, image_size: image.len(), number, static_offset })
        };
        match place {
            StaticTls::Required => load(true),
            StaticTls::Wanted => load(true).or_else(|_| load(false)),
            StaticTls::NotNeeded => load(false),
        }
    }

    /// The number that the C library gave to it.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Distance of the block from the thread pointer, if that is the same in every thread.
    pub fn static_offset(&self) -> Option<i64> {
        self.static_offset
    }

    /// The image, to be made whole before any thread has a copy of it.
    pub fn image(&mut self) -> &mut [u8] {
        // SAFETY: H5 - the loader mapped the image there, writable, for as long as `_library` is open; it reads it only
        // for threads that ask for their copy, which none does before the code is ready.
        unsafe { std::slice::from_raw_parts_mut(self.image as *mut u8, self.image_size) }
    }
}

impl Drop for ThreadLocalModule {
    fn drop(&mut self) {
        // Ahead of the library, after which the number may be another's.
        STATIC_MODULES.lock().remove(&self.number);
    }
}

impl std::fmt::Debug for ThreadLocalModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread-local module {}", self.number)
    }
}

/// A thread-local variable that the program or one of its libraries exports.
///
/// # Errors
/// In the loader's own words.
pub(crate) fn find_variable(name: &str) -> Result<TlsIndex, String> {
    ask_for(name, false).map(|words| words.variable)
}

/// Gives the block of a library that was just opened a place at one distance from every thread's pointer, if it exports
/// variables and there is room: code of the static models may want them. Once the library itself has used its block in
/// the other way (the C++ runtime does when it throws), that is no longer to be had.
pub(crate) fn prefer_static_place(library: &Library) {
    if let Some(variable) = library.exported_thread_local() {
        let _ = ask_for(&variable, true);
    }
}

/// A variable's distance from the thread pointer, if that is the same in every thread. `name` is what libraries know it
/// by, for variables that are not linked code's.
pub(crate) fn static_offset(variable: TlsIndex, name: &str) -> Option<i64> {
    if let Some(start) = STATIC_MODULES.lock().get(&variable.module) {
        return Some(start + i64::from(variable.offset));
    }
    let words = ask_for(name, true).ok()?;
    (words.variable == variable).then_some(words.static_offset)
}

/// Where a variable is in the calling thread; `None` when no library that is loaded has it.
pub(crate) fn address_in_this_thread(variable: TlsIndex) -> Option<ExecutorAddr> {
    crate::os::thread_local_address(variable.module.into(), variable.offset.into()).map(ExecutorAddr::new)
}

/// Blocks of linked code at a fixed distance from the thread pointer, by number. Numbers are the process's, so this is too.
static STATIC_MODULES: StaticMutex<BTreeMap<u32, i64>> = StaticMutex::new(BTreeMap::new());

/// What the loader filled in.
struct Words {
    variable: TlsIndex,
    static_offset: i64,
}

impl Words {
    fn of(library: &Library) -> Result<Words, String> {
        let start = library.first_byte()?;
        let word = |offset: u64| {
            // SAFETY: H5 - the loader mapped the page of words there and is done with it.
            unsafe { ((start + offset) as *const u64).read() }
        };
        let (module, offset) = (word(MODULE_WORD), word(OFFSET_WORD));
        match (u32::try_from(module), u32::try_from(offset)) {
            (Ok(module @ 1..), Ok(offset)) => {
                Ok(Words { variable: TlsIndex { module, offset }, static_offset: word(STATIC_WORD) as i64 })
            }
            _ => Err(format!("the loader says module {module}, offset {offset:#x}")),
        }
    }
}

fn ask_for(name: &str, is_static: bool) -> Result<Words, String> {
    if name.len() > MAX_NAME {
        return Err(format!("names of variables may be {MAX_NAME} bytes long"));
    }
    let file = ThreadLocalImage { image: &[], size: 0, align: 1, variable: Some(name), is_static };
    Words::of(&load(&file.bytes())?)
}

fn load(bytes: &[u8]) -> Result<Library, String> {
    let file = SharedFile::create(c"jittison thread-local", bytes.len() as u64).map_err(|error| error.to_string())?;
    let mut file = file.into_file();
    file.write_all(bytes).map_err(|error| error.to_string())?;
    // The loader hands out what it has already when it is given a path again; descriptors are used again, so each path is
    // written in a way of its own.
    let number = RandomState::new().hash_one(std::process::id());
    let detours: String = (0..u64::BITS).map(|bit| if number >> bit & 1 == 1 { "./" } else { "/" }).collect();
    let path =
        CString::new(format!("/proc/self/fd/{detours}{}", file.as_raw_fd())).map_err(|error| error.to_string())?;
    Library::open(&path, false)
}

/// A block has offsets of 31 bits, and its alignment is at most that of a huge page (`link` refuses more).
const MAX_SIZE: u64 = 1 << 31;
const MAX_ALIGN: u64 = 2 << 20;

fn refused(size: u64, problem: &str) -> Error {
    let what = format!("thread-local block of {size} bytes: {problem}");
    let fault = LinkFault::Unsupported { what, section: ".tdata".to_string(), offset: 0, symbol: String::new() };
    ErrorKind::Link { object: "thread-local storage".to_string(), fault }.into()
}
