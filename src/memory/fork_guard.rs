//! Forking with live windows: a forked child gets code memory of its own.
//!
//! Code and constants are shared mappings of a file, because they are mapped twice; so a child would see its code change
//! when the parent removes and links on. [`ForkPolicy::Snapshot`] gives the child a copy:
//!
//! ```text
//!   thread that forks        prepare: lock, copy files ── fork ──┬── parent: forget copies, unlock
//!                                      ▲                         └── child: map copies over views, unlock
//!   other threads          settle ─────┘ waits from here on until the parent's side is done
//! ```
//!
//! The copy is taken before the fork, and by the parent: a copy by the child would have to keep the parent from using
//! memory again for as long as the child takes, or for ever if it dies. What is published at the fork is in the copy,
//! because an allocation is settled before it is published, and [`wait_for_forks`] makes that wait from the copy to the
//! fork. A module that another thread is linking at the fork is lost to the child, as that thread is.
//!
//! The child only makes system calls, on what was prepared, at addresses that stay: pointers into windows stay valid.
//! Data pools, and windows mapped once, are private memory, which the kernel copies itself when it is written.
//!
//! This file holds its lock over system calls; nothing else is locked under it, and nobody holds it for long but a fork.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use crate::base::{ExecutorAddr, Pool};
use crate::error::MemoryFault;
use crate::memory::layout::WindowLayout;
use crate::memory::mapper::ForkPolicy;
use crate::memory::window_image::table_pages;
use crate::os::{FileCopy, Protection, Shown, at_fork, sever};
use crate::sync::{
    Arc, ForkGuard, ForkMutex, MappedU32, Ordering, heavy_barrier, light_barrier, prepare_barriers, thread_local,
};

/// A window whose pages a child would share.
pub(super) struct ForkedView {
    parts: [Shown; 3],
    alias: u64,
    alias_size: usize,
    /// Opened read-only, or as the running view is mapped from it. A child's is its copy.
    file: File,
    is_read_only: bool,
    policy: ForkPolicy,
    is_severed: MappedU32,
}

impl ForkedView {
    /// Of a window at `base`, of which `alias` shows the file's first `alias_size` bytes.
    ///
    /// # Safety
    /// - The address space of the window's layout at `base`, and of `alias`, is the window's as long as the value lives (M7).
    /// - `alias` shows that much of `file`, writable, as long as the value lives (M4).
    pub(super) unsafe fn new(
        base: ExecutorAddr,
        layout: &WindowLayout,
        (alias, alias_size): (*const u8, usize),
        file: File,
        is_read_only: bool,
        policy: ForkPolicy,
    ) -> ForkedView {
        let shown = |offset: u64, size: u64, protection| Shown {
            address: base.offset(offset).value(),
            offset,
            size_bytes: size as usize,
            protection,
        };
        let (code, constants) = (layout.readable_code(), layout.pool(Pool::ReadOnly));
        ForkedView {
            parts: [
                shown(0, table_pages(layout), Protection::Read),
                shown(code.offset, code.size, Protection::ReadExecute),
                shown(constants.offset, constants.size, Protection::Read),
            ],
            alias: alias as u64,
            alias_size,
            file,
            is_read_only,
            policy,
            is_severed: MappedU32::new(0),
        }
    }

    /// What the running view shows, and the file that it is mapped from.
    pub(super) fn shown(&self) -> (&[Shown], &File) {
        (&self.parts, &self.file)
    }

    /// Whether this is a child's view of its parent's window: what is written does not reach the running view.
    pub(super) fn is_severed(&self) -> bool {
        self.is_severed.load(Ordering::Relaxed) != 0
    }

    fn copy(&self) -> Option<FileCopy> {
        if self.policy == ForkPolicy::Share || self.is_severed() {
            return None;
        }
        // SAFETY: M4, M6 - the alias shows the file for as long as the view is registered.
        let copy = unsafe {
            let view = self.alias as *const u8;
            FileCopy::take(c"jittison", self.file.as_fd(), view, self.alias_size as u64, self.is_read_only)
        };
        copy.ok()
    }

    /// In the child.
    fn adopt(&self, copy: Option<FileCopy>) {
        // SAFETY: M4, M7 - the window is registered, so that its range and its descriptor are its own, and the alias did
        // not come along; the copy was made of it.
        let is_whole = copy
            .is_some_and(|copy| unsafe { copy.adopt(&self.parts, self.alias, self.alias_size, self.file.as_raw_fd()) });
        if !is_whole {
            self.is_severed.store(1, Ordering::Relaxed);
            // SAFETY: M4, M7 - as above. Refused, the address space stays empty, and removals in the child fault.
            unsafe { sever(self.alias, self.alias_size) };
        }
    }
}

/// Every live view of the process.
struct Registry {
    /// Whether the C library knows the handlers.
    is_armed: bool,
    views: Vec<Arc<ForkedView>>,
    /// For each view, while a fork is under way.
    copies: Vec<Option<FileCopy>>,
}

static REGISTRY: ForkMutex<Registry> =
    ForkMutex::new(Registry { is_armed: false, views: Vec::new(), copies: Vec::new() });

/// One while a fork is under way.
static FORKING: MappedU32 = MappedU32::new(0);

/// How many forks lie between this process and the one that mapped its first window.
static FORKS: MappedU32 = MappedU32::new(0);

/// Another number in a child than in its parent, and never zero: threads of another generation are not this process's.
/// Counted where windows mind forks.
pub(super) fn generation() -> u64 {
    u64::from(FORKS.load(Ordering::Relaxed)) + 1
}

thread_local! {
    /// The lock, between a fork's beginning and its end in this thread, in both processes.
    // loom's `thread_local` takes no `const` block.
    #[allow(clippy::missing_const_for_thread_local)]
    static HELD: RefCell<Option<ForkGuard<'static, Registry>>> = RefCell::new(None);
}

/// Has forks mind a view until [`unregister`].
///
/// # Errors
/// When the C library has no room for the handlers.
pub(super) fn register(view: &Arc<ForkedView>) -> Result<(), MemoryFault> {
    let mut registry = lock();
    // Handlers that are being registered are not being run, so that this waits for nobody who waits for the lock.
    registry.is_armed = registry.is_armed || at_fork(prepare, parent, child);
    if !registry.is_armed {
        let problem = "the C library has no room for handlers".to_string();
        return Err(MemoryFault::Refused { step: "pthread_atfork".to_string(), problem });
    }
    // Ahead of the first allocation in the view.
    prepare_barriers();
    registry.views.push(view.clone());
    Ok(())
}

pub(super) fn unregister(view: &Arc<ForkedView>) {
    lock().views.retain(|other| !Arc::ptr_eq(other, view));
}

/// Waits until no fork is under way. What this thread wrote before is in the copy of every fork that begins after it.
pub(super) fn wait_for_forks() {
    // Pairs with the heavy barrier in `prepare`: either this thread sees the fork and waits, or the copy sees what it wrote.
    // Every link passes here, and few processes ever fork.
    light_barrier();
    if FORKING.load(Ordering::Relaxed) != 0 {
        drop(lock());
    }
}

fn lock() -> ForkGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

extern "C" fn prepare() {
    let mut registry = lock();
    FORKING.store(1, Ordering::Relaxed);
    heavy_barrier();
    let now = &mut *registry;
    now.copies.clear();
    now.copies.extend(now.views.iter().map(|view| view.copy()));
    if HELD.try_with(|held| *held.borrow_mut() = Some(registry)).is_err() {
        // A thread that is ending has no place to keep the lock. Its child has no working views.
        end(lock());
    }
}

extern "C" fn parent() {
    if let Some(registry) = HELD.try_with(|held| held.borrow_mut().take()).ok().flatten() {
        end(registry);
    }
}

fn end(mut registry: ForkGuard<'static, Registry>) {
    registry.copies.drain(..).flatten().for_each(FileCopy::close);
    FORKING.store(0, Ordering::Relaxed);
}

extern "C" fn child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    if let Some(mut registry) = HELD.try_with(|held| held.borrow_mut().take()).ok().flatten() {
        // The list of copies is emptied by the next fork: giving memory back is not safe here.
        let now = &mut *registry;
        for (view, copy) in now.views.iter().zip(&mut now.copies) {
            view.adopt(copy.take());
        }
        FORKING.store(0, Ordering::Relaxed);
    }
}
