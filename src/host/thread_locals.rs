//! [`ThreadLocalModule`]: the thread-local block of linked code, which the C library holds.
//!
//! The C library copies the image of a block for each thread that uses it, and frees the copy when the module is closed or the
//! thread ends. It does so only for modules that its loader has loaded. So the block is loaded as a shared object, from a file
//! without a name (`thread_local_image.rs`).
//!
//! # Static offset
//! Code of the static TLS models needs the block at the same distance from the thread pointer in every thread. The C library
//! grants that as long as its reserved static space lasts. It initialises such a block in all threads at once, so the image
//! must be complete by then.
//!
//! | a static offset is requested | granted |
//! |---|---|
//! | when the block is loaded (`StaticTls::Required`, `Wanted`) | while there is space |
//! | later ([`late_static_offset`]) | while there is space, and no thread has used the block by `__tls_get_addr` |
//!
//! A late request loads a file that refers to the block, as the loader does for a library that uses a variable of
//! another library by a static model. The block keeps the offset until it is closed.
//!
//! # When safe code reaches a block
//! The image of another block may get its last values after the block is loaded. The C library copies the image when a thread
//! first asks for the block, and safe code can ask with a made-up [`TlsIndex`]. So [`address_in_this_thread`] accepts a block
//! of linked code only if its module is in [`COMPLETE_MODULES`]:
//!
//! | event | in `COMPLETE_MODULES` | image |
//! |---|---|---|
//! | the loader loads the file | no | only the owner of the module writes it |
//! | [`complete`](ThreadLocalModule::complete) | yes | nobody writes it any more |
//! | drop, before the library is closed | no | unmapped when the last handle of the library is closed |
//!
//! The check holds no lock while the loader copies. It opens the library first, so the loader gives the number to no other
//! module. If the number is in the set then, it belongs to that library, whose image is final. The name of the file tells
//! blocks of linked code from libraries ([`is_linked_block`]), so a block that is loaded and not yet recorded is refused, too.

use std::ffi::{CStr, CString};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;

use crate::base::{ExecutorAddr, NumberMap, TlsIndex};
use crate::error::{Error, ErrorKind, LinkFault};
use crate::host::thread_local_image::{
    BLOCK_SYMBOL, MAX_NAME, MODULE_WORD, OFFSET_WORD, STATIC_WORD, ThreadLocalImage, words_page,
};
use crate::os::{Library, SharedFile};
use crate::sync::{Arc, StaticForkMutex};

/// The thread-local block of linked code. Dropping it frees the copies of all threads: no code may use them any more.
pub struct ThreadLocalModule {
    _library: Library,
    /// The path of the library, which no other loaded library has.
    path: Arc<CStr>,
    /// Address of the image.
    image: u64,
    image_size: usize,
    number: u32,
    static_offset: Option<i64>,
    is_complete: bool,
}

/// Whether a block needs the same distance from the thread pointer in every thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaticTls {
    /// The block needs it. Loading fails if the static space of the C library is full.
    #[cfg_attr(not(feature = "unstable"), allow(dead_code))]
    Required,
    /// The block gets it if there is static space.
    Wanted,
    /// The block does not need it.
    NotNeeded,
}

impl ThreadLocalModule {
    /// Loads a block of `size` bytes that starts with `image`. The other bytes are zero. `Jit::address_of` finds no variable of
    /// the block before [`complete`](Self::complete), unless the block has a static offset.
    ///
    /// # Errors
    /// The image is larger than the block; the block is larger than 2 GiB; `align` is not a power of two up to 2 MiB; the
    /// loader refuses the file (the error has its text).
    #[cfg_attr(not(feature = "unstable"), allow(dead_code))]
    pub fn load(image: &[u8], size: u64, align: u64, static_tls: StaticTls) -> Result<ThreadLocalModule, Error> {
        Self::try_load(image, size, align, static_tls).map_err(|problem| unsupported(size, &problem))
    }

    /// As [`load`](Self::load). The error has only the reason.
    pub(super) fn try_load(
        image: &[u8],
        size: u64,
        align: u64,
        static_tls: StaticTls,
    ) -> Result<ThreadLocalModule, String> {
        // The C library trusts the sizes in the file and would copy beyond the end of the block.
        if image.len() as u64 > size {
            return Err(format!("it cannot hold an image of {} bytes", image.len()));
        }
        if size > MAX_SIZE {
            return Err(format!("it has more than {MAX_SIZE} bytes"));
        }
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(format!("it cannot be aligned to {align}"));
        }
        let load = |is_static| -> Result<ThreadLocalModule, String> {
            let file = ThreadLocalImage { image, size, align, variable: None, library: None, is_static };
            let (library, path) = load(&file.bytes())?;
            let words = Words::of(&library)?;
            let static_offset = is_static.then_some(words.static_offset);
            let mut module = ThreadLocalModule {
                image: library.first_byte()? + file.offset(),
                image_size: image.len(),
                number: words.variable.module,
                static_offset,
                is_complete: false,
                path: Arc::from(path),
                _library: library,
            };
            // The loader has copied the image of such a block.
            if is_static {
                module.complete();
            }
            Ok(module)
        };
        match static_tls {
            StaticTls::Required => load(true),
            StaticTls::Wanted => load(true).or_else(|_| load(false)),
            StaticTls::NotNeeded => load(false),
        }
    }

    /// The number of the module in the C library.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Distance of the block from the thread pointer, if it is the same in every thread.
    pub fn static_offset(&self) -> Option<i64> {
        self.static_offset
    }

    /// The image, to be completed before any thread has a copy of it. `None` after [`complete`](Self::complete), and for a
    /// block with a [static offset](Self::static_offset), which is complete from the start.
    pub fn image(&mut self) -> Option<&mut [u8]> {
        if self.is_complete {
            return None;
        }
        // SAFETY: H5 - the file defines `image_size` bytes at this address, in a writable segment, mapped while `_library` is
        // open. The block has no static offset, so the loader reads them only when a thread first uses the block. No thread
        // does: `address_in_this_thread` refuses a block that is not complete, and H1 - linked code that uses the block runs
        // when it is ready. `&mut self` excludes another reference.
        Some(unsafe { std::slice::from_raw_parts_mut(self.image as *mut u8, self.image_size) })
    }

    /// Ends the writing of the image. From now on threads may copy it.
    pub fn complete(&mut self) {
        self.is_complete = true;
        let block = CompleteBlock { path: self.path.clone(), static_offset: self.static_offset };
        COMPLETE_MODULES.lock().insert(self.number.into(), block);
    }

    /// Requests a static offset for a complete block that was loaded without one.
    pub(super) fn request_static_offset(&mut self) -> Option<i64> {
        self.static_offset = self.static_offset.or_else(|| late_static_offset(self.number));
        self.static_offset
    }
}

impl Drop for ThreadLocalModule {
    fn drop(&mut self) {
        // Before the library is closed: another module may get the number after that.
        COMPLETE_MODULES.lock().remove(self.number.into());
    }
}

impl std::fmt::Debug for ThreadLocalModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread-local module {}", self.number)
    }
}

/// Finds a thread-local variable that the program or one of its libraries exports.
///
/// # Errors
/// The text of the loader.
pub(super) fn find_variable(name: &str) -> Result<TlsIndex, String> {
    load_words(name, false).map(|words| words.variable)
}

/// Requests a static offset for the block of a library that was just opened, if it exports thread-local variables. Code
/// of the static TLS models may need it. A later request may fail: once the library has used its block without a static
/// offset (the C++ runtime does when it throws), the loader grants none. A refusal is ignored.
pub(super) fn prefer_static_offset(library: &Library) {
    if let Some(variable) = library.exported_thread_local() {
        let _ = load_words(&variable, true);
    }
}

/// A variable's distance from the thread pointer, if it is the same in every thread, or if the C library grants that now. A
/// variable of a library is looked up by `name`; for one of linked code the name is not used.
pub(super) fn static_offset(variable: TlsIndex, name: &str) -> Option<i64> {
    if COMPLETE_MODULES.lock().contains_key(variable.module.into()) {
        return late_static_offset(variable.module).map(|start| start + i64::from(variable.offset));
    }
    let words = load_words(name, true).ok()?;
    (words.variable == variable).then_some(words.static_offset)
}

/// The distance of a complete block of linked code from the thread pointer. Requests one if the block has none. `None` if
/// there is no such block, or if the C library grants no distance.
fn late_static_offset(module: u32) -> Option<i64> {
    let CompleteBlock { path, static_offset } = COMPLETE_MODULES.lock().get(module.into())?.clone();
    if static_offset.is_some() {
        return static_offset;
    }
    // The block may be closed at any time. While this handle is open, its number and its path are its own.
    let _library = Library::open_loaded(&path)?;
    let is_still_loaded = || COMPLETE_MODULES.lock().get(module.into()).is_some_and(|block| block.path == path);
    if !is_still_loaded() {
        return None;
    }
    let (variable, library) = (Some(BLOCK_SYMBOL), path.to_str().ok());
    let file = ThreadLocalImage { image: &[], size: 0, align: 1, variable, library, is_static: true };
    let words = Words::of(&load(&file.bytes()).ok()?.0).ok()?;
    let start = (words.variable == TlsIndex { module, offset: 0 }).then_some(words.static_offset)?;
    if let Some(block) = COMPLETE_MODULES.lock().get_mut(module.into()).filter(|block| block.path == path) {
        block.static_offset = Some(start);
    }
    Some(start)
}

/// Address of a variable in the calling thread. `None` if no loaded library has it, or if the image of its block is not
/// complete.
pub(super) fn address_in_this_thread(variable: TlsIndex) -> Option<ExecutorAddr> {
    // A thread that copies an incomplete image races with the link that writes it, and keeps the wrong values.
    let may_copy =
        |library: &CStr| !is_linked_block(library) || COMPLETE_MODULES.lock().contains_key(variable.module.into());
    crate::os::thread_local_address(variable.module.into(), variable.offset.into(), may_copy).map(ExecutorAddr::new)
}

/// The blocks of linked code whose image is complete, by module number. It is a static because module numbers are unique in
/// the process.
///
/// No thread forks while it holds the lock, and none calls the loader. A mutex without a list of waiters: a child may link when
/// other threads of the parent waited for the lock at the fork.
static COMPLETE_MODULES: StaticForkMutex<NumberMap<CompleteBlock>> = StaticForkMutex::new(NumberMap::new());

/// A block of linked code whose image is complete.
#[derive(Clone)]
struct CompleteBlock {
    /// The path of its library.
    path: Arc<CStr>,
    /// Distance from the thread pointer, if it is the same in every thread.
    static_offset: Option<i64>,
}

/// The words that the loader wrote.
struct Words {
    /// Module, and offset in its block.
    variable: TlsIndex,
    static_offset: i64,
}

impl Words {
    /// Reads the words of a loaded file.
    fn of(library: &Library) -> Result<Words, String> {
        let start = library.first_byte()? + words_page();
        let word = |offset: u64| {
            // SAFETY: H5 - `library` is open, and the file defines an aligned word at each of these offsets. The loader wrote
            // them before `open` returned.
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

/// Makes the loader fill in the words of a variable that some library exports.
fn load_words(name: &str, is_static: bool) -> Result<Words, String> {
    if name.len() > MAX_NAME {
        return Err(format!("the name of a variable can have at most {MAX_NAME} bytes"));
    }
    let file = ThreadLocalImage { image: &[], size: 0, align: 1, variable: Some(name), library: None, is_static };
    Words::of(&load(&file.bytes())?.0)
}

/// Loads a shared object from its bytes. Also returns its path.
fn load(bytes: &[u8]) -> Result<(Library, CString), String> {
    let file = SharedFile::create(c"jittison thread-local", bytes.len() as u64).map_err(|error| error.to_string())?;
    let mut file = file.into_file();
    file.write_all(bytes).map_err(|error| error.to_string())?;
    // If the loader has already opened a path, it returns that library again. Descriptor numbers are reused, so each
    // path gets a random spelling that means the same file.
    let number = RandomState::new().hash_one(std::process::id());
    let detours: String = (0..DETOURS).map(|bit| if number >> bit & 1 == 1 { "./" } else { "/" }).collect();
    let path = CString::new(format!("{DIRECTORY}{detours}{}", file.as_raw_fd())).map_err(|error| error.to_string())?;
    Library::open(&path, false).map(|library| (library, path))
}

/// Whether [`load`] opened a library with this path, in this copy of the crate or in another one.
fn is_linked_block(path: &CStr) -> bool {
    let spelling = path.to_str().ok().and_then(|path| path.strip_prefix(DIRECTORY));
    spelling.is_some_and(|spelling| {
        let detours = spelling.trim_end_matches(|character: char| character.is_ascii_digit());
        detours.len() < spelling.len()
            && detours.matches('/').count() == DETOURS as usize
            && detours.chars().all(|character| matches!(character, '.' | '/'))
    })
}

const DIRECTORY: &str = "/proc/self/fd/";
/// The number of random parts in a path.
const DETOURS: u32 = u64::BITS;

/// Offsets in a block have 31 bits.
const MAX_SIZE: u64 = 1 << 31;
/// The size of a huge page. `link` refuses larger alignments.
const MAX_ALIGN: u64 = 2 << 20;

fn unsupported(size: u64, problem: &str) -> Error {
    let what = format!("thread-local block of {size} bytes: {problem}");
    let fault = LinkFault::Unsupported { what, section: ".tdata".to_string(), offset: 0, symbol: String::new() };
    ErrorKind::Link { object: "thread-local storage".to_string(), fault }.into()
}
